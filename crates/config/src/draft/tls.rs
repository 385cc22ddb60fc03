//! TLS parameters of `bind`, `server` and `ssl-default-…` lines, before files are read and names resolved (`resolve::tls`).

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use diag::Span;
use plan::server::Ws;
use syntax::Word;
use tls::VerifyMode;

/// A value with its location. Values from a crt-list have the location of the list's name.
#[derive(Debug, Clone, Copy)]
pub struct TlsValue<'a> {
    /// The value.
    pub text: &'a str,
    /// The location.
    pub span: Span,
}

impl<'a> From<&'a Word> for TlsValue<'a> {
    fn from(word: &'a Word) -> Self {
        Self { text: word, span: word.span() }
    }
}

impl Deref for TlsValue<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.text
    }
}

/// The TLS versions that a line allows (configuration manual, 5.1 and 5.2: `ssl-min-ver`, `no-tlsv12`, `force-tlsv13` and so on).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Versions {
    /// `ssl-min-ver`, as a TLS version number.
    pub min: Option<u16>,
    /// `ssl-max-ver`.
    pub max: Option<u16>,
    /// `force-…`.
    pub only: Option<u16>,
    /// `no-…`: bit N is 0x0300 + N.
    pub without: u8,
}

/// The oldest version allowed by default.
const OLDEST: u16 = tls::TLS12;

impl Versions {
    /// The oldest and the newest version. Unset limits come from `default`.
    #[must_use]
    pub fn range(self, default: Self) -> (u16, u16) {
        let own = if self == Self::default() { default } else { self };
        if let Some(only) = own.only {
            return (only, only);
        }
        let allows = |version: &u16| own.without & (1 << (version & 7)) == 0;
        let known = 0x0300..=tls::TLS13;
        let max = own.max.or_else(|| known.clone().rev().find(allows)).unwrap_or(tls::TLS13);
        let oldest = OLDEST.min(max);
        let min = own.min.or_else(|| known.clone().find(|version| *version >= oldest && allows(version)));
        // SSL 3.0 is never used.
        (min.unwrap_or(OLDEST).max(tls::TLS10), max)
    }

    /// Whether the oldest version is below the default only because `ssl-max-ver` lowers it.
    pub fn is_ambiguous(self, default: Self) -> bool {
        let own = if self == Self::default() { default } else { self };
        own.only.is_none() && own.min.is_none() && own.max.is_some_and(|max| max < OLDEST)
    }
}

/// Parameters common to `bind` lines, `server` lines, crt-list lines and the defaults of the global section.
#[derive(Debug, Clone, Default)]
pub struct TlsWords<'a> {
    /// TLS 1.2 suites, in OpenSSL's notation.
    pub ciphers: Option<TlsValue<'a>>,
    /// TLS 1.3 suites.
    pub ciphersuites: Option<TlsValue<'a>>,
    /// The value of `curves`, or else of `ecdhe`.
    pub curves: Option<TlsValue<'a>>,
    /// `sigalgs`.
    pub sigalgs: Option<TlsValue<'a>>,
    /// `client-sigalgs`.
    pub client_sigalgs: Option<TlsValue<'a>>,
    /// Allowed versions.
    pub versions: Versions,
    /// `alpn`.
    pub alpn: Option<TlsValue<'a>>,
    /// `no-alpn`.
    pub no_alpn: bool,
    /// `tls-tickets`, `no-tls-tickets`.
    pub tickets: Option<bool>,
    /// `renegotiate`, `no-renegotiate`.
    pub renegotiate: Option<bool>,
    /// `verify`.
    pub verify: Option<VerifyMode>,
    /// `ca-file`.
    pub ca_file: Option<TlsValue<'a>>,
    /// `ca-verify-file`.
    pub ca_verify_file: Option<TlsValue<'a>>,
    /// `crl-file`.
    pub crl_file: Option<TlsValue<'a>>,
    /// `prefer-client-ciphers`.
    pub prefer_client: bool,
}

/// The files that make up a certificate: `load` of a `crt-store`, `ssl-f-use`, and the parameters in brackets on a crt-list line
/// (manual, 12.7.1).
#[derive(Debug, Clone, Default)]
pub struct LoadWords<'a> {
    /// `crt`: the certificate itself.
    pub certificate: Option<TlsValue<'a>>,
    /// `key`.
    pub key: Option<TlsValue<'a>>,
    /// `ocsp`: an OCSP response.
    pub ocsp: Option<TlsValue<'a>>,
    /// `issuer`.
    pub issuer: Option<TlsValue<'a>>,
    /// `sctl`: its signed certificate timestamps.
    pub sctl: Option<TlsValue<'a>>,
}

