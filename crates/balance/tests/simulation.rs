//! Results of the simulation. Time is virtual and the seed is fixed, so they are the same on every machine.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../examples/simulation/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../examples/simulation/scenarios.rs"]
#[allow(dead_code)]
mod scenarios;

use std::sync::Mutex;

use model::{MS, Outcome, SECOND, Simulation};

/// Held during a run, because the number of groups is process-wide.
static ONE: Mutex<()> = Mutex::new(());

fn run(scenario: &str, algorithm: &str) -> Outcome {
    let _held = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let scenario = scenarios::all().into_iter().find(|one| one.name.contains(scenario)).unwrap();
    let (_, algorithm) = scenarios::ALGORITHMS.iter().find(|(name, _)| *name == algorithm).unwrap();
    // Shorter than the printed runs, because tests are less optimized.
    let (warm, length) =
        if scenario.length > SECOND { (2 * SECOND, 6 * SECOND) } else { (60 * MS, 160 * MS) };
    Simulation::new(scenario.machine, &scenario.origins, scenario.load, algorithm(), 1).run(warm, length)
}

#[test]
fn algorithms_differ_for_slow_pausing_and_failing_servers() {
    let rate = |scenario, algorithm| run(scenario, algorithm).rate;
    // As published: round robin is limited to four times the rate of the slow server, and the others hardly notice it.
    let fair = rate("4 equal servers, 4 groups", "roundrobin");
    assert!(rate("degraded", "roundrobin") < 0.35 * fair);
    for algorithm in ["leastconn", "random(2)", "peak-ewma 10s"] {
        assert!(rate("degraded", algorithm) > 0.9 * fair, "{algorithm}");
    }
    // Latency reveals a slow server even if it is not busy; counts do not.
    let slow = |algorithm| run("five times slower", algorithm).latency;
    assert!(slow("peak-ewma 10s")[1] < slow("leastconn")[1]);
    assert!(slow("leastconn")[1] < slow("roundrobin")[1] / 10);
    // A server that fails immediately is never busy and attracts all requests, unless failures count as slowness.
    let errors = |algorithm| run("fails at once", algorithm).errors;
    assert!(errors("leastconn") > errors("roundrobin"));
    assert!(errors("peak-ewma 10s") < errors("roundrobin") / 10.0);
    // While a server pauses, requests pile up there: only round robin continues to send requests.
    let pausing = |algorithm| run("pausing", algorithm).latency[1];
    assert!(pausing("roundrobin") > 4 * pausing("leastconn"));
    assert!(pausing("roundrobin") > 4 * pausing("peak-ewma 10s"));
}

#[test]
fn outcomes_are_deterministic() {
    let once = || {
        let outcome = run("weights to match", "peak-ewma 1s");
        (outcome.shares, outcome.latency)
    };
    let first = once();
    assert_eq!(first, once());
    // Weights 1:2:4:8 divide the work accordingly, within a few percent.
    let all: u64 = first.0.iter().sum();
    for (share, weight) in first.0.iter().zip([1u64, 2, 4, 8]) {
        let wanted = all * weight / 15;
        assert!(share.abs_diff(wanted) * 5 < wanted, "{:?}", first.0);
    }
}
