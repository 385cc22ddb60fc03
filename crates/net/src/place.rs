//! Where a stream's socket is: apart, or in the reactor of its worker.
//!
//! A socket is tried before it is waited for: the reactor learns of it when there is nothing to
//! read for the first time, and is asked for room to write once there was none. Called by
//! [`crate::stream`] and [`crate::secure`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, retry_on_intr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop;

use crate::sys::{self, Plain};

/// Calls that move so much use up the task's turn: a peer that always has more must not keep the
/// worker for itself. Smaller ones are messages, behind each of which the peer waits.
const LARGE: usize = 4096;

/// Where a socket is.
#[derive(Debug)]
pub(crate) enum Place {
    /// Nobody had to wait for it yet. `None` only while it moves into the reactor.
    Apart(Option<Plain>),
    /// In the reactor of the worker.
    Watched(AsyncFd<Plain>),
}

impl Place {
    /// A socket that the reactor knows nothing of.
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

    /// The socket in the reactor, where it is put now if it was not.
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

    /// Moves up to `wanted` bytes by `call` as soon as the socket is ready. Tries before it
    /// registers: a ready socket, the usual case, costs a look at one word.
    #[inline]
    pub(crate) fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // A task that has used up its turn is told to wait by the registration below.
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

    /// Moves up to `wanted` bytes by `call` if the socket is believed ready, or nothing is known of
    /// it. Fewer end that belief: the kernel had no more, and need not be asked to say so.
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

    /// The socket in the reactor, if that tells of `interest`.
    #[inline]
    pub(crate) fn told_of(&self, interest: Interest) -> Option<&AsyncFd<Plain>> {
        match self {
            Place::Watched(watched) if interest != Interest::WRITABLE || watched.get_ref().blocks => {
                Some(watched)
            }
            _ => None,
        }
    }

    /// Has the reactor tell of room to write too: most sockets never need it, and each that has
    /// room would be an event.
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
            // Perhaps for something to read, in the place that the socket has left: the task is to
            // ask again.
            context.waker().wake_by_ref();
        }
    }

    /// Waits for what the reactor says of the socket, to which it is made known if it was not.
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

    /// Whether nothing was told since the last read. No system call.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Place::Watched(watched) => watched.try_io(Interest::READABLE, |_| Ok(())).is_err(),
            Place::Apart(_) => true,
        }
    }

    /// Takes the socket out of the reactor.
    pub(crate) fn into_plain(self) -> Plain {
        match self {
            Place::Watched(watched) => watched.into_inner(),
            Place::Apart(Some(plain)) => plain,
            Place::Apart(None) => unreachable!("whoever takes it puts it back"),
        }
    }
}
