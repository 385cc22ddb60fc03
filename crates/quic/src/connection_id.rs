//! Connection IDs that name the socket of their connection.
//!
//! A connection ID has eight bytes, all of them random except the first: it is the index of the socket within its group, masked
//! with the second byte. A socket program (`net::udp`) and workers can therefore deliver a datagram to the worker of its connection,
//! whatever address it comes from, and an observer cannot link the IDs of one connection.

/// Length of the connection IDs that we issue.
pub const CONNECTION_ID_LENGTH: usize = 8;

/// The index of a socket within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketIndex(pub u8);

impl SocketIndex {
    /// Puts the index into `id`, which is random.
    pub(crate) fn mark(self, id: &mut [u8; CONNECTION_ID_LENGTH]) {
        id[0] = self.0 ^ id[1];
    }

    /// Returns the index in the connection ID that `datagram` is addressed to; `None` if the ID is too short to be one of ours.
    pub fn of_datagram(datagram: &[u8]) -> Option<Self> {
        const LONG_HEADER: u8 = 0x80;
        let id = match *datagram {
            [first, _, _, _, _, length, ref id @ ..] if first & LONG_HEADER != 0 => {
                (usize::from(length) == CONNECTION_ID_LENGTH).then_some(id)?
            }
            [_, ref id @ ..] => id,
            [] => return None,
        };
        match *id {
            [first, second, ..] if id.len() >= CONNECTION_ID_LENGTH => Some(Self(first ^ second)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_found_behind_short_and_long_headers() {
        for index in [0, 1, 17, 255] {
            let mut id = [9, 0xa5, 3, 4, 5, 6, 7, 8];
            SocketIndex(index).mark(&mut id);
            let short = [&[0x40][..], &id, &[0; 20]].concat();
            let long = [&[0xc0, 0, 0, 0, 1, 8][..], &id, &[0; 20]].concat();
            assert_eq!(SocketIndex::of_datagram(&short), Some(SocketIndex(index)));
            assert_eq!(SocketIndex::of_datagram(&long), Some(SocketIndex(index)));
        }
    }

    #[test]
    fn truncated_headers_have_no_index() {
        let long = [0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        for end in 0..long.len() {
            assert_eq!(SocketIndex::of_datagram(&long[..end]), None, "{end}");
        }
        assert_eq!(SocketIndex::of_datagram(&[0x40, 1, 2, 3, 4, 5, 6, 7]), None);
        assert_eq!(
            SocketIndex::of_datagram(&[0xc0, 0, 0, 0, 1, 20, 1, 2, 3, 4, 5, 6, 7, 8]),
            None,
            "a client's own ID"
        );
    }
}
