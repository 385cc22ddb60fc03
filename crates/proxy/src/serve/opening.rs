//! The beginning of a client's connection, for all transports: counters, the session, and the rules that run before the first
//! request.

use std::rc::Rc;

use base::clock::WallTime;
use plan::bind::Bind;
use runtime::worker::ConnectionGuard;
use sample::track::{self, Trackers};
use sample::{Accepted, Endpoint, Ends, Session};
use state::sessions;

use crate::client::{ClientConnection, Downstream};
use crate::evaluate::{self, Attach};
use crate::worker::Worker;

/// The connection was refused.
pub(super) struct ConnectionRefused;

/// Counts a new connection.
pub(super) fn count_connection(worker: &Worker, frontend: &plan::Proxy, bind: &Bind, now_ms: u64) {
    let counters = frontend.state.frontend.mine();
    counters.traffic.sessions.up();
    if let Some(of_listener) = bind.listener.mine() {
        of_listener.traffic.sessions.up();
    }
    counters.connections_total.add(1);
    counters.connection_rate.tick(now_ms);
    let of_process = worker.shared.process.counters.mine();
    of_process.connections.add(1);
    of_process.connection_rate.tick(now_ms);
    if bind.tls.is_some() {
        // Counted before the handshake, because the limit protects against excessive handshakes.
        of_process.tls_rate.tick(now_ms);
    }
}

/// Creates the connection state for `ends`: the client's endpoint and the local one.
pub(super) fn new_connection(
    worker: Rc<Worker>,
    (frontend, bind): (usize, usize),
    side: Downstream,
    ends: [Option<std::net::SocketAddr>; 2],
    us: u64,
    load: ConnectionGuard,
    tls_place: Option<tls::ConnectionPermit>,
) -> ClientConnection {
    let frontend = worker.local(frontend);
    let [source, destination] = ends.map(|address| address.map_or(Endpoint::Local, Endpoint::Ip));
    let wall = WallTime::now();
    let id = worker.session_id();
    let session = Session::new(Accepted {
        ends: Ends { source, destination },
        wall_us: wall.since_1970_us(),
        us,
        frontend: frontend.held.clone(),
        listener: frontend.listener(bind),
        id,
    });
    let entry = sessions::register(&frontend.held, ends[0], destination.address(), us / 1000);
    entry.client_fd.set(side.descriptor());
    ClientConnection::new(worker, frontend, side, session, entry, load, tls_place)
}

/// Runs the connection and session rules. Returns `false` if the connection is refused.
pub(super) async fn follow_rules(client: &mut ClientConnection) -> bool {
    let refused = evaluate::tcp_connection(client).await.is_err();
    if refused {
        count_refused_connection(client);
    }
    !refused && accept_session(client).await.is_ok()
}

/// Whether the frontend has no rules that run before the first byte.
pub(super) fn is_plain(connection: &ClientConnection) -> bool {
    connection.frontend.tcp_connection.is_empty() && connection.frontend.tcp_session.is_empty()
}

pub(super) fn count_session(connection: &ClientConnection) {
    let now_ms = connection.session.ready_us.get() / 1000;
    connection.count(|traffic| {
        traffic.sessions_total.add(1);
        traffic.session_rate.tick(now_ms);
    });
    connection.worker.shared.process.counters.mine().session_rate.tick(now_ms);
    track::note(&connection.session, &Trackers::default(), track::CountedEvent::Session, now_ms);
}

/// `tcp-request session` rules.
pub(super) async fn accept_session(
    connection: &mut ClientConnection,
) -> Result<Option<Box<Attach>>, ConnectionRefused> {
    evaluate::tcp_session(connection).await.map_err(|_| {
        connection.frontend.state.frontend.mine().denied_sessions.add(1);
        if let Some(of_listener) = connection.session.listener.mine() {
            of_listener.denied_sessions.add(1);
        }
        ConnectionRefused
    })
}

pub(super) fn count_refused_connection(connection: &ClientConnection) {
    connection.frontend.state.frontend.mine().denied_connections.add(1);
    if let Some(of_listener) = connection.session.listener.mine() {
        of_listener.denied_connections.add(1);
    }
}
