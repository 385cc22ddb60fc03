//! Stick table entries tracked by connections and requests, as data: part of [`Session`](crate::Session) and
//! [`Transaction`](crate::Transaction).

use std::cell::RefCell;
use std::sync::Arc;

use runtime::timer::now_ms;
use state::table::{DataType, EntryValues, Table, Tracked};

/// The default of `tune.stick-counters`, the number of counters.
pub const DEFAULT_COUNTERS: u32 = 3;

/// The maximum of `tune.stick-counters`.
pub const MOST_COUNTERS: u32 = 100;

/// A tracked entry, which has one more connection until the tracker is dropped.
#[derive(Debug)]
struct Tracker {
    tracked: Tracked,
    /// Whether the request was counted in the entry.
    has_request: bool,
    /// Whether the entry is only read ([`Trackers::observe`]).
    is_observed: bool,
}

impl Drop for Tracker {
    fn drop(&mut self) {
        if self.is_observed {
            return;
        }
        let view = self.tracked.view();
        view.take(DataType::ConnCur);
        view.touch(now_ms());
    }
}

/// The entries that a connection or a request tracks, by counter number. A single null pointer if nothing is tracked.
#[derive(Debug, Default)]
pub struct Trackers(
    // Boxed twice, so that it is one pointer if nothing is tracked.
    #[allow(clippy::box_collection)] Option<Box<Vec<Option<Tracker>>>>,
);

impl Trackers {
    /// Whether nothing was ever tracked.
    #[inline]
    pub fn is_unused(&self) -> bool {
        self.0.is_none()
    }

    /// The entry tracked by counter `number`.
    #[inline]
    pub fn get(&self, number: usize) -> Option<EntryValues<'_>> {
        self.0.as_ref()?.get(number)?.as_ref().map(|tracker| tracker.tracked.view())
    }

    /// The number of counters to visit.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |all| all.len())
    }

    /// Starts to track the entry of a key, in which a connection is counted. Returns the tracked entry, or `None` if the table is
    /// full.
    pub fn begin(
        &mut self,
        number: usize,
        table: &Arc<Table>,
        key: &[u8],
        now_ms: u64,
    ) -> Option<EntryValues<'_>> {
        let tracked = Tracked::get(table, key, now_ms)?;
        let tracker = Tracker { tracked, has_request: false, is_observed: false };
        let tracker = self.place(number).insert(tracker);
        let view = tracker.tracked.view();
        view.add(DataType::ConnCur, 0, 1, now_ms);
        view.add(DataType::ConnCnt, 0, 1, now_ms);
        view.add(DataType::ConnRate, 0, 1, now_ms);
        view.touch(now_ms);
        Some(view)
    }

    /// Gives expressions access to the entry of a key without counting anything in it. Returns whether there is an entry.
    pub fn observe(&mut self, number: usize, table: &Arc<Table>, key: &[u8], now_ms: u64) -> bool {
        let Some(tracked) = Tracked::find(table, key, now_ms) else { return false };
        *self.place(number) = Some(Tracker { tracked, has_request: true, is_observed: true });
        true
    }

    /// The place of counter `number`, which is created if necessary.
    fn place(&mut self, number: usize) -> &mut Option<Tracker> {
        let all = self.0.get_or_insert_default();
        if all.len() <= number {
            all.resize_with(number + 1, || None);
        }
        &mut all[number]
    }

    /// Counts the request in every entry in which it was not counted yet.
    pub fn count_request(&mut self, now_ms: u64) {
        for tracker in self.0.iter_mut().flat_map(|all| all.iter_mut()).flatten() {
            if !std::mem::replace(&mut tracker.has_request, true) {
                count(tracker.tracked.view(), CountedEvent::Request, now_ms);
            }
        }
    }

    /// Stops tracking; the memory is kept for the next request.
    #[inline]
    pub fn end(&mut self) {
        if let Some(all) = &mut self.0 {
            all.clear();
        }
    }
}

/// The storage for a connection's tracked entries.
pub(crate) type HeldEntries = RefCell<Trackers>;

/// A countable event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedEvent {
    /// A request.
    Request,
    /// A request error caused by the client.
    Error,
    /// A response failure caused by the server.
    Failure,
    /// A session.
    Session,
    /// Tolerated protocol violations.
    Glitches(u32),
    /// Bytes from the client.
    BytesIn(u64),
    /// Bytes to the client.
    BytesOut(u64),
}

/// Counts `event` in an entry.
pub fn count(view: EntryValues<'_>, event: CountedEvent, now_ms: u64) {
    let (total, rate, amount) = match event {
        CountedEvent::Request => (DataType::HttpReqCnt, DataType::HttpReqRate, 1),
        CountedEvent::Error => (DataType::HttpErrCnt, DataType::HttpErrRate, 1),
        CountedEvent::Failure => (DataType::HttpFailCnt, DataType::HttpFailRate, 1),
        CountedEvent::Session => (DataType::SessCnt, DataType::SessRate, 1),
        CountedEvent::Glitches(count) => (DataType::GlitchCnt, DataType::GlitchRate, u64::from(count)),
        CountedEvent::BytesIn(bytes) => (DataType::BytesInCnt, DataType::BytesInRate, bytes),
        CountedEvent::BytesOut(bytes) => (DataType::BytesOutCnt, DataType::BytesOutRate, bytes),
    };
    let of_rate = match event {
        CountedEvent::BytesIn(bytes) | CountedEvent::BytesOut(bytes) => {
            bytes.div_ceil(u64::from(view.table().settings.bytes_factor))
        }
        _ => amount,
    };
    view.add(total, 0, amount, now_ms);
    view.add(rate, 0, of_rate, now_ms);
    view.touch(now_ms);
}
