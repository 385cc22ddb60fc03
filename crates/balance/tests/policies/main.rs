//! The benefits of `outlier-ejection`, `retry-budget` and `hedge`, and that they do no harm. Time is virtual and seeds are fixed,
//! so the results are the same on every machine.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod common;
mod model;

use std::sync::Arc;

use balance::hedge::After;
use balance::outliers::Latency;
use balance::{Algorithm, BalanceSettings, Budget, Hedge, Outliers};
use model::{Behaviour, MS, Outcome, SECOND, Setup, Simulation};
use state::server::Operational;

/// Response times of about `ms`, log-normally distributed: most differ slightly, and few are much longer.
fn usual(ms: u64, sigma: f64) -> Behaviour {
    Box::new(move |random, _| (((ms * MS) as f64 * (sigma * normal(random)).exp()) as u64 + 1, true))
}

fn normal(random: &mut fastrand::Rng) -> f64 {
    let (one, two) = (1.0 - random.f64(), random.f64());
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos()
}

/// Like `good`, but fails immediately at the times selected by `fails`.
fn failing(good: Behaviour, fails: impl Fn(u64) -> bool + 'static) -> Behaviour {
    Box::new(move |random, now| if fails(now) { (200, false) } else { good(random, now) })
}

/// Like `good`, but with a share of failed responses.
fn unreliable(good: Behaviour, share: f64) -> Behaviour {
    Box::new(move |random, now| if random.f64() < share { (500, false) } else { good(random, now) })
}

/// Normal servers except for the first.
fn one_of(count: usize, first: Behaviour) -> Vec<Behaviour> {
    std::iter::once(first).chain((1..count).map(|_| usual(5, 0.5))).collect()
}

fn errors(most: u32) -> Outliers {
    Outliers { errors: Some(most), ..Outliers::default() }
}

fn ejecting(outliers: Outliers) -> BalanceSettings {
    BalanceSettings { outliers: Some(Box::new(outliers)), ..BalanceSettings::default() }
}

fn run(settings: BalanceSettings, servers: Vec<Behaviour>) -> Outcome {
    Simulation::run(Setup::new(settings, servers), 7)
}

#[test]
fn failing_servers_are_ejected_after_a_few_errors() {
    let with = |settings| run(settings, one_of(8, failing(usual(5, 0.5), |_| true)));
    let (plain, ejected) = (with(BalanceSettings::default()), with(ejecting(errors(5))));
    assert!((0.11..0.14).contains(&plain.error_share()), "{}", plain.error_share());
    assert!(ejected.error_share() < 0.001, "{}", ejected.error_share());
    assert!(ejected.lost < 1.0 / 8.0 + 0.001, "{}", ejected.lost);
}

#[test]
fn occasional_failures_are_detected_by_their_share() {
    let with = |settings| run(settings, one_of(8, unreliable(usual(5, 0.5), 0.3)));
    let outliers = Outliers { error_rate: Some(10), ..Outliers::default() };
    let (plain, ejected) = (with(BalanceSettings::default()), with(ejecting(outliers)));
    assert!(ejected.errors * 4 < plain.errors, "{} instead of {}", ejected.errors, plain.errors);
}

#[test]
fn repeated_ejections_get_longer() {
    let flapping = |settings| {
        let first = failing(usual(5, 0.5), |now| (now / (3 * SECOND)).is_multiple_of(2));
        let setup = Setup { length: 600 * SECOND, rate: 200.0, ..Setup::new(settings, one_of(5, first)) };
        Simulation::run(setup, 3)
    };
    let (plain, ejected) = (flapping(BalanceSettings::default()), flapping(ejecting(errors(5))));
    assert!(ejected.errors * 50 < plain.errors, "{} instead of {}", ejected.errors, plain.errors);
    assert!((3..12).contains(&ejected.ejections), "{}", ejected.ejections);
}

#[test]
fn slow_servers_are_detected_against_the_median() {
    let slow = |settings| run(settings, one_of(10, usual(200, 0.5)));
    let latency = Latency { factor: 3.0, quantile: 0.5, over_us: 10_000 };
    let ejecting = ejecting(Outliers { latency: Some(latency), ..Outliers::default() });
    let (plain, ejected) = (slow(BalanceSettings::default()), slow(ejecting));
    assert!(plain.quantile(0.99) > 100 * MS, "{}", plain.quantile(0.99));
    assert!(ejected.quantile(0.99) < 20 * MS, "{}", ejected.quantile(0.99));
}

