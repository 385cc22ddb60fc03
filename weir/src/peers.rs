//! Running `peers` sections: each on its worker, with its tables and the connections to its peers. Started by `boot`, used by
//! connections to their listeners, and stopped by a soft stop.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use base::clock::{Date, WallTime, now_ms};
use net::Stream;
use peers::{Group, Making, PeersSection, SectionMailbox, SectionSettings, ShowContext, Stick, Tables, Ways};
use plan::peers::Peers;
use plan::{Plan, Proxy, ServerSettings};
use proxy::serve::log::ring_feed::{Buffers, connect_to};
use state::Process;
use state::server::ServerAddress;
use state::table::Aggregate;
use tokio::sync::oneshot;

/// A section.
#[derive(Debug)]
struct One {
    /// The section's proxy in the first plan.
    proxy: Arc<Proxy>,
    /// The number of the section in `show peers`.
    number: u64,
}

impl One {
    fn name(&self) -> &str {
        &self.proxy.state.name
    }

    fn peers(&self) -> Option<&Peers> {
        self.proxy.peers.as_deref()
    }
}

/// How often a stopping process tries to reach its successor.
const TRIES: u32 = 3;

thread_local! {
    /// The sections of the calling worker, by name.
    static DESKS: RefCell<HashMap<Box<str>, Rc<SectionMailbox<Stick>>>> = RefCell::default();
}

fn desk(name: &str) -> Option<Rc<SectionMailbox<Stick>>> {
    DESKS.with_borrow(|desks| desks.get(name).cloned())
}

/// All sections that share tables. They exist as long as the process: a reload in place that would change one is refused
/// (`changes`).
#[derive(Debug)]
pub(crate) struct PeersSections {
    all: Vec<One>,
    process: Arc<Process>,
    /// Socket buffer sizes of connections to peers.
    buffers: Buffers,
    /// How many entries are sent to a peer at once.
    at_once: usize,
    /// Whether an earlier process will send its entries to this one.
    successor: bool,
    /// How many sections are still teaching the successor.
    teaching: AtomicUsize,
    /// Whether the last connection of a stopping process has ended.
    drained: AtomicBool,
}

impl PeersSections {
    /// Returns the sections of the plan.
    pub(crate) fn new(plan: &Plan, process: Arc<Process>, successor: bool) -> Self {
        let all = plan.proxies.iter().enumerate();
        let all = all.filter(|(_, proxy)| !proxy.disabled && proxy.peers.is_some());
        let one = |(place, proxy): (usize, &Arc<Proxy>)| One {
            proxy: proxy.clone(),
            number: (place as u64 + 1) << 32,
        };
        Self {
            all: all.map(one).collect(),
            process,
            buffers: (&plan.global.tune).into(),
            at_once: plan.global.tune.peers_updates,
            successor,
            teaching: AtomicUsize::new(0),
            drained: AtomicBool::new(false),
        }
    }

    fn all(&self) -> impl Iterator<Item = (&One, &Peers)> {
        self.all.iter().filter_map(|one| Some((one, one.peers()?)))
    }

    /// Starts the sections of the calling worker.
    pub(crate) fn start(&self) {
        let own = runtime::current_worker();
        for (one, peers) in self.all().filter(|(_, peers)| peers.worker == own) {
            let desk = self.begin(one, peers);
            let name: Arc<str> = one.name().into();
            for shared in &peers.tables {
                let name = name.clone();
                let part = desk.with(|_, tables| tables.own_part(&shared.table));
                // With owners, a count is sent to an owner, and from there to the others.
                let ways = |aggregate: &Aggregate| if aggregate.has_owners() { 2 } else { 1 };
                let every = |aggregate: &Aggregate| u64::from(aggregate.every_ms).div_ceil(ways(aggregate));
                let pace = part.zip(shared.table.aggregate().map(every));
                shared.table.wakes(Box::new(move || {
                    let name = name.clone();
                    runtime::worker::post(own, move || match (self::desk(&name), pace) {
                        (Some(desk), Some((part, every))) => desk.release(part, every),
                        (Some(desk), None) => desk.wake(),
                        (None, _) => {}
                    });
                }));
            }
            DESKS.with_borrow_mut(|desks| desks.insert(one.name().into(), desk));
        }
    }

