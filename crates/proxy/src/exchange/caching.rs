//! What a cache has to do with one exchange: what its request was looked up as, what was found, what
//! is being kept.

use std::sync::Arc;

use cache::{Filling, Object, Request, Store};

/// What a cache has to do with an exchange.
#[derive(Debug)]
pub(crate) struct Caching {
    /// The cache that was asked (`cache-use`).
    pub(crate) store: Arc<Store>,
    /// What the request is there.
    pub(crate) request: Request,
    /// What was found.
    pub(crate) found: Option<Arc<Object>>,
    /// What is kept of the response, until its body is on its way.
    pub(crate) filling: Option<Filling>,
}
