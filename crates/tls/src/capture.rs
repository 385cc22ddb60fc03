//! Handshake data for fetches and logs (`ssl_fc_client_random`, `ssl_fc_cipherlist_bin`, key logs, JA3 …).

use base::hash::xxh64;

use crate::hello::{Hello, extensions};

/// The handshake data to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The maximum number of bytes of the ClientHello's lists to keep (`tune.ssl.capture-buffer-size`); 0 for none.
    pub lists: usize,
    /// Random bytes, session identifiers and keys.
    pub session: bool,
    /// The Finished messages.
    pub finished: bool,
    /// The traffic secrets (`tune.ssl.keylog`).
    pub secrets: bool,
}

impl Keep {
    /// Whether any data is kept.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Returns the union of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            lists: self.lists.max(other.lists),
            session: self.session || other.session,
            finished: self.finished || other.finished,
            secrets: self.secrets || other.secrets,
        }
    }
}

/// The data kept from a handshake.
#[derive(Clone, Debug, Default)]
pub struct CapturedHandshake {
    /// The lists of the ClientHello; `None` on the client side, and if they are not kept.
    pub lists: Option<Box<Lists>>,
    /// The random bytes of the client (`ssl_fc_client_random`); 0 before they are known.
    pub client_random: [u8; 32],
    /// The random bytes of the server.
    pub server_random: [u8; 32],
    /// The session identifier chosen by the server (`ssl_fc_session_id`).
    pub session_id: Box<[u8]>,
    /// The session key (`ssl_fc_session_key`): the master secret in TLS 1.2, the resumption secret of a ticket in TLS 1.3. Empty if
    /// there is none.
    pub session_key: Box<[u8]>,
    /// The Finished messages of the client and of the server (`ssl_fc_unique_id`), if kept.
    pub finished: [Box<[u8]>; 2],
    /// Secrets, if kept (`ssl_fc_client_traffic_secret_0` …).
    pub secrets: Vec<Secret>,
    /// The server's bytes until its ServerHello is complete.
    begin: Vec<u8>,
}

/// A secret of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The label in `SSLKEYLOGFILE` files, such as `CLIENT_TRAFFIC_SECRET_0`. The label of the TLS 1.2 master secret is
    /// `CLIENT_RANDOM`.
    pub label: Box<str>,
    /// The secret.
    pub bytes: Box<[u8]>,
}

/// The lists of a ClientHello, as two-byte numbers except for the point formats. The total size is limited; bytes beyond the limit
/// are dropped at the end.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// The version in the fixed part of the message (`ssl_fc_protocol_hello_id`).
    pub version: u16,
    /// XXH64 of all suites, including those that were dropped (`ssl_fc_cipherlist_xxh`).
    pub suites_hash: u64,
    bytes: Vec<u8>,
    /// The end of each list in `bytes`, by [`CapturedList`].
    ends: [usize; 6],
}

/// One of the lists, in storage order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedList {
    /// Cipher suites.
    Suites,
    /// Types of extensions.
    Extensions,
    /// Groups, formerly called elliptic curves.
    Groups,
    /// Point formats, one byte each.
    PointFormats,
    /// Versions.
    Versions,
    /// Signature schemes.
    Signatures,
}

const SUPPORTED_GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const SUPPORTED_VERSIONS: u16 = 43;

impl Lists {
    /// Keeps up to `most` bytes of the lists in `hello`.
    pub fn new(hello: &Hello<'_>, most: usize) -> Self {
        let suites_hash = xxh64(hello.suites, 0);
        let mut lists = Self { version: hello.legacy_version, suites_hash, ..Self::default() };
        lists.push(CapturedList::Suites, hello.suites, most);
        // If there is no room for the type of an extension, the content of the extension is ignored.
        let [mut groups, mut formats, mut versions, mut signatures]: [&[u8]; 4] = [&[]; 4];
        for (kind, data) in extensions(hello.extensions).flatten() {
            if lists.bytes.len() + 2 > most {
                break;
            }
            lists.bytes.extend_from_slice(&kind.to_be_bytes());
            match kind {
                SUPPORTED_GROUPS => groups = data.get(2..).unwrap_or_default(),
                POINT_FORMATS => formats = data.get(1..).unwrap_or_default(),
                SUPPORTED_VERSIONS => versions = data.get(1..).unwrap_or_default(),
                SIGNATURE_ALGORITHMS => signatures = data.get(2..).unwrap_or_default(),
                _ => {}
            }
        }
        lists.push(CapturedList::Extensions, &[], most);
        lists.push(CapturedList::Groups, groups, most);
        lists.push(CapturedList::PointFormats, formats, most);
        lists.push(CapturedList::Versions, versions, most);
        lists.push(CapturedList::Signatures, signatures, most);
        lists.bytes.shrink_to_fit();
        lists
    }

    fn push(&mut self, list: CapturedList, bytes: &[u8], most: usize) {
        let room = most.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.ends[list as usize] = self.bytes.len();
    }

    /// Returns the kept part of a list.
    pub fn get(&self, list: CapturedList) -> &[u8] {
        let start = (list as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[list as usize]]
    }
}

/// A ServerHello, even after a HelloRetryRequest, ends within this many bytes.
const BEGIN_MAX: usize = 1 << 16;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// The random value of a HelloRetryRequest (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

