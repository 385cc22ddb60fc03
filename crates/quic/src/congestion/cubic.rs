//! Cubic (RFC 9438) and NewReno (RFC 9002, 7), with slow start after RFC 9002 or HyStart++.

use std::time::{Duration, Instant};

use super::hystart::HyStart;

/// The reduction of Cubic's window at a loss, and of NewReno's, in tenths.
const CUBIC_BETA: u64 = 7;
const RENO_BETA: u64 = 5;

/// Cubic's scaling constant, in segments for each cubic second.
const C: f64 = 0.4;

/// A controller that reacts to losses.
#[derive(Debug)]
pub(super) struct LossBased {
    /// Bytes.
    pub(super) window: u64,
    pub(super) threshold: u64,
    mtu: u64,
    is_cubic: bool,
    pub(super) hystart: Option<HyStart>,
    /// When the last reduction began: packets sent before do not count again.
    recovery_start: Option<Instant>,
    /// Bytes acknowledged in congestion avoidance that have not led to growth.
    acknowledged: u64,
    cubic: Cubic,
}

/// The state of Cubic's curve.
#[derive(Debug, Default)]
struct Cubic {
    /// The beginning of the current congestion avoidance stage.
    epoch: Option<Instant>,
    /// The window before the last reduction, in bytes.
    w_max: f64,
    /// The time to reach `w_max` again, in seconds.
    k: f64,
    /// The window that Reno would have, in bytes.
    estimate: f64,
}

impl LossBased {
    pub(super) fn new(is_cubic: bool, has_hystart: bool, window: u64, mtu: u16) -> Self {
        Self {
            window,
            threshold: u64::MAX,
            mtu: mtu.into(),
            is_cubic,
            hystart: has_hystart.then(HyStart::default),
            recovery_start: None,
            acknowledged: 0,
            cubic: Cubic::default(),
        }
    }

    fn min_window(&self) -> u64 {
        2 * self.mtu
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.window = self.window.max(self.min_window());
    }

