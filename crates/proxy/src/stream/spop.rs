//! The SPOP-specific part of streams. A stream is one query, sent when the stream begins, and the received payload is its answer.

use std::rc::Rc;
use std::task::{Context, Poll};

use spop::{Key, Refusal, Status};

use super::{NoHead, Reset};

/// The engine.
pub(crate) type SpopEngine = spop::Connection;
/// The connection shared by its queries.
pub(crate) type SpopConnection = super::EngineConnection<SpopEngine>;
/// A query. Dropping it discards its answer.
pub(crate) type SpopStream = super::EngineStream<SpopEngine>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The query exceeds the agent's maximum frame size and was not sent.
    TooBig,
    /// The connection has ended.
    Ended(Status),
}

impl SpopConnection {
    /// Records that a query was rejected before it was sent.
    pub(crate) fn put_refused(&self, key: Key) {
        self.with_place(key, |place| place.put_reset(Reset::Internal, NoHead::Refused));
    }
}

impl SpopStream {
    /// Sends a query: messages encoded by [`spop::Messages`].
    ///
    /// # Errors
    /// The query cannot be sent.
    pub(crate) fn ask(connection: &Rc<SpopConnection>, messages: &[u8]) -> Result<Self, Refusal> {
        let key = connection.engine.borrow_mut().ask(messages)?;
        connection.touch();
        Ok(Self::begin(connection.clone(), key, true))
    }

    /// Waits for the whole answer, which is then in the buffer.
    ///
    /// # Errors
    /// There will be no answer.
    pub(crate) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        loop {
            match self.poll_fill(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(self.why())),
            }
        }
    }

    fn why(&self) -> NoAnswer {
        match self.incoming.with(|place| place.why()) {
            NoHead::Refused => NoAnswer::TooBig,
            NoHead::Cut | NoHead::Malformed(_) => NoAnswer::Ended(self.connection().engine.borrow().status()),
        }
    }
}
