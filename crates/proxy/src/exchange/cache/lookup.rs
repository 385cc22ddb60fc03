//! `http-request cache-use`: looks up a stored response, and waits for a file or for the response to another request.
//! `serve::cache::answer` delivers the response.

use std::sync::Arc;

use cache::{FlightTurn, Follow, Landed, Loading, Lookup, Object, Store};
use runtime::timer::now_ms;
use state::counters::Cached;

use super::state::{Caching, Given};
use crate::client::{Client, Watch};
use crate::exchange::Exchange;
use crate::fault::Fault;

/// The action to take before the rules continue.
pub(crate) enum Looked {
    /// Nothing.
    Done,
    /// Send this interim response with hints.
    Hint(Box<[u8]>),
    /// Wait for the response to another request.
    Wait(Follow),
    /// Wait until a cache file has been read.
    Read(Loading),
}

/// Looks up a stored response to the request.
pub(crate) fn look_up(
    client: &Client,
    x: &mut Exchange,
    of_frontend: bool,
    store: Arc<Store>,
    hints: bool,
) -> Looked {
    if x.caching.as_ref().is_some_and(|caching| caching.found.is_some() || caching.revalidates) {
        return Looked::Done;
    }
    let Some(request) = store.request(&x.txn.request) else { return Looked::Done };
    let mut caching = Box::new(Caching::new(store, request));
    let mut looked = Looked::Done;
    if caching.request.may_use {
        count(client, x, of_frontend, |counters| counters.lookups.add(1));
        looked = find(x, &mut caching, hints);
    }
    match &looked {
        Looked::Done if caching.found.is_some() => {
            count(client, x, of_frontend, |counters| counters.hits.add(1));
        }
        Looked::Hint(_) => count(client, x, of_frontend, |counters| counters.hint_hits.add(1)),
        _ => {}
    }
    if caching.found.is_none() || caching.lead.is_some() {
        let Caching { store, request, .. } = &mut *caching;
        store.prepare(request, &x.txn.request);
    }
    x.caching = Some(caching);
    looked
}

fn find(x: &Exchange, caching: &mut Caching, hints: bool) -> Looked {
    let now = now_ms();
    let store = &caching.store;
    let mut stale = None;
    match store.find(&caching.request, &x.txn.request, now) {
        Lookup::Fresh(object) => {
            caching.found = Some(Given::Kept(object));
            return Looked::Done;
        }
        Lookup::Stale(object) => stale = Some(object),
        Lookup::Hints(_) | Lookup::Nothing if !caching.has_read && store.files.is_some() => {}
        Lookup::Hints(object) if hints => {
            if let Some(hint) = early_hint(&object) {
                return Looked::Hint(hint);
            }
        }
        Lookup::Hints(_) | Lookup::Nothing => {}
    }
    if !std::mem::replace(&mut caching.has_read, true)
        && let Some(loading) = store.find_file(&caching.request, &x.txn.request, now, stale.is_some())
    {
        return Looked::Read(loading);
    }
    let waits = stale.as_ref().is_some_and(|object| object.may_wait(now));
    caching.fallback = stale.clone().filter(|object| object.may_help(now));
    caching.stale = stale.clone().filter(|object| store.settings.revalidation && object.has_validator());
    if !waits && store.settings.wait_ms == 0 {
        return Looked::Done;
    }
    match store.board(&caching.request, &x.txn.request, now) {
        FlightTurn::Follows(_) | FlightTurn::Joins(_) | FlightTurn::Alone if waits => {
            caching.found = stale.map(Given::Kept)
        }
        FlightTurn::Joins(feed) => caching.found = Some(Given::Coming(feed)),
        FlightTurn::Leads(lead) => {
            caching.lead = Some(lead);
            // Without a copy of the original request, this request itself does the revalidation at the server.
            caching.found = stale.filter(|_| waits && x.original.is_some()).map(Given::Kept);
        }
        FlightTurn::Follows(follow) => return Looked::Wait(follow),
        FlightTurn::Alone => {}
    }
    Looked::Done
}

