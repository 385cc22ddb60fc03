//! The sessions of a socket.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::session::{Progress, SessionKey, SessionLimits, UdpSession};

/// The number of entries of sessions that have ended which the queue of deadlines may have in addition to twice the sessions.
const SPARE_DEADLINES: usize = 1024;

/// The identity of a session. It is not reused for another session as long as fewer than 2³² follow in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    slot: u32,
    turn: u32,
}

impl SessionId {
    /// Both numbers as one, for the kernel to return with an event.
    pub fn to_bits(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.turn)
    }

    /// Reverses [`to_bits`](Self::to_bits).
    pub fn from_bits(bits: u64) -> Self {
        Self { slot: (bits >> 32) as u32, turn: bits as u32 }
    }
}

/// A place for a session.
#[derive(Debug)]
struct SessionSlot<T> {
    /// How many sessions the slot has had.
    turn: u32,
    session: Option<UdpSession<T>>,
}

/// The sessions of a socket.
///
/// Deadlines are lazy: each session has one entry in the queue, with its deadline when the entry was made. A datagram does not
/// change the entry. When an entry is due and its session is not, it is queued again. The entries of sessions that have ended are
/// removed together once they are the majority.
#[derive(Debug)]
pub struct SessionTable<T> {
    hasher: RandomState,
    /// The slots of listed sessions, by key.
    index: HashTable<u32>,
    slots: Vec<SessionSlot<T>>,
    free: Vec<u32>,
    due: BinaryHeap<Reverse<(u64, SessionId)>>,
}

impl<T> Default for SessionTable<T> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
        }
    }
}

impl<T> SessionTable<T> {
    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether the table has no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the session to which a client's datagram belongs; `None` if it begins another one.
    pub fn find(&self, key: &SessionKey) -> Option<SessionId> {
        let slot = *self.index.find(self.hasher.hash_one(key), |slot| self.key_of(*slot) == Some(key))?;
        Some(SessionId { slot, turn: self.slots[slot as usize].turn })
    }

    fn key_of(&self, slot: u32) -> Option<&SessionKey> {
        self.slots[slot as usize].session.as_ref().map(|session| &session.key)
    }

    /// Begins a session, which gets the client's next datagrams. It is not complete before its first datagram is recorded.
    pub fn insert(&mut self, key: SessionKey, data: T, now_ms: u64, limits: &SessionLimits) -> SessionId {
        let session = UdpSession::new(key, data, now_ms);
        let deadline = session.deadline(limits);
        let id = self.place(session);
        self.list(id.slot, &key);
        self.due.push(Reverse((deadline, id)));
        id
    }

    /// Continues a session of another table, such as that of another process.
    pub fn adopt(&mut self, mut session: UdpSession<T>, limits: &SessionLimits) -> SessionId {
        let (key, deadline) = (session.key, session.deadline(limits));
        session.is_listed &= self.find(&key).is_none();
        let is_listed = session.is_listed;
        let id = self.place(session);
        if is_listed {
            self.list(id.slot, &key);
        }
        self.due.push(Reverse((deadline, id)));
        id
    }

