//! Congestion controllers: those of the engine with a limited window, and a window of constant size.
//!
//! [`Limited`] also keeps the numbers that the engine does not publish: bytes in flight and the variation of the round-trip time.

mod ceiling;
mod memory;
mod slow_start;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{
    BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig, NewRenoConfig,
};

use crate::settings::{Congestion, CongestionAlgorithm};
use ceiling::LossCeiling;
use memory::MemoryShare;
use slow_start::HyStart;

/// The usual maximum size of a packet that only acknowledges others.
const ACKNOWLEDGEMENT_MAX: u64 = 128;

/// Makes the controllers of a listener's connections.
#[derive(Debug)]
pub(crate) struct Controllers(pub(crate) Congestion);

impl ControllerFactory for Controllers {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let Congestion { algorithm, window_max, cubic_min_losses, hystart, memory } = self.0;
        let mut min_losses = 1;
        let inner: Box<dyn Controller> = match algorithm {
            CongestionAlgorithm::Cubic => {
                min_losses = cubic_min_losses;
                if hystart {
                    Box::new(HyStart::new(current_mtu))
                } else {
                    Arc::new(CubicConfig::default()).build(now, current_mtu)
                }
            }
            CongestionAlgorithm::NewReno => Arc::new(NewRenoConfig::default()).build(now, current_mtu),
            CongestionAlgorithm::Bbr => Arc::new(BbrConfig::default()).build(now, current_mtu),
            CongestionAlgorithm::None => Box::new(Constant(window_max)),
        };
        Box::new(Limited {
            inner,
            window_max,
            mtu: current_mtu,
            tolerance: LossTolerance { min: min_losses, lost: 0 },
            ceiling: (algorithm == CongestionAlgorithm::Bbr).then(LossCeiling::default),
            in_flight: 0,
            memory: memory.map(MemoryShare::new),
            rtt: RttVariation::default(),
        })
    }
}

/// A controller with a limited window.
pub(crate) struct Limited {
    inner: Box<dyn Controller>,
    window_max: u64,
    mtu: u16,
    tolerance: LossTolerance,
    /// For BBR, which ignores losses.
    ceiling: Option<LossCeiling>,
    /// Unacknowledged bytes: exact after each acknowledgement, estimated between them.
    in_flight: u64,
    /// The share of this connection in `tune.quic.mem.tx-max`.
    memory: Option<MemoryShare>,
    rtt: RttVariation,
}

impl Limited {
    /// Returns the controller behind the engine's interface.
    pub(crate) fn of(controller: &dyn Controller) -> Option<Box<Self>> {
        controller.clone_box().into_any().downcast().ok()
    }

    /// Unacknowledged bytes.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The mean deviation of the round-trip time.
    pub(crate) fn rtt_variation(&self) -> Duration {
        self.rtt.variation
    }

    fn set_in_flight(&mut self, bytes: u64) {
        self.in_flight = bytes;
        if let Some(memory) = &mut self.memory {
            memory.set(bytes);
        }
    }
}

