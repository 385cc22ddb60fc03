//! Steering of QUIC datagrams: the kernel chooses among the sockets of one address (`SO_REUSEPORT`) by the connection ID.
//!
//! Each socket of an address has an index, and a server writes the index of its socket to the connection IDs that it issues
//! ([`index_of`]). A client repeats them in all later packets, even if its address changes. The connection IDs of a client's
//! first packets are random, so these packets are spread over the sockets.
//!
//! A process that replaces another binds its own sockets behind the old ones. While both generations are open, packets of the old
//! connections reach the old sockets, and new connections reach the new ones. A client may still send Initial packets after it has
//! learned the server's connection ID, for example after a Retry or if a part of its ClientHello was lost. The IDs that a server
//! issues contain a check ([`is_issued`]), so that such packets also reach the old sockets.
//!
//! The kernel knows sockets by their position. It appends new sockets, and moves the last socket to the position of one that is
//! closed. Therefore [`steer`] must be called again after any socket of the address is opened or closed; a socket is only closed
//! once all processes have closed it. [`Group`] keeps track of the positions.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use libc::sock_filter;

use crate::sys;

/// The maximum number of sockets of one process: two generations need different indexes, and an index is a byte.
pub const MOST_SOCKETS: usize = 127;

/// The length of the connection IDs that carry an index.
pub const ID_LENGTH: usize = 8;

/// Returns the socket index in a connection ID. To write it, set the first byte to `index ^ id[1]` after filling the others.
pub fn index_of(id: [u8; ID_LENGTH]) -> u8 {
    id[0] ^ id[1]
}

/// The check in issued connection IDs: bytes 2 and 3 are bytes 4 and 5, combined with this value. A random ID has it by chance once in
/// 65,536 times.
pub const CHECK: u16 = 0x9d3b;

/// Returns whether a connection ID has the check of those that servers issue.
pub fn is_issued(id: [u8; ID_LENGTH]) -> bool {
    u16::from_be_bytes([id[2], id[3]]) ^ u16::from_be_bytes([id[4], id[5]]) == CHECK
}

/// The sockets of one process at an address, and one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketPlace {
    /// The index of this socket, which is written to connection IDs.
    pub index: u8,
    /// The first index of the process.
    pub first: u8,
    /// The number of sockets of the process. Their indexes are consecutive, in the order of the workers that serve them.
    pub count: u8,
}

impl SocketPlace {
    /// Returns the place of the only socket of an address.
    pub fn alone() -> Self {
        Self { index: 0, first: 0, count: 1 }
    }

    /// Returns the socket that gets the first packet of a connection, as a number below `count`.
    pub fn share_of(&self, id: [u8; ID_LENGTH]) -> usize {
        let value = index_of(id);
        let own = value.wrapping_sub(self.first);
        usize::from(if own < self.count { own } else { value % self.count.max(1) })
    }

    /// Returns the socket that gets this datagram, as a number below `count`, or `None` if its connection ID has no index of this
    /// process. This is the choice that [`steer`] makes the kernel take.
    pub fn share_of_datagram(&self, datagram: &[u8]) -> Option<usize> {
        let is_long = datagram.first()? & LONG_HEADER != 0;
        let offset = if is_long { LONG_HEADER_ID } else { SHORT_HEADER_ID } as usize;
        let id: [u8; ID_LENGTH] = datagram.get(offset..offset + ID_LENGTH)?.try_into().ok()?;
        let own = index_of(id).wrapping_sub(self.first);
        let begins = is_long && !is_later(datagram);
        (own < self.count || begins).then(|| self.share_of(id))
    }
}

/// All sockets of an address, in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The index of each socket.
    indexes: Vec<u8>,
    /// The indexes of the sockets that get new connections.
    newest: Range<u8>,
}

impl Group {
    /// Returns the group of sockets that were bound first, with indexes from 0.
    pub fn first(count: u8) -> Self {
        Self { indexes: (0..count).collect(), newest: 0..count }
    }

