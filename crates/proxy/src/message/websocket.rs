//! Upgrades between sides that use different versions of HTTP. An HTTP/1 upgrade corresponds to an extended CONNECT in HTTP/2
//! (RFC 8441). For WebSocket (RFC 6455), that request has no key, and its response does not prove that the server understood the
//! key. This module generates both for the HTTP/1 side.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{ErrorKind, KnownName};
use sha1::{Digest, Sha1};

use crate::exchange::Exchange;
use crate::fault::Fault;

/// The suffix that is appended to a key before hashing (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Adds a key to a request that arrived over HTTP/2 and is sent to an HTTP/1 server.
pub(crate) fn give_key(x: &mut Exchange) {
    let head = &mut x.txn.request;
    if !head.is_websocket() || !head.has_upgrade() || head.get_known(KnownName::SecWebsocketKey).is_some() {
        return;
    }
    let mut key = [0; 16];
    key.iter_mut().for_each(|byte| *byte = fastrand::u8(..));
    head.append(b"sec-websocket-key", STANDARD.encode(key).as_bytes());
    if head.get_known(KnownName::SecWebsocketVersion).is_none() {
        head.append(b"sec-websocket-version", b"13");
    }
    x.choice.gave_key = true;
}

/// Checks the head of the response to an upgrade request, and converts an HTTP/2 response that accepts the upgrade to
/// its HTTP/1 form.
///
/// # Errors
/// The server's proof is missing or wrong.
pub(crate) fn of_response(x: &mut Exchange, bare: bool) -> Result<(), Fault> {
    if !x.txn.request.has_upgrade() {
        return Ok(());
    }
    if bare {
        if matches!(x.txn.response.status(), 200..=299) {
            agree(x);
        }
        return Ok(());
    }
    if x.choice.gave_key && x.txn.response.status() == 101 {
        let expected = x.txn.request.get_known(KnownName::SecWebsocketKey).map(proof);
        let proven = x.txn.response.get_known(KnownName::SecWebsocketAccept);
        if expected.as_deref().map(str::as_bytes) != proven {
            return Err(Fault::BadResponse(ErrorKind::WebSocket));
        }
    }
    Ok(())
}

/// Converts a 2xx response to an extended CONNECT to a 101 of HTTP/1.
fn agree(x: &mut Exchange) {
    let request = &x.txn.request;
    let proof = request.get_known(KnownName::SecWebsocketKey).filter(|_| request.is_websocket()).map(proof);
    let protocol = request.get_known(KnownName::Upgrade).unwrap_or_default();
    let head = &mut x.txn.response;
    head.remove_body_length();
    head.set_status(101, None);
    head.append(b"connection", b"upgrade");
    head.append(b"upgrade", protocol);
    if let Some(proof) = proof {
        head.append(b"sec-websocket-accept", proof.as_bytes());
    }
}

fn proof(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_accept_key_matches_the_rfc() {
        assert_eq!(super::proof(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
