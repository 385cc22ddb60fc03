//! Settings of the process's HTTP client (`httpclient.…` in `global`) before names are resolved.

use crate::draft::tls::TlsValue;

/// The `httpclient.…` settings that name other sections or files.
#[derive(Clone, Default)]
pub struct HttpClientWords<'a> {
    /// `httpclient.resolvers.id`.
    pub resolvers: Option<TlsValue<'a>>,
    /// `httpclient.resolvers.disabled`.
    pub no_resolvers: bool,
    /// `httpclient.ssl.ca-file`.
    pub ca_file: Option<TlsValue<'a>>,
    /// `httpclient.ssl.verify`.
    pub verify: Option<bool>,
}
