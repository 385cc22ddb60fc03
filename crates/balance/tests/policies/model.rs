//! Requests to a few servers, in virtual time: the real picker, budget and hedges decide, everything else is modelled. The outcome
//! only depends on the seed.
//!
//! Requests arrive randomly at a given rate. A server processes some of them at once and queues the others. Failed attempts are
//! retried if `retries` and the budget permit it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use balance::budget;
use balance::{BalanceSettings, Member, Picker, Wish, outliers};
use runtime::Rate;
use state::extra_attempts::BackendLoad;
use state::server::Tally;
use state::{AttemptOutcome, ExtraAttempts, Server};

pub const MS: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;

/// The outcome of an attempt that starts at an instant (µs): its duration in µs, and whether it succeeds.
pub type Behaviour = Box<dyn Fn(&mut fastrand::Rng, u64) -> (u64, bool)>;

/// An external event at an instant, in µs.
pub type Incident = (u64, Box<dyn Fn(&[Arc<Server>])>);

pub struct Setup {
    pub settings: BalanceSettings,
    pub servers: Vec<Behaviour>,
    /// Requests per second.
    pub rate: f64,
    pub retries: u32,
    /// The number of requests a server processes at once.
    pub slots: usize,
    /// The duration in µs; the first tenth is excluded from latencies and errors.
    pub length: u64,
    pub incidents: Vec<Incident>,
}

impl Setup {
    pub fn new(settings: BalanceSettings, servers: Vec<Behaviour>) -> Self {
        Self {
            settings,
            servers,
            rate: 1_000.0,
            retries: 0,
            slots: 1_000,
            length: 60 * SECOND,
            incidents: Vec::new(),
        }
    }
}

#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub requests: u64,
    pub errors: u64,
    /// The total number of attempts.
    pub attempts: u64,
    pub hedges: u64,
    /// In µs, sorted.
    pub latencies: Vec<u64>,
    /// The total number of ejections.
    pub ejections: u64,
    /// The average share of the servers' weight that was ejected.
    pub lost: f64,
}

impl Outcome {
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.latencies[(self.latencies.len() as f64 * quantile) as usize]
    }

    pub fn error_share(&self) -> f64 {
        self.errors as f64 / self.requests.max(1) as f64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Done(usize),
    Hedge(usize),
    Judge,
    Incident(usize),
}

struct Request {
    born: u64,
    /// The number of the first attempt.
    first: usize,
    /// The attempts in progress, by number.
    open: Vec<usize>,
    retries: u32,
    /// Whether the request holds a part of the budget.
    holds: bool,
    over: bool,
}

struct Attempt {
    request: usize,
    server: usize,
    began: u64,
    answered: bool,
    given_up: bool,
}

pub struct Simulation {
    setup: Setup,
    picker: Picker,
    servers: Vec<Arc<Server>>,
    extra: ExtraAttempts,
    arrivals: Rate,
    live: u64,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    requests: Vec<Request>,
    attempts: Vec<Attempt>,
    working: Vec<usize>,
    waiting: Vec<VecDeque<usize>>,
    random: fastrand::Rng,
    outcome: Outcome,
    lost_until: u64,
}

const BEGIN: u64 = 100 * SECOND;

impl Simulation {
    pub fn run(setup: Setup, seed: u64) -> Outcome {
        fastrand::seed(seed);
        let count = setup.servers.len();
        let servers: Vec<Arc<Server>> = (0..count).map(|at| crate::common::server(at, 100, false)).collect();
        let picker = Picker::new(&setup.settings, servers.iter().cloned().map(Member::from).collect());
        let mut own = Self {
            picker,
            servers,
            extra: ExtraAttempts::default(),
            arrivals: Rate::default(),
            live: 0,
            now: BEGIN,
            order: 0,
            events: BinaryHeap::new(),
            requests: Vec::new(),
            attempts: Vec::new(),
            working: vec![0; count],
            waiting: vec![VecDeque::new(); count],
            random: fastrand::Rng::with_seed(seed),
            outcome: Outcome::default(),
            lost_until: BEGIN,
            setup,
        };
        own.at(0, Event::Arrive);
        own.at(0, Event::Judge);
        for at in 0..own.setup.incidents.len() {
            own.at(own.setup.incidents[at].0, Event::Incident(at));
        }
        while let Some(Reverse((time, _, event))) = own.events.pop() {
            if time >= BEGIN + own.setup.length {
                break;
            }
            own.now = time;
            own.handle(event);
            own.check();
        }
        own.outcome.latencies.sort_unstable();
        own.outcome.lost /= own.setup.length as f64;
        own.outcome
    }

