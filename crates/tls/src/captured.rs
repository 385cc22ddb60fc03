//! What a handshake said, for the fetches that show it (`ssl_fc_client_random`,
//! `ssl_fc_cipherlist_bin`, logs of keys, JA3 …).

/// What is kept of a handshake.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// The ClientHello without the message's header, for
    /// [`Hello::parse`](crate::hello::Hello::parse). Empty on a client's side.
    pub hello: Box<[u8]>,
    /// The random bytes of the client (`ssl_fc_client_random`); 0 before they are known.
    pub client_random: [u8; 32],
    /// The random bytes of the server.
    pub server_random: [u8; 32],
    /// The identifier that the server gave the session (`ssl_fc_session_id`).
    pub session_id: Box<[u8]>,
    /// Secrets, where they are kept (`ssl_fc_client_traffic_secret_0` …).
    pub secrets: Vec<Secret>,
}

/// A secret of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name in files of `SSLKEYLOGFILE`: `CLIENT_TRAFFIC_SECRET_0`; the master secret of TLS
    /// 1.2 is `CLIENT_RANDOM`.
    pub label: Box<str>,
    /// The secret.
    pub bytes: Box<[u8]>,
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// The random of a ServerHello that only asks for another ClientHello (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

impl Captured {
    /// Notes what a hello at the front of `records` says, sent or received. Anything else is passed
    /// over.
    pub(crate) fn note(&mut self, records: &[u8]) {
        let [HANDSHAKE, _, _, _, _, kind, _, _, _, _, _, rest @ ..] = records else { return };
        let Some((random, rest)) = rest.split_first_chunk::<32>() else { return };
        match *kind {
            CLIENT_HELLO => self.client_random = *random,
            SERVER_HELLO if *random != RETRY => {
                self.server_random = *random;
                let id = rest.split_first().and_then(|(length, rest)| rest.get(..usize::from(*length)));
                self.session_id = id.unwrap_or_default().into();
            }
            _ => {}
        }
    }

    /// The secret of that name.
    pub fn secret(&self, label: &str) -> Option<&[u8]> {
        self.secrets.iter().find(|one| &*one.label == label).map(|one| &*one.bytes)
    }
}
