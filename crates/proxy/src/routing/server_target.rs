//! The address of a new connection to a server, the options of its socket, and its slot among the server's connections. Called by
//! [`connect`](super::connect) and [`connect_quic`](super::connect_quic).

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use net::Target;
use plan::dial::Buffers;
use plan::server::UseSource;
use plan::{ServerSettings, dial};
use runtime::timer;
use sample::ConnectionError;
use state::server::ServerAddress;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::routing::connect_error;
use crate::server::Open;
use crate::server::per_worker::LocalServer;

/// Counts the connection that is about to be opened. If descriptors are running out (`tune.pool-high-fd-ratio`) or the server has
/// reached its `maxconn` (`strict-maxconn`), an idle connection is closed to make room.
pub(super) async fn place(client: &Client, server: &Rc<LocalServer>) -> Result<Open, Fault> {
    let worker = &client.worker;
    let process = &worker.shared.process;
    if base::memory::is_short() {
        return Err(connect_error::by_memory());
    }
    if process.uses(&process.crowded_from_fds) {
        worker.pools.evict_any(&worker.locals);
    }
    let limit = server.state.maxconn.load(Relaxed);
    if !server.strict_maxconn || limit == 0 {
        return Ok(Open::new(server));
    }
    let of = (server.backend, server.index);
    let group = || worker.group.clone().filter(|index| *index != worker.index);
    let (mut others, mut patience) = (group(), 20u32);
    loop {
        if let Some(open) = Open::within(server, limit) {
            return Ok(open);
        }
        if worker.pools.evict(server) {
            continue;
        }
        let Some(other) = others.next() else {
            // A connection that is being returned or closed at this moment is still counted.
            patience = patience.checked_sub(1).ok_or(Fault::Resource(ConnectionError::CONFIGURED_LIMIT))?;
            timer::sleep(Duration::from_millis(1)).await;
            others = group();
            continue;
        };
        let (send, receive) = tokio::sync::oneshot::channel();
        let generation = worker.shared.generation;
        runtime::worker::post(other, move || {
            if let Some(worker) = crate::worker::current_of(generation)
                && let Some(server) = worker.locals.known_server(of.0, of.1)
            {
                worker.pools.evict(&server);
            }
            // The requester may no longer be waiting.
            let _ = send.send(());
        });
        // A worker that does not respond cannot close a connection either.
        let _ = receive.await;
    }
}

/// Returns the socket options of a connection for this request.
pub(super) fn socket_options<'a>(
    client: &Client,
    x: &Exchange,
    buffers: Buffers,
    settings: &'a ServerSettings,
    target: &Target,
) -> net::Dial<'a> {
    let mut dial = dial::to_server(settings, buffers, target);
    if settings.source.as_ref().is_some_and(|source| source.transparent != UseSource::No) {
        dial.source = foreign_address(client, x, settings).or(dial.source);
        dial.transparent = true;
    }
    dial.tos = x.txn.server_tos.or(settings.tos);
    dial.mark = x.txn.server_mark;
    dial
}

/// Returns the address to connect to: the address set by `set-dst`, or the server's address, with the client's port if it has no
/// port.
pub(super) fn target(client: &Client, x: &Exchange, settings: &ServerSettings) -> Option<Target> {
    if let Some(address) = x.choice.address {
        return Some(Target::Ip(address));
    }
    match &**settings.state.address.load() {
        ServerAddress::Ip(address) => {
            let mut address = *address;
            // `0.0.0.0` stands for the client's destination address.
            if address.ip().is_unspecified() {
                address.set_ip(x.destination(client).ip()?);
                if address.port() == 0 {
                    address.set_port(x.destination(client).port().unwrap_or(0));
                }
            } else if let Some(offset) = settings.state.port_offset() {
                let port = i32::from(x.destination(client).port().unwrap_or(0)) + offset;
                address.set_port(u16::try_from(port).ok()?);
            }
            Some(Target::Ip(address))
        }
        other => dial::target(other),
    }
}

/// Returns the source address that `usesrc` takes from the client or from its request.
fn foreign_address(client: &Client, x: &Exchange, settings: &ServerSettings) -> Option<SocketAddr> {
    match &settings.source.as_ref()?.transparent {
        UseSource::No | UseSource::Fixed(_) => None,
        UseSource::Client => x.source(client).address(),
        UseSource::ClientIp => x.source(client).ip().map(|ip| SocketAddr::new(ip, 0)),
        UseSource::Header(name, occurrence) => {
            let name = http::Name::new(&base::raw::bytes_of(name));
            let value = x.txn.request.nth_value(&name, *occurrence)?;
            let ip: IpAddr = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
            Some(SocketAddr::new(ip, 0))
        }
    }
}
