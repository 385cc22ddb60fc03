//! Delays the bytes of one direction: bandwidth limits and trace filters (configuration manual, 9.7 and 9.1).
//!
//! A [`Flow`](super::Flow) with a gate checks it before each send; flows without a gate are not slowed down. If filters change
//! the payload, the gates are part of the [`Filters`](super::Filters). Heads pass freely; bodies and TCP streams are limited. A
//! limit applies to a sliding window of the length of its period: the bytes of the previous period count in proportion to its
//! overlap with the window.

use std::rc::Rc;
use std::task::{Context, Poll};

use runtime::timer::{Timer, now_ms};
use state::table::{DataType, Tracked};

use super::Tracer;

/// Determines the minimum size of a portion: the bytes that the limit allows in this time, in ms, unless the period is short.
const PORTION_MS: u64 = 20;

/// A delayed direction refreshes its deadlines at least this often, in ms, because a delay must not cause a timeout.
const LOOK: u64 = 1000;

/// One limit and its byte counts.
#[derive(Debug)]
pub(crate) struct Throttle {
    limit: u64,
    period: u64,
    /// The minimum size of a portion, except for the last one. Never more than the limit.
    least: u64,
    /// Start of the current period.
    began: u64,
    current: u64,
    previous: u64,
    /// The counter of all streams that share the limit.
    shared: Option<SharedRate>,
}

/// The byte rate of a stick-table entry.
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
    /// Creates a limit of `limit` bytes per `period` ms, sent in portions of at least `min_size` bytes.
    pub(crate) fn new(limit: u64, period: u64, min_size: u64, now: u64) -> Self {
        let portion = (limit.saturating_mul(PORTION_MS) / period.max(1)).min(limit / 10).max(1);
        let least = min_size.max(portion).min(limit);
        Self { limit, period, least, began: now, current: 0, previous: 0, shared: None }
    }

    /// Shares the counter with other streams.
    pub(crate) fn share(self, shared: Option<SharedRate>) -> Self {
        Self { shared, ..self }
    }

    /// Reads the shared counter. Returns the number of streams that share it.
    fn look(&mut self, now: u64) -> u64 {
        let Some(SharedRate { entry, rate }) = &self.shared else { return 1 };
        let view = entry.view();
        if let Some(column) = view.table().column(*rate) {
            let factor = u64::from(view.table().settings.bytes_factor);
            let (since, current, previous) = view.rate_parts(column, 0, now);
            self.began = now.saturating_sub(since.into());
            // The values of the other members of an aggregate count as if they had been sent in this period.
            let current = u64::from(current).saturating_add(view.others(column, 0, now));
            (self.current, self.previous) = (current.saturating_mul(factor), u64::from(previous) * factor);
        }
        view.holders().max(1).into()
    }

    /// Counts sent bytes.
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

    /// Returns the number of bytes sent within the last period, estimated from the sums of two periods.
    fn sent(&self, now: u64) -> u64 {
        let left = self.period - now.saturating_sub(self.began).min(self.period);
        let share = u128::from(self.previous) * u128::from(left) / u128::from(self.period);
        self.current + share as u64
    }

    /// Returns how many of `wanted` bytes may be sent now. If not all of them may be sent, they are sent only in portions.
    fn allow(&mut self, wanted: u64, now: u64) -> u64 {
        let users = self.look(now);
        self.turn(now);
        let free = self.limit.saturating_sub(self.sent(now));
        if free < wanted.min(self.least) { 0 } else { free.div_ceil(users).max(self.least).min(wanted) }
    }

    /// Returns when the next portion may be sent, provided that nothing is sent before.
    fn ready_at(&self, wanted: u64) -> u64 {
        let room = self.limit - wanted.min(self.least);
        // Returns the time within a period after which the previous sum counts for at most `room`. Fractions of a byte are
        // ignored.
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

/// Delays one direction of one stream.
pub(crate) struct Gate {
    throttles: Vec<Throttle>,
    tracer: Option<Tracer>,
    /// How many of the staged bytes that are sent next belong to a head, which passes freely.
    pub(crate) free: usize,
    /// The number of payload bytes that have passed.
    passed: u64,
    timer: Timer,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("throttles", &self.throttles).finish_non_exhaustive()
    }
}