impl<'a> LoadWords<'a> {
    /// The slot for the value of `word`, if it is one of these parameters.
    pub fn place(&mut self, word: &str) -> Option<&mut Option<TlsValue<'a>>> {
        Some(match word {
            "crt" => &mut self.certificate,
            "key" => &mut self.key,
            "ocsp" => &mut self.ocsp,
            "issuer" => &mut self.issuer,
            "sctl" => &mut self.sctl,
            _ => return None,
        })
    }

    /// The parameters that are set, with their values.
    pub fn set_parameters(&self) -> Vec<(&'static str, &'a str)> {
        let all = [
            ("crt", self.certificate),
            ("key", self.key),
            ("ocsp", self.ocsp),
            ("issuer", self.issuer),
            ("sctl", self.sctl),
        ];
        all.into_iter().filter_map(|(word, value)| Some((word, value?.text))).collect()
    }
}

/// The sources of a `bind` line's certificates, in the order of its words.
#[derive(Debug, Clone, Copy)]
pub enum CertificateSource<'a> {
    /// `crt`: a file or a directory.
    File(TlsValue<'a>),
    /// `default-crt`: a file with the certificate for clients whose SNI matches no other.
    Default(TlsValue<'a>),
    /// `crt-list`.
    List(TlsValue<'a>),
}

/// `ktls on` or `off`, and its location.
pub type KernelWord = (bool, Span);

/// The TLS parameters of a `bind` line.
#[derive(Debug, Clone, Default)]
pub struct BindTls<'a> {
    /// `ssl`.
    pub enabled: bool,
    /// Parameters that it shares with other lines.
    pub words: TlsWords<'a>,
    /// Certificates.
    pub certificates: Vec<CertificateSource<'a>>,
    /// `strict-sni`, `no-strict-sni`.
    pub strict_sni: Option<bool>,
    /// `crt-ignore-err`.
    pub crt_ignore: Option<TlsValue<'a>>,
    /// `tls-ticket-keys`.
    pub ticket_keys: Option<TlsValue<'a>>,
    /// `ca-ignore-err`.
    pub ca_ignore: Option<TlsValue<'a>>,
    /// `no-ca-names`.
    pub no_ca_names: bool,
    /// `allow-0rtt`.
    pub early: Option<Span>,
    /// `ktls`.
    pub kernel: Option<KernelWord>,
    /// `generate-certificates`.
    pub generates: Option<Span>,
    /// `ca-sign-file`.
    pub sign_file: Option<TlsValue<'a>>,
    /// `ca-sign-pass`.
    pub sign_pass: Option<TlsValue<'a>>,
}

/// The TLS parameters of a `server` line.
#[derive(Debug, Clone, Default)]
pub struct ServerTls<'a> {
    /// `ws`: the protocol for WebSockets, which ALPN must offer.
    pub ws: Ws,
    /// Whether the server is reached over QUIC.
    pub is_quic: bool,
    /// `ssl`, `no-ssl`.
    pub enabled: bool,
    /// Whether `ssl` was given, possibly only by `default-server`. In that case TLS can be turned on later.
    pub is_set: bool,
    /// `no-ssl`, which is part of the server's state.
    pub refused: bool,
    /// Parameters that it shares with other lines.
    pub words: TlsWords<'a>,
    /// `crt`: the certificate that Weir presents.
    pub certificate: Option<TlsValue<'a>>,
    /// `verifyhost`.
    pub verify_host: Option<TlsValue<'a>>,
    /// `verifysan`.
    pub verify_names: Option<TlsValue<'a>>,
    /// `sni`: an expression.
    pub sni: Option<TlsValue<'a>>,
    /// `no-sni-auto`: the host that the client requested is not sent as SNI.
    pub no_sni_auto: bool,
    /// `no-ssl-reuse`: sessions are not resumed.
    pub no_reuse: bool,
    /// `allow-0rtt`.
    pub early: Option<Span>,
    /// `ktls`.
    pub kernel: Option<KernelWord>,
    /// `check-ssl`, `no-check-ssl`.
    pub check: Option<bool>,
    /// `no-check-sni-auto`: the host of a check is not sent as SNI.
    pub no_check_sni_auto: bool,
    /// `check-sni`.
    pub check_sni: Option<TlsValue<'a>>,
    /// `check-alpn`.
    pub check_alpn: Option<TlsValue<'a>>,
}

