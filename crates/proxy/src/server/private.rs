//! Server connections that are reserved for one client (`http-reuse never`, NTLM).

use std::rc::{Rc, Weak};

use super::h1::Connection;
use super::per_worker::LocalServer;

/// Identifies a client of this worker while it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientId(usize);

impl ClientId {
    /// Returns the ID of the client with this state, which all of its requests share.
    #[inline]
    pub(crate) fn of<T>(link: &Rc<T>) -> Self {
        Self(Rc::as_ptr(link).addr())
    }
}

/// A multiplexed connection that can be reserved for the requests of one client.
pub(crate) trait Reservable {
    /// Reserves the connection.
    fn reserve(&self, client: ClientId);

    /// Closes the connection once its current requests have ended.
    fn leave(&self);
}

/// The connections reserved for one client.
#[derive(Default)]
pub(crate) struct PrivateConnections {
    /// Idle HTTP/1 connections, oldest first.
    #[allow(clippy::vec_box)] // Passed on without moving its content.
    idle: Vec<Box<Connection>>,
    /// Multiplexed connections, oldest first.
    multiplexed: Vec<Weak<dyn Reservable>>,
}

impl PrivateConnections {
    /// Keeps an idle HTTP/1 connection. At most `most` connections are kept; the oldest are closed.
    pub(crate) fn keep(&mut self, connection: Box<Connection>, most: usize) {
        if self.make_room(most) {
            connection.server().state.counters.mine().private_idle.up();
            self.idle.push(connection);
        }
    }

    /// Reserves a multiplexed connection. At most `most` connections are kept; the oldest are closed.
    pub(crate) fn reserve(&mut self, connection: &Rc<dyn Reservable>, client: ClientId, most: usize) {
        connection.reserve(client);
        match self.make_room(most) {
            true => self.multiplexed.push(Rc::downgrade(connection)),
            false => connection.leave(),
        }
    }

    /// Takes an idle HTTP/1 connection to `server` with this key.
    pub(crate) fn take(&mut self, server: &LocalServer, key: &[u8]) -> Option<Box<Connection>> {
        let mut at = 0;
        while at < self.idle.len() {
            let connection = &mut self.idle[at];
            let is_usable = connection.socket.stream.is_idle() && connection.open.is_current();
            if is_usable && !(connection.server().is(server) && *connection.key == *key) {
                at += 1;
                continue;
            }
            let connection = self.remove_idle(at);
            if is_usable {
                return Some(connection);
            }
        }
        None
    }

    /// Returns the server of backend `backend` to which the client has authenticated itself over a connection.
    pub(crate) fn authenticated_server(&self, backend: usize) -> Option<Rc<LocalServer>> {
        let binds = |kept: &&Connection| {
            kept.private
                && kept.server().backend == backend
                && kept.socket.stream.is_quiet()
                && kept.open.is_current()
        };
        self.idle.iter().rev().map(Box::as_ref).find(binds).map(|kept| kept.open.server.clone())
    }

    /// Closes the oldest connections until there is room for one more. Returns false if this is impossible.
    fn make_room(&mut self, most: usize) -> bool {
        self.multiplexed.retain(|connection| connection.strong_count() > 0);
        while most > 0 && self.idle.len() + self.multiplexed.len() >= most {
            if !self.idle.is_empty() {
                drop(self.remove_idle(0));
            } else if let Some(connection) = self.multiplexed.remove(0).upgrade() {
                connection.leave();
            }
        }
        most > 0
    }

    fn remove_idle(&mut self, at: usize) -> Box<Connection> {
        let connection = self.idle.remove(at);
        connection.server().state.counters.mine().private_idle.down();
        connection
    }
}

impl Drop for PrivateConnections {
    fn drop(&mut self) {
        while let Some(connection) = self.idle.pop() {
            connection.server().state.counters.mine().private_idle.down();
            connection.discard();
        }
        self.multiplexed.iter().filter_map(Weak::upgrade).for_each(|connection| connection.leave());
    }
}
