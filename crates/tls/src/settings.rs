//! What a line says of TLS, independent of the engine: numbers of TLS instead of names, contents
//! instead of files.

use std::sync::Arc;

use crate::verify_code::VerifyCodes;

/// Versions, suites, groups and signatures, by their numbers in TLS and in order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The oldest version that is spoken.
    pub min: u16,
    /// The newest one.
    pub max: u16,
    /// Cipher suites of TLS 1.2 (`ciphers`).
    pub suites12: Vec<u16>,
    /// Cipher suites of TLS 1.3 (`ciphersuites`).
    pub suites13: Vec<u16>,
    /// Groups for the exchange of keys (`curves`).
    pub groups: Vec<u16>,
    /// What our own key signs with: `sigalgs` of a listener, `client-sigalgs` of a server; empty for
    /// all that it can.
    pub sigalgs: Vec<u16>,
    /// What the peer may sign with: the other of the two, `sigalgs` for want of it; empty for all
    /// that are known.
    pub peer_sigalgs: Vec<u16>,
    /// Whether the client's order of suites counts (`prefer-client-ciphers`).
    pub prefer_client: bool,
    /// Whether certificates may be compressed on their way (`tune.ssl.certificate-compression`).
    pub compresses: bool,
    /// Whether OpenSSL makes the connections with an SNI that rustls refuses.
    pub takes_odd_names: bool,
    /// What OpenSSL is told beside that, where rustls cannot do all that the line says.
    pub legacy: Option<Legacy>,
}

/// What a line says that is for OpenSSL alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Legacy {
    /// Whether OpenSSL serves all clients: its providers are meant to be used (`ssl-provider`).
    pub alone: bool,
    /// OpenSSL's security level (`ssl-security-level`, `@SECLEVEL=` among `ciphers`); without it the
    /// system's default.
    pub security_level: Option<u8>,
    /// Parameters of Diffie-Hellman's exchange, as PEM (`ssl-dh-param-file`); without them groups
    /// of RFC 3526.
    pub dh: Option<Arc<[u8]>>,
    /// Bits of the group without a file (`tune.ssl.default-dh-param`).
    pub dh_bits: u16,
    /// Whether a server may ask for another handshake on its connection (`renegotiate`).
    pub renegotiates: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            min: crate::TLS12,
            max: crate::TLS13,
            // ECDHE with AES-256-GCM, AES-128-GCM, ChaCha20-Poly1305; for ECDSA and RSA each.
            suites12: vec![0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc02b, 0xc02f],
            suites13: vec![0x1302, 0x1303, 0x1301],
            // X25519MLKEM768, then HAProxy's own: X25519, P-256, P-521, P-384.
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

/// What a connection keeps within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest plaintext of a record that is sent; 0 for 16 KiB (`tune.ssl.maxrecord`,
    /// `tune.ssl.hard-maxrecord`).
    pub max_record: u16,
    /// How many times a second the peer may change its key; 0 for any number
    /// (`tune.ssl.keyupdate-rate-limit`).
    pub key_updates: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_record: 0, key_updates: 100 }
    }
}

/// Whether the peer's certificate is asked for, and has to be there (`verify`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VerifyMode {
    /// It is not asked for.
    #[default]
    None,
    /// It is verified where there is one.
    Optional,
    /// There must be one.
    Required,
}

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The files it comes from: `ca-file`, `ca-verify-file`, `crl-file`.
    pub files: [Option<Box<str>>; 3],
    /// Set where this replaced other contents at run time: what those verified is not resumed.
    pub generation: Option<[u8; 16]>,
    /// Certificates of authorities, as DER (`ca-file`).
    pub authorities: Vec<Arc<[u8]>>,
    /// More of them, whose names are not told to clients (`ca-verify-file`).
    pub unnamed: Vec<Arc<[u8]>>,
    /// Revocation lists, as DER (`crl-file`).
    pub crls: Vec<Arc<[u8]>>,
}

/// How a listener verifies its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientVerify {
    /// Whether at all.
    pub mode: VerifyMode,
    /// Whom to trust.
    pub trust: Arc<Trust>,
    /// What is forgiven above the client's own certificate (`ca-ignore-err`).
    pub ca_ignore: VerifyCodes,
    /// What is forgiven of the client's own certificate (`crt-ignore-err`).
    pub crt_ignore: VerifyCodes,
    /// Whether clients are not told whom to have a certificate of (`no-ca-names`).
    pub hides_names: bool,
}

impl ClientVerify {
    /// Whether clients are verified by nobody's certificate: none would be let in.
    pub fn trusts_nobody(&self) -> bool {
        let [named, unnamed, _] = &self.trust.files;
        self.mode != VerifyMode::None && named.is_none() && unnamed.is_none()
    }
}
