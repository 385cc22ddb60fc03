//! Choosing a server among a backend's: what is kept between picks, and how it follows the servers'
//! changes.
//!
//! A pick takes no lock. Whether anything changed is one atomic of the process; if something did,
//! the first to notice works the table out again, on a thread of its own where that takes long.
//! Until the new table is there the old one serves, but for servers that must not be used any more.
//! How each algorithm chooses is in [`crate::choose`]. Called by `proxy` for every request.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use arc_swap::ArcSwap;
use runtime::shard::{self, Padded};
use runtime::shared::Shared as _;
use state::server::changes;
use state::server_load::LoadGroup;
use state::{AttemptOutcome, Server};

use crate::ejection::{Ejection, EjectionEvent};
use crate::in_flight::InFlight;
use crate::least::CountTree;
use crate::loads::{By, Loads};
use crate::settings::{Algorithm, BalanceSettings, HashKind, PreserveAffinity};
use crate::table::{self, BalanceTable, Member, Shape};

/// What a request asks of the choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// The hash of the request's key, for algorithms that have one; `None` when the request has no
    /// such key, which then takes turns.
    pub hash: Option<u32>,
    /// A server that just failed: any other is better, if there is one.
    pub avoid: Option<usize>,
    /// About what time it is, in µs of the monotonic clock: what the caller knows already, to spare
    /// a look.
    pub now_us: u64,
}

/// Tables that take more work than this (some 100 µs) are worked out on a thread of their own.
const HEAVY: u64 = 10_000;

/// From so many servers on their requests are counted where their counts lie close, if each pick
/// looks at them: fewer lines of memory are worth more then than lines that no two servers share.
const MANY: usize = 160;

/// The choice among a backend's servers.
#[derive(Debug)]
pub struct Picker {
    pub(crate) core: Arc<Core>,
}

/// What the workers share of it.
#[derive(Debug)]
pub(crate) struct Core {
    members: Vec<Member>,
    pub(crate) servers: Vec<Arc<Server>>,
    /// Their counts, one step nearer.
    pub(crate) served: LoadGroup,
    pub(crate) method: PickMethod,
    pub(crate) balance_factor: u32,
    pub(crate) preserve: PreserveAffinity,
    all_backups: bool,
    /// What the process's count of changes was when the table was last known to be right. Written
    /// by whoever looks after the table.
    seen: AtomicU64,
    /// Set while somebody looks after the table.
    busy: AtomicBool,
    table: ArcSwap<BalanceTable>,
    /// The next turn, one a thread group. Written on each pick that takes turns. `leastconn` has
    /// one a worker: the loads that all see spread its requests, turns only among equals.
    positions: Box<[Padded<AtomicUsize>]>,
    /// Requests at all servers, for `hash-balance-factor` only.
    pub(crate) in_flight: Option<Arc<InFlight>>,
    /// Requests at each of many servers, for `hash-balance-factor` only: sixteen counts to a line
    /// of memory instead of one.
    pub(crate) counts: Option<CountTree>,
    pub(crate) loads: Option<Loads>,
    /// Whether anybody wants to know how attempts end.
    wants_answers: bool,
    /// Servers that serve much worse than their peers, where they are ejected.
    ejection: Option<Box<Ejection>>,
}

/// How servers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickMethod {
    Turns,
    Map,
    Ring,
    Loads,
    Random(u32),
    PeakEwma { decay_us: u32 },
    Sticky,
}

impl PickMethod {
    fn of(settings: &BalanceSettings) -> Self {
        match &settings.algorithm {
            Algorithm::RoundRobin => Self::Turns,
            Algorithm::StaticRr => Self::Map,
            Algorithm::LeastConn | Algorithm::First => Self::Loads,
            Algorithm::Random { draws } => Self::Random((*draws).max(1)),
            Algorithm::Sticky => Self::Sticky,
            Algorithm::PeakEwma { decay } => {
                Self::PeakEwma { decay_us: decay.as_micros().clamp(1, u32::MAX.into()) as u32 }
            }
            _ if settings.hash.kind == HashKind::Consistent => Self::Ring,
            _ => Self::Map,
        }
    }

    fn shape(self) -> Shape {
        match self {
            Self::Turns => Shape::Turns,
            Self::Map => Shape::Map,
            Self::Ring => Shape::Ring,
            Self::Loads => Shape::Weights,
            Self::Random(_) | Self::PeakEwma { .. } => Shape::Draw,
            Self::Sticky => Shape::Longest,
        }
    }

    /// Whether it compares servers by the requests that they serve.
    fn compares(self) -> bool {
        match self {
            Self::Turns | Self::Map | Self::Ring | Self::Random(1) => false,
            Self::Loads | Self::Random(_) | Self::PeakEwma { .. } | Self::Sticky => true,
        }
    }
}

impl Picker {
    /// A picker over `members`, which are referred to by their place.
    pub fn new(settings: &BalanceSettings, members: Vec<Member>) -> Self {
        Self::with(settings, members, None)
    }

