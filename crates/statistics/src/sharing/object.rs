//! An object's counters as the numbers exchanged between processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use runtime::{Count, LazySharded};
use state::counters::Totals;

use super::layout::VALUES;
use crate::identified::CountedObject;

/// The counters of an object: those of its kind in order, then zeros.
pub(super) type Values = [u64; VALUES];

/// Regular sums do not overflow, but values from a damaged file may.
pub(super) fn add(sum: &mut Values, more: &Values) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
}

fn sum<T: Totals + Default>(shards: &LazySharded<T>, values: &mut Values) -> usize {
    let mut length = None;
    for shard in shards.all() {
        let totals = shard.totals();
        values.iter_mut().zip(&totals).for_each(|(value, count)| *value += count.get());
        length = Some(totals.len());
    }
    // The values that follow have the same place before the first use.
    length.unwrap_or_else(|| T::default().totals().len())
}

fn put<T: Totals + Default>(shards: &LazySharded<T>, values: &Values) -> usize {
    let totals = shards.keep_others().totals();
    totals.iter().zip(values).for_each(|(count, value)| count.put(*value));
    totals.len()
}

fn clear<T: Totals>(shards: &LazySharded<T>) {
    shards.all().for_each(|shard| shard.totals().into_iter().for_each(Count::clear));
}

impl CountedObject {
    /// The object kind in the file.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Frontend(_) => 1,
            Self::Listener(_) => 2,
            Self::Backend(_) => 3,
            Self::Server(_) => 4,
        }
    }

    /// Whether both are the same object of this process.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Frontend(one), Self::Frontend(other)) | (Self::Backend(one), Self::Backend(other)) => {
                Arc::ptr_eq(one, other)
            }
            (Self::Listener(one), Self::Listener(other)) => Arc::ptr_eq(one, other),
            (Self::Server(one), Self::Server(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Check counters, which are not per worker: they follow the other counters.
    fn of_checks(&self) -> Vec<&AtomicU32> {
        match self {
            Self::Frontend(_) | Self::Listener(_) => Vec::new(),
            Self::Backend(proxy) => vec![&proxy.downs],
            Self::Server(server) => vec![&server.downs, &server.health.failed, &server.health.observed],
        }
    }

    /// The counters of this process's workers, and the check counters minus `imported`, the amounts from other processes.
    pub(super) fn own(&self, imported: &[u32; 3]) -> Values {
        let mut values = [0; VALUES];
        let length = match self {
            Self::Frontend(proxy) => sum(&proxy.frontend, &mut values),
            Self::Listener(listener) => listener.counters.get().map_or(0, |own| sum(own, &mut values)),
            Self::Backend(proxy) => sum(&proxy.backend, &mut values),
            Self::Server(server) => sum(&server.counters, &mut values),
        };
        let checks = self.of_checks().into_iter().zip(imported);
        for (value, (own, imported)) in values.iter_mut().skip(length).zip(checks) {
            *value = own.load(Relaxed).saturating_sub(*imported).into();
        }
        values
    }

    /// Stores the values of other processes. The check counters are increased by the change since the last time.
    pub(super) fn put_others(&self, values: &Values, imported: &mut [u32; 3]) {
        let length = match self {
            Self::Frontend(proxy) => put(&proxy.frontend, values),
            Self::Listener(listener) => listener.counters.get().map_or(0, |own| put(own, values)),
            Self::Backend(proxy) => put(&proxy.backend, values),
            Self::Server(server) => put(&server.counters, values),
        };
        for ((number, imported), value) in
            self.of_checks().into_iter().zip(imported).zip(values.iter().skip(length))
        {
            let value = u32::try_from(*value).unwrap_or(u32::MAX);
            number.fetch_add(value.saturating_sub(*imported), Relaxed);
            *imported = value.max(*imported);
        }
    }

    /// Resets the counters, because another process cleared them.
    pub(super) fn clear(&self) {
        match self {
            Self::Frontend(proxy) => clear(&proxy.frontend),
            Self::Listener(listener) => {
                if let Some(own) = listener.counters.get() {
                    clear(own);
                }
            }
            Self::Backend(proxy) => clear(&proxy.backend),
            Self::Server(server) => clear(&server.counters),
        }
        self.of_checks().into_iter().for_each(|number| number.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use runtime::LazySharded;
    use state::counters::{BackendCounters, FrontendCounters, ListenerCounters, Totals};

    use super::*;

    #[test]
    fn records_hold_all_counters_of_any_object() {
        // If these numbers change, the file format changes too: update `layout::VERSION`.
        let lengths = [
            FrontendCounters::default().totals().len(),
            ListenerCounters::default().totals().len(),
            BackendCounters::default().totals().len(),
        ];
        assert_eq!(lengths, [42, 20, 44]);
        assert!(lengths[2] + 3 <= VALUES);
    }

    #[test]
    fn foreign_counters_are_added_and_kept_separate() {
        let shards: LazySharded<BackendCounters> = LazySharded::default();
        shards.mine().traffic.bytes_in.add(5);
        let mut values = [0; VALUES];
        values[0] = 100;
        put(&shards, &values);
        let bytes = |own: &BackendCounters| own.traffic.bytes_in.get();
        assert_eq!(state::counters::total_of_all(&shards, bytes), 105);
        let mut own = [0; VALUES];
        assert_eq!(sum(&shards, &mut own), 44);
        assert_eq!(own[0], 5);
        clear(&shards);
        assert_eq!(state::counters::total_of_all(&shards, bytes), 100);
    }
}
