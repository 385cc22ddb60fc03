//! The exchange with an agent: acquires a slot at one of its servers and a connection, sends a query, and waits for the answer,
//! all within `timeout processing`. If an agent fails, the stream gets an error number (SPOE, 2.2 `option set-on-error`) but is
//! never ended.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use plan::proxy::Reuse;
use plan::spoe::{Agent, SpoeEngine};
use runtime::timer::{Timer, now_ms, now_us};
use sample::track::CountedEvent;
use spop::{Config, Refusal, Status};
use state::AttemptOutcome;
use state::sessions::{Activity, SessionEntry};

use super::backend::{AgentQuery, note, note_server, of_answer, of_question, substitute};
use super::failure::SpoeFailure;
use super::service;
use crate::client::{Client, Watch};
use crate::exchange::{Exchange, sockets};
use crate::fault::Fault;
use crate::routing::assign::{self, Lease};
use crate::routing::{attempt, connect, retry, route, stick};
use crate::server::agents::{NoAnswer, Question};
use crate::server::per_worker::{LocalProxy, LocalServer};
use crate::server::pool::PoolQuery;

/// The maximum number of concurrent queries on a connection, as in HAProxy.
const PIPELINED: u16 = 20;

/// Queries the engine's agent and waits for the answer.
///
/// # Errors
/// The reason why there is no answer.
pub(super) async fn ask(
    client: &mut Client,
    x: &Exchange,
    engine: &Arc<SpoeEngine>,
    messages: &[u8],
) -> Result<Vec<u8>, SpoeFailure> {
    let agent = &engine.agent;
    let backend = client.worker.local(agent.backend);
    let leaving = x.backend.as_ref().is_some_and(|backend| x.aborts_on_close(client, backend));
    let is_seen = backend.prepared().sees_questions();
    let asked = AgentQuery { agent, backend: &backend, messages, leaving, is_seen };
    // The facts about the agent's connection must not be stored in the stream's exchange.
    let mut own = Exchange::take();
    let theirs = client.entry.watched();
    let mut standing_in = substitute(client, asked);
    let outcome = in_time(agent, &theirs, reach(&mut standing_in, &mut own, asked)).await;
    drop(standing_in);
    own.give();
    outcome
}

/// Waits up to the agent's `timeout processing`, but only while the stream exists.
async fn in_time<T>(
    agent: &Agent,
    theirs: &SessionEntry,
    asking: impl Future<Output = Result<T, SpoeFailure>>,
) -> Result<T, SpoeFailure> {
    let timer = Timer::new();
    timer.set_after(now_ms(), agent.timeout);
    let mut asking = pin!(asking);
    poll_fn(|context| {
        if let Poll::Ready(outcome) = asking.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        if let Poll::Ready(why) = theirs.poll_killed(context) {
            return Poll::Ready(Err(SpoeFailure::Stream(Fault::of_kill(why))));
        }
        timer.poll_expired(context).map(|()| Err(SpoeFailure::LATE))
    })
    .await
}

/// Counts a session of the backend until it is dropped.
struct SessionGuard(Rc<LocalProxy>);

impl SessionGuard {
    fn new(backend: &Rc<LocalProxy>) -> Self {
        let traffic = &backend.state.backend.mine().traffic;
        traffic.sessions.up();
        traffic.sessions_total.add(1);
        traffic.session_rate.tick(now_ms());
        Self(backend.clone())
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.state.backend.mine().traffic.sessions.down();
    }
}

/// Makes as many attempts as the backend allows.
async fn reach(
    client: &mut Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
) -> Result<Vec<u8>, SpoeFailure> {
    let backend = asked.backend;
    let _counted = SessionGuard::new(backend);
    own.txn.is_http = true;
    // If a query were repeated, the agent could count it twice.
    own.choice.never_early = true;
    own.txn.times.request = now_us();
    if asked.is_seen
        && let Some(service) = of_question(client, own, asked).await?
    {
        let answer = Box::pin(service::answer(client, own, asked, service)).await?;
        count(client, own, asked, &answer, None);
        return Ok(answer);
    }
    route::bind_server(client, own, backend);
    stick::of_request(client, own, backend);
    own.choice.hash = route::hash(client, own, backend);
    let mut avoid: Option<Rc<LocalServer>> = None;
    let mut kept: Option<Lease> = None;
    loop {
        let lease = match kept.take() {
            Some(lease) => lease,
            None => {
                let assigned = assign::assign(client, own, backend, avoid.as_deref());
                assigned.await.map_err(SpoeFailure::of_fault)?
            }
        };
        attempt::count_attempt(own, &lease);
        client.entry.set_server(&lease.server().held);
        if asked.is_seen {
            note_server(own, lease.server());
        }
        let fault = match attempt(client, own, asked, &lease).await {
            Ok(outcome) => return conclude(client, own, asked, lease, outcome),
            Err(fault) => fault,
        };
        let last = own.txn.retries >= retry::most(own, backend)
            || fault.retry_kind().is_none()
            || !retry::is_affordable(own, backend);
        attempt::count_failure(backend, &lease, fault, last);
        if last {
            return Err(SpoeFailure::of_fault(fault));
        }
        let target = retry::before_retry(client, own, backend, lease, fault).await;
        (kept, avoid) = target.map_err(SpoeFailure::of_fault)?.parts();
    }
}

