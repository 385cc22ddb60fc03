//! Opens QUIC connections to servers (`server quic4@…`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::task::Context;

use ::quic::{ClientSettings, ConnectFailure, LostReason, ServerHandshake, Settings};
use net::Target;
use net::udp::UdpSocket;
use plan::Proxy;
use plan::dial::Buffers;
use plan::quic::Congestion;
use runtime::timer::{NEVER, now_ms, now_us};
use sample::transaction::TimeoutSlot;
use sample::{ConnectionError, Endpoint};
use state::sessions::Activity;

use crate::client::Client;
use crate::exchange::{Exchange, trace};
use crate::fault::Fault;
use crate::points;
use crate::routing::connect_wait::reach;
use crate::routing::server_target::{place, socket_options, target};
use crate::routing::{connect_error, server_tls};
use crate::server::h3::transport::{Http3Settings, QuicTransport};
use crate::server::h3::{OpenedHttp3, ServerTransport as _, TransportEnd};
use crate::server::per_worker::LocalServer;
use crate::server::{SharedRequest, Upstream};
use crate::stream::quic;
use crate::worker::Worker;

/// The error code with which a server refuses the connection (RFC 9000, 20.1).
const REFUSED: u64 = 2;

/// Opens a connection and starts the first request on it.
pub(super) async fn open(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    server: &Rc<LocalServer>,
    key: Box<[u8]>,
) -> Result<Upstream, Fault> {
    let unusable = Fault::ConnectFailed(ConnectionError::SOCKET);
    // Read before the address: if the address changes between the two reads, the connection counts as outdated.
    let moves = server.state.moves();
    let Some(to @ Target::Ip(address)) = target(client, x, server) else { return Err(unusable) };
    let mut opened = place(client, server).await?;
    opened.moves = moves;
    x.txn.server_target = Some(Endpoint::Ip(address));
    server.state.counters.mine().connects.add(1);
    backend.state.backend.mine().connects.add(1);
    let allowed = x.timeout(TimeoutSlot::Connect, backend.timeouts.connect);
    x.choice.connect_by = allowed.map_or(NEVER, |allowed| now_ms() + allowed.as_millis() as u64);
    client.entry.activity.set(Activity::Connecting);
    let watch = client.aborts_on_close(backend);
    let (mut transport, early) = start(client, x, backend, server, (&to, address))?;
    let step = |context: &mut Context<'_>| transport.poll_handshake(early, context).map_err(of_end);
    let mut reached = reach(client, x, watch, step).await;
    let details = transport.handshake_details();
    if let (Err(fault), Some(error)) = (&mut reached, details.failure) {
        *fault = server_tls::failed(error);
    }
    trace::events::server_tls(client, x, || Some(details.clone()), reached.as_ref().err().copied());
    if let Err(fault) = reached {
        x.txn.server_tls = Some(details);
        transport.abandon().await;
        return Err(fault);
    }
    if transport.is_connected() {
        server_tls::count_handshake(client, &details);
    }
    x.choice.is_early = !transport.is_connected();
    x.txn.times.connected = now_us();
    let asked = client.worker.shared.plan.variables.wants_backend_source();
    let ours = if asked { Endpoint::Ip(transport.local()) } else { Endpoint::Local };
    let ends = Some((ours, Endpoint::Ip(address)));
    let opened = OpenedHttp3 { transport, key, ends, for_one: false, open: opened };
    let request = client.worker.quic_carriers.begin(opened, backend.state.clone());
    Ok(Upstream::Stream(SharedRequest::H3(request)))
}

/// Creates the socket and the connection. Also returns whether early data may be sent.
fn start(
    client: &Client,
    x: &Exchange,
    backend: &Proxy,
    server: &LocalServer,
    (to, address): (&Target, SocketAddr),
) -> Result<(QuicTransport, bool), Fault> {
    let Some(tls) = &server.tls else { return Err(Fault::Internal) };
    let worker = &client.worker;
    let early = server_tls::may_be_early(client, x, backend, tls);
    let name = server_tls::server_name(client, x, server);
    // If the name is not text, it is not a valid host name either.
    let name = name.and_then(|name| String::from_utf8(name).ok()).map(String::into_boxed_str);
    let connector = tls.connector.clone();
    let handshake = ServerHandshake { connector, name, keep: server_tls::keep(client), early };
    let buffers = Buffers::of_datagrams(&worker.shared.plan.global.tune);
    let dial = socket_options(client, x, buffers, server, to);
    let transport = begin(worker, server, (&dial, address), handshake).map_err(|failure| match failure {
        NotBegun::Socket(error) => connect_error::by_kernel(&error),
        NotBegun::Connection(ConnectFailure::Address) => Fault::ConnectFailed(ConnectionError::SOCKET),
        NotBegun::Connection(ConnectFailure::Tls(error)) => server_tls::failed(error),
    })?;
    Ok((transport, early))
}

/// Why a connection was not started.
pub(super) enum NotBegun {
    /// The socket could not be opened.
    Socket(io::Error),
    /// The address or the TLS settings are unusable.
    Connection(ConnectFailure),
}

/// Creates the socket and the connection to a server that is reached over QUIC.
pub(super) fn begin(
    worker: &Worker,
    server: &LocalServer,
    (dial, address): (&net::Dial<'_>, SocketAddr),
    handshake: ServerHandshake,
) -> Result<QuicTransport, NotBegun> {
    let tune = &worker.shared.plan.global.tune;
    let socket = dial.connect_datagrams(address).and_then(UdpSocket::connected).map_err(NotBegun::Socket)?;
    let http = Http3Settings {
        config: &worker.proxy(server.backend).h2.h3_back,
        owns: tune.quic.zero_copy,
        segments: tune.quic.back.segmentation,
    };
    let prepared = server.quic_settings.get_or_init(|| {
        let line = server.quic.as_ref();
        let congestion = line.map_or((Congestion::default(), tune.quic.back.max_window), |line| {
            (line.congestion, line.max_window)
        });
        let settings = quic::settings(congestion, &tune.quic.back, &tune.quic, tune.bufsize);
        // Servers do not open streams for requests.
        ClientSettings::new(&Settings { max_streams: 0, ..settings })
    });
    let keys = points::of_server(&server.state, socket.as_fd().as_raw_fd() as u64 + 1);
    let backend = worker.proxy(server.backend).plan.state.clone();
    QuicTransport::new(socket, address, prepared, handshake, &http, backend, keys)
        .map_err(NotBegun::Connection)
}

/// Maps the end of a connection that ended before its handshake was complete.
fn of_end(end: TransportEnd) -> Fault {
    Fault::ConnectFailed(match end {
        TransportEnd::Socket(error) => return connect_error::by_kernel(&error),
        TransportEnd::Lost(LostReason::TimedOut) => return Fault::ConnectTimeout,
        TransportEnd::Lost(LostReason::Closed(REFUSED)) => ConnectionError::REFUSED,
        TransportEnd::Lost(_) => ConnectionError(tls::FailureKind::Handshake.facts().0),
    })
}
