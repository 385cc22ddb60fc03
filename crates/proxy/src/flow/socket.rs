//! A socket with received bytes that have not been consumed yet. Used for HTTP/1 and TCP clients and servers.

use std::io;
use std::task::{Context, Poll};

use net::Stream;
use runtime::Buffer;

/// A connected socket with its received bytes.
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    /// Received bytes that were not consumed yet. `None` while there are none, so that idle connections hold no buffer.
    pub(crate) input: Option<Buffer>,
}

impl Socket {
    /// Creates a socket without received bytes.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, input: None }
    }

    /// Returns the received, unconsumed bytes.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        self.input.as_ref().map_or(&[][..], Buffer::filled)
    }

    /// Replaces the received bytes.
    #[cold]
    pub(crate) fn replace(&mut self, bytes: &[u8]) {
        let input = self.input();
        input.clear();
        input.compact();
        if input.room_len() < bytes.len() {
            *input = Buffer::holding(bytes.len());
        }
        input.push(bytes);
    }

    /// Whether all received bytes have been consumed.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.input.as_ref().is_none_or(Buffer::is_empty)
    }

    /// Returns the receive buffer. If there is none, takes a small one from the pool.
    #[inline]
    pub(crate) fn input(&mut self) -> &mut Buffer {
        self.input.get_or_insert_with(Buffer::small)
    }

    /// Returns the receive buffer. If there is none, takes one that is sized for a body.
    #[inline]
    pub(crate) fn input_for_body(&mut self) -> &mut Buffer {
        self.input.get_or_insert_with(Buffer::for_body)
    }

    /// Reads once. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// The kernel's error, or `OutOfMemory` if the buffer is full.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffer = self.input.get_or_insert_with(Buffer::small);
        if buffer.room_len() == 0 {
            buffer.compact();
        }
        if buffer.room_len() == 0 {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let read = self.stream.poll_read(context, buffer.room());
        if let Poll::Ready(Ok(n)) = read {
            buffer.fill(n);
        }
        read
    }

    /// Like [`poll_fill`](Self::poll_fill), for the case that the rest of a message may take long to arrive. Until then, the
    /// received bytes occupy little more memory than they need.
    pub(crate) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.stream.poll_read_ready(context).is_ready() {
            if let Some(input) = &mut self.input {
                input.unpack();
            }
            let read = self.poll_fill(context);
            if read.is_ready() {
                return read;
            }
        }
        if let Some(input) = &mut self.input {
            input.pack();
        }
        Poll::Pending
    }

    /// Releases the buffer if it is empty.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.input.as_ref().is_some_and(Buffer::is_empty) {
            self.input = None;
        }
    }
}
