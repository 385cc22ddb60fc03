//! From which peer a process gets the existing entries (doc/peers-v2.0.txt, "Initial full resync process"): from its predecessor,
//! then from one peer after the other until one reports that it knows everything. It waits at most five seconds for each to begin.

use super::{Group, LinkId, PeerConnection};
use crate::session::{PeerProgram, features};
use crate::tables::Tables;

/// How long to wait for a peer that could send the entries, in milliseconds.
const WAIT: u64 = 5000;

/// The stage of a resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncStage {
    /// Waiting for the predecessor, or receiving its entries.
    Local,
    /// Waiting for another peer, or receiving its entries.
    Remote,
    /// The resync is complete, as far as possible.
    Finished,
}

#[derive(Debug)]
pub(super) struct Resync {
    stage: ResyncStage,
    /// The deadline of the wait for a peer that sends its entries, or `None` while there is one.
    until: Option<u64>,
    teacher: Option<LinkId>,
    /// The number of the process that sends its entries, if it is the predecessor.
    before: Option<u32>,
}

impl Resync {
    pub(super) fn new(successor: bool, now: u64) -> Resync {
        let stage = if successor { ResyncStage::Local } else { ResyncStage::Remote };
        Resync { stage, until: Some(now + WAIT), teacher: None, before: None }
    }

    pub(super) fn stage(&self) -> ResyncStage {
        self.stage
    }

    pub(super) fn is_finished(&self) -> bool {
        self.stage == ResyncStage::Finished
    }

    pub(super) fn is_local(&self) -> bool {
        self.stage == ResyncStage::Local
    }

    pub(super) fn until(&self) -> Option<u64> {
        self.until
    }

    pub(super) fn teacher(&self) -> Option<LinkId> {
        self.teacher
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.until.filter(|_| !self.is_finished())
    }

    pub(super) fn tick(&mut self, now: u64) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        match self.stage {
            ResyncStage::Local => self.go(ResyncStage::Remote, now),
            ResyncStage::Remote | ResyncStage::Finished => self.finish(),
        }
    }

    fn go(&mut self, stage: ResyncStage, now: u64) {
        self.stage = stage;
        self.until = Some(now + WAIT);
        self.teacher = None;
    }

    fn finish(&mut self) {
        self.stage = ResyncStage::Finished;
        self.until = None;
        self.teacher = None;
    }

    /// Called when the predecessor has connected, and sent its number.
    pub(super) fn local_came(&mut self, process: Option<u32>) {
        self.before = process;
        if self.is_local() {
            self.until = None;
        }
    }

    /// Called when the predecessor has sent everything, or all it had. Returns the number to show from here on: the others need not
    /// repeat what they sent to that process.
    pub(super) fn local_taught(&mut self, everything: bool, now: u64) -> Option<u32> {
        if !self.is_local() {
            return None;
        }
        if everything {
            self.finish();
            return self.before;
        }
        self.until = Some(now + WAIT);
        None
    }

    pub(super) fn local_left(&mut self, now: u64) {
        if self.is_local() {
            self.until = Some(now + WAIT);
        }
    }

    pub(super) fn wants_teacher(&self) -> bool {
        self.stage == ResyncStage::Remote && self.teacher.is_none()
    }

    pub(super) fn assigned(&mut self, link: LinkId) {
        self.teacher = Some(link);
        self.until = None;
    }

    /// Called when a peer has sent everything, or all it had. Returns whether that was requested.
    pub(super) fn taught(&mut self, link: LinkId, everything: bool, now: u64) -> bool {
        if self.teacher != Some(link) {
            return false;
        }
        match everything {
            true => self.finish(),
            false => self.go(ResyncStage::Remote, now),
        }
        true
    }

    /// A connection has closed.
    pub(super) fn left(&mut self, link: LinkId, now: u64) {
        if self.teacher == Some(link) {
            self.go(ResyncStage::Remote, now);
        }
    }
}

/// How long a process waits for the counts that peers received from an earlier process of the same member.
#[derive(Debug)]
pub(super) struct PartsWait {
    /// Whether peers are asked. A peer that returns the counts after the wait gets those of this process instead.
    is_asking: bool,
    is_waiting: bool,
    until: Option<u64>,
}

