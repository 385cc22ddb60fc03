//! The datagrams and timers of a QUIC connection. Used by `http3` and `hq`.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use net::udp::{Batch, UdpSocket};
use quic::{ClientSettings, Ecn, LostReason, QuicConnection, ServerHandshake, Transmit};
use runtime::timer::{NEVER, Timer};
use tls::Keep;

use super::LinkEnd;
use super::http3::Http3Transport;
use super::streams::LinkStreams;
use crate::clock::{MS, Nanos, instant, nanos};
use crate::environment::Environment;
use crate::tally::Failure;
use crate::target::LoadTarget;

/// The maximum number of datagrams passed to the kernel at once.
const SEGMENTS_MAX: usize = 64;

/// The size of the socket's buffers, in bytes. The kernel grants less if it is not configured for this.
const BUFFER: usize = 2 << 20;

/// The first code of errors that are TLS alerts (RFC 9000, 20.1).
const CRYPTO_ERROR: std::ops::Range<u64> = 0x100..0x200;

thread_local! {
    /// Received datagrams, which are processed at once.
    static BATCH: RefCell<Batch> = RefCell::default();
    /// Datagrams being assembled.
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection without its application protocol.
pub(super) struct QuicLink {
    pub(super) streams: LinkStreams<QuicConnection>,
    socket: UdpSocket,
    timer: Timer,
    /// Datagrams that the socket had no room for.
    unsent: Option<Box<(Transmit, Vec<u8>)>>,
    pub(super) is_connected: bool,
    /// When the handshake must be complete.
    deadline: Nanos,
}

impl QuicLink {
    /// Creates a connection. Nothing is sent yet.
    pub(super) fn connect(
        target: &LoadTarget,
        settings: &ClientSettings,
        env: &Environment,
    ) -> Result<Self, Failure> {
        let mut dial = target.dial.dial(target.address);
        (dial.receive_buffer, dial.send_buffer) = (BUFFER, BUFFER);
        let socket = dial.connect_datagrams(target.address).and_then(UdpSocket::connected);
        let socket = socket.map_err(|_| Failure::Connect)?;
        let tls = target.tls.as_ref().ok_or(Failure::Handshake)?;
        let handshake = ServerHandshake {
            connector: tls.connector.clone(),
            name: tls.name.clone(),
            keep: Keep::default(),
            early: false,
        };
        let connection = QuicConnection::connect(settings, instant(env.now()), target.address, handshake)
            .map_err(|_| Failure::Handshake)?;
        Ok(Self {
            streams: LinkStreams::new(connection),
            socket,
            timer: Timer::new(),
            unsent: None,
            is_connected: false,
            deadline: env.now().saturating_add(nanos(target.connect_timeout)),
        })
    }

    fn receive_datagrams(&mut self, context: &mut Context<'_>, env: &Environment) -> io::Result<bool> {
        BATCH.with_borrow_mut(|batch| {
            match self.socket.poll_recv(context, batch) {
                Poll::Pending => {
                    return match self.socket.poll_error(context) {
                        Poll::Ready(error) => Err(error),
                        Poll::Pending => Ok(false),
                    };
                }
                Poll::Ready(received) => received?,
            }
            let now = instant(env.tick());
            for received in batch.received() {
                let (source, destination) = (received.source, received.destination);
                let ecn = Ecn::from_bits(received.ecn);
                for datagram in received.datagrams() {
                    self.streams.connection.receive(now, source, destination, ecn, datagram);
                }
            }
            Ok(true)
        })
    }

    fn transmit(&mut self, context: &mut Context<'_>, env: &Environment) -> io::Result<()> {
        let is_fatal = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if let Some(unsent) = &self.unsent {
            match self.socket.poll_send(context, &of_engine(&unsent.0, &unsent.1)) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) if is_fatal(&error) => return Err(error),
                Poll::Ready(_) => self.unsent = None,
            }
        }
        let most = self.socket.most_segments().min(SEGMENTS_MAX);
        let now = instant(env.now());
        OUTPUT.with_borrow_mut(|output| {
            loop {
                output.clear();
                let Some(transmit) = self.streams.connection.transmit(now, most, output) else {
                    return Ok(());
                };
                match self.socket.poll_send(context, &of_engine(&transmit, output)) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) if is_fatal(&error) => return Err(error),
                    // Lost datagrams are repeated.
                    Poll::Ready(Err(_)) => {}
                    Poll::Pending => {
                        self.unsent = Some(Box::new((transmit, output.clone())));
                        return Ok(());
                    }
                }
            }
        })
    }
}

/// Sets the timer of a connection; wakes the task if the time has passed.
pub(super) fn arm(timer: &Timer, at: Option<Instant>, context: &mut Context<'_>) {
    let since_epoch = |at: Instant| nanos(at.saturating_duration_since(runtime::timer::epoch()));
    timer.set(at.map_or(NEVER, |at| since_epoch(at).div_ceil(MS)));
    if timer.poll_expired(context).is_ready() {
        context.waker().wake_by_ref();
    }
}

/// Converts the engine's datagrams to the socket's.
fn of_engine<'a>(transmit: &Transmit, bytes: &'a [u8]) -> net::udp::Transmit<'a> {
    net::udp::Transmit {
        destination: transmit.destination,
        source: transmit.source,
        ecn: transmit.ecn.map_or(0, Ecn::bits),
        segment_size: transmit.segment,
        bytes: &bytes[..transmit.length],
    }
}

impl Http3Transport for QuicLink {
    type Connection = QuicConnection;

    fn streams(&mut self) -> &mut LinkStreams<QuicConnection> {
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

    fn receive(&mut self, context: &mut Context<'_>, env: &Environment, _: bool) -> Result<bool, LinkEnd> {
        let received = self.receive_datagrams(context, env).map_err(|_| {
            LinkEnd::Failed(if self.is_connected { Failure::Closed } else { Failure::Connect })
        })?;
        if self.timer.poll_expired(context).is_ready() {
            self.streams.connection.handle_timeout(instant(env.tick()));
        }
        Ok(received)
    }

    fn flush(&mut self, context: &mut Context<'_>, env: &Environment) -> Result<bool, LinkEnd> {
        self.transmit(context, env).map_err(|_| {
            LinkEnd::Failed(if self.is_connected { Failure::Closed } else { Failure::Connect })
        })?;
        // The socket belongs to one connection, so its IDs need not be known to an endpoint.
        while self.streams.connection.endpoint_input().is_some() {}
        arm(&self.timer, self.streams.connection.timeout(), context);
        // Data makes room when the server acknowledges it.
        Ok(false)
    }

    fn end(&self, reason: &LostReason) -> LinkEnd {
        let failure = match reason {
            LostReason::Closed(code) if CRYPTO_ERROR.contains(code) => Failure::Handshake,
            LostReason::TimedOut => Failure::Timeout,
            LostReason::Local => return LinkEnd::Orderly,
            LostReason::Violation(..) => Failure::Protocol,
            _ if self.is_connected => Failure::Closed,
            _ => Failure::Connect,
        };
        LinkEnd::Failed(if self.streams.connection.details().failure.is_some() {
            Failure::Handshake
        } else {
            failure
        })
    }

    fn close(&mut self, code: u64) {
        let now = instant(crate::clock::now());
        self.streams.connection.close(now, code, b"");
        OUTPUT.with_borrow_mut(|output| {
            output.clear();
            if let Some(transmit) = self.streams.connection.transmit(now, 1, output) {
                let _ = self.socket.try_send(&of_engine(&transmit, output));
            }
        });
    }
}
