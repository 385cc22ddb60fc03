//! Which server has a QUIC connection, after the client has moved to another address.
//!
//! A server puts a fixed part into all connection IDs that it issues (QUIC-LB without encryption), or at least knows those that it has
//! issued itself. The packets with which a connection begins show the server's ID in the clear (RFC 8999, 5.1); later packets of the
//! client repeat it. [`Routes`] learns from the former, and finds the server for the latter. Its memory is bounded.

use std::collections::HashMap;

/// The longest connection ID (RFC 9000, 17.2).
pub const LONGEST_ID: usize = 20;

/// The bit in the first byte that long headers have.
const LONG_HEADER: u8 = 0x80;

/// The bit in the first byte that all packets of QUIC have (RFC 9000, 17.3.1).
const FIXED: u8 = 0x40;

/// The part of connection IDs that identifies a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdPart {
    /// The number of bytes in front of it.
    pub offset: u8,
    /// The number of its bytes.
    pub length: u8,
}

/// The identifying bytes of a connection ID, padded with zeros.
pub type IdBytes = [u8; LONGEST_ID];

impl IdPart {
    fn of(self, id: &[u8]) -> Option<IdBytes> {
        let start = usize::from(self.offset);
        let part = id.get(start..start + usize::from(self.length))?;
        let mut bytes = [0; LONGEST_ID];
        bytes.get_mut(..part.len())?.copy_from_slice(part);
        Some(bytes)
    }

    /// Returns this part of the ID to which a client sends a packet with a short header; `None` for other packets, which begin a
    /// connection or follow its beginning from the same address.
    pub fn of_client(self, datagram: &[u8]) -> Option<IdBytes> {
        let (first, id) = datagram.split_first()?;
        (first & (LONG_HEADER | FIXED) == FIXED).then(|| self.of(id)).flatten()
    }

    /// Returns this part of the ID that a server has chosen, in a packet with a long header.
    pub fn of_server(self, datagram: &[u8]) -> Option<IdBytes> {
        let (first, rest) = datagram.split_first()?;
        // Version 0 is an offer of versions, in which the ID is the client's.
        let (version, rest) = rest.split_first_chunk::<4>()?;
        if first & LONG_HEADER == 0 || *version == [0; 4] {
            return None;
        }
        let (length, rest) = rest.split_first()?;
        let (length, rest) = rest.get(usize::from(*length)..)?.split_first()?;
        self.of(rest.get(..usize::from(*length))?)
    }
}

/// Servers by the identifying bytes of their connection IDs.
///
/// There are two generations. When the younger one is full, it replaces the older one. IDs that were not used since then are
/// forgotten.
#[derive(Debug)]
pub struct Routes<S> {
    most: usize,
    younger: HashMap<IdBytes, S>,
    older: HashMap<IdBytes, S>,
}

impl<S: Clone> Routes<S> {
    /// Creates an empty map, which remembers between `most` and twice as many IDs.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), younger: HashMap::new(), older: HashMap::new() }
    }

    /// Remembers the server of an ID.
    pub fn learn(&mut self, id: IdBytes, server: S) {
        if self.younger.len() >= self.most && !self.younger.contains_key(&id) {
            self.older = std::mem::take(&mut self.younger);
        }
        self.older.remove(&id);
        self.younger.insert(id, server);
    }

    /// Returns all IDs with their servers.
    pub fn iter(&self) -> impl Iterator<Item = (&IdBytes, &S)> {
        self.older.iter().chain(&self.younger)
    }

    /// Returns the server of an ID.
    pub fn find(&mut self, id: &IdBytes) -> Option<S> {
        if let Some(server) = self.younger.get(id) {
            return Some(server.clone());
        }
        let server = self.older.remove(id)?;
        self.learn(*id, server.clone());
        Some(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: IdPart = IdPart { offset: 1, length: 3 };

    fn padded(bytes: &[u8]) -> IdBytes {
        let mut id = [0; LONGEST_ID];
        id[..bytes.len()].copy_from_slice(bytes);
        id
    }

    #[test]
    fn the_id_is_where_the_header_has_it() {
        let short = [0x5f, 9, 1, 2, 3, 4, 5];
        assert_eq!(PART.of_client(&short), Some(padded(&[1, 2, 3])));
        assert_eq!(PART.of_client(&short[..4]), None, "the datagram is too short");
        assert_eq!(PART.of_server(&short), None);
        let mut long = vec![0xc3, 0, 0, 0, 1, 2, 7, 7, 4, 9, 1, 2, 3, 0, 0];
        assert_eq!(PART.of_server(&long), Some(padded(&[1, 2, 3])));
        assert_eq!(PART.of_client(&long), None);
        long[8] = 3;
        assert_eq!(PART.of_server(&long), None, "the server's ID is too short");
        long[4] = 0;
        assert_eq!(PART.of_server(&long), None, "an offer of versions");
        for end in 0..12 {
            assert_eq!(PART.of_server(&long[..end]), None);
        }
        // Not QUIC.
        assert_eq!(PART.of_client(&[0x1f, 9, 1, 2, 3]), None);
    }

    #[test]
    fn ids_that_are_used_are_remembered() {
        let mut routes = Routes::new(4);
        for number in 0..100u8 {
            routes.learn(padded(&[number, 1]), number);
            assert_eq!(routes.find(&padded(&[0, 1])), Some(0));
            assert!(routes.younger.len() <= 4 && routes.older.len() <= 4);
        }
        assert_eq!(routes.find(&padded(&[99, 1])), Some(99));
        assert_eq!(routes.find(&padded(&[50, 1])), None);
    }
}
