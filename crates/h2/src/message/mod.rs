//! Requests, responses and trailers: [`http::Head`] to header blocks and back (RFC 9113 section 8,
//! RFC 8441), with the checks that keep HTTP/1 on the other side from being led astray.

mod cause;
mod priority;
mod read;
mod request;
mod response;
mod write;

pub(crate) use cause::CAUSES;
pub use cause::{Cause, Refusal};
pub use priority::Priority;
pub use request::{Request, read_request};
pub use response::{read_response, read_trailers};
pub use write::{Scheme, is_extended_connect, write_request, write_response, write_trailers};

/// What is accepted, and how much.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Bytes that names and values of a head may take, each with four more for what HTTP/1 puts
    /// around them.
    pub max_bytes: usize,
    /// Fields beside the pseudo-fields, crumbs of cookies counted one by one.
    pub max_fields: usize,
    /// `option accept-unsafe-violations-in-http-request`: a fragment in the path passes. Of what the
    /// manual lists that is all which concerns HTTP/2.
    pub relaxed: bool,
    /// Whether our settings said SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441).
    pub connect_protocol: bool,
}