#[test]
fn common_problems_eject_no_server() {
    let latency = Latency { factor: 3.0, quantile: 0.9, over_us: 10_000 };
    let all = Outliers { error_rate: Some(20), latency: Some(latency), ..errors(5) };
    // For half a minute, something on which all servers depend is out of order.
    let outage = |now: u64| (20 * SECOND..50 * SECOND).contains(&now);
    let servers: Vec<_> = (0..10).map(|_| failing(usual(5, 0.5), outage)).collect();
    let outcome = run(ejecting(all.clone()), servers);
    assert!(outcome.ejections <= 1, "{}", outcome.ejections);
    let slow = |now: u64| if (20 * SECOND..50 * SECOND).contains(&now) { 400 } else { 5 };
    let servers =
        (0..10).map(|_| -> Behaviour { Box::new(move |random, now| usual(slow(now), 0.5)(random, now)) });
    assert_eq!(run(ejecting(all), servers.collect()).ejections, 0);
}

#[test]
fn healthy_farms_with_heavy_tails_lose_little_capacity() {
    for (seed, sigma) in [(1, 1.0), (2, 1.5), (3, 2.0), (4, 1.5), (5, 1.5)] {
        let latency = Latency { factor: 3.0, quantile: 0.9, over_us: 10_000 };
        let all = Outliers { error_rate: Some(10), latency: Some(latency), ..errors(5) };
        let servers = (0..20).map(|_| unreliable(usual(5, sigma), 0.02)).collect();
        let outcome =
            Simulation::run(Setup { length: 120 * SECOND, ..Setup::new(ejecting(all), servers) }, seed);
        assert!(outcome.lost < 0.005, "{} with sigma {sigma}", outcome.lost);
    }
}

#[test]
fn ejections_never_exceed_the_share() {
    // The model checks the limit at each event.
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let latency = Latency { factor: 1.5, quantile: 0.5, over_us: 0 };
        let outliers = Outliers {
            error_rate: Some(5),
            latency: Some(latency),
            min_requests: 2,
            interval: 500,
            ejection_time: 1_000,
            max_ejection_time: 8_000,
            max_ejected: random.u32(10..90),
            recover: random.u64(0..3_000),
            ..errors(2)
        };
        let count = random.usize(2..12);
        let servers = (0..count).map(|_| {
            let (share, ms, length) = (random.f64(), random.u64(1..200), random.u64(1..5));
            let phase = random.u64(..5 * SECOND);
            let bad = unreliable(usual(ms, 1.0), share);
            let good = usual(5, 0.5);
            let own: Behaviour = Box::new(move |random, now| {
                let turn = ((now + phase) / (length * SECOND)).is_multiple_of(2);
                if turn { bad(random, now) } else { good(random, now) }
            });
            own
        });
        let settings = BalanceSettings {
            algorithm: if seed % 2 == 0 { Algorithm::LeastConn } else { Algorithm::RoundRobin },
            ..ejecting(outliers)
        };
        let servers = servers.collect();
        Simulation::run(Setup { rate: 400.0, length: 30 * SECOND, ..Setup::new(settings, servers) }, seed);
    }
}

#[test]
fn ejected_servers_serve_if_the_others_go_down() {
    let servers = (0..4).map(|at| match at {
        0 | 1 => failing(usual(5, 0.5), |now| now < 20 * SECOND),
        _ => usual(5, 0.5),
    });
    let down = |servers: &[Arc<state::Server>]| {
        for server in &servers[2..] {
            server.set_operational(Operational::Stopped, 0);
        }
    };
    let setup = Setup {
        incidents: vec![(25 * SECOND, Box::new(down))],
        ..Setup::new(ejecting(Outliers { ejection_time: 300_000, ..errors(3) }), servers.collect())
    };
    let outcome = Simulation::run(setup, 1);
    // Only the two servers that failed for a while are left from then on, and no request waits for their ejection to end.
    assert!(outcome.error_share() < 0.001, "{}", outcome.error_share());
}

