//! The connection IDs of both sides (RFC 9000, 5.1).

use smallvec::SmallVec;

use crate::connection_id::{ConnectionId, OwnId};
use crate::error::{CONNECTION_ID_LIMIT_ERROR, TransportError};
use crate::frame::NewConnectionId;

/// The number of our IDs that a peer may have.
const OWN_MAX: u64 = 4;

/// The number of the peer's IDs that we keep, as announced.
pub(super) const PEERS_MAX: usize = 4;

/// The number of retired IDs that the peer has not acknowledged. A peer that retires more of its IDs does not follow the protocol.
const RETIRED_MAX: usize = 32;

/// The IDs that we have issued.
#[derive(Debug)]
pub(super) struct OwnIds {
    first: OwnId,
    active: SmallVec<[(u64, OwnId); 1]>,
    next: u64,
    /// The number of IDs that the peer keeps.
    most: u64,
    /// Issued IDs that are to be sent.
    pub(super) pending: SmallVec<[u64; 2]>,
}

impl OwnIds {
    /// Starts with the ID of the handshake.
    pub(super) fn new(first: OwnId) -> Self {
        Self {
            first,
            active: SmallVec::from_slice(&[(0, first)]),
            next: 1,
            most: 1,
            pending: SmallVec::new(),
        }
    }

    /// The ID of the handshake, whether or not it was retired.
    pub(super) fn first(&self) -> OwnId {
        self.first
    }

    pub(super) fn set_peer_limit(&mut self, most: u64) {
        self.most = most.min(OWN_MAX);
    }

    /// Whether the peer may have another ID.
    pub(super) fn has_room(&self) -> bool {
        (self.active.len() as u64) < self.most
    }

    pub(super) fn issue(&mut self, id: OwnId) {
        self.active.push((self.next, id));
        self.pending.push(self.next);
        self.next += 1;
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&OwnId> {
        self.active.iter().find(|(number, _)| *number == sequence).map(|(_, id)| id)
    }

    /// The peer does not use an ID any more. `used` is the ID that the packet was addressed to.
    pub(super) fn retire(&mut self, sequence: u64, used: &[u8]) -> Result<Option<OwnId>, TransportError> {
        if sequence >= self.next {
            return Err(TransportError::violation("a connection ID was retired that was not issued"));
        }
        let Some(at) = self.active.iter().position(|(number, _)| *number == sequence) else {
            return Ok(None);
        };
        if self.active[at].1 == used {
            return Err(TransportError::violation("a connection ID was retired that is in use"));
        }
        self.pending.retain(|number| *number != sequence);
        Ok(Some(self.active.remove(at).1))
    }
}

/// The IDs that the peer has issued.
#[derive(Debug)]
pub(super) struct PeerIds {
    active: SmallVec<[PeerId; 1]>,
    /// IDs below were retired at the peer's request.
    retired_to: u64,
    /// Retired IDs that are to be sent, or were sent and not acknowledged.
    pub(super) pending: SmallVec<[u64; 2]>,
    unacknowledged: usize,
}

/// An ID of the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerId {
    pub(super) sequence: u64,
    pub(super) id: ConnectionId,
    pub(super) reset_token: Option<[u8; 16]>,
}

impl PeerIds {
    pub(super) fn new(id: ConnectionId) -> Self {
        let first = PeerId { sequence: 0, id, reset_token: None };
        let active = SmallVec::from_slice(&[first]);
        Self { active, retired_to: 0, pending: SmallVec::new(), unacknowledged: 0 }
    }

    /// Replaces the first ID, which a client learns from the server's packets.
    pub(super) fn replace_first(&mut self, id: ConnectionId) {
        if let Some(first) = self.active.first_mut() {
            first.id = id;
        }
    }

    pub(super) fn set_first_token(&mut self, token: [u8; 16]) {
        self.active[0].reset_token = Some(token);
    }

    /// Returns an ID; the first one if it was retired.
    pub(super) fn get(&self, sequence: u64) -> PeerId {
        let found = self.active.iter().find(|id| id.sequence == sequence);
        *found.unwrap_or(&self.active[0])
    }

    /// Returns an ID that is not in use.
    pub(super) fn spare(&self, used: u64) -> Option<u64> {
        self.active.iter().map(|id| id.sequence).find(|sequence| *sequence > used)
    }

    pub(super) fn retire(&mut self, sequence: u64) -> Result<(), TransportError> {
        if self.active.len() > 1 {
            self.active.retain(|id| id.sequence != sequence);
            self.note_retired(sequence)?;
        }
        Ok(())
    }

