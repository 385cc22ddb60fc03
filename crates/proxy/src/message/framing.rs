//! How a message says that its body ends, whatever rules made of the fields that tell it. Called by
//! `fields`, and by `lua` if a script filter comes after compression.

use http::{BodyLength, Method};

use crate::exchange::Exchange;
use crate::fault::Fault;

/// Has the request say how its body is framed, whatever rules made of the fields that do.
///
/// # Errors
/// It cannot be sent with the body that it has.
pub(crate) fn frame_request(x: &mut Exchange) -> Result<(), Fault> {
    if x.txn.request.method_id() == Method::Connect {
        if x.request_body.length != BodyLength::None {
            // A rule made it one. A server that took it would read the body as the tunnel's bytes.
            return Err(Fault::Internal);
        }
        // It has no content, whatever it says (RFC 9110, 9.3.6): a server that believed it would
        // read the tunnel's bytes.
        x.txn.request.remove_body_length();
    }
    if x.request_body.is_bare && x.request_body.length == BodyLength::Chunked {
        // Nothing in its head told of the body: to HTTP/1 something has to.
        x.txn.request.remove_body_length();
        x.txn.request.append(b"transfer-encoding", b"chunked");
        return Ok(());
    }
    let is_framed = x.txn.request.settle_framing(x.request_body.length).map_err(|_| Fault::Internal)?;
    if !is_framed {
        // As HAProxy: without the field that told of it the request has no body.
        x.txn.request.set_content_length(0);
        x.request_body.is_dropped = true;
    }
    Ok(())
}

/// Whether the client expects no body, whatever the response says of one.
pub(crate) fn is_bodiless(x: &Exchange) -> bool {
    x.head_only || matches!(x.txn.response.status(), 204 | 304)
}

/// Has the response say how its body is framed, whatever rules made of its status, of the request's
/// method and of the fields that do. False: they took the framing away, and the end of the
/// connection is the end of the body.
///
/// # Errors
/// It cannot be sent with the body that it has.
pub(crate) fn frame_response(x: &mut Exchange) -> Result<bool, Fault> {
    let (client_expects, server_sends) = (!is_bodiless(x), x.response_body.length != BodyLength::None);
    if x.is_tunnel {
        return Ok(true);
    }
    if matches!(x.txn.response.status(), 100..=199) {
        // The client would wait for another.
        return Err(Fault::Internal);
    }
    match (client_expects, server_sends) {
        // What it says of a length is said of another response's body.
        (false, _) => Ok(true),
        (true, false) => {
            x.txn.response.set_content_length(0);
            Ok(true)
        }
        (true, true) if x.response_body.is_bare && x.response_body.length == BodyLength::Chunked => {
            x.txn.response.remove_body_length();
            x.txn.response.append(b"transfer-encoding", b"chunked");
            Ok(true)
        }
        (true, true) => x.txn.response.settle_framing(x.response_body.length).map_err(|_| Fault::Internal),
    }
}
