//! Connection IDs that name the socket of their connection.
//!
//! A connection ID has eight bytes, all of them random except three: the first is the index of the socket within its group, masked
//! with the second byte, and the next two are a check. A socket program and workers (`net::steering`) can therefore deliver a datagram
//! to the worker of its connection, whatever address it comes from, and distinguish the IDs from those that clients choose. An
//! observer cannot link the IDs of one connection.

use std::ops::Deref;

/// The largest connection ID of QUIC version 1.
pub(crate) const LENGTH_MAX: usize = 20;

/// A connection ID of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ConnectionId {
    length: u8,
    bytes: [u8; LENGTH_MAX],
}

impl ConnectionId {
    /// Copies an ID; `None` if it is too long for QUIC version 1.
    pub(crate) fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; LENGTH_MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        // Cannot truncate: the ID has at most 20 bytes.
        Some(Self { length: id.len() as u8, bytes })
    }
}

impl From<OwnId> for ConnectionId {
    fn from(id: OwnId) -> Self {
        let mut bytes = [0; LENGTH_MAX];
        bytes[..CONNECTION_ID_LENGTH].copy_from_slice(&id);
        Self { length: CONNECTION_ID_LENGTH as u8, bytes }
    }
}

impl Deref for ConnectionId {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A connection ID that we issue.
pub(crate) type OwnId = [u8; CONNECTION_ID_LENGTH];

/// Length of the connection IDs that we issue.
pub const CONNECTION_ID_LENGTH: usize = 8;

/// The difference between bytes 2 and 3, and bytes 4 and 5.
const CONNECTION_ID_CHECK: u16 = 0x9d3b;

/// The index of a socket within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketIndex(pub u8);

impl SocketIndex {
    /// Puts the index and the check into `id`, which is random.
    pub fn mark(self, id: &mut [u8; CONNECTION_ID_LENGTH]) {
        id[0] = self.0 ^ id[1];
        let check = u16::from_be_bytes([id[4], id[5]]) ^ CONNECTION_ID_CHECK;
        id[2..4].copy_from_slice(&check.to_be_bytes());
    }
}
