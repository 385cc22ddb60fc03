//! A connected stream socket of either family, read and written by polling inside a worker's task.
//!
//! A socket is tried before it is waited for: the reactor learns of it when there is nothing to
//! read for the first time, and is asked for room to write once there was none. Reads that fill
//! less than they were given clear the reactor's readiness, so the next read waits for the kernel
//! instead of asking it in vain: one system call a direction a message.
//!
//! A stream may speak TLS ([`Stream::accept_tls`], [`Stream::connect_tls`]). What a write accepted
//! is then sealed, but perhaps not sent: whoever waits for an answer calls [`Stream::poll_flush`]
//! first, and whoever ends our side [`Stream::poll_shutdown`]. Both are nothing on a plain stream.

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
    /// What encrypts, where something does.
    tls: Option<Box<Session>>,
    /// Whether the end of it is to be no proper one: nothing is said in TLS either.
    breaks_off: Cell<bool>,
}

/// A connection between two workers: out of the reactor of one, and not yet in that of the other.
#[derive(Debug)]
pub struct Detached {
    socket: OwnedFd,
    is_tcp: bool,
    tls: Option<Box<Session>>,
}

impl Stream {
    /// A connected, non-blocking socket, for the calling worker.
    pub fn from_fd(socket: OwnedFd, is_tcp: bool) -> Self {
        Self { place: Place::apart(socket, is_tcp), tls: None, breaks_off: Cell::new(false) }
    }

    /// Whether it speaks TCP: no UNIX or abstract socket, nor one end of a pair.
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

    /// Writes some of `first` and, behind it, of `second`. With `more` the kernel holds the end of
    /// it, less than a segment, for what the caller does next: it writes again, ends our side
    /// ([`shutdown_write`](Self::shutdown_write)), which then leaves in the same segment, or says
    /// that there is nothing after all ([`push`](Self::push)).
    // Every response passes here, and few other places do.
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

    /// Writes some of what `parts` hold, in their order.
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

    /// Ready when a read would not wait (data, end of stream, or an error), as far as the reactor
    /// was told.
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

