//! HTTP/2 towards a client, as far as its messages are not the engine's matter (RFC 9113, 8).

use http::{BodyLength, Head, KnownName, Method};

use super::h1::Framed;
use crate::flow::{Coding, Flow, Path};
use crate::stream::AnyStream;

/// How the body ends. One whose length nobody told ends with the stream: to whoever asks, it is as
/// one in chunks.
pub(super) fn body_length(stream: &AnyStream, head: &Head) -> BodyLength {
    match head.request_body() {
        // What follows is the tunnel's.
        _ if head.method_id() == Method::Connect || head.has_upgrade() => BodyLength::None,
        BodyLength::Length(length) => BodyLength::Length(length),
        BodyLength::None => BodyLength::None,
        _ if stream.has_no_rest() && !is_call(head) => BodyLength::None,
        _ => BodyLength::Chunked,
    }
}

/// Whether it is a call of gRPC. One without messages ends apart from its head (gRPC over HTTP/2,
/// "Requests"), and servers wait for that.
fn is_call(head: &Head) -> bool {
    head.get_known(KnownName::ContentType).is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Nobody reads the rest of the body: the client is told so behind the response (RFC 9113, 8.1).
pub(super) fn skip_body(stream: &mut AnyStream, flow: &mut Flow) -> bool {
    if let Some(input) = stream.input_slot() {
        // What is wrong with it is nobody's matter any more.
        let _ = flow.discard(input);
    }
    true
}

/// There are no hop-by-hop fields (RFC 9113, 8.2.2), apart from those that the engine makes of an
/// extended CONNECT; the connection takes other requests.
pub(super) fn clean_request(head: &mut Head) -> bool {
    head.clean_connection();
    head.clean_upgrade();
    head.clean_vain_upgrade();
    true
}

/// Takes what belongs to HTTP/1 out of the response; the way that its body goes.
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
