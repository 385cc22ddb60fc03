//! What HTTP/2 has beside what all protocols have whose connections carry many streams: heads and
//! trailers that are sent, resets with codes, counters.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use h2::{Code, Counts, Key};
use http::Head;
use runtime::Buffer;
use sample::StreamFacts;
use state::counters::Multiplexed;

use super::{Connection, Incoming, Messages, NoHead, Protocol, Reset, Stream};

/// Pieces of the output that one call takes: four frames of 16 KiB, and what stands between them.
const PARTS: usize = 16;

/// The engine of HTTP/2 over the worker's buffers.
pub(crate) type Engine = h2::Connection<Buffer>;

/// What rules of streams want of the socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Another type of service.
    pub(crate) tos: Option<u32>,
    /// Another firewall mark.
    pub(crate) mark: Option<u32>,
    /// That it ends without a word, and with which time to live of a last reset (`silent-drop`).
    pub(crate) vanish: Option<Option<u8>>,
}

/// The codes of RFC 9113, 7.
impl From<Code> for Reset {
    fn from(code: Code) -> Self {
        match code {
            Code::Cancel => Self::Cancelled,
            Code::RefusedStream => Self::Refused,
            Code::InternalError => Self::Internal,
            other => Self::Code(other.number().into()),
        }
    }
}

impl From<Reset> for Code {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::Cancelled => Self::Cancel,
            Reset::Refused => Self::RefusedStream,
            Reset::Internal => Self::InternalError,
            // Codes of HTTP/2 have 32 bits.
            Reset::Code(number) => u32::try_from(number).map_or(Self::InternalError, Self::from_number),
        }
    }
}

impl Protocol for Engine {
    type Key = Key;

    #[inline]
    fn place(key: Key) -> usize {
        key.index()
    }

    #[inline]
    fn free(&self) -> usize {
        self.free()
    }

    #[inline]
    fn consume(&mut self, key: Key, count: usize) {
        self.consume(key, count);
    }

    #[inline]
    fn release(&mut self, key: Key, reset: Option<Reset>) {
        if let Some(reset) = reset {
            self.reset(key, reset.into());
        }
        self.release(key);
    }

    fn facts(&self, key: Key, reset: Option<Reset>) -> StreamFacts {
        let open = u32::try_from(self.streams()).unwrap_or(u32::MAX);
        let reset = reset.map(|reset| Code::from(reset).number());
        StreamFacts { id: key.id(), open, most: self.most_streams(), reset }
    }

    fn shrink(&mut self) {
        self.shrink();
    }
}

impl Messages for Engine {
    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        self.head_mut()
    }

    #[inline]
    fn send_data(&mut self, key: Key, data: &[u8], ends: bool) -> usize {
        self.send_data(key, data, ends)
    }

    #[inline]
    fn next_writable(&mut self) -> Option<Key> {
        self.next_writable()
    }

    #[inline]
    fn takes_heads(&self) -> bool {
        self.takes_heads()
    }
}

impl Connection {
    /// Has something done with the socket before anything else is sent.
    pub(crate) fn want(&self, change: impl FnOnce(&mut Wish)) {
        let mut wish = self.wish.get();
        change(&mut wish);
        self.wish.set(wish);
    }

    /// What streams wanted since the last call.
    pub(crate) fn take_wish(&self) -> Wish {
        self.wish.take()
    }

    /// Adds what was counted since the last call to `counters`.
    pub(crate) fn count(&self, counters: &Multiplexed) {
        let counts = self.engine.borrow_mut().take_counts();
        if counts == Counts::default() {
            return;
        }
        let each = [
            (&counters.headers, counts.headers_received),
            (&counters.data, counts.data_received),
            (&counters.settings, counts.settings_received),
            (&counters.resets, counts.resets_received),
            (&counters.goaways, counts.goaways_received),
            (&counters.connection_errors, counts.connection_errors),
            (&counters.stream_errors, counts.stream_errors),
            (&counters.resets_answered, counts.resets_answered),
            (&counters.goaways_answered, counts.goaways_answered),
            (&counters.streams_total, counts.streams),
        ];
        for (counter, count) in each.into_iter().filter(|(_, count)| *count > 0) {
            counter.add(count.into());
        }
    }

