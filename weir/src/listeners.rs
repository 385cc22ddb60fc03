//! The plan's listening sockets, which are inherited, taken over from an earlier process or newly bound, and the workers that
//! serve them.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use net::listen::{self, ListenOptions, Rights};
use net::udp;
use plan::bind::{BindAddress, Shards, Transport};
use plan::{Bind, Global, Plan, Proxy};

use crate::quic_listeners;
use crate::sockets::{Inherited, InheritedSocket, ListeningSocket, SocketOwner, datagram_options};

/// Binds all sockets, or returns one line for each address that cannot be bound. Unused inherited sockets stay in `inherited`.
pub(crate) fn bind(
    plan: &Plan,
    inherited: &mut Inherited,
    backlog: u32,
) -> Result<Vec<ListeningSocket>, String> {
    let mut bound = Vec::new();
    let mut failures = Vec::new();
    // Runtime sockets are bound first, so that operators can already connect when a frontend accepts.
    for (number, one) in plan.global.stats_sockets.iter().enumerate() {
        match open(one, 128, &plan.global, inherited) {
            Ok(socket) => bound.push(ListeningSocket {
                socket,
                owner: SocketOwner::RuntimeSocket(number),
                workers: one.workers.as_slice().into(),
                quic: None,
                queue: None,
                users: None,
            }),
            Err(error) => failures.push(failure(&one.place, "frontend GLOBAL", &one.address, &error)),
        }
    }
    // Datagram sockets are bound before frontends, so that they exist when a frontend accepts.
    bind_datagrams(plan, inherited, &mut bound, &mut failures);
    for (index, proxy) in listening(plan).filter(|(_, proxy)| !proxy.disabled) {
        let has_socket = |bind: &Bind| !matches!(bind.address, BindAddress::Reverse(_));
        for (number, one) in proxy.binds.iter().enumerate().filter(|(_, one)| has_socket(one)) {
            let length =
                [one.backlog, proxy.backlog, proxy.state.maxconn.load(std::sync::atomic::Ordering::Relaxed)]
                    .into_iter()
                    .find(|length| *length > 0)
                    // A default limit must not result in a short queue.
                    .unwrap_or(if plan.global.maxconn.is_some() { backlog } else { backlog.max(1024) });
            let owner = SocketOwner::Frontend { proxy: index, bind: number };
            if one.quic.is_some() {
                match quic_listeners::open(one, owner, &plan.global, inherited) {
                    Ok(sockets) => bound.extend(sockets),
                    Err(error) => {
                        failures.push(failure(&one.place, &owner_name(proxy), &one.address, &error));
                    }
                }
                continue;
            }
            let shards = shards(one, &plan.global);
            match open_all(one, shards.len(), length, &plan.global, inherited) {
                Ok(sockets) => bound.extend(sockets.into_iter().enumerate().map(|(at, socket)| {
                    let workers = shards[at % shards.len()].as_slice().into();
                    ListeningSocket { socket, owner, workers, quic: None, queue: None, users: None }
                })),
                Err(error) => failures.push(failure(&one.place, &owner_name(proxy), &one.address, &error)),
            }
        }
    }
    if failures.is_empty() { Ok(bound) } else { Err(failures.join("\n")) }
}

/// Returns the proxies that can have listeners, in order of their indexes.
fn listening(plan: &Plan) -> impl Iterator<Item = (usize, &Arc<Proxy>)> {
    let mut all: Vec<_> = plan.listening().map(|proxy| (proxy.index, proxy)).collect();
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter()
}

/// Binds the datagram sockets of log forwarders.
fn bind_datagrams(
    plan: &Plan,
    inherited: &mut Inherited,
    bound: &mut Vec<ListeningSocket>,
    failures: &mut Vec<String>,
) {
    for (index, proxy) in listening(plan) {
        let Some(forward) = &proxy.log_forward else { continue };
        for (number, one) in forward.datagrams.iter().enumerate() {
            let options = ListenOptions {
                interface: one.interface.as_deref(),
                namespace: one.namespace.as_deref(),
                transparent: one.transparent,
                reuse_port: !plan.global.no_reuseport,
                buffers: (plan.global.tune.rcvbuf_frontend, 0),
                ..ListenOptions::default()
            };
            match open_at(&one.address, &options, Rights::default(), inherited) {
                Ok(socket) => bound.push(ListeningSocket {
                    socket,
                    owner: SocketOwner::Datagrams { proxy: index, bind: number },
                    workers: one.workers.as_slice().into(),
                    quic: None,
                    queue: None,
                    users: None,
                }),
                Err(error) => failures.push(failure(&one.place, &owner_name(proxy), &one.address, &error)),
            }
        }
    }
}

