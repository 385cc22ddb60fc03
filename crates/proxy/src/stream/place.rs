//! The mailbox of one stream: received data that its request has not taken yet. Mailboxes and their memory are reused.

use std::collections::VecDeque;
use std::io;
use std::task::{Poll, Waker};

use http::{ErrorKind, Head};
use runtime::{Buffer, buffer};

use super::Reset;

/// The maximum number of heads of one stream that were not taken yet. No flow-control window limits heads, so when this is
/// exceeded, the connection is not read until the request has taken one.
const HEADS: usize = 8;

/// Why there is no head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// The peer, or the connection, has ended the stream.
    #[default]
    Cut,
    /// The peer guarantees that it has not processed the request.
    Refused,
    /// The peer's bytes are not a valid response.
    Malformed(ErrorKind),
}

/// The kind of a piece of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole frame, or the only part that is known.
    Whole,
    /// Part of a frame that took two reads, both of which filled their buffers. Usually, more of it follows.
    OfFrame,
    /// The end of the message.
    Last,
}

/// The mailbox of one stream.
#[derive(Default)]
pub(super) struct StreamMailbox {
    /// The payload, in order. Its size is limited by the stream's window.
    payload: VecDeque<Buffer>,
    /// Untaken heads.
    heads: VecDeque<Head>,
    trailers: Option<Box<Head>>,
    /// Whether the message ends after the payload.
    ended: bool,
    /// The reason the stream ended early.
    pub(super) reset: Option<Reset>,
    /// The corresponding error for a request waiting for a head.
    why: NoHead,
    /// The task to wake on any change.
    waker: Option<Waker>,
}

impl StreamMailbox {
    /// Prepares the mailbox for a new stream.
    pub(super) fn open(&mut self) {
        self.close();
    }

    /// Clears the mailbox.
    pub(super) fn close(&mut self) {
        self.payload.clear();
        self.heads.clear();
        self.trailers = None;
        self.ended = false;
        self.reset = None;
        self.why = NoHead::Cut;
    }

    /// Adds payload without waking the waiting task.
    pub(super) fn put(&mut self, mut bytes: &[u8], piece: Piece) {
        while !bytes.is_empty() {
            let taken = self.payload.back_mut().map_or(0, |buffer| {
                buffer.compact();
                buffer.push(bytes)
            });
            bytes = &bytes[taken..];
            if !bytes.is_empty() {
                // After a large frame, more usually follows. If payload arrives faster than it is taken, it is taken in larger
                // pieces, because each piece costs a system call.
                let is_short = match piece {
                    Piece::Whole => bytes.len() < buffer::small_size() / 2,
                    Piece::OfFrame => false,
                    Piece::Last => true,
                };
                let is_alone = is_short && self.payload.is_empty();
                self.payload.push_back(if is_alone {
                    Buffer::holding(bytes.len())
                } else {
                    Buffer::for_body()
                });
            }
        }
        self.ended |= piece == Piece::Last;
    }

    pub(super) fn put_end(&mut self, trailers: Option<&mut Head>) {
        self.ended = true;
        if let Some(trailers) = trailers.filter(|trailers| !trailers.is_empty()) {
            self.trailers = Some(Box::new(std::mem::take(trailers)));
        }
        self.wake();
    }

    pub(super) fn put_reset(&mut self, reset: Reset, why: NoHead) {
        if self.reset.is_none() {
            self.reset = Some(reset);
            self.why = why;
        }
        self.wake();
    }

    /// Returns why the stream ended early.
    pub(super) fn why(&self) -> NoHead {
        self.why
    }

    pub(super) fn put_head(&mut self, head: Head) {
        self.heads.push_back(head);
        self.wake();
    }

    /// Whether the mailbox holds the maximum number of heads.
    pub(super) fn is_crowded(&self) -> bool {
        self.heads.len() >= HEADS
    }

    /// Takes the next head.
    ///
    /// # Errors
    /// No head will arrive.
    pub(super) fn poll_head(&mut self, waker: &Waker) -> Poll<Result<Head, NoHead>> {
        if let Some(next) = self.heads.pop_front() {
            return Poll::Ready(Ok(next));
        }
        if self.reset.is_some() || self.ended {
            return Poll::Ready(Err(self.why));
        }
        self.watch(waker);
        Poll::Pending
    }

    /// Whether the message has ended and its payload was taken.
    pub(super) fn is_at_end(&self) -> bool {
        self.ended && self.payload.is_empty()
    }

    /// Whether the message has ended and neither payload nor trailers remain to be taken.
    pub(super) fn is_empty_at_end(&self) -> bool {
        self.is_at_end() && self.trailers.is_none()
    }

    /// Whether there is untaken payload.
    pub(super) fn has_payload(&self) -> bool {
        !self.payload.is_empty()
    }

    /// Returns the length of the untaken payload, if the message has ended.
    pub(super) fn whole_length(&self) -> Option<u64> {
        let length = || self.payload.iter().map(|buffer| buffer.len() as u64).sum();
        self.ended.then(length)
    }

    pub(super) fn take_trailers(&mut self) -> Option<Box<Head>> {
        self.trailers.take()
    }

    /// Wakes `waker` when anything changes.
    pub(super) fn watch(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Moves payload into `buffer`. Returns 0 if the message has ended.
    pub(super) fn poll_take(&mut self, waker: &Waker, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let Some(next) = self.payload.front_mut() else {
            if self.ended {
                return Poll::Ready(Ok(0));
            }
            if self.reset.is_some() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.watch(waker);
            return Poll::Pending;
        };
        let n = if buffer.is_empty() {
            std::mem::swap(buffer, next);
            buffer.len()
        } else {
            let n = buffer.push(next.filled());
            next.consume(n);
            n
        };
        if next.is_empty() {
            self.payload.pop_front();
        }
        Poll::Ready(Ok(n))
    }
}
