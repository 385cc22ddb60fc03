//! Asking a cache (`http-request cache-use`) and having it keep a response (`http-response
//! cache-store`; manual, chapter 6). What is found is delivered by `serve::cached`; the response's
//! body is kept by the flow that it goes through. Called by the driver of rule sets, and when a
//! response has been forwarded.

use std::sync::Arc;

use base::clock::WallTime;
use cache::{Found, Now, Object, Request, Store};
use http::{BodyLength, Method};
use plan::Proxy;
use runtime::timer::now_ms;
use state::counters::Cached;

use crate::client::Client;
use crate::exchange::{Caching, Exchange};

/// Looks for what answers the request. What is returned is a response with hints, to be sent ahead
/// of the final one.
pub(crate) fn look_up(
    client: &Client,
    x: &mut Exchange,
    of_frontend: bool,
    store: Arc<Store>,
    hints: bool,
) -> Option<Box<[u8]>> {
    if x.caching.as_ref().is_some_and(|caching| caching.found.is_some()) {
        return None;
    }
    let mut request = store.request(&x.txn.request)?;
    let (mut found, mut hint) = (None, None);
    if request.may_use {
        count(client, x, of_frontend, |counters| counters.lookups.add(1));
        match store.find(&request, &x.txn.request, now_ms()) {
            Found::Fresh(object) => {
                count(client, x, of_frontend, |counters| counters.hits.add(1));
                found = Some(object);
            }
            Found::Hints(object) if hints => hint = early_hint(&object),
            Found::Hints(_) | Found::Nothing => {}
        }
    }
    if hint.is_some() {
        count(client, x, of_frontend, |counters| counters.hint_hits.add(1));
    }
    if found.is_none() {
        store.prepare(&mut request, &x.txn.request);
    }
    x.caching = Some(Box::new(Caching { store, request, found, filling: None }));
    hint
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
pub(crate) fn store(x: &mut Exchange, proxy: &Proxy, store: &Arc<Store>) {
    let Some(caching) = &mut x.caching else { return };
    if !Arc::ptr_eq(&caching.store, store) {
        store.adopt(&mut caching.request);
        caching.store = store.clone();
    }
    let method = x.txn.request.method_id();
    if Request::is_unsafe(method) {
        if matches!(x.txn.response.status(), 200..=399) {
            store.remove(&caching.request);
        }
        return;
    }
    if method != Method::Get || x.head_only || x.is_tunnel || !proxy.stores_responses {
        return;
    }
    let length = match x.response_body.length {
        BodyLength::None => Some(0),
        BodyLength::Length(bytes) => Some(bytes),
        BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    let now = Now { ms: now_ms(), wall: WallTime::now().seconds };
    // What another rule began is over.
    caching.filling = None;
    caching.filling = store.begin(&caching.request, &x.txn.response, length, now);
}

/// The response has been forwarded to its end.
#[cold]
pub(crate) fn complete(x: &mut Exchange) {
    if let Some(filters) = &mut x.download.filters {
        filters.keep();
    }
}
