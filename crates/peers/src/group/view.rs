//! The visible state of a section (`show peers`).

use super::{Group, LinkId, PeerConnection, ResyncStage};
use crate::session::{Over, SessionCounts};

/// The state of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerView {
    /// Whether the peer is this process.
    pub is_local: bool,
    /// Whether there is a session with the peer.
    pub is_established: bool,
    /// Whether a connection to the peer is being opened, or greetings are exchanged.
    pub is_connecting: bool,
    /// Whether the peer is sending its entries to this process.
    pub teaches: bool,
    /// Whether the peer has reported that its data is incomplete.
    pub is_partial: bool,
    /// When the peer's last session began.
    pub established: Option<u64>,
    /// When the next connection to the peer is tried.
    pub retry: u64,
    /// How the peer's last attempt or session ended, if there is no current one.
    pub last: Option<Over>,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of connections that were replaced by another.
    pub collisions: u64,
    /// The number of sessions that ended because the peer violated the protocol.
    pub breaches: u64,
    /// Number of sessions ended by a timeout.
    pub timeouts: u64,
    /// The message counts of the current session.
    pub counts: SessionCounts,
}

/// A peer's progress with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncProgress {
    /// The number by which the peer refers to the table, if known.
    pub remote_id: u64,
    /// The number of the last local change that the peer has acknowledged.
    pub acknowledged: u64,
    /// The number of the last local change that was sent.
    pub sent: u64,
    /// The number of the last entry that the peer has sent.
    pub learned: u32,
    /// The number of the last entry that this side has acknowledged.
    pub confirmed: u32,
}

impl Group {
    /// Returns the state of a peer.
    pub fn view(&self, place: usize) -> Option<PeerView> {
        let peer = self.peers.get(place)?;
        let session = peer.link.and_then(|link| match self.lines.get(&link) {
            Some(PeerConnection::Up(session)) => Some(session),
            _ => None,
        });
        Some(PeerView {
            is_local: Some(place) == self.local,
            is_established: session.is_some(),
            is_connecting: peer.dialing.is_some(),
            teaches: peer.link.is_some() && peer.link == self.resync.teacher(),
            is_partial: peer.partial,
            established: peer.established,
            retry: peer.retry,
            last: peer.last,
            sessions: peer.sessions,
            collisions: peer.collisions,
            breaches: peer.breaches,
            timeouts: peer.timeouts,
            counts: session.map(|session| session.counts()).unwrap_or_default(),
        })
    }

    /// Returns the peer of a connection with a session, and whether a heartbeat is due.
    pub(crate) fn to_wake(&self, link: LinkId) -> (Option<usize>, bool) {
        match self.lines.get(&link) {
            Some(PeerConnection::Up(session)) if session.is_open() => (session.peer(), session.is_beat_due()),
            _ => (None, true),
        }
    }

    /// Returns a peer's progress with a table.
    pub fn progress(&self, place: usize, table: usize) -> SyncProgress {
        let Some(peer) = self.peers.get(place) else { return SyncProgress::default() };
        let known = peer.known.get(table).copied().unwrap_or(0);
        let Some(PeerConnection::Up(session)) = peer.link.and_then(|link| self.lines.get(&link)) else {
            return SyncProgress { acknowledged: known, ..SyncProgress::default() };
        };
        let (acknowledged, sent) = session.taught(table);
        let (remote_id, learned, confirmed) = session.learned(table).unwrap_or_default();
        SyncProgress { remote_id, acknowledged, sent, learned, confirmed }
    }

    /// Returns the number of connections, and how many of these have a session.
    pub fn connections(&self) -> [u32; 2] {
        let up = self.lines.values().filter_map(|line| match line {
            PeerConnection::Up(session) => Some(session.is_open()),
            _ => None,
        });
        up.fold([0, 0], |[all, open], is_open| [all + 1, open + u32::from(is_open)])
    }

    /// Returns the deadline of the wait for a peer that could send its entries to this process.
    pub fn resync_until(&self) -> Option<u64> {
        self.resync.until().filter(|_| self.stage() != ResyncStage::Finished)
    }
}
