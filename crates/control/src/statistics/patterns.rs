//! Counts of patterns (`show info`).

use crate::config_view::Runtime;

/// How many patterns were added in all, and how many of them are gone.
pub(crate) fn totals(runtime: &Runtime) -> (u64, u64) {
    let versions = runtime.versions.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let waiting: usize =
        versions.0.values().flat_map(|prepared| prepared.waiting.values()).map(Vec::len).sum();
    let view = runtime.view();
    let counts = view.patterns.lists().iter().map(|list| list.counts());
    let (added, present) = counts.fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    (added + waiting as u64, added - present)
}
