//! Applies the rules of the agents' backend to a query. For these rules, the query is a TCP stream in the agent's own session:
//! the query is the data sent by the client, and the answer is the data sent by the server. The original client is not visible.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::clock::WallTime;
use plan::spoe::Agent;
use rules::{Final, Hold, RuleOutcome, RuleSet, ScriptCall, Service, Stage};
use runtime::Local;
use runtime::timer::{now_ms, now_us};
use sample::track::{self, CountedEvent};
use sample::{Accepted, Ends, Env, LogOrigin, LogProfile, Session};
use spop::kind;
use state::sessions::{self, Activity};

use super::failure::SpoeFailure;
use crate::client::{Client, Substitute, Watch};
use crate::evaluate::lua::action::{self, ActionVerdict};
use crate::evaluate::resolve;
use crate::evaluate::rule_context::RuleContext;
use crate::exchange::sockets::StreamSockets;
use crate::exchange::{Exchange, view};
use crate::fault::Fault;
use crate::log::{Maker, Report};
use crate::server::agents::Question;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// The log level of `do-log`.
const INFO: u8 = 6;

/// A query in progress.
#[derive(Clone, Copy)]
pub(super) struct AgentQuery<'a> {
    pub(super) agent: &'a Agent,
    /// The backend of the agent's servers.
    pub(super) backend: &'a Rc<LocalProxy>,
    /// The messages for the agent.
    pub(super) messages: &'a [u8],
    /// Whether the query is aborted if the client leaves.
    pub(super) leaving: bool,
    /// Whether the query needs its own session, because the backend's configuration uses the session.
    pub(super) is_seen: bool,
}

impl AgentQuery<'_> {
    /// Returns the length of the query for statistics and rules. As in HAProxy, this includes the frame type.
    pub(super) fn length(&self) -> u64 {
        1 + self.messages.len() as u64
    }
}

/// Replaces the client's register entry with one for the query. Also replaces the session if anything uses it.
pub(super) fn substitute<'c>(client: &'c mut Client, asked: AgentQuery<'_>) -> Substitute<'c> {
    let AgentQuery { agent, backend, .. } = asked;
    let frontend = Local::new(agent.frontend.clone());
    let entry = sessions::register(&frontend, None, None, now_ms());
    entry.activity.set(Activity::Request);
    entry.set_backend(&backend.held);
    entry.bytes_in.set(asked.length());
    let session = asked.is_seen.then(|| {
        Session::new(Accepted {
            ends: Ends::ABSENT,
            wall_us: WallTime::now().since_1970_us(),
            us: now_us(),
            frontend,
            listener: Local::new(agent.listener.clone()),
            id: client.worker.session_id(),
        })
    });
    client.substitute(entry, session)
}

/// Runs the `tcp-request content` rules before a server is chosen. If a rule names a service that answers instead of a server,
/// returns that service.
///
/// # Errors
/// The query is not sent.
pub(super) async fn of_question(
    client: &mut Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
) -> Result<Option<Arc<ScriptCall>>, SpoeFailure> {
    let AgentQuery { agent, backend, messages, .. } = asked;
    if messages.len() > agent.frame_size as usize {
        return Err(SpoeFailure::TOO_BIG);
    }
    own.txn.id = client.worker.stream_id();
    let times = &mut own.txn.times;
    (times.idle_from, times.started) = (client.session.accepted_us, client.session.accepted_us);
    times.started_wall = client.session.accepted_wall_us;
    own.txn.backend = Some(backend.held.clone());
    own.backend = Some(backend.clone());
    own.request_body.seen.push(kind::NOTIFY);
    own.request_body.seen.extend_from_slice(messages);
    if backend.tcp_request.is_empty() {
        return Ok(None);
    }
    let mut rules =
        RunningRules::new(&backend.tcp_request, backend.request_inspect_delay, RuleContext::Connection);
    let service = loop {
        match rules.run(client, own, asked).await? {
            SpoeRulesEnd::Passes => break None,
            SpoeRulesEnd::Served(call) => break Some(call),
            SpoeRulesEnd::Wants => rules.pause(client, asked).await?,
        }
    };
    note(client, own, CountedEvent::BytesIn(asked.length()));
    Ok(service)
}