/// TLS settings of the global section.
#[derive(Debug, Clone)]
pub struct TlsDefaults<'a> {
    /// `ssl-default-bind-…`.
    pub bind: TlsWords<'a>,
    /// `strict-sni` among `ssl-default-bind-options`.
    pub strict_sni: Option<bool>,
    /// `ssl-default-server-…`.
    pub server: TlsWords<'a>,
    /// `ca-base`.
    pub authorities: Option<&'a str>,
    /// `crt-base`.
    pub certificates: Option<&'a str>,
    /// `key-base`.
    pub keys: Option<&'a str>,
    /// `issuers-chain-path`.
    pub issuers: Option<TlsValue<'a>>,
    /// `ssl-load-extra-files`, `ssl-load-extra-del-ext`.
    pub extra: tls::load::ExtraFiles,
    /// `ssl-server-verify`.
    pub server_verify: VerifyMode,
    /// `tune.ssl.cachesize`: sessions kept for clients.
    pub sessions: usize,
    /// `tune.ssl.ssl-ctx-cache-size`: generated certificates that are kept.
    pub generated: usize,
    /// `tune.ssl.lifetime`: how long a session may be resumed.
    pub lifetime: Duration,
    /// `legacy-tls off`: lines that need OpenSSL are refused.
    pub no_legacy: bool,
    /// `ssl-security-level`: OpenSSL's security level.
    pub security_level: Option<u8>,
    /// Whether `ssl-provider` loaded a provider.
    pub has_provider: bool,
    /// `ssl-provider-path`.
    pub provider_path: Option<&'a str>,
    /// `ssl-dh-param-file`.
    pub dh_file: Option<TlsValue<'a>>,
    /// `tune.ssl.default-dh-param`: the group size in bits, used without a file.
    pub dh_bits: u16,
    /// `tune.ssl.maxrecord`, `tune.ssl.hard-maxrecord`: the longest plaintext of a record, 0 for the protocol's limit.
    pub max_record: [u16; 2],
    /// `tune.ssl.keyupdate-rate-limit`.
    pub key_updates: u32,
    /// `tune.ssl.capture-buffer-size`: the size of the captured ClientHello lists.
    pub capture: Option<usize>,
    /// `tune.ssl.keylog`: whether the secrets of connections are kept.
    pub key_log: bool,
    /// `tune.ssl.certificate-compression`: whether certificates may be sent compressed.
    pub compresses: bool,
    /// `noktls`.
    pub no_kernel: bool,
    /// `ssl-skip-self-issued-ca`.
    pub skips_roots: bool,
    /// `ssl-passphrase-cmd`.
    pub passphrases: Option<Arc<tls::store::Passphrases>>,
    /// `ocsp-update.…`.
    pub updates: tls::files::UpdateSettings,
}

impl TlsDefaults<'_> {
    /// Adopts the settings that affect only the lines below them.
    pub(crate) fn take_place(&mut self, other: &Self) {
        let Self { bind, strict_sni, server, authorities, certificates, keys, server_verify, .. } =
            other.clone();
        (self.bind, self.strict_sni, self.server) = (bind, strict_sni, server);
        (self.authorities, self.certificates, self.keys) = (authorities, certificates, keys);
        self.server_verify = server_verify;
    }
}

impl TlsDefaults<'_> {
    /// The settings that affect connections to servers in addition to the server's own line.
    pub(crate) fn for_servers(&self) -> String {
        let TlsWords {
            ciphers,
            ciphersuites,
            curves,
            sigalgs,
            client_sigalgs,
            versions,
            alpn,
            no_alpn,
            tickets,
            renegotiate,
            verify,
            ca_file,
            ca_verify_file,
            crl_file,
            prefer_client,
        } = self.server;
        // The locations are left out.
        let words =
            [ciphers, ciphersuites, curves, sigalgs, client_sigalgs, alpn, ca_file, ca_verify_file, crl_file]
                .map(|word| word.map(|word| word.text));
        let flags = (versions, no_alpn, tickets, renegotiate, verify, prefer_client);
        let bases = (self.authorities, self.certificates, self.keys);
        format!("{words:?}{flags:?}{bases:?}{:?}", self.server_verify)
    }

    /// The limits for connections.
    pub fn limits(&self) -> tls::Limits {
        let longest = self.max_record.into_iter().filter(|longest| *longest > 0).min();
        tls::Limits { max_record: longest.unwrap_or(0), key_updates: self.key_updates }
    }
}

impl Default for TlsDefaults<'_> {
    fn default() -> Self {
        Self {
            bind: TlsWords::default(),
            strict_sni: None,
            server: TlsWords::default(),
            authorities: None,
            keys: None,
            issuers: None,
            certificates: None,
            extra: tls::load::ExtraFiles::ALL,
            server_verify: VerifyMode::Required,
            sessions: 20_000,
            generated: 1000,
            lifetime: Duration::from_secs(300),
            no_legacy: false,
            security_level: None,
            has_provider: false,
            provider_path: None,
            dh_file: None,
            dh_bits: 2048,
            max_record: [0; 2],
            key_updates: 100,
            capture: None,
            key_log: false,
            compresses: true,
            no_kernel: false,
            skips_roots: false,
            passphrases: None,
            updates: tls::files::UpdateSettings::default(),
        }
    }
}
