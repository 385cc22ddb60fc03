//! What a cache has to do with one exchange: what its request was looked up as, what was found, what
//! is being kept.

use std::sync::Arc;

use cache::{CacheRequest, Conditions, Feed, FileFeed, Filling, Lead, Object, Store};

use crate::flow::Rank;

/// What a cache has to do with an exchange.
#[derive(Debug)]
pub(crate) struct Caching {
    /// The cache that was asked (`cache-use`).
    pub(crate) store: Arc<Store>,
    /// What the request is there.
    pub(crate) request: CacheRequest,
    /// What was found, to be delivered.
    pub(crate) found: Option<Given>,
    /// What is delivered if no server gives anything (`stale-if-error`).
    pub(crate) fallback: Option<Arc<Object>>,
    /// What is stale, about which the server is asked (`revalidation`).
    pub(crate) stale: Option<Arc<Object>>,
    /// What the client said itself of what it has, where the server is asked that.
    pub(crate) conditions: Option<Conditions>,
    /// What is kept of the response, until its body is on its way.
    pub(crate) filling: Option<Filling>,
    /// Where among the filters of the response that is done.
    pub(crate) rank: Rank,
    /// Who waits for the response, or gets what is stale until it is there.
    pub(crate) lead: Option<Lead>,
    /// Whether files were looked into (`disk`).
    pub(crate) has_read: bool,
    /// Whether the exchange has no client: it fetches what is stale anew.
    pub(crate) revalidates: bool,
}

/// What a cache gives.
#[derive(Debug)]
pub(crate) enum Given {
    /// A response that is kept.
    Kept(Arc<Object>),
    /// The response to another request, as it comes.
    Coming(Feed),
    /// A response that stands in a file and is sent out of it.
    Filed(FileFeed),
}

impl Caching {
    /// Nothing was found yet.
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