    /// Returns a group by the index of each socket, in the kernel's order, and the range of those that get new connections.
    pub fn of(indexes: Vec<u8>, newest: Range<u8>) -> Self {
        Self { indexes, newest }
    }

    /// Returns the first index of `count` new sockets: one from which on no index is in use.
    pub fn free(&self, count: usize) -> Option<u8> {
        let is_free = |first: usize| {
            let wanted = first..first + count;
            !self.indexes.iter().any(|index| wanted.contains(&usize::from(*index)))
        };
        let mut firsts = (0..=usize::from(u8::MAX)).filter(|first| first + count <= usize::from(u8::MAX));
        firsts.find(|first| is_free(*first)).map(|first| first as u8)
    }

    /// Appends `count` sockets, which get all new connections, and returns their indexes.
    ///
    /// # Errors
    /// There are not enough indexes.
    pub fn append(&mut self, count: usize) -> io::Result<Range<u8>> {
        let first = self.free(count).ok_or_else(|| io::Error::other("too many sockets at one address"))?;
        self.newest = first..first + count as u8;
        self.indexes.extend(self.newest.clone());
        Ok(self.newest.clone())
    }

    /// Removes a socket that was closed everywhere. Returns whether it was there.
    pub fn remove(&mut self, index: u8) -> bool {
        let at = self.indexes.iter().position(|own| *own == index);
        at.map(|at| self.indexes.swap_remove(at)).is_some()
    }

    /// The index of each socket, in the kernel's order.
    pub fn indexes(&self) -> &[u8] {
        &self.indexes
    }

    /// The program for the kernel.
    fn program(&self) -> Vec<sock_filter> {
        let is_new = |index: &u8| self.newest.contains(index);
        let (new, old) = (runs(&self.indexes, is_new), runs(&self.indexes, |index| !is_new(index)));
        let old: Vec<sock_filter> = old.iter().flat_map(IndexRun::code).collect();
        // With one generation all packets are treated alike.
        let (types, handshake) = if old.is_empty() {
            (Vec::new(), Vec::new())
        } else {
            ([&by_type()[..], &by_check()].concat(), index_at(LONG_HEADER_ID, INDEX_CODE).to_vec())
        };
        let mut code = vec![load(libc::BPF_B, 0), jump(libc::BPF_JSET, LONG_HEADER.into(), INDEX_CODE, 0)];
        // A known index is looked up in the old runs first; others fall through.
        code.extend(index_at(SHORT_HEADER_ID, (types.len() + handshake.len()) as u32 + INDEX_CODE));
        code.extend(types);
        code.extend(handshake);
        // New connections skip the old runs.
        code.extend(index_at(LONG_HEADER_ID, old.len() as u32));
        code.extend(old);
        code.extend(self.spread());
        code.extend(new.iter().flat_map(IndexRun::code));
        // The kernel chooses if nothing is at this position.
        code.push(instruction(libc::BPF_RET | libc::BPF_K, u32::MAX));
        code
    }

    /// Replaces an index that is not among the newest by one that is.
    fn spread(&self) -> [sock_filter; 4] {
        let (first, end) = (u32::from(self.newest.start), u32::from(self.newest.end));
        [
            jump(libc::BPF_JGE, first, 0, 1),
            jump(libc::BPF_JGE, end, 0, 2),
            instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, (end - first).max(1)),
            instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, first),
        ]
    }
}

/// Makes the kernel choose among the sockets of `group`, to which `socket` belongs. It applies to all of them.
///
/// # Errors
/// The kernel does not support it, or the socket shares its address with no other (`SO_REUSEPORT`).
pub fn steer(socket: BorrowedFd<'_>, group: &Group) -> io::Result<()> {
    sys::choose_by(socket, &group.program())
}

/// The bit in the first byte that long headers have.
const LONG_HEADER: u8 = 0x80;

/// The offset of the destination connection ID after a short header's first byte, and in a long header (RFC 8999, 5).
const SHORT_HEADER_ID: u32 = 1;
const LONG_HEADER_ID: u32 = 6;

/// QUIC version 2 numbers its packet types differently (RFC 9369, 3.2).
const VERSION_2: u32 = 0x6b33_43cf;

