//! Checks on real workers: all on one at first, then on both.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use config::Boot;
use diag::SourceMap;
use state::Process;

const CHECKS: u32 = 8;

/// Starts a server that closes each connection.
fn closer() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    port
}

fn eventually(mut ask: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if ask() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[test]
fn checks_spread_over_both_workers_and_end_with_their_plan() {
    let port = closer();
    let servers: String =
        (0..CHECKS).map(|n| format!(" server s{n} 127.0.0.1:{port} check inter 10ms\n")).collect();
    let mut sources = SourceMap::new();
    let file = sources.add("test.cfg", format!("backend be\n{servers}"));
    let plan = config::load_sources(sources, vec![file], &Boot::default()).plan.expect("a plan");
    let mut inboxes = runtime::worker::prepare(2).expect("the only workers of this process");
    let process = Arc::new(Process::default());
    let checks = Arc::new(health::Checks::new(&plan, process.clone(), Arc::new(|_, _, _| {}), None));
    // The checks start as if there were a single worker, which takes all of them.
    runtime::shard::set_workers(1);
    let (ended, leave) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, begins) = std::sync::mpsc::channel();
    let mut threads = Vec::new();
    for index in 0..2 {
        let (checks, ended, leave) = (checks.clone(), ended.clone(), leave.clone());
        let begun = begun.clone();
        let main = move || async move {
            let running = checks.start();
            begun.send(()).expect("the test waits");
            while !ended.load(Relaxed) {
                runtime::timer::sleep(Duration::from_millis(2)).await;
            }
            drop(running);
            // Tasks that are moving between the two workers arrive, and end.
            while !leave.load(Relaxed) {
                runtime::timer::sleep(Duration::from_millis(2)).await;
            }
        };
        threads
            .push(inboxes.spawn(index, runtime::worker::WorkerPlacement::default(), main).expect("a thread"));
    }
    for _ in 0..2 {
        begins.recv().expect("both workers begin");
    }
    runtime::shard::set_workers(2);
    let loads = || process.checks.all().map(|counters| counters.present()).collect::<Vec<_>>();
    assert!(eventually(|| loads() == [CHECKS / 2; 2]), "{:?}", loads());
    let there = process.checks.all().nth(1).expect("two workers");
    let adopted = || there.adopted.get();
    assert!(
        eventually(|| adopted() == u64::from(CHECKS / 2)),
        "a check hops no further than it must: {}",
        adopted()
    );
    let before = there.started.get();
    assert!(eventually(|| there.started.get() > before + 20), "checks go on where they landed");
    ended.store(true, Relaxed);
    assert!(eventually(|| loads() == [0; 2]), "{:?}", loads());
    leave.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("a worker ends"));
    let all_up =
        plan.proxies[0].servers.iter().all(|server| server.state.health.last.load().status == "L4OK");
    assert!(all_up);
}
