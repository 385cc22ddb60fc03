//! A session's interface to the shared tables: [`Tables`], which their owner implements.

use crate::row::PeerEntry;

/// The origin of a learned entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOrigin {
    /// The process that this one replaces. Its counts are added to those made by this process.
    Predecessor,
    /// An earlier process with the name of this one. Other peers may have sent its counts already.
    Local,
    /// The process that replaces this one. Its counts are lower until it has got the entries.
    Successor,
    /// Another peer.
    Remote {
        /// The index of the peer in the section.
        peer: usize,
        /// Whether the peer is sending all its data, which may be older than updates from others or local traffic. (This cannot
        /// be detected with version 2.0 peers.)
        resync: bool,
    },
}

/// The tables of a `peers` section, by their indexes in the group's list of definitions.
///
/// A table numbers local changes (not received ones). Each change gives the entry the next number, so an entry has one number:
/// the number of its last change. A peer that has all changes up to a number therefore has all entries with lower numbers.
pub trait Tables {
    /// Returns the number of the last change that a peer needs, if one is given; 0 without changes.
    fn latest(&self, table: usize, peer: Option<usize>) -> u64;

    /// Calls `take` for each entry for a peer with a number above `after`, with that number, in ascending order, until `take`
    /// returns false. The last entry counts as taken. Removed entries are skipped.
    fn changed(
        &mut self,
        table: usize,
        after: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    );

    /// Calls `take` for each entry for a peer, from `cursor` on, until `take` returns false. The last entry counts as taken. The
    /// first cursor is 0. Returns the next cursor, or `None` at the end. Only entries that are added or removed during the walk
    /// can be missed.
    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64>;

    /// Stores a received entry, and restarts its lifetime.
    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64);

    /// Called when [`EntryOrigin::Predecessor`] has ended, so that the memory for its last values can be freed.
    fn forget_predecessor(&mut self) {}

    /// Whether a table has the counts of a peer, which an earlier process of it has made. A new process of the peer gets them back
    /// before it sends its own.
    fn is_part_of(&self, _table: usize, _peer: usize) -> bool {
        false
    }

    /// Called when the entries of the other peers have arrived. Until then, tables that are sums hold back the part of this process,
    /// because it would replace the part of an earlier process at the peers.
    fn is_synchronized(&mut self, _now: u64) {}

    /// Makes the changes of a table, or of all tables, visible to [`latest`](Self::latest). Only tables that send their changes
    /// at intervals need this.
    fn release(&mut self, _table: Option<usize>, _now: u64) {}

    /// Whether changes are sent to a peer with the remaining lifetime of the entry.
    fn is_timed(&self, _table: usize, _peer: Option<usize>) -> bool {
        false
    }

    /// Called when a session's first message has arrived: the features of the peer's program ([`features`](crate::features)), 0 for
    /// other programs.
    fn note_program(&mut self, _peer: usize, _features: u64, _now: u64) {}

    /// Returns when to call [`tick`](Self::tick).
    fn next(&self) -> Option<u64> {
        None
    }

    /// Processes the passing of time. Returns whether there is something to send.
    fn tick(&mut self, _now: u64) -> bool {
        false
    }

    /// Whether there may be something to send to a peer, since the last call.
    fn take_due(&mut self, _peer: usize) -> bool {
        true
    }

    /// Called when a peer has acknowledged a change of a table, with the milliseconds since the change was sent.
    fn note_delay(&mut self, _table: usize, _peer: usize, _delay: u64) {}

    /// Called when an entry of a table was sent to a peer (`is_sent`) or received from it, with the length of its message.
    fn note_traffic(&mut self, _table: usize, _peer: usize, _bytes: usize, _is_sent: bool) {}

    /// Gives a peer another name. The entries of the peer that had the former name are dropped. Returns the definitions with
    /// another name among peers now, and these names.
    fn rename(&mut self, _peer: usize, _name: &str, _now: u64) -> Vec<(usize, Box<[u8]>)> {
        Vec::new()
    }

    /// Called when a session with a peer was established or has ended. Returns whether the peer must send all entries again.
    fn note_presence(&mut self, _peer: usize, _is_present: bool, _now: u64) -> bool {
        false
    }
}