#[test]
fn the_retry_share_holds_even_if_all_requests_fail() {
    let with = |budget, slow_failures: bool| {
        let fails: fn() -> Behaviour = match slow_failures {
            true => || Box::new(|_: &mut fastrand::Rng, _| (300 * MS, false)),
            false => || Box::new(|_: &mut fastrand::Rng, _| (200, false)),
        };
        let settings = BalanceSettings { budget, ..BalanceSettings::default() };
        let setup = Setup { retries: 3, ..Setup::new(settings, (0..5).map(|_| fails()).collect()) };
        let outcome = Simulation::run(setup, 2);
        outcome.attempts as f64 / outcome.requests as f64
    };
    for slow in [false, true] {
        assert!(with(None, slow) > 3.9);
        let load = with(Some(Budget { share: 20, min: 10 }), slow);
        assert!(load < 1.0 + 0.20 / (1.0 - 0.20), "{load} attempts a request");
    }
}

#[test]
fn budgets_permit_retries_of_a_few_failures() {
    let with = |budget| {
        let settings = BalanceSettings { budget, ..BalanceSettings::default() };
        let servers = (0..5).map(|_| unreliable(usual(5, 0.5), 0.05)).collect();
        Simulation::run(Setup { retries: 3, ..Setup::new(settings, servers) }, 2)
    };
    let (plain, limited) = (with(None), with(Some(Budget { share: 20, min: 10 })));
    assert!(plain.error_share() < 0.0001 && limited.error_share() < 0.0001, "{}", limited.error_share());
}

#[test]
fn hedges_cut_the_tail_within_their_share() {
    // Three percent of the responses take fifty times as long.
    let pausing = || -> Behaviour {
        let (good, slow) = (usual(5, 0.3), usual(250, 0.3));
        Box::new(move |random, now| if random.f64() < 0.03 { slow(random, now) } else { good(random, now) })
    };
    let with = |hedge| {
        run(BalanceSettings { hedge, ..BalanceSettings::default() }, (0..6).map(|_| pausing()).collect())
    };
    let plain = with(None);
    let hedged = with(Some(Hedge { after: After::Quantile(0.95), share: 10 }));
    assert!(plain.quantile(0.99) > 200 * MS, "{}", plain.quantile(0.99));
    assert!(hedged.quantile(0.99) < 25 * MS, "{}", hedged.quantile(0.99));
    let share = hedged.hedges as f64 / hedged.requests as f64;
    assert!((0.03..0.075).contains(&share), "{share}");
}

#[test]
fn hedges_do_not_overload_busy_servers() {
    // The servers use nine tenths of their capacity; then one of them pauses, and all queues grow.
    let pause = |at: u64| move |now: u64| (30 * SECOND..(30 + at) * SECOND).contains(&now);
    let servers = || {
        (0..6).map(|at| -> Behaviour {
            let (good, paused) = (usual(5, 0.3), pause(if at < 3 { 10 } else { 0 }));
            Box::new(move |random, now| if paused(now) { (100 * MS, true) } else { good(random, now) })
        })
    };
    for share in [5, 10] {
        let hedge = Some(Hedge { after: After::Time(20), share });
        let settings =
            BalanceSettings { hedge, algorithm: Algorithm::RoundRobin, ..BalanceSettings::default() };
        let setup = Setup { slots: 4, rate: 4_000.0, ..Setup::new(settings, servers().collect()) };
        let outcome = Simulation::run(setup, 4);
        let most = outcome.requests * u64::from(share) / 100 + 10;
        assert!(outcome.hedges > 100 && outcome.hedges <= most, "{} of {}", outcome.hedges, outcome.requests);
    }
}

#[test]
fn hedges_count_against_the_budget() {
    let settings = BalanceSettings {
        hedge: Some(Hedge { after: After::Time(1), share: 100 }),
        budget: Some(Budget { share: 10, min: 0 }),
        ..BalanceSettings::default()
    };
    let outcome = run(settings, (0..4).map(|_| usual(20, 0.3)).collect());
    assert!(outcome.hedges > 0 && outcome.hedges * 10 <= outcome.requests * 11 / 10, "{}", outcome.hedges);
}

#[test]
fn outcomes_are_deterministic() {
    let once = || {
        let settings = BalanceSettings {
            hedge: Some(Hedge { after: After::Quantile(0.9), share: 10 }),
            budget: Some(Budget { share: 20, min: 3 }),
            ..ejecting(errors(3))
        };
        let servers = one_of(5, unreliable(usual(50, 1.0), 0.5));
        Simulation::run(Setup { retries: 2, length: 20 * SECOND, ..Setup::new(settings, servers) }, 11)
    };
    assert_eq!(once(), once());
}
