//! Connections to agents (SPOE): one or many questions at a time share each, whatever streams they
//! are about.
//!
//! One task a connection owns the socket ([`task`]). Callers: `evaluate::spoe`, which has a place
//! at a server and asks over one of its connections.

mod task;

use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::spop::{Config, Refusal, Status};
use runtime::trace::{self, TraceLevel, spop};
use sample::Endpoint;

use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::shared::{Carrier, ConnectionList, OpenedConnection, Share};
use crate::points;
pub(crate) use crate::stream::spop::NoAnswer;
use crate::stream::spop::{Engine, Stream};

/// A connection that questions share.
type AgentConnection = Carrier<Engine, ()>;

/// The connections of one worker to agents.
#[derive(Default)]
pub(crate) struct Agents(ConnectionList<Engine, ()>);

/// A question's share of a connection.
pub(crate) struct Question {
    share: Share<Engine, (), Stream>,
    /// Whether the connection stood idle before, and may have ended without our knowing.
    is_reused: bool,
    /// The number of its stream, 0 before it is asked.
    number: u32,
}

impl Agents {
    /// A connection that has room for a question, if there is one that this may use.
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Question> {
        let carrier = self.0.share(server, ask)?;
        let is_reused = carrier.connection.engine.borrow().live() == 0;
        Some(Question { share: Share::new(carrier), is_reused, number: 0 })
    }

    /// Makes a connection of a socket; its first question comes back.
    pub(crate) fn begin(self: &Rc<Self>, opened: OpenedConnection, config: Config) -> Question {
        let OpenedConnection { socket, preamble, key, ends, for_one, mut open } = opened;
        open.source = trace::TraceSource::Spop;
        let shared = Carrier::new((&socket, Engine::new(config)), 0, key, ends, open, ());
        shared.is_leaving.set(for_one);
        tell(
            &shared,
            0,
            (spop::CONNECTION_NEW | spop::TX_HELLO, TraceLevel::User),
            "new connection to an agent",
        );
        self.0.add(&shared);
        // Before the task begins: a connection that is to have a question is not idle.
        let question = Question { share: Share::new(shared.clone()), is_reused: false, number: 0 };
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
    /// Asks it: messages as [`Messages`](::spop::Messages) writes them.
    ///
    /// # Errors
    /// It cannot be asked over this connection.
    pub(crate) fn ask(&mut self, messages: &[u8]) -> Result<(), Refusal> {
        let stream = Stream::ask(&self.share.carrier.connection, messages)?;
        self.number = if trace::any() { stream.facts().id } else { 0 };
        self.share.begin(stream);
        self.tell(spop::STREAM_NEW | spop::TX_NOTIFY, TraceLevel::User, "asking a question");
        Ok(())
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// None comes.
    pub(crate) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        let polled = match &mut self.share.stream {
            Some(stream) => stream.poll_answer(context),
            None => Poll::Ready(Err(NoAnswer::Ended(Status::IO))),
        };
        if let Poll::Ready(Err(_)) = polled {
            self.tell(spop::STREAM_ERROR, TraceLevel::Error, "a question has no answer");
        }
        polled
    }

    /// The answer, once it is there.
    pub(crate) fn answer(&self) -> &[u8] {
        self.share.stream.as_ref().map_or(&[][..], Stream::received)
    }

    /// Questions asked over its connection so far, this one included.
    pub(crate) fn uses(&self) -> u32 {
        self.share.uses()
    }

    /// Our end of its connection and the agent's.
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        self.share.ends()
    }

    /// The kernel's number of its connection.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.share.descriptor()
    }

    /// Whether its connection had been idle.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    #[track_caller]
    fn tell(&self, events: u64, level: TraceLevel, message: &str) {
        tell(&self.share.carrier, self.number, (events, level), message);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.number > 0 {
            self.tell(spop::STREAM_END, TraceLevel::User, "question over");
        }
    }
}

/// Tells whoever traces it of something that happens on a connection, or to the question of that number;
/// 0 for none.
#[inline]
#[track_caller]
fn tell(shared: &Rc<AgentConnection>, number: u32, what: (u64, TraceLevel), message: &str) {
    points::agent(&shared.open.server.state, (points::number(&**shared), number.into()), what, message);
}
