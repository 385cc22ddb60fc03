//! Reads and writes through TLS. Used by [`crate::stream`].
//!
//! Ciphertext is received into a per-thread buffer and decrypted into the caller's buffer. Outgoing data is encrypted into the same
//! per-thread buffer and sent with one call. A connection only allocates memory for data that has to wait: an incomplete record, or
//! bytes that the kernel did not accept.
//!
//! No function is inlined, so that TLS support adds only one comparison to plain streams.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, Waker, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tls::record::{OVERHEAD_MAX, PLAINTEXT_MAX, RECORD_MAX};
use tls::{PeerEnd, Session};
use tokio::io::Interest;

use crate::place::Place;

/// The amount encrypted per send call: a few records of maximum size.
const SEALED_MAX: usize = 4 * (PLAINTEXT_MAX + OVERHEAD_MAX);

/// The space for receiving data after an incomplete record.
const SCRATCH: usize = SEALED_MAX + RECORD_MAX;

/// The maximum amount of unsent data with which more is received. A write leaves less than this. If there is more, it consists of
/// TLS responses to the peer's messages; if a peer does not read these, Weir does not read from the peer either.
const UNSENT_MAX: usize = SEALED_MAX + RECORD_MAX;

thread_local! {
    /// The ciphertext of the current call.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// Converts a session failure to an I/O error.
fn failure(error: tls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// See [`crate::Stream::poll_read`].
#[inline(never)]
pub(crate) fn poll_read(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
    room: &mut [u8],
) -> Poll<io::Result<usize>> {
    let read = poll_open(place, tls, context, room);
    if read.is_pending() {
        // A caller that waits for a response may not have sent all of its request. If the rest cannot be sent, the read reports
        // the reason.
        let _ = poll_flush(place, tls, context);
    }
    read
}

/// Receives and decrypts until there is plaintext, the end or a failure. Plaintext that does not fit into `room`, which may be
/// empty, is kept; [`Session::has_waiting`] reports it.
fn poll_open(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
    room: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        let n = tls.take_plain(room);
        if n > 0 {
            return Poll::Ready(Ok(n));
        }
        if tls.ended() != PeerEnd::No {
            return Poll::Ready(Ok(0));
        }
        if let Some(error) = tls.failure() {
            return Poll::Ready(Err(failure(error)));
        }
        if tls.unsent().len() > UNSENT_MAX && poll_flush(place, tls, context).is_pending() {
            return Poll::Pending;
        }
        let opened = BUFFER.with_borrow_mut(|buffer| {
            let kept = tls.kept();
            let n = if tls.has_waiting() {
                0
            } else {
                let wanted = tls.wanted(room.len()).min(buffer.len() - kept);
                let received = &mut buffer[kept..kept + wanted];
                let n = ready!(place.poll_move(context, Interest::READABLE, wanted, |socket| {
                    Ok(recv(socket, &mut *received, RecvFlags::empty())?.0)
                }))?;
                if n == 0 {
                    tls.transport_ended();
                }
                n
            };
            let kept = tls.take_kept(buffer);
            Poll::Ready(tls.open(&mut buffer[..kept + n], room).map_err(failure))
        });
        let opened = match ready!(opened) {
            Ok(opened) => opened,
            Err(error) => {
                // The alert is sent if the kernel accepts it.
                let _ = poll_flush(place, tls, context);
                return Poll::Ready(Err(error));
            }
        };
        if opened.filled > 0 || opened.is_end {
            return Poll::Ready(Ok(opened.filled));
        }
        if room.is_empty() && tls.has_waiting() {
            return Poll::Ready(Ok(0));
        }
    }
}

/// See [`crate::Stream::poll_write_both`].
#[inline(never)]
pub(crate) fn poll_write(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
    [first, second]: [&[u8]; 2],
    flags: SendFlags,
) -> Poll<io::Result<usize>> {
    ready!(poll_flush(place, tls, context))?;
    if first.is_empty() && second.is_empty() {
        return Poll::Ready(Ok(0));
    }
    let written = write(place, tls, context, [first, second], flags)?;
    if written > 0 || tls.is_established() {
        return Poll::Ready(Ok(written));
    }
    // The limit of early data is reached.
    ready!(poll_handshake(place, tls, context, false)).map_err(failure)?;
    Poll::Ready(write(place, tls, context, [first, second], flags))
}

/// Encrypts and sends. Ciphertext that the kernel does not accept is kept.
fn write(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
    [first, second]: [&[u8]; 2],
    flags: SendFlags,
) -> io::Result<usize> {
    BUFFER.with_borrow_mut(|buffer| {
        let (taken, sealed) = tls.seal(first, second, &mut buffer[..SEALED_MAX]).map_err(failure)?;
        let sealed = &buffer[..sealed];
        let sent = match place
            .poll_move(context, Interest::WRITABLE, sealed.len(), |socket| send(socket, sealed, flags))
        {
            Poll::Ready(sent) => sent?,
            Poll::Pending => 0,
        };
        tls.keep_unsent(&sealed[sent..]);
        Ok(taken)
    })
}

/// See [`crate::Stream::poll_flush`].
#[inline(never)]
pub(crate) fn poll_flush(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !tls.unsent().is_empty() {
        let unsent = tls.unsent();
        let n = ready!(place.poll_move(context, Interest::WRITABLE, unsent.len(), |socket| {
            send(socket, unsent, SendFlags::NOSIGNAL)
        }))?;
        tls.sent(n);
    }
    Poll::Ready(Ok(()))
}

/// See [`crate::Stream::poll_read_ready`]. The received data may turn out to contain nothing for the caller.
#[inline(never)]
pub(crate) fn poll_read_ready(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if tls.has_waiting() || !place.is_quiet() {
        return Poll::Ready(Ok(()));
    }
    let _ = poll_flush(place, tls, context);
    place.poll_event(context, Interest::READABLE)
}

/// See [`crate::Stream::poll_idle`].
#[inline(never)]
pub(crate) fn poll_idle(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if tls.has_waiting() {
        return Poll::Ready(Ok(()));
    }
    poll_read(place, tls, context, &mut []).map_ok(drop)
}

/// See [`crate::Stream::is_idle`].
#[inline(never)]
pub(crate) fn is_idle(place: &mut Place, tls: &mut Session) -> bool {
    if tls.has_waiting() {
        return false;
    }
    if place.is_quiet() {
        return true;
    }
    // The socket is in the reactor, which reported an event, so no task is waiting for it now.
    poll_idle(place, tls, &mut Context::from_waker(Waker::noop())).is_pending()
}

/// See [`crate::Stream::poll_handshake`], or with `early` [`crate::Stream::poll_early_handshake`].
#[inline(never)]
pub(crate) fn poll_handshake(
    place: &mut Place,
    tls: &mut Session,
    context: &mut Context<'_>,
    early: bool,
) -> Poll<Result<(), tls::Error>> {
    if tls.is_established() {
        return Poll::Ready(Ok(()));
    }
    // The client sends the first message.
    let mut outcome = tls.handshake(&[]);
    loop {
        let flushed = poll_flush(place, tls, context);
        match outcome {
            Ok(false) if early && tls.is_early() => return Poll::Ready(Ok(())),
            Ok(false) => {}
            // If the last flight could not be sent, the next write sends it.
            Ok(true) => return Poll::Ready(Ok(())),
            Err(error) => return Poll::Ready(Err(error)),
        }
        if let Poll::Ready(Err(_)) = flushed {
            return Poll::Ready(Err(tls.cut_off(true)));
        }
        let received = BUFFER.with_borrow_mut(|buffer| {
            let wanted = RECORD_MAX.min(buffer.len());
            let received = &mut buffer[..wanted];
            let n = ready!(place.poll_move(context, Interest::READABLE, wanted, |socket| {
                Ok(recv(socket, &mut *received, RecvFlags::empty())?.0)
            }));
            Poll::Ready(match n {
                Ok(0) => Err(tls.cut_off(false)),
                Ok(n) => tls.handshake(&buffer[..n]),
                Err(_) => Err(tls.cut_off(true)),
            })
        });
        outcome = ready!(received);
    }
}