    fn at(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + after, self.order, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive => {
                let gap = (-(1.0 - self.random.f64()).ln() * SECOND as f64 / self.setup.rate) as u64;
                self.at(gap, Event::Arrive);
                self.arrivals.tick(self.now / 1000);
                self.live += 1;
                self.outcome.requests += 1;
                let request = self.requests.len();
                let (open, holds, over) = (Vec::new(), false, false);
                let first = self.attempts.len();
                self.requests.push(Request { born: self.now, first, open, retries: 0, holds, over });
                self.attempt(request, None);
                if let Some(hedge) = &self.setup.settings.hedge
                    && let Some(delay) = hedge.delay_us(&self.extra, self.now / 1000)
                {
                    self.at(delay, Event::Hedge(request));
                }
            }
            Event::Done(attempt) => self.done(attempt),
            Event::Hedge(request) => self.hedge(request),
            Event::Judge => {
                let events = self.picker.judge(self.now / 1000);
                self.outcome.ejections += events
                    .iter()
                    .filter(|event| matches!(event.what, balance::ejection::EjectionChange::Ejected(..)))
                    .count() as u64;
                self.at(100 * MS, Event::Judge);
            }
            Event::Incident(at) => {
                self.setup.incidents[at].1(&self.servers);
            }
        }
    }

    /// Checks the invariants.
    fn check(&mut self) {
        let usable: Vec<_> = self.servers.iter().filter(|own| own.effective_weight() > 0).collect();
        let trust = |own: &Server| own.performance().map_or(100, state::Performance::trust);
        let ejected = usable.iter().filter(|own| trust(own) == 0).count();
        let share: u32 = usable.iter().map(|own| trust(own)).sum();
        let lost = 1.0 - f64::from(share) / 100.0 / usable.len().max(1) as f64;
        self.outcome.lost += lost * (self.now - self.lost_until) as f64;
        self.lost_until = self.now;
        if let Some(own) = &self.setup.settings.outliers
            && self.setup.incidents.is_empty()
        {
            assert!(ejected <= outliers::allowed(usable.len(), own.max_ejected), "{ejected} are ejected");
        }
        if !usable.is_empty() {
            assert!(self.picker.pick(Wish::default(), |_| 0).is_some(), "nobody is left");
        }
    }

    /// Makes an attempt; `None` if there is no server except the one to avoid.
    fn attempt(&mut self, request: usize, avoid: Option<usize>) -> Option<usize> {
        let wish = Wish { avoid, now_us: self.now, ..Wish::default() };
        let server = self.picker.pick(wish, |_| 0)?;
        self.servers[server].enter();
        self.picker.entered(server, self.now);
        let attempt = self.attempts.len();
        self.attempts.push(Attempt { request, server, began: self.now, answered: false, given_up: false });
        self.requests[request].open.push(attempt);
        self.outcome.attempts += 1;
        self.waiting[server].push_back(attempt);
        self.work(server);
        Some(server)
    }

    fn work(&mut self, server: usize) {
        while self.working[server] < self.setup.slots {
            let Some(attempt) = self.waiting[server].pop_front() else { return };
            if self.attempts[attempt].given_up {
                continue;
            }
            self.working[server] += 1;
            let (takes, answered) = self.setup.servers[server](&mut self.random, self.now - BEGIN);
            self.attempts[attempt].answered = answered;
            self.at(takes, Event::Done(attempt));
        }
    }

    /// Releases the slot of an attempt.
    fn leave(&mut self, attempt: usize) {
        let server = self.attempts[attempt].server;
        self.servers[server].leave(Tally::Shared);
        self.picker.left(server);
    }

    fn done(&mut self, attempt: usize) {
        let Attempt { request, server, began, answered, given_up } = self.attempts[attempt];
        self.working[server] -= 1;
        self.work(server);
        if given_up {
            return;
        }
        self.leave(attempt);
        let taken = self.now - began;
        let answer = if answered { AttemptOutcome::Good } else { AttemptOutcome::Bad };
        self.picker.answered(server, self.now, taken, answer);
        self.requests[request].open.retain(|own| *own != attempt);
        if answered {
            if self.requests[request].first == attempt {
                self.extra.counters.mine().times.add(taken);
            }
            for loser in std::mem::take(&mut self.requests[request].open) {
                let Attempt { server, began, .. } = self.attempts[loser];
                if self.requests[request].first == loser {
                    self.extra.counters.mine().times.add(self.now - began);
                }
                self.attempts[loser].given_up = true;
                self.picker.gave_up(server, self.now - began);
                self.leave(loser);
            }
            return self.end(request, true);
        }
        if !self.requests[request].open.is_empty() {
            return;
        }
        let again = self.requests[request].retries < self.setup.retries && self.afford(request);
        if !again {
            return self.end(request, false);
        }
        self.requests[request].retries += 1;
        if self.attempt(request, Some(server)).is_none() {
            self.end(request, false);
        }
    }

    fn afford(&mut self, request: usize) -> bool {
        let Some(budget) = self.setup.settings.budget else { return true };
        if std::mem::take(&mut self.requests[request].holds) {
            self.extra.end();
        }
        let taken = budget.take(&self.extra, self.load(), self.now / 1000);
        self.requests[request].holds = taken;
        taken
    }

    fn load(&self) -> BackendLoad {
        BackendLoad { live: self.live, recent: self.arrivals.per_second(self.now / 1000).into() }
    }

    fn hedge(&mut self, request: usize) {
        let own = &self.requests[request];
        let (Some(hedge), [first]) = (self.setup.settings.hedge, &own.open[..]) else { return };
        if own.over || own.retries > 0 || !hedge.take(&self.extra, self.outcome.requests) {
            return;
        }
        let first = self.attempts[*first].server;
        if self.setup.settings.budget.is_none() {
            budget::take_unlimited(&self.extra, self.now / 1000);
            self.requests[request].holds = true;
        } else if !self.afford(request) {
            return;
        }
        self.outcome.hedges += 1;
        self.attempt(request, Some(first));
    }

    fn end(&mut self, request: usize, answered: bool) {
        let own = &mut self.requests[request];
        own.over = true;
        self.live -= 1;
        if std::mem::take(&mut own.holds) {
            self.extra.end();
        }
        if own.born >= BEGIN + self.setup.length / 10 {
            self.outcome.latencies.push(self.now - own.born);
            self.outcome.errors += u64::from(!answered);
        }
    }
}
