//! Counts of patterns (`show info`).

use std::sync::atomic::Ordering::Relaxed;

use crate::process::Statistics;

/// The number of patterns ever added, and how many of them were removed.
pub(crate) fn totals(statistics: &Statistics) -> (u64, u64) {
    let waiting = statistics.waiting_patterns.load(Relaxed);
    let view = statistics.view();
    let counts = view.patterns.lists().iter().map(|list| list.counts());
    let (added, present) = counts.fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    (added + waiting, added - present)
}
