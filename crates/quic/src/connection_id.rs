//! Connection IDs that name the socket of their connection.
//!
//! A connection ID has eight bytes, all of them random except three: the first is the index of the socket within its group, masked
//! with the second byte, and the next two are a check. A socket program and workers (`net::steering`) can therefore deliver a datagram
//! to the worker of its connection, whatever address it comes from, and distinguish the IDs from those that clients choose. An
//! observer cannot link the IDs of one connection.

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
