//! What holds the bytes of one direction back: limits of bandwidth and filters that trace
//! (configuration manual, 9.7 and 9.1).
//!
//! A [`Flow`](super::Flow) with a gate asks it before it sends; one without pays for none of this.
//! Where filters change payload, gates stand among these ([`Filters`](super::Filters)).
//! Heads pass freely, bodies and TCP streams are held back. Limits are kept over a window of their
//! period that slides on: what was sent in the period before counts as far as the window still
//! reaches into it.

use std::rc::Rc;
use std::task::{Context, Poll};

use runtime::timer::{Timer, now_ms};
use state::table::{DataType, Tracked};

use super::Tracer;

/// How much at least is sent at a time: what the limit allows in so many ms, but for short periods.
const PORTION_MS: u64 = 20;

/// A held direction looks at its deadlines at least so often, in ms: being held back is no silence.
const LOOK: u64 = 1000;

/// One limit and what was sent under it.
#[derive(Debug)]
pub(crate) struct Throttle {
    limit: u64,
    period: u64,
    /// The least that is sent at a time, the end aside; never more than the limit.
    least: u64,
    /// When the present period began.
    began: u64,
    current: u64,
    previous: u64,
    /// Where what all streams sent is counted that share it.
    shared: Option<SharedRate>,
}

/// The rate of bytes of an entry of a stick table.
#[derive(Debug)]
pub(crate) struct SharedRate {
    entry: Rc<Tracked>,
    rate: DataType,
}

impl SharedRate {
    pub(crate) fn new(entry: Rc<Tracked>, rate: DataType) -> Self {
        Self { entry, rate }
    }
}

impl Throttle {
    /// So many bytes in a period of so many ms, at least `min_size` at a time.
    pub(crate) fn new(limit: u64, period: u64, min_size: u64, now: u64) -> Self {
        let portion = (limit.saturating_mul(PORTION_MS) / period.max(1)).min(limit / 10).max(1);
        let least = min_size.max(portion).min(limit);
        Self { limit, period, least, began: now, current: 0, previous: 0, shared: None }
    }

    /// Counts together with others.
    pub(crate) fn share(self, shared: Option<SharedRate>) -> Self {
        Self { shared, ..self }
    }

    /// Reads what all that share it have sent; says how many these are.
    fn look(&mut self, now: u64) -> u64 {
        let Some(SharedRate { entry, rate }) = &self.shared else { return 1 };
        let view = entry.view();
        if let Some(column) = view.table().column(*rate) {
            let factor = u64::from(view.table().settings.bytes_factor);
            let (since, current, previous) = view.rate_parts(column, 0, now);
            self.began = now.saturating_sub(since.into());
            (self.current, self.previous) = (u64::from(current) * factor, u64::from(previous) * factor);
        }
        view.holders().max(1).into()
    }

    /// Counts what was sent.
    fn count(&mut self, bytes: u64) {
        self.current += bytes;
        if let Some(SharedRate { entry, rate }) = &self.shared {
            let view = entry.view();
            view.add(*rate, 0, bytes.div_ceil(view.table().settings.bytes_factor.into()), now_ms());
        }
    }

    fn turn(&mut self, now: u64) {
        let passed = now.saturating_sub(self.began) / self.period;
        if passed > 0 {
            self.previous = if passed == 1 { self.current } else { 0 };
            self.current = 0;
            self.began += passed * self.period;
        }
    }

    /// What was sent within the last period, as far as two periods' sums can tell.
    fn sent(&self, now: u64) -> u64 {
        let left = self.period - now.saturating_sub(self.began).min(self.period);
        let share = u128::from(self.previous) * u128::from(left) / u128::from(self.period);
        self.current + share as u64
    }

    /// How many of `wanted` bytes may be sent now: less than all only in portions.
    fn allow(&mut self, wanted: u64, now: u64) -> u64 {
        let users = self.look(now);
        self.turn(now);
        let free = self.limit.saturating_sub(self.sent(now));
        if free < wanted.min(self.least) { 0 } else { free.div_ceil(users).max(self.least).min(wanted) }
    }

    /// When a portion may be sent, if nothing is until then.
    fn ready_at(&self, wanted: u64) -> u64 {
        let room = self.limit - wanted.min(self.least);
        // How far into a period the sum of the one before counts for no more than `room`; parts of
        // a byte do not count.
        let after = |sum: u64, room: u64| {
            let still = (u128::from(room) + 1) * u128::from(self.period);
            match still.div_ceil(u128::from(sum.max(1))) {
                left if left > u128::from(self.period) => 0,
                left => self.period + 1 - left as u64,
            }
        };
        match room.checked_sub(self.current) {
            Some(room) => self.began + after(self.previous, room),
            None => self.began + self.period + after(self.current, room),
        }
    }
}

