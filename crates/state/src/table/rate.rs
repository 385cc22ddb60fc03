//! The number of events in a period, like HAProxy's frequency counters: the events of the current period, plus the proportional
//! share of the previous one that is less than a period ago.
//!
//! The start of the period and its events form one long, so that a new period starts with one atomic exchange. The events of the
//! previous period are a separate word.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

fn pack(start: u32, events: u32) -> u64 {
    u64::from(start) << 32 | u64::from(events)
}

/// Maximum clock difference between two workers, in milliseconds.
const APART: u32 = 10_000;

/// Returns the age of `start`; 0 if the caller's clock is behind.
fn since(start: u32, now: u32) -> u32 {
    let since = now.wrapping_sub(start);
    if since > u32::MAX - APART { 0 } else { since }
}

/// Counts `events` at `now`. Returns the events of the current period.
pub(super) fn count(current: &AtomicU64, previous: &AtomicU32, period: u32, now: u32, events: u32) -> u32 {
    let mut seen = current.load(Relaxed);
    loop {
        let (start, before) = unpack(seen);
        let since = since(start, now);
        let (next, turned) = if seen == 0 {
            // The first event starts the first period.
            (pack(now, events), None)
        } else if since < period {
            (pack(start, before.saturating_add(events)), None)
        } else if since - period < period {
            (pack(start.wrapping_add(period), events), Some(before))
        } else {
            (pack(now, events), Some(0))
        };
        match current.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
            Ok(_) => {
                if let Some(of_previous) = turned {
                    previous.store(of_previous, Relaxed);
                }
                return next as u32;
            }
            Err(other) => seen = other,
        }
    }
}

/// Returns the events in the period that ends at `now`.
pub(super) fn read(current: &AtomicU64, previous: &AtomicU32, period: u32, now: u32) -> u32 {
    if period == 0 {
        return 0;
    }
    let (start, mut events) = unpack(current.load(Relaxed));
    let mut before = previous.load(Relaxed);
    let mut since = since(start, now);
    if since >= period {
        since -= period;
        before = if since >= period { 0 } else { events };
        events = 0;
    }
    // A single event does not fade: it counts until its period and the next one are over.
    if events == 0 && before <= 1 {
        return before;
    }
    let left = u64::from(period - since.min(period));
    let faded = u64::from(before) * left / u64::from(period);
    u32::try_from(faded + u64::from(events)).unwrap_or(u32::MAX)
}

/// Sets the number of events in a period that begins at `now`.
pub(super) fn set(current: &AtomicU64, previous: &AtomicU32, now: u32, events: u32) {
    previous.store(0, Relaxed);
    current.store(pack(now, events), Relaxed);
}

/// Returns the parts: the age of the period, the events in it, and the events of the previous one.
pub(super) fn parts(current: &AtomicU64, previous: &AtomicU32, now: u32) -> (u32, u32, u32) {
    let (start, events) = unpack(current.load(Relaxed));
    (since(start, now), events, previous.load(Relaxed))
}

/// Sets the parts.
pub(super) fn set_parts(current: &AtomicU64, previous: &AtomicU32, now: u32, parts: (u32, u32, u32)) {
    previous.store(parts.2, Relaxed);
    current.store(pack(now.wrapping_sub(parts.0), parts.1), Relaxed);
}

/// Returns the parts after dropping periods that have ended, so that the age is below `period`.
fn passed(period: u32, (ago, events, before): (u32, u32, u32)) -> (u32, u32, u32) {
    match ago.checked_sub(period) {
        None => (ago, events, before),
        Some(ago) if ago < period => (ago, 0, events),
        Some(_) => (0, 0, 0),
    }
}