    /// The peer, or the end of the connection, has ended the stream; `unprocessed` where the peer
    /// promises that it has not looked at it.
    pub(crate) fn put_reset(&self, key: Key, code: Code, unprocessed: bool) {
        let why = if unprocessed { NoHead::Refused } else { NoHead::Cut };
        self.with_place(key, |place| place.put_reset(code.into(), why));
    }

    /// Writes as much of the output as the socket takes. Returns whether any was written.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn send(&self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool> {
        let mut engine = self.engine.borrow_mut();
        let mut wrote = false;
        loop {
            let mut parts = [IoSlice::new(&[]); PARTS];
            let count = engine.output(&mut parts);
            if count == 0 {
                break;
            }
            match socket.poll_write_parts(context, &parts[..count]) {
                Poll::Pending => return Ok(wrote),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    engine.sent(n);
                    wrote = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        match socket.poll_flush(context) {
            Poll::Ready(flushed) => flushed.map(|()| wrote),
            Poll::Pending => Ok(wrote),
        }
    }
}

impl Stream {
    /// The stream of `key`.
    pub(crate) fn new(connection: Rc<Connection>, key: Key) -> Self {
        Self::begin(connection, key, false)
    }

    /// One that we opened; with `ended` nothing follows its head.
    pub(crate) fn opened(connection: Rc<Connection>, key: Key, ended: bool) -> Self {
        let stream = Self::begin(connection, key, ended);
        stream.incoming.connection.touch();
        stream
    }

    /// Whether the peer reset the stream, or the connection has ended. Otherwise wakes when that
    /// happens.
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Option<Reset> {
        self.incoming.with(|place| {
            place.watch(context.waker());
            place.reset
        })
    }

    /// Ready once the connection has room for a head: to be called before each interim one, as their
    /// number is the server's choice.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_head_room(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_reset(context).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.incoming.connection.poll_head_room(context).map(Ok)
    }

    /// Sends a head; with `ends` nothing follows it.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        let Incoming { connection, key, .. } = &self.incoming;
        if !self.ended {
            connection.engine.borrow_mut().send_head(*key, head, ends);
            self.ended = ends;
            connection.touch();
        }
    }

    /// As [`poll_write`](Self::poll_write) of all that `buffer` holds. What is taken leaves from where
    /// it lies: the buffer has no memory then.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_hand_over(
        &mut self,
        context: &Context<'_>,
        buffer: &mut Buffer,
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        if self.incoming.with(|place| place.reset).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let Incoming { connection, key, .. } = &self.incoming;
        let length = buffer.len();
        let whole = std::mem::replace(buffer, Buffer::none());
        let sent = connection.engine.borrow_mut().send_owned(*key, whole, 0..length, is_last);
        let taken = match sent {
            Ok(()) => length,
            Err((left, range)) => {
                *buffer = left;
                buffer.consume(range.start);
                range.start
            }
        };
        if taken == 0 {
            self.incoming.with(|place| place.watch(context.waker()));
            return Poll::Pending;
        }
        self.ended |= is_last && taken == length;
        connection.touch();
        Poll::Ready(Ok(taken))
    }

    /// Sends trailers, which end the message.
    pub(crate) fn send_trailers(&mut self, trailers: &Head) {
        if !std::mem::replace(&mut self.ended, true) {
            let Incoming { connection, key, .. } = &self.incoming;
            connection.engine.borrow_mut().send_trailers(*key, trailers);
            connection.touch();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_way_through_the_neutral_reset() {
        for number in (0..16).chain([u32::MAX]) {
            let code = Code::from_number(number);
            assert_eq!(Code::from(Reset::from(code)), code);
        }
        assert_eq!(Code::from(Reset::Code(u64::MAX)), Code::InternalError);
    }
}
