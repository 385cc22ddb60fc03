//! Chooses one of a backend's servers: the state kept between picks, and how it follows changes of the servers. Called by `proxy`
//! for every request.
//!
//! A pick takes no lock. A process-wide atomic shows whether a server has changed. The first thread that notices a change
//! recomputes the table, in the background if that takes long. Until the new table is ready, the old one is used, except for
//! servers that must not be used any more. [`crate::choose`] implements the algorithms.

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

/// A request's parameters for the choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// The hash of the request's key, for algorithms that use one. For requests without a key, servers take turns.
    pub hash: Option<u32>,
    /// A server that has just failed; any other is preferred.
    pub avoid: Option<usize>,
    /// The approximate time in µs of the monotonic clock. The caller passes it in, so that the clock need not be read again.
    pub now_us: u64,
}

/// Tables that take more work than this (a few 100 µs) are computed on a separate thread.
const HEAVY: u64 = 10_000;

/// With at least this number of servers, their requests are counted in adjacent counters if each pick reads them. Touching fewer
/// cache lines then matters more than avoiding false sharing.
const MANY: usize = 160;

/// Chooses among a backend's servers.
#[derive(Debug)]
pub struct Picker {
    pub(crate) core: Arc<Core>,
}

/// The state shared by the workers.
#[derive(Debug)]
pub(crate) struct Core {
    members: Vec<Member>,
    pub(crate) servers: Vec<Arc<Server>>,
    /// The servers' request counts, for access with one indirection less.
    pub(crate) served: LoadGroup,
    pub(crate) method: PickMethod,
    pub(crate) balance_factor: u32,
    pub(crate) preserve: PreserveAffinity,
    all_backups: bool,
    /// The process-wide change count for which the table is known to be current. Written by the thread that updates the table.
    seen: AtomicU64,
    /// Set while a thread updates the table.
    busy: AtomicBool,
    table: ArcSwap<BalanceTable>,
    /// The next turn, one per thread group. Written by each pick that uses turns. `leastconn` has one per worker, because the
    /// loads, which all workers see, spread its requests, and turns only break ties.
    positions: Box<[Padded<AtomicUsize>]>,
    /// Requests in flight to all servers. Only for `hash-balance-factor`.
    pub(crate) in_flight: Option<Arc<InFlight>>,
    /// Requests per server if there are many servers, with sixteen counts per cache line instead of one. Only for
    /// `hash-balance-factor`.
    pub(crate) counts: Option<CountTree>,
    pub(crate) loads: Option<Loads>,
    /// Whether the outcomes of attempts are needed.
    wants_answers: bool,
    /// Outlier ejection, if configured.
    ejection: Option<Box<Ejection>>,
}

/// The method of choosing.
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
    pub(crate) fn of(settings: &BalanceSettings) -> Self {
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

    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Turns => Shape::Turns,
            Self::Map => Shape::Map,
            Self::Ring => Shape::Ring,
            Self::Loads => Shape::Weights,
            Self::Random(_) | Self::PeakEwma { .. } => Shape::Draw,
            Self::Sticky => Shape::Longest,
        }
    }

    /// Whether the workers count the servers' requests separately, because no choice depends on their number.
    fn counts_apart(self, settings: &BalanceSettings) -> bool {
        !self.compares() && settings.balance_factor == 0
    }

    /// Whether the algorithm compares servers by their active requests.
    fn compares(self) -> bool {
        match self {
            Self::Turns | Self::Map | Self::Ring | Self::Random(1) => false,
            Self::Loads | Self::Random(_) | Self::PeakEwma { .. } | Self::Sticky => true,
        }
    }
}

impl Picker {
    /// Creates a picker over `members`, which are identified by index.
    pub fn new(settings: &BalanceSettings, members: Vec<Member>) -> Self {
        Self::with(settings, members, None)
    }

    /// Creates a picker with more members that replaces this one. Requests in progress remain counted.
    #[must_use]
    pub fn renewed(&self, settings: &BalanceSettings, members: Vec<Member>) -> Self {
        Self::with(settings, members, Some(&self.core))
    }

    /// Prepares `servers` for a picker that is created by the first request. Returns `false` and changes nothing if the picker must
    /// exist earlier, because it observes the servers or counts their requests.
    pub fn defer(settings: &BalanceSettings, servers: impl IntoIterator<Item = Arc<Server>>) -> bool {
        let method = PickMethod::of(settings);
        let is_passive =
            matches!(method, PickMethod::Turns | PickMethod::Map | PickMethod::Ring | PickMethod::Random(_))
                && settings.balance_factor == 0
                && settings.outliers.is_none()
                && settings.hedge.is_none();
        if is_passive {
            let apart = method.counts_apart(settings);
            servers.into_iter().for_each(|server| server.counts_apart.store(apart, Relaxed));
        }
        is_passive
    }

