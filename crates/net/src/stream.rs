//! A connected stream socket of either family, read and written by polling inside a worker's task.
//!
//! A read or write is tried first. The socket is registered with the reactor when a read finds no data for the first time, and for
//! writing when a write would block for the first time. A read that does not fill its buffer clears the reactor's readiness, so the
//! next read waits for the kernel instead of making a futile call. Each message thus costs one system call in each direction.
//!
//! A stream may use TLS ([`Stream::accept_tls`], [`Stream::connect_tls`]). Accepted writes are then encrypted but possibly not
//! sent: callers must use [`Stream::poll_flush`] before waiting for a response, and [`Stream::poll_shutdown`] to close the write
//! side. Both functions do nothing special on a plain stream.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::SockRef;
use tls::{Acceptor, Connector, Keep, Session};
use tokio::io::Interest;

use crate::place::Place;
use crate::sys::Plain;
use crate::{secure, sys};

/// A connected socket of the calling worker.
#[derive(Debug)]
pub struct Stream {
    place: Place,
    /// The TLS session, if any.
    tls: Option<Box<Session>>,
    /// Whether to close the connection without a TLS close alert.
    breaks_off: Cell<bool>,
}

/// A connection that moves between two workers: removed from the reactor of the first and not yet registered with that of the
/// second.
#[derive(Debug)]
pub struct Detached {
    socket: OwnedFd,
    is_tcp: bool,
    tls: Option<Box<Session>>,
}

impl Stream {
    /// Wraps a connected, non-blocking socket for the calling worker.
    pub fn from_fd(socket: OwnedFd, is_tcp: bool) -> Self {
        Self { place: Place::apart(socket, is_tcp), tls: None, breaks_off: Cell::new(false) }
    }

