//! Script services: functions that answer a request in place of a server, or that serve a TCP stream.
//!
//! In HTTP mode, the service runs until it has produced the head of its response. Then the response rules run, and the body is
//! sent as the service produces it. Called by `reply` and `tcp`.

use std::task::{Context, Poll};

use http::BodyLength;
use lua::{CallStep, Wait, WaitAnswer};
use runtime::timer::{now_ms, now_us};
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::client::{Client, Watch};
use crate::evaluate;
use crate::evaluate::lua::{action, service};
use crate::exchange::lua::scripting;
use crate::exchange::{Exchange, Stop, faults, filters};
use crate::fault::Fault;
use crate::flow::{Coding, FlowError, Following, Path, Sink};
use crate::message::lua::{body, pump, steps};
use crate::message::upload;
use crate::serve::sending;

/// Runs a service until it has produced the head of its response, and copies the head to the transaction.
///
/// # Errors
/// The service did not produce a head, or rules ended the exchange.
pub(crate) async fn prepare(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    if x.filtering.is_some() {
        steps::head_for_service(client, x).await?;
    }
    begin(client, x, client_framing(client, x));
    let times = &mut x.txn.times;
    (times.queued, times.connected) = (times.request, times.request);
    x.txn.termination.set(Cause::Local, Phase::Request);
    let mut answer = Some(WaitAnswer::Nothing);
    loop {
        match service::step(client, x, answer.take()) {
            Some(CallStep::Wait(Wait::Start)) => break,
            Some(CallStep::Wait(wait)) => answer = Some(await_for(client, x, wait).await?),
            // The service ended, or failed, without a response.
            Some(CallStep::Done(_) | CallStep::Failed(_)) | None => return Err(Fault::Internal.into()),
        }
    }
    let Some(head) = scripting::of(x).service.as_mut().and_then(|service| service.head.take()) else {
        return Err(Fault::Internal.into());
    };
    x.txn.times.response = now_us();
    take_head(x, &head);
    evaluate::of_cached(client, x).await?;
    x.reply.is_filtered = true;
    Ok(())
}

fn client_framing(client: &Client, x: &Exchange) -> BodyLength {
    client.side.framing(x.request_body.length)
}

/// Prepares a service. `length` is the framing of its input.
fn begin(client: &mut Client, x: &mut Exchange, length: BodyLength) {
    x.upload.start(length, Path::Payload(Coding::Bare));
    if x.txn.is_http && length != BodyLength::None {
        body::begin_for_service(client, x);
        filters::install(client, x, true);
    }
    let is_ended = length == BodyLength::None;
    let shown = scripting::of(x).service.as_mut().map(|service| {
        service.is_ended = is_ended;
        service.call.shown
    });
    x.txn.service = shown;
    if !passes_filters(x) {
        receive(client, x);
    }
}

/// Whether the input passes through filters.
fn passes_filters(x: &Exchange) -> bool {
    x.upload.filters.is_some() || x.upload.is_gated()
}

/// Copies a service's reply to the head of the response.
fn take_head(x: &mut Exchange, given: &lua::ScriptReply) {
    let head = &mut x.txn.response;
    scripting::write_head(given, head);
    let named = |name: &str| given.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
    let announced = named("content-length").filter(|_| named("transfer-encoding").is_none());
    let announced =
        announced.and_then(|(_, value)| std::str::from_utf8(value).ok()?.trim().parse::<u64>().ok());
    if announced.is_none() {
        head.remove_body_length();
        head.append(b"transfer-encoding", b"chunked");
    }
    x.response_body.length = announced.map_or(BodyLength::Chunked, BodyLength::Length);
    x.reply.clear();
    x.reply.open();
    x.txn.has_response = true;
    x.txn.status = given.status;
    if let Some(service) = &mut scripting::of(x).service {
        service.left = announced;
    }
}

/// Sends the head of the response, and its body as the service produces it.
///
/// # Errors
/// The client does not accept the response, or the service does not produce all of it.
pub(crate) async fn send_body(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    sending::begin_reply(client, x);
    let sent = send_pieces(client, x).await;
    sending::end_reply(client, x, sent)
}

