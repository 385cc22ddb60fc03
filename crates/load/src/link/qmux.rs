//! The socket and the records of a QMux connection (HTTP/3 over TCP or TLS).

use std::task::{Context, Poll, Waker};

use net::Stream;
use qmux::QmuxConnection;
use quic::{LostReason, Settings};
use runtime::timer::Timer;

use super::LinkEnd;
use super::http1::INPUT;
use super::http3::Http3Transport;
use super::streams::LinkStreams;
use super::transport::arm;
use crate::clock::{Nanos, instant};
use crate::environment::Environment;
use crate::tally::Failure;

/// A connection without its application protocol.
pub(super) struct QmuxLink {
    streams: LinkStreams<QmuxConnection>,
    stream: Stream,
    timer: Timer,
    is_connected: bool,
    /// When the server's transport parameters must have arrived.
    deadline: Nanos,
}

impl QmuxLink {
    /// Creates a connection over a socket, after the TLS handshake if there is one.
    pub(super) fn new(stream: Stream, settings: &Settings, env: &Environment, deadline: Nanos) -> Self {
        let connection = QmuxConnection::new(false, settings, instant(env.now()));
        let (timer, is_connected) = (Timer::new(), false);
        Self { streams: LinkStreams::new(connection), stream, timer, is_connected, deadline }
    }

    /// The end of the connection without a reason of the server.
    fn lost(&self) -> LinkEnd {
        LinkEnd::Failed(if self.is_connected { Failure::Closed } else { Failure::Handshake })
    }
}

impl Http3Transport for QmuxLink {
    type Connection = QmuxConnection;

    fn streams(&mut self) -> &mut LinkStreams<QmuxConnection> {
        &mut self.streams
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn set_connected(&mut self) {
        self.is_connected = true;
    }

    fn deadline(&self) -> Option<Nanos> {
        (!self.is_connected).then_some(self.deadline)
    }

    fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        is_busy: bool,
    ) -> Result<bool, LinkEnd> {
        let connection = &mut self.streams.connection;
        let received = INPUT.with_borrow_mut(|input| match self.stream.poll_read(context, input) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(count)) if count > 0 => {
                connection.receive(instant(env.tick()), &input[..count]);
                Ok(true)
            }
            Poll::Ready(_) => Err(()),
        });
        if self.timer.poll_expired(context).is_ready() {
            self.streams.connection.handle_timeout(instant(env.tick()), is_busy);
        }
        received.map_err(|()| self.lost())
    }

    fn flush(&mut self, context: &mut Context<'_>, env: &Environment) -> Result<bool, LinkEnd> {
        let mut wrote = false;
        loop {
            let output = self.streams.connection.output();
            if output.is_empty() {
                break;
            }
            match self.stream.poll_write(context, output) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    self.streams.connection.sent(instant(env.now()), count);
                    wrote = true;
                }
                Poll::Ready(_) => return Err(self.lost()),
                Poll::Pending => break,
            }
        }
        let _ = self.stream.poll_flush(context);
        arm(&self.timer, self.streams.connection.timeout(), context);
        Ok(wrote)
    }

    fn end(&self, reason: &LostReason) -> LinkEnd {
        match reason {
            LostReason::Violation(..) => LinkEnd::Failed(Failure::Protocol),
            LostReason::TimedOut => LinkEnd::Failed(Failure::Timeout),
            LostReason::Local => LinkEnd::Orderly,
            LostReason::Application(_) | LostReason::Closed(_) | LostReason::Reset => self.lost(),
        }
    }

    fn close(&mut self, code: u64) {
        let connection = &mut self.streams.connection;
        connection.close(code);
        // If the socket has no room now, the server does not read, and misses only the reason.
        let mut context = Context::from_waker(Waker::noop());
        while let output @ [_, ..] = connection.output()
            && let Poll::Ready(Ok(count @ 1..)) = self.stream.poll_write(&mut context, output)
        {
            connection.sent(instant(crate::clock::now()), count);
        }
        self.stream.close();
    }
}
