//! Limits the replies that are sent without a connection: Retry, Version Negotiation, refusals and stateless resets.
//!
//! The addresses of the receivers are not validated, so a flood of forged datagrams would be reflected to victims. In addition,
//! each reply costs a system call.

/// How many replies a socket may send per millisecond, and how many immediately after a pause.
const PER_MS: u64 = 10;
const MOST: u64 = 1000;

/// A token bucket.
#[derive(Debug)]
pub(super) struct ReplyBudget {
    left: u64,
    filled_ms: u64,
}

impl ReplyBudget {
    /// Creates a full bucket.
    pub(super) fn new(now: u64) -> Self {
        Self { left: MOST, filled_ms: now }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: u64) -> bool {
        let passed = now.saturating_sub(self.filled_ms);
        self.filled_ms = now;
        self.left = self.left.saturating_add(passed.saturating_mul(PER_MS)).min(MOST);
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_limited_by_time() {
        let mut budget = ReplyBudget::new(5);
        let mut count = |now| (0..2 * MOST).filter(|_| budget.take(now)).count() as u64;
        assert_eq!(count(5), MOST);
        assert_eq!(count(6), PER_MS);
        assert_eq!(count(16), 10 * PER_MS);
        assert_eq!(count(1_000_000), MOST);
    }
}