async fn send_pieces(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    let mut answer = WaitAnswer::Nothing;
    loop {
        let step = service::step(client, x, Some(answer));
        let is_short = pass_on(x);
        match step {
            Some(CallStep::Done(_)) if !is_short => {
                x.reply.close();
                return sending::pump(client, x, allowed).await;
            }
            Some(CallStep::Wait(wait)) => {
                sending::pump(client, x, allowed).await?;
                answer = await_for(client, x, wait).await.map_err(fault_of)?;
            }
            // The body is incomplete, so the client must not treat it as complete.
            Some(CallStep::Done(_) | CallStep::Failed(_)) | None => {
                // The available part is sent before the connection is closed.
                let _ = sending::pump(client, x, allowed).await;
                x.txn.termination.set(Cause::Internal, Phase::Data);
                client.side.reset();
                return Err(Fault::Truncated);
            }
        }
    }
}

fn fault_of(stop: Stop) -> Fault {
    match stop {
        Stop::Fault(fault) => fault,
        _ => Fault::Internal,
    }
}

/// Adds the output of the service to the response's body, up to the body's length. Returns whether more output is needed.
fn pass_on(x: &mut Exchange) -> bool {
    let bodiless = x.download.is_received() && x.reply.bytes.is_empty();
    let Some(service) = x.scripting.as_mut().and_then(|scripting| scripting.service.as_mut()) else {
        return false;
    };
    if bodiless {
        service.output.clear();
        return false;
    }
    let most = service.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
    service.output.truncate(most);
    if let Some(left) = &mut service.left {
        *left -= service.output.len() as u64;
    }
    if !service.output.is_empty() {
        x.reply.put(&service.output);
        service.output.clear();
    }
    service.left.is_some_and(|left| left > 0)
}

/// Waits for the event that a service has requested.
async fn await_for(client: &mut Client, x: &mut Exchange, wait: Wait) -> Result<WaitAnswer, Stop> {
    match wait {
        Wait::Flush | Wait::Start => Ok(WaitAnswer::Nothing),
        Wait::Input(time) => {
            upload::answer_expectation(client, x).await?;
            await_input(client, x, time).await?;
            Ok(WaitAnswer::Nothing)
        }
        wait => {
            let frontend = client.frontend.clone();
            let leaving = x.txn.is_http && x.aborts_on_close(client, &frontend);
            action::await_for(client, leaving, wait).await
        }
    }
}

/// Waits for more input or its end, for at most `time` ms.
async fn await_input(client: &mut Client, x: &mut Exchange, time: Option<u64>) -> Result<(), Stop> {
    let is_filtered = passes_filters(x);
    if is_ended(x) || !is_filtered && (receive(client, x) || is_ended(x)) {
        return Ok(());
    }
    let silent = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    let own = time.map(|time| now_ms().saturating_add(time));
    client.timer.set_after(now_ms(), silent);
    if let Some(own) = own {
        client.timer.set(own);
    }
    let watch = Watch { leaving: false, late: Fault::ClientTimeout };
    if is_filtered {
        let pass = |client: &mut Client, context: &mut Context<'_>| poll_filtered(client, x, context);
        return match client.wait(watch, pass).await {
            Err(Fault::ClientTimeout) if own.is_some() => Ok(()),
            Err(fault) => Err(fault.into()),
            Ok(passed) => passed.map_err(Stop::from),
        };
    }
    loop {
        let read = client.wait(watch, |client, context| client.poll_fill(context)).await;
        match read {
            Err(Fault::ClientTimeout) if own.is_some() => return Ok(()),
            Err(fault) => return Err(fault.into()),
            Ok(Ok(n)) if n > 0 => {
                if receive(client, x) || is_ended(x) {
                    return Ok(());
                }
            }
            Ok(_) => {
                receive(client, x);
                if let Some(service) = &mut scripting::of(x).service {
                    service.is_ended = true;
                }
                return Ok(());
            }
        }
    }
}

fn is_ended(x: &Exchange) -> bool {
    let service = x.scripting.as_ref().and_then(|scripting| scripting.service.as_ref());
    service.is_none_or(|service| service.is_ended)
}

