//! The cache state of one exchange: the lookup key, the response found, and the response being stored.

use std::sync::Arc;

use cache::{CacheRequest, Conditions, Feed, FileFeed, Filling, Lead, Object, Store};

use crate::flow::Rank;

/// The cache state of an exchange.
#[derive(Debug)]
pub(crate) struct Caching {
    /// The cache that was last searched (`cache-use`).
    pub(crate) store: Arc<Store>,
    /// The parts of the request that the cache needs.
    pub(crate) request: CacheRequest,
    /// The response to deliver.
    pub(crate) found: Option<Given>,
    /// The response to deliver if the server fails (`stale-if-error`).
    pub(crate) fallback: Option<Arc<Object>>,
    /// The stale response to revalidate at the server (`revalidation`).
    pub(crate) stale: Option<Arc<Object>>,
    /// The client's own conditions, if the proxy revalidates a response.
    pub(crate) conditions: Option<Conditions>,
    /// The entry that is being written, until the body is sent.
    pub(crate) filling: Option<Filling>,
    /// The rank of the storing filter among the filters of the response.
    pub(crate) rank: Rank,
    /// Wakes the requests that wait for the response. Until it arrives, they may get a stale one.
    pub(crate) lead: Option<Lead>,
    /// Whether the files were already searched (`disk`).
    pub(crate) has_read: bool,
    /// Whether the exchange has no client: it refreshes a stale response in the background.
    pub(crate) revalidates: bool,
}

/// A response from a cache.
#[derive(Debug)]
pub(crate) enum Given {
    /// A stored response.
    Kept(Arc<Object>),
    /// The response to another request, delivered as it arrives.
    Coming(Feed),
    /// A response that is stored in a file and sent from it.
    Filed(FileFeed),
}

impl Caching {
    /// Creates the state of an exchange that has found nothing yet.
    pub(crate) fn new(store: Arc<Store>, request: CacheRequest) -> Self {
        let (found, fallback, stale, conditions, filling, lead) = (None, None, None, None, None, None);
        Self {
            store,
            request,
            found,
            fallback,
            stale,
            conditions,
            filling,
            lead,
            rank: Rank { of_backend: false, place: 0 },
            has_read: false,
            revalidates: false,
        }
    }
}