/// Runs the `tcp-response content` rules after the query was sent to a server, as for any TCP stream. Rules that wait
/// (`inspect-delay`) see the answer.
///
/// # Errors
/// A rule ended the query. An inner error means that the exchange with the agent failed.
pub(super) async fn of_answer(
    client: &mut Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
    question: &mut Question,
) -> Result<(), SpoeFailure> {
    let backend = asked.backend;
    if backend.tcp_response.is_empty() {
        return Ok(());
    }
    let about = RuleContext::Reply { held: 0 };
    let mut rules = RunningRules::new(&backend.tcp_response, backend.response_inspect_delay, about);
    let mut is_answered = false;
    while let SpoeRulesEnd::Wants = rules.run(client, own, asked).await? {
        if is_answered {
            rules.pause(client, asked).await?;
            continue;
        }
        client.timer.set(rules.until);
        let watch = Watch { leaving: asked.leaving, late: Fault::ServerTimeout };
        let answer = client.wait(watch, |_, context| question.poll_answer(context)).await;
        match answer {
            Ok(Ok(())) => {
                is_answered = true;
                own.response_body.seen.extend_from_slice(question.answer());
            }
            // The task that waits for the answer reports the error.
            Ok(Err(_)) => return Ok(()),
            Err(Fault::ServerTimeout) => {}
            Err(fault) => return Err(SpoeFailure::of_fault(fault)),
        }
    }
    Ok(())
}

/// Counts an event in the tracked table entries.
pub(super) fn note(client: &Client, own: &Exchange, event: CountedEvent) {
    track::note(&client.session, &own.txn.trackers, event, now_ms());
}

/// Records the query's server for logs and statistics.
pub(super) fn note_server(own: &mut Exchange, server: &LocalServer) {
    own.txn.server = Some(server.held.clone());
}

/// How a rule set ended.
enum SpoeRulesEnd {
    /// The query passes.
    Passes,
    /// A script service answers the query.
    Served(Arc<ScriptCall>),
    /// A rule needs more data.
    Wants,
}

/// A rule set being run.
struct RunningRules<'a> {
    all: &'a RuleSet,
    /// The index of the next rule.
    next: usize,
    /// The deadline of rules that wait, in ms of the worker's clock.
    until: u64,
    about: RuleContext<'a>,
}

