//! BBR, version 1: the window follows the measured bandwidth and the minimum round-trip time (draft-cardwell-iccrg-bbr-congestion-control-00).
//!
//! The bandwidth is measured once in each round trip.

use std::time::{Duration, Instant};

/// The gains of startup: 2/ln 2, in thousandths, and its inverse.
const HIGH_GAIN: u64 = 2885;
const DRAIN_GAIN: u64 = 347;
/// The window in bandwidth-delay products while probing for bandwidth.
const WINDOW_GAIN: u64 = 2000;
/// The gains of the phases in which bandwidth is probed for.
const CYCLE: [u64; 8] = [1250, 750, 1000, 1000, 1000, 1000, 1000, 1000];

/// The number of rounds that a bandwidth counts.
const ROUNDS: usize = 10;
/// The number of rounds without growth after which the bandwidth is known.
const FULL_ROUNDS: u8 = 3;
/// How long a minimum of the round-trip time counts, and how long a new one is looked for.
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);

/// A controller that models the path.
#[derive(Debug)]
pub(super) struct Bbr {
    initial_window: u64,
    mtu: u64,
    stage: Stage,
    /// Bytes in a second, of the last rounds.
    bandwidths: [u64; ROUNDS],
    rounds: usize,
    round: Round,
    /// The largest bandwidth when it was last seen to grow, and the rounds since then.
    full: (u64, u8),
    min_rtt: Option<(Duration, Instant)>,
    last_sent: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Startup,
    Drain,
    /// The phase of the cycle, and when it began.
    Probing(usize, Instant),
    /// Until when, and whether the bandwidth is known.
    ProbeRtt(Instant, bool),
}

/// The round trip that is being measured.
#[derive(Debug, Default)]
struct Round {
    start: Option<Instant>,
    /// The packet that ends it when it is acknowledged.
    end: u64,
    bytes: u64,
    is_limited: bool,
}

impl Bbr {
    pub(super) fn new(window: u64, mtu: u16) -> Self {
        Self {
            initial_window: window,
            mtu: mtu.into(),
            stage: Stage::Startup,
            bandwidths: [0; ROUNDS],
            rounds: 0,
            round: Round::default(),
            full: (0, 0),
            min_rtt: None,
            last_sent: 0,
        }
    }

    fn bandwidth(&self) -> u64 {
        self.bandwidths.into_iter().max().unwrap_or(0)
    }

    /// The bandwidth-delay product, in bytes.
    fn product(&self) -> Option<u64> {
        let micros = u64::try_from(self.min_rtt?.0.as_micros()).ok()?;
        let bandwidth = self.bandwidth();
        (bandwidth > 0).then(|| bandwidth.saturating_mul(micros.max(1)) / 1_000_000)
    }

    pub(super) fn window(&self) -> u64 {
        let least = 4 * self.mtu;
        let Some(product) = self.product() else { return self.initial_window };
        let gain = match self.stage {
            Stage::ProbeRtt(..) => return least,
            Stage::Startup | Stage::Drain => HIGH_GAIN,
            Stage::Probing(..) => WINDOW_GAIN,
        };
        let window = product.saturating_mul(gain) / 1000 + 3 * self.mtu;
        if self.stage == Stage::Startup { window.max(self.initial_window) } else { window.max(least) }
    }

    /// The pace in bytes per second, once it is known.
    pub(super) fn rate(&self) -> Option<u64> {
        let gain = match self.stage {
            Stage::Startup => HIGH_GAIN,
            Stage::Drain => DRAIN_GAIN,
            Stage::Probing(phase, _) => CYCLE[phase],
            Stage::ProbeRtt(..) => 1000,
        };
        Some(self.bandwidth().saturating_mul(gain) / 1000).filter(|rate| *rate > 0)
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.into();
    }

    pub(super) fn on_sent(&mut self, now: Instant, number: u64) {
        self.last_sent = self.last_sent.max(number);
        if self.round.start.is_none() {
            self.round = Round { start: Some(now), end: number, ..Round::default() };
        }
    }

    pub(super) fn on_ack(&mut self, bytes: u64, is_limited: bool) {
        self.round.bytes += bytes;
        self.round.is_limited |= is_limited;
    }

    pub(super) fn end_ack(&mut self, now: Instant, largest: u64, sample: Duration, in_flight: u64) {
        let is_expired = self.min_rtt.is_some_and(|(_, at)| now.saturating_duration_since(at) > MIN_RTT_AGE);
        if is_expired || self.min_rtt.is_none_or(|(least, _)| sample <= least) {
            self.min_rtt = Some((sample, now));
        }
        let is_round = largest >= self.round.end;
        if is_round {
            self.end_round(now, in_flight);
        }
        self.advance(now, in_flight, is_expired);
    }

