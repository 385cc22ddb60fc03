//! Connections to agents (SPOE): one or many questions at a time share each, whatever streams they
//! are about.
//!
//! One task a connection owns the socket ([`task`]). Callers: `evaluate::spoe`, which has a place
//! at a server and asks over one of its connections.

mod task;

use std::rc::Rc;
use std::task::{Context, Poll};

use ::spop::{Config, Refusal, Status};

use super::local::LocalServer;
use super::pool::Ask;
use super::sharing::{Carrier, List, Opened, Share};
pub(crate) use crate::stream::spop::NoAnswer;
use crate::stream::spop::{Engine, Stream};

/// A connection that questions share.
type Shared = Carrier<Engine, ()>;

/// The connections of one worker to agents.
#[derive(Default)]
pub(crate) struct Agents(List<Engine, ()>);

/// A question's share of a connection.
pub(crate) struct Question {
    share: Share<Engine, ()>,
    /// Whether the connection stood idle before, and may have ended without our knowing.
    is_reused: bool,
}

impl Agents {
    /// A connection that has room for a question, if there is one that this may use.
    pub(crate) fn share(&self, server: &LocalServer, ask: Ask<'_>) -> Option<Question> {
        let carrier = self.0.share(server, ask)?;
        let is_reused = carrier.connection.engine.borrow().live() == 0;
        Some(Question { share: Share::new(carrier), is_reused })
    }

    /// Makes a connection of a socket; its first question comes back.
    pub(crate) fn begin(self: &Rc<Self>, opened: Opened, config: Config) -> Question {
        let Opened { socket, preamble, key, ends, for_one, open } = opened;
        let shared = Carrier::new((&socket, Engine::new(config)), 0, key, ends, open, ());
        shared.is_leaving.set(for_one);
        self.0.add(&shared);
        // Before the task begins: a connection that is to have a question is not idle.
        let question = Question { share: Share::new(shared.clone()), is_reused: false };
        tokio::task::spawn_local(task::run(self.clone(), shared, socket, preamble));
        question
    }

    /// Has all connections end once their questions are answered: they are of an older plan.
    pub(crate) fn retire(&self) {
        self.0.retire();
    }

    /// Has the connections to a server end that are idle.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.0.look(server);
    }
}

impl Question {
    /// Asks it: messages as [`spop::Messages`] writes them.
    ///
    /// # Errors
    /// It cannot be asked over this connection.
    pub(crate) fn ask(&mut self, messages: &[u8]) -> Result<(), Refusal> {
        let stream = Stream::ask(&self.share.carrier.connection, messages)?;
        self.share.begin(stream);
        Ok(())
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// None comes.
    pub(crate) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        match &mut self.share.stream {
            Some(stream) => stream.poll_answer(context),
            None => Poll::Ready(Err(NoAnswer::Ended(Status::IO))),
        }
    }

    /// The answer, once it is there.
    pub(crate) fn answer(&self) -> &[u8] {
        self.share.received()
    }

    /// Whether its connection had been idle.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }
}