    fn begin(&self, one: &One, peers: &Peers) -> Rc<SectionMailbox<Stick>> {
        let bytes = |text: &str| Box::<[u8]>::from(base::raw::bytes_of(text));
        let names: Vec<&str> = peers.peers.iter().map(|peer| &*peer.name).collect();
        let shared = peers.tables.iter().map(|own| (&own.table, &*own.name));
        let (tables, definitions) = Stick::new(shared, &names, peers.local, now_ms());
        let section = PeersSection {
            local: bytes(&peers.peers[peers.local].name),
            peers: peers
                .peers
                .iter()
                .map(|peer| bytes(if peer.is_from_dns { "" } else { &peer.name }))
                .collect(),
            ids: tables.names(names[peers.local]).map(|name| bytes(&name)).collect(),
            tables: definitions.into(),
            at_once: self.at_once,
            features: tables.features(),
        };
        let settings = SectionSettings {
            section: Arc::new(section),
            shards: peers.shards,
            parts: peers.peers.iter().map(|peer| peer.shard).collect(),
            process: std::process::id(),
            successor: self.successor,
            seed: fastrand::u64(..),
        };
        let (proxy, process) = (one.proxy.clone(), self.process.clone());
        let ways = OfPlan { proxy, process, buffers: self.buffers, counted: Cell::default() };
        let desk = SectionMailbox::begin(Group::new(settings, now_ms()), tables, ways);
        let names = dns_names(peers);
        if names.iter().any(|(_, name)| name.is_some()) {
            desk.rename(&names);
        }
        desk
    }

    /// Returns the `show peers` output of the section with this name, on its worker.
    fn show_one(&self, name: &str, with_names: bool) -> String {
        let found = self.all().find(|(one, _)| one.name() == name);
        let (Some(desk), Some((one, peers))) = (desk(name), found) else { return String::new() };
        let mut date = String::new();
        let now = WallTime::now();
        // Writing to a string cannot fail.
        let _ = Date::local(now.seconds).write_clf(&mut date);
        let addresses: Vec<String> = peers
            .peers
            .iter()
            .map(|peer| peer.server.as_ref().map_or_else(|| "-".to_owned(), address))
            .collect();
        let latest: Vec<u64> =
            desk.with(|_, tables| (0..tables.count()).map(|table| tables.latest(table, None)).collect());
        let notes: Vec<Vec<String>> = desk.with(|_, tables| {
            let of_peer = |peer| (0..tables.count()).map(|table| tables.note(table, peer)).collect();
            (0..peers.peers.len()).map(of_peer).collect()
        });
        let shown = ShowContext {
            name,
            date: date.split(' ').next().unwrap_or_default(),
            is_disabled: false,
            addresses: &addresses,
            latest: &latest,
            number: one.number,
            with_names,
            notes: &notes,
        };
        let mut out = String::new();
        desk.with(|group, _| group.show(&shown, now_ms(), &mut out));
        out
    }

    /// Handles a soft stop: each section sends its entries to the successor, if there is one.
    pub(crate) fn stop(self: &Arc<Self>) {
        for (one, peers) in self.all() {
            let name: Box<str> = one.name().into();
            self.teaching.fetch_add(1, AcqRel);
            let sections = self.clone();
            let posted = runtime::worker::post(peers.worker, move || {
                tokio::task::spawn_local(async move {
                    // Lets the task of the closing listener run first.
                    tokio::task::yield_now().await;
                    if let Some(desk) = desk(&name) {
                        desk.stop(TRIES).await;
                    }
                    sections.teaching.fetch_sub(1, AcqRel);
                });
            });
            if !posted {
                self.teaching.fetch_sub(1, AcqRel);
            }
        }
    }

    /// Called when the last connection of a stopping process has ended: the successor gets the final counts.
    pub(crate) fn drained(&self) {
        if self.drained.swap(true, AcqRel) {
            return;
        }
        for (one, peers) in self.all() {
            let name: Box<str> = one.name().into();
            // A worker that has ended has no more entries to send.
            let _ = runtime::worker::post(peers.worker, move || {
                if let Some(desk) = desk(&name) {
                    desk.drained();
                }
            });
        }
    }