/// Adds events that another process has counted, given by their parts. The events in `known`, which are the parts of an earlier
/// call with their current age, are already included. The first call adopts the other process's period, which began earlier.
pub(super) fn add_parts(
    current: &AtomicU64,
    previous: &AtomicU32,
    period: u32,
    now: u32,
    received: (u32, u32, u32),
    known: Option<(u32, u32, u32)>,
) {
    let (ago, events, before) = passed(period, received);
    if let Some(known) = known {
        // The period of the known parts may be the current one or the previous one.
        let (_, known_events, known_before) = passed(period, known);
        let (more, more_before) = (events.saturating_sub(known_events), before.saturating_sub(known_before));
        if more > 0 || more_before > 0 {
            count(current, previous, period, now, more);
            let _ = previous.fetch_update(Relaxed, Relaxed, |own| Some(own.saturating_add(more_before)));
        }
        return;
    }
    if events == 0 && before == 0 {
        return;
    }
    let mut seen = current.load(Relaxed);
    loop {
        let (start, own) = unpack(seen);
        let (_, own, own_before) = passed(period, (since(start, now), own, previous.load(Relaxed)));
        let (own, own_before) = if seen == 0 { (0, 0) } else { (own, own_before) };
        let next = pack(now.wrapping_sub(ago), events.saturating_add(own));
        match current.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
            Ok(_) => return previous.store(before.saturating_add(own_before), Relaxed),
            Err(other) => seen = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_fade_during_the_following_period() {
        let (current, previous) = (AtomicU64::new(pack(1_000, 0)), AtomicU32::new(0));
        for _ in 0..10 {
            count(&current, &previous, 1_000, 1_500, 1);
        }
        let at = |now| read(&current, &previous, 1_000, now);
        assert_eq!((at(1_999), at(2_000), at(2_500), at(2_999), at(3_000)), (10, 10, 5, 0, 0));
        assert_eq!(count(&current, &previous, 1_000, 2_500, 4), 4);
        let at = |now| read(&current, &previous, 1_000, now);
        assert_eq!((at(2_500), at(3_500), at(5_000)), (9, 2, 0));
    }

    #[test]
    fn single_events_do_not_fade_and_clocks_may_wrap() {
        let start = u32::MAX - 200;
        let (current, previous) = (AtomicU64::new(pack(start, 0)), AtomicU32::new(0));
        count(&current, &previous, 100, start.wrapping_add(50), 1);
        let at = |after| read(&current, &previous, 100, start.wrapping_add(after));
        assert_eq!((at(99), at(150), at(199), at(200)), (1, 1, 1, 0));
        count(&current, &previous, 100, start.wrapping_add(450), 3);
        assert_eq!(read(&current, &previous, 100, start.wrapping_add(440)), 3, "a clock that is behind");
    }

    #[test]
    fn events_of_another_process_are_added_once_and_fade_alike() {
        let (current, previous) = (AtomicU64::new(0), AtomicU32::new(0));
        let add = |now, received, known| add_parts(&current, &previous, 1_000, now, received, known);
        let at = |now| read(&current, &previous, 1_000, now);
        count(&current, &previous, 1_000, 5_000, 3);
        // The other process's period began 400 ms ago.
        add(5_000, (400, 10, 0), None);
        assert_eq!((at(5_000), at(5_599), at(5_600), at(6_100)), (13, 13, 13, 6));
        add(5_100, (500, 12, 0), Some((500, 10, 0)));
        assert_eq!(at(5_100), 15);
        // The other process's next period has begun, with four of its 14 events.
        add(5_700, (100, 4, 14), Some((1_100, 12, 0)));
        assert_eq!(at(5_700), 4 + 17 * 9 / 10);
        add(9_000, (3_400, 4, 14), Some((3_400, 4, 14)));
        assert_eq!(at(9_000), 0);
        // Counts that another process sends do not wrap.
        for (events, before) in [(1, u32::MAX), (u32::MAX, u32::MAX)] {
            add(20_000, (0, events, before), Some((0, 0, 0)));
        }
        assert_eq!(at(20_000), u32::MAX);
    }
}
