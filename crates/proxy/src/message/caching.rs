//! Asking a cache (`http-request cache-use`) and having it keep a response (`http-response
//! cache-store`; manual, chapter 6). What is found is delivered by `serve::cached`; the response's
//! body is kept by the flow that it goes through. Called by the driver of rule sets, and when a
//! response has been forwarded.

use std::sync::Arc;

use base::clock::WallTime;
use cache::{CacheRequest, FlightTurn, Follow, Landed, Loading, Lookup, Now, Object, Store};
use http::{BodyLength, Method};
use plan::Proxy;
use runtime::timer::now_ms;
use state::counters::Cached;

use crate::client::{Client, Watch};
use crate::exchange::{Caching, Exchange, Given};
use crate::fault::Fault;
use crate::flow::{Coding, Filter, Path, Rank};

/// What is to be done before rules go on.
pub(crate) enum Looked {
    /// Nothing.
    Done,
    /// This response with hints is to be sent.
    Hint(Box<[u8]>),
    /// The response to another request is to be waited for.
    Wait(Follow),
    /// What stands in a file is to be waited for.
    Read(Loading),
}

/// Looks for what answers the request.
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
            // It goes to the server itself where nobody could go for it.
            caching.found = stale.filter(|_| waits && x.original.is_some()).map(Given::Kept);
        }
        FlightTurn::Follows(follow) => return Looked::Wait(follow),
        FlightTurn::Alone => {}
    }
    Looked::Done
}

/// How long a file is waited for, in ms: a disk that takes longer is of no help.
const PATIENCE: u64 = 1000;

/// Waits for what stands in a file, and looks again; gives what is to be waited for then.
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

/// Waits for the response to another request, and looks again; until there is something, it is this
/// request's own turn, or it has waited as long as the cache says.
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
            // Each on their own then, also where there is no more time.
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

/// A response with what is known of the links of `object`, whole; `None` where that is nothing.
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

/// Counts for the proxy whose rule it is.
fn count(client: &Client, x: &Exchange, of_frontend: bool, add: impl Fn(&Cached)) {
    match &x.backend {
        Some(backend) if !of_frontend => add(&backend.state.backend.mine().cached),
        _ => add(&client.frontend.state.frontend.mine().cached),
    }
}

/// Has `store` keep the response, where it was asked about the request and all that RFC 9111 asks
/// for is so. Of requests that change the resource, what is kept of it goes.
pub(crate) fn store(client: &Client, x: &mut Exchange, proxy: &Proxy, store: &Arc<Store>) {
    let Some(caching) = &mut x.caching else { return };
    if !Arc::ptr_eq(&caching.store, store) {
        // Those who wait look where they were told to.
        pass(caching);
        store.adopt(&mut caching.request);
        caching.store = store.clone();
    }
    let method = x.txn.request.method_id();
    if CacheRequest::is_unsafe(method) {
        if matches!(x.txn.response.status(), 200..=399) {
            store.remove(&caching.request);
        }
        return;
    }
    let place = proxy.cache_places.of(&store.settings.name);
    let Some(place) = place.filter(|_| method == Method::Get && !x.head_only && !x.is_tunnel) else {
        return;
    };
    caching.rank = Rank { of_backend: proxy.index != client.frontend.index, place };
    let rank = caching.rank;
    let length = match x.response_body.length {
        BodyLength::None => Some(0),
        // What scripts before it make of it has a length of its own.
        _ if x.filtering.as_ref().is_some_and(|filtering| filtering.has_any_before(true, rank)) => None,
        BodyLength::Length(bytes) => Some(bytes),
        BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    let now = Now { ms: now_ms(), wall: WallTime::now().seconds };
    // What another rule began is over.
    caching.filling = None;
    caching.filling = store.begin(&caching.request, &x.txn.response, length, now);
    if let Some(filling) = &mut caching.filling {
        filling.lead(caching.lead.take());
    }
}

/// Whether a stale response is delivered instead of that of the server, which is an error
/// (`stale-if-error`).
pub(crate) fn helps(x: &mut Exchange) -> bool {
    let Some(caching) = &mut x.caching else { return false };
    if matches!(x.txn.response.status(), 500 | 502..=504) {
        caching.found = caching.fallback.take().map(Given::Kept);
    }
    let helps = caching.found.is_some();
    if helps {
        pass(caching);
    }
    helps
}

/// Whether what another request fetches, which was to answer this one, broke off meanwhile: the
/// request goes to a server itself.
#[cold]
pub(crate) fn has_found(x: &mut Exchange) -> bool {
    let Some(caching) = &mut x.caching else { return false };
    if matches!(&caching.found, Some(Given::Coming(feed)) if feed.is_cut()) {
        caching.found = None;
    }
    caching.found.is_some()
}

/// Has a request that goes to a server ask whether what is stale is still what it was
/// (`revalidation`; RFC 9111, 4.3.1).
#[cold]
pub(crate) fn ask(x: &mut Exchange) {
    let Some(caching) = &mut x.caching else { return };
    caching.stale = caching.stale.take().filter(|_| {
        caching.request.may_store
            && x.txn.request.method_id() == Method::Get
            && cache::may_validate(&x.txn.request)
    });
    if let Some(stale) = &caching.stale {
        caching.conditions = Some(cache::ask_whether(&mut x.txn.request, stale));
    }
}

/// What the server's response says of what is stale.
pub(crate) enum Validated {
    /// Nothing.
    Nothing,
    /// It is what it was: it answers the request.
    Fresh,
    /// The server speaks of something else: it is to be asked for the whole.
    Other,
}

/// Takes what the response says of what is stale (RFC 9111, 4.3.3).
#[cold]
pub(crate) fn validate(x: &mut Exchange) -> Validated {
    let Some(caching) = &mut x.caching else { return Validated::Nothing };
    let Some(stale) = caching.stale.take() else { return Validated::Nothing };
    if x.txn.response.status() != 304 {
        return Validated::Nothing;
    }
    if !cache::is_about(&x.txn.response, &stale) {
        caching.store.remove_object(&stale);
        return Validated::Other;
    }
    let now = Now { ms: now_ms(), wall: WallTime::now().seconds };
    let (fresh, is_kept) = caching.store.freshen(&stale, &x.txn.response, now);
    match caching.lead.take() {
        Some(lead) if is_kept => lead.keep(),
        Some(lead) => lead.pass(now.ms),
        None => {}
    }
    if caching.revalidates {
        // Nobody takes it.
        return Validated::Nothing;
    }
    caching.found = Some(Given::Kept(fresh));
    Validated::Fresh
}

/// What takes the response's body in, as it comes to the cache, if any of it leaves on `path`. What is
/// not being kept by now will not be.
#[cold]
pub(crate) fn filter(x: &mut Exchange, path: Path) -> Option<(Rank, Filter)> {
    let until_close = x.response_body.length == BodyLength::UntilClose;
    let caching = x.caching.as_mut()?;
    pass(caching);
    let filling = caching.filling.take()?;
    let rank = caching.rank;
    if path == Path::Payload(Coding::Nothing) {
        return None;
    }
    Some((rank, Filter::keep(filling, until_close)))
}

/// Nothing of the response is for others, if anything came of the request.
#[cold]
pub(crate) fn pass(caching: &mut Caching) {
    if let Some(lead) = caching.lead.take() {
        lead.pass(now_ms());
    }
}

/// The response has been forwarded to its end.
#[cold]
pub(crate) fn complete(x: &mut Exchange) {
    if let Some(filters) = &mut x.download.filters {
        filters.keep();
    }
}
