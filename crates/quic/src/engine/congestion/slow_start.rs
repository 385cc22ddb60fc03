//! HyStart++ (RFC 9406): slow start that ends when the round-trip time grows, before packets are lost.
//!
//! Afterwards the engine's Cubic continues from the window that was reached, as after a reduction to it.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory as _, ControllerMetrics, CubicConfig};

// The names and values of RFC 9406, 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// The initial window in bytes (RFC 9002, 7.2).
const INITIAL_WINDOW: u64 = 12_000;

/// A controller that starts with HyStart++.
pub(super) struct HyStart {
    mtu: u16,
    stage: Stage,
}

enum Stage {
    SlowStart(SlowStart),
    Avoidance(Box<dyn Controller>),
}

/// The state of slow start.
#[derive(Debug, Clone, Default)]
struct SlowStart {
    window: u64,
    /// The last packet that was sent.
    last_sent: u64,
    /// The packet that ends the current round when it is acknowledged.
    round_end: u64,
    /// The minimum round-trip time of the last round and of this one.
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    /// The number of samples in this round.
    samples: u32,
    /// The minimum in the acknowledgement that is being processed.
    sample: Option<Duration>,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Debug, Clone, Copy)]
struct Conservative {
    /// The round-trip time at its beginning: a smaller one means that it began too early.
    baseline: Duration,
    rounds: u32,
}

impl SlowStart {
    fn grow(&mut self, bytes: u64) {
        self.window += if self.conservative.is_some() { bytes / CSS_GROWTH_DIVISOR } else { bytes };
    }

    fn note(&mut self, rtt: Duration) {
        self.sample = Some(self.sample.map_or(rtt, |sample| sample.min(rtt)));
    }

    /// Ends an acknowledgement; returns whether slow start is over.
    fn end_acks(&mut self, largest: Option<u64>) -> bool {
        if let Some(sample) = self.sample.take() {
            self.current_min = Some(self.current_min.map_or(sample, |least| least.min(sample)));
            self.samples += 1;
        }
        if self.samples >= N_RTT_SAMPLE
            && let Some(current) = self.current_min
        {
            match self.conservative {
                Some(conservative) if current < conservative.baseline => self.conservative = None,
                Some(_) => {}
                None => {
                    let grew = self.last_min.is_some_and(|last| {
                        current >= last + (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
                    });
                    self.conservative = grew.then_some(Conservative { baseline: current, rounds: 0 });
                }
            }
        }
        if largest.is_none_or(|largest| largest < self.round_end) {
            return false;
        }
        self.round_end = self.last_sent;
        self.last_min = self.current_min.take().or(self.last_min);
        self.samples = 0;
        self.conservative.as_mut().is_some_and(|conservative| {
            conservative.rounds += 1;
            conservative.rounds >= CSS_ROUNDS
        })
    }
}

impl HyStart {
    pub(super) fn new(mtu: u16) -> Self {
        let window = INITIAL_WINDOW;
        Self { mtu, stage: Stage::SlowStart(SlowStart { window, ..SlowStart::default() }) }
    }