impl<'a> RunningRules<'a> {
    fn new(all: &'a RuleSet, delay: Option<Duration>, about: RuleContext<'a>) -> Self {
        Self { all, next: 0, until: delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64), about }
    }

    /// Sleeps until the time limit of the rules, if no more data will arrive.
    async fn pause(&self, client: &mut Client, asked: AgentQuery<'_>) -> Result<(), SpoeFailure> {
        let left = Duration::from_millis(self.until.saturating_sub(now_ms()));
        client.pause(left, asked.leaving).await.map_err(SpoeFailure::of_fault)
    }

    /// Runs the rules on the available data.
    ///
    /// # Errors
    /// A rule ended the query.
    async fn run(
        &mut self,
        client: &mut Client,
        own: &mut Exchange,
        asked: AgentQuery<'_>,
    ) -> Result<SpoeRulesEnd, SpoeFailure> {
        // The rules do not see an HTTP message.
        own.txn.is_http = false;
        let outcome = self.go_on(client, own, asked).await;
        own.txn.is_http = true;
        outcome
    }

    async fn go_on(
        &mut self,
        client: &mut Client,
        own: &mut Exchange,
        asked: AgentQuery<'_>,
    ) -> Result<SpoeRulesEnd, SpoeFailure> {
        loop {
            let (outcome, next) = step(client, own, self.all, self.next, self.until);
            self.next = next;
            match outcome {
                RuleOutcome::Done | RuleOutcome::Accept => return Ok(SpoeRulesEnd::Passes),
                RuleOutcome::Wait => return Ok(SpoeRulesEnd::Wants),
                RuleOutcome::Hold(Hold::Script(call)) => {
                    let begun = action::begin(client, own, &self.about, &call);
                    let verdict = match begun {
                        Ok(verdict) => verdict,
                        Err(begun) => {
                            let went_on = action::go_on(client, own, &mut self.about, &call, begun);
                            Box::pin(went_on).await.map_err(SpoeFailure::of_stop)?
                        }
                    };
                    match verdict {
                        ActionVerdict::Next => {}
                        ActionVerdict::Accept => return Ok(SpoeRulesEnd::Passes),
                        ActionVerdict::Final(verdict) => return self.conclude(own, asked.backend, verdict),
                        ActionVerdict::Stop(stop) => return Err(SpoeFailure::of_stop(stop)),
                    }
                }
                RuleOutcome::Hold(Hold::Resolve { section, name, prefer, var }) => {
                    let wanted = resolve::ResolveQuestion { section, name, prefer, var };
                    let resolved = resolve::resolve(client, own, wanted, asked.leaving);
                    resolved.await.map_err(SpoeFailure::of_fault)?;
                }
                RuleOutcome::Hold(Hold::Log { origin, profile }) => {
                    log(client, own, asked.agent, origin, profile.as_deref());
                }
                // Packet marks for the client and SPOE engines do not apply to a query.
                RuleOutcome::Hold(_) => {}
                RuleOutcome::Final(verdict) => return self.conclude(own, asked.backend, verdict),
            }
        }
    }

    /// Applies a final verdict to the query.
    fn conclude(
        &self,
        own: &Exchange,
        backend: &LocalProxy,
        verdict: Final,
    ) -> Result<SpoeRulesEnd, SpoeFailure> {
        match verdict {
            // A query cannot change its mode.
            Final::SwitchMode(_) => return Ok(SpoeRulesEnd::Passes),
            Final::Service(Service::Script(call)) => return Ok(SpoeRulesEnd::Served(call)),
            _ => {}
        }
        if self.about.is_response() && !matches!(verdict, Final::CloseServer) {
            backend.state.backend.mine().traffic.denied_responses.add(1);
            if let Some(server) = &own.txn.server {
                server.counters.mine().traffic.denied_responses.add(1);
            }
        }
        Err(SpoeFailure::BROKEN)
    }
}

/// `do-log`: sends a line to the agent's loggers. Only profiles define a format for it.
fn log(client: &Client, own: &Exchange, agent: &Agent, origin: LogOrigin, profile: Option<&LogProfile>) {
    let Some(level) = own.txn.log_level.unwrap_or(Some(INFO)) else { return };
    let worker = &client.worker;
    let maker = Maker { loggers: &agent.loggers, structured: None, tag: &client.frontend.log_tag };
    let report = Report { format: None, level, profile };
    view::with(client, own, |env| {
        let env = Env { log_origin: origin, may_change: env.may_change.clone(), ..*env };
        worker.outbox.borrow_mut().write(&worker.shared, &maker, &env, &report);
    });
}

/// Runs `rules` from index `start` until an action is required. All bytes are already available.
fn step(
    client: &Client,
    own: &mut Exchange,
    rules: &RuleSet,
    start: usize,
    until: u64,
) -> (RuleOutcome, usize) {
    let now_ms = now_ms();
    let sockets = StreamSockets::of(client, &own.server_socket);
    let mut stage = Stage {
        process: &client.worker.shared.process,
        session: &client.session,
        transaction: Some(&mut own.txn),
        request_bytes: &own.request_body.seen,
        response_bytes: &own.response_body.seen,
        longest_head: usize::MAX,
        sockets: Some(&sockets),
        complete: now_ms >= until,
        counts_requests: false,
        now_ms,
    };
    rules.run(&mut stage, start)
}
