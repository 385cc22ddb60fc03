//! The TLS settings of a line, independent of the engine: numbers instead of names, and contents instead of files.

use std::sync::Arc;

use crate::verify_code::VerifyCodes;
use crate::x509;

/// Versions, suites, groups and signatures, as TLS numbers and in order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The oldest version.
    pub min: u16,
    /// The newest version.
    pub max: u16,
    /// Cipher suites of TLS 1.2 (`ciphers`).
    pub suites12: Vec<u16>,
    /// Cipher suites of TLS 1.3 (`ciphersuites`).
    pub suites13: Vec<u16>,
    /// Key exchange groups (`curves`).
    pub groups: Vec<u16>,
    /// The signature schemes for the key of this side: `sigalgs` for a listener, `client-sigalgs` for a server. If empty, all
    /// schemes that the key supports.
    pub sigalgs: Vec<u16>,
    /// The signature schemes that the peer may use: `client-sigalgs` for a listener, `sigalgs` for a server, or `sigalgs` if the
    /// former is not set. Empty for all known schemes.
    pub peer_sigalgs: Vec<u16>,
    /// Whether the client's order of suites takes precedence (`prefer-client-ciphers`).
    pub prefer_client: bool,
    /// Whether certificates may be compressed (`tune.ssl.certificate-compression`).
    pub compresses: bool,
    /// Whether OpenSSL is used for connections with an SNI that rustls rejects.
    pub takes_odd_names: bool,
    /// Additional settings for OpenSSL, if the line needs more than rustls supports.
    pub legacy: Option<Legacy>,
}

/// Settings that only OpenSSL supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Legacy {
    /// Whether OpenSSL serves all clients, because the configuration selects OpenSSL providers (`ssl-provider`).
    pub alone: bool,
    /// OpenSSL's security level (`ssl-security-level`, `@SECLEVEL=` in `ciphers`). Without it, the system's default applies.
    pub security_level: Option<u8>,
    /// Diffie-Hellman parameters, as PEM (`ssl-dh-param-file`). Without them, groups of RFC 3526 are used.
    pub dh: Option<Arc<[u8]>>,
    /// Size of the Diffie-Hellman group in bits if there is no file (`tune.ssl.default-dh-param`).
    pub dh_bits: u16,
    /// Whether a server may renegotiate (`renegotiate`).
    pub renegotiates: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            min: crate::TLS12,
            max: crate::TLS13,
            // ECDHE with AES-256-GCM, AES-128-GCM and ChaCha20-Poly1305, each for ECDSA and RSA.
            suites12: vec![0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc02b, 0xc02f],
            suites13: vec![0x1302, 0x1303, 0x1301],
            // X25519MLKEM768, then HAProxy's default: X25519, P-256, P-521, P-384.
            groups: vec![0x11ec, 0x001d, 0x0017, 0x0019, 0x0018],
            sigalgs: Vec::new(),
            peer_sigalgs: Vec::new(),
            prefer_client: false,
            compresses: true,
            takes_odd_names: cfg!(feature = "legacy-tls"),
            legacy: None,
        }
    }
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum plaintext size of sent records; 0 for 16 KiB (`tune.ssl.maxrecord`, `tune.ssl.hard-maxrecord`).
    pub max_record: u16,
    /// The maximum number of the peer's key updates per second; 0 for no limit (`tune.ssl.keyupdate-rate-limit`).
    pub key_updates: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_record: 0, key_updates: 100 }
    }
}

/// Whether a peer certificate is requested and required (`verify`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VerifyMode {
    /// No certificate is requested.
    #[default]
    None,
    /// A certificate is verified if there is one.
    Optional,
    /// A certificate is required.
    Required,
}

/// Trust anchors and revocation lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The files of the trust anchors: `ca-file`, `ca-verify-file`, `crl-file`.
    pub files: [Option<Box<str>>; 3],
    /// Set if these trust anchors replaced others at run time. Sessions verified with the old ones are not resumed.
    pub generation: Option<[u8; 16]>,
    /// CA certificates, as DER (`ca-file`).
    pub authorities: Vec<Arc<[u8]>>,
    /// Additional CA certificates that are not announced to clients (`ca-verify-file`).
    pub unnamed: Vec<Arc<[u8]>>,
    /// Revocation lists, as DER (`crl-file`).
    pub crls: Vec<Arc<[u8]>>,
}

/// How a listener verifies its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientVerify {
    /// Whether a certificate is requested and required.
    pub mode: VerifyMode,
    /// The trust anchors.
    pub trust: Arc<Trust>,
    /// Errors ignored above the client's own certificate (`ca-ignore-err`).
    pub ca_ignore: VerifyCodes,
    /// Errors ignored for the client's own certificate (`crt-ignore-err`).
    pub crt_ignore: VerifyCodes,
    /// Whether the CA names are not sent to clients (`no-ca-names`).
    pub hides_names: bool,
}

impl ClientVerify {
    /// Whether clients are verified without any trust anchors, so that no certificate would be accepted.
    pub fn has_no_trusted_ca(&self) -> bool {
        let [named, unnamed, _] = &self.trust.files;
        self.mode != VerifyMode::None && named.is_none() && unnamed.is_none()
    }
}

/// A name that a server's certificate may have to contain (`verifysan`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// A host name.
    Dns(Box<str>),
    /// A URI, such as a SPIFFE ID.
    Uri(Box<str>),
}

impl AlternativeName {
    /// Whether the certificate has the name.
    pub(crate) fn is_of(&self, certificate: &x509::CertificateFields<'_>) -> bool {
        match self {
            Self::Dns(host) => certificate.has_dns_name(host),
            Self::Uri(uri) => certificate.has_uri(uri),
        }
    }
}