    /// One over more members, which takes this one's place: what is being served goes on to count.
    #[must_use]
    pub fn renewed(&self, settings: &BalanceSettings, members: Vec<Member>) -> Self {
        Self::with(settings, members, Some(&self.core))
    }

    /// Whether servers may be added to what it chooses from: its algorithm does not place them once
    /// and for all.
    pub fn is_dynamic(&self) -> bool {
        self.core.method != PickMethod::Map
    }

    fn with(settings: &BalanceSettings, members: Vec<Member>, before: Option<&Core>) -> Self {
        let method = PickMethod::of(settings);
        let servers: Vec<Arc<Server>> = members.iter().map(|member| member.server.clone()).collect();
        let by = if matches!(settings.algorithm, Algorithm::First) { By::Room } else { By::Load };
        let in_flight = match before {
            Some(before) => before.in_flight.clone(),
            None => (settings.balance_factor > 0).then(Arc::default),
        };
        let counts = match before {
            Some(before) => before.counts.as_ref().map(|counts| counts.grown(servers.len())),
            None if in_flight.is_some() && servers.len() > MANY => {
                Some(CountTree::default().grown(servers.len()))
            }
            None => None,
        };
        let loads = (method == PickMethod::Loads).then(|| {
            let before = before.and_then(|before| before.loads.as_ref());
            Loads::new(by, servers.clone(), before)
        });
        let counted = counts.is_some() || loads.as_ref().is_some_and(Loads::counts);
        let apart = counted || (!method.compares() && settings.balance_factor == 0);
        servers.iter().for_each(|server| server.counts_apart.store(apart, Relaxed));
        let positions = if method == PickMethod::Loads { shard::workers() } else { shard::groups() };
        let core = Core {
            method,
            balance_factor: settings.balance_factor,
            preserve: settings.preserve_affinity,
            all_backups: settings.all_backups,
            seen: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            table: ArcSwap::default(),
            positions: (0..positions).map(|_| Padded(AtomicUsize::new(0))).collect(),
            in_flight,
            counts,
            served: LoadGroup::new(servers.iter().map(|server| server.served.0.clone())),
            loads,
            wants_answers: matches!(method, PickMethod::PeakEwma { .. })
                || settings.outliers.is_some()
                || settings.hedge.is_some(),
            ejection: settings.outliers.as_deref().map(|own| Box::new(Ejection::new(own, &servers))),
            servers,
            members,
        };
        core.work_out();
        // They begin apart, so that they do not all turn to the same server at once.
        let length = core.table.load().order.len().max(core.servers.len());
        for (at, position) in core.positions.iter().enumerate() {
            position.0.store(at * length / core.positions.len(), Relaxed);
        }
        Self { core: Arc::new(core) }
    }

    /// Chooses a server for a new request: `None` when none may be used. `limit` says how many
    /// requests a server with a `maxconn` may serve now. A full server is chosen only where the
    /// algorithm or the lack of others demands it: the request then waits.
    #[inline]
    pub fn pick(&self, wish: Wish, limit: impl Fn(&Server) -> u32) -> Option<usize> {
        let current = self.core.seen.load(Relaxed) == changes() || self.follow();
        let table = self.core.table.load();
        let picked = match table.usable[..] {
            [only] => Some(only as usize),
            _ => self.core.choose(&table, wish, &limit),
        };
        // What just failed is taken again only when there is nothing else.
        let picked = picked.or_else(|| wish.avoid.filter(|&index| table.weights[index] > 0));
        if current { picked } else { self.core.check(picked, wish) }
    }

    /// Whether the server of `index` may get new requests, as far as the last table knows.
    pub fn is_usable(&self, index: usize) -> bool {
        self.core.servers.get(index).is_some_and(|server| server.effective_weight() > 0)
    }

    /// Says that a request is served by `index` from `now_us` on; call it behind
    /// [`Server::try_enter`].
    #[inline]
    pub fn entered(&self, index: usize, now_us: u64) {
        if let Some(in_flight) = &self.core.in_flight {
            in_flight.enter();
            if let Some(counts) = &self.core.counts {
                counts.add(index);
            }
        }
        match self.core.method {
            PickMethod::Random(2..) => self.core.served[index].recent.tick(now_us),
            PickMethod::PeakEwma { .. } if self.core.load(index) == 1 => {
                self.core.served[index].latency.begin(now_us);
            }
            _ => {}
        }
        self.joined(index);
    }

    /// Says that a request is no longer served by `index`; call it behind [`Server::leave`].
    #[inline]
    pub fn left(&self, index: usize) {
        if let Some(in_flight) = &self.core.in_flight {
            in_flight.leave();
            if let Some(counts) = &self.core.counts {
                counts.sub(index);
            }
        }
        self.parted(index);
    }

    /// Says that a request waits in the queue of `index` now.
    #[inline]
    pub fn joined(&self, index: usize) {
        if let Some(loads) = &self.core.loads {
            loads.came(index);
        }
    }

    /// Says that it left the queue of `index`.
    #[inline]
    pub fn parted(&self, index: usize) {
        if let Some(loads) = &self.core.loads {
            loads.went(index);
        }
    }