impl CapturedHandshake {
    /// Records the data of a ClientHello.
    pub(crate) fn note_hello(&mut self, hello: &Hello<'_>, keep: Keep) {
        self.client_random = hello.random.try_into().unwrap_or_default();
        self.lists = (keep.lists > 0).then(|| Box::new(Lists::new(hello, keep.lists)));
    }

    /// Records the data of the ClientHello at the front of `sent`, on the client side.
    pub(crate) fn note_own_hello(&mut self, sent: &[u8]) {
        if let [HANDSHAKE, _, _, _, _, CLIENT_HELLO, _, _, _, _, _, rest @ ..] = sent
            && let Some((random, _)) = rest.split_first_chunk()
            && self.client_random == [0; 32]
        {
            self.client_random = *random;
        }
    }

    /// Records the data of a ServerHello, of which `records` is the next part.
    pub(crate) fn note_server(&mut self, records: &[u8]) {
        if self.server_random != [0; 32] || self.begin.len() > BEGIN_MAX {
            return;
        }
        self.begin.extend_from_slice(records);
        let mut rest = &*self.begin;
        while let [kind, _, _, high, low, behind @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let Some((record, behind)) = behind.split_at_checked(length) else { return };
            if *kind == HANDSHAKE
                && let [SERVER_HELLO, _, _, _, _, _, hello @ ..] = record
                && let Some((random, id)) = hello.split_first_chunk::<32>()
                && *random != RETRY
            {
                let id = id.split_first().and_then(|(length, id)| id.get(..usize::from(*length)));
                (self.server_random, self.session_id) = (*random, id.unwrap_or_default().into());
                self.begin = Vec::new();
                return;
            }
            rest = behind;
        }
    }

    /// Records the data of a ServerHello at the front of handshake messages without records (QUIC).
    pub(crate) fn note_server_message(&mut self, messages: &[u8]) {
        if let Ok(length) = u16::try_from(messages.len())
            && length > 0
        {
            let [high, low] = length.to_be_bytes();
            self.note_server(&[&[HANDSHAKE, 3, 3, high, low], messages].concat());
        }
    }

    /// Records the data of our ClientHello at the front of handshake messages without records (QUIC).
    pub(crate) fn note_own_message(&mut self, messages: &[u8]) {
        self.note_own_hello(&[&[HANDSHAKE, 3, 3, 0, 0], messages].concat());
    }

    /// Records new secrets.
    pub(crate) fn note_secrets(&mut self, secrets: Vec<Secret>, keep: Keep) {
        for secret in secrets {
            if matches!(&*secret.label, MASTER | TICKET) {
                self.session_key = secret.bytes.clone();
            }
            if keep.secrets && &*secret.label != TICKET {
                self.secrets.push(secret);
            }
        }
    }

    /// Drops the secret with that label.
    pub(crate) fn forget(&mut self, label: &str) {
        self.secrets.retain(|one| &*one.label != label);
    }

    /// Returns the secret with that label.
    pub fn secret(&self, label: &str) -> Option<&[u8]> {
        self.secrets.iter().find(|one| &*one.label == label).map(|one| &*one.bytes)
    }
}

/// The label of the TLS 1.2 master secret.
const MASTER: &str = "CLIENT_RANDOM";
/// The internal label of a TLS 1.3 ticket's resumption secret.
pub(crate) const TICKET: &str = "ticket";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_kept_in_order_up_to_the_limit() {
        let extension = |kind: u8, data: &[u8]| [&[0, kind, 0, data.len() as u8], data].concat();
        let extensions = [
            extension(10, &[0, 4, 0, 29, 0, 23]),
            extension(11, &[2, 0, 1]),
            extension(43, &[2, 3, 4]),
            extension(13, &[0, 2, 4, 3]),
        ]
        .concat();
        let hello = Hello {
            legacy_version: 0x0303,
            suites: &[0x13, 1, 0x13, 2],
            extensions: &extensions,
            ..Hello::default()
        };
        let all = [
            CapturedList::Suites,
            CapturedList::Extensions,
            CapturedList::Groups,
            CapturedList::PointFormats,
            CapturedList::Versions,
            CapturedList::Signatures,
        ];
        let kept = |most| {
            let lists = Lists::new(&hello, most);
            assert_eq!((lists.version, lists.suites_hash), (0x0303, xxh64(hello.suites, 0)));
            all.map(|list| lists.get(list).to_vec())
        };
        let whole: [&[u8]; 6] =
            [&[0x13, 1, 0x13, 2], &[0, 10, 0, 11, 0, 43, 0, 13], &[0, 29, 0, 23], &[0, 1], &[3, 4], &[4, 3]];
        assert_eq!(kept(22), whole.map(<[u8]>::to_vec));
        for most in 0..22 {
            let lists = kept(most);
            assert!(lists.concat().len() <= most);
            assert!(lists.iter().zip(whole).all(|(kept, whole)| whole.starts_with(kept)), "{most}");
        }
        assert_eq!(kept(3), [&[0x13, 1, 0x13][..], &[], &[], &[], &[], &[]].map(<[u8]>::to_vec));
        // The one remaining byte is used for the groups, because there was room for their extension type.
        assert_eq!(kept(7)[1..3], [vec![0, 10], vec![0]]);
        assert_eq!(kept(5)[1..3], [vec![], vec![]]);
    }
}
