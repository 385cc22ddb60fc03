//! What rules of the agents' backend say of a question. It is a stream of TCP to them, in a session
//! of the agent's own: what is asked came from its client, what is answered comes from its server, and
//! there is nothing of the client that is asked about.

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
use crate::client::{Client, StandIn, Watch};
use crate::evaluate::lua::action::{self, ActionVerdict};
use crate::evaluate::resolve;
use crate::evaluate::rule_context::RuleContext;
use crate::exchange::sockets::StreamSockets;
use crate::exchange::{Exchange, view};
use crate::fault::Fault;
use crate::log::{Maker, Report};
use crate::server::agents::Question;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// The level of what `do-log` writes.
const INFO: u8 = 6;

/// A question on its way.
#[derive(Clone, Copy)]
pub(super) struct AgentQuery<'a> {
    pub(super) agent: &'a Agent,
    /// Where the agent's servers are.
    pub(super) backend: &'a Rc<LocalProxy>,
    /// What the agent is told.
    pub(super) messages: &'a [u8],
    /// Whether the client's leaving ends it.
    pub(super) leaving: bool,
    /// Whether it has a session of its own, since something in the backend looks at it.
    pub(super) is_seen: bool,
}

impl AgentQuery<'_> {
    /// How many bytes the question has for statistics, and for rules: as in HAProxy, the type of the
    /// frame is part of it.
    pub(super) fn length(&self) -> u64 {
        1 + self.messages.len() as u64
    }
}

/// Gives the question an entry of its own in the place of the client's, and a session where something
/// looks at it.
pub(super) fn stand_in<'c>(client: &'c mut Client, asked: AgentQuery<'_>) -> StandIn<'c> {
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
    client.stand_in(entry, session)
}

/// `tcp-request content`, before a server is chosen; gives the service that answers in a server's place,
/// where a rule says so.
///
/// # Errors
/// The question is not asked.
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

/// `tcp-response content`: as of any stream of TCP, once the question is on its way to a server. What
/// is answered is seen by rules that wait for it (`inspect-delay`).
///
/// # Errors
/// A rule ended the question; within, the way to the agent.
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
            // Whoever waits for the answer hears of it.
            Ok(Err(_)) => return Ok(()),
            Err(Fault::ServerTimeout) => {}
            Err(fault) => return Err(SpoeFailure::of_fault(fault)),
        }
    }
    Ok(())
}

/// Counts in what rules track.
pub(super) fn note(client: &Client, own: &Exchange, event: CountedEvent) {
    track::note(&client.session, &own.txn.trackers, event, now_ms());
}

/// Notes the server that a question goes to, for what tells of it.
pub(super) fn note_server(own: &mut Exchange, server: &LocalServer) {
    own.txn.server = Some(server.held.clone());
}

/// How running a rule set ended.
enum SpoeRulesEnd {
    /// It lets the question pass.
    Passes,
    /// A service of a script answers it.
    Served(Arc<ScriptCall>),
    /// A rule wants to see more.
    Wants,
}

/// A rule set at work.
struct RunningRules<'a> {
    all: &'a RuleSet,
    /// Which of them is next.
    next: usize,
    /// Until when they may wait, in ms of the worker's clock.
    until: u64,
    about: RuleContext<'a>,
}

impl<'a> RunningRules<'a> {
    fn new(all: &'a RuleSet, delay: Option<Duration>, about: RuleContext<'a>) -> Self {
        Self { all, next: 0, until: delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64), about }
    }

    /// Lets the time pass for which rules may wait: there is nothing more to come.
    async fn pause(&self, client: &mut Client, asked: AgentQuery<'_>) -> Result<(), SpoeFailure> {
        let left = Duration::from_millis(self.until.saturating_sub(now_ms()));
        client.pause(left, asked.leaving).await.map_err(SpoeFailure::of_fault)
    }

    /// Runs them as far as what is here allows.
    ///
    /// # Errors
    /// One of them ended the question.
    async fn run(
        &mut self,
        client: &mut Client,
        own: &mut Exchange,
        asked: AgentQuery<'_>,
    ) -> Result<SpoeRulesEnd, SpoeFailure> {
        // What they look at is no message of HTTP.
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
                // What marks the packets of a client, and engines that ask about a stream: a question
                // has neither.
                RuleOutcome::Hold(_) => {}
                RuleOutcome::Final(verdict) => return self.conclude(own, asked.backend, verdict),
            }
        }
    }

    /// What a final verdict makes of the question.
    fn conclude(
        &self,
        own: &Exchange,
        backend: &LocalProxy,
        verdict: Final,
    ) -> Result<SpoeRulesEnd, SpoeFailure> {
        match verdict {
            // It cannot become anything else.
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

/// `do-log`: the agent's loggers get a line. It has no format of its own: only profiles make one.
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

/// Runs `rules` from number `start` on, until something is to be done. All of the bytes are here.
fn step(
    client: &Client,
    own: &mut Exchange,
    rules: &RuleSet,
    start: usize,
    until: u64,
) -> (RuleOutcome, usize) {
    let now_ms = now_ms();
    let sockets = StreamSockets::of(client, own);
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
