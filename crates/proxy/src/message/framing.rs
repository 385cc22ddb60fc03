//! Restores the framing fields of a message after rules may have changed them. Called by `fields`, and by `lua` if a script
//! filter comes after compression.

use http::{BodyLength, Method};

use crate::exchange::Exchange;
use crate::fault::Fault;

/// Sets the framing of the request's body, even if rules changed its fields.
///
/// # Errors
/// The request cannot be sent with its body.
pub(crate) fn frame_request(x: &mut Exchange) -> Result<(), Fault> {
    if x.txn.request.method_id() == Method::Connect {
        if x.request_body.length != BodyLength::None {
            // A rule changed the method. The server would interpret the body as bytes of the tunnel.
            return Err(Fault::Internal);
        }
        // A CONNECT has no content, regardless of its fields (RFC 9110, 9.3.6): a server that relied on them would misinterpret
        // the bytes of the tunnel.
        x.txn.request.remove_body_length();
    }
    if x.request_body.is_bare && x.request_body.length == BodyLength::Chunked {
        // The body had no framing fields, but HTTP/1 needs one.
        x.txn.request.remove_body_length();
        x.txn.request.append(b"transfer-encoding", b"chunked");
        return Ok(());
    }
    let is_framed = x.txn.request.settle_framing(x.request_body.length).map_err(|_| Fault::Internal)?;
    if !is_framed {
        // As in HAProxy, a request without its framing field has no body.
        x.txn.request.set_content_length(0);
        x.request_body.is_dropped = true;
    }
    Ok(())
}

/// Whether the client expects no body, regardless of the response's fields.
pub(crate) fn is_bodiless(x: &Exchange) -> bool {
    x.head_only || matches!(x.txn.response.status(), 204 | 304)
}

/// Sets the framing of the response's body, even if rules changed its status, the request's method or the framing fields. Returns
/// `false` if they removed the framing, so that closing the connection ends the body.
///
/// # Errors
/// The response cannot be sent with its body.
pub(crate) fn frame_response(x: &mut Exchange) -> Result<bool, Fault> {
    let (client_expects, server_sends) = (!is_bodiless(x), x.response_body.length != BodyLength::None);
    if x.is_tunnel {
        return Ok(true);
    }
    if matches!(x.txn.response.status(), 100..=199) {
        // The client would keep waiting for a final response.
        return Err(Fault::Internal);
    }
    match (client_expects, server_sends) {
        // The length describes the body of a different response.
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
