//! The Finished messages of a handshake (`ssl_fc_unique_id`; RFC 5929, 3).
//!
//! rustls does not expose them. If an expression needs them, the bytes of the handshake are recorded. When the handshake is over,
//! the Finished messages are decrypted with its secrets.

use aws_lc_rs::hmac;

use crate::capture::Secret;
use crate::record::{self, Aead, Direction};
use crate::traffic::TrafficSecret;

/// The maximum number of recorded bytes per direction.
const MOST: usize = 1 << 17;

const FINISHED: u8 = 20;

/// The recorded bytes of a handshake.
#[derive(Debug, Default)]
pub(crate) struct Overheard {
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    secrets: Vec<Secret>,
}

/// The key derivation parameters of a suite.
struct Suite {
    aead: Aead,
    is_sha384: bool,
}

fn suite(number: u16) -> Option<Suite> {
    let (aead, is_sha384) = match number {
        0x1301 | 0xc02b | 0xc02f => (Aead::Aes128Gcm, false),
        0x1302 | 0xc02c | 0xc030 => (Aead::Aes256Gcm, true),
        0x1303 | 0xcca8 | 0xcca9 => (Aead::Chacha20Poly1305, false),
        _ => return None,
    };
    Some(Suite { aead, is_sha384 })
}

impl Overheard {
    /// Records the input and output of one turn.
    pub(crate) fn listen(&mut self, from_client: &[u8], from_server: &[u8], secrets: &[Secret]) {
        if self.from_client.len() + from_client.len() < MOST {
            self.from_client.extend_from_slice(from_client);
        }
        if self.from_server.len() + from_server.len() < MOST {
            self.from_server.extend_from_slice(from_server);
        }
        self.secrets.extend_from_slice(secrets);
    }

    /// Returns the Finished messages of the client and of the server, if recorded.
    pub(crate) fn finished(mut self, number: u16, is_tls13: bool, randoms: [&[u8; 32]; 2]) -> [Box<[u8]>; 2] {
        let Some(suite) = suite(number) else { return Default::default() };
        let secret =
            |label: &str| self.secrets.iter().find(|one| &*one.label == label).map(|one| &*one.bytes);
        let directions = if is_tls13 {
            ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET"]
                .map(|label| TrafficSecret::new(secret(label)?)?.direction(suite.aead))
        } else {
            secret("CLIENT_RANDOM").map_or([None, None], |secret| of_tls12(&suite, secret, randoms))
        };
        let [client, server] = directions;
        let both = [(client, &mut self.from_client), (server, &mut self.from_server)];
        both.map(|(direction, records)| direction.and_then(|one| find(one, records)).unwrap_or_default())
    }
}

/// Decrypts the messages of one side with its handshake keys, up to its Finished.
fn find(mut direction: Direction, records: &mut [u8]) -> Option<Box<[u8]>> {
    let (mut messages, mut rest, mut is_ciphered) = (Vec::new(), records, false);
    while let Ok(Some(framed)) = record::frame(rest)
        && framed.length <= rest.len()
    {
        let (one, behind) = rest.split_at_mut(framed.length);
        rest = behind;
        let is_ours = match direction.is_tls13() {
            true => framed.content == record::APPLICATION_DATA,
            // In TLS 1.2 everything after the ChangeCipherSpec is encrypted.
            false => is_ciphered,
        };
        is_ciphered |= framed.content == record::CHANGE_CIPHER_SPEC;
        if !is_ours {
            continue;
        }
        let (opened, at) = direction.open(one, &mut []).ok()?;
        if opened.content != record::HANDSHAKE {
            return None;
        }
        let at = at.unwrap_or(0);
        messages.extend_from_slice(one.get(at..at + opened.length)?);
        while let [kind, a, b, c, ref body @ ..] = *messages {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(body) = body.get(..length) else { break };
            if kind == FINISHED {
                return Some(body.into());
            }
            messages.drain(..4 + length);
        }
    }
    None
}

/// Returns the body of the Finished message among handshake messages without records, as in QUIC.
pub(crate) fn of_messages(mut messages: &[u8]) -> Option<Box<[u8]>> {
    while let [kind, a, b, c, body @ ..] = messages {
        let (body, rest) = body.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)?;
        if *kind == FINISHED {
            return Some(body.into());
        }
        messages = rest;
    }
    None
}

/// Derives the session keys of both sides (RFC 5246, 6.3).
fn of_tls12(suite: &Suite, secret: &[u8], [client, server]: [&[u8; 32]; 2]) -> [Option<Direction>; 2] {
    let is_gcm = !matches!(suite.aead, Aead::Chacha20Poly1305);
    let (key_length, vector) = (suite.aead.key_length(), if is_gcm { 4 } else { 12 });
    let algorithm = if suite.is_sha384 { hmac::HMAC_SHA384 } else { hmac::HMAC_SHA256 };
    let seed = [&b"key expansion"[..], server, client].concat();
    let key = hmac::Key::new(algorithm, secret);
    let mut block = Vec::new();
    let mut step = hmac::sign(&key, &seed);
    while block.len() < 2 * (key_length + vector) {
        block.extend_from_slice(hmac::sign(&key, &[step.as_ref(), &seed].concat()).as_ref());
        step = hmac::sign(&key, step.as_ref());
    }
    [0, 1].map(|side| {
        let key = block.get(side * key_length..(side + 1) * key_length)?;
        let at = 2 * key_length + side * vector;
        let mut whole = [0; 12];
        whole[..vector].copy_from_slice(block.get(at..at + vector)?);
        Direction::new(suite.aead, key, whole, 0, false)
    })
}
