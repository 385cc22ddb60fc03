//! Determines which lines need OpenSSL: those that use features missing in rustls, or older versions than it supports
//! (`legacy-tls`).
//!
//! A list of cipher suites that rustls supports only partly is accepted as long as TLS 1.3 is allowed, because recommended lists
//! contain suites for clients that no longer exist.

use diag::{Diagnostic, Span};
use tls::ciphers::security_level;
use tls::{Parameters, TLS12, TLS13, has_suite, names};

use crate::draft::Statement;
use crate::draft::tls::{TlsDefaults, TlsWords};

/// The reason why a line needs OpenSSL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LegacyCause {
    /// A TLS version number.
    Version(u16),
    /// Loaded providers.
    Provider,
    /// Cipher suites.
    Suites,
    /// A security level below OpenSSL's usual one.
    Level(u8),
    /// Diffie-Hellman parameters.
    Dh,
    /// Renegotiation by servers.
    Renegotiation,
    /// The key of the certificate in this file.
    Key(Box<str>),
}

impl std::fmt::Display for LegacyCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => write!(f, "{}", names::version_name(*version)),
            Self::Provider => f.write_str("`ssl-provider`"),
            Self::Suites => f.write_str("its `ciphers`"),
            Self::Level(level) => write!(f, "security level {level}"),
            Self::Dh => f.write_str("`ssl-dh-param-file`"),
            Self::Renegotiation => f.write_str("`renegotiate`"),
            Self::Key(file) => write!(f, "the kind or size of the key in `{file}`"),
        }
    }
}

/// The requested lists and versions of one side.
pub(crate) struct LegacyNeeds<'w, 'a> {
    pub(crate) own: &'w TlsWords<'a>,
    pub(crate) default: &'w TlsWords<'a>,
    pub(crate) defaults: &'w TlsDefaults<'a>,
    /// Whether the line is for a listener.
    pub(crate) is_bind: bool,
    /// Whether it is for QUIC, which OpenSSL never serves.
    pub(crate) is_quic: bool,
}

impl LegacyNeeds<'_, '_> {
    /// OpenSSL's security level, if one is set.
    pub(crate) fn level(&self) -> Option<u8> {
        let text = self.own.ciphers.or(self.default.ciphers);
        text.and_then(|text| security_level(text.text)).or(self.defaults.security_level)
    }

    /// Whether a server may renegotiate, which requires TLS 1.2 or older.
    pub(crate) fn renegotiates(&self, parameters: &Parameters) -> bool {
        let renegotiation = self.own.renegotiate.or(self.default.renegotiate);
        !self.is_bind && parameters.min <= TLS12 && renegotiation == Some(true)
    }
}

/// The reason why a line needs OpenSSL, if it does. `suites` is the expansion of `ciphers`, out of all of OpenSSL's suites.
pub(crate) fn cause(
    wanted: &LegacyNeeds<'_, '_>,
    parameters: &Parameters,
    suites: Option<&[u16]>,
) -> Option<LegacyCause> {
    if wanted.is_quic {
        return None;
    }
    let speaks_tls12 = (parameters.min..=parameters.max).contains(&TLS12);
    let has_dh_file = wanted.is_bind && wanted.defaults.dh_file.is_some();
    if parameters.min < TLS12 {
        Some(LegacyCause::Version(parameters.min))
    } else if wanted.defaults.has_provider {
        Some(LegacyCause::Provider)
    } else if let Some(level) = wanted.level().filter(|level| *level < 2) {
        Some(LegacyCause::Level(level))
    } else if speaks_tls12 && suites.is_some_and(|suites| need_openssl(suites, parameters.max)) {
        Some(LegacyCause::Suites)
    } else if speaks_tls12 && has_dh_file && suites.is_none_or(|all| all.iter().copied().any(tls::is_dhe)) {
        Some(LegacyCause::Dh)
    } else if wanted.renegotiates(parameters) {
        Some(LegacyCause::Renegotiation)
    } else {
        None
    }
}

/// Whether OpenSSL serves those clients of a listener that rustls cannot serve, although no parameter of the line requires OpenSSL.
/// This is the case without TLS 1.3: the line is then meant for older clients, which use OpenSSL's default suites.
pub(crate) fn is_shared(
    wanted: &LegacyNeeds<'_, '_>,
    parameters: &Parameters,
    suites: Option<&[u16]>,
) -> bool {
    let is_here = !wanted.defaults.no_legacy && tls::HAS_OPENSSL;
    is_here && wanted.is_bind && parameters.max < TLS13 && suites.is_none()
}

/// The reason why a crt-list line needs OpenSSL, if it does; `ciphers` is passed with its expansion.
pub(crate) fn cause_of_line(
    parameters: &Parameters,
    ciphers: Option<&str>,
    suites: Option<&[u16]>,
) -> Option<LegacyCause> {
    if parameters.min < TLS12 {
        Some(LegacyCause::Version(parameters.min))
    } else if let Some(level) = ciphers.and_then(security_level).filter(|level| *level < 2) {
        Some(LegacyCause::Level(level))
    } else if suites.is_some_and(|suites| need_openssl(suites, parameters.max)) {
        Some(LegacyCause::Suites)
    } else {
        None
    }
}

fn need_openssl(suites: &[u16], max: u16) -> bool {
    let here = suites.iter().filter(|suite| has_suite(**suite)).count();
    here == 0 || (max < TLS13 && here < suites.len())
}

/// The error for a line that needs OpenSSL, if that is not available for it.
pub(crate) fn check(
    cause: &LegacyCause,
    at: Span,
    statement: &Statement,
    defaults: &TlsDefaults<'_>,
) -> Result<(), Diagnostic> {
    if !defaults.no_legacy && tls::HAS_OPENSSL {
        return Ok(());
    }
    let keyword = statement.keyword.name;
    let message = format!("this `{keyword}` line needs OpenSSL for {cause}, but OpenSSL is disabled");
    let help = if tls::HAS_OPENSSL {
        "use `legacy-tls on` in the global section, or remove `legacy-tls off`"
    } else {
        "build with the feature `legacy-tls` (`cargo build --features legacy-tls`)"
    };
    Err(Diagnostic::alert(message.clone()).at(at).help(help).haproxy(format!("{message}: {help}")))
}
