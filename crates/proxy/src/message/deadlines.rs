//! The timeouts of both sides of an exchange while bytes flow, and which side each of them applies to. Called by `response` and
//! `download`.

use std::time::Duration;

use plan::Proxy;
use runtime::timer::{self, NEVER};
use sample::transaction::TimeoutSlot;

use crate::client::Client;
use crate::exchange::Exchange;

/// The deadlines of both sides while bytes flow. The timer is set to the earlier of the two.
pub(super) struct Deadlines {
    client: Option<Duration>,
    server: Option<Duration>,
    pub(super) client_at: u64,
    pub(super) server_at: u64,
    /// `option independent-streams` of the frontend and of the backend.
    independent: (bool, bool),
    /// The bytes received from each side when its deadline was last restarted.
    seen: (u64, u64),
}

impl Deadlines {
    pub(super) fn new(client: &Client, x: &Exchange, backend: &Proxy) -> Self {
        Self {
            client: x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client),
            server: server_limit(x, backend),
            client_at: NEVER,
            server_at: NEVER,
            independent: (client.frontend.options.independent_streams, backend.options.independent_streams),
            seen: (u64::MAX, u64::MAX),
        }
    }

    /// Restarts the deadlines at `now`: the client's if Weir waits for the client (`client`), and the server's if it waits for
    /// the server (`server`).
    pub(super) fn restart(&mut self, connection: &Client, now: u64, client: bool, server: bool) {
        let at = |waited: bool, timeout: Option<Duration>| match timeout {
            Some(timeout) if waited => now.saturating_add(timeout.as_millis() as u64),
            _ => NEVER,
        };
        self.client_at = at(client, self.client);
        self.server_at = at(server, self.server);
        connection.timer.set(self.client_at.min(self.server_at));
    }

    /// Like [`restart`](Self::restart), after progress. With `option independent-streams`, sending bytes to a side is not
    /// activity of that side. A side is active if bytes are received from it, or if it accepts bytes that were blocked.
    pub(super) fn moved(&mut self, connection: &Client, x: &Exchange, client: bool, server: bool) {
        let before = (self.client_at, self.server_at);
        self.restart(connection, timer::now_ms(), client, server);
        if self.independent == (false, false) {
            return;
        }
        let seen = (x.upload.received, x.download.received);
        if self.independent.0 && seen.0 == self.seen.0 && !x.download.is_blocked() {
            self.client_at = self.client_at.min(before.0);
        }
        if self.independent.1 && seen.1 == self.seen.1 && !x.upload.is_blocked() {
            self.server_at = self.server_at.min(before.1);
        }
        self.seen = seen;
        connection.timer.set(self.client_at.min(self.server_at));
    }

    /// Returns the side with the expired deadline.
    pub(super) fn expired(&self) -> Expired {
        if self.server_at < self.client_at { Expired::Server } else { Expired::Client }
    }
}

#[derive(PartialEq, Eq)]
pub(super) enum Expired {
    Client,
    Server,
}

/// Returns the server's timeout, or zero if the server already timed out while rules inspected its response.
fn server_limit(x: &Exchange, backend: &Proxy) -> Option<Duration> {
    let whole = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
    if x.response_body.is_silent { Some(Duration::ZERO) } else { whole }
}

/// Whether Weir waits for the server: for its response if it has the whole request, otherwise for it to accept the available
/// bytes. A server is not blamed if a client sends its body slowly.
pub(super) fn server_owes(x: &Exchange) -> bool {
    x.upload.is_received() || x.upload.is_blocked()
}

/// Whether Weir waits for the client to send more of the request. It does not while the server is blocked.
pub(super) fn client_owes(x: &Exchange) -> bool {
    !x.upload.is_received() && !x.upload.is_blocked()
}
