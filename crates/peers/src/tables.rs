//! A session's interface to the shared tables: [`Tables`], implemented by their owner.

use crate::row::PeerEntry;

/// The origin of a learned entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOrigin {
    /// The process that this one replaces. Its counts and those made here add up.
    Predecessor,
    /// An earlier process with this one's name. Other peers may have sent its counts already.
    Local,
    /// The process that replaces this one. Its counts are lower until it is taught.
    Successor,
    /// Another peer.
    Remote {
        /// Its index in the section.
        peer: usize,
        /// Whether the peer sends everything it knows, which may be older than updates from others or local traffic. (Not visible
        /// with version 2.0 peers.)
        resync: bool,
    },
}

/// The tables of a `peers` section, by their indexes in the group's list of definitions.
///
/// A table numbers local changes (not learned ones): each change gives the entry the next number, so that an entry has one number,
/// of its last change, and a peer that knows all changes up to a number knows those with lower ones.
pub trait Tables {
    /// Returns the number of the last change; 0 if there was none.
    fn latest(&self, table: usize) -> u64;

    /// Calls `take` with the entries numbered above `after` and their numbers, in ascending order, until it returns false; the last
    /// entry counts as taken. Removed entries are skipped.
    fn changed(
        &mut self,
        table: usize,
        after: u64,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    );

    /// Calls `take` with all entries, starting at `cursor`, until it returns false; the last entry counts as taken. The first
    /// cursor is 0. Returns the next cursor, or `None` at the end. Only entries added or removed during the walk may be missed.
    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64>;

    /// Stores a received entry, and restarts its lifetime.
    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64);

    /// Called when [`EntryOrigin::Predecessor`] has ended: memory for its last values can be freed.
    fn forget_predecessor(&mut self) {}
}
