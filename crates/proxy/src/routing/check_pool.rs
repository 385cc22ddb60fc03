//! Lends idle connections to health checks, and accepts connections that checks have opened (`check-reuse-pool`).
//!
//! A check uses the same connections as the first request of a client, because Weir can send neither of them again. It is counted
//! neither as a request nor as a connection. Called by the binary, for `health`, on the worker that runs the check.

use std::rc::Rc;
use std::sync::Arc;

use net::Stream;
use plan::proxy::Reuse;
use plan::server::UseSource;
use plan::{Proxy, ServerSettings};
use sample::Endpoint;

use crate::flow::Socket;
use crate::routing::connect::set_options;
use crate::routing::takeover::{has_idle_elsewhere, take_over};
use crate::server::h1::{Connection, PoolKey};
use crate::server::per_worker::LocalServer;
use crate::server::pool::PoolQuery;
use crate::server::{Open, Upstream};
use crate::worker::{Worker, current};

/// An idle connection lent to a check. Dropping it closes the connection.
pub struct Lent(Box<Connection>);

impl Lent {
    /// Returns the connection.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.0.socket.stream
    }

    /// Returns the connection to the pool. The connection must be idle.
    pub fn give_back(self) {
        if let Some(worker) = current() {
            worker.pools.put(self.0);
        }
    }
}

/// Takes an idle connection to `server`, for a request with the connection name `name` (empty if it has none).
pub async fn take(backend: &Proxy, server: &Arc<ServerSettings>, name: &str) -> Option<Lent> {
    let (worker, local) = find(backend, server)?;
    let key = key(name);
    let ask = PoolQuery { key: &key, reuse: backend.reuse, first: true, client: None };
    let mut idle = worker.pools.take(&local, ask);
    if idle.is_none() && has_idle_elsewhere(&worker, &local, ask) {
        idle = match take_over(&worker, &local, ask, false).await {
            Some(Upstream::Socket(connection)) => Some(connection),
            Some(Upstream::Stream(_)) | None => None,
        };
    }
    let mut connection = idle?;
    connection.send_at_once();
    connection.uses += 1;
    Some(Lent(connection))
}

/// Adds a check's idle connection to the pool. `moves` is how often the address of `server` had changed when the connection was
/// opened.
pub fn keep(backend: &Proxy, server: &Arc<ServerSettings>, name: &str, stream: Stream, moves: u32) {
    let Some((worker, local)) = find(backend, server) else { return stream.reset_on_close() };
    let limit = local.state.maxconn.load(std::sync::atomic::Ordering::Relaxed);
    let open = match local.strict_maxconn && limit > 0 {
        true => Open::within(&local, limit),
        false => Some(Open::new(&local)),
    };
    let Some(mut open) = open.filter(|_| backend.reuse != Reuse::Never) else {
        return stream.reset_on_close();
    };
    open.moves = moves;
    set_options(&stream, backend);
    let asked = worker.shared.plan.variables.wants_backend_source();
    let ours = stream.local().filter(|_| asked).map_or(Endpoint::Local, Endpoint::Ip);
    let ends = Some((ours, stream.peer().map_or(Endpoint::Local, Endpoint::Ip)));
    worker.pools.put(Box::new(Connection {
        socket: Socket::new(stream),
        key: key(name),
        uses: 1,
        glitches: 0,
        private: false,
        ends,
        late_nodelay: false,
        open,
    }));
}

/// Returns the server on the calling worker, if its connections do not depend on the client.
pub(super) fn find(backend: &Proxy, server: &Arc<ServerSettings>) -> Option<(Rc<Worker>, Rc<LocalServer>)> {
    let own_source = |source: &plan::server::SourceAddress| {
        matches!(source.transparent, UseSource::No | UseSource::Fixed(_))
    };
    if server.state.port_offset().is_some()
        || server.state.is_unspecified()
        || !server.source.as_deref().is_none_or(own_source)
    {
        return None;
    }
    here(backend, server)
}

/// Returns the server on the calling worker.
pub(super) fn here(backend: &Proxy, server: &Arc<ServerSettings>) -> Option<(Rc<Worker>, Rc<LocalServer>)> {
    let worker = current()?;
    // The check may belong to another plan, in which this index may stand for another server.
    worker.shared.proxies.get(backend.index)?;
    let local = worker.local(backend.index).server(server.index)?;
    Arc::ptr_eq(&local.state, &server.state).then_some((worker, local))
}

/// Returns the pool key for requests that differ only in their name (`connect::pool_key`).
pub(super) fn key(name: &str) -> PoolKey {
    match name {
        "" => PoolKey::default(),
        _ => [b"\0", name.as_bytes()].concat().into(),
    }
}
