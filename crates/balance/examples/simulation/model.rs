//! A proxy with many threads in front of a few servers, in virtual time: the real [`Picker`] chooses, everything else is modelled.
//! The outcome only depends on the seed.
//!
//! A thread processes one job at a time: the first half of a request (with the pick), and later the second half. A server processes
//! `slots` requests at once and queues the others; it may pause, warm up or fail. Cache lines that several threads write are
//! modelled too: transfers of a line are serialized, which is the cost of contention. Clients send the next request as soon as they
//! have a response (closed), or requests arrive randomly (open).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use balance::{Algorithm, BalanceSettings, Member, Picker, Wish};
use state::server::{ServerAddress, ServerSeed, Tally};
use state::{AttemptOutcome, Server};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// A server's behaviour.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    pub weight: u32,
    /// Concurrent requests.
    pub slots: usize,
    /// The mean service time in ns. Service times are exponentially distributed.
    pub service: u64,
    /// The round trip time in ns.
    pub distance: u64,
    /// Pauses for `pause` once per `period`, both in ns.
    pub pause: Option<(u64, u64)>,
    /// The server starts at the first instant, at first slower by the given factor, and is warm at the second instant. Its weight
    /// increases accordingly.
    pub joins: Option<(u64, u64, f64)>,
    /// The server responds with errors immediately from this instant on.
    pub fails_from: Option<u64>,
}

pub const ORIGIN: Origin = Origin {
    weight: 1,
    slots: 16,
    service: MS,
    distance: 100 * US,
    pause: None,
    joins: None,
    fails_from: None,
};

/// The arrival of requests.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// This number of clients, each of which always waits for one response.
    Closed(usize),
    /// This number of requests per second.
    Open(f64),
}

/// The proxy.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    pub threads: usize,
    pub groups: usize,
    /// The cost of a request to a thread, without the pick, in ns.
    pub request: u64,
    /// The transfer time of a cache line between threads, in ns; 0 disables contention.
    pub line: u64,
}

/// The results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Successful responses per second.
    pub rate: f64,
    /// Errors per second.
    pub errors: f64,
    /// The share of the threads' busy time that was spent on picks, in percent.
    pub picking: f64,
    /// Latency at 50 %, 99 % and 99.9 %, in µs.
    pub latency: [u64; 3],
    /// Responses by server.
    pub shares: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    ThreadDone(u32),
    AtServer(u32),
    Served(u32),
    Back(u32),
    Ramp(u32),
}

#[derive(Debug, Clone, Copy, Default)]
struct Request {
    thread: u32,
    born: u64,
    sent: u64,
    server: u32,
    failed: bool,
    returning: bool,
}

#[derive(Debug, Default)]
struct Thread {
    waiting: VecDeque<u32>,
    current: Option<u32>,
    busy: u64,
    picking: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<u32>,
    working: usize,
    phase: u64,
}

pub struct Simulation<'a> {
    machine: Machine,
    origins: &'a [Origin],
    load: Load,
    picker: Picker,
    servers: Vec<Arc<Server>>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    requests: Vec<Request>,
    free: Vec<u32>,
    threads: Vec<Thread>,
    queues: Vec<Queue>,
    /// When the cache line that picks write is free again; one per group.
    lines: Vec<u64>,
    /// When the cache line of a server's request count is free again.
    counts: Vec<u64>,
    /// Whether a pick advances the sequence of its group. Such algorithms compare nothing, so each thread counts its own requests.
    turns: bool,
    random: fastrand::Rng,
    latencies: Vec<u64>,
    errors: u64,
    shares: Vec<u64>,
    warm: u64,
}

impl<'a> Simulation<'a> {
    pub fn new(machine: Machine, origins: &'a [Origin], load: Load, algorithm: Algorithm, seed: u64) -> Self {
        fastrand::seed(seed);
        runtime::shard::set_groups(machine.groups);
        runtime::shard::set_workers(machine.threads);
        let servers: Vec<Arc<Server>> = origins.iter().enumerate().map(server).collect();
        let turns = matches!(algorithm, Algorithm::RoundRobin | Algorithm::StaticRr);
        let settings = BalanceSettings { algorithm, ..BalanceSettings::default() };
        let picker = Picker::new(&settings, servers.iter().cloned().map(Member::from).collect());
        let mut random = fastrand::Rng::with_seed(seed);
        let queues = origins.iter().map(|origin| Queue {
            phase: origin.pause.map_or(0, |(_, period)| random.u64(..period)),
            ..Queue::default()
        });
        Self {
            machine,
            origins,
            load,
            picker,
            queues: queues.collect(),
            now: 0,
            events: BinaryHeap::new(),
            order: 0,
            requests: Vec::new(),
            free: Vec::new(),
            threads: (0..machine.threads).map(|_| Thread::default()).collect(),
            lines: vec![0; machine.groups],
            counts: vec![0; servers.len()],
            turns,
            random,
            latencies: Vec::new(),
            errors: 0,
            shares: vec![0; servers.len()],
            servers,
            warm: 0,
        }
    }