    /// Whether servers may be added, because the algorithm does not fix their slots permanently.
    pub fn is_dynamic(settings: &BalanceSettings) -> bool {
        PickMethod::of(settings) != PickMethod::Map
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
        let apart = counted || method.counts_apart(settings);
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
        // The groups start at different positions, so that they do not all choose the same server first.
        let length = core.table.load().order.len().max(core.servers.len());
        for (at, position) in core.positions.iter().enumerate() {
            position.0.store(at * length / core.positions.len(), Relaxed);
        }
        Self { core: Arc::new(core) }
    }

    /// Chooses a server for a new request; `None` if none is usable. `limit` returns how many requests a server with a `maxconn`
    /// may serve now. A full server is only chosen if the algorithm requires it or all others are full too. The request then waits.
    #[inline]
    pub fn pick(&self, wish: Wish, limit: impl Fn(&Server) -> u32) -> Option<usize> {
        let current = self.core.seen.load(Relaxed) == changes() || self.follow();
        let table = self.core.table.load();
        let picked = match table.usable[..] {
            [only] => Some(only as usize),
            _ => self.core.choose(&table, wish, &limit),
        };
        // A server that has just failed is only used if there is no other.
        let picked = picked.or_else(|| wish.avoid.filter(|&index| table.weights[index] > 0));
        if current { picked } else { self.core.check(picked, wish) }
    }

    /// Whether the server at `index` may get new requests, according to the last table.
    pub fn is_usable(&self, index: usize) -> bool {
        self.core.servers.get(index).is_some_and(|server| server.effective_weight() > 0)
    }

    /// Records that `index` serves a request from `now_us` on. Call this after [`Server::try_enter`].
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

    /// Records that `index` no longer serves a request. Call this after [`Server::leave`].
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

    /// Records that a request entered the queue of `index`.
    #[inline]
    pub fn joined(&self, index: usize) {
        if let Some(loads) = &self.core.loads {
            loads.came(index);
        }
    }

    /// Records that a request left the queue of `index`.
    #[inline]
    pub fn parted(&self, index: usize) {
        if let Some(loads) = &self.core.loads {
            loads.went(index);
        }
    }

    /// Whether [`answered`](Self::answered) has an effect. Otherwise the caller need not read the clock.
    #[inline]
    pub fn wants_answers(&self) -> bool {
        self.core.wants_answers
    }

    /// Records the outcome of an attempt at `index` that took `taken_us`.
    #[inline]
    pub fn answered(&self, index: usize, now_us: u64, taken_us: u64, answer: AttemptOutcome) {
        if let PickMethod::PeakEwma { decay_us } = self.core.method {
            self.core.served[index].latency.record(now_us, taken_us, answer, decay_us);
        }
        if let Some(ejection) = &self.core.ejection {
            ejection.record(&self.core.servers, index, now_us, taken_us, answer);
        }
    }

    /// Records that an attempt at `index` was abandoned after `taken_us`. This is not a failure, but the response would have taken
    /// longer.
    pub fn gave_up(&self, index: usize, taken_us: u64) {
        if self.core.ejection.is_some() {
            self.core.servers[index].measure().given_up(taken_us);
        }
    }

    /// Advances time for ejected servers and looks for new outliers. Returns the events since the last call. With outlier ejection,
    /// this must be called several times within each period of `outlier-ejection`.
    pub fn judge(&self, now_ms: u64) -> Vec<EjectionEvent> {
        let core = &self.core;
        core.ejection.as_ref().map_or_else(Vec::new, |ejection| ejection.judge(&core.servers, now_ms))
    }

    /// Checks whether a change affects a server of this backend, and if so updates the table. Returns whether the table is current.
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

    /// Recomputes the table if a server of this backend has changed.
    fn catch_up(&self) {
        let now = changes();
        if self.table.load().version == self.version() {
            self.seen.store(now, Relaxed);
        } else {
            self.work_out();
        }
    }

    /// Recomputes the table. Only one thread does this at a time: `busy` is set, or the core is not shared yet.
    fn work_out(&self) {
        // Read before the servers, so that changes in the meantime are noticed next time.
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

    /// The active requests of the server at `index`, if servers are compared.
    #[inline]
    pub(crate) fn load(&self, index: usize) -> u32 {
        match &self.counts {
            Some(counts) => counts.get(index),
            None => self.served[index].load(Relaxed),
        }
    }

    /// The next turn of this thread's group, or of this worker.
    #[inline]
    pub(crate) fn position(&self) -> &AtomicUsize {
        let own =
            if self.method == PickMethod::Loads { shard::current_worker() } else { shard::current_group() };
        &self.positions.get(own).unwrap_or(&self.positions[0]).0
    }

    /// Returns the choice from an old table, or another server if that one must not be used any more.
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

/// Converts the next turn to a map of another length in the same way as HAProxy: the position is kept if it exists, otherwise the
/// turns start over. A turn taken concurrently may be lost; in that case one server gets two turns.
fn place_in(position: &AtomicUsize, before: usize, after: usize) {
    let at = position.load(Relaxed);
    // The position after the end of the old map is valid if the new map is longer.
    let place = if at == 0 || before == 0 { at } else { (at - 1) % before + 1 };
    position.store(if place < after { place } else { 0 }, Relaxed);
}
