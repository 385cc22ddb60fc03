//! Takes over idle connections from other workers of the group, for requests on this worker. Called by `connect`, and by `lend`
//! and `bridge` for the process's own requests.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use net::Stream;
use plan::ServerSettings;
use plan::quic::QmuxUse;
use sample::Endpoint;

use crate::flow::Socket;
use crate::server::h1::Connection;
use crate::server::h3::qmux::QmuxTransport;
use crate::server::h3::transport::QuicTransport;
use crate::server::per_worker::LocalServer;
use crate::server::pool::PoolQuery;
use crate::server::{self, SharedRequest, Upstream};
use crate::worker::Worker;

/// Whether another worker of the group may have an idle connection for this request. If clients provide the connections to the
/// server, any open connection suffices, because Weir cannot open one itself.
pub(crate) fn has_idle_elsewhere(worker: &Worker, settings: &ServerSettings, ask: PoolQuery<'_>) -> bool {
    if worker.group.len() <= 1 || !worker.shared.plan.global.tune.idle_pool_shared {
        return false;
    }
    let allowed = ask.least_uses().is_some();
    if settings.is_reverse {
        return allowed && settings.state.open().load(Relaxed) > 0;
    }
    let own = worker.index;
    // The threshold applies to the connections of the server on all workers (manual, 5.2 `pool-low-conn`).
    let (mut all, mut elsewhere) = (0, 0);
    for index in 0..runtime::shard::workers() {
        let idle = idle_of(settings, index);
        all += idle;
        elsewhere += if index != own && worker.group.contains(&index) { idle } else { 0 };
    }
    allowed && elsewhere > 0 && all >= i64::from(settings.pool_low_conn)
}

/// Returns the number of idle connections that a worker has to a server.
fn idle_of(server: &ServerSettings, worker: usize) -> i64 {
    server.state.counters.of_worker(worker).map_or(0, |counters| counters.idle.get())
}

/// An idle connection on its way to another worker.
enum TakenConnection {
    H1(Box<H1Transfer>),
    H2(Box<server::h2::H2Transfer>),
    H3(Box<server::h3::Http3Transfer<QuicTransport>>),
    Qmux(Box<server::h3::Http3Transfer<QmuxTransport>>),
}

/// An HTTP/1 connection.
struct H1Transfer {
    stream: net::Detached,
    uses: u32,
    glitches: u32,
    ends: Option<(Endpoint, Endpoint)>,
    late_nodelay: bool,
    open: server::OpenTransfer,
}

/// Takes over an idle connection from another worker of the group. If `shared` is set, it may be a multiplexed one, because this
/// worker has none.
pub(crate) async fn take_over(
    worker: &Worker,
    settings: &Rc<LocalServer>,
    PoolQuery { key, reuse, first, .. }: PoolQuery<'_>,
    shared: bool,
) -> Option<Upstream> {
    let own = worker.index;
    let may_have = |index: &usize| *index != own && (idle_of(settings, *index) > 0 || settings.is_reverse);
    for other in worker.group.clone().filter(may_have) {
        let (send, receive) = tokio::sync::oneshot::channel();
        let (proxy, server, key_wanted) = (settings.backend, settings.index, Box::<[u8]>::from(key));
        let generation = worker.shared.generation;
        let posted = runtime::worker::post(other, move || {
            let Some(worker) = crate::worker::current_of(generation) else { return };
            let Some(server) = worker.locals.known_server(proxy, server) else { return };
            let ask = PoolQuery { key: &key_wanted, reuse, first, client: None };
            if let Some(connection) = worker.pools.take(&server, ask) {
                let Connection { socket, uses, glitches, ends, late_nodelay, open, .. } = *connection;
                let (stream, open) = (socket.stream.detach(), open.hand_over());
                let handed = H1Transfer { stream, uses, glitches, ends, late_nodelay, open };
                // If the requester no longer waits, the connection is closed.
                let _ = send.send(TakenConnection::H1(Box::new(handed)));
            } else if shared && server.quic.is_some() {
                let give = |handed| drop(send.send(TakenConnection::H3(Box::new(handed))));
                worker.quic_carriers.hand_over(&server, ask, Box::new(give));
            } else if shared && server.qmux != QmuxUse::Never && worker.qmux_carriers.has_idle(&server, ask) {
                let give = |handed| drop(send.send(TakenConnection::Qmux(Box::new(handed))));
                worker.qmux_carriers.hand_over(&server, ask, Box::new(give));
            } else if shared {
                let give = |handed| drop(send.send(TakenConnection::H2(Box::new(handed))));
                worker.carriers.hand_over(&server, ask, Box::new(give));
            }
        });
        if !posted {
            continue;
        }
        match receive.await {
            Ok(TakenConnection::H1(handed)) => {
                return Some(Upstream::Socket(Box::new(Connection {
                    socket: Socket::new(Stream::attach(handed.stream)),
                    key: key.into(),
                    uses: handed.uses,
                    glitches: handed.glitches,
                    private: false,
                    ends: handed.ends,
                    late_nodelay: handed.late_nodelay,
                    open: handed.open.take(settings),
                })));
            }
            Ok(TakenConnection::H2(handed)) => {
                let backend = worker.local(settings.backend).held.clone();
                let request = worker.carriers.take_in(*handed, key, backend, settings);
                return Some(Upstream::Stream(SharedRequest::H2(request)));
            }
            Ok(TakenConnection::H3(handed)) => {
                let backend = worker.local(settings.backend).state.clone();
                let request = worker.quic_carriers.take_in(*handed, key, backend, settings)?;
                return Some(Upstream::Stream(SharedRequest::H3(request)));
            }
            Ok(TakenConnection::Qmux(handed)) => {
                let backend = worker.local(settings.backend).state.clone();
                let request = worker.qmux_carriers.take_in(*handed, key, backend, settings)?;
                return Some(Upstream::Stream(SharedRequest::Qmux(request)));
            }
            // That worker had no connection, or no longer has it.
            Err(_) => {}
        }
    }
    None
}
