//! Starts HTTP/3 over QMux on connections to servers (`proto qmux`, or `alpn h3` over TCP).

use std::os::fd::{AsFd, AsRawFd};
use std::task::Context;

use net::Stream;
use runtime::timer::now_us;
use sample::ConnectionError;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::points;
use crate::routing::connect_wait::reach;
use crate::server::h3::qmux::QmuxTransport;
use crate::server::h3::{OpenedHttp3, ServerTransport as _};
use crate::server::per_worker::LocalServer;
use crate::server::shared::OpenedConnection;
use crate::server::{SharedRequest, Upstream};
use crate::stream::{h3, quic};
use crate::worker::Worker;

/// Exchanges transport parameters on a new connection and starts the first request on it, within the remaining connect timeout.
/// If the client is watched (`option abortonclose`), the attempt ends when the client leaves.
pub(super) async fn begin(
    client: &mut Client,
    x: &mut Exchange,
    opened: OpenedConnection,
    watch: bool,
) -> Result<Upstream, Fault> {
    let OpenedConnection { socket, preamble, key, ends, for_one, open } = opened;
    let mut transport = transport(&client.worker, &open.server, socket, preamble);
    let step = |context: &mut Context<'_>| {
        transport.poll_parameters(context).map_err(|_| Fault::ConnectFailed(ConnectionError::QMUX))
    };
    if let Err(fault) = reach(client, x, watch, step).await {
        x.txn.server_tls = transport.details();
        transport.abandon().await;
        return Err(fault);
    }
    x.txn.times.connected = now_us();
    let backend = client.worker.local(open.server.backend).state.clone();
    let opened = OpenedHttp3 { transport, key, ends, for_one, open };
    let request = client.worker.qmux_carriers.begin(opened, backend);
    Ok(Upstream::Stream(SharedRequest::Qmux(request)))
}

/// Creates the connection to a server over a socket.
pub(super) fn transport(
    worker: &Worker,
    server: &LocalServer,
    socket: Stream,
    preamble: Vec<u8>,
) -> QmuxTransport {
    let tune = &worker.shared.plan.global.tune;
    let back = &tune.quic.back;
    let quic = quic::settings((Default::default(), back.max_window), back, &tune.quic, tune.bufsize);
    // Servers do not open streams for requests.
    let settings = ::quic::Settings { max_streams: 0, ..h3::qmux_settings(quic) };
    let config = &worker.proxy(server.backend).h2.h3_back;
    let keys = points::of_server(&server.state, socket.as_fd().as_raw_fd() as u64 + 1);
    QmuxTransport::new(socket, preamble, &settings, config, tune.quic.zero_copy, keys)
}
