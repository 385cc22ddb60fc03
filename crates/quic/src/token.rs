//! Tokens that prove the address of a client (RFC 9000, 8.1).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::connection_id::ConnectionId;
use crate::keys::SharedKeys;
use crate::varint::Reader;

/// How long a Retry token is valid.
const RETRY_LIFETIME: Duration = Duration::from_secs(10);

/// How long the token of a NEW_TOKEN frame is valid.
const NEW_TOKEN_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The longest token: kind, time, address, port, two connection IDs, tag and nonce.
pub(crate) const LENGTH_MAX: usize = 1 + 8 + 17 + 2 + 2 * 21 + 16 + 12;

const RETRY: u8 = 0;
const NEW_TOKEN: u8 = 1;

/// The result of checking the token of an Initial packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    /// No token, or one that we did not issue: the address is not proven.
    Unknown,
    /// A token of an earlier connection.
    Known,
    /// A token of a Retry packet, with the connection ID that the client chose first.
    Retried(ConnectionId),
    /// A Retry token that is too old, or belongs to another address or connection.
    Invalid,
}

impl SharedKeys {
    /// Returns the token for a Retry packet with the connection ID `retry_id`.
    pub(crate) fn retry_token(
        &self,
        remote: SocketAddr,
        original_id: &ConnectionId,
        retry_id: &[u8],
    ) -> Option<Vec<u8>> {
        let mut token = begin(RETRY, remote.ip());
        token.extend_from_slice(&remote.port().to_be_bytes());
        for id in [original_id, retry_id] {
            // Cannot truncate: IDs have at most 20 bytes.
            token.push(id.len() as u8);
            token.extend_from_slice(id);
        }
        self.seal(&mut token)?;
        Some(token)
    }

    /// Returns the token for a NEW_TOKEN frame.
    pub(crate) fn new_token(&self, remote: IpAddr) -> Option<Vec<u8>> {
        let mut token = begin(NEW_TOKEN, remote);
        self.seal(&mut token)?;
        Some(token)
    }

    /// Checks the token of an Initial packet that was sent to `destination`.
    pub(crate) fn check_token(&self, token: &[u8], remote: SocketAddr, destination: &[u8]) -> TokenCheck {
        if token.is_empty() || token.len() > LENGTH_MAX {
            return TokenCheck::Unknown;
        }
        let mut bytes = token.to_vec();
        let Some(mut plain) = self.open(&mut bytes).map(Reader) else { return TokenCheck::Unknown };
        parse(&mut plain, remote, destination).unwrap_or(TokenCheck::Unknown)
    }
}

fn parse(token: &mut Reader<'_>, remote: SocketAddr, destination: &[u8]) -> Option<TokenCheck> {
    let kind = token.byte()?;
    let issued = UNIX_EPOCH + Duration::from_secs(u64::from_be_bytes(token.array()?));
    let address = match token.byte()? {
        4 => IpAddr::from(token.array::<4>()?),
        _ => IpAddr::from(token.array::<16>()?),
    };
    // A clock that was set back makes tokens of the future.
    let age = SystemTime::now().duration_since(issued).unwrap_or_default();
    if kind == NEW_TOKEN {
        let is_valid = age <= NEW_TOKEN_LIFETIME && address == remote.ip().to_canonical();
        return is_valid.then_some(TokenCheck::Known);
    }
    let port = u16::from_be_bytes(token.array()?);
    let mut id = || {
        let length = usize::from(token.byte()?);
        token.bytes(length)
    };
    let (original, retry) = (id()?, id()?);
    let is_valid = age <= RETRY_LIFETIME
        && address == remote.ip().to_canonical()
        && port == remote.port()
        && retry == destination;
    Some(if is_valid { TokenCheck::Retried(ConnectionId::new(original)?) } else { TokenCheck::Invalid })
}

/// The kind, time and address of a token.
fn begin(kind: u8, address: IpAddr) -> Vec<u8> {
    let mut token = Vec::with_capacity(LENGTH_MAX);
    token.push(kind);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    token.extend_from_slice(&now.as_secs().to_be_bytes());
    match address.to_canonical() {
        IpAddr::V4(address) => {
            token.push(4);
            token.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            token.push(6);
            token.extend_from_slice(&address.octets());
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_tokens_belong_to_an_address_and_a_connection() {
        let keys = SharedKeys::random();
        let remote: SocketAddr = "192.0.2.1:4433".parse().expect("an address");
        let original = ConnectionId::new(&[7; 20]).expect("20 bytes");
        let token = keys.retry_token(remote, &original, &[8; 8]).expect("a token");
        assert!(token.len() <= LENGTH_MAX);
        let check =
            |remote: &str, id: &[u8]| keys.check_token(&token, remote.parse().expect("an address"), id);
        assert_eq!(check("192.0.2.1:4433", &[8; 8]), TokenCheck::Retried(original));
        assert_eq!(check("192.0.2.1:4434", &[8; 8]), TokenCheck::Invalid);
        assert_eq!(check("192.0.2.2:4433", &[8; 8]), TokenCheck::Invalid);
        assert_eq!(check("192.0.2.1:4433", &[9; 8]), TokenCheck::Invalid);
        assert_eq!(SharedKeys::random().check_token(&token, remote, &[8; 8]), TokenCheck::Unknown);
    }

    #[test]
    fn new_tokens_belong_to_an_ip_address() {
        let keys = SharedKeys::new(b"secret");
        let mapped = "[::ffff:192.0.2.1]:9".parse().expect("an address");
        let token = keys.new_token("192.0.2.1".parse().expect("an address")).expect("a token");
        let again = SharedKeys::new(b"secret");
        assert_eq!(again.check_token(&token, mapped, &[1; 8]), TokenCheck::Known, "another node");
        let other = "192.0.2.2:9".parse().expect("an address");
        assert_eq!(keys.check_token(&token, other, &[1; 8]), TokenCheck::Unknown);
        for end in 0..token.len() {
            assert_eq!(keys.check_token(&token[..end], mapped, &[1; 8]), TokenCheck::Unknown);
        }
    }
}
