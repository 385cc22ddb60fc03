//! The choices of every algorithm, with few and many servers that change in the meantime.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use balance::{
    Algorithm, BalanceSettings, HashKind, HashType, Member, Picker, PreserveAffinity, UriPart, Wish,
};
use common::{Farm, server};
use state::{Admin, AttemptOutcome, Operational};

const PEAK: Algorithm = Algorithm::PeakEwma { decay: Duration::from_secs(10) };
const URI: Algorithm = Algorithm::Uri(UriPart { length: None, depth: None, whole: false, path_only: false });

/// All combinations of algorithm and hash type.
fn methods() -> Vec<BalanceSettings> {
    let consistent = HashType { kind: HashKind::Consistent, ..HashType::default() };
    let of = |algorithm, hash| BalanceSettings { algorithm, hash, ..BalanceSettings::default() };
    vec![
        of(Algorithm::RoundRobin, HashType::default()),
        of(Algorithm::StaticRr, HashType::default()),
        of(Algorithm::LeastConn, HashType::default()),
        of(Algorithm::First, HashType::default()),
        of(Algorithm::Random { draws: 2 }, HashType::default()),
        of(PEAK, HashType::default()),
        of(Algorithm::Source, HashType::default()),
        of(URI, consistent),
    ]
}

/// A farm of `count` servers of weight 1 for each method.
fn farms(count: usize) -> impl Iterator<Item = Farm> {
    methods()
        .into_iter()
        .map(move |settings| Farm::with(settings, (0..count).map(|at| server(at, 1, false)).collect()))
}

fn hash(key: usize) -> Wish {
    Wish { hash: Some((key as u32).wrapping_mul(0x9e37_79b9)), ..Wish::default() }
}

#[test]
fn round_robin_skips_servers_that_are_down() {
    let farm = Farm::new(Algorithm::RoundRobin, &[1; 3]);
    assert_eq!(farm.picks(6), [0, 1, 2, 0, 1, 2]);
    farm.servers[1].set_operational(Operational::Stopped, 1);
    assert_eq!(farm.picks(4), [0, 2, 0, 2]);
    farm.servers[1].set_operational(Operational::Running, 2);
    assert_eq!(farm.picks(30).iter().filter(|at| **at == 1).count(), 10);
}

#[test]
fn static_map_turns_continue_as_in_haproxy_after_changes() {
    let farm = Farm::new(Algorithm::StaticRr, &[3, 1, 2, 1]);
    let begin = |count: usize| farm.picks(count)[..7].to_vec();
    assert_eq!(begin(20), [0, 1, 0, 2, 0, 2, 3]);
    farm.servers[0].set_operational(Operational::Stopped, 1);
    // The sixth turn in the longer map is beyond the end of the shorter one, which starts over.
    assert_eq!(begin(20), [1, 2, 2, 3, 1, 2, 2]);
    farm.servers[0].set_operational(Operational::Running, 2);
    assert_eq!(begin(20), [0, 2, 3, 0, 1, 0, 2]);
    farm.servers[0].set_operational(Operational::Stopped, 3);
    assert_eq!(begin(20), [3, 1, 2, 2, 3, 1, 2]);
}

#[test]
fn the_first_backup_serves_if_no_active_server_is_left() {
    for settings in methods() {
        let servers = vec![server(0, 1, false), server(1, 1, true), server(2, 1, true)];
        let farm = Farm::with(settings, servers);
        assert_eq!(farm.picks(2), [0, 0]);
        farm.servers[0].change_admin(Admin::FORCED_MAINT, 0, 1);
        assert_eq!(farm.picks(3), [1, 1, 1]);
        farm.servers[1].change_admin(Admin::FORCED_MAINT, 0, 2);
        assert_eq!(farm.picks(3), [2, 2, 2]);
        farm.servers[2].change_admin(Admin::FORCED_MAINT, 0, 3);
        assert_eq!(farm.pick(Wish::default()), None);
        farm.servers[0].change_admin(0, Admin::FORCED_MAINT, 4);
        assert_eq!(farm.picks(2), [0, 0]);
    }
}

