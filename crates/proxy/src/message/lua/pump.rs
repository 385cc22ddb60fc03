//! Moves payload through script filters. Each filter is called for the bytes that reach it.

use std::task::{Context, Poll};

use lua::{Callback, Payload};
use runtime::timer::now_ms;

use super::body::flow;
use super::bridge::call;
use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::lua::filtering::Filtering;
use crate::fault::Fault;
use crate::flow::FlowError;
use crate::server::Upstream;

/// Advances the request, through filters if there are any.
#[inline]
pub(crate) fn poll_upload(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    match x.filtering {
        None => x.upload.poll_pump(context, client.side.source(), &mut upstream.sink()),
        Some(_) => poll_filtered_upload(client, x, upstream, context),
    }
}

/// Advances the response, through filters if there are any.
#[inline]
pub(crate) fn poll_download(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    match x.filtering {
        None => x.download.poll_pump(context, upstream.source(), &mut client.side.sink()),
        Some(_) => poll_filtered_download(client, x, upstream, context),
    }
}

#[cold]
fn poll_filtered_upload(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    loop {
        let pumped = x.upload.poll_pump(context, client.side.source(), &mut upstream.sink());
        if pumped.is_ready() || !run(client, x, false, context)? {
            return pumped;
        }
    }
}

#[cold]
fn poll_filtered_download(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    loop {
        let pumped = x.download.poll_pump(context, upstream.source(), &mut client.side.sink());
        if pumped.is_ready() || !run(client, x, true, context)? {
            return pumped;
        }
    }
}

/// Calls the filters that have new payload, in order. Returns whether the direction can make progress.
///
/// # Errors
/// A filter failed, or the body's length differs from the length in its head.
pub(crate) fn run(
    client: &Client,
    x: &mut Exchange,
    of_response: bool,
    context: &mut Context<'_>,
) -> Result<bool, FlowError> {
    let stages = flow(x, of_response).scripts();
    if stages.is_empty() {
        return Ok(false);
    }
    let Some(mut filtering) = x.filtering.take() else { return Ok(false) };
    let woken = filtering.poll_woken(context);
    let (mut has_come, mut goes_on) = (false, false);
    for at in stages {
        let shown = show(client, x, &mut filtering, of_response, at, woken);
        let FilterOutcome { is_news, passes } = match shown {
            Ok(shown) => shown,
            Err(error) => {
                x.filtering = Some(filtering);
                return Err(error);
            }
        };
        has_come |= is_news;
        goes_on |= passes;
    }
    if woken {
        filtering.forget_woken();
    }
    if (woken || has_come) && filtering.poll_woken(context) {
        // A filter has requested another call in this turn.
        context.waker().wake_by_ref();
    }
    x.filtering = Some(filtering);
    Ok(goes_on)
}

/// The result of [`show`].
#[derive(Default)]
struct FilterOutcome {
    /// Whether there was new payload.
    is_news: bool,
    /// Whether the direction can make progress: the filter forwarded payload, or accepts more.
    passes: bool,
}

/// Calls the filter at stage `at` with its new payload (or, if the filter was woken, with the payload that it holds), and
/// forwards its output.
fn show(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    of_response: bool,
    at: usize,
    woken: bool,
) -> Result<FilterOutcome, FlowError> {
    let side = usize::from(of_response);
    let mut bytes = Vec::new();
    let room = |place: usize| filtering.filters.get(place).map_or(0, |own| room(&own.parts[side].payload));
    let unseen = flow(x, of_response).take_unseen(at, &mut bytes, room);
    let Some(unseen) = unseen else { return Ok(FilterOutcome::default()) };
    if !unseen.is_news && !woken {
        return Ok(FilterOutcome::default());
    }
    let Some(own) = filtering.filters.get_mut(unseen.place) else { return Ok(FilterOutcome::default()) };
    let payload = &mut own.parts[side].payload;
    payload.is_ended |= unseen.is_ended;
    if !payload.is_cut {
        payload.input.append(&mut bytes);
    }
    filter(client, x, filtering, unseen.place, of_response).map_err(|_| FlowError::Filter)?;
    let Some(own) = filtering.filters.get_mut(unseen.place) else { return Ok(FilterOutcome::default()) };
    let part = &mut own.parts[side];
    let bytes = std::mem::take(&mut part.payload.output);
    let (is_over, is_full) = (part.is_over, part.payload.is_full());
    flow(x, of_response).put_from_script(at, &bytes, is_over, is_full)?;
    let takes_more = unseen.is_news && !unseen.is_ended && !is_full;
    Ok(FilterOutcome { is_news: unseen.is_news, passes: is_over || !bytes.is_empty() || takes_more })
}

/// Returns how many more bytes a filter can hold. A filter that has ended its message discards any number of bytes.
fn room(payload: &Payload) -> usize {
    if payload.is_cut { usize::MAX } else { payload.limit.saturating_sub(payload.input.len()) }
}

/// Calls one filter with the payload of a direction that it holds.
fn filter(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    place: usize,
    of_response: bool,
) -> Result<(), Fault> {
    let side = usize::from(of_response);
    let callback = if x.txn.is_http { Callback::Payload } else { Callback::Bytes };
    let Some(own) = filtering.filters.get(place) else { return Ok(()) };
    let part = &own.parts[side];
    let mut most = usize::MAX;
    if part.sees_data && !part.payload.input.is_empty() {
        let said = call(client, x, filtering, place, callback, of_response)?;
        most = said.map_or(usize::MAX, |number| usize::try_from(number).unwrap_or(0));
    }
    let Some(own) = filtering.filters.get_mut(place) else { return Ok(()) };
    let part = &mut own.parts[side];
    part.payload.forward(most);
    let payload = &part.payload;
    if !payload.input.is_empty() && !payload.output.is_empty() {
        // The filter is called again for the remaining payload, after the other filters.
        own.wake_at = own.wake_at.min(now_ms());
        return Ok(());
    }
    if part.is_over || !payload.is_ended || !payload.input.is_empty() {
        return Ok(());
    }
    let waits =
        x.txn.is_http && call(client, x, filtering, place, Callback::MessageEnd, of_response)? == Some(0);
    if let Some(own) = filtering.filters.get_mut(place) {
        let part = &mut own.parts[side];
        // Output that the end function produced is still forwarded.
        part.payload.forward(usize::MAX);
        part.is_over = !waits && !part.payload.is_open;
    }
    Ok(())
}
