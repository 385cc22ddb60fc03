//! What stick tables cost when several workers use them at once: addresses that differ, and one
//! address for all, as in a flood; and what follows for a proxy of 64 workers.
//!
//!     cargo run --release -p weir-state --example hot_key [threads]
//!
//! Called by `make bench-threads`. Prints Markdown; nothing is asserted.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use state::table::{Column, Data, KeyType, ServerKey, Settings, Table, Tracked};

const TIME: Duration = Duration::from_millis(500);
/// CPU time of a request of 100 bytes in microseconds, all in all (`docs/benchmarks.md`).
const REQUEST_US: f64 = 15.0;

fn table() -> Arc<Table> {
    Table::new(Settings {
        name: "t".into(),
        kind: KeyType::Ip4,
        key_length: 4,
        size: 100_000,
        expire_ms: 600_000,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![
            Column::new(Data::ConnRate, 1, 10_000),
            Column::new(Data::HttpReqRate, 1, 10_000),
            Column::new(Data::HttpErrRate, 1, 10_000),
        ],
        peers: None,
    })
}

/// What a request does: it finds its address, counts in it, and lets it go.
fn request(table: &Arc<Table>, address: u32, now_ms: u64) {
    let Some(tracked) = Tracked::get(table, &address.to_be_bytes(), now_ms) else { return };
    let view = tracked.view();
    view.add(Data::ConnRate, 0, 1, now_ms);
    view.add(Data::HttpReqRate, 0, 1, now_ms);
    view.touch(now_ms);
}

/// Nanoseconds from one request to the next on all threads together, where each thread takes its
/// addresses from `address` by its own number and a count; and the longest that one took, in
/// microseconds.
fn measure(threads: usize, address: impl Fn(u32, u32) -> u32 + Sync) -> (f64, f64) {
    let (table, stop, start) = (&table(), &AtomicBool::new(false), &Barrier::new(threads + 1));
    let address = &address;
    let (requests, longest) = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads as u32)
            .map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    let (mut count, mut longest) = (0, Duration::ZERO);
                    let began = Instant::now();
                    while !stop.load(Relaxed) {
                        let now_ms = began.elapsed().as_millis() as u64;
                        let before = Instant::now();
                        for _ in 0..16 {
                            request(table, address(thread, count), now_ms);
                            count += 1;
                        }
                        longest = longest.max(before.elapsed());
                    }
                    (u64::from(count), longest)
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(TIME);
        stop.store(true, Relaxed);
        running
            .into_iter()
            .map(|thread| thread.join().expect("a thread ends"))
            .fold((0, Duration::ZERO), |(all, longest), (own, time)| (all + own, longest.max(time)))
    });
    (TIME.as_nanos() as f64 / requests as f64, longest.as_secs_f64() * 1e6)
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(cores.max(2));
    println!("Tracking an address with three rates, {cores} cores:\n");
    println!("| threads | addresses | ns from request to request, all threads | longest, 16 requests, µs |");
    println!("| --: | --- | --: | --: |");
    let mut hot = 0.0f64;
    for threads in [1, most] {
        let (each, longest) = measure(threads, |thread, count| thread << 24 | count % 1000);
        println!("| {threads} | 1,000 for each thread | {each:.0} | {longest:.0} |");
        let (each, longest) = measure(threads, |_, _| 7);
        println!("| {threads} | one for all | {each:.0} | {longest:.0} |");
        hot = hot.max(each);
    }
    // One address lets through what its lines do, whatever the number of workers.
    println!(
        "\nOne address lets through at most {:.1} M requests/s, however many workers there are.",
        1e3 / hot
    );
    println!(
        "A worker makes at most {:.0},000 requests/s, so that in a flood from one address:\n",
        1e3 / REQUEST_US
    );
    println!("| workers | requests/s without tracking, M | of them one address lets through |");
    println!("| --: | --: | --: |");
    for workers in [2.0, 8.0, 16.0, 64.0] {
        let asked = workers / REQUEST_US;
        println!("| {workers} | {asked:.2} | {:.0} % |", (1e3 / hot / asked).min(1.0) * 100.0);
    }
}