#[test]
fn allbackups_shares_between_all_backups() {
    let settings =
        BalanceSettings { algorithm: Algorithm::RoundRobin, all_backups: true, ..BalanceSettings::default() };
    let farm = Farm::with(settings, vec![server(0, 1, false), server(1, 1, true), server(2, 1, true)]);
    farm.servers[0].set_operational(Operational::Stopped, 1);
    let mut picks = farm.picks(4);
    picks.sort_unstable();
    assert_eq!(picks, [1, 1, 2, 2]);
}

#[test]
fn full_servers_are_skipped_unless_all_are_full() {
    for algorithm in
        [Algorithm::RoundRobin, Algorithm::StaticRr, Algorithm::LeastConn, Algorithm::First, PEAK]
    {
        let name = format!("{algorithm:?}");
        let farm = Farm::new(algorithm, &[1; 2]);
        farm.servers[0].set_maxconn(1);
        farm.enter(0);
        assert_eq!(farm.picks(3), [1, 1, 1], "{name}");
        farm.servers[1].set_maxconn(1);
        farm.enter(1);
        assert_eq!(farm.picks(4).len(), 4, "{name}");
    }
}

#[test]
fn shares_follow_the_weights() {
    let weights = [10, 30, 0, 60];
    for settings in methods() {
        let hashes = settings.algorithm.hashes();
        // `first` ignores weights; `leastconn` only considers load, which is zero in this test.
        if matches!(settings.algorithm, Algorithm::First | Algorithm::LeastConn | Algorithm::PeakEwma { .. })
        {
            continue;
        }
        let name = format!("{:?} {:?}", settings.algorithm, settings.hash);
        let farm =
            Farm::with(settings, weights.iter().enumerate().map(|(at, w)| server(at, *w, false)).collect());
        let mut counts = [0usize; 4];
        for key in 0..10_000 {
            let wish = if hashes { hash(key) } else { Wish::default() };
            counts[farm.pick(wish).unwrap()] += 1;
        }
        assert_eq!(counts[2], 0, "{name}");
        // With unequal weights, two draws prefer the lower load, which is zero in this test, so the bounds are wide.
        for (at, weight) in [(0, 10), (1, 30), (3, 60)] {
            let share = counts[at] as f64 / 100.0;
            assert!((share / f64::from(weight) - 1.0).abs() < 0.6, "{name}: server {at} has {share} %");
        }
    }
}

#[test]
fn leastconn_takes_the_least_loaded_by_weight_and_rotates_among_equals() {
    for count in [3, 40] {
        let farm = Farm::new(Algorithm::LeastConn, &vec![7; count]);
        assert_eq!(farm.picks(count + 1), (0..=count).map(|at| at % count).collect::<Vec<_>>());
        for at in 0..count {
            farm.enter(at);
        }
        farm.leave(2);
        assert_eq!(farm.picks(2), [2, 2]);
        farm.enter(2);
        farm.enter(0);
        assert_eq!(farm.picks(count - 1).iter().filter(|at| **at == 0).count(), 0);
    }
    let farm = Farm::new(Algorithm::LeastConn, &[100, 200]);
    let (mut light, mut heavy) = (0, 0);
    for _ in 0..30 {
        let at = farm.pick(Wish::default()).unwrap();
        farm.enter(at);
        *[&mut light, &mut heavy][at] += 1;
    }
    assert_eq!((light, heavy), (10, 20));
}