/// How long to wait for a file, in ms. If the disk takes longer, a server is faster.
const PATIENCE: u64 = 1000;

/// Waits for a file, then repeats the lookup. Returns the next step.
///
/// # Errors
/// The client left, or an operator ended the request.
pub(crate) async fn read(
    client: &mut Client,
    x: &mut Exchange,
    of_frontend: bool,
    leaving: bool,
    mut loading: Loading,
    hints: bool,
) -> Result<Looked, Fault> {
    client.timer.set(now_ms().saturating_add(PATIENCE));
    let watch = Watch { leaving, late: Fault::Internal };
    let loaded = match client.wait(watch, |_, context| loading.poll_loaded(context)).await {
        Ok(loaded) => loaded,
        Err(Fault::Internal) => None,
        Err(fault) => return Err(fault),
    };
    let Some(mut caching) = x.caching.take() else { return Ok(Looked::Done) };
    let looked = match loaded.and_then(|loaded| loaded.feed(now_ms())) {
        Some(feed) => {
            caching.found = Some(Given::Filed(feed));
            Looked::Done
        }
        None => find(x, &mut caching, hints),
    };
    if caching.found.is_some() {
        count(client, x, of_frontend, |counters| counters.hits.add(1));
    }
    if let Looked::Hint(_) = looked {
        count(client, x, of_frontend, |counters| counters.hint_hits.add(1));
    }
    x.caching = Some(caching);
    Ok(looked)
}

/// Waits for the response to another request and then repeats the lookup, until a response is found, this request must fetch it,
/// or the cache's `wait` expires.
///
/// # Errors
/// The client left, or an operator ended the request.
pub(crate) async fn wait(
    client: &mut Client,
    x: &mut Exchange,
    of_frontend: bool,
    leaving: bool,
    first: Follow,
) -> Result<(), Fault> {
    let Some(caching) = &x.caching else { return Ok(()) };
    let until = now_ms().saturating_add(caching.store.settings.wait_ms);
    let mut follow = first;
    loop {
        client.timer.set(until);
        let watch = Watch { leaving, late: Fault::Internal };
        match client.wait(watch, |_, context| follow.poll_landed(context)).await {
            Ok(Landed::Kept | Landed::Abandoned | Landed::Begun) => {}
            // The request is sent to a server, as after the timeout.
            Ok(Landed::Passed) | Err(Fault::Internal) => return Ok(()),
            Err(fault) => return Err(fault),
        }
        let Some(mut caching) = x.caching.take() else { return Ok(()) };
        let looked = find(x, &mut caching, false);
        if caching.found.is_some() {
            count(client, x, of_frontend, |counters| counters.hits.add(1));
        }
        x.caching = Some(caching);
        match looked {
            Looked::Wait(again) if now_ms() < until => follow = again,
            _ => return Ok(()),
        }
    }
}

/// Returns a complete 103 response with the links of `object`, or `None` if it has no links.
fn early_hint(object: &Object) -> Option<Box<[u8]>> {
    let lines = cache::hints(&object.head);
    if lines.is_empty() {
        return None;
    }
    let mut text = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
    for line in lines {
        text.extend_from_slice(b"link: ");
        text.extend_from_slice(&line);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    Some(text.into())
}

/// Counts the lookup at the proxy that has the rule.
fn count(client: &Client, x: &Exchange, of_frontend: bool, add: impl Fn(&Cached)) {
    match &x.backend {
        Some(backend) if !of_frontend => add(&backend.state.backend.mine().cached),
        _ => add(&client.frontend.state.frontend.mine().cached),
    }
}

/// Whether there is a response to deliver. If the response to another request was cut off, it does not count, and this request is
/// sent to a server.
#[cold]
pub(crate) fn has_found(x: &mut Exchange) -> bool {
    let Some(caching) = &mut x.caching else { return false };
    if matches!(&caching.found, Some(Given::Coming(feed)) if feed.is_cut()) {
        caching.found = None;
    }
    caching.found.is_some()
}
