//! Where workers spend their time, by what tasks do (`set profiling tasks`; management manual,
//! 9.3): how many turns tasks had, how long these took and how long they were waited for. Only
//! tasks that ask to be watched are: those of requests, of streams and of checks.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Whether tasks are profiled. Written by the runtime socket and, before there are workers, by the
/// configuration.
static ON: AtomicBool = AtomicBool::new(false);
/// Whether requests are measured, for whatever reason: read once a request.
static MEASURED: AtomicBool = AtomicBool::new(false);
/// Whether an expression of the configuration wants them measured anyway. Written before there are
/// workers.
static WANTED: AtomicBool = AtomicBool::new(false);
/// How often profiling began: what was gathered before the last time counts no more.
static ROUND: AtomicU64 = AtomicU64::new(0);

/// When profiling last began, and when it ended since.
static PERIOD: Mutex<(Option<Instant>, Option<Instant>)> = Mutex::new((None, None));

/// What tasks of one kind did on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// What they do.
    pub name: &'static str,
    /// Their turns.
    pub calls: u64,
    /// What those took, in ns.
    pub ns: u64,
    /// How long they were waited for, in ns.
    pub waited_ns: u64,
}

#[derive(Debug, Default)]
struct Gathered {
    round: u64,
    profiles: Vec<Profile>,
}

thread_local! {
    static GATHERED: RefCell<Gathered> = RefCell::default();
}

/// Whether tasks are profiled now.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Begins anew, or ends; what was gathered is kept until the next beginning.
pub fn switch(on: bool) {
    // Whoever panicked here left whole instants behind.
    let mut period = PERIOD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let now = Instant::now();
    if on {
        ROUND.fetch_add(1, Relaxed);
        *period = (Some(now), None);
    } else if period.1.is_none() {
        period.1 = Some(now);
    }
    ON.store(on, Relaxed);
    MEASURED.store(on || WANTED.load(Relaxed), Relaxed);
}

/// When profiling last began, and when it ended since.
pub fn period() -> (Option<Instant>, Option<Instant>) {
    *PERIOD.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has requests measured for the whole life of the process: an expression asks what they cost.
pub fn want_measures() {
    WANTED.store(true, Relaxed);
    MEASURED.store(true, Relaxed);
}

/// Whether a request that begins now is to be measured.
#[inline]
pub fn measures() -> bool {
    MEASURED.load(Relaxed)
}

/// Counts one turn of a task.
pub(crate) fn note(name: &'static str, ns: u64, waited_ns: u64) {
    GATHERED.with_borrow_mut(|gathered| {
        let round = ROUND.load(Relaxed);
        if gathered.round != round {
            *gathered = Gathered { round, profiles: Vec::new() };
        }
        let profiles = &mut gathered.profiles;
        let at = profiles.iter().position(|own| own.name == name).unwrap_or_else(|| {
            profiles.push(Profile { name, calls: 0, ns: 0, waited_ns: 0 });
            profiles.len() - 1
        });
        let own = &mut profiles[at];
        own.calls += 1;
        own.ns += ns;
        own.waited_ns += waited_ns;
    });
}

/// What the calling worker gathered since profiling last began.
pub fn list() -> Vec<Profile> {
    GATHERED.with_borrow(|gathered| match gathered.round == ROUND.load(Relaxed) {
        true => gathered.profiles.clone(),
        false => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_gathered_by_name_and_a_new_round_forgets_them() {
        switch(true);
        note("a", 10, 1);
        note("b", 5, 0);
        note("a", 20, 2);
        assert_eq!(
            list(),
            [
                Profile { name: "a", calls: 2, ns: 30, waited_ns: 3 },
                Profile { name: "b", calls: 1, ns: 5, waited_ns: 0 }
            ]
        );
        assert!(is_on() && measures());
        switch(false);
        assert!(!is_on() && !measures() && list().len() == 2);
        switch(true);
        assert!(list().is_empty());
        switch(false);
    }
}
