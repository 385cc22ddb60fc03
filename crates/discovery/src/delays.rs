//! The delays after failures of a source.

use std::time::Duration;

use state::discovery::FeedState;

/// The delays after consecutive failures.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// The number of consecutive failures after a turn that has failed. If the source answered in the turn (`state`), the earlier failures
/// do not count, unless it failed so soon after that it may always do so.
pub(crate) fn failures_after(failures: u32, state: FeedState, lasted: Duration) -> u32 {
    let is_first = state == FeedState::Current && lasted >= longest_delay(failures);
    if is_first { 1 } else { failures.saturating_add(1) }
}

/// The longest delay after consecutive failures.
pub(crate) fn longest_delay(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(further) => LONGEST_DELAY.min(FIRST_DELAY * 2_u32.saturating_pow(further.min(10))),
    }
}

/// The delay after consecutive failures: it doubles, and varies so that many processes do not return at once.
pub(crate) fn delay(failures: u32) -> Duration {
    let longest = longest_delay(failures);
    longest / 2 + longest.mul_f64(fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_although_a_source_answers_before_it_fails() {
        let mut failures = 0;
        for expected in 1..10 {
            failures = failures_after(failures, FeedState::Current, Duration::from_millis(10));
            assert_eq!(failures, expected);
        }
        assert_eq!(
            failures_after(failures, FeedState::Failed, Duration::from_secs(60)),
            10,
            "it did not answer"
        );
        assert_eq!(
            failures_after(failures, FeedState::Current, Duration::from_secs(60)),
            1,
            "it served for long"
        );
    }

    #[test]
    fn delays_grow_up_to_a_limit() {
        assert_eq!(delay(0), Duration::ZERO);
        for failures in 1..100 {
            let longest = (FIRST_DELAY * 2_u32.pow((failures - 1).min(10))).min(LONGEST_DELAY);
            let own = delay(failures);
            assert!(own >= longest / 2 && own <= longest, "{failures}: {own:?}");
        }
    }
}
