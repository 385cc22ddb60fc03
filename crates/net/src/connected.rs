//! Connected UDP sockets, which exchange datagrams with one server, and a set of them that are watched together.
//!
//! The sockets of a set are not in the worker's reactor, which would need several hundred bytes for each of them. Instead, each
//! set has an epoll instance, and that is in the reactor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::{Timespec, epoll};
use rustix::net::SendFlags;
use tokio::io::unix::AsyncFd;

use crate::sys;

/// The maximum number of datagrams that one call sends.
const MOST_SEGMENTS: usize = 64;

/// The maximum number of bytes that one call sends.
const MOST_BYTES: usize = 65_000;

/// Sends datagrams of `segment` bytes each, of which the last may be shorter; without bytes, one empty datagram. Returns how many were
/// sent.
///
/// # Errors
/// The errors of sendmsg(2), if no datagram was sent.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], segment: usize) -> io::Result<usize> {
    if bytes.is_empty() {
        return send_part(socket, bytes, segment).map(|()| 1);
    }
    let segment = segment.max(1);
    let most = (MOST_BYTES / segment).clamp(1, MOST_SEGMENTS) * segment;
    let mut sent = 0;
    for part in bytes.chunks(most) {
        let count = part.len().div_ceil(segment);
        match send_part(socket, part, segment) {
            Ok(()) => sent += count,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

fn send_part(socket: BorrowedFd<'_>, part: &[u8], segment: usize) -> io::Result<()> {
    let one = |bytes: &[u8]| -> io::Result<()> {
        rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    };
    if part.len() <= segment {
        return one(part);
    }
    match u16::try_from(segment).map(|size| sys::send_segments(socket, part, size)) {
        Ok(Ok(_)) => Ok(()),
        // The path has a smaller MTU, or the device cannot segment.
        Ok(Err(error)) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)) => {
            part.chunks(segment).try_for_each(one)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => part.chunks(segment).try_for_each(one),
    }
}

/// Receives a datagram, or several that the kernel has joined. Returns the length of all, and the size of each but the last.
///
/// # Errors
/// `WouldBlock` if no datagram has arrived, or an error of recvmsg(2), such as a refusal of an earlier datagram.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<(usize, usize)> {
    sys::receive_joined(socket, room)
}

/// Lets the kernel join datagrams for [`receive`], which pays off for sockets that receive many.
pub fn join(socket: BorrowedFd<'_>) {
    // An old kernel delivers them one by one.
    let _ = sys::set_int_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
}

/// The number of sockets that one call returns.
const EVENTS: usize = 64;

/// A set of sockets, watched for datagrams and errors.
#[derive(Debug)]
pub struct SocketSet {
    epoll: AsyncFd<OwnedFd>,
}

impl SocketSet {
    /// Creates an empty set in the calling worker's reactor.
    ///
    /// # Errors
    /// The kernel has no room.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll: sys::watch_readable(epoll).map_err(|(_, error)| error)? })
    }

    /// Adds a socket; [`poll_ready`](Self::poll_ready) returns `id` for it. Closing its last descriptor removes it.
    ///
    /// # Errors
    /// The kernel has no room.
    pub fn add(&self, socket: BorrowedFd<'_>, id: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(id);
        epoll::add(self.epoll.get_ref(), socket, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Removes a socket of which another process has a copy.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        // It is in the set.
        let _ = epoll::delete(self.epoll.get_ref(), socket);
    }

    /// Appends the identities of sockets with datagrams or errors to `ids`. Ready only with at least one; sockets that are not read
    /// are returned again.
    pub fn poll_ready(&self, context: &mut Context<'_>, ids: &mut Vec<u64>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.epoll.poll_read_ready(context))?;
            let mut events = Vec::with_capacity(EVENTS);
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(self.epoll.get_ref(), rustix::buffer::spare_capacity(&mut events), Some(&none))?;
            if events.is_empty() {
                guard.clear_ready();
                continue;
            }
            ids.extend(events.iter().map(|event| event.data.u64()));
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsFd for SocketSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.get_ref().as_fd()
    }
}
