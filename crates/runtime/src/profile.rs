//! Profiles the time of workers by kind of task (`set profiling tasks`; management manual, 9.3): the number of turns, their
//! duration, and the waiting time before them. Only the tasks of requests, streams and checks are instrumented.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Whether tasks are profiled. Written by a command of the runtime socket and, before the workers start, by the configuration.
static ON: AtomicBool = AtomicBool::new(false);
/// Whether requests are measured, for profiling or for expressions. Read once per request.
static MEASURED: AtomicBool = AtomicBool::new(false);
/// Whether an expression of the configuration requires the measurements. Written before the workers start.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The number of times that profiling was started. Data from earlier rounds is discarded.
static ROUND: AtomicU64 = AtomicU64::new(0);

/// When profiling was last started and stopped.
static PERIOD: Mutex<(Option<Instant>, Option<Instant>)> = Mutex::new((None, None));

/// The profile of one kind of task on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The kind of task.
    pub name: &'static str,
    /// The number of turns of tasks of this kind.
    pub calls: u64,
    /// Their total duration in ns.
    pub ns: u64,
    /// The total waiting time in ns.
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

/// Starts a new round, or stops profiling. The data remains until the next start.
pub fn switch(on: bool) {
    // A panic while the lock is held leaves complete instants behind.
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

/// When profiling was last started and stopped.
pub fn period() -> (Option<Instant>, Option<Instant>) {
    *PERIOD.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Turns on the measurement of requests for the lifetime of the process, because an expression needs it.
pub fn want_measures() {
    WANTED.store(true, Relaxed);
    MEASURED.store(true, Relaxed);
}

/// Whether a request that starts now is measured.
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

/// The calling worker's data since profiling was last started.
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
    fn turns_are_summed_by_name_until_a_new_round() {
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
