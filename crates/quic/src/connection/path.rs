//! A network path: addresses, validation, round-trip time, congestion control (RFC 9000, 8 and 9).

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::congestion::Controller;
use crate::connection_id::ConnectionId;
use crate::mtu::Mtu;
use crate::pacer::{Pace, Pacer};
use crate::rtt::Rtt;

/// How much may be sent to an address that was not validated, for each byte received from it (RFC 9000, 8.1).
pub(super) const AMPLIFICATION_MAX: u64 = 3;

/// The number of packets that are sent at once while the window is nearly full.
const BATCH: u64 = 32;

/// The number of packets after which a path that reports no marks is used without them.
const ECN_TRIAL: u64 = 100;

/// A path to the peer.
#[derive(Debug)]
pub(super) struct NetworkPath {
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    /// Counts paths, for packets that were sent on earlier ones.
    pub(super) generation: u32,
    pub(super) is_validated: bool,
    /// Bytes in both directions before validation.
    received: u64,
    sent: u64,
    pub(super) challenge: Option<PathChallenge>,
    pub(super) rtt: Rtt,
    pub(super) controller: Controller,
    /// Unacknowledged bytes.
    pub(super) in_flight: u64,
    /// Whether there was too little to send to use the window.
    pub(super) is_limited: bool,
    pub(super) pacer: Pacer,
    pub(super) mtu: Mtu,
    pub(super) ecn: EcnState,
    /// The sequence number of the peer's connection ID.
    pub(super) id: u64,
    /// The ID of ours that the peer uses.
    pub(super) destination: Option<ConnectionId>,
}

/// The addresses and the length of a received datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatagramOrigin {
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) length: usize,
}

/// The answer to a PATH_CHALLENGE.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathResponse {
    pub(super) data: [u8; 8],
    /// The datagram with the challenge.
    pub(super) origin: DatagramOrigin,
}

/// A PATH_CHALLENGE that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathChallenge {
    pub(super) data: [u8; 8],
    pub(super) is_pending: bool,
    /// When it is to be sent again.
    pub(super) resend: Option<Instant>,
    /// When the path has failed.
    pub(super) deadline: Instant,
}

/// Whether packets are marked (RFC 9000, 13.4.2).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EcnState {
    /// The path or the peer drops marks.
    pub(super) has_failed: bool,
    /// Packets sent with marks.
    pub(super) marked: u64,
    /// Whether the peer has reported marks.
    pub(super) is_proven: bool,
}

impl EcnState {
    /// Whether the next packet is to be marked.
    pub(super) fn is_used(&self) -> bool {
        !self.has_failed && (self.is_proven || self.marked < ECN_TRIAL)
    }
}

impl NetworkPath {
    pub(super) fn new(
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        controller: Controller,
        mtu_max: u16,
    ) -> Self {
        Self {
            remote,
            local_ip,
            generation: 0,
            is_validated: false,
            received: 0,
            sent: 0,
            challenge: None,
            rtt: Rtt::default(),
            controller,
            in_flight: 0,
            is_limited: true,
            pacer: Pacer::new(now),
            mtu: Mtu::new(mtu_max),
            ecn: EcnState::default(),
            id: 0,
            destination: None,
        }
    }

    /// Returns the path to another address of the peer. After a change of the port alone, which NATs cause, the estimates are still valid.
    pub(super) fn moved(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        mtu_max: u16,
    ) -> Self {
        let mut path = Self::new(now, remote, local_ip, self.controller.fresh(), mtu_max);
        if remote.ip() == self.remote.ip() && local_ip == self.local_ip {
            std::mem::swap(&mut path.controller, &mut self.controller);
            std::mem::swap(&mut path.mtu, &mut self.mtu);
            path.rtt = self.rtt;
            path.ecn = self.ecn;
        } else {
            path.rtt = self.rtt.as_hint();
        }
        path.generation = self.generation + 1;
        path.id = self.id;
        path
    }

    /// Counts received bytes.
    pub(super) fn note_received(&mut self, bytes: usize) {
        if !self.is_validated {
            self.received = self.received.saturating_add(bytes as u64);
        }
    }

    /// Counts sent bytes.
    pub(super) fn note_sent(&mut self, bytes: usize) {
        if !self.is_validated {
            self.sent = self.sent.saturating_add(bytes as u64);
        }
    }

    /// The number of bytes that may be sent before the address is validated.
    pub(super) fn allowance(&self) -> usize {
        if self.is_validated {
            return usize::MAX;
        }
        let left = self.received.saturating_mul(AMPLIFICATION_MAX).saturating_sub(self.sent);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    pub(super) fn pace(&self) -> Pace {
        let mtu = self.mtu.current();
        match self.controller.rate() {
            Some(rate) => Pace { rate, mtu },
            None => Pace::of_window(self.controller.window(), self.rtt.smoothed, mtu),
        }
    }

    /// Whether a full packet fits into the congestion window.
    pub(super) fn has_window(&self) -> bool {
        self.in_flight + u64::from(self.mtu.current()) <= self.controller.window()
    }

    /// Whether the congestion window has room for a batch of packets. While an eighth of the window or less is free, acknowledgements of
    /// the rest are on their way.
    pub(super) fn has_window_for_batch(&self) -> bool {
        let window = self.controller.window();
        let batch = (window / 8).min(BATCH * u64::from(self.mtu.current()));
        self.has_window() && window - self.in_flight >= batch
    }

    pub(super) fn remove_in_flight(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.controller.set_in_flight(self.in_flight);
    }
}