    /// Whether [`answered`](Self::answered) is of any use: the caller may spare itself the clock.
    #[inline]
    pub fn wants_answers(&self) -> bool {
        self.core.wants_answers
    }

    /// Says how an attempt at `index` ended that took `taken_us`.
    #[inline]
    pub fn answered(&self, index: usize, now_us: u64, taken_us: u64, answer: AttemptOutcome) {
        if let PickMethod::PeakEwma { decay_us } = self.core.method {
            self.core.served[index].latency.record(now_us, taken_us, answer, decay_us);
        }
        if let Some(ejection) = &self.core.ejection {
            ejection.record(&self.core.servers, index, now_us, taken_us, answer);
        }
    }

    /// Says that nobody waits any longer for the answer of an attempt at `index`, after `taken_us`: no
    /// failure, but it would have taken longer.
    pub fn gave_up(&self, index: usize, taken_us: u64) {
        if self.core.ejection.is_some() {
            self.core.servers[index].measure().given_up(taken_us);
        }
    }

    /// Lets time pass for servers that were ejected, and looks for others that are to be; gives what
    /// happened since the last call. Where outliers are ejected it is to be called several times in
    /// each of the times that `outlier-ejection` names.
    pub fn judge(&self, now_ms: u64) -> Vec<EjectionEvent> {
        let core = &self.core;
        core.ejection.as_ref().map_or_else(Vec::new, |ejection| ejection.judge(&core.servers, now_ms))
    }

    /// Looks whether a change of some server was one of ours, and has the table worked out again if
    /// so. Says whether the table is right now.
    #[cold]
    fn follow(&self) -> bool {
        let core = &self.core;
        if core.busy.swap(true, Acquire) {
            return false;
        }
        if table::cost(core.method.shape(), &core.members) > HEAVY {
            let own = core.clone();
            let work = move || {
                own.catch_up();
                own.busy.store(false, Release);
            };
            if std::thread::Builder::new().name("weir/balance".into()).spawn(work).is_ok() {
                return false;
            }
        }
        core.catch_up();
        core.busy.store(false, Release);
        true
    }
}

impl Core {
    fn version(&self) -> u64 {
        self.servers.iter().map(|server| server.version.load(Relaxed)).sum()
    }

    /// Works the table out if one of our servers changed.
    fn catch_up(&self) {
        let now = changes();
        if self.table.load().version == self.version() {
            self.seen.store(now, Relaxed);
        } else {
            self.work_out();
        }
    }

    /// Works the table out. One at a time: `busy` is set, or nobody else knows this core yet.
    fn work_out(&self) {
        // Read before the servers: what changes meanwhile is seen as a change the next time.
        let now = changes();
        let shape = self.method.shape();
        let max_ejected = self.ejection.as_ref().map_or(0, |ejection| ejection.settings.max_ejected);
        let table = table::work_out(shape, &self.members, self.all_backups, max_ejected, self.version());
        if let Some(loads) = &self.loads {
            loads.weigh(&table);
        }
        let (before, after) = (self.table.load().order.len(), table.order.len());
        self.table.store(Arc::new(table));
        self.seen.store(now, Relaxed);
        if self.method == PickMethod::Map && before != after {
            self.positions.iter().for_each(|position| place_in(&position.0, before, after));
        }
    }

    /// Requests that the server at `index` has, where they are compared.
    #[inline]
    pub(crate) fn load(&self, index: usize) -> u32 {
        match &self.counts {
            Some(counts) => counts.get(index),
            None => self.served[index].load(Relaxed),
        }
    }

    /// The next turn of this thread's group, or its own.
    #[inline]
    pub(crate) fn position(&self) -> &AtomicUsize {
        let own =
            if self.method == PickMethod::Loads { shard::current_worker() } else { shard::current_group() };
        &self.positions.get(own).unwrap_or(&self.positions[0]).0
    }

    /// The choice of an old table, or another server if that one must not be used any more.
    #[cold]
    fn check(&self, picked: Option<usize>, wish: Wish) -> Option<usize> {
        let usable = |index: &usize| self.servers[*index].effective_weight() > 0;
        if let Some(index) = picked.filter(usable) {
            return Some(index);
        }
        let count = self.servers.len();
        let start = self.position().add(1);
        let any = |backup: bool| {
            (0..count)
                .map(|step| (start + step) % count)
                .filter(|index| self.servers[*index].backup == backup && Some(*index) != wish.avoid)
                .find(usable)
        };
        any(false).or_else(|| any(true)).or(wish.avoid.filter(usable))
    }
}

/// Moves the next turn to a map of another length, as HAProxy does: the place stays if there is one
/// like it, else turns begin anew. A turn taken meanwhile may be lost, which makes one server's
/// turn come twice.
fn place_in(position: &AtomicUsize, before: usize, after: usize) {
    let at = position.load(Relaxed);
    // Behind the last place of the old map is a place still, if the new one is longer.
    let place = if at == 0 || before == 0 { at } else { (at - 1) % before + 1 };
    position.store(if place < after { place } else { 0 }, Relaxed);
}
