//! Balances checks between workers: a check stays on its worker unless another has clearly fewer.
//!
//! At each wake-up a check compares the numbers of checks on all workers. It moves to the worker with the fewest if that has at
//! least two fewer than its own, which makes the two more even. It moves at most once per wake-up, and runs on its new worker.
//!
//! From any start, all workers are within one check of each other once every check has woken up: if a worker's last check stays,
//! that worker has at most one more than the minimum; the minimum only grows; and the worker gets further checks only while it has
//! the minimum itself. There is no stampede: the count of the target worker is incremented only if it is still low enough. So even
//! if many checks see the same idle worker at the same time, each of them makes two workers more even, or stays.
//!
//! Two rules that compare with one random worker were simulated too. One rule moves only if the other worker has less than half of
//! the own load. It stops as soon as no worker has more than twice another's load: 1,000 checks on 48 workers keep a difference of
//! up to 15. The other rule moves at a difference of two. It becomes even in time, but no such rule can do so within two intervals
//! if there are few checks, because a worker is found only if it is drawn: 48 checks leave one of 48 workers undrawn in two
//! intervals with a probability of an eighth each, 200 in one interval with one of a seventieth. Reading the counts of all workers
//! costs less than one move, because they rarely change.

use runtime::shard;
use state::process::CheckCounters;

/// Returns the worker to which a check moves from a worker with `own` checks: the one with the fewest checks in `loads`, provided
/// that it has at least two fewer. If several have equally few, the first one from `start` on.
fn target(own: u32, loads: impl Iterator<Item = u32> + Clone, start: usize) -> Option<usize> {
    let turned = loads.clone().enumerate().skip(start).chain(loads.enumerate().take(start));
    let (worker, least) = turned.min_by_key(|(_, load)| *load)?;
    (least + 1 < own).then_some(worker)
}

thread_local! {
    static RANDOM: std::cell::RefCell<fastrand::Rng> = std::cell::RefCell::new(fastrand::Rng::new());
}

