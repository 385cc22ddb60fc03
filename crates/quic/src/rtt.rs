//! Estimates of the round-trip time (RFC 9002, 5).

use std::time::{Duration, Instant};

/// The granularity of timers (RFC 9002, 6.1.2).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// The round-trip time before the first sample (RFC 9002, 6.2.2).
const INITIAL: Duration = Duration::from_millis(333);

/// The round-trip time of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rtt {
    pub(crate) latest: Duration,
    pub(crate) smoothed: Duration,
    pub(crate) variation: Duration,
    pub(crate) min: Duration,
    /// When the first sample was taken.
    pub(crate) sampled: Option<Instant>,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            latest: INITIAL,
            smoothed: INITIAL,
            variation: INITIAL / 2,
            min: Duration::ZERO,
            sampled: None,
        }
    }
}

impl Rtt {
    /// Returns the estimate for another path of the same peer, which the first sample replaces.
    pub(crate) fn as_hint(&self) -> Self {
        let initial = (self.smoothed * 2).clamp(GRANULARITY, INITIAL);
        Self { latest: initial, smoothed: initial, variation: initial / 2, ..Self::default() }
    }

    /// Adds a sample taken at `now`; `delay` is the time that the peer waited before it acknowledged.
    pub(crate) fn update(&mut self, now: Instant, latest: Duration, delay: Duration) {
        self.latest = latest;
        if self.sampled.is_none() {
            self.sampled = Some(now);
            (self.smoothed, self.variation, self.min) = (latest, latest / 2, latest);
            return;
        }
        self.min = self.min.min(latest);
        let adjusted = if latest >= self.min + delay { latest - delay } else { latest };
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(adjusted)) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
    }

    /// The time after which a packet without an acknowledgement is probed for, without the peer's delay.
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.smoothed + (self.variation * 4).max(GRANULARITY)
    }

    /// The time after which a packet is lost if a later one was acknowledged.
    pub(crate) fn loss_delay(&self) -> Duration {
        (self.smoothed.max(self.latest) * 9 / 8).max(GRANULARITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_smoothed_without_the_peers_delay() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::default();
        rtt.update(Instant::now(), ms(100), ms(20));
        assert_eq!(
            (rtt.smoothed, rtt.variation, rtt.min),
            (ms(100), ms(50), ms(100)),
            "the first one as it is"
        );
        rtt.update(Instant::now(), ms(200), ms(20));
        assert_eq!(rtt.smoothed, ms(880) / 8);
        assert_eq!(rtt.variation, ms(230) / 4);
        rtt.update(Instant::now(), ms(110), ms(20));
        assert_eq!(rtt.smoothed, Duration::from_micros(110_000), "a delay below the minimum does not count");
        assert_eq!(rtt.probe_timeout(), rtt.smoothed + rtt.variation * 4);
    }
}
