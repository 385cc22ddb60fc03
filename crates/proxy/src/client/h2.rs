//! The HTTP/2 side of a client: the rules about messages that the engine leaves to the proxy (RFC 9113, 8).

use http::{BodyLength, Head, KnownName, Method};

use super::h1::Framed;
use crate::flow::{Coding, Flow, Path};
use crate::stream::AnyStream;

/// Returns how the body ends. A body without a declared length ends with the stream and is reported as chunked.
pub(super) fn body_length(stream: &AnyStream, head: &Head) -> BodyLength {
    match head.request_body() {
        // The bytes after the head belong to the tunnel.
        _ if head.method_id() == Method::Connect || head.has_upgrade() => BodyLength::None,
        BodyLength::Length(length) => BodyLength::Length(length),
        BodyLength::None => BodyLength::None,
        _ if stream.has_no_rest() && !is_call(head) => BodyLength::None,
        _ => BodyLength::Chunked,
    }
}

/// Whether the request is a gRPC call. For a call without messages, the stream ends after the head, not with it (gRPC over
/// HTTP/2, "Requests"), and servers wait for that end.
fn is_call(head: &Head) -> bool {
    head.get_known(KnownName::ContentType).is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Discards the rest of the body. After the response, the client is asked to stop sending (RFC 9113, 8.1).
pub(super) fn skip_body(stream: &mut AnyStream, flow: &mut Flow) -> bool {
    if let Some(input) = stream.input_slot() {
        // Errors in a discarded body are irrelevant.
        let _ = flow.discard(input);
    }
    true
}

/// Does nothing: HTTP/2 has no hop-by-hop fields (RFC 9113, 8.2.2) except those that the engine derives from an extended CONNECT,
/// and the connection can always carry further requests.
pub(super) fn clean_request(head: &mut Head) -> bool {
    head.clean_connection();
    head.clean_upgrade();
    head.clean_vain_upgrade();
    true
}

/// Removes HTTP/1 framing fields from the response. Returns how the body is sent.
pub(super) fn frame_response(head: &mut Head, framed: Framed) -> Path {
    if framed.is_tunnel {
        head.remove_body_length();
        return Path::Verbatim;
    }
    head.take_close();
    head.clean_upgrade();
    if head.status() == 204 || !framed.is_framed || framed.length == BodyLength::Chunked {
        head.remove_body_length();
    }
    match framed.length {
        BodyLength::Chunked => Path::Payload(Coding::Bare),
        _ => Path::Verbatim,
    }
}
