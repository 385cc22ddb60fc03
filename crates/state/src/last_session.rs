//! When the last session of a server or backend began (`lastsess`), which any worker may write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runtime::shared::Shared as _;

/// The time at which the last session began. It is kept in whole seconds, so that a busy server causes one write per second.
#[derive(Debug, Default)]
pub struct LastSession(AtomicU64);

impl LastSession {
    /// Records a session that began at this instant of the monotonic clock, in microseconds.
    #[inline]
    pub fn begin(&self, instant_us: u64) {
        self.0.put((instant_us / 1_000_000 * 1_000).max(1));
    }

    /// Returns the age of the last session in whole seconds at `now_ms`, or `None` before the first one.
    pub fn age(&self, now_ms: u64) -> Option<u64> {
        let began = self.0.load(Relaxed);
        (began > 0).then(|| now_ms.saturating_sub(began) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::LastSession;

    #[test]
    fn ages_are_in_whole_seconds_since_the_last_session() {
        let last = LastSession::default();
        assert_eq!(last.age(5_000), None);
        last.begin(3_700_000);
        assert_eq!(last.age(3_800), Some(0));
        assert_eq!(last.age(9_000), Some(6));
        last.begin(0);
        assert_eq!(last.age(1_500), Some(1));
    }
}