/// Compares the tree with a simple scan, over a history of requests.
#[test]
fn leastconn_over_many_servers_is_exactly_a_scan() {
    let mut random = fastrand::Rng::with_seed(5);
    let weights: Vec<u32> = (0..300).map(|_| random.u32(1..257)).collect();
    let farm = Farm::new(Algorithm::LeastConn, &weights);
    let mut open = Vec::new();
    let mut served = vec![0u64; weights.len()];
    for _ in 0..20_000 {
        if !open.is_empty() && random.u32(..100) < 45 {
            let at: usize = open.swap_remove(random.usize(..open.len()));
            served[at] -= 1;
            farm.leave(at);
            continue;
        }
        let at = farm.pick(Wish::default()).unwrap();
        // Loads are compared at a resolution of 1/256 of a request on the heaviest server.
        let load =
            |at: usize| if served[at] == 0 { 0.0 } else { (served[at] + 1) as f64 / f64::from(weights[at]) };
        let least = (0..weights.len()).map(load).fold(f64::MAX, f64::min);
        assert!(load(at) <= least * 1.01, "{} instead of {least}", load(at));
        served[at] += 1;
        farm.enter(at);
        open.push(at);
    }
}

#[test]
fn leastconn_keeps_its_counts_when_servers_are_added() {
    let farm = Farm::new(Algorithm::LeastConn, &[1; 40]);
    (0..5).for_each(|_| farm.enter(7));
    let settings = BalanceSettings { algorithm: Algorithm::LeastConn, ..BalanceSettings::default() };
    let all = farm.servers.iter().cloned().chain([server(40, 1, false)]);
    let more = farm.picker.renewed(&settings, all.map(Member::from).collect());
    let picks = |picker: &Picker, count| -> Vec<usize> {
        (0..count).filter_map(|_| picker.pick(Wish::default(), |_| 0)).collect()
    };
    let first = picks(&more, 200);
    assert!(!first.contains(&7) && first.contains(&40));
    // These requests end while the new picker is in use, and users of the old picker notice it as well.
    (0..5).for_each(|_| more.left(7));
    assert!(picks(&more, 41).contains(&7));
    assert!(picks(&farm.picker, 10_000).contains(&7));
}

#[test]
fn first_fills_one_server_before_the_next_in_the_order_of_ids() {
    for count in [3, 40] {
        let mut servers: Vec<_> = (0..count).map(|at| server(count - 1 - at, 1, false)).collect();
        servers.rotate_left(1);
        let order: Vec<usize> = {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|at| servers[*at].id);
            order
        };
        let farm = Farm::with(
            BalanceSettings { algorithm: Algorithm::First, ..BalanceSettings::default() },
            servers,
        );
        for server in &farm.servers {
            server.set_maxconn(2);
        }
        let mut filled = Vec::new();
        for _ in 0..2 * count {
            let at = farm.pick(Wish::default()).unwrap();
            farm.enter(at);
            filled.push(at);
        }
        assert_eq!(filled, order.iter().flat_map(|at| [*at, *at]).collect::<Vec<_>>());
        farm.leave(order[1]);
        assert_eq!(farm.pick(Wish::default()), Some(order[1]));
    }
}

#[test]
fn failed_servers_are_avoided_if_there_are_others() {
    for farm in farms(2).chain(farms(40)) {
        for key in 0..50 {
            let wish = Wish { avoid: Some(0), ..hash(key) };
            assert_ne!(farm.pick(wish).unwrap(), 0, "{farm:?}");
        }
        for server in &farm.servers[1..] {
            server.set_operational(Operational::Stopped, 1);
        }
        assert_eq!(farm.pick(Wish { avoid: Some(0), ..hash(1) }), Some(0));
    }
}

#[test]
fn keys_are_sticky_and_keyless_requests_take_turns() {
    for settings in methods() {
        if !settings.algorithm.hashes() {
            continue;
        }
        let farm = Farm::with(settings, (0..5).map(|at| server(at, 10, false)).collect());
        for key in 0..50 {
            assert_eq!(farm.pick(hash(key)), farm.pick(hash(key)));
        }
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for at in farm.picks(5 * 160) {
            *counts.entry(at).or_default() += 1;
        }
        assert!((0..5).all(|at| counts[&at] == 160), "{counts:?}");
    }
}

