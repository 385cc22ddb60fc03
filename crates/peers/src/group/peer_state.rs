//! The state of a peer of a section.

use super::LinkId;
use crate::session::Over;

/// A peer and its session.
#[derive(Debug)]
pub(super) struct PeerState {
    /// The shard of keys that the peer gets.
    pub(super) part: Option<(u32, u32)>,
    /// The session with the peer.
    pub(super) link: Option<LinkId>,
    /// The connection to the peer that is being opened.
    pub(super) dialing: Option<LinkId>,
    /// When to connect to the peer.
    pub(super) retry: u64,
    /// For each table, the last change that the peer had acknowledged when its last session ended.
    pub(super) known: Box<[u64]>,
    /// The process number in the peer's last greeting.
    pub(super) process: Option<u32>,
    /// Whether there has been a session with the peer.
    pub(super) met: bool,
    /// Whether the peer has reported that its data is incomplete.
    pub(super) partial: bool,
    /// Whether the tables need all entries of the peer again.
    pub(super) needs_resync: bool,
    /// Whether this process has requested its own counts from the peer in the current session, and whether it has got them.
    pub(super) is_asked: bool,
    pub(super) has_returned: bool,
    /// The minor version in the greeting: 2.1, or 2.0 if the peer supports nothing newer.
    pub(super) minor: u8,
    /// How the peer's last attempt or session ended.
    pub(super) last: Option<Over>,
    pub(super) established: Option<u64>,
    pub(super) sessions: u64,
    /// The number of connection attempts that failed.
    pub(super) unreached: u64,
    pub(super) collisions: u64,
    pub(super) breaches: u64,
    pub(super) timeouts: u64,
}

impl PeerState {
    /// Returns the state of a peer before its first session. It gets the shard `part` of keys.
    pub(super) fn new(part: Option<(u32, u32)>, tables: usize, now: u64) -> PeerState {
        PeerState {
            part,
            link: None,
            dialing: None,
            retry: now,
            known: vec![0; tables].into(),
            process: None,
            met: false,
            partial: false,
            needs_resync: false,
            is_asked: false,
            has_returned: false,
            minor: 1,
            last: None,
            established: None,
            sessions: 0,
            unreached: 0,
            collisions: 0,
            breaches: 0,
            timeouts: 0,
        }
    }
}