    fn end_round(&mut self, now: Instant, in_flight: u64) {
        let next = Round { start: (in_flight > 0).then_some(now), end: self.last_sent, ..Round::default() };
        let round = std::mem::replace(&mut self.round, next);
        let Some(start) = round.start else { return };
        let time =
            now.saturating_duration_since(start).max(self.min_rtt.map_or(Duration::ZERO, |(least, _)| least));
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bandwidth = round.bytes.saturating_mul(1_000_000) / micros.max(1);
        // A round with too little to send shows only that the bandwidth is at least that.
        if round.is_limited && bandwidth <= self.bandwidth() {
            return;
        }
        self.bandwidths[self.rounds % ROUNDS] = bandwidth;
        self.rounds += 1;
        if self.bandwidth() > self.full.0.saturating_mul(5) / 4 {
            self.full = (self.bandwidth(), 0);
        } else if !round.is_limited {
            self.full.1 = self.full.1.saturating_add(1);
        }
    }

    fn advance(&mut self, now: Instant, in_flight: u64, is_expired: bool) {
        let product = self.product().unwrap_or(self.initial_window);
        let is_known = self.full.1 >= FULL_ROUNDS;
        let min_rtt = self.min_rtt.map_or(Duration::ZERO, |(least, _)| least);
        self.stage = match self.stage {
            Stage::ProbeRtt(until, _) if now < until => return,
            Stage::ProbeRtt(_, false) => Stage::Startup,
            Stage::ProbeRtt(_, true) => Stage::Probing(2, now),
            _ if is_expired => Stage::ProbeRtt(now + PROBE_RTT, is_known),
            Stage::Startup if is_known => Stage::Drain,
            Stage::Drain if in_flight <= product => Stage::Probing(2, now),
            Stage::Probing(phase, since) => {
                let is_over = now.saturating_duration_since(since) > min_rtt;
                // The queue of the first phase is drained in the second one.
                let is_drained = phase == 1 && in_flight <= product;
                if !is_over && !is_drained {
                    return;
                }
                Stage::Probing((phase + 1) % CYCLE.len(), now)
            }
            stage @ (Stage::Startup | Stage::Drain) => stage,
        };
    }

    pub(super) fn on_persistent_congestion(&mut self) {
        *self = Self::new(4 * self.mtu, u16::try_from(self.mtu).unwrap_or(u16::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays round trips over a link of `rate` bytes in a second with `rtt` and no loss.
    fn play(bbr: &mut Bbr, now: &mut Instant, rounds: u32, rate: u64, rtt: Duration) {
        for _ in 0..rounds {
            let window = bbr.window();
            let number = bbr.last_sent + window / 1200;
            bbr.on_sent(*now, number);
            // The queue of the bottleneck delays the rest.
            let time = rtt.max(Duration::from_micros(window * 1_000_000 / rate));
            *now += time;
            bbr.on_ack(window, false);
            bbr.end_ack(*now, number, time, 1);
        }
    }

    #[test]
    fn the_window_follows_the_bandwidth_of_the_path() {
        let (rtt, mut now) = (Duration::from_millis(50), Instant::now());
        let mut bbr = Bbr::new(12_000, 1200);
        // 10 MB/s for 50 ms are 500 kB.
        play(&mut bbr, &mut now, 30, 10_000_000, rtt);
        assert!(matches!(bbr.stage, Stage::Probing(..)), "{bbr:?}");
        assert!((900_000..1_150_000).contains(&bbr.window()), "{}", bbr.window());
        play(&mut bbr, &mut now, 60, 2_000_000, rtt);
        assert!(bbr.window() < 1_000_000, "{}", bbr.window());
        assert!(bbr.rate().is_some_and(|rate| rate < 4_000_000), "{:?}", bbr.rate());
    }

    #[test]
    fn the_round_trip_time_is_probed_for_with_a_small_window() {
        let (rtt, mut now) = (Duration::from_millis(50), Instant::now());
        let mut bbr = Bbr::new(12_000, 1200);
        play(&mut bbr, &mut now, 30, 10_000_000, rtt);
        now += MIN_RTT_AGE;
        bbr.end_ack(now, 0, rtt, 1);
        assert_eq!(bbr.window(), 4 * 1200);
        now += PROBE_RTT;
        bbr.end_ack(now, 0, rtt, 1);
        assert!(bbr.window() > 100_000);
    }
}