/// Converts the outcome of a query that reached a server, and releases the slot at the server.
fn conclude(
    client: &Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
    lease: Lease,
    outcome: Result<Vec<u8>, Without>,
) -> Result<Vec<u8>, SpoeFailure> {
    match outcome {
        Ok(answer) => {
            lease.answered(AttemptOutcome::Good);
            attempt::observe(lease.server(), Ok(()));
            count(client, own, asked, &answer, Some(lease.server()));
            if asked.is_seen {
                stick::of_response(client, own, asked.backend, lease.server());
            }
            Ok(answer)
        }
        Err(Without::Answer(none)) => {
            // A query that does not fit is not the server's fault.
            lease.answered(if none == NoAnswer::TooBig { AttemptOutcome::Good } else { AttemptOutcome::Bad });
            Err(SpoeFailure::of(none))
        }
        Err(Without::Rules(failure)) => {
            lease.gave_up();
            Err(failure)
        }
    }
}

/// Counts the bytes of a query and of its answer.
fn count(
    client: &Client,
    own: &Exchange,
    asked: AgentQuery<'_>,
    answer: &[u8],
    server: Option<&LocalServer>,
) {
    let backend = &asked.backend.state.backend.mine().traffic;
    let server = server.map(|server| &server.state.counters.mine().traffic);
    for traffic in [Some(backend), server].into_iter().flatten() {
        traffic.bytes_in.add(asked.length());
        traffic.bytes_out.add(answer.len() as u64);
    }
    if asked.is_seen {
        note(client, own, CountedEvent::BytesOut(answer.len() as u64));
    }
}

/// Why a query failed after it had reached its server.
enum Without {
    /// The server failed, or the connection to it.
    Answer(NoAnswer),
    /// The backend's rules ended the query.
    Rules(SpoeFailure),
}

/// Queries one server. If an idle connection turns out to be closed, retries once on a new connection.
///
/// # Errors The server cannot be reached. The inner error is the reason.
async fn attempt(
    client: &mut Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
    lease: &Lease,
) -> Result<Result<Vec<u8>, Without>, Fault> {
    let none = |none| Ok(Err(Without::Answer(none)));
    let mut fresh = false;
    loop {
        let mut question = question(client, own, asked, lease.server(), fresh).await?;
        match question.ask(asked.messages) {
            Ok(()) => {}
            Err(Refusal::TooBig) => return none(NoAnswer::TooBig),
            // The connection was closed after the check.
            Err(Refusal::Full) if fresh => return none(NoAnswer::Ended(Status::IO)),
            Err(Refusal::Full) => {
                fresh = true;
                continue;
            }
        }
        if asked.is_seen {
            sockets::share(client, own, &question);
            if let Err(failure) = of_answer(client, own, asked, &mut question).await {
                return Ok(Err(Without::Rules(failure)));
            }
        }
        match wait(client, asked, &mut question).await? {
            Ok(()) => return Ok(Ok(question.answer().to_vec())),
            Err(NoAnswer::Ended(Status::IO)) if question.is_reused() && !fresh => fresh = true,
            Err(why) => return none(why),
        }
    }
}

/// Returns a slot on a connection to the server: a new connection, or one shared with other queries.
///
/// # Errors
/// The server cannot be reached.
async fn question(
    client: &mut Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
    server: &Rc<LocalServer>,
    fresh: bool,
) -> Result<Question, Fault> {
    let AgentQuery { agent, backend, .. } = asked;
    // Engines have separate connections because their handshakes differ.
    let key = [&*connect::pool_key(client, own, server), b"\0", agent.engine_id.as_bytes()].concat();
    let reuse = if backend.reuse == Reuse::Never { Reuse::Never } else { Reuse::Always };
    let ask = PoolQuery { key: &key, reuse, first: false, client: None };
    let shared = if fresh { None } else { client.worker.agents.share(server, ask) };
    if let Some(question) = shared {
        server.state.counters.mine().reuses.add(1);
        backend.state.backend.mine().reuses.add(1);
        return Ok(question);
    }
    let opened = connect::open_shared(client, own, backend, server, key.into()).await?;
    let config = Config {
        frame_size: agent.frame_size,
        pipelining: agent.pipelining,
        most: PIPELINED,
        engine: agent.engine_id.clone(),
    };
    Ok(client.worker.agents.begin(opened, config))
}

/// Waits for the answer, at most until the server timeout.
async fn wait(
    client: &mut Client,
    asked: AgentQuery<'_>,
    question: &mut Question,
) -> Result<Result<(), NoAnswer>, Fault> {
    client.entry.activity.set(Activity::Response);
    client.timer.set_after(now_ms(), asked.backend.timeouts.server);
    let watch = Watch { leaving: asked.leaving, late: Fault::ServerTimeout };
    client.wait(watch, |_, context| question.poll_answer(context)).await
}