    /// Returns a Cubic with this window, in slow start.
    fn cubic(&self, now: Instant, window: u64) -> Box<dyn Controller> {
        let mut config = CubicConfig::default();
        config.initial_window(window);
        Arc::new(config).build(now, self.mtu)
    }
}

impl Controller for HyStart {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        match &mut self.stage {
            Stage::SlowStart(start) => start.last_sent = start.last_sent.max(last_packet_number),
            Stage::Avoidance(inner) => inner.on_sent(now, bytes, last_packet_number),
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        match &mut self.stage {
            Stage::SlowStart(start) => {
                start.note(now.saturating_duration_since(sent));
                if !app_limited {
                    start.grow(bytes);
                }
            }
            Stage::Avoidance(inner) => inner.on_ack(now, sent, bytes, app_limited, rtt),
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        match &mut self.stage {
            Stage::SlowStart(start) => {
                if start.end_acks(largest) {
                    // Cubic multiplies its window by 0.7 at the event.
                    let before = start.window.saturating_mul(10).div_ceil(7);
                    let mut inner = self.cubic(now, before);
                    inner.on_congestion_event(now, now, false, 0);
                    self.stage = Stage::Avoidance(inner);
                }
            }
            Stage::Avoidance(inner) => inner.on_end_acks(now, in_flight, app_limited, largest),
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        if let Stage::SlowStart(start) = &self.stage {
            self.stage = Stage::Avoidance(self.cubic(now, start.window));
        }
        if let Stage::Avoidance(inner) = &mut self.stage {
            inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        if let Stage::Avoidance(inner) = &mut self.stage {
            inner.on_mtu_update(new_mtu);
        }
    }

    fn window(&self) -> u64 {
        match &self.stage {
            Stage::SlowStart(start) => start.window,
            Stage::Avoidance(inner) => inner.window(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        match &self.stage {
            Stage::SlowStart(start) => {
                let mut metrics = ControllerMetrics::default();
                metrics.congestion_window = start.window;
                metrics.ssthresh = Some(u64::MAX);
                metrics
            }
            Stage::Avoidance(inner) => inner.metrics(),
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let stage = match &self.stage {
            Stage::SlowStart(start) => Stage::SlowStart(start.clone()),
            Stage::Avoidance(inner) => Stage::Avoidance(inner.clone_box()),
        };
        Box::new(Self { mtu: self.mtu, stage })
    }

    fn initial_window(&self) -> u64 {
        INITIAL_WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets in flight.
    const FLIGHT: u64 = 10;

    /// Plays rounds of ten acknowledgements, each with the round-trip time of its round in ms; returns in which one slow start
    /// ended.
    fn play(start: &mut SlowStart, rounds: &[u64]) -> Option<usize> {
        for (round, ms) in rounds.iter().enumerate() {
            for _ in 0..FLIGHT {
                start.last_sent = start.last_sent.max(FLIGHT) + 1;
                start.note(Duration::from_millis(*ms));
                start.grow(1000);
                if start.end_acks(Some(start.last_sent - FLIGHT)) {
                    return Some(round);
                }
            }
        }
        None
    }

    #[test]
    fn a_steady_round_trip_time_does_not_end_slow_start() {
        let mut start = SlowStart { window: 10_000, ..SlowStart::default() };
        assert_eq!(play(&mut start, &[40, 42, 43, 41, 44, 40, 43, 44]), None);
        assert!(start.conservative.is_none());
        assert_eq!(start.window, 90_000, "the window grows by each acknowledged byte");
    }

    #[test]
    fn a_growing_round_trip_time_ends_slow_start_after_five_careful_rounds() {
        let mut start = SlowStart { window: 10_000, ..SlowStart::default() };
        assert_eq!(play(&mut start, &[40, 40, 50]), None);
        assert!(start.conservative.is_some(), "a queue builds up");
        let before = start.window;
        let end = play(&mut start, &[50, 52, 55, 57, 60, 60, 60]);
        assert!(end.is_some_and(|round| (3..=5).contains(&round)), "{end:?}");
        assert!(start.window - before < 20_000, "the window grows by a quarter");
    }

    #[test]
    fn a_peak_of_the_round_trip_time_is_forgotten() {
        let mut start = SlowStart { window: 10_000, ..SlowStart::default() };
        assert_eq!(play(&mut start, &[40, 40, 60, 41, 41, 41, 41, 41, 41]), None);
        assert!(start.conservative.is_none());
    }

    #[test]
    fn the_window_is_kept_at_the_end_and_reduced_after_losses() {
        let now = Instant::now();
        let mut controller = HyStart::new(1200);
        let mut number = FLIGHT;
        for ms in [40, 40, 60, 61, 62, 63, 64, 65, 66, 67] {
            for _ in 0..FLIGHT {
                number += 1;
                controller.on_sent(now, 1000, number);
                if let Stage::SlowStart(start) = &mut controller.stage {
                    start.note(Duration::from_millis(ms));
                    start.grow(1000);
                }
                controller.on_end_acks(now, 0, false, Some(number - FLIGHT));
            }
        }
        assert!(matches!(controller.stage, Stage::Avoidance(_)));
        let window = controller.window();
        assert!((30_000..=70_000).contains(&window), "{window}");
        assert_eq!(controller.metrics().ssthresh, Some(window));
        let mut lossy = HyStart::new(1200);
        lossy.on_congestion_event(now, now, false, 1200);
        assert_eq!(lossy.window(), INITIAL_WINDOW * 7 / 10);
    }
}
