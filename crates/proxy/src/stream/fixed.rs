//! Payload in static memory: streams refer to it until it was sent, and never copy it.

use std::io;
use std::task::{Context, Poll};

use runtime::buffer;

use super::{EngineStream, IncomingHalf, Messages};

impl<E: Messages> EngineStream<E> {
    /// Like [`poll_write`](Self::poll_write), for payload in static memory, of which it takes no more than a large buffer holds, so
    /// that the other streams get their turn.
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