    /// Returns whether the successor has been taught everything.
    pub(crate) fn have_stopped(&self) -> bool {
        self.teaching.load(Acquire) == 0
    }
}

/// Returns the indices of the peers that DNS provides, and their current names.
fn dns_names(peers: &Peers) -> Vec<(usize, Option<String>)> {
    let all = peers.peers.iter().enumerate().filter(|(_, peer)| peer.is_from_dns);
    all.map(|(place, peer)| (place, peer.member_name())).collect()
}

/// Called when DNS has answered for peers of the section with this name.
pub(crate) fn rename(plan: &Plan, section: &str) {
    let proxy = plan.proxies.iter().find(|proxy| proxy.peers.is_some() && *proxy.state.name == *section);
    let Some((proxy, worker)) = proxy.and_then(|proxy| Some((proxy.clone(), proxy.peers.as_ref()?.worker)))
    else {
        return;
    };
    // A worker that has ended has no more connections to peers.
    let _ = runtime::worker::post(worker, move || {
        if let (Some(desk), Some(peers)) = (desk(&proxy.state.name), &proxy.peers) {
            desk.rename(&dns_names(peers));
        }
    });
}

/// Returns the address of a peer as shown by `show peers`.
fn address(server: &Arc<ServerSettings>) -> String {
    match &**server.state.address.load() {
        ServerAddress::Ip(address) => address.to_string(),
        ServerAddress::Unix(path) => path.display().to_string(),
        ServerAddress::Abstract { name, .. } => format!("abns@{}", String::from_utf8_lossy(name)),
        ServerAddress::Unresolved | ServerAddress::Reverse => "-".to_owned(),
    }
}

/// Returns the output of `show peers`: all sections, or the one with this name. Each is obtained on its worker. Returns `None` if
/// no section has the name.
pub(crate) fn show(
    sections: &Arc<PeersSections>,
    name: Option<&str>,
    with_names: bool,
) -> Option<Pin<Box<dyn Future<Output = String>>>> {
    let wanted = sections.all().filter(|(one, _)| name.is_none_or(|name| one.name() == name));
    let asked: Vec<_> = wanted
        .map(|(one, peers)| {
            let (send, receive) = oneshot::channel();
            let (sections, name) = (sections.clone(), Box::<str>::from(one.name()));
            runtime::worker::post(peers.worker, move || {
                // The requester may no longer wait.
                let _ = send.send(sections.show_one(&name, with_names));
            });
            receive
        })
        .collect();
    if asked.is_empty() {
        return None;
    }
    Some(Box::pin(async {
        let mut all = String::new();
        for one in asked {
            all.push_str(&one.await.unwrap_or_default());
        }
        all
    }))
}

/// Serves a connection that a peer made to the section with this name, until it ends.
pub(crate) async fn serve(name: Box<str>, stream: Stream, early: Vec<u8>) {
    if let Some(desk) = desk(&name) {
        desk.serve(stream, early).await;
    }
}

/// Opens connections to peers as configured.
struct OfPlan {
    proxy: Arc<Proxy>,
    process: Arc<Process>,
    buffers: Buffers,
    /// The numbers of connections and sessions that the section has added to the process's counters.
    counted: Cell<[u32; 2]>,
}

impl Ways for OfPlan {
    fn connect(&self, peer: usize) -> Making {
        let server = self.proxy.peers.as_ref().and_then(|peers| peers.peers[peer].server.clone());
        let (process, buffers) = (self.process.clone(), self.buffers);
        Box::pin(async move {
            let server = server.ok_or(io::ErrorKind::AddrNotAvailable)?;
            connect_to(&server, &process, buffers).await
        })
    }
    fn count(&self, now: [u32; 2]) {
        let before = self.counted.replace(now);
        let counts = [&self.process.connected_peers, &self.process.active_peers];
        for ((count, now), before) in counts.into_iter().zip(now).zip(before) {
            if now != before {
                count.fetch_add(now.wrapping_sub(before), Relaxed);
            }
        }
    }
}