/// Returns the worker to which a check of the calling worker must move now, if any. Both counts are updated immediately, so that
/// the next check sees them.
pub(crate) fn hop(counters: &runtime::Sharded<CheckCounters>) -> Option<usize> {
    let workers = shard::workers();
    let start = RANDOM.with_borrow_mut(|random| random.usize(..workers));
    let own = counters.mine();
    let present = own.present();
    let mut loads = counters.all().take(workers);
    let worker = target(present, loads.clone().map(CheckCounters::present), start)?;
    if !loads.nth(worker)?.enter_below(present - 1) {
        return None;
    }
    own.leave();
    Some(worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: usize = 48;

    /// The decision of a check, given the loads that it sees, its own worker, and the random generator.
    type Rule = fn(&[u32], usize, &mut fastrand::Rng) -> Option<usize>;

    /// The rule of this module.
    const LEAST: Rule =
        |loads, own, random| target(loads[own], loads.iter().copied(), random.usize(..WORKERS));

    /// One random other worker, if it has less than half of the load.
    const HALF: Rule = |loads, own, random| {
        let other = (own + random.usize(1..WORKERS)) % WORKERS;
        (loads[other] * 2 < loads[own]).then_some(other)
    };

    /// One random other worker, if it has at least two fewer.
    const DRAWN: Rule = |loads, own, random| {
        let other = (own + random.usize(1..WORKERS)) % WORKERS;
        (loads[other] + 1 < loads[own]).then_some(other)
    };

    /// Wakes every check once per interval, in a fixed order. Counts moves.
    struct Simulation {
        random: fastrand::Rng,
        /// The worker of each check; checks wake in the order of this list.
        checks: Vec<usize>,
        loads: Vec<u32>,
        hops: usize,
        /// How many checks wake up at the same time and see the same loads. The load of their own worker is exact, because it runs
        /// its checks one at a time.
        at_once: usize,
    }

    impl Simulation {
        fn new(seed: u64, place: impl Fn(usize, &mut fastrand::Rng) -> usize, checks: usize) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut checks: Vec<usize> = (0..checks).map(|check| place(check, &mut random)).collect();
            random.shuffle(&mut checks);
            let mut loads = vec![0; WORKERS];
            checks.iter().for_each(|worker| loads[*worker] += 1);
            Self { random, checks, loads, hops: 0, at_once: 1 }
        }

        fn interval(&mut self, rule: Rule) {
            for together in self.checks.chunks_mut(self.at_once) {
                let mut seen = self.loads.clone();
                let mut awake = [false; WORKERS];
                for worker in together {
                    if std::mem::replace(&mut awake[*worker], true) {
                        seen.copy_from_slice(&self.loads);
                    }
                    let Some(other) = rule(&seen, *worker, &mut self.random) else { continue };
                    // The count may have changed in the meantime.
                    if self.loads[other] + 1 >= seen[*worker] {
                        continue;
                    }
                    self.loads[*worker] -= 1;
                    self.loads[other] += 1;
                    *worker = other;
                    self.hops += 1;
                }
            }
        }

        fn spread(&self) -> u32 {
            self.loads.iter().max().unwrap() - self.loads.iter().min().unwrap()
        }
    }

    /// The initial distribution: all on one worker, random, half of the workers empty, or a staircase.
    type Start = fn(usize, &mut fastrand::Rng) -> usize;
    const STARTS: [(&str, Start); 4] = [
        ("one", |_, _| 0),
        ("random", |_, random| random.usize(..WORKERS)),
        ("half", |check, _| check % (WORKERS / 2)),
        ("stairs", |check, random| random.usize(..=check % WORKERS)),
    ];

    /// Returns the maximum gap between two workers' loads over the seeds, after `intervals`.
    fn worst(start: Start, checks: usize, at_once: usize, intervals: usize, rule: Rule) -> u32 {
        let run = |seed| {
            let mut simulation = Simulation { at_once, ..Simulation::new(seed, start, checks) };
            (0..intervals).for_each(|_| simulation.interval(rule));
            simulation.spread()
        };
        (0..50).map(run).max().unwrap()
    }

    #[test]
    fn from_any_start_loads_are_within_one_after_one_interval() {
        for checks in [10, 48, 60, 200, 1000, 4800, 4817] {
            for (name, start) in STARTS {
                let near = worst(start, checks, 1, 1, LEAST);
                assert!(near <= 1, "{name} {checks}: {near}");
            }
        }
    }

    #[test]
    fn simultaneous_wakeups_do_not_stampede() {
        // Checks that see the same idle worker move there only as long as it has fewer.
        let mut simulation = Simulation::new(1, |check, _| check % (WORKERS - 1), 10 * (WORKERS - 1));
        simulation.at_once = WORKERS;
        simulation.interval(LEAST);
        assert!(*simulation.loads.last().unwrap() <= 10, "{:?}", simulation.loads);
        for checks in [48, 200, 1000, 4817] {
            for (name, start) in STARTS {
                for at_once in [8, WORKERS] {
                    let (near, even) =
                        (worst(start, checks, at_once, 2, LEAST), worst(start, checks, at_once, 4, LEAST));
                    assert!(near <= 2 && even <= 1, "{name} {checks} {at_once}: {near} {even}");
                }
            }
        }
    }

    #[test]
    fn checks_stay_once_loads_are_within_one() {
        let mut simulation = Simulation::new(7, |check, _| check % WORKERS, 200);
        (0..10).for_each(|_| simulation.interval(LEAST));
        assert_eq!((simulation.hops, simulation.spread()), (0, 1));
    }

    #[test]
    fn few_checks_move_more_than_necessary() {
        for (name, start) in STARTS {
            let mut simulation = Simulation::new(3, start, 1000);
            let even = 1000 / WORKERS as u32;
            let too_many: u32 = simulation.loads.iter().map(|load| load.saturating_sub(even)).sum();
            (0..3).for_each(|_| simulation.interval(LEAST));
            assert!(
                simulation.hops * 4 <= 5 * too_many as usize,
                "{name}: {} of {too_many}",
                simulation.hops
            );
        }
    }

    #[test]
    fn rules_with_one_random_worker_are_worse() {
        for (name, start) in STARTS {
            assert!(worst(start, 1000, 1, 24, HALF) > 10, "{name}");
            assert!(worst(start, 200, 1, 2, DRAWN) > 1, "{name}");
        }
    }

    #[test]
    fn ties_go_to_the_first_worker_from_the_start() {
        let loads = [3, 0, 1, 0, 2];
        let from = |start| target(3, loads.into_iter(), start);
        assert_eq!([from(0), from(1), from(2), from(4)], [Some(1), Some(1), Some(3), Some(1)]);
        assert_eq!(target(1, loads.into_iter(), 0), None, "one fewer is not enough");
    }
}
