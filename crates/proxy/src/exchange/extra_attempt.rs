//! A further attempt at a request: a retry or a hedge. The backend counts it until it is over.

use std::sync::Arc;

/// A counted attempt.
pub(crate) struct ExtraAttempt {
    backend: Arc<state::Proxy>,
    /// Whether the attempt was allowed and has not started yet.
    pub(crate) is_granted: bool,
}

impl ExtraAttempt {
    /// Creates a further attempt at a request to `backend`, which has already counted the attempt.
    pub(crate) fn new(backend: &Arc<state::Proxy>, is_granted: bool) -> Box<Self> {
        Box::new(Self { backend: backend.clone(), is_granted })
    }
}

impl Drop for ExtraAttempt {
    fn drop(&mut self) {
        self.backend.keep_extra().end();
    }
}
