//! What the protocol of agents (SPOE) has beside what all protocols have whose connections carry
//! many streams: a stream is one question, asked when it begins, and the one payload that comes in
//! is its answer.

use std::rc::Rc;
use std::task::{Context, Poll};

use spop::{Key, Refusal, Status};

use super::{NoHead, Reset};

/// The engine.
pub(crate) type SpopEngine = spop::Connection;
/// What the questions of one connection share.
pub(crate) type SpopConnection = super::EngineConnection<SpopEngine>;
/// A question. Dropping it forgets its answer.
pub(crate) type SpopStream = super::EngineStream<SpopEngine>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The question is larger than the agent takes: it was not asked.
    TooBig,
    /// The connection has ended.
    Ended(Status),
}

impl SpopConnection {
    /// A question was not asked.
    pub(crate) fn put_refused(&self, key: Key) {
        self.with_place(key, |place| place.put_reset(Reset::Internal, NoHead::Refused));
    }
}

impl SpopStream {
    /// Asks a question: messages as [`spop::Messages`] writes them.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(crate) fn ask(connection: &Rc<SpopConnection>, messages: &[u8]) -> Result<Self, Refusal> {
        let key = connection.engine.borrow_mut().ask(messages)?;
        connection.touch();
        Ok(Self::begin(connection.clone(), key, true))
    }

    /// Waits for all of the answer: it then lies in what was received.
    ///
    /// # Errors
    /// None comes.
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
