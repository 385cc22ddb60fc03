//! What a condition can ask about the program (manual, section 2.4): filled in by the binary,
//! passed to the reader.

use crate::Version;

/// Facts about the running program.
#[derive(Debug, Clone, Default)]
pub struct ProgramFacts {
    /// The version it answers for, such as `3.5-dev5`.
    pub version: Version,
    /// Features built in, as `-vv` lists them behind a `+`: `OPENSSL`, `EPOLL`...
    pub features: Vec<&'static str>,
    /// Options enabled at run time, for `enabled()`: `EPOLL`, `SPLICE`, `REUSEPORT`...
    pub enabled: Vec<&'static str>,
    /// Name and version of the TLS library as OpenSSL would write them, such as `OpenSSL 3.0.15`.
    pub ssl_library: Option<&'static str>,
    /// The OpenSSL version the library answers for.
    pub openssl_version: Option<Version>,
    /// The API number of AWS-LC, when that is the library.
    pub awslc_api: Option<u32>,
    /// Whether the TLS library runs in FIPS mode.
    pub fips: bool,
    /// Diagnostic mode (`-dD`): whether `.diag` says anything.
    pub diag_mode: bool,
}