#[test]
fn servers_of_weight_zero_get_nothing_until_restored() {
    for farm in farms(3) {
        farm.servers[1].set_weight(0);
        for key in 0..60 {
            assert_ne!(farm.pick(hash(key)), Some(1));
        }
        farm.servers[1].set_weight(1);
        let picked: Vec<usize> = (0..200)
            .filter_map(|key| {
                let at = farm.pick(hash(key))?;
                farm.enter(at);
                Some(at)
            })
            .collect();
        let first = farm.servers.iter().all(|server| server.maxconn.load(Relaxed) == 0);
        assert!(picked.contains(&1) || (first && picked.iter().all(|at| *at == 0)), "{picked:?}");
    }
}

#[test]
fn random_prefers_the_less_loaded_of_two() {
    let farm = Farm::new(Algorithm::Random { draws: 2 }, &[1; 4]);
    for _ in 0..10 {
        farm.enter(3);
    }
    assert!(farm.picks(500).iter().all(|at| *at != 3), "the most loaded of all is never the better of two");
    let one = Farm::new(Algorithm::Random { draws: 1 }, &[1; 4]);
    for _ in 0..10 {
        one.enter(3);
    }
    assert!(one.picks(500).contains(&3));
}

#[test]
fn bounded_load_moves_keys_away_and_back() {
    let settings = || BalanceSettings {
        algorithm: URI,
        hash: HashType { kind: HashKind::Consistent, ..HashType::default() },
        balance_factor: 150,
        ..BalanceSettings::default()
    };
    // With many servers the counts are stored elsewhere.
    for servers in [4, 200] {
        let farm = Farm::with(settings(), (0..servers).map(|at| server(at, 16, false)).collect());
        let home = farm.pick(hash(1)).unwrap();
        let mut given = vec![0; servers];
        for _ in 0..10 * servers {
            let at = farm.pick(hash(1)).unwrap();
            farm.enter(at);
            given[at] += 1;
        }
        // A single key loads every server, none with more than one and a half times the average.
        assert!(given.iter().all(|count| *count <= 15), "{given:?}");
        assert!(given[home] >= 14, "{given:?}");
        for (at, count) in given.into_iter().enumerate() {
            (0..count).for_each(|_| farm.leave(at));
        }
        assert_eq!(farm.pick(hash(1)), Some(home));
    }
}

#[test]
fn preserve_affinity_decides_about_full_servers() {
    let farm = |preserve_affinity| {
        let hash = HashType { kind: HashKind::Consistent, ..HashType::default() };
        let settings =
            BalanceSettings { algorithm: URI, hash, preserve_affinity, ..BalanceSettings::default() };
        let farm = Farm::with(settings, (0..3).map(|at| server(at, 16, false)).collect());
        for server in &farm.servers {
            server.set_maxconn(1);
        }
        farm
    };
    let always = farm(PreserveAffinity::Always);
    let home = always.pick(hash(1)).unwrap();
    always.enter(home);
    assert_eq!(always.pick(hash(1)), Some(home));
    let leaving = farm(PreserveAffinity::MaxConn);
    leaving.enter(home);
    let second = leaving.pick(hash(1)).unwrap();
    assert_ne!(second, home);
    for at in 0..3 {
        if at != home {
            leaving.enter(at);
        }
    }
    assert!(leaving.pick(hash(1)).is_some(), "when all are full, one is waited for");
    // Without a queue limit, the server is never full.
    let queueing = farm(PreserveAffinity::MaxQueue);
    queueing.enter(home);
    assert_eq!(queueing.pick(hash(1)), Some(home));
}

#[test]
fn peak_ewma_leaves_slow_and_failing_servers_alone() {
    for (slow_us, answer) in [(100_000, AttemptOutcome::Good), (50, AttemptOutcome::Bad)] {
        let farm = Farm::new(PEAK, &[1; 4]);
        let start = runtime::timer::now_us() + 1;
        for at in 0..4 {
            farm.picker.answered(at, start, 1_000, AttemptOutcome::Good);
        }
        for step in 1..20 {
            farm.picker.answered(2, start + step * 100_000, slow_us, answer);
        }
        assert!(farm.picks(300).iter().all(|at| *at != 2), "{answer:?}");
    }
}

