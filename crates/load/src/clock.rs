//! Times in nanoseconds since the start of the process.

use std::time::{Duration, Instant};

use runtime::timer;

/// A number of nanoseconds, or an instant in nanoseconds since [`timer::epoch`].
pub(crate) type Nanos = u64;

/// Nanoseconds of a millisecond.
pub(crate) const MS: Nanos = 1_000_000;

/// Nanoseconds of a second.
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// The current instant.
pub(crate) fn now() -> Nanos {
    nanos(timer::epoch().elapsed())
}

/// The length of `duration`, at most 584 years.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts an instant for the QUIC engine.
pub(crate) fn instant(at: Nanos) -> Instant {
    timer::epoch() + Duration::from_nanos(at)
}
