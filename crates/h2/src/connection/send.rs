//! Outgoing messages: heads, bodies, trailers, and scheduling (RFC 9113 sections 5.2, 8.1).
//!
//! Body bytes are sent as much as both windows, the output limit and the turns of other streams permit. The caller keeps the rest,
//! and the stream waits: outside all queues if it needs a larger window, otherwise in the queue of its urgency, until
//! `next_writable` returns it.

use std::ops::Range;

use fields::Scheme;
use http::{Head, Method};

use super::{Connection, OpenError};
use crate::StreamKey;
use crate::frame::WINDOW_MAX;
use crate::frame::{HEADER, MAX_SIZE_DEFAULT};
use crate::limits;
use crate::stream::{CONNECT, HEAD_METHOD, LOCAL_ENDED, QUEUED, SEQUENTIAL, TURN, WAITING};
use fields::Role;

impl<B: AsRef<[u8]>> Connection<B> {
    /// The maximum size of a sent frame.
    fn max_frame(&self) -> usize {
        self.peer.max_frame_size.min(MAX_SIZE_DEFAULT) as usize
    }

    /// The number of streams that may be opened now, as a client.
    #[must_use]
    pub fn free(&self) -> usize {
        if self.role == Role::Server || self.is_ending() || self.streams.last >= WINDOW_MAX {
            return 0;
        }
        (self.most_streams() as usize).saturating_sub(self.streams.len())
    }

    /// The limit of concurrent streams: for a server the announced limit, for a client the lower one of both sides.
    #[must_use]
    pub fn most_streams(&self) -> u32 {
        match self.role {
            Role::Server => self.config.max_streams(),
            Role::Client => self.config.max_streams().min(self.peer.max_concurrent_streams),
        }
    }

    /// Opens a stream with a request; `end` means that it has no body. A request for an upgrade ([`fields::is_extended_connect`])
    /// requires [`crate::PeerSettings::connect_protocol`].
    ///
    /// # Errors
    /// The limit is reached, or the connection is shutting down.
    pub fn open(&mut self, head: &Head, scheme: Scheme, end: bool) -> Result<StreamKey, OpenError> {
        if self.role == Role::Server || self.is_ending() || self.streams.last >= WINDOW_MAX {
            return Err(OpenError::Ending);
        }
        if self.free() == 0 {
            return Err(OpenError::Full);
        }
        let id = if self.streams.last == 0 { 1 } else { self.streams.last + 2 };
        let (max, encoder) = (self.max_frame(), &mut self.encoder);
        self.output
            .headers(id, end, max, |out| fields::write_request(&mut encoder.writer(out), head, scheme));
        let key = self.open_stream(id);
        let stream = self.streams.at(key.slot);
        stream.flags |= match head.method_id() {
            Method::Head => HEAD_METHOD,
            Method::Connect => CONNECT,
            _ if fields::is_extended_connect(head) => CONNECT,
            _ => 0,
        };
        stream.flags |= if end { LOCAL_ENDED } else { 0 };
        Ok(key)
    }

    /// Sends an interim or final response head; `end` means that it has no body. No effect if the stream is over.
    pub fn send_head(&mut self, key: StreamKey, head: &Head, end: bool) {
        self.send_block(key, end, |connection, max| {
            let encoder = &mut connection.encoder;
            connection
                .output
                .headers(key.id, end, max, |out| fields::write_response(&mut encoder.writer(out), head));
        });
    }

    /// Sends trailers and ends the message. The whole body must have been accepted before.
    pub fn send_trailers(&mut self, key: StreamKey, trailers: &Head) {
        self.send_block(key, true, |connection, max| {
            let encoder = &mut connection.encoder;
            connection
                .output
                .headers(key.id, true, max, |out| fields::write_trailers(&mut encoder.writer(out), trailers));
        });
    }

    fn send_block(&mut self, key: StreamKey, end: bool, write: impl FnOnce(&mut Self, usize)) {
        if !self.streams.get(key).is_some_and(|stream| stream.can_send()) {
            return;
        }
        debug_assert!(!end || self.streams.at(key.slot).flags & WAITING == 0, "a body waits");
        write(self, self.max_frame());
        if end {
            self.end_local(key.slot);
        }
    }

    fn end_local(&mut self, slot: u32) {
        self.ready.remove(&mut self.streams, slot);
        let stream = self.streams.at(slot);
        stream.flags &= !(WAITING | TURN);
        stream.flags |= LOCAL_ENDED;
    }

    /// Sends as much of `data` as possible by copying it; returns the number of bytes accepted. If `end` is set and all data was
    /// accepted (always the case for empty data), the message ends. If not all data was accepted, the stream waits, and
    /// `next_writable` returns it when it may continue.
    ///
    /// If the stream is over, all data is accepted and discarded.
    pub fn send_data(&mut self, key: StreamKey, data: &[u8], end: bool) -> usize {
        let Some(allowed) = self.allowance(key, data.len(), false) else { return data.len() };
        self.send_copied(key, &data[..allowed], end && allowed == data.len());
        if allowed < data.len() {
            self.wait(key.slot, allowed > 0);
        }
        allowed
    }

