//! The timers of a connection.

use std::time::{Duration, Instant};

use super::space::SpaceId;
use super::{LostReason, QuicConnection, State};

/// The maximum number of doublings of the probe timeout.
const BACKOFF_MAX: u32 = 16;

impl QuicConnection {
    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn timeout(&mut self) -> Option<Instant> {
        match self.state {
            State::Open => {}
            State::Closing(_) | State::Draining => return self.close_deadline,
            State::Drained => return None,
        }
        let challenge = self
            .path
            .challenge
            .map(|challenge| challenge.resend.map_or(challenge.deadline, |at| at.min(challenge.deadline)));
        [
            self.idle_deadline,
            self.loss_deadline().map(|(at, _)| at),
            self.application.received.deadline,
            self.paced_until,
            challenge,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.close_deadline.is_some_and(|at| now >= at) {
            return self.end(None);
        }
        if self.is_closed() {
            return;
        }
        if self.idle_deadline.is_some_and(|at| now >= at) {
            return self.end(Some(LostReason::TimedOut));
        }
        if self.application.received.deadline.is_some_and(|at| now >= at) {
            self.application.received.is_due = true;
        }
        if self.paced_until.is_some_and(|at| now >= at) {
            self.paced_until = None;
        }
        if let Some((at, space)) = self.loss_deadline()
            && now >= at
        {
            self.on_loss_timeout(now, space);
        }
        self.check_challenge(now);
    }

    /// Repeats a challenge that was not answered; returns to the old path after the last attempt.
    fn check_challenge(&mut self, now: Instant) {
        let Some(challenge) = &mut self.path.challenge else { return };
        if now >= challenge.deadline {
            self.path.challenge = None;
            if let Some(previous) = self.previous.take() {
                let generation = self.path.generation + 1;
                self.path = *previous;
                // Packets of either path do not count any more.
                self.path.generation = generation;
                self.path.in_flight = 0;
            }
        } else if challenge.resend.is_some_and(|at| now >= at) {
            challenge.resend = None;
            challenge.is_pending = true;
        }
    }

    /// The probe timeout without backoff, with the peer's delay.
    pub(super) fn probe_timeout(&self) -> Duration {
        let delay = match &self.peer {
            Some(peer) if self.is_confirmed => peer.max_ack_delay,
            _ => Duration::ZERO,
        };
        self.path.rtt.probe_timeout() + delay
    }

    /// Returns when a packet counts as lost, or when a probe is to be sent, and in which space (RFC 9002, A.8).
    pub(super) fn loss_deadline(&self) -> Option<(Instant, SpaceId)> {
        let spaces = SpaceId::ALL.into_iter().filter_map(|id| Some((id, self.space(id)?)));
        let lost = spaces.clone().filter_map(|(id, space)| Some((space.loss_time?, id)));
        if let Some(first) = lost.min_by_key(|(at, _)| *at) {
            return Some(first);
        }
        // A client that may send nothing more has to send the next packet itself.
        if self.path.allowance() < usize::from(crate::settings::Settings::INITIAL_MTU) {
            return None;
        }
        let backoff = 1 << self.probe_count.min(BACKOFF_MAX);
        let base = self.path.rtt.probe_timeout();
        let is_waiting =
            SpaceId::ALL.iter().any(|id| self.space(*id).is_some_and(|space| space.sent.has_eliciting()));
        if !self.is_server() && !self.is_confirmed && !is_waiting {
            // The server may wait for a datagram that permits it to send more (RFC 9002, 6.2.2.1).
            let id = if self.handshake.is_some() { SpaceId::Handshake } else { SpaceId::Initial };
            return self.last_sent.map(|last| (last + base * backoff, id));
        }
        spaces
            .filter(|(id, space)| {
                space.sent.has_eliciting() && (*id != SpaceId::Application || self.is_established)
            })
            .filter_map(|(id, space)| {
                let delay = if id == SpaceId::Application { self.probe_timeout() } else { base };
                Some((space.last_eliciting? + delay * backoff, id))
            })
            .min_by_key(|(at, _)| *at)
    }

    /// The connection ends if nothing is received for the shorter of both sides' limits (RFC 9000, 10.1).
    pub(super) fn restart_idle_timer(&mut self, now: Instant) {
        self.idle_deadline = self.max_idle_timeout().map(|limit| now + limit.max(self.probe_timeout() * 3));
    }
}
