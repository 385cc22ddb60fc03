//! Payload that streams send without a copy, from its own memory: buffers that are handed over, and static memory.

use std::io;
use std::task::{Context, Poll};

use runtime::{Buffer, buffer};

use super::{EngineStream, IncomingHalf, Messages};

impl<E: Messages> EngineStream<E> {
    /// Like [`poll_write`](Self::poll_write), for all of `buffer`. If part of it is accepted, that part is sent without a copy,
    /// and the buffer gives up its memory.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_hand_over(
        &mut self,
        context: &Context<'_>,
        buffer: &mut Buffer,
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        if self.incoming.with(|place| place.reset).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let IncomingHalf { connection, key, .. } = &self.incoming;
        let length = buffer.len();
        let whole = std::mem::replace(buffer, Buffer::none());
        let sent = connection.engine.borrow_mut().send_owned(*key, whole, is_last);
        let taken = match sent {
            Ok(()) => length,
            Err((left, taken)) => {
                *buffer = left;
                taken
            }
        };
        if taken == 0 {
            self.incoming.with(|place| place.watch(context.waker()));
            return Poll::Pending;
        }
        self.ended |= is_last && taken == length;
        connection.touch();
        Poll::Ready(Ok(taken))
    }

    /// Ready once the transport has taken all payload that was handed over.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_handed_over(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.incoming.with(|place| place.reset).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let IncomingHalf { connection, key, .. } = &self.incoming;
        if !connection.engine.borrow_mut().is_blocked(*key) {
            return Poll::Ready(Ok(()));
        }
        self.incoming.with(|place| place.watch(context.waker()));
        Poll::Pending
    }

    /// Like [`poll_write`](Self::poll_write), for payload in static memory. Accepts no more than fits in a large buffer, so that
    /// the other streams get their turn.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_write_static(
        &mut self,
        context: &Context<'_>,
        payload: &'static [u8],
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        if self.incoming.with(|place| place.reset).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let piece = &payload[..payload.len().min(buffer::LARGE)];
        let ends = is_last && piece.len() == payload.len();
        let IncomingHalf { connection, key, .. } = &self.incoming;
        let taken = connection.engine.borrow_mut().send_static(*key, piece, ends);
        if taken == 0 {
            self.incoming.with(|place| place.watch(context.waker()));
            return Poll::Pending;
        }
        self.ended |= ends && taken == piece.len();
        connection.touch();
        Poll::Ready(Ok(taken))
    }
}