    /// Sends a large payload without copying it. The payload is dropped after it was sent. It is accepted as a whole if the output
    /// has any room and both windows permit, so at most the output limit plus one payload is pending. The part that cannot be sent
    /// now is returned, and the stream waits as in `send_data`. Small payloads, and those that a window cuts, are copied.
    ///
    /// # Errors
    /// The rest of the payload.
    pub fn send_owned(
        &mut self,
        key: StreamKey,
        data: B,
        range: Range<usize>,
        end: bool,
    ) -> Result<(), (B, Range<usize>)> {
        let Some(bytes) = data.as_ref().get(range.clone()) else {
            debug_assert!(false, "a range beyond the payload");
            return Ok(());
        };
        let length = bytes.len();
        if length > limits::COPIED {
            let Some(allowed) = self.allowance(key, length, true) else { return Ok(()) };
            if allowed == length {
                let max = self.max_frame();
                self.output.gather(key.id, data, range, end, max);
                self.took(key.slot, length, end);
                return Ok(());
            }
            self.send_copied(key, &bytes[..allowed], false);
            self.wait(key.slot, allowed > 0);
            return Err((data, range.start + allowed..range.end));
        }
        let sent = self.send_data(key, bytes, end);
        if sent == length { Ok(()) } else { Err((data, range.start + sent..range.end)) }
    }

    /// How many bytes of payload the peer's windows permit on this stream now; unlimited if the stream is over, because payload is
    /// then discarded.
    #[must_use]
    pub fn sendable(&self, key: StreamKey) -> usize {
        let Some(stream) = self.streams.get(key).filter(|stream| stream.can_send()) else {
            return usize::MAX;
        };
        stream.sendable.min(self.sendable).max(0) as usize
    }

    /// How many of `length` bytes may be sent; `None` if the stream is over. With `whole`, only the windows limit the number.
    fn allowance(&mut self, key: StreamKey, length: usize, whole: bool) -> Option<usize> {
        let stream = self.streams.get_mut(key).filter(|stream| stream.can_send())?;
        let has_turn = stream.flags & TURN != 0;
        stream.flags &= !TURN;
        let (window, urgency, queued) = (stream.sendable, stream.urgency, stream.has(QUEUED));
        let others = self.ready.is_before(urgency);
        let room = self.output.room();
        if length == 0 || self.closed.is_some() {
            return Some(0);
        }
        if (others && !has_turn) || queued || room < length.min(limits::ROOM_MIN) + HEADER {
            return Some(0);
        }
        let turn = if others { limits::QUANTUM } else { usize::MAX };
        let window = window.min(self.sendable).max(0) as usize;
        if whole && length <= window {
            return Some(length);
        }
        Some(length.min(window).min(room - HEADER).min(turn))
    }

    fn send_copied(&mut self, key: StreamKey, data: &[u8], end: bool) {
        if data.is_empty() && !end {
            return;
        }
        let max = self.max_frame();
        self.output.data(key.id, data, end, max);
        self.took(key.slot, data.len(), end);
    }

    /// Accounts for payload added to the output.
    fn took(&mut self, slot: u32, length: usize, end: bool) {
        self.sendable -= length as i32;
        let stream = self.streams.at(slot);
        stream.sendable -= length as i32;
        stream.flags &= !WAITING;
        if length >= limits::INCREMENT_SMALL as usize {
            self.used.progress();
        }
        if end {
            self.end_local(slot);
        }
    }

    /// Lets the stream wait with unsent data.
    fn wait(&mut self, slot: u32, sent: bool) {
        let stream = self.streams.at(slot);
        stream.flags |= WAITING;
        if stream.sendable > 0 {
            // A sequential stream keeps its turn, if it has the turn.
            let front = sent && stream.has(SEQUENTIAL);
            self.ready.push(&mut self.streams, slot, front);
        }
    }

    /// Removes and returns the next queued stream that may send: the most urgent, round-robin among
    /// equals. The caller sends its data; if more data remains, the stream is queued again. Call this until it
    /// returns `None`, after `sent` and `receive`.
    pub fn next_writable(&mut self) -> Option<StreamKey> {
        let is_blocked = self.sendable <= 0 || self.output.room() < limits::ROOM_MIN + HEADER;
        if is_blocked || self.closed.is_some() {
            return None;
        }
        while let Some(slot) = self.ready.pop(&mut self.streams) {
            let stream = self.streams.at(slot);
            // SETTINGS may have reduced the window in the meantime; the stream then waits until it grows.
            if stream.sendable > 0 {
                stream.flags &= !WAITING;
                stream.flags |= TURN;
                return Some(StreamKey { slot, id: stream.id });
            }
        }
        None
    }

    /// Whether a stream only waits for room in the output or for the connection window.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty()
    }
}
