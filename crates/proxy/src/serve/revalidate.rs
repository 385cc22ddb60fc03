//! Fetching anew what is stale, while clients get what there is (`stale-while-revalidate`): the
//! request that found it is made once more, as it came, with nobody to take its response but the
//! cache. It follows all rules, and is counted and logged as the first one was. Begun by `cached`.

use std::cell::{Cell, OnceCell};
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::Pin;

use cache::Lead;
use runtime::Boxed;
use tokio::io::AsyncReadExt as _;

use crate::client::Client;
use crate::exchange::{Arrival, Caching, Exchange};

/// Serves one request on a connection.
pub(super) type Serve = fn(Boxed<Client>, Arrival) -> Pin<Box<dyn Future<Output = ()>>>;

/// So many are on their way at once for each worker: nobody waits for them, so that no limit of
/// connections bounds them.
const MOST: usize = 64;

thread_local! {
    /// How the calling worker serves requests.
    static SERVE: OnceCell<Serve> = const { OnceCell::new() };
    /// How many it fetches anew.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// One that is on its way.
struct Running;

impl Running {
    /// One more, if there may be.
    fn begin() -> Option<Self> {
        let running = RUNNING.get();
        (running < MOST).then(|| {
            RUNNING.set(running + 1);
            Self
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
    }
}

/// Sets that.
pub(super) fn install(serve: Serve) {
    SERVE.with(|cell| {
        // A second call says the same.
        let _ = cell.set(serve);
    });
}

/// Begins a request like that of `x`, which those who wait for `lead` wait for.
pub(super) fn begin(client: &Client, x: &mut Exchange, lead: Lead) {
    let Some(serve) = SERVE.with(|cell| cell.get().copied()) else { return };
    let (Some(original), Some(caching)) = (x.original.take(), &x.caching) else { return };
    let Some(running) = Running::begin() else { return };
    let (store, request) = (caching.store.clone(), caching.request.clone());
    // Nothing is fetched where there is no descriptor to spare.
    let Ok((own, other)) = pair() else { return };
    let mut again = Exchange::take();
    again.txn.request = *original;
    let caching = Caching { lead: Some(lead), revalidates: true, ..Caching::new(store, request) };
    again.caching = Some(Box::new(caching));
    tokio::task::spawn_local(discard(other));
    let served = serve(client.aside(own), Arrival::Stream(again));
    tokio::task::spawn_local(async move {
        let _running = running;
        served.await;
    });
}

fn pair() -> io::Result<(UnixStream, tokio::net::UnixStream)> {
    let (own, other) = UnixStream::pair()?;
    own.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((own, tokio::net::UnixStream::from_std(other)?))
}

/// Takes what nobody wants, to its end.
async fn discard(mut stream: tokio::net::UnixStream) {
    let mut bytes = vec![0; 16 * 1024];
    while matches!(stream.read(&mut bytes).await, Ok(read) if read > 0) {}
}
