//! SOCKS4: the request that makes a proxy connect further, and its answer. Bytes only; the caller does the I/O.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};

/// The bytes of the answer.
pub const ANSWER: usize = 8;

/// The user named in the request, as HAProxy names itself.
const USER: &[u8] = b"HAProxy\0";

/// The request to connect to `target`.
///
/// # Errors
/// SOCKS4 knows no IPv6.
pub fn request(target: SocketAddr) -> io::Result<Vec<u8>> {
    let SocketAddr::V4(target) = target else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "SOCKS4 knows no IPv6"));
    };
    Ok(request_v4(target))
}

fn request_v4(target: SocketAddrV4) -> Vec<u8> {
    // Version 4, command CONNECT.
    let mut bytes = vec![4, 1];
    bytes.extend_from_slice(&target.port().to_be_bytes());
    bytes.extend_from_slice(&target.ip().octets());
    bytes.extend_from_slice(USER);
    bytes
}

/// Judges the whole answer.
///
/// # Errors
/// What the proxy says, or that it does not speak SOCKS4.
pub fn check_answer(answer: &[u8; ANSWER]) -> io::Result<()> {
    let refusal = match (answer[0], answer[1]) {
        (0, 90) => return Ok(()),
        (0, 91) => "SOCKS4 Proxy deny the request",
        (0, 92 | 93) => "SOCKS4 Proxy handshake denied by identd",
        _ => "SOCKS4 Proxy handshake: invalid answer",
    };
    Err(io::Error::other(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_port_address_and_user() {
        let target = SocketAddr::from(([127, 0, 0, 1], 0x1234));
        assert_eq!(request(target).unwrap(), b"\x04\x01\x12\x34\x7f\x00\x00\x01HAProxy\0");
        assert!(request(SocketAddr::from(([0u16; 8], 80))).is_err());
    }

    #[test]
    fn only_a_grant_is_an_answer_to_go_on_with() {
        for (answer, granted) in [([0, 90], true), ([0, 91], false), ([0, 93], false), ([5, 0], false)] {
            let mut bytes = [0; ANSWER];
            bytes[..2].copy_from_slice(&answer);
            assert_eq!(check_answer(&bytes).is_ok(), granted, "{answer:?}");
        }
    }
}
