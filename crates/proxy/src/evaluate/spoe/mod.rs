//! Queries agents about a stream (`filter spoe`), on events of the stream and from rules. This module encodes the messages and
//! stores the answers in variables; [`ask`] does the exchange with an agent, and [`backend`] runs the rules of the agents'
//! backend.
//!
//! Without engines, each hook costs one comparison. The hooks, in the order in which a request reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | begin | [`begin`] (`on-client-session`); [`join`] once the backend is known |
//! | request head | [`on`] before each rule set (`on-frontend-…`, `on-backend-…`) |
//! | response head | [`on`] (`on-server-session`, `on-tcp-response`, `on-http-response`) |
//! | each rule set | [`send`] (`send-spoe-group`) |
//! | end | none: the state, `exchange::Engaged`, is dropped with the exchange |
//!
//! `server::agents` keeps the connections, and `stream::spop` implements the protocol.

mod ask;
mod backend;
mod failure;
mod service;
mod variables;

use std::sync::Arc;

use plan::Proxy;
use plan::spoe::{MessageEvent, Sending, SpoeEngine, SpoeMessage};
use runtime::timer::now_us;
use sample::Env;
use sample::expression::Expression;
use sample::value::Value;
use spop::{Data, Messages};

use crate::client::Client;
use crate::exchange::view::{self, holds};
use crate::exchange::{Engaged, Exchange, Stop, tracing};
use crate::log::LogLine;
use crate::message::upload;
use failure::SpoeFailure;

/// Fetches that return payload, which is truncated to fit in a frame.
const PARTIAL: [&str; 5] = ["req.body", "res.body", "req.payload", "res.payload", "payload"];

/// Log levels for success and failure.
const NOTICE: u8 = 5;
const WARNING: u8 = 4;

/// Called when a stream begins: for TCP when its connection was accepted, for HTTP when its request is complete. Do not call this
/// if the frontend has no engines, because the call itself has a cost.
///
/// # Errors
/// The stream ended during the wait.
#[cold]
pub(crate) async fn begin(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    Box::pin(start(client, x)).await
}

#[cold]
async fn start(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    if x.engaged.is_some() {
        // A TCP stream that was upgraded to HTTP.
        return Ok(());
    }
    let mut engaged = Engaged::default();
    engaged.add(&client.frontend);
    x.engaged = Some(Box::new(engaged));
    happen(client, x, MessageEvent::ClientSession).await
}

/// Called when the backend is known.
#[inline]
pub(crate) fn join(client: &Client, x: &mut Exchange, backend: &Proxy) {
    if !backend.engines.is_empty() && backend.index != client.frontend.index {
        x.engaged.get_or_insert_default().add(backend);
    }
}

/// Called on each event of the stream. Engines with messages for the event send them and wait for the answer. As with [`begin`],
/// do not call this for a stream without engines.
///
/// # Errors
/// The stream ended during the wait.
#[cold]
pub(crate) async fn on(client: &mut Client, x: &mut Exchange, event: MessageEvent) -> Result<(), Stop> {
    Box::pin(happen(client, x, event)).await
}

#[cold]
async fn happen(client: &mut Client, x: &mut Exchange, event: MessageEvent) -> Result<(), Stop> {
    if client.worker.shared.plan.variables.wants_bodies() && !event.is_of_response() {
        upload::look(client, x);
    }
    let count = x.engaged.as_ref().map_or(0, |engaged| engaged.0.len());
    for at in 0..count {
        let Some(own) = x.engaged.as_ref().and_then(|engaged| engaged.0.get(at)) else { break };
        if own.is_off || own.engine.messages(event).is_empty() {
            continue;
        }
        let engine = own.engine.clone();
        process(client, x, at, &engine, ("EVENT", event.name()), engine.messages(event)).await?;
    }
    Ok(())
}

/// Sends a group of messages for a rule (`send-spoe-group`).
///
/// # Errors
/// The stream ended during the wait.
#[cold]
pub(super) async fn send(
    client: &mut Client,
    x: &mut Exchange,
    proxy: &Proxy,
    number: usize,
) -> Result<(), Stop> {
    let Some(Sending { engine, group, messages }) = proxy.sendings.get(number) else { return Ok(()) };
    let Some(engaged) = &x.engaged else { return Ok(()) };
    let Some(at) = engaged.position(engine).filter(|at| !engaged.0[*at].is_off) else { return Ok(()) };
    process(client, x, at, engine, ("GROUP", group), messages).await
}

