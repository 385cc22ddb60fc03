//! Requests that were responded to before they were complete (RFC 9113 section 8.1).
//!
//! The server has finished such a stream, but the rest of the request may be in transit. As much of it as the stream's window
//! allows is received and discarded, so that the stream ends without a reset and the frames are still validated. If the client has
//! used up the window, it is asked to stop by a reset with NO_ERROR. The reset is sent after the acknowledgement of a PING, so that
//! the client has already processed the response: some clients, such as curl 7.88, drop a response that is followed immediately by
//! a reset.

use super::control::PING_STOP;
use super::{Connection, Going};
use crate::event::Event;
use crate::frame::kind;
use crate::stream::{CONNECT, REMOTE_ENDED, RESET, RESET_BY_US, StreamState, UNFINISHED};
use crate::{Code, StreamKey};

impl<B: AsRef<[u8]>> Connection<B> {
    /// Keeps a stream until its request is complete, after the response was sent. Returns `false` if the stream must be reset now.
    pub(super) fn keep_unfinished(&mut self, key: StreamKey) -> bool {
        let Some(stream) = self.streams.get_mut(key) else { return false };
        let is_ending = self.closed.is_some() || self.going != Going::No || self.peer_last.is_some();
        if is_ending || stream.has(RESET | REMOTE_ENDED | CONNECT) {
            return false;
        }
        stream.flags |= UNFINISHED;
        self.pool.change(stream, |stream| stream.held = 0);
        let is_exhausted = stream.credit <= 0;
        self.unfinished += 1;
        self.stop_receiving(key.slot);
        if is_exhausted {
            self.announce_stop();
        }
        true
    }

    /// Processes an event of a stream that is kept until its request is complete. Returns the event if it is meant for the caller.
    pub(super) fn without_unfinished(&mut self, event: Event) -> Option<Event> {
        if self.unfinished == 0 {
            return Some(event);
        }
        let (key, taken, ends) = match &event {
            Event::Data { key, range, end } => (*key, range.len(), *end),
            Event::Trailers { key } | Event::End { key } | Event::Reset { key, .. } => (*key, 0, true),
            _ => return Some(event),
        };
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.has(UNFINISHED)) else {
            return Some(event);
        };
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        self.pool.change(stream, |stream| stream.held = stream.held.saturating_sub(taken));
        let is_exhausted = stream.credit <= 0;
        if ends {
            self.forget(key);
        } else if is_exhausted {
            self.announce_stop();
        }
        None
    }

    /// Called after the windows of all streams changed.
    pub(super) fn stop_if_exhausted(&mut self) {
        let is_exhausted = |stream: &mut StreamState| stream.has(UNFINISHED) && stream.credit <= 0;
        if self.unfinished > 0 && self.streams.iter_mut().any(|(_, stream)| is_exhausted(stream)) {
            self.announce_stop();
        }
    }

    /// Pings the client to find out when it has processed the responses sent so far.
    fn announce_stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopping, true) {
            self.output.frame(kind::PING, 0, 0, PING_STOP);
        }
    }

    /// Called after the ping: resets the streams on which the client cannot send any more.
    pub(super) fn stop_exhausted(&mut self) {
        self.is_stopping = false;
        for slot in 0..self.streams.places() {
            let stream = self.streams.at(slot);
            if stream.id != 0 && stream.has(UNFINISHED) && stream.credit <= 0 {
                let id = stream.id;
                self.stop_unfinished(StreamKey { slot, id });
            }
        }
    }

    /// Makes room for another stream by ending a stream that is kept until its request is complete, if there is any.
    pub(super) fn evict_unfinished(&mut self) -> bool {
        let next = self.streams.iter_mut().find(|(_, stream)| stream.has(UNFINISHED));
        let Some(key) = next.map(|(slot, stream)| StreamKey { slot, id: stream.id }) else { return false };
        self.stop_unfinished(key);
        true
    }

    /// Ends all streams that are kept until their requests are complete, because the connection is shutting down.
    pub(super) fn stop_all_unfinished(&mut self) {
        while self.unfinished > 0 && self.evict_unfinished() {}
    }

    fn stop_unfinished(&mut self, key: StreamKey) {
        self.end_stream(key.slot, RESET_BY_US);
        self.output.frame(kind::RST_STREAM, 0, key.id, Code::NoError.number().to_be_bytes());
        self.forget(key);
    }

    /// Frees the stream's slot.
    pub(super) fn forget(&mut self, key: StreamKey) {
        self.stop_receiving(key.slot);
        let stream = self.streams.at(key.slot);
        self.unfinished -= u32::from(stream.has(UNFINISHED));
        self.pool.change(stream, |stream| (stream.credit, stream.held) = (0, 0));
        self.streams.remove(key);
    }
}
