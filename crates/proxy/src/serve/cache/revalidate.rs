//! Refreshes stale responses in the background while clients get the stored one (`stale-while-revalidate`). A copy of the
//! original request is sent, and only the cache reads its response. The copy passes through all rules, and is counted and logged
//! like the original. Started by `answer`.

use std::cell::{Cell, OnceCell};
use std::pin::Pin;

use cache::Lead;
use runtime::Boxed;

use crate::client::Client;
use crate::exchange::{Arrival, Caching, Exchange};
use crate::serve::internal_request::{self, InternalBody, InternalRequest};

/// Serves one request on a connection.
pub(super) type Serve = fn(Boxed<Client>, Arrival) -> Pin<Box<dyn Future<Output = ()>>>;

/// Maximum number of concurrent refreshes per worker.
const MOST: usize = 64;

thread_local! {
    /// The function with which the calling worker serves requests.
    static SERVE: OnceCell<Serve> = const { OnceCell::new() };
    /// The number of running refreshes.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Sets the function.
pub(crate) fn install(serve: Serve) {
    SERVE.with(|cell| {
        // A second call sets the same function.
        let _ = cell.set(serve);
    });
}

/// Starts a copy of the request of `x`. The requests that wait for `lead` wait for the copy instead.
pub(crate) fn begin(client: &Client, x: &mut Exchange, lead: Lead) {
    let Some(serve) = SERVE.with(|cell| cell.get().copied()) else { return };
    let (Some(original), Some(caching)) = (x.original.take(), &x.caching) else { return };
    let Some(running) = InternalRequest::begin(&RUNNING, MOST) else { return };
    let (store, request) = (caching.store.clone(), caching.request.clone());
    // Skipped if no descriptor is available.
    let Ok(taker) = internal_request::client(client, InternalBody::Whole(Vec::new())) else { return };
    let mut again = Exchange::take();
    again.txn.request = *original;
    // The client's conditions are removed: the cache uses its own condition, or needs the whole response.
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
