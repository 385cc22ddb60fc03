//! The sockets that the plan asks for: taken over from an earlier process, inherited, or bound now; and which
//! worker watches which.

use std::ops::Range;
use std::os::fd::OwnedFd;

use config::Plan;
use config::plan::bind::{BindAddress, Shards};
use config::plan::{Bind, Global};
use net::listen::{self, Options, Rights};

use crate::hand_over::{Inherited, Taken};

/// Whose socket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A frontend's bind.
    Frontend {
        /// The proxy's index.
        proxy: usize,
        /// The bind's index.
        bind: usize,
    },
    /// A `stats socket` of global, by number.
    RuntimeSocket(usize),
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: OwnedFd,
    pub(crate) owner: Owner,
}

/// Binds everything, or says all that could not be bound.
pub(crate) fn bind(plan: &Plan, mut inherited: Inherited, backlog: u32) -> Result<Vec<Bound>, String> {
    let mut bound = Vec::new();
    let mut failures = Vec::new();
    for (index, proxy) in plan.proxies.iter().enumerate().filter(|(_, proxy)| !proxy.disabled) {
        for (number, one) in proxy.binds.iter().enumerate() {
            let length =
                [one.backlog, proxy.backlog, proxy.state.maxconn.load(std::sync::atomic::Ordering::Relaxed)]
                    .into_iter()
                    .find(|length| *length > 0)
                    // A limit that nobody chose is no wish for a short queue.
                    .unwrap_or(if plan.global.maxconn.is_some() { backlog } else { backlog.max(1024) });
            let opened = open_all(one, sockets(one, &plan.global), length, &plan.global, &mut inherited);
            match opened {
                Ok(sockets) => {
                    bound.extend(sockets.into_iter().map(|socket| Bound {
                        socket,
                        owner: Owner::Frontend { proxy: index, bind: number },
                    }))
                }
                Err(error) => failures.push(format!(
                    "Starting {} {}: cannot bind socket ({}) [{}]",
                    if proxy.state.is_backend { "proxy" } else { "frontend" },
                    proxy.state.name,
                    error,
                    show(&one.address)
                )),
            }
        }
    }
    for (number, one) in plan.global.stats_sockets.iter().enumerate() {
        match open(one, 128, &plan.global, &mut inherited) {
            Ok(socket) => bound.push(Bound { socket, owner: Owner::RuntimeSocket(number) }),
            Err(error) => failures.push(format!(
                "Starting frontend GLOBAL: cannot bind UNIX socket ({error}) [{}]",
                show(&one.address)
            )),
        }
    }
    if failures.is_empty() { Ok(bound) } else { Err(failures.join("\n")) }
}

/// Opens the sockets of a bind. Where an earlier process had more of them, all are kept: connections may wait there.
fn open_all(
    bind: &Bind,
    count: usize,
    backlog: u32,
    global: &Global,
    inherited: &mut Inherited,
) -> std::io::Result<Vec<OwnedFd>> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count || inherited.iter().any(|taken| is_of(taken, bind)) {
        all.push(open(bind, backlog, global, inherited)?);
    }
    Ok(all)
}

/// Whether a socket of an earlier process is what `bind` asks for.
fn is_of(taken: &Taken, bind: &Bind) -> bool {
    taken.address == bind.address
        && taken.namespace == bind.namespace.as_deref().unwrap_or_default()
        && taken.interface == bind.interface.as_deref().unwrap_or_default()
}

fn open(bind: &Bind, backlog: u32, global: &Global, inherited: &mut Inherited) -> std::io::Result<OwnedFd> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    let options = Options {
        backlog,
        v6only: bind.v6only,
        interface: bind.interface.as_deref(),
        transparent: bind.transparent,
        mss: bind.mss,
        defer_accept: bind.defer_accept,
        fast_open: bind.tfo.then_some(backlog),
        user_timeout: bind.tcp_ut,
        md5_key: bind.md5sig.as_deref().map(str::as_bytes),
        congestion: bind.congestion.as_deref(),
        namespace: bind.namespace.as_deref(),
        reuse_port: !global.no_reuseport,
        buffers: (global.tune.rcvbuf_client, global.tune.sndbuf_client),
    };
    if let Some(at) = inherited.iter().position(|taken| is_of(taken, bind)) {
        return listen::adopt(inherited.swap_remove(at).socket, &options);
    }
    let rights = Rights { mode: bind.mode, uid: bind.uid, gid: bind.gid };
    match &bind.address {
        BindAddress::Ip(address) => listen::tcp(*address, &options),
        BindAddress::Unix(path) => listen::unix(path, backlog, rights),
        BindAddress::Abstract { name, padded } => listen::abstract_unix(name, *padded, backlog),
        BindAddress::Inherited(number) => listen::inherited(*number, &options),
        BindAddress::SocketPair(_) => Err(std::io::Error::other("sockpair@ is not supported yet")),
    }
}

/// How many sockets share the address of `bind` (`shards`): more than one only where the kernel spreads
/// connections over them, which is TCP.
fn sockets(bind: &Bind, global: &Global) -> usize {
    let wanted = match bind.shards {
        Shards::ByGroup => groups(global, global.workers()),
        Shards::ByThread => global.workers(),
        Shards::Count(count) => count.clamp(1, global.workers()),
    };
    if matches!(bind.address, BindAddress::Ip(_)) && !global.no_reuseport { wanted } else { 1 }
}

fn show(address: &BindAddress) -> String {
    match address {
        BindAddress::Ip(address) => address.to_string(),
        BindAddress::Unix(path) => path.display().to_string(),
        BindAddress::Abstract { name, .. } => format!("abns@{}", String::from_utf8_lossy(name)),
        BindAddress::Inherited(number) => format!("fd@{number}"),
        BindAddress::SocketPair(number) => format!("sockpair@{number}"),
    }
}

/// How many groups the workers form.
pub(crate) fn groups(global: &Global, threads: usize) -> usize {
    let largest = global.max_threads_per_group.max(1);
    global.thread_groups.unwrap_or_else(|| threads.div_ceil(largest)).clamp(1, threads.max(1))
}

/// The number of the group that worker `index` belongs to.
pub(crate) fn group_index(global: &Global, index: usize) -> usize {
    let threads = global.workers();
    index * groups(global, threads) / threads.max(1)
}

/// The workers of the group that worker `index` belongs to.
pub(crate) fn group_of(global: &Global, index: usize, threads: usize) -> Range<usize> {
    let groups = groups(global, threads);
    let group = index * groups / threads;
    let first = (group * threads).div_ceil(groups);
    let last = ((group + 1) * threads).div_ceil(groups);
    first..last
}

/// Deals the sockets out to the workers, one after the other.
pub(crate) fn share(bound: Vec<Bound>, threads: usize) -> Vec<Vec<Bound>> {
    let mut shares: Vec<Vec<Bound>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, one) in bound.into_iter().enumerate() {
        shares[number % threads].push(one);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_belongs_to_exactly_one_group() {
        for threads in 1..70 {
            let global = Global { max_threads_per_group: 16, ..Global::default() };
            for index in 0..threads {
                let group = group_of(&global, index, threads);
                assert!(group.contains(&index), "worker {index} of {threads} in {group:?}");
                assert!(group.len() <= 16);
                for other in group.clone() {
                    assert_eq!(group_of(&global, other, threads), group);
                }
            }
        }
    }
}