/// Takes the available input. Returns whether there was any.
fn receive(client: &mut Client, x: &mut Exchange) -> bool {
    let Some(service) = x.scripting.as_mut().and_then(|scripting| scripting.service.as_mut()) else {
        return false;
    };
    if service.is_ended {
        return false;
    }
    let before = service.input.len();
    match client.side.take_body(&mut x.upload, &mut service.input) {
        Ok(ended) => service.is_ended = ended,
        Err(_) => service.is_ended = true,
    }
    let received = (service.input.len() - before) as u64;
    x.txn.bytes_in += received;
    received > 0
}

/// Takes the input that the filters have passed on. Ready if there is any, or at its end.
///
/// # Errors
/// A filter failed.
fn poll_filtered(
    client: &mut Client,
    x: &mut Exchange,
    context: &mut Context<'_>,
) -> Poll<Result<(), Fault>> {
    let service = x.scripting.as_mut().and_then(|scripting| scripting.service.as_mut());
    let Some(mut input) = service.map(|service| std::mem::take(&mut service.input)) else {
        return Poll::Ready(Ok(()));
    };
    let (before, held) = (x.upload.received, input.len());
    // The longest part of a line that a service gets in one piece.
    let most = client.worker.shared.plan.global.tune.bufsize;
    let pumped = loop {
        let mut to = Sink::Memory(&mut input, most);
        let pumped = x.upload.poll_pump(context, client.side.source(), &mut to);
        if pumped.is_pending() {
            match pump::run(client, x, false, context) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => break Poll::Ready(Err(error)),
            }
        }
        break pumped;
    };
    x.txn.bytes_in += x.upload.received - before;
    let has_more = input.len() > held;
    if let Some(service) = x.scripting.as_mut().and_then(|scripting| scripting.service.as_mut()) {
        service.input = input;
        service.is_ended |= pumped.is_ready();
    }
    match pumped {
        Poll::Ready(Err(FlowError::Filter)) => Poll::Ready(Err(Fault::BadRequestBody)),
        // The service sees an error as the end of its input.
        Poll::Ready(_) => Poll::Ready(Ok(())),
        Poll::Pending if has_more => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    }
}

/// Serves a TCP stream with a service.
pub(crate) async fn relay(client: &mut Client, x: &mut Exchange) {
    x.phase = Phase::Data;
    begin(client, x, BodyLength::UntilClose);
    let times = &mut x.txn.times;
    (times.queued, times.connected) = (times.request, times.request);
    let mut answer = WaitAnswer::Nothing;
    loop {
        let step = service::step(client, x, Some(answer));
        if write(client, x).await.is_err() {
            x.txn.termination.set(Cause::Client, Phase::Data);
            break;
        }
        match step {
            Some(CallStep::Wait(wait)) => match await_for(client, x, wait).await {
                Ok(next) => answer = next,
                Err(Stop::Fault(fault)) => {
                    let (cause, phase) = fault.termination(x.phase);
                    x.txn.termination.set(cause, phase);
                    faults::note_late(client, x, fault);
                    break;
                }
                Err(_) => break,
            },
            _ => break,
        }
    }
    client.side.finish();
}

/// Sends the output of a TCP service.
async fn write(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    let Some(service) = &mut scripting::of(x).service else { return Ok(()) };
    let output = std::mem::take(&mut service.output);
    if output.is_empty() {
        return Ok(());
    }
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    let watch = Watch { leaving: false, late: Fault::ClientTimeout };
    let mut sent = 0;
    while sent < output.len() {
        client.timer.set_after(now_ms(), allowed);
        let write = |client: &mut Client, context: &mut Context<'_>| {
            let left = &output[sent..];
            client.side.sink().poll_write(context, left, &[], Following::Unknown)
        };
        match client.wait(watch, write).await? {
            Ok(n) if n > 0 => sent += n,
            _ => return Err(Fault::ClientAborted),
        }
    }
    x.txn.bytes_out += sent as u64;
    let flush = |client: &mut Client, context: &mut Context<'_>| client.side.sink().poll_flush(context);
    client.wait(watch, flush).await?.map_err(|_| Fault::ClientAborted)
}
