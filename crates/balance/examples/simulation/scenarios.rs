//! What is simulated: the published experiments, and what happens to servers in practice.

use std::time::Duration;

use balance::Algorithm;

use crate::model::{Load, MS, Machine, ORIGIN, Origin, SECOND};

/// A proxy before some servers under some load.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub machine: Machine,
    pub origins: Vec<Origin>,
    pub load: Load,
    /// Virtual time that does not count, and all of it.
    pub warm: u64,
    pub length: u64,
}

/// Makes an algorithm's settings.
type Make = fn() -> Algorithm;

/// What is compared. Written out since [`Algorithm`] may hold an expression and cannot be copied.
pub const ALGORITHMS: &[(&str, Make)] = &[
    ("roundrobin", || Algorithm::RoundRobin),
    ("leastconn", || Algorithm::LeastConn),
    ("random(2)", || Algorithm::Random { draws: 2 }),
    ("random(3)", || Algorithm::Random { draws: 3 }),
    ("peak-ewma 1s", || Algorithm::PeakEwma { decay: Duration::from_secs(1) }),
    ("peak-ewma 3s", || Algorithm::PeakEwma { decay: Duration::from_secs(3) }),
    ("peak-ewma 10s", || Algorithm::PeakEwma { decay: Duration::from_secs(10) }),
];

/// 64 threads that could do 1.47 million requests a second, as the published machine did at its best.
const BIG: Machine = Machine { threads: 64, groups: 8, request: 43_300, line: 60 };
/// The same without contention, for what is about servers.
const CALM: Machine = Machine { threads: 64, groups: 4, request: 20_000, line: 0 };

/// A server behind a link of so many gigabits: 1 kB and its headers one after the other.
fn link(gigabits: u64) -> Origin {
    Origin { slots: 1, service: 10_400 / gigabits, ..ORIGIN }
}

/// A server that takes 2 ms for each of 16 requests at once: 8,000 a second.
const PLAIN: Origin = Origin { service: 2 * MS, ..ORIGIN };

/// Everything.
pub fn all() -> Vec<Scenario> {
    let short = |name, machine, origins, load| Scenario {
        name,
        machine,
        origins,
        load,
        warm: 200 * MS,
        length: 500 * MS,
    };
    let long = |name, origins, rate| Scenario {
        name,
        machine: CALM,
        origins,
        load: Load::Open(rate),
        warm: 2 * SECOND,
        length: 12 * SECOND,
    };
    let equal = vec![link(25); 4];
    let mut degraded = equal.clone();
    degraded[3] = link(1);
    let pausing = vec![Origin { pause: Some((200 * MS, 3 * SECOND)), ..PLAIN }; 8];
    let sized = |weights: [u32; 4]| -> Vec<Origin> {
        weights
            .iter()
            .zip([4usize, 8, 16, 32])
            .map(|(weight, slots)| Origin { weight: *weight, slots, ..PLAIN })
            .collect()
    };
    let mut joining = vec![PLAIN; 4];
    joining[3].joins = Some((3 * SECOND, 8 * SECOND, 8.0));
    let mut slower = vec![PLAIN; 4];
    slower[3].service = 10 * MS;
    let mut failing = vec![PLAIN; 4];
    failing[3].fails_from = Some(4 * SECOND);
    vec![
        short("4 equal servers, 8 groups of 8 threads", BIG, equal.clone(), Load::Closed(1024)),
        short(
            "4 equal servers, 1 group of 64 threads",
            Machine { groups: 1, ..BIG },
            equal,
            Load::Closed(1024),
        ),
        short("one of 4 servers degraded to 1/25", BIG, degraded, Load::Closed(1024)),
        long("8 servers, each pausing 200 ms every 3 s", pausing, 40_000.0),
        long("capacities 1:2:4:8, weights to match", sized([1, 2, 4, 8]), 24_000.0),
        long("capacities 1:2:4:8, equal weights", sized([1, 1, 1, 1]), 7_500.0),
        long("one of 4 servers five times slower", slower, 18_000.0),
        long("a cold server joins and warms up (slowstart)", joining, 20_000.0),
        long("one of 4 servers fails at once", failing, 18_000.0),
    ]
}