    /// Whether the socket is a TCP socket, not a UNIX or abstract socket or one end of a socket pair.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.place.plain().is_tcp
    }

    /// Reads into `room`; 0 at the end of the stream. `room` must not be empty.
    #[inline]
    pub fn poll_read(&mut self, context: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        debug_assert!(!room.is_empty());
        if let Some(tls) = &mut self.tls {
            return secure::poll_read(&mut self.place, tls, context, room);
        }
        let wanted = room.len();
        self.place.poll_move(context, Interest::READABLE, wanted, |socket| {
            Ok(recv(socket, &mut *room, RecvFlags::empty())?.0)
        })
    }

    /// Writes some of `bytes`.
    #[inline]
    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(tls) = &mut self.tls {
            return secure::poll_write(&mut self.place, tls, context, [bytes, &[]], SendFlags::NOSIGNAL);
        }
        self.poll_send(context, bytes, SendFlags::NOSIGNAL)
    }

    /// Writes some of `first`, followed by some of `second`. If `more` is set, the kernel holds the last partial segment until
    /// the caller's next call: another write, [`shutdown_write`](Self::shutdown_write), which sends the FIN in the same segment,
    /// or [`push`](Self::push) if nothing follows.
    // Inlined because every response passes here, and there are few other callers.
    #[inline(always)]
    pub fn poll_write_both(
        &mut self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        if let Some(tls) = &mut self.tls {
            return secure::poll_write(&mut self.place, tls, context, [first, second], flags);
        }
        if first.is_empty() || second.is_empty() {
            return self.poll_send(context, if first.is_empty() { second } else { first }, flags);
        }
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        self.place.poll_move(context, Interest::WRITABLE, first.len() + second.len(), |socket| {
            sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags)
        })
    }

    /// Writes some of the bytes in `parts`, in order.
    pub fn poll_write_parts(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (first, second) = match parts {
            [] => return Poll::Ready(Ok(0)),
            [first] => return self.poll_write(context, first),
            [first, second, ..] => (first, second),
        };
        if self.tls.is_some() || parts.len() == 2 {
            return self.poll_write_both(context, first, second, false);
        }
        let length = parts.iter().map(|part| part.len()).sum();
        self.place.poll_move(context, Interest::WRITABLE, length, |socket| {
            sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        })
    }

    #[inline]
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        flags: SendFlags,
    ) -> Poll<io::Result<usize>> {
        self.place.poll_move(context, Interest::WRITABLE, bytes.len(), |socket| send(socket, bytes, flags))
    }

    /// Ready if a read would not block (data, end of stream, or an error), according to the reactor.
    #[inline]
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &mut self.tls {
            return secure::poll_read_ready(&mut self.place, tls, context);
        }
        if self.place.is_quiet() {
            self.place.poll_event(context, Interest::READABLE)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// Ready if a write would not block.
    #[inline]
    pub fn poll_write_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.place.poll_event(context, Interest::WRITABLE)
    }

    /// Registers the socket, so that [`is_quiet`](Self::is_quiet) sees later events.
    ///
    /// # Errors
    /// The kernel cannot register another socket.
    pub fn watch(&mut self) -> io::Result<()> {
        self.place.watched().map(drop)
    }

    /// Runs `call` if the socket is thought to be ready, or its state is unknown. If `call` would block, the socket is no longer
    /// considered ready.
    #[inline]
    pub fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.place.registered_for(interest) {
            Some(watched) => watched.try_io(interest, |_| call()),
            None => call(),
        }
    }

    /// Whether an idle connection has had no event since its last read: no data, end or error, according to the reactor. Makes no
    /// system call.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.place.is_quiet() && self.tls.as_ref().is_none_or(|tls| !tls.has_waiting())
    }

    /// Whether an idle connection is still idle: it had no event, or only received TLS messages without data (session tickets, key
    /// updates), which are processed.
    #[inline]
    pub fn is_idle(&mut self) -> bool {
        match &mut self.tls {
            None => self.place.is_quiet(),
            Some(tls) => secure::is_idle(&mut self.place, tls),
        }
    }

    /// Ready once an idle connection is no longer idle: the next read returns data, the end, or an error.
    #[inline]
    pub fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            None => self.poll_read_ready(context),
            Some(tls) => secure::poll_idle(&mut self.place, tls, context),
        }
    }

    /// Ready once all written data was passed to the kernel.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => secure::poll_flush(&mut self.place, tls, context),
        }
    }

    /// Sends pending data and closes the write side, with TLS after a close_notify alert. Data from the peer can still be read.
    #[inline]
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &mut self.tls {
            tls.close();
            std::task::ready!(secure::poll_flush(&mut self.place, tls, context))?;
        }
        self.shutdown_write();
        Poll::Ready(Ok(()))
    }

    /// Starts TLS as a server; [`poll_handshake`](Self::poll_handshake) completes the handshake. Bytes that were already received
    /// from the client are processed. `keep` lists data to keep from the handshake in addition to the listener's settings. `place`
    /// is a reserved TLS slot, if any.
    pub fn accept_tls(
        &mut self,
        acceptor: &Arc<Acceptor>,
        received: &[u8],
        keep: Keep,
        place: Option<tls::ConnectionPermit>,
    ) {
        let mut session = Session::accept_begun(acceptor, received, place);
        session.keep(keep);
        self.tls = Some(Box::new(session));
    }

    /// Starts TLS as a client. `name` is sent as SNI if given. `keep` lists data to keep from the handshake in addition to the
    /// server line's settings.
    ///
    /// # Errors
    /// The line's settings leave nothing to offer, or the connection limit is reached.
    pub fn connect_tls(
        &mut self,
        connector: &Connector,
        name: Option<&str>,
        keep: Keep,
    ) -> Result<(), tls::Error> {
        self.connect_tls_early(connector, name, keep, false)
    }

    /// Like [`connect_tls`](Self::connect_tls). With `early`, data may be sent before the server has responded
    /// ([`Session::is_early`]).
    ///
    /// # Errors
    /// The errors of [`connect_tls`](Self::connect_tls).
    pub fn connect_tls_early(
        &mut self,
        connector: &Connector,
        name: Option<&str>,
        keep: Keep,
        early: bool,
    ) -> Result<(), tls::Error> {
        let mut session = Session::connect_early(connector, name, early)?;
        session.keep(keep);
        self.tls = Some(Box::new(session));
        Ok(())
    }

    /// Ready once the handshake is complete; immediately on a plain stream.
    ///
    /// # Errors
    /// The handshake or the connection failed. The peer was notified if possible.
    pub fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tls::Error>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => secure::poll_handshake(&mut self.place, tls, context, false),
        }
    }

    /// Like [`poll_handshake`](Self::poll_handshake), but also ready once early data can be sent or received during the handshake
    /// ([`Session::is_early`]). Reads and writes then continue the handshake.
    ///
    /// # Errors
    /// The errors of [`poll_handshake`](Self::poll_handshake).
    pub fn poll_early_handshake(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tls::Error>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => secure::poll_handshake(&mut self.place, tls, context, true),
        }
    }

    /// Whether data can be transferred before the TLS handshake is complete.
    #[inline]
    pub fn is_early(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_early())
    }

    /// The TLS session, if there is one.
    #[inline]
    pub fn tls(&self) -> Option<&Session> {
        self.tls.as_deref()
    }

    /// Frees memory that an idle TLS connection does not need, until the next record.
    pub fn rest(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.rest();
        }
    }

    /// The descriptor for calls that move the raw bytes of the connection (splice). `None` if this process encrypts them.
    #[inline]
    pub fn kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.tls.is_none() { Some(self.as_fd()) } else { None }
    }

    /// Removes the connection from this worker, so that it can move to another one.
    pub fn detach(self) -> Detached {
        let Plain { socket, is_tcp, .. } = self.place.into_plain();
        Detached { socket, is_tcp, tls: self.tls }
    }

    /// Takes over a connection that another worker has [detached](Self::detach).
    pub fn attach(detached: Detached) -> Self {
        let Detached { socket, is_tcp, tls } = detached;
        Self { place: Place::apart(socket, is_tcp), tls, breaks_off: Cell::new(false) }
    }

    /// Moves the connection to a new stream while `self` stays in place with a dummy descriptor.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn take(&mut self) -> io::Result<Self> {
        let Plain { socket, is_tcp, .. } = self.place.plain();
        let place = Place::apart(socket.try_clone()?, *is_tcp);
        Ok(Self { place, tls: self.tls.take(), breaks_off: Cell::new(self.breaks_off.get()) })
    }

    /// Like [`poll_shutdown`](Self::poll_shutdown), but without waiting: data that the kernel does not accept immediately is lost.
    /// Used to end a connection after its messages were sent.
    #[inline]
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls
            && !self.breaks_off.get()
        {
            tls.close();
            let mut context = Context::from_waker(std::task::Waker::noop());
            // No further attempt is made.
            let _ = secure::poll_flush(&mut self.place, tls, &mut context);
        }
    }

    /// Shuts down the write side of the socket; data from the peer can still be read. Sends no TLS alert: see
    /// [`poll_shutdown`](Self::poll_shutdown).
    pub fn shutdown_write(&self) {
        // An error is fine: the peer may have closed already.
        let _ = SockRef::from(&self.as_fd()).shutdown(std::net::Shutdown::Write);
    }

    /// Makes closing the socket send a reset instead of the data that is still queued.
    pub fn reset_on_close(&self) {
        self.breaks_off.set(true);
        let _ = SockRef::from(&self.as_fd()).set_linger(Some(Duration::ZERO));
    }

    /// Closes the connection silently when dropped (`silent-drop`). If the process may use TCP repair, nothing is sent.
    /// Otherwise, or if `rst_ttl` is given, a reset is sent that travels only that many hops (one by default).
    pub fn vanish(&self, rst_ttl: Option<u8>) {
        self.breaks_off.set(true);
        if !self.is_tcp() {
            return;
        }
        let repaired = || sys::set_int_option(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_REPAIR, 1).is_ok();
        if rst_ttl.is_none() && repaired() {
            return;
        }
        let (socket, hops) = (SockRef::from(self), u32::from(rst_ttl.unwrap_or(1)));
        let _ = match self.local() {
            Some(SocketAddr::V6(_)) => socket.set_unicast_hops_v6(hops),
            _ => socket.set_ttl_v4(hops),
        };
        self.reset_on_close();
    }

    /// Discards data that was received but not read, and returns its length. If a socket is closed with unread data, the kernel
    /// sends a reset instead of the end of the stream.
    pub fn discard_received(&self) -> usize {
        const MOST: usize = 1 << 20;
        let mut room = [0; 16384];
        let mut discarded = 0;
        while discarded < MOST {
            match recv(self.as_fd(), &mut room, RecvFlags::DONTWAIT) {
                Ok((n, _)) if n > 0 => discarded += n,
                _ => break,
            }
        }
        discarded
    }

    /// Sets the type of service of sent packets. Values refused by the kernel are ignored.
    pub fn set_tos(&self, tos: u32) {
        let socket = SockRef::from(self);
        let _ = match self.local() {
            Some(SocketAddr::V6(_)) => socket.set_tclass_v6(tos),
            _ => socket.set_tos_v4(tos),
        };
    }

    /// Sets the firewall mark of sent packets. This needs a privilege and has no effect without it.
    pub fn set_mark(&self, mark: u32) {
        let _ = SockRef::from(self).set_mark(mark);
    }

    /// The peer's address, or `None` for sockets without one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.is_tcp().then(|| SockRef::from(self).peer_addr().ok()?.as_socket())?
    }

    /// The local address, or `None` for sockets without one.
    pub fn local(&self) -> Option<SocketAddr> {
        self.is_tcp().then(|| SockRef::from(self).local_addr().ok()?.as_socket())?
    }

    /// Disables Nagle's algorithm, as HAProxy does by default on both sides.
    pub fn set_nodelay(&self) {
        if self.is_tcp() {
            let _ = SockRef::from(self).set_tcp_nodelay(true);
        }
    }

    /// Sends the data that the kernel has held since a write with `more`.
    pub fn push(&self) {
        // Setting the option again has this effect (tcp(7)).
        self.set_nodelay();
    }

    /// Acknowledges received data immediately, or delays the acknowledgement until the next segment.
    pub fn set_quickack(&self, now: bool) {
        if self.is_tcp() {
            let _ = SockRef::from(self).set_tcp_quickack(now);
        }
    }

    /// Enables TCP keep-alive probes (`option clitcpka`, `srvtcpka`), with explicit parameters if given.
    pub fn set_keepalive(&self, count: Option<u32>, idle: Option<Duration>, interval: Option<Duration>) {
        if self.is_tcp() {
            let mut keepalive = socket2::TcpKeepalive::new();
            if let Some(count) = count {
                keepalive = keepalive.with_retries(count);
            }
            if let Some(idle) = idle {
                keepalive = keepalive.with_time(idle);
            }
            if let Some(interval) = interval {
                keepalive = keepalive.with_interval(interval);
            }
            let socket = SockRef::from(self);
            let _ = socket.set_keepalive(true);
            let _ = socket.set_tcp_keepalive(&keepalive);
        }
    }

    /// Removes the socket of a plain stream from this worker's reactor, for use in another kind of stream.
    pub fn into_fd(self) -> OwnedFd {
        debug_assert!(self.tls.is_none(), "its session would be lost");
        self.place.into_plain().socket
    }
}

