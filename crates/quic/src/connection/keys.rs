//! The keys of 1-RTT packets and their updates (RFC 9001, 6).

use std::time::Instant;

use tls::quic::{DirectionKeys, HeaderKey, LevelKeys, PacketKey, QuicHandshake};

/// How many packets before the limit of a key it is replaced.
const MARGIN: u64 = 1 << 10;

/// The keys of 1-RTT packets.
pub(super) struct OneRttKeys {
    pub(super) local: DirectionKeys,
    remote_header: HeaderKey,
    remote: PacketKey,
    /// The key phase bit.
    pub(super) phase: bool,
    /// The keys of the next phase, for sending and receiving, once they were needed.
    next: Option<Box<(PacketKey, PacketKey)>>,
    /// The receive key of the last phase, for packets that were delayed, and when it is dropped.
    previous: Option<Box<(PacketKey, Instant)>>,
    /// The first packets of this phase, sent and received.
    first_sent: u64,
    first_received: Option<u64>,
    /// Whether a packet of this phase was acknowledged, so that the next phase may begin.
    is_acknowledged: bool,
    /// Packets encrypted with the current key.
    sealed: u64,
    /// Packets that could not be decrypted with any key.
    forged: u64,
}

/// The result of [`OneRttKeys::open`].
pub(super) enum Opened {
    /// The length of the payload.
    Payload(usize),
    /// The length of the payload. The peer has begun the next key phase.
    Updated(usize),
    Forged,
    /// The peer has updated keys before we could have acknowledged the last update.
    TooEarly,
}

impl OneRttKeys {
    pub(super) fn new(keys: LevelKeys) -> Self {
        let LevelKeys { local, remote } = keys;
        Self {
            local,
            remote_header: remote.header,
            remote: remote.packet,
            phase: false,
            next: None,
            previous: None,
            first_sent: 0,
            first_received: None,
            is_acknowledged: false,
            sealed: 0,
            forged: 0,
        }
    }

    pub(super) fn header(&self) -> &HeaderKey {
        &self.remote_header
    }

    /// Decrypts a packet of the phase `phase`.
    pub(super) fn open(
        &mut self,
        now: Instant,
        phase: bool,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
        tls: &mut QuicHandshake,
    ) -> Opened {
        if self.previous.as_ref().is_some_and(|previous| now >= previous.1) {
            self.previous = None;
        }
        if phase == self.phase {
            return match self.remote.open(number, header, payload) {
                Ok(length) => {
                    self.first_received = Some(self.first_received.map_or(number, |first| first.min(number)));
                    Opened::Payload(length)
                }
                Err(_) => self.note_forged(),
            };
        }
        if let Some((previous, _)) = self.previous.as_deref()
            && self.first_received.is_none_or(|first| number < first)
        {
            return match previous.open(number, header, payload) {
                Ok(length) => Opened::Payload(length),
                Err(_) => self.note_forged(),
            };
        }
        let Some((_, next)) = self.next_keys(tls) else { return Opened::Forged };
        match next.open(number, header, payload) {
            // The peer may not update again before it knows that we have followed.
            Ok(_) if self.first_received.is_none() => Opened::TooEarly,
            Ok(length) => {
                self.first_received = Some(number);
                Opened::Updated(length)
            }
            Err(_) => self.note_forged(),
        }
    }

    fn note_forged(&mut self) -> Opened {
        self.forged += 1;
        Opened::Forged
    }

    /// Whether the number of forged packets has reached the limit of the cipher.
    pub(super) fn is_worn_out(&self) -> bool {
        self.forged >= self.remote.integrity_limit()
    }

    fn next_keys(&mut self, tls: &mut QuicHandshake) -> Option<&(PacketKey, PacketKey)> {
        if self.next.is_none() {
            self.next = tls.next_keys().map(Box::new);
        }
        self.next.as_deref()
    }

    /// Begins the next phase. The old receive key is kept until `keep_until`; `number` is the next packet to send.
    pub(super) fn update(
        &mut self,
        number: u64,
        keep_until: Instant,
        tls: &mut QuicHandshake,
        by_peer: bool,
    ) {
        if self.next_keys(tls).is_none() {
            return;
        }
        let Some(next) = self.next.take() else { return };
        let (local, remote) = *next;
        self.local.packet = local;
        let old = std::mem::replace(&mut self.remote, remote);
        self.previous = Some(Box::new((old, keep_until)));
        self.phase = !self.phase;
        self.first_sent = number;
        self.is_acknowledged = false;
        self.sealed = 0;
        if !by_peer {
            self.first_received = None;
        }
    }

    /// Counts a packet to be sent; returns whether the keys are to be updated first.
    pub(super) fn note_sealed(&mut self) -> bool {
        self.sealed += 1;
        let limit = self.local.packet.confidentiality_limit();
        self.sealed > limit.saturating_sub(MARGIN).min(limit / 2 + 1) && self.is_acknowledged
    }

    /// Whether no packet may be encrypted any more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.sealed >= self.local.packet.confidentiality_limit()
    }

    /// The peer has acknowledged packets up to this one.
    pub(super) fn note_acknowledged(&mut self, largest: u64) {
        self.is_acknowledged |= largest >= self.first_sent;
    }
}
