//! Decides whether connections stay open after a response, depending on the configuration and the state of the process.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use plan::Proxy;
use plan::proxy::ConnectionMode;
use runtime::timer;
use state::proxy::Admission;

use super::{Client, Link};
use crate::worker;

impl Link {
    /// Whether the server's connection is kept open. `option httpclose` in the backend, or `option http-server-close` in either
    /// proxy, closes it.
    pub(crate) fn keeps_server(&self, backend: &Proxy) -> bool {
        backend.options.connection == ConnectionMode::KeepAlive
            && self.frontend.options.connection != ConnectionMode::ServerClose
    }

    /// Whether the client's connection may carry another request.
    pub(crate) fn may_stay(&self) -> bool {
        let mode = self.frontend.options.connection;
        mode != ConnectionMode::Close
            && !self.worker.is_stopping()
            && !self.is_left_behind()
            && !self.is_shut_down()
            && !self.is_crowded()
    }

    /// Whether a newer plan without this frontend is in use.
    fn is_left_behind(&self) -> bool {
        self.worker.is_old()
            && worker::current().is_none_or(|now| now.same_frontend(&self.frontend).is_none())
    }

    /// Whether only this frontend was shut down. At a soft stop, all frontends are shut down, and `close-spread-time` spreads the
    /// closing over time.
    fn is_shut_down(&self) -> bool {
        self.frontend.state.admission() == Admission::Stopped
            && !self.worker.shared.process.closing.load(Relaxed)
    }

    /// Whether the frontend's connection limit was lowered below the current number of connections. Connections are then closed
    /// after their request.
    fn is_crowded(&self) -> bool {
        let state = &self.frontend.state;
        let limit = state.maxconn.load(Relaxed);
        limit > 0 && state.connections.load(Relaxed) > limit
    }
}

/// Grace period for requests that may already be in transit on an idle connection when its frontend is removed.
const SETTLED_MS: u64 = 500;

impl Client {
    /// Switches to the current plan between requests, if that plan still contains the frontend.
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
        // Streams in progress hold the old link and finish with it.
        if let Some(link) = Rc::get_mut(&mut self.link) {
            let last = link.last_server.take().upgrade();
            if let Some(server) = last.and_then(|server| now.same_server(&server)) {
                link.last_server.replace(Rc::downgrade(&server));
            }
            link.frontend = frontend;
            link.worker = now;
        }
    }

    /// Sets a short deadline for an idle connection if its frontend was removed.
    #[inline]
    pub(crate) fn limit_rest(&mut self) {
        if self.link.worker.is_old() && self.is_left_behind() {
            let until = (self.idle_from / 1000 + SETTLED_MS).max(timer::now_ms() + 1);
            self.timer.set(self.timer.deadline().min(until));
        }
    }
}