impl AsFd for Stream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.plain().socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::task::Waker;

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nonblocking(true).unwrap();
        let (own, _) = listener.accept().unwrap();
        own.set_nonblocking(true).unwrap();
        (Stream::from_fd(own.into(), true), peer)
    }

    fn write(stream: &mut Stream, first: &[u8], second: &[u8], more: bool) {
        let written = stream.poll_write_both(&mut Context::from_waker(Waker::noop()), first, second, more);
        assert!(matches!(written, Poll::Ready(Ok(n)) if n == first.len() + second.len()), "{written:?}");
    }

    #[test]
    fn writes_with_more_to_come_are_held_back() {
        for (first, second) in [(&b"ab"[..], &b""[..]), (b"", b"ab"), (b"a", b"b")] {
            let (mut own, mut peer) = pair();
            let mut room = [0; 8];
            write(&mut own, first, second, false);
            assert_eq!(peer.read(&mut room).unwrap(), 2);
            write(&mut own, first, second, true);
            assert_eq!(peer.read(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
            own.push();
            assert_eq!((peer.read(&mut room).unwrap(), &room[..2]), (2, &b"ab"[..]));
            write(&mut own, first, second, true);
            own.shutdown_write();
            assert_eq!((peer.read(&mut room).unwrap(), &room[..2]), (2, &b"ab"[..]));
            assert_eq!(peer.read(&mut room).unwrap(), 0);
        }
    }
}
