//! Fetching anew what is stale, while clients get what there is (`stale-while-revalidate`): the
//! request that found it is made once more, as it came, with nobody to take its response but the
//! cache. It follows all rules, and is counted and logged as the first one was. Begun by `answer`.

use std::cell::{Cell, OnceCell};
use std::pin::Pin;

use cache::Lead;
use runtime::Boxed;

use crate::client::Client;
use crate::exchange::{Arrival, Caching, Exchange};
use crate::serve::internal_request::{self, InternalBody, InternalRequest};

/// Serves one request on a connection.
pub(super) type Serve = fn(Boxed<Client>, Arrival) -> Pin<Box<dyn Future<Output = ()>>>;

/// So many are on their way at once for each worker.
const MOST: usize = 64;

thread_local! {
    /// How the calling worker serves requests.
    static SERVE: OnceCell<Serve> = const { OnceCell::new() };
    /// How many it fetches anew.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Sets that.
pub(crate) fn install(serve: Serve) {
    SERVE.with(|cell| {
        // A second call says the same.
        let _ = cell.set(serve);
    });
}

/// Begins a request like that of `x`, which those who wait for `lead` wait for.
pub(crate) fn begin(client: &Client, x: &mut Exchange, lead: Lead) {
    let Some(serve) = SERVE.with(|cell| cell.get().copied()) else { return };
    let (Some(original), Some(caching)) = (x.original.take(), &x.caching) else { return };
    let Some(running) = InternalRequest::begin(&RUNNING, MOST) else { return };
    let (store, request) = (caching.store.clone(), caching.request.clone());
    // Nothing is fetched where there is no descriptor to spare.
    let Ok(taker) = internal_request::client(client, InternalBody::Whole(Vec::new())) else { return };
    let mut again = Exchange::take();
    again.txn.request = *original;
    // What its client has is no matter: the cache wants to know of what it has itself, or the whole.
    cache::ask_for_whole(&mut again.txn.request);
    let stale = caching.stale.clone();
    let caching = Caching { lead: Some(lead), stale, revalidates: true, ..Caching::new(store, request) };
    again.caching = Some(Box::new(caching));
    let served = serve(taker, Arrival::Stream(again));
    tokio::task::spawn_local(async move {
        let _running = running;
        served.await;
    });
}