#[test]
fn peak_ewma_probes_new_servers_with_one_request() {
    let farm = Farm::new(PEAK, &[1; 2]);
    farm.picker.answered(0, runtime::timer::now_us(), 1_000, AttemptOutcome::Good);
    assert_eq!(farm.pick(Wish::default()), Some(1));
    farm.enter(1);
    assert!(farm.picks(50).iter().all(|at| *at == 0));
}

#[test]
fn large_rings_are_rebuilt_in_the_background() {
    let settings = BalanceSettings {
        algorithm: URI,
        hash: HashType { kind: HashKind::Consistent, ..HashType::default() },
        ..BalanceSettings::default()
    };
    let farm = Farm::with(settings, (0..500).map(|at| server(at, 20, false)).collect());
    for round in 0..20 {
        farm.servers[round * 7].change_admin(Admin::FORCED_MAINT, 0, 1);
        for key in 0..200 {
            let at = farm.pick(hash(key)).unwrap();
            assert!(farm.servers[at].effective_weight() > 0);
        }
    }
    // Once the table is updated, keys map as in a farm without these servers.
    let fresh = Farm::with(
        BalanceSettings {
            algorithm: URI,
            hash: HashType { kind: HashKind::Consistent, ..HashType::default() },
            ..BalanceSettings::default()
        },
        farm.servers.clone(),
    );
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !(0..300).all(|key| farm.pick(hash(key)) == fresh.pick(hash(key))) {
        assert!(std::time::Instant::now() < deadline, "the table never followed");
        std::thread::yield_now();
    }
}

#[test]
fn concurrent_picks_never_choose_servers_seen_down() {
    for farm in farms(3).chain(farms(40)) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3usize {
                let (farm, stop) = (&farm, &stop);
                scope.spawn(move || {
                    let mut key = seed;
                    while !stop.load(Relaxed) {
                        key += 7;
                        // Server 0 never goes down.
                        let at = farm.pick(hash(key)).expect("one server is always up");
                        farm.enter(at);
                        farm.leave(at);
                    }
                });
            }
            for round in 0..40u64 {
                let at = 1 + (round as usize % (farm.servers.len() - 1));
                let server = &farm.servers[at];
                match round % 3 {
                    0 => drop(server.change_admin(Admin::FORCED_MAINT, 0, round)),
                    1 => server.set_weight(1 + round as u32 % 256),
                    _ => drop(server.set_operational(Operational::Stopped, round)),
                }
                std::thread::yield_now();
                server.change_admin(0, Admin::FORCED_MAINT, round);
                server.set_operational(Operational::Running, round);
                server.set_weight(1);
            }
            stop.store(true, Relaxed);
        });
        assert!(farm.servers.iter().all(|server| server.served.0.load(Relaxed) == 0));
        // Without concurrency: a server that is put into maintenance now gets no requests from this point on.
        farm.servers[1].change_admin(Admin::FORCED_MAINT, 0, 1);
        assert!((0..200).all(|key| farm.pick(hash(key)) != Some(1)));
    }
}

#[test]
fn previews_of_hashes_name_the_server_that_is_picked() {
    for kind in [HashKind::MapBased, HashKind::Consistent] {
        let hash = HashType { kind, ..HashType::default() };
        let settings = || BalanceSettings { algorithm: URI, hash, ..BalanceSettings::default() };
        let servers: Vec<_> = (0..5).map(|at| server(at, 1 + at as u32, at == 4)).collect();
        let members: Vec<Member> = servers.iter().cloned().map(Member::from).collect();
        let farm = Farm::with(settings(), servers);
        for hash in (0..1000u32).map(|number| number.wrapping_mul(2_654_435_761)) {
            let preview = balance::preview(&settings(), &members, Some(hash));
            assert_eq!(preview.usable, [0, 1, 2, 3]);
            assert_eq!(preview.by_hash, farm.pick(Wish { hash: Some(hash), ..Wish::default() }));
        }
    }
}
