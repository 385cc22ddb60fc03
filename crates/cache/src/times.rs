//! From when to when what is kept may be used, on the monotonic clock.

use crate::freshness::{Lifetime, Now};

/// From when to when a response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreshnessTimes {
    /// How old it was when it came, in seconds.
    pub(crate) age: u32,
    /// What `If-Modified-Since` is compared with, in seconds since 1970.
    pub(crate) modified: i64,
    /// When it came, in ms of the monotonic clock.
    pub(crate) stored_ms: u64,
    /// From when on it is not fresh any more.
    pub(crate) expires_ms: u64,
    /// Until when it is used while a fresh one is fetched.
    pub(crate) revalidate_ms: u64,
    /// Until when it is used where none can be fetched.
    pub(crate) error_ms: u64,
}

impl FreshnessTimes {
    /// Those of a response that came `now`.
    pub(crate) fn of(lifetime: Lifetime, now: Now) -> Self {
        let expires_ms = now.ms + u64::from(lifetime.left) * 1000;
        Self {
            age: lifetime.age,
            modified: lifetime.modified,
            stored_ms: now.ms,
            expires_ms,
            revalidate_ms: expires_ms + u64::from(lifetime.while_revalidate) * 1000,
            error_ms: expires_ms + u64::from(lifetime.if_error) * 1000,
        }
    }

    /// Seconds until it is not fresh any more; negative since.
    pub(crate) fn expires_in(&self, now_ms: u64) -> i64 {
        (self.expires_ms as i64 - now_ms as i64).div_euclid(1000)
    }

    /// Whether it is of no use any more by itself.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_ms.max(self.revalidate_ms).max(self.error_ms)
    }

    /// The same where hints alone are left: these help nobody once they are stale.
    pub(crate) fn of_hints(self) -> Self {
        Self { revalidate_ms: 0, error_ms: 0, ..self }
    }
}