/// Opens the sockets of a bind line. If an earlier process had more of them, all are kept, because connections may be queued there.
fn open_all(
    bind: &Bind,
    count: usize,
    backlog: u32,
    global: &Global,
    inherited: &mut Inherited,
) -> std::io::Result<Vec<OwnedFd>> {
    let mut all = Vec::with_capacity(count);
    let is_left = |inherited: &Inherited| {
        let (namespace, interface) = (bind.namespace.as_deref(), bind.interface.as_deref());
        inherited.iter().any(|taken| is_at(taken, &bind.address, namespace, interface))
    };
    if matches!(bind.address, BindAddress::Udp(_)) && is_left(inherited) {
        // Another socket would move clients away from the sockets that have their sessions.
        while is_left(inherited) {
            all.push(open(bind, backlog, global, inherited)?);
        }
        return Ok(all);
    }
    while all.len() < count || is_left(inherited) {
        all.push(open(bind, backlog, global, inherited)?);
    }
    Ok(all)
}

/// Returns whether an inherited socket is bound to exactly this address.
fn is_at(
    taken: &InheritedSocket,
    address: &BindAddress,
    namespace: Option<&str>,
    interface: Option<&str>,
) -> bool {
    taken.address == *address
        && taken.namespace == namespace.unwrap_or_default()
        && taken.interface == interface.unwrap_or_default()
}

fn open(bind: &Bind, backlog: u32, global: &Global, inherited: &mut Inherited) -> std::io::Result<OwnedFd> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    if let BindAddress::Udp(address) = bind.address {
        return open_datagrams(address, bind, global, inherited);
    }
    let options = ListenOptions {
        backlog,
        v6only: bind.v6only,
        interface: bind.interface.as_deref(),
        transparent: bind.transparent,
        mss: bind.mss,
        defer_accept: bind.defer_accept,
        fast_open: bind.tfo.then_some(backlog),
        user_timeout: bind.tcp_ut,
        save_syn: bind.save_syn,
        md5_key: bind.md5sig.as_deref().map(str::as_bytes),
        congestion: bind.congestion.as_deref(),
        namespace: bind.namespace.as_deref(),
        reuse_port: !global.no_reuseport,
        buffers: (global.tune.rcvbuf_client, global.tune.sndbuf_client),
        notsent: global.tune.notsent_client,
    };
    open_at(&bind.address, &options, Rights { mode: bind.mode, uid: bind.uid, gid: bind.gid }, inherited)
}

/// Returns the inherited socket of a `udp-lb` section at this address, or a new one.
fn open_datagrams(
    address: SocketAddr,
    bind: &Bind,
    global: &Global,
    inherited: &mut Inherited,
) -> std::io::Result<OwnedFd> {
    let options = datagram_options(bind, global);
    let is_it = |taken: &InheritedSocket| is_at(taken, &bind.address, options.namespace, options.interface);
    match inherited.iter().position(is_it) {
        // The socket stays unchanged, and so do the datagrams queued in it.
        Some(at) => Ok(inherited.swap_remove(at).socket),
        None => {
            let socket = udp::bind_group(address, &options, 1)?.remove(0);
            if global.tune.rcvbuf_frontend == 0 {
                widen(&socket);
            }
            Ok(socket)
        }
    }
}

/// The size of the receive buffer of a `udp-lb` socket without `tune.rcvbuf.frontend`, in bytes.
const DATAGRAMS: usize = 4 << 20;

/// Gives a socket a receive buffer for bursts. Only a privileged process can exceed the system's limit (`net.core.rmem_max`).
fn widen(socket: &OwnedFd) {
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, DATAGRAMS).is_err() {
        // The kernel reduces it to the limit.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, DATAGRAMS);
    }
}