    /// Runs for `length` ns of virtual time, of which the first `warm` are not counted.
    pub fn run(mut self, warm: u64, length: u64) -> Outcome {
        self.warm = warm;
        match self.load {
            // Clients start one after the other, like connections.
            Load::Closed(clients) => {
                (0..clients).for_each(|client| self.at(client as u64 * 3 * US, Event::Arrive(client as u32)));
            }
            Load::Open(_) => self.at(0, Event::Arrive(0)),
        }
        for (index, origin) in self.origins.iter().enumerate() {
            if origin.joins.is_some() {
                self.servers[index].set_weight(0);
                self.at(0, Event::Ramp(index as u32));
            }
        }
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time >= length {
                break;
            }
            self.now = time;
            self.handle(event);
        }
        self.outcome(length - warm)
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(client) => {
                if let Load::Open(rate) = self.load {
                    let gap = exponential(&mut self.random, SECOND as f64 / rate);
                    self.at(self.now + gap, Event::Arrive(client.wrapping_add(1)));
                }
                self.begin(client as usize % self.machine.threads);
            }
            Event::ThreadDone(thread) => self.finish_job(thread as usize),
            Event::AtServer(request) => {
                let server = self.requests[request as usize].server as usize;
                self.queues[server].waiting.push_back(request);
                self.work(server);
            }
            Event::Served(request) => {
                let own = self.requests[request as usize];
                let server = own.server as usize;
                if !own.failed {
                    self.queues[server].working -= 1;
                    self.work(server);
                }
                self.at(self.now + self.origins[server].distance / 2, Event::Back(request));
            }
            Event::Back(request) => self.job(request),
            Event::Ramp(server) => self.ramp(server as usize),
        }
    }

    fn begin(&mut self, thread: usize) {
        let request = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::default());
            self.requests.len() as u32 - 1
        });
        self.requests[request as usize] =
            Request { thread: thread as u32, born: self.now, ..Request::default() };
        self.job(request);
    }

    /// Queues a job for a thread, which runs it when it is free.
    fn job(&mut self, request: u32) {
        let thread = self.requests[request as usize].thread as usize;
        self.threads[thread].waiting.push_back(request);
        self.next_job(thread);
    }

    fn next_job(&mut self, thread: usize) {
        if self.threads[thread].current.is_some() {
            return;
        }
        let Some(request) = self.threads[thread].waiting.pop_front() else { return };
        self.threads[thread].current = Some(request);
        // Varies by request, because threads in lockstep would never contend.
        let mut cost = (self.machine.request as f64 * (0.4 + 0.2 * self.random.f64())) as u64;
        if !self.requests[request as usize].returning {
            let picking = self.pick(thread, request);
            self.threads[thread].picking += picking;
            cost += picking;
            if !self.turns {
                // Counting a request at its start and end writes the server's cache line.
                let count = &mut self.counts[self.requests[request as usize].server as usize];
                *count = self.now.max(*count) + 2 * self.machine.line;
                cost += *count - self.now;
            }
        }
        self.threads[thread].busy += cost;
        self.at(self.now + cost, Event::ThreadDone(thread as u32));
    }

    /// Chooses the server; returns the time taken.
    fn pick(&mut self, thread: usize, request: u32) -> u64 {
        let group = thread * self.machine.groups / self.machine.threads;
        runtime::shard::enter_group(group);
        runtime::shard::enter_worker(thread);
        let now_us = self.now / US + 1;
        let server = self.picker.pick(Wish { now_us, ..Wish::default() }, |_| 0).unwrap_or(0);
        self.servers[server].enter();
        self.picker.entered(server, now_us);
        let own = &mut self.requests[request as usize];
        (own.server, own.sent) = (server as u32, self.now);
        if !self.turns {
            // Other threads have written the counts of the compared servers. Their lines arrive together, in the time of one
            // transfer.
            return 20 + self.machine.line;
        }
        // The thread has to wait for its turn to write the line.
        let begin = self.lines[group].max(self.now);
        self.lines[group] = begin + self.machine.line;
        20 + self.lines[group] - self.now
    }

    fn finish_job(&mut self, thread: usize) {
        let Some(request) = self.threads[thread].current.take() else { return };
        let own = self.requests[request as usize];
        if own.returning {
            self.complete(request);
        } else {
            self.requests[request as usize].returning = true;
            let server = own.server as usize;
            let there = self.now + self.origins[server].distance / 2;
            self.at(there, Event::AtServer(request));
        }
        self.next_job(thread);
    }

    /// Starts work while the server has free slots.
    fn work(&mut self, server: usize) {
        let origin = &self.origins[server];
        if origin.fails_from.is_some_and(|from| self.now >= from) {
            while let Some(request) = self.queues[server].waiting.pop_front() {
                self.requests[request as usize].failed = true;
                self.at(self.now + 10 * US, Event::Served(request));
            }
            return;
        }
        while self.queues[server].working < origin.slots {
            let Some(request) = self.queues[server].waiting.pop_front() else { return };
            self.queues[server].working += 1;
            let mean = origin.service as f64 * self.coldness(server);
            let mut end = self.now + exponential(&mut self.random, mean);
            if let Some((pause, period)) = origin.pause {
                // Work that a pause interrupts continues after the pause.
                let last = (end + self.queues[server].phase) / period * period;
                let since = end + self.queues[server].phase - last;
                if since < pause {
                    end += pause - since;
                }
            }
            self.at(end, Event::Served(request));
        }
    }

    /// The current slowdown of a server that is warming up.
    fn coldness(&self, server: usize) -> f64 {
        let Some((from, until, slow)) = self.origins[server].joins else { return 1.0 };
        let done = self.now.saturating_sub(from) as f64 / (until - from) as f64;
        slow + (1.0 - slow) * done.min(1.0)
    }

    /// `slowstart`: the weight follows the warm-up.
    fn ramp(&mut self, server: usize) {
        let Some((from, until, _)) = self.origins[server].joins else { return };
        if self.now < from {
            self.at(from, Event::Ramp(server as u32));
            return;
        }
        let percent = ((self.now - from) * 100 / (until - from)).min(100);
        self.servers[server].set_ramp(percent as u32);
        self.servers[server].set_weight(self.origins[server].weight);
        if percent < 100 {
            self.at(self.now + (until - from) / 100, Event::Ramp(server as u32));
        }
    }

    fn complete(&mut self, request: u32) {
        let own = self.requests[request as usize];
        let server = own.server as usize;
        self.servers[server].leave(Tally::Shared);
        self.picker.left(server);
        let answer = if own.failed { AttemptOutcome::Bad } else { AttemptOutcome::Good };
        self.picker.answered(server, self.now / US + 1, (self.now - own.sent) / US, answer);
        if self.now >= self.warm {
            self.shares[server] += 1;
            match answer {
                AttemptOutcome::Good => self.latencies.push((self.now - own.born) / US),
                AttemptOutcome::Bad => self.errors += 1,
            }
        }
        self.free.push(request);
        if let Load::Closed(_) = self.load {
            self.begin(own.thread as usize);
        }
    }

    fn outcome(mut self, length: u64) -> Outcome {
        self.latencies.sort_unstable();
        let count = self.latencies.len();
        let at = |share: f64| {
            self.latencies.get((count as f64 * share) as usize).or(self.latencies.last()).copied()
        };
        let seconds = length as f64 / SECOND as f64;
        let busy: u64 = self.threads.iter().map(|thread| thread.busy).sum();
        let picking: u64 = self.threads.iter().map(|thread| thread.picking).sum();
        Outcome {
            rate: count as f64 / seconds,
            errors: self.errors as f64 / seconds,
            picking: picking as f64 * 100.0 / busy.max(1) as f64,
            latency: [0.5, 0.99, 0.999].map(|share| at(share).unwrap_or(0)),
            shares: self.shares,
        }
    }
}

fn exponential(random: &mut fastrand::Rng, mean: f64) -> u64 {
    (-mean * (1.0 - random.f64()).ln()) as u64
}

fn server((at, origin): (usize, &Origin)) -> Arc<Server> {
    Server::new(ServerSeed {
        id: at as u32 + 1,
        name: format!("s{at}").into(),
        proxy: "be".into(),
        backup: false,
        maxconn: 0,
        minconn: 0,
        maxqueue: 0,
        address: ServerAddress::Unresolved,
        weight: origin.weight,
        disabled: false,
        checked: false,
    })
}
