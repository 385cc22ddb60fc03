//! Ends connections with too many malformed messages: violations that `option accept-unsafe-violations-in-http-request` and
//! `-response` tolerate are counted per connection (manual, `tune.h1.fe.glitches-threshold`). Called by the steps that read heads.

use runtime::usage::{self, Of};

/// Whether a connection with this many glitches must end immediately. `most` is the limit (0 for no limit). `busy` is the CPU
/// usage of this thread, in percent, above which the limit applies.
pub(crate) fn is_enough(count: u32, most: u32, busy: u8) -> bool {
    most > 0 && count >= most && is_busy(busy)
}

/// Whether the connection must end after this message, because it has reached three quarters of the limit.
pub(crate) fn is_nearly_enough(count: u32, most: u32, busy: u8) -> bool {
    most > 0 && u64::from(count) * 4 >= u64::from(most) * 3 && is_busy(busy)
}

/// Whether the CPU usage of this thread is at least `percent` (0 for always), so that the limit on glitches applies.
pub(crate) fn is_busy(percent: u8) -> bool {
    percent == 0 || usage::percent(Of::Worker) >= percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_gracefully_at_three_quarters_and_at_once_at_the_limit() {
        for (most, orderly, at_once) in [(1, 1, 1), (2, 2, 2), (4, 3, 4), (8, 6, 8), (100, 75, 100)] {
            for count in 0..=most {
                assert_eq!(is_nearly_enough(count, most, 0), count >= orderly, "{count} of {most}");
                assert_eq!(is_enough(count, most, 0), count >= at_once, "{count} of {most}");
            }
        }
        assert!(!is_enough(u32::MAX, 0, 0) && !is_nearly_enough(u32::MAX, 0, 0), "no limit");
        assert!(!is_enough(5, 4, 100), "a test is not that busy");
    }
}