/// Holds one direction of one stream back.
pub(crate) struct Gate {
    throttles: Vec<Throttle>,
    tracer: Option<Tracer>,
    /// How many of the staged bytes that are sent next are a head, which passes freely.
    pub(crate) free: usize,
    /// Bytes of payload that passed.
    passed: u64,
    timer: Timer,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("throttles", &self.throttles).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate for a direction whose next `free` bytes are a head.
    pub(crate) fn new(throttles: Vec<Throttle>, tracer: Option<Tracer>, free: usize) -> Self {
        Self { throttles, tracer, free, passed: 0, timer: Timer::new() }
    }

    /// How many of `wanted` bytes of payload may be sent now.
    pub(crate) fn allow(&mut self, wanted: usize) -> usize {
        let now = now_ms();
        let mut allowed = wanted as u64;
        for throttle in &mut self.throttles {
            allowed = allowed.min(throttle.allow(wanted as u64, now));
        }
        self.tracer.as_ref().map_or(allowed, |tracer| tracer.allow(allowed)) as usize
    }

    /// Counts bytes of payload that were sent.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        for throttle in &mut self.throttles {
            throttle.count(bytes.len() as u64);
        }
        if let Some(tracer) = self.tracer.as_ref().filter(|_| !bytes.is_empty()) {
            tracer.payload(bytes, self.passed);
        }
        self.passed += bytes.len() as u64;
    }

    /// Ready when something of `wanted` bytes may be sent.
    pub(crate) fn poll_open(&self, wanted: usize, context: &mut Context<'_>) -> Poll<()> {
        let at = self.throttles.iter().map(|throttle| throttle.ready_at(wanted as u64)).max().unwrap_or(0);
        // One more than now: the clock that made it wait has not moved on.
        self.timer.set(at.clamp(now_ms() + 1, now_ms() + LOOK));
        self.timer.poll_expired(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as fast as the limit lets it, for so long; when each portion went, and how much.
    fn run(throttle: &mut Throttle, mut left: u64, from: u64, until: u64) -> Vec<(u64, u64)> {
        let (mut now, mut sent) = (from, Vec::new());
        while now < until && left > 0 {
            let allowed = throttle.allow(left, now);
            if allowed > 0 {
                throttle.current += allowed;
                left -= allowed;
                sent.push((now, allowed));
                continue;
            }
            let at = throttle.ready_at(left);
            assert!(at > now, "waiting for {at} at {now} would not end");
            now = at;
            assert!(throttle.allow(left, now) > 0, "the wait was too short: {throttle:?} at {now}");
        }
        sent
    }

    #[test]
    fn no_more_than_the_limit_is_sent_in_a_period() {
        for (limit, period, min_size) in [
            (1000, 1000, 0),
            (1, 1000, 0),
            (7, 3, 0),
            (1_000_000, 1000, 2896),
            (10, 60_000, 100),
            (5000, 1, 0),
        ] {
            let mut throttle = Throttle::new(limit, period, min_size, 500);
            let periods = 20;
            let sent = run(&mut throttle, u64::MAX, 500, 500 + periods * period);
            let total: u64 = sent.iter().map(|(_, n)| n).sum();
            // A full period at once, and then the limit: never more, and not much less.
            assert!(total <= limit * (periods + 1), "{limit} in {period}: {total}");
            // Portions as large as the limit wait until the one before is forgotten; so do those of
            // periods as short as the clock's grain.
            let least =
                if min_size >= limit || period < 20 { limit * periods / 2 } else { limit * periods * 9 / 10 };
            assert!(total >= least, "{limit} in {period}: {total}");
            for (at, _) in &sent {
                let within: u64 = sent
                    .iter()
                    .filter(|(other, _)| (*at..*at + period).contains(other))
                    .map(|(_, n)| n)
                    .sum();
                assert!(within <= 2 * limit, "{limit} in {period}: {within} from {at} on");
            }
        }
    }

    #[test]
    fn portions_are_no_smaller_than_said_but_for_the_last() {
        let mut throttle = Throttle::new(1000, 1000, 300, 0);
        let sent = run(&mut throttle, 2050, 0, 10_000);
        let (last, others) = sent.split_last().unwrap();
        assert!(others.iter().all(|(_, n)| *n >= 300), "{sent:?}");
        assert_eq!(others.iter().map(|(_, n)| n).sum::<u64>() + last.1, 2050);
        assert!(sent.len() < 8, "{sent:?}");
    }

    #[test]
    fn what_is_small_passes_at_once_and_a_long_rest_makes_all_free_again() {
        let mut throttle = Throttle::new(1000, 1000, 0, 0);
        assert_eq!(throttle.allow(1, 0), 1);
        throttle.current += 1000;
        assert_eq!(throttle.allow(1, 0), 0);
        assert_eq!(throttle.allow(5000, 2000), 1000);
    }
}
