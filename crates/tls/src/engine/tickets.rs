//! rustls's own tickets and cache of sessions.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

/// Tickets under random keys, which are replaced as time passes.
pub(crate) fn random() -> Result<Arc<dyn ProducesTickets>, String> {
    Ticketer::new().map_err(|error| error.to_string())
}

/// A cache of sessions.
pub(crate) fn sessions(most: usize) -> Arc<dyn StoresServerSessions> {
    ServerSessionMemoryCache::new(most)
}
