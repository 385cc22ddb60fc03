//! Settings of rules that the Gateway API does not have.

use super::BackendRef;

/// Lines and parameters for annotations of ingresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extra {
    /// Lines of `http-request`, before the authorization.
    pub(crate) request: Vec<String>,
    /// The users that are admitted.
    pub(crate) users: Option<AdmittedUsers>,
    /// The authorization service.
    pub(crate) authorization: Option<AuthorizationRequest>,
    /// Lines of `http-request` that change the request.
    pub(crate) changes: Vec<String>,
    /// A redirect of all requests, without the words `redirect location`.
    pub(crate) redirect: Option<String>,
    /// Lines of the backend.
    pub(crate) backend: Vec<String>,
    /// The parameters of servers, instead of those for the service's port.
    pub(crate) server: Option<String>,
}

/// Users with passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AdmittedUsers {
    /// The name of the list, which depends on its content.
    pub(crate) name: String,
    /// The lines of the list.
    pub(crate) lines: Vec<String>,
    /// The realm of the challenge, which browsers show.
    pub(crate) realm: String,
}

/// The protocol of an authorization service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AuthorizationProtocol {
    /// A request like that of the client, without its body if it is not needed.
    #[default]
    Http,
    /// `envoy.service.auth.v3.Authorization` over gRPC.
    Grpc,
}

/// An authorization request, which is sent to a service for each request of a client.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AuthorizationRequest {
    /// The service.
    pub(crate) backend: BackendRef,
    /// Its protocol.
    pub(crate) protocol: AuthorizationProtocol,
    /// Whether a service in another namespace needs no grant.
    pub(crate) is_granted: bool,
    /// The parameters of the service's servers, instead of those for its port.
    pub(crate) server: Option<String>,
    /// The method of the request over HTTP, or nothing for the one of the client.
    pub(crate) method: Option<String>,
    /// The URL of the request over HTTP; without a method, the path of the client is appended.
    pub(crate) url: String,
    /// The client's headers that are sent, or nothing for all.
    pub(crate) sent: Option<Vec<String>>,
    /// The headers of the response over HTTP that are added to the request, or nothing for all.
    pub(crate) copied: Option<Vec<String>>,
    /// Clients without permission are redirected to this log format.
    pub(crate) sign_in: Option<String>,
    /// The largest body that is sent.
    pub(crate) body: u32,
}