/// Sends messages and waits for the answer. `what` names the messages in logs.
async fn process(
    client: &mut Client,
    x: &mut Exchange,
    at: usize,
    engine: &Arc<SpoeEngine>,
    what: (&str, &str),
    messages: &[SpoeMessage],
) -> Result<(), Stop> {
    let mut said = view::with(client, x, |env| encode_messages(messages, env));
    if said.is_empty() {
        return Ok(());
    }
    said.fit(engine.agent.frame_size);
    let begun = now_us();
    let outcome = ask::ask(client, x, engine, said.bytes()).await;
    let took = (now_us() - begun) / 1000;
    tracing::step(x, "spoe", &engine.name, begun, outcome.is_err());
    let outcome = match outcome {
        Ok(answer) => {
            view::with(client, x, |env| variables::apply(&answer, &engine.agent, client, env));
            Ok(())
        }
        Err(SpoeFailure::Stream(fault)) => return Err(fault.into()),
        Err(SpoeFailure::Agent(code)) => Err(code),
    };
    conclude(client, x, at, engine, took, outcome);
    log(client, x, engine, what, took, outcome);
    Ok(())
}

/// Counts the query, and stores its outcome in variables.
fn conclude(
    client: &Client,
    x: &mut Exchange,
    at: usize,
    engine: &SpoeEngine,
    took: u64,
    outcome: Result<(), u32>,
) {
    let (agent, counts) = (&engine.agent, engine.counts.mine());
    counts.processed.add(1);
    counts.errors.add(outcome.is_err().into());
    let mut total = took;
    if let Some(own) = x.engaged.as_mut().and_then(|engaged| engaged.0.get_mut(at)) {
        own.total_ms += took;
        total = own.total_ms;
        own.is_off |= outcome.is_err() && !agent.continues;
    }
    view::with(client, x, |env| {
        let set = |var: &Option<sample::vars::Var>, value: u64| {
            if let Some(var) = var {
                var.set(env, &Value::Int(value.cast_signed()));
            }
        };
        if let Err(code) = outcome {
            set(&agent.on_error, code.into());
        }
        set(&agent.process_time, took);
        set(&agent.total_time, total);
    });
}

fn log(
    client: &Client,
    x: &Exchange,
    engine: &SpoeEngine,
    (kind, name): (&str, &str),
    took: u64,
    outcome: Result<(), u32>,
) {
    let agent = &engine.agent;
    if agent.loggers.is_empty() || agent.only_errors && outcome.is_ok() {
        return;
    }
    let sum = |of: fn(&plan::spoe::SpoeCounts) -> u64| engine.counts.all().map(of).sum::<u64>();
    let (errors, processed) = (sum(|counts| counts.errors.get()), sum(|counts| counts.processed.get()));
    let status = outcome.err().unwrap_or(0);
    let text = format!(
        "SPOE: [{}] <{kind}:{name}> sid={} st={status} {took} {errors}/{processed}",
        agent.name, x.txn.id
    );
    let level = if outcome.is_ok() { NOTICE } else { WARNING };
    let worker = &client.worker;
    let line = LogLine::own(level, &client.frontend.log_tag, text.as_bytes());
    worker.outbox.borrow_mut().send_all(&worker.shared, &agent.loggers, &line);
}

/// Encodes the messages whose conditions are met.
fn encode_messages(messages: &[SpoeMessage], env: &Env<'_>) -> Messages {
    let mut said = Messages::default();
    for message in messages.iter().filter(|message| holds(message.condition.as_ref(), env)) {
        said.begin(&message.name);
        for (name, what) in &message.arguments {
            encode_argument(&mut said, name, what, env);
        }
    }
    said
}

fn encode_argument(said: &mut Messages, name: &str, what: &Expression, env: &Env<'_>) {
    let value = what.eval(env);
    let data = match &value {
        None => Data::Null,
        Some(Value::Bool(value)) => Data::Bool(*value),
        Some(Value::Int(value)) => Data::Int(*value),
        Some(Value::Ip4(address)) => Data::Ip4(*address),
        Some(Value::Ip6(address)) => Data::Ip6(*address),
        Some(Value::Str(text) | Value::Method(text)) => Data::Str(text),
        Some(Value::Bin(bytes)) => Data::Bin(bytes),
    };
    // The number of arguments was checked when the configuration was loaded. Rules may see a partial body, so a truncated message
    // is better than none.
    if !what.has_converters() && PARTIAL.contains(&what.name()) {
        said.part(name, data);
    } else {
        said.argument(name, data);
    }
}
