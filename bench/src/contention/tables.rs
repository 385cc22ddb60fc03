//! The cost of stick tables used by several threads at once: with different addresses, and with a single address, as in a flood.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use state::table::{Column, DataType, KeyType, ServerKey, Table, TableSettings, Tracked};

use crate::contention::{TIME, measure};

fn table() -> Arc<Table> {
    Table::new(TableSettings {
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
            Column::new(DataType::ConnRate, 1, 10_000),
            Column::new(DataType::HttpReqRate, 1, 10_000),
            Column::new(DataType::HttpErrRate, 1, 10_000),
        ],
        peers: None,
        aggregate: None,
    })
}

/// Simulates a request: looks up its address, counts, and releases the entry.
fn request(table: &Arc<Table>, address: u32, now_ms: u64) {
    let Some(tracked) = Tracked::get(table, &address.to_be_bytes(), now_ms) else { return };
    let view = tracked.view();
    view.add(DataType::ConnRate, 0, 1, now_ms);
    view.add(DataType::HttpReqRate, 0, 1, now_ms);
    view.touch(now_ms);
}

/// Returns the nanoseconds per request across all threads, where each thread takes its addresses from `address`, given its number
/// and a count.
fn each(threads: usize, address: impl Fn(u32, u32) -> u32 + Sync) -> f64 {
    let (table, began) = (table(), Instant::now());
    let (requests, _) = measure(threads, |thread, stop| {
        let mut count: u32 = 0;
        while !stop.load(Relaxed) {
            let now_ms = began.elapsed().as_millis() as u64;
            for _ in 0..16 {
                request(&table, address(thread as u32, count), now_ms);
                count = count.wrapping_add(1);
            }
        }
        (u64::from(count), Duration::ZERO)
    });
    TIME.as_nanos() as f64 / requests as f64
}

/// Prints the costs for one thread and for `most`, and a model for more workers that track one address.
pub(crate) fn run(most: usize) {
    println!("A request tracks its address and counts in two of three rates:\n");
    println!("| threads | addresses | ns from request to request, all threads |");
    println!("| --: | --- | --: |");
    let mut of_one = Vec::new();
    for threads in [1, most] {
        let several = each(threads, |thread, count| (thread << 24) | (count % 1000));
        println!("| {threads} | 1,000 for each thread | {several:.0} |");
        let one = each(threads, |_, _| 7);
        println!("| {threads} | one for all | {one:.0} |");
        of_one.push(one);
    }
    if let [alone, together] = of_one[..] {
        model(alone, together, most as f64);
    }
}

/// The tracked requests per second of the model, all with the same address.
const RATE: f64 = 10_000.0;

/// Prints the cost of tracking one address for more workers than the machine has cores.
///
/// Requests to one entry exclude each other for `together` ns at most, which is the time between requests of `measured` threads that do
/// nothing else. A request of such a thread takes `measured` times as long, with all transfers of cache lines. The model takes this
/// for each request that follows one of another worker, and adds the time to wait for others.
fn model(alone: f64, together: f64, measured: f64) {
    let moved = (together * measured - alone).max(0.0);
    let busy = RATE * together / 1e9;
    println!(
        "\nModel: {RATE} requests a second track one address. Its entry is in use {:.2} % of the time.\n",
        busy * 100.0
    );
    println!("| workers | ns for each request, at most | of them waiting |");
    println!("| --: | --: | --: |");
    for workers in [1.0, 2.0, 4.0, 8.0] {
        let others = (workers - 1.0) / workers;
        let waiting = together * others * busy / (1.0 - busy);
        println!("| {workers} | {:.0} | {waiting:.1} |", alone + moved * others + waiting);
    }
}