impl PartsWait {
    pub(super) fn new(own_features: u64) -> PartsWait {
        let is_asking = own_features & features::RETURNS_PARTS != 0;
        PartsWait { is_asking, is_waiting: is_asking, until: None }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Ends the wait. Peers that could not be reached are asked later.
    pub(super) fn end(&mut self) {
        self.is_waiting = false;
        self.until = None;
    }

    /// Called when the predecessor has sent everything, so peers are not asked.
    pub(super) fn cancel(&mut self) {
        self.is_asking = false;
        self.end();
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.until
    }

    /// Ends the wait if it is over. It begins without a predecessor, or if the predecessor did not send everything.
    pub(super) fn tick(&mut self, is_local: bool, now: u64) {
        if is_local || !self.is_waiting {
            return;
        }
        if now >= *self.until.get_or_insert(now + WAIT) {
            self.end();
        }
    }
}

impl Group {
    /// Informs the tables about sessions that were established or have ended, and about the arrival of the other peers' entries.
    /// Called after each call that may have caused that. Returns whether the tables have new output for all connections.
    pub fn settle(&mut self, now: u64, tables: &mut impl Tables) -> bool {
        self.report_presence(now, tables);
        let is_due = tables.tick(now);
        self.request_parts();
        if self.synchronized {
            return is_due;
        }
        if !self.has_learned() || !self.has_parts() {
            return is_due;
        }
        self.returns.end();
        self.synchronized = true;
        tables.is_synchronized(now);
        true
    }

    /// Informs the tables about sessions that were established or have ended.
    pub(super) fn report_presence(&mut self, now: u64, tables: &mut impl Tables) {
        while let Some((peer, is_present)) = self.presence.pop_front() {
            self.peers[peer].needs_resync |= tables.note_presence(peer, is_present, now);
            // If two connections collide, the request may have been made on the one that was closed.
            if is_present && self.peers[peer].needs_resync {
                self.request_resync(peer);
            }
        }
    }

    /// Requests the counts of an earlier process from each peer that returns them.
    fn request_parts(&mut self) {
        if !self.returns.is_asking() || self.stopping.is_some() {
            return;
        }
        for place in 0..self.peers.len() {
            let peer = &self.peers[place];
            if Some(place) == self.local || peer.is_asked || peer.has_returned {
                continue;
            }
            let link = self.peers[place].link;
            if let Some(link) = link
                && let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link)
                && matches!(session.program(), PeerProgram::Weir(bits) if bits & features::RETURNS_PARTS != 0)
            {
                session.request_parts();
                self.peers[place].is_asked = true;
                self.asked.push(link);
            }
        }
    }

    /// Whether every peer has returned the counts of an earlier process of this member, or cannot: it is not reachable, or runs
    /// another program. A peer that was restarted itself has lost them.
    fn has_parts(&self) -> bool {
        if !self.returns.is_waiting() || self.stopping.is_some() {
            return true;
        }
        if self.from_dns.is_pending {
            return false;
        }
        let others =
            (0..self.peers.len()).filter(|place| Some(*place) != self.local && self.is_known(*place));
        others.map(|place| &self.peers[place]).all(|peer| {
            let session = match peer.link.and_then(|link| self.lines.get(&link)) {
                Some(PeerConnection::Up(session)) => session,
                _ => return peer.has_returned || peer.unreached > 0,
            };
            peer.has_returned
                || match session.program() {
                    PeerProgram::Unknown => false,
                    PeerProgram::Other => true,
                    PeerProgram::Weir(bits) => bits & features::RETURNS_PARTS == 0,
                }
        })
    }

    /// Requests all entries from a peer with a session.
    fn request_resync(&mut self, peer: usize) {
        let link = self.peers.get(peer).and_then(|peer| peer.link);
        if let Some(link) = link
            && let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link)
        {
            session.request_resync();
            self.asked.push(link);
        }
    }

    /// Whether the entries of the other peers have arrived: the resync is complete, or every peer with a session has sent all its
    /// entries.
    fn has_learned(&self) -> bool {
        if self.resync.is_finished() || self.stopping.is_some() {
            return true;
        }
        let others = (0..self.peers.len()).filter(|place| Some(*place) != self.local);
        let mut known = others.map(|place| &self.peers[place]).filter(|peer| peer.link.is_some()).peekable();
        self.resync.wants_teacher() && known.peek().is_some() && known.all(|peer| peer.partial)
    }
}
