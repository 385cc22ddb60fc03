//! `http-response cache-store`: stores a response with a filter in the flow that forwards its body.

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

/// Stores the response in `store` if the request was looked up there and RFC 9111 allows it. An unsafe request instead removes
/// the stored responses for its resource.
pub(crate) fn store(client: &Client, x: &mut Exchange, proxy: &Proxy, store: &Arc<Store>) {
    let Some(caching) = &mut x.caching else { return };
    if !Arc::ptr_eq(&caching.store, store) {
        // Requests that wait will look in the store in which they wait.
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
        // Scripts that run before the cache may change the length.
        _ if x.filtering.as_ref().is_some_and(|filtering| filtering.has_any_before(true, rank)) => None,
        BodyLength::Length(bytes) => Some(bytes),
        BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    let now = Now { ms: now_ms(), wall: WallTime::now().seconds };
    // Ends a copy that another rule has started.
    caching.filling = None;
    caching.filling = store.begin(&caching.request, &x.txn.response, length, now);
    if let Some(filling) = &mut caching.filling {
        filling.lead(caching.lead.take());
    }
}

/// Returns the filter that stores the response's body if a body is sent on `path`. If the response is not stored, releases the
/// requests that wait for it.
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

/// Releases the requests that wait for this response. They are then sent to a server.
#[cold]
pub(crate) fn pass(caching: &mut Caching) {
    if let Some(lead) = caching.lead.take() {
        lead.pass(now_ms());
    }
}

/// Marks the response as completely forwarded.
#[cold]
pub(crate) fn complete(x: &mut Exchange) {
    if let Some(filters) = &mut x.download.filters {
        filters.keep();
    }
}
