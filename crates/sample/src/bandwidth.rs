//! Limits of bandwidth: the filters that proxies declare (`filter bwlim-in`, `filter bwlim-out`;
//! configuration manual, 9.7) and what rules ask of them for one stream (`set-bandwidth-limit`).
//! Pure data; `proxy` holds bytes back by it.

use std::rc::Rc;
use std::sync::Arc;

use state::table::{DataType, Table, Tracked};

/// What streams share a limit by: the entry of a key in a stick table, whose rate of bytes counts all
/// that they send.
#[derive(Debug)]
pub struct SharedLimit {
    /// The key, as an expression; rules compile it.
    pub key: Box<str>,
    /// The table.
    pub table: Arc<Table>,
}

/// A filter.
#[derive(Debug, Clone)]
pub struct BandwidthFilter {
    /// Its name.
    pub name: Box<str>,
    /// Whether it is about what comes from the client (`bwlim-in`), or about what goes to it.
    pub upload: bool,
    /// `default-limit`, or the `limit` that is shared, in bytes a period.
    pub limit: u64,
    /// `default-period`, or the period of the table's rate, in milliseconds.
    pub period_ms: u64,
    /// `min-size`: the least that is sent at a time, the end aside.
    pub min_size: u64,
    /// Its place among the filters of its proxy in its direction; `None` where `filter-sequence` leaves it
    /// out.
    pub place: Option<u16>,
    /// The proxy that it is of, by its number in the plan.
    pub proxy: usize,
    /// By what streams share the limit; `None` where each has its own.
    pub shared: Option<Arc<SharedLimit>>,
}

impl BandwidthFilter {
    /// The rate that counts its bytes in a stick table.
    pub fn rate(&self) -> DataType {
        if self.upload { DataType::BytesInRate } else { DataType::BytesOutRate }
    }
}

/// A filter that is enabled for a stream.
#[derive(Debug, Clone)]
pub struct BandwidthLimit {
    /// The filter.
    pub filter: Arc<BandwidthFilter>,
    /// Bytes a period, more than 0.
    pub limit: u64,
    /// The period in milliseconds, more than 0.
    pub period_ms: u64,
    /// The entry that it is shared by.
    pub entry: Option<Rc<Tracked>>,
}

/// Enables a filter among those of a stream, in place of what was asked of it before.
pub fn enable(limits: &mut Vec<BandwidthLimit>, own: BandwidthLimit) {
    if own.filter.place.is_none() {
        return;
    }
    match limits.iter_mut().find(|other| Arc::ptr_eq(&other.filter, &own.filter)) {
        Some(other) => *other = own,
        None => limits.push(own),
    }
}

/// What a rule asks of a filter for a stream: what is `None` or nothing is the filter's own. `entry` is
/// what the limit is shared by.
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
    fn the_last_word_about_a_filter_counts_and_the_rest_is_its_own() {
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
