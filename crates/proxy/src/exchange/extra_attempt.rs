//! An attempt of a request after its first: a retry or a hedge, counted by its backend until it is over.

use std::sync::Arc;

/// A counted attempt.
pub(crate) struct ExtraAttempt {
    backend: Arc<state::Proxy>,
    /// Whether it was allowed and has not started yet.
    pub(crate) is_granted: bool,
}

impl ExtraAttempt {
    /// Creates one for a request to `backend` that has counted it already.
    pub(crate) fn new(backend: &Arc<state::Proxy>, is_granted: bool) -> Box<Self> {
        Box::new(Self { backend: backend.clone(), is_granted })
    }
}

impl Drop for ExtraAttempt {
    fn drop(&mut self) {
        self.backend.keep_extra().end();
    }
}
