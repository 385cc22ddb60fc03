//! What can be told of a section (`show peers`).

use super::{Group, PeerConnection, ResyncStage};
use crate::session::{Over, SessionCounts};

/// A peer as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerView {
    /// Whether it is this process.
    pub is_local: bool,
    /// Whether there is a session with it.
    pub is_established: bool,
    /// Whether a connection is being made to it, or greetings are exchanged.
    pub is_connecting: bool,
    /// Whether it teaches this process.
    pub teaches: bool,
    /// Whether it has said that it does not know everything.
    pub is_partial: bool,
    /// When its last session began.
    pub established: Option<u64>,
    /// When it is tried again.
    pub retry: u64,
    /// How its last attempt or session ended, if there is none now.
    pub last: Option<Over>,
    /// How many sessions there were.
    pub sessions: u64,
    /// How many connections gave way to another.
    pub collisions: u64,
    /// How many of its sessions were cut because it broke the protocol.
    pub breaches: u64,
    /// How many of its sessions ended because nothing came any more.
    pub timeouts: u64,
    /// What went each way in the session that stands.
    pub counts: SessionCounts,
}

/// How far a peer is with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncProgress {
    /// The number by which it names the table, if it has said so.
    pub remote_id: u64,
    /// The number of our last change that it has acknowledged, and of the last that was sent.
    pub acknowledged: u64,
    /// The last that was sent.
    pub sent: u64,
    /// The number of its last entry, and of the last that was acknowledged to it.
    pub learned: u32,
    /// The last that was acknowledged to it.
    pub confirmed: u32,
}

impl Group {
    /// A peer as it stands.
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

    /// How far a peer is with a table.
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

    /// How many connections stand, and how many of these are sessions.
    pub fn connections(&self) -> [u32; 2] {
        let up = self.lines.values().filter_map(|line| match line {
            PeerConnection::Up(session) => Some(session.is_open()),
            _ => None,
        });
        up.fold([0, 0], |[all, open], is_open| [all + 1, open + u32::from(is_open)])
    }

    /// Until when somebody is waited for who could teach this process.
    pub fn resync_until(&self) -> Option<u64> {
        self.resync.until().filter(|_| self.stage() != ResyncStage::Finished)
    }
}
