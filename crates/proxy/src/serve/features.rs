//! The optional features of an HTTP request: script filters, SPOE, mirrors, caches, traces and trace contexts (OpenTelemetry).
//! [`http`](super::http) calls one function of this module at each point of a request, in this order:
//!
//! [`begin`], [`routed`], [`request_head`], [`before_connect`], [`response`], [`response_rules`], [`response_head`],
//! [`before_answer`], [`body`], [`end`]; and [`stopped`] if the request ends early.
//!
//! The modules of the features list the features' hooks: `message::lua`, `evaluate::lua` and `serve::lua`; `evaluate::spoe`;
//! [`mirror`]; `exchange::cache` and `serve::cache`; [`trace`]; [`tracing`].
//!
//! For a request without features, each point costs one comparison. Points that may have to wait return a [`FeatureWait`].

use std::pin::Pin;
use std::rc::Rc;

use super::cache::answer;
use super::mirror;
use super::obtain::{note_status, obtain_response};
use crate::client::Client;
use crate::evaluate::spoe;
use crate::exchange::cache::keep;
use crate::exchange::cache::validation::{self, Validated};
use crate::exchange::{Exchange, Stop, trace, tracing};
use crate::message::{conclude, lua};
use crate::routing::assign::Lease;
use crate::server::Upstream;
use crate::server::per_worker::LocalProxy;

/// The part of a point that may have to wait. The caller awaits it.
pub(super) type FeatureWait<'a> = Pin<Box<dyn Future<Output = Result<(), Stop>> + 'a>>;

/// Called when the request has been received.
#[inline(always)]
pub(super) fn begin<'a>(client: &'a mut Client, x: &'a mut Exchange) -> Option<FeatureWait<'a>> {
    trace::filter::begin(x, &client.frontend);
    if client.frontend.trace_to.is_some() {
        tracing::begin(client, x);
    }
    if client.frontend.script_filters.is_none() && client.frontend.engines.is_empty() {
        return None;
    }
    Some(Box::pin(async move {
        if client.frontend.script_filters.is_some() {
            let frontend = client.frontend.clone();
            lua::steps::begin(client, x, &frontend).await?;
        }
        if !client.frontend.engines.is_empty() {
            spoe::begin(client, x).await?;
        }
        Ok(())
    }))
}

/// Called when the backend is chosen, before its rules run.
#[inline(always)]
pub(super) fn routed<'a>(
    client: &'a mut Client,
    x: &'a mut Exchange,
    backend: &'a LocalProxy,
) -> Option<FeatureWait<'a>> {
    trace::filter::backend(x, &client.frontend, backend);
    if backend.script_filters.is_none() || backend.index == client.frontend.index {
        spoe::join(client, x, backend);
        return None;
    }
    Some(Box::pin(async move {
        lua::steps::begin(client, x, backend).await?;
        spoe::join(client, x, backend);
        Ok(())
    }))
}

/// Called when all request rules have run and as much of the body as they need has arrived.
#[inline(always)]
pub(super) fn request_head<'a>(client: &'a mut Client, x: &'a mut Exchange) -> Option<FeatureWait<'a>> {
    if x.mirrors.is_some() {
        mirror::begin(client, x);
    }
    match x.filtering {
        None => None,
        Some(_) => Some(Box::pin(lua::steps::heads(client, x, false))),
    }
}

/// Called when the request is ready to be sent.
#[inline(always)]
pub(super) fn before_connect(x: &Exchange) {
    trace::filter::forwards_request(x);
}

/// Called with the server's response. A cache stores it, uses it to confirm a stored one, or requests the response again without
/// a condition.
///
/// # Errors
/// A stored response answers the request.
pub(super) async fn response(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    (mut upstream, mut lease): (Upstream, Lease),
) -> Result<(Upstream, Lease), Stop> {
    match validation::validate(x) {
        Validated::Nothing => {}
        Validated::Fresh => {
            conclude::early(client, x, backend, upstream, lease);
            return Err(Stop::Cached);
        }
        Validated::Other => {
            conclude::early(client, x, backend, upstream, lease);
            cache::ask_for_whole(&mut x.txn.request);
            x.txn.response.clear();
            (upstream, lease) = Box::pin(obtain_response::<true>(client, x, backend)).await?;
            note_status(client, x);
        }
    }
    if validation::helps(x) {
        upstream.reset();
        return Err(Stop::Cached);
    }
    Ok((upstream, lease))
}

/// Called before the response rules.
#[inline(always)]
pub(super) fn response_rules<'a>(client: &'a mut Client, x: &'a mut Exchange) -> Option<FeatureWait<'a>> {
    match x.filtering {
        None => None,
        Some(_) => Some(Box::pin(lua::steps::begin_response(client, x))),
    }
}

/// Called when all response rules have run.
#[inline(always)]
pub(super) fn response_head<'a>(client: &'a mut Client, x: &'a mut Exchange) -> Option<FeatureWait<'a>> {
    match x.filtering {
        None => None,
        Some(_) => Some(Box::pin(lua::steps::heads(client, x, true))),
    }
}

/// Called when the response is ready to be sent.
#[inline(always)]
pub(super) fn before_answer(client: &Client, x: &Exchange) {
    trace::filter::forwards_response(x);
    trace::events::answer(client, x);
}

/// Called when the response's body has been sent.
#[inline(always)]
pub(super) fn body(x: &mut Exchange) {
    if x.caching.is_some() {
        keep::complete(x);
    }
}

/// Called when the request ends early. Returns how it ends, which a cache may have changed.
#[cold]
pub(super) fn stopped(client: &mut Client, x: &mut Exchange, stop: Stop) -> Stop {
    let stop = if x.caching.is_some() { answer::instead_of(client, x, stop) } else { stop };
    trace::events::stopped(client, x, stop);
    stop
}

/// Called when the request is over.
#[inline(always)]
pub(super) fn end(client: &Client, x: &mut Exchange) {
    if x.filtering.is_some() {
        lua::steps::end(client, x);
    }
    trace::events::over(client, x);
}
