//! Shared counters against a model: processes that start, count, clear, change their objects and end, in random order, always show
//! the sum of everything counted since it was last cleared.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::counters::total_of_all;
use state::proxy::{Mode, ProxySeed};
use state::server::{ServerAddress, ServerSeed};
use state::{Proxy, Server};
use statistics::sharing::{Cleared, SharedCounters};

const SERVERS: usize = 3;

/// A process, simulated in this one.
struct Process {
    shared: SharedCounters,
    backend: Arc<Proxy>,
}

fn server(number: usize) -> Arc<Server> {
    let server = Server::new(ServerSeed {
        id: number as u32 + 1,
        name: format!("s{number}").into(),
        proxy: "b".into(),
        backup: false,
        maxconn: 0,
        minconn: 0,
        maxqueue: 0,
        address: ServerAddress::Unresolved,
        weight: 1,
        disabled: false,
        checked: true,
    });
    server.guid.set(format!("guid-{number}").into()).unwrap();
    server
}

fn backend() -> Arc<Proxy> {
    let seed = ProxySeed {
        id: 2,
        name: "b".into(),
        mode: Mode::Http,
        is_frontend: false,
        is_backend: true,
        maxconn: 0,
        session_limit: 0,
        disabled: false,
    };
    let backend = Proxy::new(seed);
    backend.guid.set("guid-b".into()).unwrap();
    backend.servers.store(Arc::new((0..SERVERS).map(server).collect()));
    Arc::new(backend)
}

fn name(of: &str) -> String {
    format!("weir-unit-{}-{of}", std::process::id())
}

fn path(of: &str) -> PathBuf {
    PathBuf::from("/dev/shm").join(name(of))
}

impl Process {
    fn start(name: &str, most: u32) -> Result<Self, String> {
        let backend = backend();
        SharedCounters::open(name, most, [&backend].into_iter()).map(|shared| Self { shared, backend })
    }

    fn exchange(&self) {
        self.shared.exchange([&self.backend].into_iter()).unwrap();
    }

    /// Bytes and failed checks of each server, and bytes of the backend.
    fn shown(&self) -> (Vec<(u64, u32)>, u64) {
        let servers = self.backend.servers.load();
        let of_server = |server: &Arc<Server>| {
            let bytes = total_of_all(&server.counters, |own| own.traffic.bytes_in.get());
            (bytes, server.downs.load(Relaxed))
        };
        let of_backend = total_of_all(&self.backend.backend, |own| own.traffic.bytes_in.get());
        (servers.iter().map(of_server).collect(), of_backend)
    }
}

fn exchange_all(processes: &[Process]) {
    // Done twice, so that the first process reads the values of the last one.
    processes.iter().chain(processes).for_each(Process::exchange);
}

#[test]
fn all_processes_show_the_sum_since_the_last_clear() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let own_name = name(&format!("model-{seed}"));
        let mut processes: Vec<Process> = Vec::new();
        let (mut servers, mut of_backend) = (vec![(0, 0); SERVERS], 0);
        for _ in 0..200 {
            match random.u32(0..100) {
                0..15 if processes.len() < 5 => processes.push(Process::start(&own_name, 16).unwrap()),
                15..25 if !processes.is_empty() => {
                    let process = processes.swap_remove(random.usize(0..processes.len()));
                    process.shared.leave([&process.backend].into_iter());
                    if processes.is_empty() {
                        assert!(!path(&format!("model-{seed}")).exists(), "the last one releases the file");
                        (servers, of_backend) = (vec![(0, 0); SERVERS], 0);
                    }
                }
                25..30 if !processes.is_empty() => {
                    exchange_all(&processes);
                    let process = &processes[random.usize(0..processes.len())];
                    let all = [&process.backend].into_iter();
                    process.shared.clear(&Cleared::All, all).unwrap();
                    exchange_all(&processes);
                    (servers, of_backend) = (vec![(0, 0); SERVERS], 0);
                }
                30..35 if !processes.is_empty() => {
                    exchange_all(&processes);
                    let process = &processes[random.usize(0..processes.len())];
                    let number = random.usize(0..SERVERS);
                    let one = process.backend.servers.load()[number].clone();
                    process.shared.clear(&Cleared::Server(one), [&process.backend].into_iter()).unwrap();
                    exchange_all(&processes);
                    servers[number] = (0, 0);
                }
                35..45 if !processes.is_empty() => {
                    // Another server with the same identifier: deleted and added, or a reload in place. The old one is exchanged
                    // first, as when a view is replaced.
                    let process = &processes[random.usize(0..processes.len())];
                    process.exchange();
                    let mut own = process.backend.servers.load().to_vec();
                    let number = random.usize(0..SERVERS);
                    own[number] = server(number);
                    process.backend.servers.store(Arc::new(own));
                }
                45..90 if !processes.is_empty() => {
                    let process = &processes[random.usize(0..processes.len())];
                    let number = random.usize(0..SERVERS);
                    let one = &process.backend.servers.load()[number];
                    one.counters.mine().traffic.bytes_in.add(7);
                    process.backend.backend.mine().traffic.bytes_in.add(9);
                    one.downs.fetch_add(1, Relaxed);
                    servers[number].0 += 7;
                    servers[number].1 += 1;
                    of_backend += 9;
                }
                _ => processes.iter().for_each(Process::exchange),
            }
            if random.u32(0..5) == 0 {
                exchange_all(&processes);
                for process in &processes {
                    assert_eq!(process.shown(), (servers.clone(), of_backend), "seed {seed}");
                }
            }
        }
        drop(processes);
        assert!(!path(&format!("model-{seed}")).exists());
    }
}

#[test]
fn unused_places_in_the_file_are_reused() {
    let own_name = name("places");
    let process = Process::start(&own_name, 4).unwrap();
    process.exchange();
    let mut own = process.backend.servers.load().to_vec();
    own[0].counters.mine().traffic.bytes_in.add(1);
    process.exchange();
    own[0] = server(7);
    process.backend.servers.store(Arc::new(own.clone()));
    process.exchange();
    assert_eq!(process.shown().0[0].0, 0, "another one begins at nothing");
    own.push(server(8));
    process.backend.servers.store(Arc::new(own));
    let told = process.shared.exchange([&process.backend].into_iter()).unwrap_err();
    assert!(told.contains("at least 5") && told.contains("guid-8"), "{told}");
    process.exchange();
    drop(process);
    assert!(!path("places").exists());
    let told = Process::start(&own_name, 3).map(drop).unwrap_err();
    assert!(told.contains("at least 4"), "{told}");
    assert!(!path("places").exists());
}

#[test]
fn the_number_of_processes_per_file_is_limited() {
    let own_name = name("crowd");
    let mut all: Vec<Process> = (0..32).map(|_| Process::start(&own_name, 8).unwrap()).collect();
    let told = Process::start(&own_name, 8).map(drop).unwrap_err();
    assert!(told.contains("32 processes"), "{told}");
    all.pop();
    assert!(Process::start(&own_name, 8).is_ok(), "the place of one that left");
}
