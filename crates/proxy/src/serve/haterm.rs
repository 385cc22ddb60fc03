//! A frontend in `mode haterm` answers each request itself, with the response that its query describes. [`http`](super::http) calls
//! this module once the frontend's rules have accepted the request; `reply` then sends the response.
//!
//! Unless the query asks for an early response, the request body is first received and discarded, and then the delay begins.

use std::task::Context;
use std::time::Duration;

use http::BodyLength;
use runtime::timer::{self, now_us};
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::answers::haterm::Wanted;
use crate::client::{Client, Watch};
use crate::evaluate;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::{Coding, FlowError, Path, Sink};
use crate::message::upload;

/// Answers a request that needs no wait, which is the usual case. Returns `None` for other requests, for which [`answer_later`]
/// must be called.
#[inline]
pub(super) fn answer(client: &Client, x: &mut Exchange) -> Option<Stop> {
    let waits = x.has_body() || x.engaged.is_some() || !client.frontend.http_response.is_empty();
    if waits {
        return None;
    }
    let wanted = wanted(x);
    if wanted.delay > 0 {
        return None;
    }
    let now = now_us();
    prepare(client, x, &wanted, (now, now));
    Some(Stop::Reply)
}

/// Receives the body of a request, waits for the delay, and then answers the request. Also runs the response rules.
pub(super) async fn answer_later(client: &mut Client, x: &mut Exchange) -> Stop {
    let wanted = wanted(x);
    match prepare_later(client, x, &wanted).await {
        Ok(()) => Stop::Reply,
        Err(stop) => stop,
    }
}

/// Parses the query of the request, which rules may have changed.
fn wanted(x: &Exchange) -> Wanted {
    let target = x.txn.request.target();
    Wanted::of(memchr::memchr(b'?', target).map(|at| &target[at + 1..]))
}

async fn prepare_later(client: &mut Client, x: &mut Exchange, wanted: &Wanted) -> Result<(), Stop> {
    if x.has_body() {
        let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
        client.timer.set_after(timer::now_ms(), allowed);
        upload::answer_expectation(client, x).await?;
        if !wanted.is_early {
            receive(client, x, allowed).await?;
        }
    }
    let complete = now_us();
    if wanted.delay > 0 {
        let frontend = client.frontend.clone();
        let leaving = x.aborts_on_close(client, &frontend);
        client.pause(Duration::from_millis(wanted.delay), leaving).await?;
    }
    prepare(client, x, wanted, (complete, now_us()));
    evaluate::of_cached(client, x).await
}

/// Receives and discards the body of the request.
async fn receive(client: &mut Client, x: &mut Exchange, allowed: Option<Duration>) -> Result<(), Stop> {
    x.upload.start(client.side.framing(x.request_body.length), Path::Payload(Coding::Nothing));
    let watch = Watch { leaving: false, late: Fault::RequestTimeout };
    let more = |client: &mut Client, context: &mut Context<'_>| {
        x.upload.moved = false;
        let pumped = x.upload.poll_pump(context, client.side.source(), &mut Sink::Gone);
        // Chunk extensions do not count as progress.
        if pumped.is_pending() && x.upload.moved {
            client.timer.set_after(timer::now_ms(), allowed);
        }
        pumped
    };
    let received = client.wait(watch, more).await;
    x.txn.bytes_in += x.upload.received;
    match received? {
        Ok(()) => Ok(()),
        Err(FlowError::Read(error)) => {
            client.session.error.set(error);
            Err(Fault::ClientCut.into())
        }
        Err(FlowError::Write(_) | FlowError::Coding | FlowError::Filter) => Err(Fault::BadRequestBody.into()),
    }
}

/// Copies the response to the transaction. `complete` is when the whole request had arrived.
fn prepare(client: &Client, x: &mut Exchange, wanted: &Wanted, (complete, now): (u64, u64)) {
    let times = &mut x.txn.times;
    let since = |from: u64, until: u64| Duration::from_micros(until.saturating_sub(from));
    let (received, held) = (since(times.started, complete), since(complete, now));
    (times.queued, times.connected, times.response) = (times.request, times.request, now);
    x.txn.service = Some("<HATERM>");
    x.txn.termination.set(Cause::Local, Phase::Request);
    wanted.write_head(received, held, &mut x.txn.response);
    x.keep_alive &= !wanted.closes;
    x.reply.clear();
    x.reply.repeated = wanted.body(&mut x.reply.bytes);
    x.reply.is_filtered = client.frontend.compression.is_some()
        || x.filtering.is_some()
        || x.trace.is_some()
        || !x.txn.bandwidth.is_empty();
    x.response_body.length = match x.reply.framing() {
        Some(framing) => framing,
        None => BodyLength::Length(x.reply.len()),
    };
    x.txn.has_response = true;
    x.txn.status = wanted.status;
}
