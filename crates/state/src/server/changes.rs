//! When a server last changed, and the records of its changes in the journal of events.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use base::clock::now_ms;

use crate::Server;
use crate::journal::{self, EventTopic};

/// When a server's state last changed. In a restored state, that may be before the process started.
#[derive(Debug)]
pub struct ChangeTime(
    /// In ms of the monotonic clock, which begins with the process.
    AtomicI64,
);

impl ChangeTime {
    /// A change at `now`, in ms of the monotonic clock.
    pub fn new(now: u64) -> Self {
        Self(AtomicI64::new(now as i64))
    }

    /// Returns the ms between the last change and `now`.
    pub fn age(&self, now: u64) -> u64 {
        (now as i64).saturating_sub(self.0.load(Relaxed)).max(0) as u64
    }

    /// Sets the ms between the last change and `now`.
    pub fn set_age(&self, now: u64, age: u64) {
        self.0.store((now as i64).saturating_sub_unsigned(age), Relaxed);
    }

    /// Notes a change at `now`. Returns the ms since the previous one.
    pub(crate) fn note(&self, now: u64) -> u64 {
        let previous = self.0.swap(now as i64, Relaxed);
        (now as i64).saturating_sub(previous).max(0) as u64
    }
}

impl Server {
    /// Records a change with its log message, and how long the server was in its previous state.
    pub fn record_change(&self, text: &str) {
        let now = now_ms();
        let since = self.reported_at.swap(now, Relaxed);
        let previous = Duration::from_millis(now.saturating_sub(since));
        journal::record_change(EventTopic::Servers, &format!("{}/{}", self.proxy, self.name), previous, text);
    }
}
