//! Calls script filters between the steps of an exchange: at its beginning, before a head is sent, and at its end.

use std::cell::RefCell;
use std::ops::Range;
use std::task::Context;

use lua::Callback;
use plan::Proxy;
use runtime::timer::{NEVER, now_ms};

use super::body::has_body;
use super::bridge::{FilterBridge, call, refused};
use crate::client::{Client, Watch};
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::message::{compression, framing};

/// Creates the filters of a proxy and calls their start functions.
///
/// # Errors
/// A filter failed.
#[cold]
pub(crate) async fn begin(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    let Some(own) = &proxy.script_filters else { return Ok(()) };
    let mut filtering = x.filtering.take().unwrap_or_default();
    let first = filtering.request.order.len();
    let mut made = Vec::with_capacity(own.0.len());
    for (declared, _) in &own.0 {
        let seat = FilterBridge {
            client,
            x: RefCell::new(x),
            filtering: RefCell::new(&mut filtering),
            place: usize::MAX,
            callback: Callback::Start,
        };
        made.push(declared.start(&seat).map_err(|_| refused(false))?);
    }
    let tune = &client.worker.shared.plan.global.tune;
    let of_backend = proxy.index != client.frontend.index;
    filtering.add(own, made, tune.bufsize.saturating_sub(tune.maxrewrite).max(1), of_backend);
    x.filtering = Some(filtering);
    call_filters(client, x, Callback::Start, false, first..usize::MAX).await
}

/// Called when the response was received.
///
/// # Errors
/// A filter failed.
#[cold]
pub(crate) async fn begin_response(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    call_filters(client, x, Callback::Start, true, ALL).await
}

/// Called when the head of a message is ready to be sent.
///
/// # Errors
/// A filter failed.
#[cold]
pub(crate) async fn heads(client: &mut Client, x: &mut Exchange, of_response: bool) -> Result<(), Stop> {
    let has_body = has_body(x, of_response);
    let Some(filtering) = &mut x.filtering else { return Ok(()) };
    if !has_body {
        filtering.end_at_once(of_response);
    }
    filtering.has_shown_request |= !of_response;
    let before = before_compression(client, x, of_response);
    call_filters(client, x, Callback::Headers, of_response, 0..before).await?;
    if before < usize::MAX {
        compress_between(client, x, of_response)?;
        call_filters(client, x, Callback::Headers, of_response, before..usize::MAX).await?;
    }
    if has_body {
        return Ok(());
    }
    call_filters(client, x, Callback::MessageEnd, of_response, ALL).await
}

/// Called when a cache or a built-in service has answered a request. Calls the filters for the request's head, unless they have
/// already seen it.
///
/// # Errors
/// A filter failed.
#[cold]
pub(crate) async fn head_of_answered(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    x.txn.has_response = false;
    let shown = head_for_service(client, x).await;
    x.txn.has_response = true;
    shown
}

/// Called when a service will answer a request. Calls the filters for the request's head, unless they have already seen it.
///
/// # Errors
/// A filter failed.
#[cold]
pub(crate) async fn head_for_service(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    let has_body = has_body(x, false);
    let Some(filtering) = &mut x.filtering else { return Ok(()) };
    if std::mem::replace(&mut filtering.has_shown_request, true) {
        return Ok(());
    }
    if !has_body {
        filtering.end_at_once(false);
    }
    call_filters(client, x, Callback::Headers, false, ALL).await?;
    match has_body {
        true => Ok(()),
        false => call_filters(client, x, Callback::MessageEnd, false, ALL).await,
    }
}

/// Returns the number of script filters before compression, or `usize::MAX` if none comes after it.
fn before_compression(client: &Client, x: &Exchange, of_response: bool) -> usize {
    let Some(rank) = compression::rank(client, x, of_response) else { return usize::MAX };
    let Some(filtering) = &x.filtering else { return usize::MAX };
    filtering.ranked(of_response).position(|(own, _)| own > rank).unwrap_or(usize::MAX)
}

/// Decides whether a body is compressed, so that later filters see the head that results.
fn compress_between(client: &Client, x: &mut Exchange, of_response: bool) -> Result<(), Fault> {
    if of_response {
        let is_framed = framing::frame_response(x)?;
        compression::decide_early(client, x, is_framed);
        return Ok(());
    }
    let backend = x.backend.clone().unwrap_or_else(|| client.frontend.clone());
    framing::frame_request(x)?;
    compression::of_request(client, x, &backend);
    Ok(())
}

/// All filters of a direction.
const ALL: Range<usize> = 0..usize::MAX;

/// Calls a function of a range of a direction's filters. A filter that waits is called again at the time that it requested.
async fn call_filters(
    client: &mut Client,
    x: &mut Exchange,
    callback: Callback,
    of_response: bool,
    which: Range<usize>,
) -> Result<(), Stop> {
    let mut at = which.start;
    loop {
        let Some(mut filtering) = x.filtering.take() else { return Ok(()) };
        let place = filtering.direction(of_response).order.get(at).copied();
        let place = place.filter(|_| at < which.end);
        let said = place.map(|place| call(client, x, &mut filtering, place, callback, of_response));
        let wake_at = place.and_then(|place| filtering.filters.get(place)).map_or(NEVER, |own| own.wake_at);
        x.filtering = Some(filtering);
        match said.transpose()? {
            None => return Ok(()),
            Some(Some(0)) => wait(client, wake_at).await?,
            Some(_) => at += 1,
        }
    }
}

/// Waits until an instant. If none is given, waits for `timeout client`.
async fn wait(client: &mut Client, until: u64) -> Result<(), Stop> {
    let is_endless = until == NEVER;
    match is_endless {
        true => client.timer.set_after(now_ms(), client.frontend.timeouts.client),
        false => client.timer.set(until.max(now_ms() + 1)),
    }
    let over = |client: &mut Client, context: &mut Context<'_>| client.timer.poll_expired(context);
    client.wait(Watch::KILL, over).await?;
    if is_endless { Err(Fault::Internal.into()) } else { Ok(()) }
}

/// Called when the stream is over: calls the end functions and drops the filters.
#[cold]
pub(crate) fn end(client: &Client, x: &mut Exchange) {
    let Some(mut filtering) = x.filtering.take() else { return };
    for of_response in [false, true] {
        for place in filtering.direction(of_response).order.clone() {
            // A failure is only logged, because the stream has already ended.
            let _ = call(client, x, &mut filtering, place, Callback::End, of_response);
        }
    }
}
