//! Facts about the program that conditions can query (manual, section 2.4). The binary fills them in and passes them to the reader.

use crate::Version;

/// Facts about the running program.
#[derive(Debug, Clone, Default)]
pub struct ProgramFacts {
    /// The HAProxy version with which the program claims to be compatible, such as `3.5-dev5`.
    pub version: Version,
    /// Built-in features, as `-vv` lists them with a `+`: `OPENSSL`, `EPOLL`...
    pub features: Vec<&'static str>,
    /// Options enabled at run time, for `enabled()`: `EPOLL`, `SPLICE`, `REUSEPORT`...
    pub enabled: Vec<&'static str>,
    /// Name and version of the TLS library in OpenSSL's format, such as `OpenSSL 3.0.15`.
    pub ssl_library: Option<&'static str>,
    /// The OpenSSL version with which the library is compatible.
    pub openssl_version: Option<Version>,
    /// The API number of AWS-LC, if the library is AWS-LC.
    pub awslc_api: Option<u32>,
    /// Whether the TLS library runs in FIPS mode.
    pub fips: bool,
    /// Diagnostic mode (`-dD`): whether `.diag` produces messages.
    pub diag_mode: bool,
}