/// Sockets with consecutive indexes at consecutive positions.
#[derive(Debug, PartialEq, Eq)]
struct IndexRun {
    first: u8,
    position: usize,
    length: usize,
}

/// Returns the runs of the indexes that are wanted.
fn runs(indexes: &[u8], is_wanted: impl Fn(&u8) -> bool) -> Vec<IndexRun> {
    let mut runs: Vec<IndexRun> = Vec::new();
    for (position, index) in indexes.iter().enumerate().filter(|(_, index)| is_wanted(index)) {
        let continues = |run: &IndexRun| {
            run.position + run.length == position
                && usize::from(run.first) + run.length == usize::from(*index)
        };
        match runs.last_mut() {
            Some(run) if continues(run) => run.length += 1,
            _ => runs.push(IndexRun { first: *index, position, length: 1 }),
        }
    }
    runs
}

impl IndexRun {
    /// Returns the position if the index belongs to this run.
    fn code(&self) -> [sock_filter; 4] {
        let first = u32::from(self.first);
        [
            jump(libc::BPF_JGE, first, 0, 3),
            jump(libc::BPF_JGE, first + self.length as u32, 2, 0),
            instruction(
                libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K,
                (self.position as u32).wrapping_sub(first),
            ),
            instruction(libc::BPF_RET | libc::BPF_A, 0),
        ]
    }
}

/// The number of instructions of [`index_at`].
const INDEX_CODE: u32 = 5;

/// Computes the index in the connection ID at `offset`, and skips `skipped` instructions.
fn index_at(offset: u32, skipped: u32) -> [sock_filter; INDEX_CODE as usize] {
    [
        load(libc::BPF_B, offset),
        instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
        load(libc::BPF_B, offset + 1),
        instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        instruction(libc::BPF_JMP | libc::BPF_JA, skipped),
    ]
}

/// Whether a packet with a long header cannot be the first of a connection: Handshake and Retry packets.
fn is_later(datagram: &[u8]) -> bool {
    let kind = datagram[0] & 0x30;
    if datagram.get(1..5) == Some(&VERSION_2.to_be_bytes()) { kind == 0x30 } else { kind >= 0x20 }
}

/// Skips a [`by_check`] if a packet with a long header cannot be the first of a connection, as in [`is_later`].
fn by_type() -> [sock_filter; 8] {
    let kind = [load(libc::BPF_B, 0), instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x30)];
    [
        load(libc::BPF_W, 1),
        jump(libc::BPF_JEQ, VERSION_2, 3, 0),
        kind[0],
        kind[1],
        // Initial 0x00, 0-RTT 0x10, Handshake 0x20.
        jump(libc::BPF_JGE, 0x20, 3 + CHECK_CODE, 3),
        kind[0],
        kind[1],
        // Initial 0x10, 0-RTT 0x20, Handshake 0x30.
        jump(libc::BPF_JEQ, 0x30, CHECK_CODE, 0),
    ]
}

/// The number of instructions of [`by_check`].
const CHECK_CODE: u32 = 7;

/// Skips an [`index_at`] unless the connection ID of a long header was issued by a server, as in [`is_issued`].
fn by_check() -> [sock_filter; CHECK_CODE as usize] {
    [
        load(libc::BPF_B, LONG_HEADER_ID - 1),
        jump(libc::BPF_JEQ, ID_LENGTH as u32, 0, 5 + INDEX_CODE),
        load(libc::BPF_H, LONG_HEADER_ID + 2),
        instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
        load(libc::BPF_H, LONG_HEADER_ID + 4),
        instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        jump(libc::BPF_JEQ, CHECK.into(), 0, INDEX_CODE),
    ]
}

fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn load(size: u32, offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | size | libc::BPF_ABS, offset)
}

/// Compares with `k`, and skips `yes` or `no` instructions.
fn jump(test: u32, k: u32, yes: u32, no: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt: yes as u8, jf: no as u8, k }
}

#[cfg(test)]
mod tests;
