//! Settings of rules that the Gateway API does not have.

/// Lines and parameters for annotations of ingresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// Lines of `http-request`.
    pub(crate) request: Vec<String>,
    /// A redirect of all requests, without the words `redirect location`.
    pub(crate) redirect: Option<String>,
    /// Lines of the backend.
    pub(crate) backend: Vec<String>,
    /// The parameters of servers, instead of those for the service's port.
    pub(crate) server: Option<String>,
}
