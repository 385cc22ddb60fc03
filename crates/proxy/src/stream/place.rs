//! What has come for one stream and was not taken by its request yet. Places are used again, with
//! their memory.

use std::collections::VecDeque;
use std::io;
use std::task::{Poll, Waker};

use http::{ErrorKind, Head};
use runtime::{Buffer, buffer};

use super::Reset;

/// Heads of one stream that may wait for their request. They are subject to no window, so beyond this
/// number the connection is not read until the request has taken one.
const HEADS: usize = 8;

/// Why no head comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// The peer, or the connection, has ended the stream.
    #[default]
    Cut,
    /// The peer promises that it has not looked at the request.
    Refused,
    /// What came is no response.
    Malformed(ErrorKind),
}

/// What a piece of payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// A frame, or all that is known of.
    Whole,
    /// A part of a frame that came by two reads, which filled their buffers: it is seldom alone.
    OfFrame,
    /// The end of the message.
    Last,
}

/// Of one stream.
#[derive(Default)]
pub(super) struct StreamMailbox {
    /// Payload, in order; the stream's window bounds it.
    payload: VecDeque<Buffer>,
    /// Heads that nobody has taken yet.
    heads: VecDeque<Head>,
    trailers: Option<Box<Head>>,
    /// Whether the message has ended behind the payload.
    ended: bool,
    /// What ended the stream before its time.
    pub(super) reset: Option<Reset>,
    /// What that is to who waits for a head.
    why: NoHead,
    /// Whom to wake when anything changes.
    waker: Option<Waker>,
}

impl StreamMailbox {
    /// Makes it that of a new stream.
    pub(super) fn open(&mut self) {
        self.close();
    }

    /// Forgets the stream.
    pub(super) fn close(&mut self) {
        self.payload.clear();
        self.heads.clear();
        self.trailers = None;
        self.ended = false;
        self.reset = None;
        self.why = NoHead::Cut;
    }

    /// Adds payload, without a word to who waits for it.
    pub(super) fn put(&mut self, mut bytes: &[u8], piece: Piece) {
        while !bytes.is_empty() {
            let taken = self.payload.back_mut().map_or(0, |buffer| {
                buffer.compact();
                buffer.push(bytes)
            });
            bytes = &bytes[taken..];
            if !bytes.is_empty() {
                // A large frame with more behind it is seldom alone, and what comes faster than it is
                // taken is taken in larger pieces: each piece is a call of the kernel.
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

    /// Why it was ended before its time.
    pub(super) fn why(&self) -> NoHead {
        self.why
    }

    pub(super) fn put_head(&mut self, head: Head) {
        self.heads.push_back(head);
        self.wake();
    }

    /// Whether as many heads wait as may.
    pub(super) fn is_crowded(&self) -> bool {
        self.heads.len() >= HEADS
    }

    /// Takes the next head.
    ///
    /// # Errors
    /// There will be none.
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

    /// Whether all that came was taken, and that was the whole message.
    pub(super) fn is_at_end(&self) -> bool {
        self.ended && self.payload.is_empty()
    }

    /// Whether the message has ended, and neither payload nor trailers are left to take.
    pub(super) fn is_empty_at_end(&self) -> bool {
        self.is_at_end() && self.trailers.is_none()
    }

    /// Whether there is payload that was not taken.
    pub(super) fn has_payload(&self) -> bool {
        !self.payload.is_empty()
    }

    /// The length of what was not taken, where nothing follows it.
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

    /// Moves payload into `buffer`: 0 where the message has ended.
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
