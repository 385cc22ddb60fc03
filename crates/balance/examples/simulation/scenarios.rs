//! The simulated scenarios: published experiments, and problems of servers that occur in practice.

use std::time::Duration;

use balance::Algorithm;

use crate::model::{Load, MS, Machine, ORIGIN, Origin, SECOND};

/// A proxy in front of some servers, under some load.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub machine: Machine,
    pub origins: Vec<Origin>,
    pub load: Load,
    /// The virtual time to ignore, and the total.
    pub warm: u64,
    pub length: u64,
}

/// Makes an algorithm's settings.
type Make = fn() -> Algorithm;

/// The compared algorithms. They are listed explicitly because [`Algorithm`] may hold an expression and cannot be copied.
pub const ALGORITHMS: &[(&str, Make)] = &[
    ("roundrobin", || Algorithm::RoundRobin),
    ("leastconn", || Algorithm::LeastConn),
    ("random(2)", || Algorithm::Random { draws: 2 }),
    ("peak-ewma 1s", || Algorithm::PeakEwma { decay: Duration::from_secs(1) }),
    ("peak-ewma 10s", || Algorithm::PeakEwma { decay: Duration::from_secs(10) }),
];

/// 64 threads that could process 1.48 million requests per second without load balancing, about the best result of the published
/// machine. A transfer of a cache line between two chiplets of an EPYC takes 150 ns.
const BIG: Machine = Machine { threads: 64, groups: 4, request: 43_200, line: 150 };
/// The same speed on the 128 threads of the published machine.
const BIGGER: Machine = Machine { threads: 128, groups: 2, request: 86_400, line: 150 };
/// A machine without contention, for scenarios about servers.
const CALM: Machine = Machine { threads: 64, groups: 4, request: 20_000, line: 0 };

/// A server behind a link with this number of gigabits per second, which sends 1 kB responses with headers one after the other.
fn link(gigabits: u64) -> Origin {
    Origin { slots: 1, service: 10_400 / gigabits, ..ORIGIN }
}

/// A server that takes 2 ms for each of 16 concurrent requests: 8,000 per second.
const PLAIN: Origin = Origin { service: 2 * MS, ..ORIGIN };

/// All scenarios.
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
        short("4 equal servers, 4 groups of 16 threads", BIG, equal.clone(), Load::Closed(1024)),
        short("4 equal servers, 2 groups of 64 threads", BIGGER, equal.clone(), Load::Closed(2048)),
        short(
            "4 equal servers, 8 groups of 16 threads",
            Machine { groups: 8, ..BIGGER },
            equal,
            Load::Closed(2048),
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
