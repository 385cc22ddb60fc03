//! Measures the cost of a pick in nanoseconds, for every algorithm with 4, 100 and 10,000 servers: `make bench BENCH=balance`.
//!
//! It prints three numbers for each: the pick with servers of equal weight, the pick with servers of weights 1 to 8, and the latter
//! with the start and end of the request (two locked additions and the algorithm's own accounting). Caches are warm and there is
//! one thread. The minimum of many short rounds is used, because other activity on the machine only adds time.
//!
//!     cargo run --release -p weir-balance --example picks [part of a name [servers [rounds]]]
//!
//! With few rounds, it can be run under `valgrind --tool=cachegrind`, which counts instructions if clocks are too coarse.

#![allow(missing_docs)]

#[path = "../tests/common/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use balance::{Algorithm, BalanceSettings, HashKind, HashType, UriPart, Wish};
use common::{Farm, server};

const ROUNDS: usize = 60;
const PICKS: u32 = 20_000;

fn settings() -> Vec<(&'static str, BalanceSettings)> {
    let uri = || Algorithm::Uri(UriPart::default());
    let consistent = HashType { kind: HashKind::Consistent, ..HashType::default() };
    let of = |algorithm| BalanceSettings { algorithm, ..BalanceSettings::default() };
    vec![
        ("roundrobin", of(Algorithm::RoundRobin)),
        ("static-rr", of(Algorithm::StaticRr)),
        ("leastconn", of(Algorithm::LeastConn)),
        ("first", of(Algorithm::First)),
        ("random(1)", of(Algorithm::Random { draws: 1 })),
        ("random(2)", of(Algorithm::Random { draws: 2 })),
        ("peak-ewma", of(Algorithm::PeakEwma { decay: Duration::from_secs(10) })),
        ("hash, map-based", of(uri())),
        ("hash, consistent", BalanceSettings { hash: consistent, ..of(uri()) }),
        ("hash, bounded load", BalanceSettings { hash: consistent, balance_factor: 150, ..of(uri()) }),
    ]
}

/// The shortest time of several rounds, in ns per call.
fn measure(rounds: usize, mut call: impl FnMut(u32)) -> f64 {
    (0..rounds)
        .map(|round| {
            let start = Instant::now();
            (0..PICKS).for_each(|number| call(round as u32 * PICKS + number));
            start.elapsed().as_nanos() as f64 / f64::from(PICKS)
        })
        .fold(f64::MAX, f64::min)
}

fn wish(number: u32) -> Wish {
    Wish { hash: Some(number.wrapping_mul(0x9e37_79b9)), avoid: None, now_us: 2_000_000 }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| words.first().is_none_or(|part| name.contains(part.as_str()));
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
    let counts = number(1).map_or(vec![4, 100, 10_000], |count| vec![count]);
    let rounds = number(2).unwrap_or(ROUNDS);
    println!(
        "| algorithm | servers | pick, equal weights, ns | pick, weights 1 to 8, ns | come and go too, ns |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (name, settings) in settings().into_iter().filter(|(name, _)| wanted(name)) {
        for &count in &counts {
            let equal = farm(&settings, count, |_| 1);
            let alone = measure(rounds, |number| {
                black_box(equal.pick(wish(number)));
            });
            drop(equal);
            let uneven = farm(&settings, count, |at| 1 + (at % 8) as u32);
            let weighted = measure(rounds, |number| {
                black_box(uneven.pick(wish(number)));
            });
            let whole = measure(rounds, |number| {
                if let Some(at) = uneven.pick(wish(number)) {
                    uneven.enter(at);
                    uneven.leave(at);
                }
            });
            println!("| {name} | {count} | {alone:.1} | {weighted:.1} | {whole:.1} |");
        }
    }
}

/// A tenth of the servers are busy, so that loads differ. All servers have responded before.
fn farm(settings: &BalanceSettings, count: usize, weight: impl Fn(usize) -> u32) -> Farm {
    // Settings may hold an expression and cannot be copied.
    let own = BalanceSettings {
        algorithm: again(&settings.algorithm),
        hash: settings.hash,
        balance_factor: settings.balance_factor,
        preserve_affinity: settings.preserve_affinity,
        all_backups: false,
        ..BalanceSettings::default()
    };
    let farm = Farm::with(own, (0..count).map(|at| server(at, weight(at), false)).collect());
    for at in 0..count {
        farm.picker.answered(at, 1_000_000, 1_000 + at as u64 % 100, state::AttemptOutcome::Good);
        (0..usize::from(at % 10 == 0)).for_each(|_| farm.enter(at));
    }
    farm
}

fn again(algorithm: &Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::RoundRobin => Algorithm::RoundRobin,
        Algorithm::StaticRr => Algorithm::StaticRr,
        Algorithm::LeastConn => Algorithm::LeastConn,
        Algorithm::First => Algorithm::First,
        Algorithm::Random { draws } => Algorithm::Random { draws: *draws },
        Algorithm::PeakEwma { decay } => Algorithm::PeakEwma { decay: *decay },
        _ => Algorithm::Uri(UriPart::default()),
    }
}
