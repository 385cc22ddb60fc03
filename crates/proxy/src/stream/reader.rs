//! Reading a connection that carries many streams: bytes of its socket, and what the engine makes of
//! them.

use std::io;
use std::ops::Range;
use std::task::{Context, Poll};

use h2::{Closed, Event, Key};
use runtime::{Buffer, buffer};

use super::Connection;

/// What was received and not taken apart yet.
#[derive(Default)]
pub(crate) struct Reader {
    input: Option<Buffer>,
    /// Where the bytes begin that the last event is about, and those after it.
    event: usize,
    rest: usize,
    /// Whether the engine has not looked at all of it, though it could: it had enough for one turn,
    /// or what it owes has to be sent first.
    is_fresh: bool,
    /// Whether the last read filled its buffer: the next is worth a large one.
    bulk: bool,
    /// Whether it left nothing of the room, and the next will find more.
    is_full: bool,
    /// The stream that was not told of the beginning of a frame.
    untold: Option<Key>,
}

/// What a turn has to do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing.
    Nothing,
    /// Bytes, for [`Reader::next`].
    Bytes,
    /// The end of what the peer sends.
    End,
}

impl Reader {
    /// Begins with bytes that were received before.
    pub(crate) fn new(input: Option<Buffer>) -> Self {
        let is_fresh = input.as_ref().is_some_and(|input| !input.is_empty());
        Self { input, is_fresh, ..Self::default() }
    }

    /// Whether nothing is left of what was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_none()
    }

    /// Whether there is something to do without a read, once others had their turn.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Reads once, unless something is here still. `busy` says whether connections that glitch too
    /// often are ended now.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn receive(
        &mut self,
        connection: &Connection,
        socket: &mut net::Stream,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received> {
        if let Some(key) = self.untold.take() {
            connection.wake(key);
        }
        let mut engine = connection.engine.borrow_mut();
        if engine.must_drain() {
            return Ok(Received::Nothing);
        }
        if !std::mem::take(&mut self.is_fresh) {
            if self.input.is_none() && socket.poll_read_ready(context).is_pending() {
                return Ok(Received::Nothing);
            }
            let new = if self.bulk { Buffer::for_frames } else { Buffer::small };
            let buffer = self.input.get_or_insert_with(new);
            buffer.compact();
            let room = buffer.room_len();
            match socket.poll_read(context, buffer.room()) {
                Poll::Pending => {
                    self.bulk = false;
                    self.release();
                    return Ok(Received::Nothing);
                }
                Poll::Ready(Ok(0)) => {
                    self.input = None;
                    return Ok(Received::End);
                }
                Poll::Ready(Ok(n)) => {
                    self.is_full = n == room;
                    self.bulk = self.is_full || n >= buffer::small_size();
                    buffer.fill(n);
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        engine.begin_turn(busy());
        (self.event, self.rest) = (0, 0);
        Ok(Received::Bytes)
    }

    /// What comes next of the bytes that are here.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn next(&mut self, connection: &Connection) -> Result<Option<Event>, Closed> {
        let Some(buffer) = &mut self.input else { return Ok(None) };
        let mut engine = connection.engine.borrow_mut();
        self.event = self.rest;
        let (used, event) = engine.receive(&buffer.filled()[self.event..])?;
        self.rest += used;
        if event.is_none() {
            buffer.consume(self.rest);
            (self.event, self.rest) = (0, 0);
            self.is_fresh = !buffer.is_empty() && (engine.is_turn_over() || engine.must_drain());
            drop(engine);
            self.release();
        }
        Ok(event)
    }

    /// Leaves what stands behind the last event to who reads on.
    pub(crate) fn pause(&mut self) {
        if let Some(buffer) = &mut self.input {
            buffer.consume(self.rest);
            self.is_fresh = !buffer.is_empty();
        }
        (self.event, self.rest) = (0, 0);
        self.release();
    }

    /// Gives a stream the payload of the last event. One that has the beginning of a frame goes on
    /// once the rest is there, which the next read finds: two pieces would be sent by two calls.
    pub(crate) fn put(&mut self, connection: &Connection, key: Key, range: Range<usize>, is_last: bool) {
        let filled = self.input.as_ref().map_or(&[][..], Buffer::filled);
        let (from, to) = (self.event + range.start, self.event + range.end);
        let payload = filled.get(from..to).unwrap_or_default();
        if self.is_full && to == filled.len() && connection.engine.borrow().is_within_payload() {
            connection.put_silently(key, payload);
            self.untold = Some(key);
        } else {
            connection.put(key, payload, is_last);
        }
    }

    /// Gives memory back that holds nothing.
    fn release(&mut self) {
        if self.input.as_ref().is_some_and(Buffer::is_empty) {
            self.input = None;
        }
    }
}
