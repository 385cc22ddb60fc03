//! Connections to agents (SPOE). The concurrent queries of many streams share each of them.
//!
//! One task per connection owns the socket ([`task`]). Called by `evaluate::spoe`, which holds a slot on a server and sends
//! queries over one of the server's connections.

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
use crate::stream::spop::{SpopEngine, SpopStream};

/// A connection shared by queries.
type AgentConnection = Carrier<SpopEngine, ()>;

/// One worker's connections to agents.
#[derive(Default)]
pub(crate) struct Agents(ConnectionList<SpopEngine, ()>);

/// A query's share of a connection.
pub(crate) struct Question {
    share: Share<SpopEngine, (), SpopStream>,
    /// Whether the connection was idle before. If so, it may have been closed unnoticed.
    is_reused: bool,
    /// The number of its stream, or 0 before it is sent.
    number: u64,
}

impl Agents {
    /// Returns a share of a usable connection with room for a query, if there is one.
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Question> {
        let carrier = self.0.share(server, ask)?;
        let is_reused = carrier.connection.engine.borrow().live() == 0;
        Some(Question { share: Share::new(carrier), is_reused, number: 0 })
    }

    /// Creates a connection on a socket. Returns the first query on it.
    pub(crate) fn begin(self: &Rc<Self>, opened: OpenedConnection, config: Config) -> Question {
        let OpenedConnection { socket, preamble, key, ends, for_one, mut open } = opened;
        open.source = trace::TraceSource::Spop;
        let shared = Carrier::new((&socket, SpopEngine::new(config)), 0, key, ends, open, ());
        shared.is_leaving.set(for_one);
        trace(&shared, 0, (spop::CONNECTION_NEW | spop::TX_HELLO, TraceLevel::User), "new agent connection");
        self.0.add(&shared);
        // Created before the task starts, because a connection with a query is not idle.
        let question = Question { share: Share::new(shared.clone()), is_reused: false, number: 0 };
        tokio::task::spawn_local(task::run(self.clone(), shared, socket, preamble));
        question
    }

    /// Closes all connections once their queries are answered, because they belong to an older plan.
    pub(crate) fn retire(&self) {
        self.0.retire();
    }

    /// Closes the idle connections to a server.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.0.look(server);
    }
}

impl Question {
    /// Sends the query: messages encoded by [`Messages`](::spop::Messages).
    ///
    /// # Errors
    /// The query cannot be sent over this connection.
    pub(crate) fn ask(&mut self, messages: &[u8]) -> Result<(), Refusal> {
        let stream = SpopStream::ask(&self.share.carrier.connection, messages)?;
        self.number = if trace::any() { stream.facts().id } else { 0 };
        self.share.begin(stream);
        self.trace(spop::STREAM_NEW | spop::TX_NOTIFY, TraceLevel::User, "sending a request");
        Ok(())
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// No answer will arrive.
    pub(crate) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        let polled = match &mut self.share.stream {
            Some(stream) => stream.poll_answer(context),
            None => Poll::Ready(Err(NoAnswer::Ended(Status::IO))),
        };
        if let Poll::Ready(Err(_)) = polled {
            self.trace(spop::STREAM_ERROR, TraceLevel::Error, "request without response");
        }
        polled
    }

    /// Returns the answer, once it has arrived.
    pub(crate) fn answer(&self) -> &[u8] {
        self.share.stream.as_ref().map_or(&[][..], SpopStream::received)
    }

    /// Returns the number of queries sent over the connection so far, including this one.
    pub(crate) fn uses(&self) -> u32 {
        self.share.uses()
    }

    /// Returns the local endpoint of the connection and the agent's.
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        self.share.ends()
    }

    /// Returns the connection's file descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.share.descriptor()
    }

    /// Whether the connection was idle before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    #[track_caller]
    fn trace(&self, events: u64, level: TraceLevel, message: &str) {
        trace(&self.share.carrier, self.number, (events, level), message);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.number > 0 {
            self.trace(spop::STREAM_END, TraceLevel::User, "request ended");
        }
    }
}

/// Traces an event of a connection. If `number` is not 0, it is an event of the query with that number.
#[inline]
#[track_caller]
fn trace(shared: &Rc<AgentConnection>, number: u64, what: (u64, TraceLevel), message: &str) {
    points::agent(&shared.open.server.state, (points::number(&**shared), number), what, message);
}
