//! A connected stream socket of either family, read and written by polling inside a worker's task.
//!
//! Reads that fill less than they were given clear tokio's readiness, so the next read waits for the kernel
//! instead of asking it in vain: one system call a direction a message.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop;

/// Calls that move so much use up the task's turn: a peer that always has more must not keep the worker for itself.
/// Smaller ones are messages, behind each of which the peer waits.
const LARGE: usize = 4096;

/// A connected socket of the calling worker.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A UNIX or abstract socket, or one end of a pair.
    Unix(UnixStream),
}

impl Stream {
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
        self.poll_move(context, Interest::WRITABLE, bytes.len(), |socket| {
            send(socket, bytes, SendFlags::NOSIGNAL)
        })
    }

    /// Writes some of `parts`, one after the other.
    #[inline]
    pub fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        self.poll_move(context, Interest::WRITABLE, wanted, |socket| {
            sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        })
    }

    /// Moves up to `wanted` bytes by `call` as soon as the socket is ready. Tries before it registers: a ready socket,
    /// the usual case, costs a look at one word.
    #[inline]
    fn poll_move(
        &self,
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
            ready!(match interest {
                Interest::READABLE => self.register_read(context),
                _ => self.poll_write_ready(context),
            })?;
        }
    }

    /// Moves up to `wanted` bytes by `call` if the socket is believed ready. Fewer end that belief: the kernel had no
    /// more, and need not be asked to say so.
    #[inline]
    fn try_move(
        &self,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut() -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let mut moved = None;
        let outcome = self.try_io(interest, || {
            let n = retry_on_intr(&mut call)?;
            moved = Some(n);
            if 0 < n && n < wanted { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match moved {
            Some(n) => Ok(n),
            None => outcome.map(|()| 0),
        }
    }

    /// Ready when a read would not wait (data, end of stream, or an error).
    #[inline]
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_quiet() { self.register_read(context) } else { Poll::Ready(Ok(())) }
    }

    fn register_read(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    /// Ready when a write would not wait.
    #[inline]
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(context),
            Self::Unix(stream) => stream.poll_write_ready(context),
        }
    }

    /// Runs `call` if the socket is believed ready; clears that belief when it would block.
    #[inline]
    pub fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, call),
            Self::Unix(stream) => stream.try_io(interest, call),
        }
    }

    /// Whether nothing has happened on an idle connection since its last read: no data, no end, no error, as
    /// far as the kernel has told. No system call.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.try_io(Interest::READABLE, || Ok(())).is_err()
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
        let Self::Tcp(stream) = self else { return };
        let repaired =
            || crate::sys::set_int_option(stream.as_fd(), libc::IPPROTO_TCP, libc::TCP_REPAIR, 1).is_ok();
        if rst_ttl.is_none() && repaired() {
            return;
        }
        let (socket, hops) = (SockRef::from(stream), u32::from(rst_ttl.unwrap_or(1)));
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
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Our own address; `None` for sockets without one.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Sends small writes at once. HAProxy's own default on both sides.
    pub fn set_nodelay(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.set_nodelay(true);
        }
    }

    /// Acknowledges what was received at once, or leaves it to the next segment.
    pub fn set_quickack(&self, now: bool) {
        if let Self::Tcp(stream) = self {
            let _ = SockRef::from(stream).set_tcp_quickack(now);
        }
    }

    /// Turns TCP keep-alive probes on (`option clitcpka`, `srvtcpka`), with their own numbers where given.
    pub fn set_keepalive(&self, count: Option<u32>, idle: Option<Duration>, interval: Option<Duration>) {
        if let Self::Tcp(stream) = self {
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
            let socket = SockRef::from(stream);
            let _ = socket.set_keepalive(true);
            let _ = socket.set_tcp_keepalive(&keepalive);
        }
    }

    /// Takes the socket out of this worker's reactor, to be handed to another worker.
    pub fn into_std(self) -> io::Result<OwnedFd> {
        Ok(match self {
            Self::Tcp(stream) => stream.into_std()?.into(),
            Self::Unix(stream) => stream.into_std()?.into(),
        })
    }

    /// Puts a connected, non-blocking socket into the calling worker's reactor.
    pub fn from_fd(socket: OwnedFd, is_tcp: bool) -> io::Result<Self> {
        Ok(if is_tcp {
            Self::Tcp(TcpStream::from_std(socket.into())?)
        } else {
            Self::Unix(UnixStream::from_std(socket.into())?)
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
