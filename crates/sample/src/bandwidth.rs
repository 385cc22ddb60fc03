//! Limits of bandwidth: the filters that proxies declare (`filter bwlim-in`, `filter bwlim-out`;
//! configuration manual, 9.7) and what rules ask of them for one stream (`set-bandwidth-limit`).
//! Pure data; `proxy` holds bytes back by it.

use std::sync::Arc;

/// A filter with limits of each stream's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthFilter {
    /// Its name.
    pub name: Box<str>,
    /// Whether it is about what comes from the client (`bwlim-in`), or about what goes to it.
    pub upload: bool,
    /// `default-limit`, in bytes a period.
    pub limit: u64,
    /// `default-period`, in milliseconds.
    pub period_ms: u64,
    /// `min-size`: the least that is sent at a time, the end aside.
    pub min_size: u64,
    /// Whether `filter-sequence` leaves it in.
    pub active: bool,
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
}

/// Enables a filter among those of a stream, in place of what was asked of it before. What is
/// `None` or nothing is the filter's own.
pub fn enable(
    limits: &mut Vec<BandwidthLimit>,
    filter: &Arc<BandwidthFilter>,
    limit: Option<i64>,
    period_ms: Option<i64>,
) {
    if !filter.active {
        return;
    }
    let positive =
        |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
    let own = BandwidthLimit {
        limit: positive(limit).unwrap_or(filter.limit),
        period_ms: positive(period_ms).unwrap_or(filter.period_ms),
        filter: filter.clone(),
    };
    match limits.iter_mut().find(|other| Arc::ptr_eq(&other.filter, filter)) {
        Some(other) => *other = own,
        None => limits.push(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_about_a_filter_counts_and_the_rest_is_its_own() {
        let filter = |name: &str, active| {
            let (limit, period_ms, min_size) = (1000, 1000, 0);
            Arc::new(BandwidthFilter { name: name.into(), upload: false, limit, period_ms, min_size, active })
        };
        let (one, two, off) = (filter("one", true), filter("two", true), filter("off", false));
        let mut limits = Vec::new();
        enable(&mut limits, &one, Some(5), Some(7));
        enable(&mut limits, &two, Some(-1), Some(0));
        enable(&mut limits, &one, None, Some(9));
        enable(&mut limits, &off, None, None);
        let seen: Vec<_> = limits.iter().map(|own| (&*own.filter.name, own.limit, own.period_ms)).collect();
        assert_eq!(seen, [("one", 1000, 9), ("two", 1000, 1000)]);
    }
}
