//! `http-response cache-store`: stores a response, through a filter in the flow that forwards its body.

use std::sync::Arc;

use base::clock::WallTime;
use cache::{CacheRequest, Now, Store};
use http::{BodyLength, Method};
use plan::Proxy;
use runtime::timer::now_ms;

use super::state::Caching;
use crate::client::Client;
use crate::exchange::Exchange;
use crate::flow::{Coding, Filter, Path, Rank};

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
