//! The HTTP/2 driver. Received bytes are in one buffer, which the engine decodes.

use std::io;
use std::ops::Range;
use std::task::{Context, Poll};

use h2::{Closed, StreamKey};
use runtime::{Buffer, buffer};

use super::h2::{H2Connection, H2Engine};
use super::place::Piece;
use super::{ConnectionEvent, Driver, NoHead, Received};

/// Received bytes that are not decoded yet.
#[derive(Default)]
pub(crate) struct ReceivedBytes {
    input: Option<Buffer>,
    /// The start of the last event's bytes, and the start of the bytes after them.
    event: usize,
    rest: usize,
    /// Whether there are bytes that the engine could have decoded but did not, because its turn was over or because it must send
    /// output first.
    is_fresh: bool,
    /// Whether the last read filled its buffer. In that case, the next read uses a large one.
    bulk: bool,
    /// Whether the last read used all the room, so that the next read will find more.
    is_full: bool,
    /// Whether the input ended within the payload of a frame.
    is_within: bool,
    /// The stream with the beginning of a frame that has not been woken yet.
    unreported: Option<StreamKey>,
}

impl ReceivedBytes {
    /// Creates a reader with bytes that were received before.
    pub(crate) fn new(input: Option<Buffer>) -> Self {
        let is_fresh = input.as_ref().is_some_and(|input| !input.is_empty());
        Self { input, is_fresh, ..Self::default() }
    }

    /// Whether all bytes were decoded.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_none()
    }

    /// Frees an empty buffer.
    fn release(&mut self) {
        if self.input.as_ref().is_some_and(Buffer::is_empty) {
            self.input = None;
        }
    }
}

impl Driver for ReceivedBytes {
    type Engine = H2Engine;
    type Broken = Closed;

    fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    fn receive(
        &mut self,
        connection: &H2Connection,
        socket: &mut net::Stream,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received> {
        if let Some(key) = self.unreported.take() {
            connection.wake(key);
        }
        let mut engine = connection.engine.borrow_mut();
        if engine.must_drain() || connection.is_crowded() {
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

    fn next(&mut self, connection: &H2Connection) -> Result<Option<ConnectionEvent<StreamKey>>, Closed> {
        let Some(buffer) = &mut self.input else { return Ok(None) };
        let mut engine = connection.engine.borrow_mut();
        self.event = self.rest;
        let (used, event) = engine.receive(&buffer.filled()[self.event..])?;
        self.rest += used;
        if event.is_none() {
            buffer.consume(self.rest);
            (self.event, self.rest) = (0, 0);
            self.is_fresh = !buffer.is_empty() && (engine.is_turn_over() || engine.must_drain());
            self.is_within = engine.is_within_payload();
            drop(engine);
            self.release();
        }
        Ok(event.map(ConnectionEvent::from))
    }

    fn pause(&mut self) {
        if let Some(buffer) = &mut self.input {
            buffer.consume(self.rest);
            self.is_fresh = !buffer.is_empty();
        }
        (self.event, self.rest) = (0, 0);
        self.release();
    }

    /// If a stream has received the beginning of a frame, it is woken once the rest has arrived, usually with the next read,
    /// because sending two pieces would cost two system calls.
    fn put(&mut self, connection: &H2Connection, key: StreamKey, range: Range<usize>, is_last: bool) {
        let filled = self.input.as_ref().map_or(&[][..], Buffer::filled);
        let (from, to) = (self.event + range.start, self.event + range.end);
        let payload = filled.get(from..to).unwrap_or_default();
        let is_end = std::mem::take(&mut self.is_within);
        let is_beginning = to == filled.len() && connection.engine.borrow().is_within_payload();
        let piece = match (is_last, self.is_full && (is_end || is_beginning)) {
            (true, _) => Piece::Last,
            (false, true) => Piece::OfFrame,
            (false, false) => Piece::Whole,
        };
        connection.put_silently(key, payload, piece);
        if is_beginning && self.is_full {
            self.unreported = Some(key);
        } else {
            connection.wake(key);
        }
    }
}

impl From<h2::Event> for ConnectionEvent<StreamKey> {
    #[inline]
    fn from(event: h2::Event) -> Self {
        match event {
            h2::Event::Head { key, end, .. } => Self::Head { key, end },
            h2::Event::Data { key, range, end } => Self::Data { key, range, end },
            h2::Event::Trailers { key } => Self::Trailers { key },
            h2::Event::End { key } => Self::End { key },
            h2::Event::Reset { key, code, by } => {
                let why = if by.is_unprocessed(code) { NoHead::Refused } else { NoHead::Cut };
                Self::Reset { key, reset: code.into(), why }
            }
            h2::Event::Refused { .. } => Self::Refused,
            h2::Event::Goaway { .. } => Self::GoingAway,
            h2::Event::Settings => Self::Settings,
            h2::Event::Pong => Self::Pong,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use h2::{Config, Role};

    use super::*;
    use crate::stream::h2::{H2Engine, H2Stream};

    /// Counts wake-ups.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a client's bytes up to the payload of the only frame, of 16 KiB.
    fn beginning() -> Vec<u8> {
        let block = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        bytes.extend([0, 0, block.len() as u8, 1, 4, 0, 0, 0, 1]);
        bytes.extend(block);
        bytes.extend([0, 0x40, 0, 0, 1, 0, 0, 0, 1]);
        bytes
    }

    /// Reads until something has arrived, and dispatches it. Returns the stream, if one was opened.
    async fn turn(
        reader: &mut ReceivedBytes,
        connection: &std::rc::Rc<H2Connection>,
        socket: &mut net::Stream,
    ) -> Option<H2Stream> {
        let received = poll_fn(|context| match reader.receive(connection, socket, context, || false) {
            Ok(Received::Nothing) => Poll::Pending,
            other => Poll::Ready(other),
        });
        assert_eq!(received.await.ok(), Some(Received::Bytes));
        let mut begun = None;
        while let Some(event) = reader.next(connection).expect("no breach") {
            match event {
                ConnectionEvent::Head { key, .. } => begun = Some(H2Stream::new(connection.clone(), key)),
                ConnectionEvent::Data { key, range, end } => reader.put(connection, key, range, end),
                _ => {}
            }
        }
        begun
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_beginning_of_a_frame_waits_for_the_rest_after_a_full_read() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        let mut socket = net::Stream::from_fd(ours.into(), false);
        let connection =
            H2Connection::new(H2Engine::new(Role::Server, &Arc::new(Config::default())), -1, false);
        let mut reader = ReceivedBytes::default();
        let mut sent = beginning();
        sent.resize(sent.len() + 0x4000, b'x');
        let (first, rest) = sent.split_at(buffer::small_size());
        theirs.write_all(first).expect("a peer");

        let mut stream = turn(&mut reader, &connection, &mut socket).await.expect("a request");
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        assert!(stream.poll_reset(&context).is_none());
        // The read filled the buffer, so the rest was expected. It has not arrived, and the stream gets the available part.
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        let nothing = reader.receive(&connection, &mut socket, &mut context, || false);
        assert_eq!((nothing.ok(), count.0.load(Ordering::Relaxed)), (Some(Received::Nothing), 1));

        theirs.write_all(rest).expect("a peer");
        assert!(turn(&mut reader, &connection, &mut socket).await.is_none());
        assert!(count.0.load(Ordering::Relaxed) > 1);
        assert!(matches!(stream.poll_fill(&mut context), Poll::Ready(Ok(0x4000))), "in one piece");
    }
}
