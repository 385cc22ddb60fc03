//! What a session needs of the tables that are shared: whoever has them implements [`Tables`].

use crate::row::PeerEntry;

/// Where an entry was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOrigin {
    /// From the process that this one replaces. Its counts and those made here add up.
    Predecessor,
    /// From an earlier process with this one's name. Other peers may have sent its counts already.
    Local,
    /// From the process that replaces this one. Its counts are lower until it is taught.
    Successor,
    /// From another peer.
    Remote {
        /// Its place in the section.
        peer: usize,
        /// Whether the peer tells everything it knows, which may be older than what others, or traffic
        /// here, have said since. (Peers of version 2.0 do not let that be seen.)
        resync: bool,
    },
}

/// The tables of a `peers` section, by their places in the list of definitions that the group was
/// made with.
///
/// A table numbers the changes made here (not what it learns): each change gives the entry the next
/// number, so that an entry has one number, of its last change, and a peer that knows all up to a
/// number knows what has a lower one.
pub trait Tables {
    /// The number of the last change; 0 if there was none.
    fn latest(&self, table: usize) -> u64;

    /// Gives the entries whose numbers are above `after` to `take` with their numbers, in rising order,
    /// until `take` says no; the entry it says no to is taken all the same. Entries that
    /// are gone are left out.
    fn changed(
        &mut self,
        table: usize,
        after: u64,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    );

    /// Gives all entries to `take`, from `cursor` on, until `take` says no; the entry it says no to is
    /// taken all the same. The first cursor is 0; answers the next, or `None` when that was all.
    /// What comes and goes meanwhile may be left out, what stays may not.
    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64>;

    /// An entry came: it is made or changed, and its life begins anew.
    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64);

    /// [`EntryOrigin::Predecessor`] has ended: memory for its last values can be freed.
    fn forget_predecessor(&mut self) {}
}
