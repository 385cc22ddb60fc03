//! The FastCGI-specific part of streams: requests that begin with parameters, and responses without a valid head.

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};

use fcgi::{Broken, Closed, OpenError, Parameters, StreamKey};
use http::{Head, Method};
use runtime::Buffer;

use super::{ConnectionEvent, Driver, Messages, NoHead, Received, Reset};

/// The engine.
pub(crate) type FastcgiEngine = fcgi::Connection;
/// The connection shared by its requests.
pub(crate) type FastcgiConnection = super::EngineConnection<FastcgiEngine>;
/// A request. Dropping it aborts the parts of it that have not ended.
pub(crate) type FastcgiStream = super::EngineStream<FastcgiEngine>;
/// The incoming half of a request.
pub(crate) type FastcgiIncoming = super::IncomingHalf<FastcgiEngine>;

impl Messages for FastcgiEngine {
    fn head_mut(&mut self) -> &mut Head {
        self.head_mut()
    }

    fn send_data(&mut self, key: StreamKey, data: &[u8], ends: bool) -> usize {
        self.send_data(key, data, ends)
    }

    fn next_writable(&mut self) -> Option<StreamKey> {
        self.next_writable()
    }

    fn takes_heads(&self) -> bool {
        // The application's limit on concurrent requests bounds the parameters.
        true
    }
}

/// Reads a connection, one buffer at a time.
#[derive(Default)]
pub(crate) struct FastcgiReader {
    input: Option<Buffer>,
    /// The start of the last event's bytes, and the start of the bytes after them.
    event: usize,
    rest: usize,
    is_fresh: bool,
}

impl Driver for FastcgiReader {
    type Engine = FastcgiEngine;
    type Broken = Closed;

    fn receive(
        &mut self,
        connection: &FastcgiConnection,
        socket: &mut net::Stream,
        context: &mut Context<'_>,
        _: impl FnOnce() -> bool,
    ) -> io::Result<Received> {
        if connection.engine.borrow().must_drain() || connection.is_crowded() {
            return Ok(Received::Nothing);
        }
        if std::mem::take(&mut self.is_fresh) {
            return Ok(Received::Bytes);
        }
        if self.input.is_none() && socket.poll_read_ready(context).is_pending() {
            return Ok(Received::Nothing);
        }
        let buffer = self.input.get_or_insert_with(Buffer::for_body);
        buffer.compact();
        match socket.poll_read(context, buffer.room()) {
            Poll::Pending => {
                self.input.take_if(|buffer| buffer.is_empty());
                Ok(Received::Nothing)
            }
            Poll::Ready(Ok(0)) => Ok(Received::End),
            Poll::Ready(Ok(n)) => {
                buffer.fill(n);
                Ok(Received::Bytes)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    fn next(&mut self, connection: &FastcgiConnection) -> Result<Option<ConnectionEvent<StreamKey>>, Closed> {
        let Some(buffer) = &self.input else { return Ok(None) };
        self.event = self.rest;
        let (used, event) = connection.engine.borrow_mut().receive(&buffer.filled()[self.event..])?;
        self.rest += used;
        if event.is_none() {
            self.consume();
        }
        Ok(event.map(ConnectionEvent::from))
    }

    fn put(&mut self, connection: &FastcgiConnection, key: StreamKey, range: Range<usize>, is_last: bool) {
        let filled = self.input.as_ref().map_or(&[][..], Buffer::filled);
        let (from, to) = (self.event + range.start, self.event + range.end);
        connection.put(key, filled.get(from..to).unwrap_or_default(), is_last);
    }

    fn pause(&mut self) {
        self.consume();
        self.is_fresh = self.input.is_some();
    }

    fn is_fresh(&self) -> bool {
        self.is_fresh
    }
}

impl FastcgiReader {
    /// Drops the decoded bytes, and the buffer if nothing is left in it.
    fn consume(&mut self) {
        if let Some(buffer) = &mut self.input {
            buffer.consume(self.rest);
        }
        (self.event, self.rest) = (0, 0);
        self.input.take_if(|buffer| buffer.is_empty());
    }
}

impl From<fcgi::Event> for ConnectionEvent<StreamKey> {
    fn from(event: fcgi::Event) -> Self {
        match event {
            fcgi::Event::Head { key } => Self::Head { key, end: false },
            fcgi::Event::Data { key, range } => Self::Data { key, range, end: false },
            fcgi::Event::End { key, trailers: false } => Self::End { key },
            fcgi::Event::End { key, trailers: true } => Self::Trailers { key },
            fcgi::Event::Broken { key, how } => {
                let why = match how {
                    Broken::Cut => NoHead::Cut,
                    Broken::Refused => NoHead::Refused,
                    Broken::Malformed(kind) => NoHead::Malformed(kind),
                };
                Self::Reset { key, reset: Reset::Internal, why }
            }
            fcgi::Event::Message => Self::Message,
        }
    }
}

impl FastcgiStream {
    /// Starts a request; with `ends` it has no body.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn open(
        connection: &Rc<FastcgiConnection>,
        parameters: &Parameters,
        method: Method,
        ends: bool,
    ) -> Result<Self, OpenError> {
        let key = connection.engine.borrow_mut().open(parameters, method, ends)?;
        connection.touch();
        Ok(Self::begin(connection.clone(), key, ends))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use fcgi::record::{self, kind};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_paused_reader_resumes_after_the_last_event_without_a_read() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        let mut socket = net::Stream::from_fd(ours.into(), false);
        let config = fcgi::Config {
            keeps: true,
            multiplexes: false,
            most: 1,
            asks: false,
            wants_messages: false,
            head: http::ParseOptions::default(),
        };
        let connection = FastcgiConnection::new(FastcgiEngine::new(config), -1, false);
        let parameters = Parameters::new(1024);
        let mut stream = FastcgiStream::open(&connection, &parameters, Method::Get, true).expect("a stream");
        let mut sent = Vec::new();
        record::write(kind::STDOUT, 1, b"Status: 200\r\n\r\nbody", &mut sent);
        theirs.write_all(&sent).expect("an application");

        let mut reader = FastcgiReader::default();
        let received = poll_fn(|context| match reader.receive(&connection, &mut socket, context, || false) {
            Ok(Received::Nothing) => Poll::Pending,
            other => Poll::Ready(other),
        });
        assert_eq!(received.await.ok(), Some(Received::Bytes));
        let event = reader.next(&connection).expect("no violation");
        let Some(ConnectionEvent::Head { key, end: false }) = event else { panic!("{event:?} is no head") };
        connection.put_head(key);
        reader.pause();
        assert!(reader.is_fresh());

        let mut context = Context::from_waker(std::task::Waker::noop());
        let received = reader.receive(&connection, &mut socket, &mut context, || false);
        assert_eq!(received.ok(), Some(Received::Bytes));
        assert_eq!(reader.advance(&connection).expect("no violation"), None);
        assert!(matches!(stream.poll_fill(&mut context), Poll::Ready(Ok(4))));
        assert_eq!(stream.received(), b"body");
    }
}
