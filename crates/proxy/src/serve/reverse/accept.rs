//! `tcp-request session attach-srv`: converts a client's connection to a server connection, over which requests are sent to the
//! client (reverse HTTP, accepting side). Called by `session`.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use h2::Role;
use plan::global::LogErrors;
use plan::proxy::Reuse;
use runtime::timer;
use sample::Endpoint;
use state::sessions::Activity;

use super::handshake::{Reversal, ReversalFailure};
use crate::client;
use crate::evaluate::Attach;
use crate::routing::connect::set_options;
use crate::serve::multiplexed;
use crate::server::Open;
use crate::server::h2_pool::IdleHttp2;
use crate::server::per_worker::LocalServer;
use crate::stream::h2::{H2Connection, H2Engine};
use crate::stream::{ReceivedBytes, Reset};
use crate::worker::Worker;

/// Why the connection was not attached.
enum AttachEnd {
    Reversal(ReversalFailure),
    Late,
    Killed,
}

/// Hands the HTTP/2 connection of `client` to the server named by a rule.
pub(crate) async fn attach(mut client: client::ClientConnection, attach: Attach) {
    if client.side.is_early() && !Box::pin(client.settle()).await {
        return;
    }
    let worker = client.worker.clone();
    let Some(server) = find(&worker, &attach.server) else { return client.side.reset() };
    let config = worker.proxy(server.backend).h2.back.clone();
    let engine = H2Engine::reversed(Role::Client, &config);
    let connection = H2Connection::new(engine, client.side.descriptor(), client.side.tls().is_some());
    let reader = ReceivedBytes::new(client.socket().input.take());
    let busy_from = worker.shared.plan.global.tune.glitches.cpu_usage;
    let mut reversal = Reversal::new(connection, reader, busy_from);
    client.session.http_major.set(2);
    client.entry.activity.set(Activity::Waiting);
    let timeouts = &client.frontend.timeouts;
    client.timer.set_after(timer::now_ms(), timeouts.http_request.or(timeouts.client));
    let reversed = poll_fn(|context| {
        if let Poll::Ready(reversed) = reversal.poll(&mut client.socket().stream, context) {
            return Poll::Ready(reversed.map_err(AttachEnd::Reversal));
        }
        if client.poll_killed(context).is_ready() {
            return Poll::Ready(Err(AttachEnd::Killed));
        }
        client.timer.poll_expired(context).map(|()| Err(AttachEnd::Late))
    })
    .await;
    reversal.connection.count(&client.frontend.state.frontend.mine().h2);
    match reversed {
        Ok(()) if may_have(&server, &worker) => hand_over(client, &attach, &worker, server, reversal),
        Ok(()) => refuse(client, &reversal, Some(Reset::Internal)).await,
        Err(AttachEnd::Late | AttachEnd::Killed) => refuse(client, &reversal, None).await,
        Err(AttachEnd::Reversal(ReversalFailure::Broken)) => {
            multiplexed::count_invalid_request(&client, LogErrors::Connection);
            client.linger().await;
        }
        Err(AttachEnd::Reversal(ReversalFailure::Gone)) => {}
    }
}

/// Returns the calling worker's view of the server.
fn find(worker: &Rc<Worker>, wanted: &state::Server) -> Option<Rc<LocalServer>> {
    let is_it = |server: &plan::ServerSettings| std::ptr::eq(&*server.state, wanted);
    let backend = worker.shared.proxies.iter().find(|proxy| *proxy.plan.state.name == *wanted.proxy)?;
    let place = backend.plan.servers.iter().position(|server| is_it(&server))?;
    worker.local(backend.plan.index).server(place)
}

/// Whether the server may have one more connection.
fn may_have(server: &LocalServer, worker: &Worker) -> bool {
    worker.proxy(server.backend).plan.reuse != Reuse::Never
        && !server.state.admin().in_maintenance()
        // No other limit applies, because these do not count as client connections.
        && server.keeps_idle()
}

/// Rejects the client's connection.
async fn refuse(mut client: client::ClientConnection, reversal: &Reversal, reset: Option<Reset>) {
    reversal.connection.close(reset);
    let socket = &mut client.socket().stream;
    poll_fn(|context| {
        let _ = reversal.connection.send(socket, context);
        Poll::Ready(())
    })
    .await;
    client.linger().await;
}

/// Moves the connection out of the client's session, which then ends.
fn hand_over(
    mut client: client::ClientConnection,
    attach: &Attach,
    worker: &Rc<Worker>,
    server: Rc<LocalServer>,
    reversal: Reversal,
) {
    // If no descriptor is free, the client may reconnect.
    let Ok(socket) = client.socket().stream.take() else { return client.side.reset() };
    let Reversal { connection, reader, .. } = reversal;
    let Some(connection) = Rc::into_inner(connection) else { return };
    let backend = worker.local(server.backend);
    set_options(&socket, &backend);
    let backend = backend.held.clone();
    let end = |address: Option<std::net::SocketAddr>| address.map_or(Endpoint::Local, Endpoint::Ip);
    let ends = Some((end(socket.local()), end(socket.peer())));
    let open = Open::new(&server);
    worker.carriers.attach(IdleHttp2 {
        socket,
        engine: connection.engine.into_inner(),
        reader,
        is_settled: true,
        uses: 0,
        key: attach.name.clone(),
        ends,
        backend,
        open,
    });
}
