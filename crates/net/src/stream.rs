//! A connected stream socket of either family, read and written by polling inside a worker's task.
//!
//! A socket is tried before it is waited for: the reactor learns of it when there is nothing to read for the first time, and is
//! asked for room to write once there was none. Reads that fill less than they were given clear the reactor's readiness, so the next read waits for
//! the kernel instead of asking it in vain: one system call a direction a message.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop;

use crate::sys::{self, Plain};

/// Calls that move so much use up the task's turn: a peer that always has more must not keep the worker for itself.
/// Smaller ones are messages, behind each of which the peer waits.
const LARGE: usize = 4096;

/// A connected socket of the calling worker.
#[derive(Debug)]
pub struct Stream(Place);

/// Where a socket is.
#[derive(Debug)]
enum Place {
    /// Nobody had to wait for it yet. `None` only while it moves into the reactor.
    Apart(Option<Plain>),
    /// In the reactor of the worker.
    Watched(AsyncFd<Plain>),
}

impl Stream {
    /// A connected, non-blocking socket, for the calling worker.
    pub fn from_fd(socket: OwnedFd, is_tcp: bool) -> Self {
        Self(Place::Apart(Some(Plain { socket, is_tcp, blocks: false })))
    }

    /// Whether it speaks TCP: no UNIX or abstract socket, nor one end of a pair.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.plain().is_tcp
    }

    #[inline]
    fn plain(&self) -> &Plain {
        match &self.0 {
            Place::Watched(watched) => watched.get_ref(),
            Place::Apart(Some(plain)) => plain,
            Place::Apart(None) => unreachable!("whoever takes it puts it back"),
        }
    }

    /// The socket in the reactor, where it is put now if it was not.
    fn watched(&mut self) -> io::Result<&AsyncFd<Plain>> {
        if let Place::Apart(apart) = &mut self.0
            && let Some(plain) = apart.take()
        {
            match sys::watch(plain) {
                Ok(watched) => self.0 = Place::Watched(watched),
                Err((plain, error)) => {
                    self.0 = Place::Apart(Some(plain));
                    return Err(error);
                }
            }
        }
        match &self.0 {
            Place::Watched(watched) => Ok(watched),
            Place::Apart(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Reads into `room`; 0 at the end of the stream. `room` must not be empty.
    #[inline]
    pub fn poll_read(&mut self, context: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        debug_assert!(!room.is_empty());
        let wanted = room.len();
        self.poll_move(context, Interest::READABLE, wanted, |socket| {
            Ok(recv(socket, &mut *room, RecvFlags::empty())?.0)
        })
    }

    /// Writes some of `bytes`.
    #[inline]
    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, bytes, SendFlags::NOSIGNAL)
    }

    /// Writes some of `first` and, behind it, of `second`. With `more` the kernel holds the end of it, less than a segment, for
    /// what the caller does next: it writes again, ends our side ([`shutdown_write`](Self::shutdown_write)), which then leaves in
    /// the same segment, or says that there is nothing after all ([`push`](Self::push)).
    #[inline]
    pub fn poll_write_both(
        &mut self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        if first.is_empty() || second.is_empty() {
            return self.poll_send(context, if first.is_empty() { second } else { first }, flags);
        }
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        self.poll_move(context, Interest::WRITABLE, first.len() + second.len(), |socket| {
            sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags)
        })
    }

    #[inline]
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        flags: SendFlags,
    ) -> Poll<io::Result<usize>> {
        self.poll_move(context, Interest::WRITABLE, bytes.len(), |socket| send(socket, bytes, flags))
    }

    /// Moves up to `wanted` bytes by `call` as soon as the socket is ready. Tries before it registers: a ready socket,
    /// the usual case, costs a look at one word.
    #[inline]
    fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // A task that has used up its turn is told to wait by the registration below.
            if coop::has_budget_remaining() {
                match self.try_move(interest, wanted, || call(self.as_fd())) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    moved => {
                        if moved.as_ref().is_ok_and(|n| *n >= LARGE)
                            && let Poll::Ready(turn) = coop::poll_proceed(context)
                        {
                            turn.made_progress();
                        }
                        return Poll::Ready(moved);
                    }
                }
            }
            ready!(self.poll_event(context, interest))?;
        }
    }

    /// Moves up to `wanted` bytes by `call` if the socket is believed ready, or nothing is known of it. Fewer end that belief: the kernel had no
    /// more, and need not be asked to say so.
    #[inline]
    fn try_move(
        &self,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut() -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let Some(watched) = self.told_of(interest) else { return Ok(retry_on_intr(&mut call)?) };
        let mut moved = None;
        let outcome = watched.try_io(interest, |_| {
            let n = retry_on_intr(&mut call)?;
            moved = Some(n);
            if 0 < n && n < wanted { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match moved {
            Some(n) => Ok(n),
            None => outcome.map(|()| 0),
        }
    }

    /// Ready when a read would not wait (data, end of stream, or an error), as far as the reactor was told.
    #[inline]
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_quiet() { self.poll_event(context, Interest::READABLE) } else { Poll::Ready(Ok(())) }
    }

    /// Ready when a write would not wait.
    #[inline]
    pub fn poll_write_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_event(context, Interest::WRITABLE)
    }

    /// The socket in the reactor, if that tells of `interest`.
    #[inline]
    fn told_of(&self, interest: Interest) -> Option<&AsyncFd<Plain>> {
        match &self.0 {
            Place::Watched(watched) if interest != Interest::WRITABLE || watched.get_ref().blocks => {
                Some(watched)
            }
            _ => None,
        }
    }

    /// Has the reactor tell of room to write too: most sockets never need it, and each that has room would be an event.
    fn ask_for_room(&mut self, context: &mut Context<'_>) {
        if self.plain().blocks {
            return;
        }
        let (mut plain, waited) = match std::mem::replace(&mut self.0, Place::Apart(None)) {
            Place::Watched(watched) => (watched.into_inner(), true),
            Place::Apart(Some(plain)) => (plain, false),
            Place::Apart(None) => return,
        };
        plain.blocks = true;
        self.0 = Place::Apart(Some(plain));
        if waited {
            // Perhaps for something to read, in the place that the socket has left: the task is to ask again.
            context.waker().wake_by_ref();
        }
    }

    /// Waits for what the reactor says of the socket, to which it is made known if it was not.
    fn poll_event(&mut self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>> {
        if interest == Interest::WRITABLE {
            self.ask_for_room(context);
        }
        let watched = self.watched()?;
        match interest {
            Interest::READABLE => watched.poll_read_ready(context).map_ok(drop),
            _ => watched.poll_write_ready(context).map_ok(drop),
        }
    }

    /// Has what happens to the socket from now on known to [`is_quiet`](Self::is_quiet).
    ///
    /// # Errors
    /// The kernel has no room for another socket in the reactor.
    pub fn watch(&mut self) -> io::Result<()> {
        self.watched().map(drop)
    }

    /// Runs `call` if the socket is believed ready, or nothing is known of it; clears that belief when it would block.
    #[inline]
    pub fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.told_of(interest) {
            Some(watched) => watched.try_io(interest, |_| call()),
            None => call(),
        }
    }

    /// Whether nothing has happened on an idle connection since its last read: no data, no end, no error, as
    /// far as the reactor was told. No system call.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        match &self.0 {
            Place::Watched(watched) => watched.try_io(Interest::READABLE, |_| Ok(())).is_err(),
            Place::Apart(_) => true,
        }
    }

    /// Sends the end of our side; what the peer sends can still be read.
    pub fn shutdown_write(&self) {
        // The peer may have closed already, which is as good.
        let _ = SockRef::from(&self.as_fd()).shutdown(std::net::Shutdown::Write);
    }

    /// Makes closing send a reset instead of what is still queued.
    pub fn reset_on_close(&self) {
        let _ = SockRef::from(&self.as_fd()).set_linger(Some(Duration::ZERO));
    }

    /// Lets the connection vanish when it is closed (`silent-drop`): nothing is sent, where the process may repair sockets;
    /// else, or with `rst_ttl`, a reset leaves that travels so many hops only, one where nothing is said.
    pub fn vanish(&self, rst_ttl: Option<u8>) {
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

    /// Throws away what was received and not read, and says how much that was: closing with unread bytes would make the
    /// kernel send a reset where the end of the stream is meant.
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

    /// Turns TCP keep-alive probes on (`option clitcpka`, `srvtcpka`), with their own numbers where given.
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

    /// Takes the socket out of this worker's reactor, to be handed to another worker or to another kind of stream.
    pub fn into_fd(self) -> OwnedFd {
        match self.0 {
            Place::Watched(watched) => watched.into_inner().socket,
            Place::Apart(Some(plain)) => plain.socket,
            Place::Apart(None) => unreachable!("whoever takes it puts it back"),
        }
    }
}

impl AsFd for Stream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.plain().socket.as_fd()
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
