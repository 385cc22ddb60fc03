//! The state of a stream's socket: unregistered, or in the reactor of its worker.
//!
//! A read or write is tried first. The socket is registered with the reactor when a read finds no data for the first time, and for
//! writing when a write would block for the first time. Used by [`crate::stream`] and [`crate::secure`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, retry_on_intr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop;

use crate::sys::{self, Plain};

/// A transfer of at least this size uses up the task's turn, because a peer that always has more data must not monopolize the
/// worker. Smaller transfers are messages, after which the peer waits.
const LARGE: usize = 4096;

/// The location of a socket.
#[derive(Debug)]
pub(crate) enum Place {
    /// Not registered, because no operation had to wait yet. `None` only during the move into the reactor.
    Apart(Option<Plain>),
    /// In the reactor of the worker.
    Watched(AsyncFd<Plain>),
}

impl Place {
    /// A socket that is not in the reactor.
    pub(crate) fn apart(socket: OwnedFd, is_tcp: bool) -> Self {
        Self::Apart(Some(Plain { socket, is_tcp, blocks: false }))
    }

    #[inline]
    pub(crate) fn plain(&self) -> &Plain {
        match self {
            Place::Watched(watched) => watched.get_ref(),
            Place::Apart(Some(plain)) => plain,
            Place::Apart(None) => unreachable!("whoever takes it puts it back"),
        }
    }

    /// The registered socket; registers it if necessary.
    pub(crate) fn watched(&mut self) -> io::Result<&AsyncFd<Plain>> {
        if let Place::Apart(apart) = self
            && let Some(plain) = apart.take()
        {
            match sys::watch(plain) {
                Ok(watched) => *self = Place::Watched(watched),
                Err((plain, error)) => {
                    *self = Place::Apart(Some(plain));
                    return Err(error);
                }
            }
        }
        match self {
            Place::Watched(watched) => Ok(watched),
            Place::Apart(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Moves up to `wanted` bytes with `call` as soon as the socket is ready. The operation is tried before the socket is
    /// registered. If the socket is ready, which is the usual case, this costs reading one word.
    #[inline]
    pub(crate) fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // If the task has used up its turn, the registration below makes it yield.
            if coop::has_budget_remaining() {
                match self.try_move(interest, wanted, || call(self.plain().socket.as_fd())) {
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

    /// Moves up to `wanted` bytes with `call` if the socket is believed to be ready or its state is unknown. After a smaller
    /// transfer, the socket no longer counts as ready, because the kernel had no more data or space.
    #[inline]
    fn try_move(
        &self,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut() -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let Some(watched) = self.registered_for(interest) else { return Ok(retry_on_intr(&mut call)?) };
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

    /// The registered socket, if it is registered for `interest`.
    #[inline]
    pub(crate) fn registered_for(&self, interest: Interest) -> Option<&AsyncFd<Plain>> {
        match self {
            Place::Watched(watched) if interest != Interest::WRITABLE || watched.get_ref().blocks => {
                Some(watched)
            }
            _ => None,
        }
    }

    /// Registers for writability as well. This is done late because most sockets never need it, and every writable socket would
    /// cause an event.
    fn ask_for_room(&mut self, context: &mut Context<'_>) {
        if self.plain().blocks {
            return;
        }
        let (mut plain, waited) = match std::mem::replace(self, Place::Apart(None)) {
            Place::Watched(watched) => (watched.into_inner(), true),
            Place::Apart(Some(plain)) => (plain, false),
            Place::Apart(None) => return,
        };
        plain.blocks = true;
        *self = Place::Apart(Some(plain));
        if waited {
            // The replaced registration may have been waiting for readability, so the task must poll again.
            context.waker().wake_by_ref();
        }
    }

    /// Waits for an event of the socket, registering it if necessary.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
        interest: Interest,
    ) -> Poll<io::Result<()>> {
        if interest == Interest::WRITABLE {
            self.ask_for_room(context);
        }
        let watched = self.watched()?;
        match interest {
            Interest::READABLE => watched.poll_read_ready(context).map_ok(drop),
            _ => watched.poll_write_ready(context).map_ok(drop),
        }
    }

    /// Whether no event has occurred since the last read. Makes no system call.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Place::Watched(watched) => watched.try_io(Interest::READABLE, |_| Ok(())).is_err(),
            Place::Apart(_) => true,
        }
    }

    /// Removes the socket from the reactor.
    pub(crate) fn into_plain(self) -> Plain {
        match self {
            Place::Watched(watched) => watched.into_inner(),
            Place::Apart(Some(plain)) => plain,
            Place::Apart(None) => unreachable!("whoever takes it puts it back"),
        }
    }
}
