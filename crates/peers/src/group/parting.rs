//! The replacement of a process: how long the old one sends its entries to the new one, and when the new one adds the old one's
//! counts to its own.
//!
//! The old process still has requests in progress after it has sent its tables, and the new process counts from its first request
//! on. Messages carry totals, so the new process remembers the last totals for each entry until the old one disconnects, and adds
//! the difference. It does so only if no other peer has sent it the same counts.

use super::{Group, GroupCommand, PeerConnection};
use crate::tables::Tables;

/// For how many milliseconds the old process, after sending its entries to the successor, continues to send the changes of
/// requests in progress. During that time, the new process needs memory for each entry.
const LATE: u64 = 60_000;

/// How many milliseconds the successor has to acknowledge the last changes.
const LAST: u64 = 2_000;

/// The progress of handing over to the successor.
#[derive(Debug, Default)]
pub(super) struct Parting {
    /// Whether the successor has confirmed that it got everything.
    taught: bool,
    /// Whether this process makes no more changes.
    drained: bool,
    /// When the replacement ends, even without the last acknowledgements.
    until: Option<u64>,
    done: bool,
}

impl Parting {
    pub(super) fn taught(&mut self, now: u64) {
        self.taught = true;
        self.until = Some(now + if self.drained { LAST } else { LATE });
    }

    pub(super) fn is_taught(&self) -> bool {
        self.taught
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.until.filter(|_| !self.done)
    }

    pub(super) fn is_late(&self, now: u64) -> bool {
        self.next().is_some_and(|until| now >= until)
    }
}

impl Group {
    /// Called when the last connection of a process that is about to end has ended, so there will be no more changes. Once the
    /// successor has acknowledged them, the command is [`GroupCommand::Done`].
    pub fn drained(&mut self, now: u64, tables: &impl Tables) {
        self.parting.drained = true;
        if self.parting.taught {
            self.parting.until = Some(now + LAST);
        }
        self.part_if_done(tables);
    }

    /// Disconnects from the successor if it has acknowledged the last change.
    pub(super) fn part_if_done(&mut self, tables: &impl Tables) {
        if !self.parting.taught || !self.parting.drained || self.parting.done {
            return;
        }
        let link = self.local.and_then(|local| self.peers[local].link);
        let knows_all = match link.and_then(|link| self.lines.get(&link)) {
            Some(PeerConnection::Up(session)) => {
                let mut tables =
                    (0..self.settings.section.tables.len()).map(|at| (at, tables.latest(at, self.local)));
                tables.all(|(at, latest)| session.taught(at).0 >= latest)
            }
            _ => true,
        };
        if knows_all {
            self.part_for_good();
        }
    }

    /// Ends the session with the successor, if there is one, and issues [`GroupCommand::Done`], once.
    pub(super) fn part_for_good(&mut self) {
        if std::mem::replace(&mut self.parting.done, true) {
            return;
        }
        self.commands.push_back(GroupCommand::Done);
        if let Some(link) = self.local.and_then(|local| self.peers[local].link) {
            let now = self.parting.until.unwrap_or_default();
            self.finish(link, now);
        }
    }

    /// Whether the counts of that earlier process are added to those made by this one.
    pub(super) fn adds_counts(&mut self, process: Option<u32>) -> bool {
        let others = (0..self.peers.len()).filter(|place| Some(*place) != self.local);
        let is_first = self.before.is_none() && !others.map(|place| &self.peers[place]).any(|peer| peer.met);
        if is_first {
            self.before = process;
            self.keeps_predecessor = true;
        }
        self.keeps_predecessor && self.before == process
    }

    /// Whether the predecessor has disconnected and the memory for its counts can be freed. Returns `true` once.
    pub(crate) fn forgets_predecessor(&mut self) -> bool {
        let is_here =
            self.resync.is_local() || self.local.is_some_and(|local| self.peers[local].link.is_some());
        self.keeps_predecessor && !is_here && std::mem::replace(&mut self.keeps_predecessor, false)
    }
}
