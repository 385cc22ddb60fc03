//! Records to send.

use std::time::Instant;

use crate::connection::QmuxConnection;
use crate::record::{self, RECORD_MAX, SIZE_LENGTH};

/// How many bytes of records are prepared at a time. Less would cost system calls; more would delay data of a higher priority.
const BATCH: usize = 48 * 1024;

impl QmuxConnection {
    /// Returns bytes to send, as many as are convenient to send at once; none if there is nothing to send.
    pub fn output(&mut self) -> &[u8] {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            self.fill();
        }
        &self.output[self.sent..]
    }

    /// The transport has taken the first `count` bytes of [`output`](Self::output).
    pub fn sent(&mut self, now: Instant, count: usize) {
        self.sent += count;
        self.bytes_sent += count as u64;
        self.idle.restart(now);
        if self.sent == self.output.len() && !self.has_frames() {
            self.output = Vec::new();
            self.sent = 0;
        }
    }

    /// Returns a lower bound for the number of bytes to send: frames that are not in a record yet count as one byte.
    pub fn unsent(&self) -> usize {
        self.output.len() - self.sent + usize::from(self.has_frames())
    }

    /// Whether there are frames that are not in a record yet.
    fn has_frames(&self) -> bool {
        let has_frames = self.has_parameters() && (self.streams.has_output() || self.pings.has_output());
        self.parameters.is_some() || (has_frames && !self.is_over)
    }

    /// Writes this side's parameters, unless they were written.
    pub(crate) fn write_parameters(&mut self) {
        if let Some(frames) = self.parameters.take() {
            record::write(&mut self.output, &frames);
        }
    }

    fn fill(&mut self) {
        self.write_parameters();
        let before = self.output.len();
        // Other frames depend on the peer's parameters.
        while self.has_frames() && self.output.len() < BATCH {
            let start = self.output.len();
            self.output.extend([0; SIZE_LENGTH]);
            self.pings.write(&mut self.output);
            self.streams.write_delivered(&mut self.output, start + SIZE_LENGTH + RECORD_MAX);
            if self.output.len() == start + SIZE_LENGTH {
                self.output.truncate(start);
                break;
            }
            record::close(&mut self.output, start);
            self.records_sent += 1;
        }
        if self.output.len() > before {
            self.streams.wake_blocked();
        }
    }
}
