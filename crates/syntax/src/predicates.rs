//! Facts about the program that conditions can query (manual, section 2.4): filled in by the binary, passed to the reader.

use crate::Version;

/// Facts about the running program.
#[derive(Debug, Clone, Default)]
pub struct ProgramFacts {
    /// The HAProxy version it claims compatibility with, such as `3.5-dev5`.
    pub version: Version,
    /// Built-in features, as `-vv` lists them with a `+`: `OPENSSL`, `EPOLL`...
    pub features: Vec<&'static str>,
    /// Options enabled at run time, for `enabled()`: `EPOLL`, `SPLICE`, `REUSEPORT`...
    pub enabled: Vec<&'static str>,
    /// Name and version of the TLS library in OpenSSL's format, such as `OpenSSL 3.0.15`.
    pub ssl_library: Option<&'static str>,
    /// The OpenSSL version that the library is compatible with.
    pub openssl_version: Option<Version>,
    /// The API number of AWS-LC, if that is the library.
    pub awslc_api: Option<u32>,
    /// Whether the TLS library runs in FIPS mode.
    pub fips: bool,
    /// Diagnostic mode (`-dD`): whether `.diag` produces messages.
    pub diag_mode: bool,
}
