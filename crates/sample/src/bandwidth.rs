//! Bandwidth limits: the filters that proxies declare (`filter bwlim-in`, `filter bwlim-out`; configuration manual, 9.7) and the
//! settings of rules for each stream (`set-bandwidth-limit`). This module only holds data; `proxy` delays the bytes.

use std::rc::Rc;
use std::sync::Arc;

use state::table::{DataType, Table, Tracked};

/// A limit that several streams share: the key of a stick-table entry, and the byte rate of that entry, which is compared with
/// the limit.
#[derive(Debug)]
pub struct SharedLimit {
    /// The key expression, which rules compile.
    pub key: Box<str>,
    /// The stick table.
    pub table: Arc<Table>,
}

/// A bandwidth limitation filter.
#[derive(Debug, Clone)]
pub struct BandwidthFilter {
    /// The filter's name.
    pub name: Box<str>,
    /// Whether the filter limits data from the client (`bwlim-in`) instead of data to the client.
    pub upload: bool,
    /// `default-limit`, or the shared `limit`, in bytes per period.
    pub limit: u64,
    /// `default-period`, or the period of the table's rate, in milliseconds.
    pub period_ms: u64,
    /// `min-size`: the minimum amount to send at a time, except at the end.
    pub min_size: u64,
    /// The filter's position among the filters of its proxy in its direction, or `None` if `filter-sequence` omits it.
    pub place: Option<u16>,
    /// The proxy that declares the filter, by its number in the plan.
    pub proxy: usize,
    /// The shared limit, or `None` if each stream has its own.
    pub shared: Option<Arc<SharedLimit>>,
}

impl BandwidthFilter {
    /// The rate in the stick table that counts the filter's bytes.
    pub fn rate(&self) -> DataType {
        if self.upload { DataType::BytesInRate } else { DataType::BytesOutRate }
    }
}

/// A filter enabled for a stream.
#[derive(Debug, Clone)]
pub struct BandwidthLimit {
    /// The filter.
    pub filter: Arc<BandwidthFilter>,
    /// Bytes per period, more than 0.
    pub limit: u64,
    /// The period in milliseconds, more than 0.
    pub period_ms: u64,
    /// The stick table entry of the shared limit.
    pub entry: Option<Rc<Tracked>>,
}

/// Enables a filter for a stream, replacing its earlier settings.
pub fn enable(limits: &mut Vec<BandwidthLimit>, own: BandwidthLimit) {
    if own.filter.place.is_none() {
        return;
    }
    match limits.iter_mut().find(|other| Arc::ptr_eq(&other.filter, &own.filter)) {
        Some(other) => *other = own,
        None => limits.push(own),
    }
}

/// Builds the limit of a stream from a rule's settings. Settings that are `None` or zero default to those of the filter. `entry`
/// is the table entry of a shared limit.
pub fn asked(
    filter: &Arc<BandwidthFilter>,
    limit: Option<i64>,
    period_ms: Option<i64>,
    entry: Option<Rc<Tracked>>,
) -> BandwidthLimit {
    let positive =
        |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
    BandwidthLimit {
        limit: positive(limit).unwrap_or(filter.limit),
        period_ms: positive(period_ms).unwrap_or(filter.period_ms),
        entry,
        filter: filter.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_limit_of_a_filter_replaces_earlier_ones() {
        let filter = |name: &str, place| {
            let (limit, period_ms, min_size) = (1000, 1000, 0);
            let name = name.into();
            Arc::new(BandwidthFilter {
                name,
                upload: false,
                limit,
                period_ms,
                min_size,
                place,
                proxy: 0,
                shared: None,
            })
        };
        let (one, two, off) = (filter("one", Some(1)), filter("two", Some(2)), filter("off", None));
        let mut limits = Vec::new();
        for (filter, limit, period) in
            [(&one, Some(5), Some(7)), (&two, Some(-1), Some(0)), (&one, None, Some(9)), (&off, None, None)]
        {
            enable(&mut limits, asked(filter, limit, period, None));
        }
        let seen: Vec<_> = limits.iter().map(|own| (&*own.filter.name, own.limit, own.period_ms)).collect();
        assert_eq!(seen, [("one", 1000, 9), ("two", 1000, 1000)]);
    }
}