    fn note_retired(&mut self, sequence: u64) -> Result<(), TransportError> {
        self.pending.push(sequence);
        self.unacknowledged += 1;
        if self.unacknowledged > RETIRED_MAX {
            return Err(TransportError::new(
                CONNECTION_ID_LIMIT_ERROR,
                "too many connection IDs were retired",
            ));
        }
        Ok(())
    }

    /// The peer knows that an ID was retired.
    pub(super) fn retirement_arrived(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// Adds an ID of the peer.
    pub(super) fn insert(&mut self, new: &NewConnectionId) -> Result<(), TransportError> {
        if self.active[0].id.is_empty() {
            return Err(TransportError::violation("a new connection ID from a peer without IDs"));
        }
        if let Some(known) = self.active.iter().find(|id| id.sequence == new.sequence || id.id == new.id) {
            let is_same = known.sequence == new.sequence
                && known.id == new.id
                && known.reset_token.is_none_or(|token| token == new.reset_token);
            return is_same
                .then_some(())
                .ok_or(TransportError::violation("a connection ID was issued twice with other contents"));
        }
        if new.sequence < self.retired_to {
            return self.note_retired(new.sequence);
        }
        let reset_token = Some(new.reset_token);
        self.active.push(PeerId { sequence: new.sequence, id: new.id, reset_token });
        if new.retire_prior_to > self.retired_to {
            self.retired_to = new.retire_prior_to;
            let gone = self.active.iter().map(|id| id.sequence);
            let gone: SmallVec<[u64; 4]> = gone.filter(|sequence| *sequence < new.retire_prior_to).collect();
            self.active.retain(|id| id.sequence >= new.retire_prior_to);
            for sequence in gone {
                self.note_retired(sequence)?;
            }
        }
        if self.active.len() > PEERS_MAX {
            return Err(TransportError::new(CONNECTION_ID_LIMIT_ERROR, "too many connection IDs"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(sequence: u64, retire_prior_to: u64) -> NewConnectionId {
        // Cannot truncate in these tests.
        let id = ConnectionId::new(&[sequence as u8; 8]).expect("8 bytes");
        NewConnectionId { sequence, retire_prior_to, id, reset_token: [sequence as u8; 16] }
    }

    #[test]
    fn ids_of_the_peer_are_limited_and_replaced() {
        let mut ids = PeerIds::new(ConnectionId::new(&[9; 8]).expect("8 bytes"));
        for sequence in 1..4 {
            assert_eq!(ids.insert(&new(sequence, 0)), Ok(()));
            assert_eq!(ids.insert(&new(sequence, 0)), Ok(()), "a copy");
        }
        assert_eq!(ids.spare(0), Some(1));
        let changed = NewConnectionId { reset_token: [0; 16], ..new(2, 0) };
        assert!(ids.insert(&changed).is_err());
        assert_eq!(ids.insert(&new(5, 3)), Ok(()));
        assert_eq!(ids.pending.as_slice(), [0, 1, 2]);
        assert_eq!(ids.get(0).sequence, 3, "the first one that is left");
        assert_eq!(ids.insert(&new(2, 0)), Ok(()));
        assert_eq!(ids.pending.as_slice(), [0, 1, 2, 2], "it is retired at once");
        assert_eq!(ids.insert(&new(6, 3)).and(ids.insert(&new(7, 3))), Ok(()));
        let error = ids.insert(&new(8, 3)).expect_err("too many");
        assert_eq!(error.code, CONNECTION_ID_LIMIT_ERROR);
    }

    #[test]
    fn floods_of_retired_ids_are_errors() {
        let mut ids = PeerIds::new(ConnectionId::new(&[9; 8]).expect("8 bytes"));
        let error = (1..100).find_map(|sequence| ids.insert(&new(sequence, sequence)).err());
        assert_eq!(error.map(|error| error.code), Some(CONNECTION_ID_LIMIT_ERROR));
    }

    #[test]
    fn own_ids_are_retired_by_the_peer() {
        let mut ids = OwnIds::new([1; 8]);
        assert!(!ids.has_room());
        ids.set_peer_limit(100);
        while ids.has_room() {
            ids.issue([ids.next as u8 + 1; 8]);
        }
        assert_eq!(ids.pending.as_slice(), [1, 2, 3]);
        assert!(ids.retire(4, &[9; 8]).is_err(), "not issued");
        assert!(ids.retire(0, &[1; 8]).is_err(), "in use");
        assert_eq!(ids.retire(1, &[1; 8]), Ok(Some([2; 8])));
        assert_eq!(ids.retire(1, &[1; 8]), Ok(None));
        assert_eq!(ids.pending.as_slice(), [2, 3]);
        assert!(ids.has_room());
    }
}
