//! An attempt beyond the first that a request makes: a retry or a hedge, counted among its backend's
//! until it is over.

use std::sync::Arc;

/// One that counts.
pub(crate) struct ExtraAttempt {
    backend: Arc<state::Proxy>,
    /// Whether it was allowed and has not begun yet.
    pub(crate) is_granted: bool,
}

impl ExtraAttempt {
    /// One of a request to `backend`, which was counted in already.
    pub(crate) fn new(backend: &Arc<state::Proxy>, is_granted: bool) -> Box<Self> {
        Box::new(Self { backend: backend.clone(), is_granted })
    }
}

impl Drop for ExtraAttempt {
    fn drop(&mut self) {
        self.backend.keep_extra().end();
    }
}