    fn place(&mut self, session: UdpSession<T>) -> SessionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SessionSlot { turn: 0, session: None });
            self.slots.len() as u32 - 1
        });
        let own = &mut self.slots[slot as usize];
        own.turn = own.turn.wrapping_add(1);
        own.session = Some(session);
        SessionId { slot, turn: own.turn }
    }

    /// Makes the session in `slot` the one that gets the client's next datagrams.
    fn list(&mut self, slot: u32, key: &SessionKey) {
        let Self { hasher, index, slots, .. } = self;
        let key_of = |slot: u32| slots[slot as usize].session.as_ref().map(|session| &session.key);
        let hash = hasher.hash_one(key);
        let rehash = |slot: &u32| key_of(*slot).map_or(0, |key| hasher.hash_one(key));
        match index.entry(hash, |other| key_of(*other) == Some(key), rehash) {
            Entry::Occupied(mut entry) => *entry.get_mut() = slot,
            Entry::Vacant(entry) => {
                entry.insert(slot);
            }
        }
    }

    /// Makes the client's next datagram begin another session.
    fn unlist(&mut self, id: SessionId) {
        let Some(session) = self.get_mut(id).filter(|session| session.is_listed) else { return };
        session.is_listed = false;
        let key = session.key;
        let hash = self.hasher.hash_one(key);
        if let Ok(entry) = self.index.find_entry(hash, |slot| *slot == id.slot) {
            entry.remove();
        }
    }

    /// Returns the session, unless it has ended.
    pub fn get(&self, id: SessionId) -> Option<&UdpSession<T>> {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.turn == id.turn)?;
        slot.session.as_ref()
    }

    /// Returns the session, unless it has ended.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut UdpSession<T>> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.turn == id.turn)?;
        slot.session.as_mut()
    }

    /// Returns all sessions.
    pub fn ids(&self) -> Vec<SessionId> {
        let all = self.slots.iter().zip(0..).filter(|(slot, _)| slot.session.is_some());
        all.map(|(slot, at)| SessionId { slot: at, turn: slot.turn }).collect()
    }

    /// Records datagrams that the client sent to the server.
    pub fn request(
        &mut self,
        id: SessionId,
        (datagrams, bytes): (u64, u64),
        now_ms: u64,
        limits: &SessionLimits,
    ) -> Progress {
        let Some(session) = self.get_mut(id) else { return Progress::Open };
        session.requests += datagrams;
        session.bytes_in += bytes;
        session.active_ms = now_ms;
        session.awaits_server = true;
        let (progress, has_room) = (session.progress(limits), session.room(limits) > 0);
        if !has_room {
            self.unlist(id);
        }
        progress
    }

    /// Records datagrams that the server sent to the client.
    pub fn response(
        &mut self,
        id: SessionId,
        (datagrams, bytes): (u64, u64),
        now_ms: u64,
        limits: &SessionLimits,
    ) -> Progress {
        let Some(session) = self.get_mut(id) else { return Progress::Open };
        session.responses += datagrams;
        session.bytes_out += bytes;
        session.active_ms = now_ms;
        session.awaits_server = false;
        session.progress(limits)
    }

    /// Ends a session.
    pub fn remove(&mut self, id: SessionId) -> Option<UdpSession<T>> {
        self.unlist(id);
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.turn == id.turn)?;
        let session = slot.session.take()?;
        self.free.push(id.slot);
        if self.due.len() > 2 * self.len() + SPARE_DEADLINES {
            let slots = &self.slots;
            let is_live = |id: SessionId| {
                slots[id.slot as usize].turn == id.turn && slots[id.slot as usize].session.is_some()
            };
            self.due.retain(|Reverse((_, id))| is_live(*id));
        }
        Some(session)
    }

    /// Removes a session that continues in another table ([`adopt`](Self::adopt)), without a change.
    pub fn remove_as_is(&mut self, id: SessionId) -> Option<UdpSession<T>> {
        let is_listed = self.get(id)?.is_listed;
        self.remove(id).map(|session| UdpSession { is_listed, ..session })
    }

    /// Returns a session that has expired; the caller removes it and calls this again.
    pub fn expired(&mut self, now_ms: u64, limits: &SessionLimits) -> Option<SessionId> {
        while let Some(Reverse((at, id))) = self.due.peek().copied() {
            if at > now_ms {
                return None;
            }
            self.due.pop();
            let Some(session) = self.get(id) else { continue };
            let deadline = session.deadline(limits);
            if deadline <= now_ms {
                return Some(id);
            }
            self.due.push(Reverse((deadline, id)));
        }
        None
    }

    /// Returns when [`expired`](Self::expired) must be called, in ms.
    pub fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Applies other limits to all sessions.
    pub fn renew(&mut self, limits: &SessionLimits) {
        let due = self.ids().into_iter().filter_map(|id| {
            let session = self.get(id)?;
            Some(Reverse((session.deadline(limits), id)))
        });
        self.due = due.collect();
    }
}

#[cfg(test)]
mod tests;
