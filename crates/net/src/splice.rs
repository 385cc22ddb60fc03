//! Moves bytes between sockets inside the kernel (splice(2)) through a pipe.
//!
//! Each worker has a pool of pipes. A pipe is used for one direction of a stream at a time; a pipe that is returned with bytes in
//! it is closed.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;

use crate::stream::Stream;

thread_local! {
    static FREE: RefCell<Vec<(OwnedFd, OwnedFd)>> = const { RefCell::new(Vec::new()) };
}

/// The number of free pipes kept per worker.
const KEEP: usize = 64;

/// The maximum number of bytes per splice(2). The kernel moves less when the pipe is full.
const CHUNK: usize = 1 << 20;

/// The number of existing pipes, and the limit. Updated when a pipe is created or closed.
static PIPES: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The number of pipes in use by streams. Updated when a stream takes or returns a pipe.
static LENT: AtomicUsize = AtomicUsize::new(0);

/// Returns the limit of pipes, the number in use, and the number kept in pools.
pub fn pipes() -> [usize; 3] {
    let lent = LENT.load(Relaxed);
    [MOST.load(Relaxed), lent, PIPES.load(Relaxed).saturating_sub(lent)]
}

/// Sets the limit of pipes in the process (`maxpipes`). Beyond the limit, bytes are copied instead.
pub fn limit_pipes(most: usize) {
    MOST.store(most, Relaxed);
}

/// A pipe and the number of bytes in it.
#[derive(Debug)]
pub struct Pipe {
    ends: Option<(OwnedFd, OwnedFd)>,
    filled: usize,
}

impl Pipe {
    /// Takes a pipe from the worker's pool, or creates one of `size` bytes (0 means the kernel's default).
    pub fn take(size: usize) -> io::Result<Self> {
        let ends = match FREE.with_borrow_mut(Vec::pop) {
            Some(ends) => ends,
            None => {
                let most = MOST.load(Relaxed);
                PIPES
                    .fetch_update(Relaxed, Relaxed, |now| (now < most).then_some(now + 1))
                    .map_err(|_| io::Error::other("the maximum number of pipes is in use"))?;
                let (read, write) =
                    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).inspect_err(|_| {
                        PIPES.fetch_sub(1, Relaxed);
                    })?;
                if size > 0 {
                    // The kernel may refuse a size above the user's limit; the default size is sufficient then.
                    let _ = fcntl_setpipe_size(&write, size);
                }
                (read, write)
            }
        };
        LENT.fetch_add(1, Relaxed);
        Ok(Self { ends: Some(ends), filled: 0 })
    }

    /// The number of bytes inside.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the pipe is empty.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Moves up to `limit` bytes from `from` into the pipe. Returns 0 at the end of the stream. Also returns `Pending` if the pipe
    /// is full: drain it first. Fails for a TLS stream.
    pub fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Stream,
        limit: u64,
    ) -> Poll<io::Result<usize>> {
        let Some((_, write)) = &self.ends else { return Poll::Ready(Ok(0)) };
        let limit = limit.min(CHUNK as u64) as usize;
        if from.kernel_fd().is_none() {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        }
        loop {
            ready!(from.poll_read_ready(context))?;
            let moved = from.try_io(Interest::READABLE, || {
                Ok(splice(from.as_fd(), None, write, None, limit, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?)
            });
            match moved {
                Ok(n) => {
                    self.filled += n;
                    return Poll::Ready(Ok(n));
                }
                // A full pipe causes the same error and must be drained first.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.filled > 0 => {
                    return Poll::Pending;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Moves bytes from the pipe to `to`. `more` informs the kernel that more bytes will follow. Fails for a TLS stream.
    pub fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        to: &mut Stream,
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let Some((read, _)) = &self.ends else { return Poll::Ready(Ok(0)) };
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        if more {
            flags |= SpliceFlags::MORE;
        }
        if to.kernel_fd().is_none() {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        }
        loop {
            ready!(to.poll_write_ready(context))?;
            let moved = to
                .try_io(Interest::WRITABLE, || Ok(splice(read, None, to.as_fd(), None, self.filled, flags)?));
            match moved {
                Ok(n) => {
                    self.filled -= n.min(self.filled);
                    return Poll::Ready(Ok(n));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        LENT.fetch_sub(1, Relaxed);
        // try_with: a stream may be dropped while the thread is torn down.
        let kept = self.filled == 0
            && FREE
                .try_with(|free| {
                    let mut free = free.borrow_mut();
                    let room = free.len() < KEEP;
                    if room {
                        free.push(ends);
                    }
                    room
                })
                .unwrap_or(false);
        if !kept {
            PIPES.fetch_sub(1, Relaxed);
        }
    }
}
