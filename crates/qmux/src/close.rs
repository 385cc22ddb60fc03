//! The end of a connection (section 7 of the draft; RFC 9000, 10.2).

use std::time::Instant;

use quic::transport::{TransportError, write_close};
use quic::varint;
use quic::{LostReason, QuicEvent};

use crate::connection::QmuxConnection;
use crate::record::{self, RECORD_MAX};

impl QmuxConnection {
    /// Closes the connection at once, with an error code of the application. A CONNECTION_CLOSE frame is sent after the bytes that
    /// were [returned](Self::output) before.
    pub fn close(&mut self, code: u64) {
        if !self.is_closed() {
            self.begin_closing(code.min(varint::MAX), None, &[]);
        }
    }

    /// The peer violated the protocol.
    pub(crate) fn fail(&mut self, error: TransportError) {
        if !self.is_closed() {
            self.begin_closing(error.code, Some(error.frame), error.reason.as_bytes());
            self.events
                .push_back(QuicEvent::Lost(LostReason::Violation(error.code, error.reason.to_owned())));
        }
    }

    fn begin_closing(&mut self, code: u64, frame: Option<u64>, reason: &[u8]) {
        // The parameters are the first frame, even of a connection that ends at once.
        self.write_parameters();
        let mut close = Vec::new();
        write_close(&mut close, code, frame, reason, RECORD_MAX);
        record::write(&mut self.output, &close);
        self.end();
    }

    /// The peer has closed the connection. Nothing that is sent now would be used.
    pub(crate) fn closed_by_peer(&mut self, reason: LostReason) {
        self.output = Vec::new();
        self.sent = 0;
        self.end();
        self.events.push_back(QuicEvent::Lost(reason));
    }

    /// Ends the connection if it has been idle for too long, without a frame. `is_busy` is set while a request waits for its
    /// response. A peer may then be silent for longer, and other time limits apply.
    pub fn handle_timeout(&mut self, now: Instant, is_busy: bool) {
        if self.is_closed() || self.idle.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if is_busy {
            self.idle.restart(now);
            return;
        }
        self.end();
        self.events.push_back(QuicEvent::Lost(LostReason::TimedOut));
    }

    /// Data that has arrived may still be read.
    fn end(&mut self) {
        self.is_over = true;
        self.streams.end_sending();
    }
}
