//! Whether connections are kept after a response, as far as the configuration and the process are
//! concerned.

use std::sync::atomic::Ordering::Relaxed;

use plan::Proxy;
use plan::proxy::ConnectionMode;
use state::proxy::Admission;

use super::Link;

impl Link {
    /// Whether the server's connection is kept: `option httpclose` of the backend closes it,
    /// `option http-server-close` of either.
    pub(crate) fn keeps_server(&self, backend: &Proxy) -> bool {
        backend.options.connection == ConnectionMode::KeepAlive
            && self.frontend.options.connection != ConnectionMode::ServerClose
    }

    /// Whether the client's connection may take another request.
    pub(crate) fn may_stay(&self) -> bool {
        let mode = self.frontend.options.connection;
        mode != ConnectionMode::Close
            && !self.worker.is_stopping()
            && !self.is_shut_down()
            && !self.is_crowded()
    }

    /// Whether the frontend was shut down by itself. At a soft stop all are, and that says how soon
    /// who goes (`close-spread-time`).
    fn is_shut_down(&self) -> bool {
        self.frontend.state.admission() == Admission::Stopped
            && !self.worker.shared.process.closing.load(Relaxed)
    }

    /// Whether the frontend's own connection limit has been lowered below what it serves; then
    /// connections close after their request instead of staying.
    fn is_crowded(&self) -> bool {
        let state = &self.frontend.state;
        let limit = state.maxconn.load(Relaxed);
        limit > 0 && state.connections.load(Relaxed) > limit
    }
}