impl Gate {
    /// Creates a gate for a direction that starts with `free` bytes of a head.
    pub(crate) fn new(throttles: Vec<Throttle>, tracer: Option<Tracer>, free: usize) -> Self {
        Self { throttles, tracer, free, passed: 0, timer: Timer::new() }
    }

    /// Returns how many of `wanted` payload bytes may be sent now.
    pub(crate) fn allow(&mut self, wanted: usize) -> usize {
        let now = now_ms();
        let mut allowed = wanted as u64;
        for throttle in &mut self.throttles {
            allowed = allowed.min(throttle.allow(wanted as u64, now));
        }
        self.tracer.as_ref().map_or(allowed, |tracer| tracer.allow(allowed)) as usize
    }

    /// Counts sent payload bytes.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        for throttle in &mut self.throttles {
            throttle.count(bytes.len() as u64);
        }
        if let Some(tracer) = self.tracer.as_ref().filter(|_| !bytes.is_empty()) {
            tracer.payload(bytes, self.passed);
        }
        self.passed += bytes.len() as u64;
    }

    /// Ready if some of `wanted` bytes may be sent.
    pub(crate) fn poll_open(&self, wanted: usize, context: &mut Context<'_>) -> Poll<()> {
        let at = self.throttles.iter().map(|throttle| throttle.ready_at(wanted as u64)).max().unwrap_or(0);
        // Waits at least 1 ms, because the clock that is used for the wait has not advanced.
        self.timer.set(at.clamp(now_ms() + 1, now_ms() + LOOK));
        self.timer.poll_expired(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as fast as the limit allows until `until`. Returns the time and size of each portion.
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
            // The amount for a full period is sent at once, then the limit applies: the total is never more and not much less.
            assert!(total <= limit * (periods + 1), "{limit} in {period}: {total}");
            // Portions as large as the limit wait until the previous one has left the window, and so do portions of periods as
            // short as the clock's resolution.
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
    fn only_the_last_portion_is_below_the_minimum() {
        let mut throttle = Throttle::new(1000, 1000, 300, 0);
        let sent = run(&mut throttle, 2050, 0, 10_000);
        let (last, others) = sent.split_last().unwrap();
        assert!(others.iter().all(|(_, n)| *n >= 300), "{sent:?}");
        assert_eq!(others.iter().map(|(_, n)| n).sum::<u64>() + last.1, 2050);
        assert!(sent.len() < 8, "{sent:?}");
    }

    #[test]
    fn small_writes_pass_at_once_and_idle_time_restores_the_limit() {
        let mut throttle = Throttle::new(1000, 1000, 0, 0);
        assert_eq!(throttle.allow(1, 0), 1);
        throttle.current += 1000;
        assert_eq!(throttle.allow(1, 0), 0);
        assert_eq!(throttle.allow(5000, 2000), 1000);
    }

    #[test]
    fn bytes_sent_by_other_members_of_an_aggregate_count() {
        use state::table::{Aggregate, Column, KeyType, ServerKey, Table, TableSettings, TableValue};

        let rate = DataType::BytesOutRate;
        let table = Table::new(TableSettings {
            name: "t".into(),
            kind: KeyType::Int,
            key_length: 4,
            size: 10,
            expire_ms: 60_000,
            nopurge: false,
            recv_only: false,
            server_key: ServerKey::Name,
            bytes_factor: 10,
            columns: vec![Column::new(rate, 1, 1_000)],
            peers: Some("p".into()),
            aggregate: Some(Aggregate { every_ms: 20, members: [Box::from("other")].into() }),
        });
        let key = [0, 0, 0, 1];
        let entry = Rc::new(Tracked::get(&table, &key, 1_000).expect("there is room"));
        let mut throttle = Throttle::new(1_000, 1_000, 0, 1_000).share(Some(SharedRate::new(entry, rate)));
        assert_eq!(throttle.allow(5_000, 1_000), 1_000);
        // The other member has sent 600 bytes.
        let part = TableValue::Rate(0, 60, 0);
        assert!(table.learn_part(0, (&key, None), (true, true), 1_000, |_| part));
        assert_eq!(throttle.allow(5_000, 1_000), 400);
        throttle.count(400);
        assert_eq!(throttle.allow(5_000, now_ms()), 0);
    }
}
