//! Counts connections to servers, for the process and for each server, over all workers.

use std::rc::Rc;
use std::sync::Arc;

use runtime::shared::Shared as _;
use runtime::trace::TraceSource;
use state::{Process, Server};

use super::per_worker::LocalServer;
use crate::points;

/// Counts one open connection to a server, for the process and for the server.
pub(crate) struct Open {
    pub(crate) server: Rc<LocalServer>,
    /// How often the server's address had changed when the connection was opened.
    pub(crate) moves: u32,
    /// Whether the connection is now counted by another worker.
    handed: bool,
    /// The protocol, for traces.
    pub(super) source: TraceSource,
}

/// A connection that moves to another worker. It stays counted until that worker takes it or it is dropped.
pub(crate) struct OpenTransfer {
    process: Arc<Process>,
    server: Arc<Server>,
    moves: u32,
    taken: bool,
}

impl OpenTransfer {
    /// Counts the connection on this worker from now on, for the same server.
    pub(crate) fn take(mut self, server: &Rc<LocalServer>) -> Open {
        self.taken = true;
        Open { server: server.clone(), moves: self.moves, handed: false, source: TraceSource::H1 }
    }
}

impl Drop for OpenTransfer {
    fn drop(&mut self) {
        if !self.taken {
            close(&self.process, &self.server);
        }
    }
}

fn close(process: &Process, server: &Server) {
    process.server_connections.sub(1);
    server.open().sub(1);
}

impl Open {
    /// Whether the address of the server is still the one of this connection.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.moves == self.server.state.moves()
    }

    pub(crate) fn new(server: &Rc<LocalServer>) -> Self {
        server.state.open().add(1);
        Self::counted(server)
    }

    /// Counts one more connection if the server has fewer than `limit`.
    pub(crate) fn within(server: &Rc<LocalServer>, limit: u32) -> Option<Self> {
        server.state.open().take_below(limit).ok()?;
        Some(Self::counted(server))
    }

    fn counted(server: &Rc<LocalServer>) -> Self {
        server.process.server_connections.add(1);
        Self { server: server.clone(), moves: server.state.moves(), handed: false, source: TraceSource::H1 }
    }

    /// Passes the connection on to another worker.
    pub(crate) fn hand_over(mut self) -> OpenTransfer {
        self.handed = true;
        OpenTransfer {
            process: self.server.process.clone(),
            server: self.server.state.clone(),
            moves: self.moves,
            taken: false,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.handed {
            points::server_connection_over(self.source, &self.server.state);
            close(&self.server.process, &self.server.state);
        }
    }
}
