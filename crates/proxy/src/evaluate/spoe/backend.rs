//! What rules of the agents' backend say of a question. It is a stream of TCP to them, in a session
//! of the agent's own: what is asked came from its client, what is answered comes from its server, and
//! there is nothing of the client that is asked about.

use std::rc::Rc;
use std::time::Duration;

use base::clock::WallTime;
use plan::spoe::Agent;
use rules::{Final, Hold, Outcome, RuleSet, Stage};
use runtime::Local;
use runtime::timer::{now_ms, now_us};
use sample::session::{Accepted, Ends};
use sample::track::{self, Event};
use sample::{Endpoint, Session};

use super::failure::Failure;
use crate::client::{Client, StandIn};
use crate::evaluate::about::About;
use crate::evaluate::resolve::{Question, resolve};
use crate::evaluate::script::{self, Verdict};
use crate::exchange::Exchange;
use crate::server::local::{LocalProxy, LocalServer};

/// A question on its way.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) agent: &'a Agent,
    /// Where the agent's servers are.
    pub(super) backend: &'a Rc<LocalProxy>,
    /// What the agent is told.
    pub(super) messages: &'a [u8],
    /// Whether the client's leaving ends it.
    pub(super) leaving: bool,
}

/// Gives the question a session of its own in the place of the client's.
pub(super) fn stand_in<'c>(client: &'c mut Client, agent: &Agent) -> StandIn<'c> {
    let session = Session::new(Accepted {
        ends: Ends { source: Endpoint::Local, destination: Endpoint::Local },
        wall_us: WallTime::now().since_1970_us(),
        us: now_us(),
        frontend: Local::new(agent.frontend.clone()),
        listener: Local::new(agent.listener.clone()),
        id: client.worker.session_id(),
    });
    client.stand_in(session)
}

/// `tcp-request content`, before a server is chosen.
///
/// # Errors
/// The question is not asked.
pub(super) async fn of_question(
    client: &mut Client,
    own: &mut Exchange,
    asked: Asked<'_>,
) -> Result<(), Failure> {
    let Asked { agent, backend, messages, .. } = asked;
    if messages.len() > agent.frame_size as usize {
        return Err(Failure::TOO_BIG);
    }
    own.txn.id = client.worker.stream_id();
    own.txn.backend = Some(backend.held.clone());
    own.backend = Some(backend.clone());
    own.request_body.seen.extend_from_slice(messages);
    let delay = backend.request_inspect_delay;
    run(client, own, asked, (&backend.tcp_request, delay), &mut About::Connection).await?;
    let sent = Event::BytesIn(messages.len() as u64);
    track::note(&client.session, &own.txn.trackers, sent, now_ms());
    Ok(())
}

/// `tcp-response content`, before what is answered is used.
///
/// # Errors
/// It is not used.
pub(super) async fn of_answer(
    client: &mut Client,
    own: &mut Exchange,
    asked: Asked<'_>,
    answer: &[u8],
) -> Result<(), Failure> {
    let backend = asked.backend;
    own.response_body.seen.extend_from_slice(answer);
    let received = Event::BytesOut(answer.len() as u64);
    track::note(&client.session, &own.txn.trackers, received, now_ms());
    let delay = backend.response_inspect_delay;
    run(client, own, asked, (&backend.tcp_response, delay), &mut About::Reply { held: 0 }).await
}

/// Notes the server that a question goes to, for what tells of it.
pub(super) fn note_server(own: &mut Exchange, server: &LocalServer) {
    own.txn.server = Some(server.held.clone());
}

/// Runs a rule set to its end, looking at the same bytes until `delay` is over where a rule wants more.
///
/// # Errors
/// A rule ended the question.
async fn run(
    client: &mut Client,
    own: &mut Exchange,
    asked: Asked<'_>,
    (rules, delay): (&RuleSet, Option<Duration>),
    about: &mut About<'_>,
) -> Result<(), Failure> {
    if rules.is_empty() {
        return Ok(());
    }
    // What they look at is no message of HTTP.
    own.txn.is_http = false;
    let outcome = run_to_end(client, own, asked, (rules, delay), about).await;
    own.txn.is_http = true;
    outcome
}

async fn run_to_end(
    client: &mut Client,
    own: &mut Exchange,
    asked: Asked<'_>,
    (rules, delay): (&RuleSet, Option<Duration>),
    about: &mut About<'_>,
) -> Result<(), Failure> {
    let until = delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
    let mut start = 0;
    loop {
        let (outcome, next) = step(client, own, rules, start, until);
        start = next;
        match outcome {
            Outcome::Done | Outcome::Accept => return Ok(()),
            Outcome::Wait => {
                let left = Duration::from_millis(until.saturating_sub(now_ms()));
                client.pause(left, asked.leaving).await.map_err(Failure::of_fault)?;
            }
            Outcome::Hold(Hold::Script(call)) => {
                let begun = script::begin(client, own, about, &call);
                let verdict = match begun {
                    Ok(verdict) => verdict,
                    Err(begun) => {
                        let went_on = script::go_on(client, own, about, &call, begun);
                        Box::pin(went_on).await.map_err(Failure::of_stop)?
                    }
                };
                match verdict {
                    Verdict::Next => {}
                    Verdict::Accept => return Ok(()),
                    Verdict::Final(verdict) => return conclude(own, asked.backend, about, &verdict),
                    Verdict::Stop(stop) => return Err(Failure::of_stop(stop)),
                }
            }
            Outcome::Hold(Hold::Resolve { section, name, prefer, var }) => {
                let question = Question { section, name, prefer, var };
                let resolved = resolve(client, own, question, asked.leaving);
                resolved.await.map_err(Failure::of_fault)?;
            }
            // What marks the packets of a client, and engines that ask about a stream: a question has
            // neither.
            Outcome::Hold(_) => {}
            Outcome::Final(verdict) => return conclude(own, asked.backend, about, &verdict),
        }
    }
}

/// Runs `rules` from number `start` on, until something is to be done. All of the bytes are here.
fn step(
    client: &Client,
    own: &mut Exchange,
    rules: &RuleSet,
    start: usize,
    until: u64,
) -> (Outcome, usize) {
    let now_ms = now_ms();
    let mut stage = Stage {
        process: &client.worker.shared.process,
        session: &client.session,
        transaction: Some(&mut own.txn),
        request_bytes: &own.request_body.seen,
        response_bytes: &own.response_body.seen,
        longest_head: usize::MAX,
        sockets: None,
        complete: now_ms >= until,
        counts_requests: false,
        now_ms,
    };
    rules.run(&mut stage, start)
}

/// What a final verdict makes of the question.
fn conclude(
    own: &Exchange,
    backend: &LocalProxy,
    about: &About<'_>,
    verdict: &Final,
) -> Result<(), Failure> {
    // It cannot become anything else.
    if matches!(verdict, Final::SwitchMode(_)) {
        return Ok(());
    }
    if about.is_response() && !matches!(verdict, Final::CloseServer) {
        backend.state.backend.mine().traffic.denied_responses.add(1);
        if let Some(server) = &own.txn.server {
            server.counters.mine().traffic.denied_responses.add(1);
        }
    }
    Err(Failure::BROKEN)
}