    /// Whether a packet sent at `sent` belongs to the stage before the last reduction.
    fn is_before_recovery(&self, sent: Instant) -> bool {
        self.recovery_start.is_some_and(|start| sent <= start)
    }

    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        is_limited: bool,
        rtt: Duration,
    ) {
        if is_limited || self.is_before_recovery(sent) {
            return;
        }
        if self.window < self.threshold {
            let divisor = self.hystart.as_ref().map_or(1, HyStart::divisor);
            self.window += bytes / divisor;
            return;
        }
        if self.is_cubic {
            self.grow_cubic(now, bytes, rtt);
        } else {
            self.acknowledged += bytes;
            if self.acknowledged >= self.window {
                self.acknowledged -= self.window;
                self.window += self.mtu;
            }
        }
    }

    fn grow_cubic(&mut self, now: Instant, bytes: u64, rtt: Duration) {
        let mtu = self.mtu as f64;
        let window = self.window as f64;
        let cubic = &mut self.cubic;
        let epoch = *cubic.epoch.get_or_insert_with(|| {
            if cubic.w_max <= window {
                (cubic.w_max, cubic.k) = (window, 0.0);
            } else {
                cubic.k = ((cubic.w_max - window) / mtu / C).cbrt();
            }
            cubic.estimate = window;
            now
        });
        // The growth of Reno with Cubic's reduction (RFC 9438, 4.3).
        let beta = CUBIC_BETA as f64 / 10.0;
        let alpha = if cubic.estimate < cubic.w_max { 3.0 * (1.0 - beta) / (1.0 + beta) } else { 1.0 };
        cubic.estimate += alpha * bytes as f64 / window * mtu;
        let time = (now.saturating_duration_since(epoch) + rtt).as_secs_f64() - cubic.k;
        let target = (C * time.powi(3) * mtu + cubic.w_max).clamp(window, window * 1.5);
        let next = if target < cubic.estimate {
            cubic.estimate
        } else {
            window + (target - window) * bytes as f64 / window
        };
        self.window = self.window.max(next as u64);
    }

    /// Ends an acknowledgement of packets up to `largest`.
    pub(super) fn end_ack(&mut self, largest: u64, sample: Duration) {
        if self.window < self.threshold
            && let Some(hystart) = &mut self.hystart
            && hystart.end_ack(largest, sample)
        {
            self.threshold = self.window;
        }
    }

    pub(super) fn on_congestion(&mut self, now: Instant, sent: Instant, is_persistent: bool) {
        if !self.is_before_recovery(sent) {
            self.recovery_start = Some(now);
            let before = self.window as f64;
            let beta = if self.is_cubic { CUBIC_BETA } else { RENO_BETA };
            // Fast convergence (RFC 9438, 4.7).
            let is_lower = before < self.cubic.w_max;
            self.cubic.w_max = if is_lower { before * (10 + CUBIC_BETA) as f64 / 20.0 } else { before };
            self.cubic.epoch = None;
            self.window = (self.window * beta / 10).max(self.min_window());
            self.threshold = self.window;
            self.acknowledged = 0;
        }
        if is_persistent {
            self.window = self.min_window();
            self.recovery_start = None;
            self.cubic = Cubic::default();
        }
    }

    /// Continues the curve after a time without data to send (RFC 9438, 5.8).
    pub(super) fn after_idle(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.cubic.epoch {
            *epoch += idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1200;
    const RTT: Duration = Duration::from_millis(100);

    /// Acknowledges a window of packets in each round.
    fn run(controller: &mut LossBased, start: Instant, rounds: std::ops::Range<u32>) {
        for round in rounds {
            let now = start + RTT * round;
            for _ in 0..controller.window / MTU {
                controller.on_ack(now, now - RTT, MTU, false, RTT);
            }
        }
    }

    #[test]
    fn slow_start_doubles_the_window() {
        let start = Instant::now() + RTT;
        for is_cubic in [true, false] {
            let mut controller = LossBased::new(is_cubic, false, 12_000, 1200);
            run(&mut controller, start, 1..4);
            assert_eq!(controller.window, 96_000);
            controller.on_ack(start, start, MTU, true, RTT);
            assert_eq!(controller.window, 96_000, "not while there was too little to send");
        }
    }

    #[test]
    fn cubic_returns_to_its_maximum_and_probes_beyond() {
        let start = Instant::now() + RTT;
        let mut controller = LossBased::new(true, false, 1_200_000, 1200);
        controller.on_congestion(start, start, false);
        assert_eq!(controller.window, 840_000);
        controller.on_congestion(start + RTT / 2, start, false);
        assert_eq!(controller.window, 840_000, "once in a round trip");
        // 300 packets are missing: the cubic root of 300 / 0.4 is 9.1 seconds.
        run(&mut controller, start, 1..86);
        assert!((1_150_000..1_210_000).contains(&controller.window), "{}", controller.window);
        run(&mut controller, start, 86..101);
        assert!((1_195_000..1_260_000).contains(&controller.window), "{}", controller.window);
        run(&mut controller, start, 101..150);
        assert!(controller.window > 1_270_000, "{}", controller.window);
    }

    #[test]
    fn new_reno_grows_by_a_packet_in_each_round() {
        let start = Instant::now() + RTT;
        let mut controller = LossBased::new(false, false, 120_000, 1200);
        controller.on_congestion(start, start, false);
        assert_eq!(controller.window, 60_000);
        run(&mut controller, start, 2..12);
        assert!((71_000..=72_000).contains(&controller.window), "{}", controller.window);
    }

    #[test]
    fn persistent_congestion_leaves_two_packets() {
        let now = Instant::now();
        for is_cubic in [true, false] {
            let mut controller = LossBased::new(is_cubic, false, 120_000, 1200);
            controller.on_congestion(now, now, true);
            assert_eq!(controller.window, 2 * MTU);
            assert_eq!(controller.threshold, 120_000 * if is_cubic { 7 } else { 5 } / 10);
        }
    }
}
