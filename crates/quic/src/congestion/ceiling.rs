//! A ceiling for the window of an algorithm that does not react to losses.
//!
//! The engine's BBR keeps its window however many packets are lost. If it overestimates a path with a short round-trip time, every
//! packet counts as lost before its acknowledgement arrives, so that the round-trip time is not measured any more and the transfer
//! stalls. As in BBR version 2, a high loss rate limits the window.

use std::time::Instant;

/// The share of lost bytes above which the ceiling is lowered, in percent.
const LOSS_MAX: u64 = 10;

/// The ceiling, which begins with the first lossy round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossCeiling {
    bytes: Option<u64>,
    /// When it was lowered last.
    lowered: Option<Instant>,
    /// Bytes since then.
    acknowledged: u64,
    lost: u64,
}

impl LossCeiling {
    /// Counts acknowledged bytes: the ceiling rises by an eighth in each round trip.
    pub(super) fn note_acknowledged(&mut self, bytes: u64) {
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        if let Some(ceiling) = &mut self.bytes {
            *ceiling = ceiling.saturating_add(bytes / 8);
        }
    }

    /// Counts lost bytes, the last of which was sent at `sent`; lowers the ceiling at most once for the packets of a round trip.
    pub(super) fn note_lost(
        &mut self,
        now: Instant,
        sent: Instant,
        window: u64,
        bytes: u64,
        is_persistent: bool,
    ) {
        self.lost = self.lost.saturating_add(bytes);
        let rate = self.lost.saturating_mul(100) / (self.lost + self.acknowledged).max(1);
        let is_new = self.lowered.is_none_or(|lowered| sent > lowered);
        if is_persistent {
            self.bytes = Some(0);
        } else if is_new && rate > LOSS_MAX {
            self.bytes = Some(window / 10 * 7);
        } else {
            return;
        }
        (self.lowered, self.acknowledged, self.lost) = (Some(now), 0, 0);
    }

    /// Limits a window, but not below two packets.
    pub(super) fn limit(&self, window: u64, mtu: u16) -> u64 {
        self.bytes.map_or(window, |ceiling| window.min(ceiling.max(2 * u64::from(mtu))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_high_loss_rate_lowers_the_ceiling_once_for_each_round() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ceiling = LossCeiling::default();
        ceiling.note_acknowledged(95_000);
        ceiling.note_lost(at(10), at(0), 100_000, 5_000, false);
        assert_eq!(ceiling.limit(100_000, 1200), 100_000, "five percent are tolerated");
        ceiling.note_lost(at(11), at(1), 100_000, 20_000, false);
        assert_eq!(ceiling.limit(100_000, 1200), 70_000);
        ceiling.note_lost(at(12), at(9), 70_000, 50_000, false);
        assert_eq!(ceiling.limit(100_000, 1200), 70_000, "sent before the reduction");
        ceiling.note_lost(at(22), at(12), 70_000, 50_000, false);
        assert_eq!(ceiling.limit(100_000, 1200), 49_000);
        ceiling.note_acknowledged(49_000);
        assert_eq!(ceiling.limit(100_000, 1200), 55_125);
        ceiling.note_lost(at(23), at(13), 55_125, 1, true);
        assert_eq!(ceiling.limit(100_000, 1200), 2_400, "persistent congestion");
    }
}