/// Returns the inherited socket at this address, or a new one.
fn open_at(
    address: &BindAddress,
    options: &ListenOptions<'_>,
    rights: Rights,
    inherited: &mut Inherited,
) -> std::io::Result<OwnedFd> {
    let is_it = |taken: &InheritedSocket| is_at(taken, address, options.namespace, options.interface);
    let Some(at) = inherited.iter().position(is_it) else { return create(address, options, rights) };
    let socket = inherited.swap_remove(at).socket;
    match address.transport() {
        Transport::Stream => listen::adopt(socket, options),
        // The socket stays unchanged, and so do the datagrams queued in it.
        Transport::Datagram => Ok(socket),
    }
}

fn create(address: &BindAddress, options: &ListenOptions<'_>, rights: Rights) -> std::io::Result<OwnedFd> {
    match address {
        BindAddress::Ip(address) => listen::tcp(*address, options),
        BindAddress::Udp(address) => listen::udp(*address, options),
        BindAddress::Unix(path) => listen::unix(path, options.backlog, rights),
        BindAddress::Abstract { name, padded } => listen::abstract_unix(name, *padded, options.backlog),
        // Opened by `quic_listeners`.
        BindAddress::Quic(_) | BindAddress::InheritedQuic(_) => Err(std::io::ErrorKind::Unsupported.into()),
        BindAddress::Inherited(number) => listen::inherited(*number, options),
        BindAddress::SocketPair(_) => Err(std::io::Error::other("sockpair@ is not supported yet")),
        // Reverse connections are opened, not accepted.
        BindAddress::Reverse(_) => Err(std::io::ErrorKind::Unsupported.into()),
    }
}

/// Returns the workers for each stream socket of `bind` (`shards`, `thread`). Only TCP has several sockets, because the kernel
/// distributes connections among them. In that case, no socket spans two groups.
fn shards(bind: &Bind, global: &Global) -> Vec<Vec<usize>> {
    let groups = || -> Vec<Vec<usize>> {
        let of = |group: &Range<usize>| {
            bind.workers.iter().copied().filter(|worker| group.contains(worker)).collect()
        };
        let all = global.placement.groups.iter().map(of);
        all.filter(|workers: &Vec<usize>| !workers.is_empty()).collect()
    };
    if !matches!(bind.address, BindAddress::Ip(_) | BindAddress::Udp(_)) || global.no_reuseport {
        return vec![bind.workers.clone()];
    }
    // A UDP socket is served by one worker.
    let default = if matches!(bind.address, BindAddress::Udp(_)) {
        Shards::ByThread
    } else {
        global.tune.default_shards
    };
    match bind.shards.unwrap_or(default) {
        Shards::ByGroup => groups(),
        Shards::ByThread => bind.workers.iter().map(|worker| vec![*worker]).collect(),
        Shards::Count(count) if count <= 1 => vec![bind.workers.clone()],
        Shards::Count(count) => {
            let groups = groups();
            let most = bind.workers.len();
            let wanted = count.clamp(groups.len(), most);
            // Each group gets its share of the sockets, at least one.
            let split = |workers: Vec<usize>| {
                let parts = (wanted * workers.len()).div_ceil(most).clamp(1, workers.len());
                let piece = |at: usize| {
                    workers[workers.len() * at / parts..workers.len() * (at + 1) / parts].to_vec()
                };
                (0..parts).map(piece).collect::<Vec<_>>()
            };
            groups.into_iter().flat_map(split).collect()
        }
    }
}

/// Returns the name of a proxy in messages about sockets that could not be bound, as in HAProxy: for a `peers`
/// section this is its local peer.
fn owner_name(proxy: &Proxy) -> String {
    if let Some(peers) = &proxy.peers {
        let local = peers.peers.get(peers.local).map_or(&*proxy.state.name, |peer| &peer.name);
        return format!("peers section {local}");
    }
    format!("{} {}", if proxy.state.is_backend { "proxy" } else { "frontend" }, proxy.state.name)
}

