//! Which worker a check runs on: the one it is on, unless another has clearly less to do.
//!
//! At each wake-up a check looks at how many checks each worker has and hops to the one with the
//! fewest, if that has at least two fewer than its own: the hop then makes the two more even. At
//! most one hop a wake-up; the check runs where it lands.
//!
//! From any start all workers are then within one check of each other once every check has woken: a
//! worker that lets its last check wake stay has at most one more than the fewest, the fewest only
//! become more, and it gets further checks only while it has the fewest itself. There is no herd:
//! the count of the worker hopped to is raised only if it still is low enough, so that of many
//! checks that see the same idle worker at the same instant each still makes two workers more even,
//! or stays.
//!
//! Two rules that look at one other worker, drawn at random, were simulated too. The one that waits
//! until the other has less than half of the own load stops as soon as no worker has more than
//! twice another's: 1,000 checks on 48 workers stay up to 15 apart. The one that hops at a
//! difference of two becomes even in time, but no such rule can within two intervals where checks
//! are few: a worker is found only if it is drawn, and 48 checks leave one of 48 workers undrawn in
//! two intervals with a probability of an eighth each, 200 in one interval with one of a
//! seventieth. Reading the counts of all workers costs less than one hop, as they hardly change.

use runtime::shard;
use state::process::CheckCounters;

/// The worker to leave one with `own` checks for: that with the fewest of `loads`, the first at or
/// behind `start` where several have as few, if it has at least two fewer.
fn target(own: u32, loads: impl Iterator<Item = u32> + Clone, start: usize) -> Option<usize> {
    let turned = loads.clone().enumerate().skip(start).chain(loads.enumerate().take(start));
    let (worker, least) = turned.min_by_key(|(_, load)| *load)?;
    (least + 1 < own).then_some(worker)
}

thread_local! {
    static RANDOM: std::cell::RefCell<fastrand::Rng> = std::cell::RefCell::new(fastrand::Rng::new());
}

/// The worker that a check of the calling worker hops to now, if any. The two counts are changed at
/// once, so that the next one to look sees them.
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

    /// How a check decides: the loads as it sees them, its own worker, the generator.
    type Rule = fn(&[u32], usize, &mut fastrand::Rng) -> Option<usize>;

    /// The rule of this module.
    const LEAST: Rule =
        |loads, own, random| target(loads[own], loads.iter().copied(), random.usize(..WORKERS));

    /// One other at random, if it has less than half.
    const HALF: Rule = |loads, own, random| {
        let other = (own + random.usize(1..WORKERS)) % WORKERS;
        (loads[other] * 2 < loads[own]).then_some(other)
    };

    /// One other at random, if it has two fewer.
    const DRAWN: Rule = |loads, own, random| {
        let other = (own + random.usize(1..WORKERS)) % WORKERS;
        (loads[other] + 1 < loads[own]).then_some(other)
    };

    /// Lets every check wake once an interval, in the order of its own phase; counts hops.
    struct Simulation {
        random: fastrand::Rng,
        /// The worker of each check; checks wake in the order of this list.
        checks: Vec<usize>,
        loads: Vec<u32>,
        hops: usize,
        /// So many wake at the same instant and see the same loads, but for those of one worker: it
        /// runs one at a time.
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
                    // The count may have changed since.
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

    /// Where checks begin: all on one worker, anywhere, half of the workers empty, a staircase.
    type Start = fn(usize, &mut fastrand::Rng) -> usize;
    const STARTS: [(&str, Start); 4] = [
        ("one", |_, _| 0),
        ("random", |_, random| random.usize(..WORKERS)),
        ("half", |check, _| check % (WORKERS / 2)),
        ("stairs", |check, random| random.usize(..=check % WORKERS)),
    ];

    /// The widest gap between two workers' loads over the seeds, after `intervals`.
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
    fn many_checks_that_wake_at_the_same_instant_are_no_herd() {
        // All that see one and the same idle worker go there as long as it has less to do, and no
        // longer.
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
    fn once_spread_within_one_no_check_hops_any_more() {
        let mut simulation = Simulation::new(7, |check, _| check % WORKERS, 200);
        (0..10).for_each(|_| simulation.interval(LEAST));
        assert_eq!((simulation.hops, simulation.spread()), (0, 1));
    }

    #[test]
    fn hardly_more_checks_hop_than_must() {
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
    fn rules_that_draw_one_other_worker_do_not_reach_that() {
        for (name, start) in STARTS {
            assert!(worst(start, 1000, 1, 24, HALF) > 10, "{name}");
            assert!(worst(start, 200, 1, 2, DRAWN) > 1, "{name}");
        }
    }

    #[test]
    fn of_workers_with_as_few_the_first_behind_the_start_is_taken() {
        let loads = [3, 0, 1, 0, 2];
        let from = |start| target(3, loads.into_iter(), start);
        assert_eq!([from(0), from(1), from(2), from(4)], [Some(1), Some(1), Some(3), Some(1)]);
        assert_eq!(target(1, loads.into_iter(), 0), None, "one fewer is not enough");
    }
}
