//! `peers` sections at work: each on its worker, with its tables and the ways to its peers. Begun by
//! `boot`, connected to by whoever connects to their listeners, ended by a soft stop.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use base::clock::{Date, WallTime, now_ms};
use net::Stream;
use peers::{Desk, Group, Making, Section, Settings, Shown, Stick, Ways, stick};
use plan::peers::Peers;
use plan::{Plan, ServerSettings};
use proxy::serve::feed::connect_to;
use state::Process;
use state::server::ServerAddress;
use tokio::sync::oneshot;

/// How often the successor is tried, in a process that ends.
const TRIES: u32 = 3;

thread_local! {
    /// The sections of the calling worker, by the places of their proxies.
    static DESKS: RefCell<HashMap<usize, Rc<Desk<Stick>>>> = RefCell::default();
}

fn desk(place: usize) -> Option<Rc<Desk<Stick>>> {
    DESKS.with_borrow(|desks| desks.get(&place).cloned())
}

/// All sections that share tables.
#[derive(Debug)]
pub(crate) struct Sections {
    plan: Arc<Plan>,
    process: Arc<Process>,
    /// Whether there is a process before this one that will teach it.
    successor: bool,
    /// How many of them still teach the process behind this one.
    teaching: AtomicUsize,
}

impl Sections {
    /// Those of the plan.
    pub(crate) fn new(plan: Arc<Plan>, process: Arc<Process>, successor: bool) -> Self {
        Self { plan, process, successor, teaching: AtomicUsize::new(0) }
    }

    /// Each with the place of its proxy.
    fn all(&self) -> impl Iterator<Item = (usize, &Peers)> {
        let shares = |proxy: &Arc<plan::Proxy>| !proxy.disabled;
        let all = self.plan.proxies.iter().enumerate().filter(move |(_, proxy)| shares(proxy));
        all.filter_map(|(place, proxy)| Some((place, proxy.peers.as_deref()?)))
    }

    /// Begins those of the calling worker.
    pub(crate) fn start(&self) {
        let own = runtime::current_worker();
        for (place, peers) in self.all().filter(|(_, peers)| peers.worker == own) {
            let desk = self.begin(place, peers);
            for shared in &peers.tables {
                shared.table.wakes(Box::new(move || {
                    runtime::worker::post(own, move || {
                        if let Some(desk) = self::desk(place) {
                            desk.wake();
                        }
                    });
                }));
            }
            DESKS.with_borrow_mut(|desks| desks.insert(place, desk));
        }
    }

    fn begin(&self, place: usize, peers: &Peers) -> Rc<Desk<Stick>> {
        let bytes = |text: &str| Box::<[u8]>::from(text.as_bytes());
        let section = Section {
            local: bytes(&peers.peers[peers.local].name),
            peers: peers.peers.iter().map(|peer| bytes(&peer.name)).collect(),
            tables: peers.tables.iter().map(|own| stick::definition(&own.table, &own.name)).collect(),
            ids: peers.tables.iter().map(|own| bytes(own.table.name())).collect(),
            at_once: self.plan.global.tune.peers_updates,
        };
        let settings = Settings {
            section: Arc::new(section),
            shards: peers.shards,
            parts: peers.peers.iter().map(|peer| peer.shard).collect(),
            process: std::process::id(),
            successor: self.successor,
            seed: fastrand::u64(..),
        };
        let tables = Stick::new(peers.tables.iter().map(|own| own.table.clone()).collect());
        let (plan, process) = (self.plan.clone(), self.process.clone());
        let ways = OfPlan { plan, process, place, counted: Cell::default() };
        Desk::begin(Group::new(settings, now_ms()), tables, ways)
    }

    /// The section at `place`, on its worker, as `show peers` has it.
    fn show_one(&self, place: usize, with_names: bool) -> String {
        let proxy = &self.plan.proxies[place];
        let (Some(desk), Some(peers)) = (desk(place), &proxy.peers) else { return String::new() };
        let mut date = String::new();
        let now = WallTime::now();
        // Writing to a string does not fail.
        let _ = Date::local(now.seconds).write_clf(&mut date);
        let addresses: Vec<String> = peers
            .peers
            .iter()
            .map(|peer| peer.server.as_ref().map_or_else(|| "-".to_owned(), address))
            .collect();
        let latest: Vec<u64> = peers.tables.iter().map(|own| own.table.last_change()).collect();
        let shown = Shown {
            name: &proxy.state.name,
            date: date.split(' ').next().unwrap_or_default(),
            is_disabled: false,
            addresses: &addresses,
            latest: &latest,
            number: (place as u64 + 1) << 32,
            with_names,
        };
        let mut out = String::new();
        desk.with(|group, _| group.show(&shown, now_ms(), &mut out));
        out
    }

    /// A soft stop: each teaches the process that follows, if there is one.
    pub(crate) fn stop(self: &Arc<Self>) {
        for (place, peers) in self.all() {
            self.teaching.fetch_add(1, AcqRel);
            let sections = self.clone();
            let posted = runtime::worker::post(peers.worker, move || {
                tokio::task::spawn_local(async move {
                    // The listener, which is closing, has its turn first.
                    tokio::task::yield_now().await;
                    if let Some(desk) = desk(place) {
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

    /// Whether the process that follows knows all that it can be taught.
    pub(crate) fn have_stopped(&self) -> bool {
        self.teaching.load(Acquire) == 0
    }
}

/// The address of a peer, as `show peers` has it.
fn address(server: &Arc<ServerSettings>) -> String {
    match &**server.state.address.load() {
        ServerAddress::Ip(address) => address.to_string(),
        ServerAddress::Unix(path) => path.display().to_string(),
        ServerAddress::Abstract { name, .. } => format!("abns@{}", String::from_utf8_lossy(name)),
        ServerAddress::Unresolved | ServerAddress::Reverse => "-".to_owned(),
    }
}

/// `show peers`: the sections, or the one of that name, each asked on its worker; `None` where there is
/// none of that name.
pub(crate) fn show(
    sections: &Arc<Sections>,
    name: Option<&str>,
    with_names: bool,
) -> Option<Pin<Box<dyn Future<Output = String>>>> {
    let named = |place: usize| &*sections.plan.proxies[place].state.name;
    let wanted = sections.all().filter(|(place, _)| name.is_none_or(|name| named(*place) == name));
    let asked: Vec<_> = wanted
        .map(|(place, peers)| {
            let (send, receive) = oneshot::channel();
            let sections = sections.clone();
            runtime::worker::post(peers.worker, move || {
                // Whoever asked may have gone.
                let _ = send.send(sections.show_one(place, with_names));
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

/// Serves a connection that somebody made to the section of the proxy at `place`, to its end.
pub(crate) async fn serve(place: usize, stream: Stream, early: Vec<u8>) {
    if let Some(desk) = desk(place) {
        desk.serve(stream, early).await;
    }
}

/// How connections to peers are made, as their lines say.
struct OfPlan {
    plan: Arc<Plan>,
    process: Arc<Process>,
    place: usize,
    /// How many connections and sessions of the section are in the process's counts.
    counted: Cell<[u32; 2]>,
}

impl Ways for OfPlan {
    fn connect(&self, peer: usize) -> Making {
        let proxy = &self.plan.proxies[self.place];
        let server = proxy.peers.as_ref().and_then(|peers| peers.peers[peer].server.clone());
        let (process, plan) = (self.process.clone(), self.plan.clone());
        Box::pin(async move {
            let server = server.ok_or(io::ErrorKind::AddrNotAvailable)?;
            connect_to(&server, &process, (&plan.global.tune).into()).await
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
