//! Requests that were answered before they were complete (RFC 9113 section 8.1).
//!
//! The server is done with such a stream, while the rest of the request may be on its way already. A short
//! rest is taken and thrown away, so that the stream ends without a reset and its frames are still checked.
//! A client that sends more is told to stop, by a reset with NO_ERROR.

use super::{Connection, Going};
use crate::event::Event;
use crate::frame::kind;
use crate::stream::{CONNECT, REMOTE_ENDED, RESET, RESET_BY_US, UNFINISHED};
use crate::{Code, Key};

/// Bytes of payload that are thrown away before the client is told to stop.
const MOST: u32 = 16 * 1024;

impl<B: AsRef<[u8]>> Connection<B> {
    /// Keeps a stream for the rest of its request, after its response was sent. Returns `false` if it is
    /// to be reset at once.
    pub(super) fn keep_unfinished(&mut self, key: Key) -> bool {
        let may_send = |credit: i32| credit > 0;
        let Some(stream) = self.streams.get_mut(key) else { return false };
        let is_open = !stream.has(RESET | REMOTE_ENDED | CONNECT);
        if !is_open || !may_send(stream.credit) || self.going != Going::No || self.peer_last.is_some() {
            return false;
        }
        stream.flags |= UNFINISHED;
        // The queue of those that may send, which the field is for, is no matter of this stream.
        stream.previous = MOST;
        self.pool.change(stream, |stream| stream.held = 0);
        self.stop_receiving(key.slot);
        self.unfinished += 1;
        true
    }

    /// Takes an event of a stream that is kept for the rest of its request. Returns the event if it is
    /// one for the caller.
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
        stream.previous = stream.previous.saturating_sub(taken);
        let is_enough = stream.previous == 0 || stream.credit <= 0;
        self.pool.change(stream, |stream| stream.held = stream.held.saturating_sub(taken));
        if ends {
            self.forget(key);
        } else if is_enough {
            self.stop_unfinished(key);
        }
        None
    }

    /// Makes room for another stream, if one is kept for the rest of its request.
    pub(super) fn evict_unfinished(&mut self) -> bool {
        let next = self.streams.iter_mut().find(|(_, stream)| stream.has(UNFINISHED));
        let Some(key) = next.map(|(slot, stream)| Key { slot, id: stream.id }) else { return false };
        self.stop_unfinished(key);
        true
    }

    /// Ends all of them: the connection is ending.
    pub(super) fn stop_all_unfinished(&mut self) {
        while self.unfinished > 0 && self.evict_unfinished() {}
    }

    fn stop_unfinished(&mut self, key: Key) {
        self.end_stream(key.slot, RESET_BY_US);
        self.output.frame(kind::RST_STREAM, 0, key.id, Code::NoError.number().to_be_bytes());
        self.forget(key);
    }

    /// Frees the stream's place.
    pub(super) fn forget(&mut self, key: Key) {
        self.stop_receiving(key.slot);
        let stream = self.streams.at(key.slot);
        self.unfinished -= u32::from(stream.has(UNFINISHED));
        self.pool.change(stream, |stream| (stream.credit, stream.held) = (0, 0));
        self.streams.remove(key);
    }
}