    /// Ready when a write would not wait.
    #[inline]
    pub fn poll_write_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.place.poll_event(context, Interest::WRITABLE)
    }

    /// Has what happens to the socket from now on known to [`is_quiet`](Self::is_quiet).
    ///
    /// # Errors
    /// The kernel has no room for another socket in the reactor.
    pub fn watch(&mut self) -> io::Result<()> {
        self.place.watched().map(drop)
    }

    /// Runs `call` if the socket is believed ready, or nothing is known of it; clears that belief
    /// when it would block.
    #[inline]
    pub fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.place.told_of(interest) {
            Some(watched) => watched.try_io(interest, |_| call()),
            None => call(),
        }
    }

    /// Whether nothing has happened on an idle connection since its last read: no data, no end, no
    /// error, as far as the reactor was told. No system call.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.place.is_quiet() && self.tls.as_ref().is_none_or(|tls| !tls.has_waiting())
    }

    /// Whether an idle connection is still idle: nothing has happened on it, or nothing but what
    /// TLS has between two messages (session tickets, new keys), which is dealt with.
    #[inline]
    pub fn is_idle(&mut self) -> bool {
        match &mut self.tls {
            None => self.place.is_quiet(),
            Some(tls) => secure::is_idle(&mut self.place, tls),
        }
    }

    /// Ready once an idle connection is no longer idle: there is data, its end, or an error, all of
    /// which the next read tells.
    #[inline]
    pub fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            None => self.poll_read_ready(context),
            Some(tls) => secure::poll_idle(&mut self.place, tls, context),
        }
    }

    /// Ready once all that was written has left for the kernel.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => secure::poll_flush(&mut self.place, tls, context),
        }
    }

    /// Sends what was written and the end of our side, with TLS in its own words first
    /// (close_notify). What the peer sends can still be read.
    #[inline]
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &mut self.tls {
            tls.close();
            std::task::ready!(secure::poll_flush(&mut self.place, tls, context))?;
        }
        self.shutdown_write();
        Poll::Ready(Ok(()))
    }

    /// Begins TLS as a listener; [`poll_handshake`](Self::poll_handshake) does the rest.
    /// Bytes of the client that were received already begin it; `keep` says what is kept of the
    /// handshake beside what the listener keeps. `place` is what was taken for it, if any.
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

    /// Begins TLS as a client; `name` is sent as SNI where there is one. `keep` says what is kept of
    /// the handshake beside what the server line keeps.
    ///
    /// # Errors
    /// The line's settings leave nothing to offer, or there are as many connections as may be.
    pub fn connect_tls(
        &mut self,
        connector: &Connector,
        name: Option<&str>,
        keep: Keep,
    ) -> Result<(), tls::Error> {
        self.connect_tls_early(connector, name, keep, false)
    }

    /// As [`connect_tls`](Self::connect_tls); with `early` what is written then may leave before the
    /// server has said anything ([`Session::is_early`]).
    ///
    /// # Errors
    /// As [`connect_tls`](Self::connect_tls).
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

    /// Ready once the handshake is complete. On a plain stream it is.
    ///
    /// # Errors
    /// The handshake failed, or the connection did. The peer was told where it can be.
    pub fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tls::Error>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => secure::poll_handshake(&mut self.place, tls, context, false),
        }
    }

    /// As [`poll_handshake`](Self::poll_handshake), but ready also where early data go either way
    /// while it is under way ([`Session::is_early`]): reading and writing go on with it.
    ///
    /// # Errors
    /// As [`poll_handshake`](Self::poll_handshake).
    pub fn poll_early_handshake(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tls::Error>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => secure::poll_handshake(&mut self.place, tls, context, true),
        }
    }

    /// Whether data go either way before the handshake of TLS is complete.
    #[inline]
    pub fn is_early(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_early())
    }

    /// The TLS session, where there is one.
    #[inline]
    pub fn tls(&self) -> Option<&Session> {
        self.tls.as_deref()
    }

    /// The descriptor for calls that move the connection's own bytes (splice); `None` where those
    /// are encrypted here.
    #[inline]
    pub fn kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.tls.is_none() { Some(self.as_fd()) } else { None }
    }

    /// Takes the connection out of this worker, to be put into another one.
    pub fn detach(self) -> Detached {
        let Plain { socket, is_tcp, .. } = self.place.into_plain();
        Detached { socket, is_tcp, tls: self.tls }
    }

    /// A connection that another worker has [detached](Self::detach), for the calling worker.
    pub fn attach(detached: Detached) -> Self {
        let Detached { socket, is_tcp, tls } = detached;
        Self { place: Place::apart(socket, is_tcp), tls, breaks_off: Cell::new(false) }
    }

    /// The connection as another stream, for who cannot let go of this one's place: what is left here
    /// is a descriptor that says nothing when it is closed.
    ///
    /// # Errors
    /// There is no room for another descriptor.
    pub fn take(&mut self) -> io::Result<Self> {
        let Plain { socket, is_tcp, .. } = self.place.plain();
        let place = Place::apart(socket.try_clone()?, *is_tcp);
        Ok(Self { place, tls: self.tls.take(), breaks_off: Cell::new(self.breaks_off.get()) })
    }

    /// As [`poll_shutdown`](Self::poll_shutdown), but waits for nothing: what the kernel does not
    /// take at once is lost. For the end of connections whose messages were sent.
    #[inline]
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls
            && !self.breaks_off.get()
        {
            tls.close();
            let mut context = Context::from_waker(std::task::Waker::noop());
            // Nobody is left who would try again.
            let _ = secure::poll_flush(&mut self.place, tls, &mut context);
        }
    }

    /// Sends the end of our side of the socket; what the peer sends can still be read. Says nothing
    /// in TLS: see [`poll_shutdown`](Self::poll_shutdown).
    pub fn shutdown_write(&self) {
        // The peer may have closed already, which is as good.
        let _ = SockRef::from(&self.as_fd()).shutdown(std::net::Shutdown::Write);
    }

    /// Makes closing send a reset instead of what is still queued.
    pub fn reset_on_close(&self) {
        self.breaks_off.set(true);
        let _ = SockRef::from(&self.as_fd()).set_linger(Some(Duration::ZERO));
    }

    /// Lets the connection vanish when it is closed (`silent-drop`): nothing is sent, where the
    /// process may repair sockets; else, or with `rst_ttl`, a reset leaves that travels so many
    /// hops only, one where nothing is said.
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

    /// Throws away what was received and not read, and says how much that was: closing with unread
    /// bytes would make the kernel send a reset where the end of the stream is meant.
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

    /// Sets the type of service of what is sent. What the kernel refuses stays as it was.
    pub fn set_tos(&self, tos: u32) {
        let socket = SockRef::from(self);
        let _ = match self.local() {
            Some(SocketAddr::V6(_)) => socket.set_tclass_v6(tos),
            _ => socket.set_tos_v4(tos),
        };
    }

    /// Sets the firewall mark of what is sent; needs a privilege and does nothing without it.
    pub fn set_mark(&self, mark: u32) {
        let _ = SockRef::from(self).set_mark(mark);
    }

    /// The peer's address; `None` for sockets without one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.is_tcp().then(|| SockRef::from(self).peer_addr().ok()?.as_socket())?
    }

    /// Our own address; `None` for sockets without one.
    pub fn local(&self) -> Option<SocketAddr> {
        self.is_tcp().then(|| SockRef::from(self).local_addr().ok()?.as_socket())?
    }

    /// Sends small writes at once. HAProxy's own default on both sides.
    pub fn set_nodelay(&self) {
        if self.is_tcp() {
            let _ = SockRef::from(self).set_tcp_nodelay(true);
        }
    }

    /// Sends what the kernel holds since a write with more to come.
    pub fn push(&self) {
        // Setting it anew does just that (tcp(7)).
        self.set_nodelay();
    }

    /// Acknowledges what was received at once, or leaves it to the next segment.
    pub fn set_quickack(&self, now: bool) {
        if self.is_tcp() {
            let _ = SockRef::from(self).set_tcp_quickack(now);
        }
    }

    /// Turns TCP keep-alive probes on (`option clitcpka`, `srvtcpka`), with their own numbers where
    /// given.
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

    /// Takes the socket of a plain stream out of this worker's reactor, to be handed to another
    /// kind of stream.
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
    fn bytes_with_more_to_come_wait_for_it_and_others_do_not() {
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
