//! Whether connections are kept after a response, as far as the configuration and the process are
//! concerned.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use plan::Proxy;
use plan::proxy::ConnectionMode;
use runtime::timer;
use state::proxy::Admission;

use super::{Client, Link};
use crate::worker;

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
            && !self.is_left_behind()
            && !self.is_shut_down()
            && !self.is_crowded()
    }

    /// Whether another plan is in use, which does not have the frontend.
    fn is_left_behind(&self) -> bool {
        self.worker.is_old()
            && worker::current().is_none_or(|now| now.same_frontend(&self.frontend).is_none())
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

/// How long a connection that was idle when its frontend went may have its next request on the way.
const SETTLED_MS: u64 = 500;

impl Client {
    /// Between requests: goes on as the plan says that is in use, where that has the frontend.
    #[inline]
    pub(crate) fn follow_plan(&mut self) {
        if self.link.worker.is_old() {
            self.change_plan();
        }
    }

    #[cold]
    fn change_plan(&mut self) {
        let Some(now) = worker::current() else { return };
        let Some(frontend) = now.same_frontend(&self.link.frontend) else { return };
        // Streams that are still served hold it, and are served as they began.
        if let Some(link) = Rc::get_mut(&mut self.link) {
            let last = link.last_server.take().upgrade();
            if let Some(server) = last.and_then(|server| now.same_server(&server)) {
                link.last_server.replace(Rc::downgrade(&server));
            }
            link.frontend = frontend;
            link.worker = now;
        }
    }

    /// An idle connection whose frontend is gone rests no longer.
    #[inline]
    pub(crate) fn limit_rest(&mut self) {
        if self.link.worker.is_old() && self.is_left_behind() {
            let until = (self.idle_from / 1000 + SETTLED_MS).max(timer::now_ms() + 1);
            self.timer.set(self.timer.deadline().min(until));
        }
    }
}
