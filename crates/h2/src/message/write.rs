//! Heads to blocks.

use http::Head;

use crate::hpack::Encoder;

/// The scheme of a connection, for requests whose target does not tell one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

/// Appends a request's header block.
pub fn write_request(encoder: &mut Encoder, head: &Head, scheme: Scheme, out: &mut Vec<u8>) {
    let _ = (encoder, head, scheme, out);
}

/// Appends the header block of a response, interim or final.
pub fn write_response(encoder: &mut Encoder, head: &Head, out: &mut Vec<u8>) {
    let _ = (encoder, head, out);
}

/// Appends the header block of trailers.
pub fn write_trailers(encoder: &mut Encoder, trailers: &Head, out: &mut Vec<u8>) {
    let _ = (encoder, trailers, out);
}
