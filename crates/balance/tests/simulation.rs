//! What the simulation shows, as claims: virtual time and a seed, so the same on every machine.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../examples/simulation/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../examples/simulation/scenarios.rs"]
#[allow(dead_code)]
mod scenarios;

use std::sync::Mutex;

use model::{MS, Outcome, SECOND, Simulation};

/// Held while one runs: the number of groups is the process's.
static ONE: Mutex<()> = Mutex::new(());

fn run(scenario: &str, algorithm: &str) -> Outcome {
    let _held = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let scenario = scenarios::all().into_iter().find(|one| one.name.contains(scenario)).unwrap();
    let (_, algorithm) = scenarios::ALGORITHMS.iter().find(|(name, _)| *name == algorithm).unwrap();
    // Shorter than what is printed: tests are built with fewer optimizations.
    let (warm, length) =
        if scenario.length > SECOND { (2 * SECOND, 6 * SECOND) } else { (60 * MS, 160 * MS) };
    Simulation::new(scenario.machine, &scenario.origins, scenario.load, algorithm(), 1).run(warm, length)
}

#[test]
fn slow_pausing_and_failing_servers_harm_those_algorithms_that_look_away() {
    let rate = |scenario, algorithm| run(scenario, algorithm).rate;
    // As published: round robin is bound to four times the slow server, the others hardly notice
    // it.
    let fair = rate("4 equal servers, 4 groups", "roundrobin");
    assert!(rate("degraded", "roundrobin") < 0.35 * fair);
    for algorithm in ["leastconn", "random(2)", "peak-ewma 10s"] {
        assert!(rate("degraded", algorithm) > 0.9 * fair, "{algorithm}");
    }
    // Latency knows what counts do not: that a server is slow even when it is not busy.
    let slow = |algorithm| run("five times slower", algorithm).latency;
    assert!(slow("peak-ewma 10s")[1] < slow("leastconn")[1]);
    assert!(slow("leastconn")[1] < slow("roundrobin")[1] / 10);
    // A server that fails at once is never busy and draws everything, unless failures count as
    // slowness.
    let errors = |algorithm| run("fails at once", algorithm).errors;
    assert!(errors("leastconn") > errors("roundrobin"));
    assert!(errors("peak-ewma 10s") < errors("roundrobin") / 10.0);
    // While a server pauses, its requests pile up: only round robin goes on sending.
    let pausing = |algorithm| run("pausing", algorithm).latency[1];
    assert!(pausing("roundrobin") > 4 * pausing("leastconn"));
    assert!(pausing("roundrobin") > 4 * pausing("peak-ewma 10s"));
}

#[test]
fn a_seed_gives_the_same_outcome_every_time() {
    let once = || {
        let outcome = run("weights to match", "peak-ewma 1s");
        (outcome.shares, outcome.latency)
    };
    let first = once();
    assert_eq!(first, once());
    // Weights 1:2:4:8 divide the work so, within a few percent.
    let all: u64 = first.0.iter().sum();
    for (share, weight) in first.0.iter().zip([1u64, 2, 4, 8]) {
        let wanted = all * weight / 15;
        assert!(share.abs_diff(wanted) * 5 < wanted, "{:?}", first.0);
    }
}
