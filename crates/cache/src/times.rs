//! The times between which a stored response may be used, on the monotonic clock.

use crate::freshness::{Lifetime, Now};

/// The times between which a response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreshnessTimes {
    /// The age of the response when it was received, in seconds.
    pub(crate) age: u32,
    /// The date for `If-Modified-Since`, in seconds since 1970.
    pub(crate) modified: i64,
    /// When the response was received, in ms of the monotonic clock.
    pub(crate) stored_ms: u64,
    /// When the response becomes stale.
    pub(crate) expires_ms: u64,
    /// Until when the response may be used during a refresh.
    pub(crate) revalidate_ms: u64,
    /// Until when the response may be used after errors.
    pub(crate) error_ms: u64,
}

impl FreshnessTimes {
    /// Returns the times of a response received `now`.
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

    /// Returns the seconds until the response is stale; negative after that.
    pub(crate) fn expires_in(&self, now_ms: u64) -> i64 {
        (self.expires_ms as i64 - now_ms as i64).div_euclid(1000)
    }

    /// Whether the response can only be used after a validation.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_ms.max(self.revalidate_ms).max(self.error_ms)
    }

    /// Returns the times for hints alone, which are useless once stale.
    pub(crate) fn of_hints(self) -> Self {
        Self { revalidate_ms: 0, error_ms: 0, ..self }
    }
}
