//! The end of a connection (RFC 9000, 10).

use std::time::Instant;

use super::{LostReason, QuicConnection, QuicEvent, State};
use crate::error::{APPLICATION_ERROR, TransportError};
use crate::registration::{EndpointInput, Registration};

/// Why we closed a connection, for the CONNECTION_CLOSE frame.
#[derive(Debug, Clone)]
pub(super) struct CloseReason {
    pub(super) code: u64,
    /// The frame at fault; `None` for an error of the application.
    pub(super) frame: Option<u64>,
    pub(super) reason: Box<[u8]>,
    /// Whether the frame is to be sent.
    pub(super) is_pending: bool,
    /// Packets received since the connection was closed.
    pub(super) received: u32,
}

impl CloseReason {
    /// The code, the frame at fault and the reason for packets that are not encrypted with 1-RTT keys: they do not reveal an error of the
    /// application.
    pub(super) fn before_one_rtt(&self) -> (u64, Option<u64>, &[u8]) {
        match self.frame {
            Some(_) => (self.code, self.frame, &self.reason),
            None => (APPLICATION_ERROR, Some(0), &[]),
        }
    }
}

impl QuicConnection {
    /// Closes the connection at once, with an error code of the application.
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        if !self.is_closed() {
            self.begin_closing(now, code.min(crate::varint::MAX), None, reason);
        }
    }

    /// Ends the connection without notifying the peer. Its packets are ignored for three probe timeouts.
    pub fn vanish(&mut self, now: Instant) {
        if !self.is_closed() {
            self.state = State::Draining;
            self.end_soon(now);
        }
    }

    /// Closes the connection for a violation of the protocol.
    pub(super) fn fail(&mut self, now: Instant, error: TransportError) {
        self.fail_with(now, error.code, error.frame, error.reason.into());
    }

    pub(super) fn fail_with(&mut self, now: Instant, code: u64, frame: u64, reason: String) {
        if self.is_closed() {
            return;
        }
        self.begin_closing(now, code, Some(frame), reason.as_bytes());
        self.events.push_back(QuicEvent::Lost(LostReason::Violation(code, reason)));
    }

    fn begin_closing(&mut self, now: Instant, code: u64, frame: Option<u64>, reason: &[u8]) {
        let reason = CloseReason { code, frame, reason: reason.into(), is_pending: true, received: 0 };
        self.state = State::Closing(Box::new(reason));
        self.end_soon(now);
    }

    /// Packets of a closed connection may arrive for three probe timeouts.
    fn end_soon(&mut self, now: Instant) {
        self.close_deadline = Some(now + self.probe_timeout() * 3);
        self.idle_deadline = None;
        self.release();
    }

    /// Drops what a closed connection does not need. Data that has arrived may still be read.
    fn release(&mut self) {
        self.streams.end_sending();
        self.application.sent.forget_all();
        let in_flight = self.path.in_flight;
        self.path.remove_in_flight(in_flight);
        self.previous = None;
    }

    /// The peer has closed the connection.
    pub(super) fn closed_by_peer(&mut self, now: Instant, reason: LostReason) {
        match self.state {
            State::Open => {
                self.state = State::Draining;
                self.end_soon(now);
                self.events.push_back(QuicEvent::Lost(reason));
            }
            State::Closing(_) => self.state = State::Draining,
            State::Draining | State::Drained => {}
        }
    }

    /// Ends the connection without a word to the peer.
    pub(super) fn end(&mut self, reason: Option<LostReason>) {
        if self.is_drained() {
            return;
        }
        if let Some(reason) = reason
            && !self.is_closed()
        {
            self.events.push_back(QuicEvent::Lost(reason));
        }
        self.release();
        self.state = State::Drained;
        self.close_deadline = None;
        self.idle_deadline = None;
        self.inputs.push_back(EndpointInput(Registration::Drained));
    }
}