/// Returns HAProxy's message for an address that could not be bound.
fn failure(place: &str, owner: &str, address: &BindAddress, error: &std::io::Error) -> String {
    let shown = show(address);
    match address {
        BindAddress::Unix(_) | BindAddress::Abstract { .. } => format!(
            "Binding [{place}] for {owner}: protocol unix_stream: cannot bind UNIX socket ({error}) [{shown}]."
        ),
        _ => {
            let protocol = match address {
                BindAddress::Quic(address) if address.is_ipv6() => "quic6",
                BindAddress::Quic(_) | BindAddress::InheritedQuic(_) => "quic4",
                BindAddress::Udp(address) if address.is_ipv6() => "udp6",
                BindAddress::Udp(_) => "udp4",
                BindAddress::Ip(address) if address.is_ipv6() => "tcpv6",
                _ => "tcpv4",
            };
            format!(
                "Binding [{place}] for {owner}: protocol {protocol}: cannot bind socket ({error}) for [{shown}]."
            )
        }
    }
}

/// Returns an address as in messages.
pub(crate) fn show(address: &BindAddress) -> String {
    match address {
        BindAddress::Ip(address) | BindAddress::Udp(address) | BindAddress::Quic(address) => {
            address.to_string()
        }
        BindAddress::Unix(path) => path.display().to_string(),
        BindAddress::Abstract { name, .. } => format!("abns@{}", String::from_utf8_lossy(name)),
        BindAddress::Inherited(number) => format!("fd@{number}"),
        BindAddress::InheritedQuic(number) => format!("quic+fd@{number}"),
        BindAddress::SocketPair(number) => format!("sockpair@{number}"),
        BindAddress::Reverse(_) => "rev".to_owned(),
    }
}

/// Distributes the sockets. Each is assigned to the worker with the fewest sockets so far, among the workers that are allowed.
pub(crate) fn share(bound: Vec<ListeningSocket>, threads: usize) -> Vec<Vec<ListeningSocket>> {
    let mut shares: Vec<Vec<ListeningSocket>> = (0..threads).map(|_| Vec::new()).collect();
    // QUIC sockets that are already served stay with their workers.
    for one in bound.into_iter().filter(|one| one.quic.is_none_or(|place| place.is_new())) {
        let watcher = one.workers.iter().copied().min_by_key(|worker| shares[*worker].len());
        // A socket stays with the worker that has its sessions.
        let watcher = proxy::serve::udp::worker_of(&one.socket).or(watcher);
        shares[watcher.unwrap_or(0)].push(one);
    }
    shares
}

#[cfg(test)]
mod tests {
    use config::{Boot, load_text};

    use super::*;

    /// Returns the workers of each socket of the only bind line.
    fn sockets(global: &str, bind: &str) -> Vec<Vec<usize>> {
        let text = format!("global\n{global}\ndefaults\n timeout client 1s\nfrontend f\n bind {bind}\n");
        let loaded = load_text("t.cfg", &text, &Boot::default());
        let plan = loaded.plan.unwrap();
        let frontend = plan.proxies.iter().find(|proxy| !proxy.binds.is_empty()).unwrap();
        shards(&frontend.binds[0], &plan.global)
    }

    #[test]
    fn bind_lines_have_one_socket_per_group_by_default() {
        let two = " nbthread 6\n thread-groups 2";
        let by_thread = " nbthread 2\n tune.listener.default-shards by-thread";
        let cases: &[(&str, &str, &[&[usize]])] = &[
            (two, "127.0.0.1:8001", &[&[0, 1, 2], &[3, 4, 5]]),
            (two, "127.0.0.1:8001 shards by-thread", &[&[0], &[1], &[2], &[3], &[4], &[5]]),
            (two, "127.0.0.1:8001 shards 4", &[&[0], &[1, 2], &[3], &[4, 5]]),
            (two, "127.0.0.1:8001 shards 1", &[&[0, 1, 2, 3, 4, 5]]),
            (two, "127.0.0.1:8001 thread 2/1-2", &[&[3, 4]]),
            (two, "127.0.0.1:8001 thread 1,6", &[&[0], &[5]]),
            (two, "127.0.0.1:8001 thread 1/all shards by-thread", &[&[0], &[1], &[2]]),
            (two, "unix@/tmp/weir-listeners-test.sock", &[&[0, 1, 2, 3, 4, 5]]),
            (" noreuseport\n nbthread 4\n thread-groups 2", "127.0.0.1:8001", &[&[0, 1, 2, 3]]),
            (by_thread, "127.0.0.1:8001", &[&[0], &[1]]),
        ];
        for (global, bind, expected) in cases {
            assert_eq!(sockets(global, bind), *expected, "{global} {bind}");
        }
    }
}