impl Controller for Limited {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        // Packets without anything to acknowledge are reported too, but are not in flight.
        if bytes > ACKNOWLEDGEMENT_MAX {
            let most = self.inner.window().saturating_add(bytes);
            self.set_in_flight(self.in_flight.saturating_add(bytes).min(most));
        }
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.rtt.note(now.saturating_duration_since(sent));
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.note_acknowledged(bytes);
        }
        // A window at its limit does not grow on, or it would take long to shrink after a loss.
        let is_limited = app_limited || self.inner.window() >= self.window_max;
        self.inner.on_ack(now, sent, bytes, is_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.tolerance.lost = 0;
        self.rtt.update();
        self.set_in_flight(in_flight);
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.set_in_flight(self.in_flight.saturating_sub(lost_bytes));
        let window = self.window();
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.note_lost(now, sent, window, lost_bytes, is_persistent);
        }
        if self.tolerance.is_event(lost_bytes, self.mtu) || is_persistent {
            self.inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        let window = self.inner.window().min(self.window_max);
        let window = self.ceiling.map_or(window, |ceiling| ceiling.limit(window, self.mtu));
        match &self.memory {
            Some(memory) => memory.limit(window, self.mtu),
            None => window,
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    /// The clone has nothing in flight: it is for another path.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            memory: self.memory.as_ref().map(MemoryShare::sibling),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window().min(self.window_max)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// How many packets may be lost between two acknowledgements without a reduction of the window
/// (`tune.quic.fe.cc.cubic-min-losses`).
#[derive(Debug, Clone, Copy)]
struct LossTolerance {
    /// The number of lost packets that reduces the window.
    min: u32,
    /// Packets lost since the last acknowledgement.
    lost: u32,
}

impl LossTolerance {
    /// Counts lost packets; returns whether they are a congestion event. Without lost bytes it is a mark of a router, which is one.
    fn is_event(&mut self, lost_bytes: u64, mtu: u16) -> bool {
        let packets = lost_bytes.div_ceil(u64::from(mtu).max(1));
        self.lost = self.lost.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
        lost_bytes == 0 || self.lost >= self.min
    }
}

/// The variation of the round-trip time (RFC 9002, 5.3), which the engine computes but does not publish. Delays of
/// acknowledgements are included.
#[derive(Debug, Clone, Copy, Default)]
struct RttVariation {
    smoothed: Option<Duration>,
    variation: Duration,
    /// The time of the newest packet in the current acknowledgement.
    sample: Option<Duration>,
}

impl RttVariation {
    fn note(&mut self, time: Duration) {
        self.sample = Some(self.sample.map_or(time, |sample| sample.min(time)));
    }

    /// Called at the end of an acknowledgement.
    fn update(&mut self) {
        let Some(sample) = self.sample.take() else { return };
        match &mut self.smoothed {
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                *smoothed = (*smoothed * 7 + sample) / 8;
            }
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
        }
    }
}

/// A window that neither grows nor shrinks (`nocc`).
struct Constant(u64);

impl Controller for Constant {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self(self.0))
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1200;

    fn controller(settings: Congestion) -> (Box<dyn Controller>, Instant) {
        let now = Instant::now();
        (Arc::new(Controllers(settings)).build(now, MTU), now)
    }

    fn settings() -> Congestion {
        Congestion { window_max: 1 << 20, ..Congestion::default() }
    }

    #[test]
    fn few_losses_between_acknowledgements_do_not_reduce_the_window() {
        let (mut controller, start) = controller(Congestion { cubic_min_losses: 3, ..settings() });
        let window = controller.window();
        let at = |ms| start + Duration::from_millis(ms);
        for turn in 1..5 {
            controller.on_congestion_event(at(turn * 10 + 1), at(turn * 10), false, 2 * u64::from(MTU));
            assert_eq!(controller.window(), window, "two packets");
            controller.on_end_acks(at(turn * 10 + 2), 0, false, Some(turn));
        }
        controller.on_congestion_event(at(101), at(100), false, 2 * u64::from(MTU));
        controller.on_congestion_event(at(102), at(100), false, u64::from(MTU));
        assert!(controller.window() < window, "three packets");
    }

    #[test]
    fn marks_of_routers_and_persistent_congestion_always_count() {
        for (is_persistent, lost) in [(false, 0), (true, 1)] {
            let (mut controller, start) = controller(Congestion { cubic_min_losses: 9, ..settings() });
            let window = controller.window();
            controller.on_congestion_event(start + Duration::from_millis(2), start, is_persistent, lost);
            assert!(controller.window() < window, "{is_persistent}");
        }
    }

    #[test]
    fn bytes_in_flight_and_the_variation_are_known() {
        let (mut controller, start) = controller(settings());
        controller.on_sent(start, 5000, 1);
        assert_eq!(Limited::of(&*controller).map(|own| own.in_flight()), Some(5000));
        controller.on_congestion_event(start, start, false, 1000);
        assert_eq!(Limited::of(&*controller).map(|own| own.in_flight()), Some(4000));
        controller.on_end_acks(start, 1200, false, Some(1));
        assert_eq!(Limited::of(&*controller).map(|own| own.in_flight()), Some(1200));
        let mut rtt = RttVariation::default();
        for ms in [100, 100, 140] {
            rtt.note(Duration::from_millis(ms + 50));
            rtt.note(Duration::from_millis(ms));
            rtt.update();
        }
        // 50 ms, then 3/4 of it, then 3/4 of that and 1/4 of 40 ms.
        assert_eq!(rtt.variation, Duration::from_micros(38_125));
    }
}
