//! Congestion control (RFC 9002, 7): an algorithm, and limits that apply to all of them.

mod bbr;
mod ceiling;
mod cubic;
mod hystart;
mod memory;

use std::time::{Duration, Instant};

use crate::settings::{Congestion, CongestionAlgorithm};
use bbr::Bbr;
use ceiling::LossCeiling;
use cubic::LossBased;
use memory::MemoryShare;

/// The congestion controller of a path.
#[derive(Debug)]
pub(crate) struct Controller {
    settings: Congestion,
    algorithm: ControlAlgorithm,
    mtu: u16,
    /// Packets lost since the last acknowledgement.
    lost: u32,
    /// For BBR, which ignores losses.
    ceiling: Option<LossCeiling>,
    /// The share of this connection in `tune.quic.mem.tx-max`.
    memory: Option<MemoryShare>,
    /// How often the window was reduced.
    pub(crate) events: u64,
}

#[derive(Debug)]
enum ControlAlgorithm {
    LossBased(LossBased),
    Bbr(Box<Bbr>),
    /// A window that neither grows nor shrinks (`nocc`).
    Constant,
}

/// Lost packets of one acknowledgement or timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Losses {
    /// When the last one was sent.
    pub(crate) sent: Instant,
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
    pub(crate) is_persistent: bool,
}

impl Controller {
    pub(crate) fn new(settings: Congestion, mtu: u16) -> Self {
        let window = (u64::from(mtu) * 10).min(14_720.max(2 * u64::from(mtu)));
        let algorithm = match settings.algorithm {
            CongestionAlgorithm::Cubic => {
                ControlAlgorithm::LossBased(LossBased::new(true, settings.hystart, window, mtu))
            }
            CongestionAlgorithm::NewReno => {
                ControlAlgorithm::LossBased(LossBased::new(false, false, window, mtu))
            }
            CongestionAlgorithm::Bbr => ControlAlgorithm::Bbr(Box::new(Bbr::new(window, mtu))),
            CongestionAlgorithm::None => ControlAlgorithm::Constant,
        };
        Self {
            settings,
            algorithm,
            mtu,
            lost: 0,
            ceiling: (settings.algorithm == CongestionAlgorithm::Bbr).then(LossCeiling::default),
            memory: settings.memory.map(MemoryShare::new),
            events: 0,
        }
    }

    /// Returns a controller for another path.
    pub(crate) fn fresh(&self) -> Self {
        Self::new(self.settings, crate::settings::Settings::INITIAL_MTU)
    }

    fn raw_window(&self) -> u64 {
        match &self.algorithm {
            ControlAlgorithm::LossBased(controller) => controller.window,
            ControlAlgorithm::Bbr(controller) => controller.window(),
            ControlAlgorithm::Constant => self.settings.window_max,
        }
    }

    /// The number of bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        let window = self.raw_window().min(self.settings.window_max);
        let window = self.ceiling.map_or(window, |ceiling| ceiling.limit(window, self.mtu));
        match &self.memory {
            Some(memory) => memory.limit(window, self.mtu),
            None => window,
        }
    }

    /// The pace in bytes per second; `None` if it follows from the window.
    pub(crate) fn rate(&self) -> Option<u64> {
        match &self.algorithm {
            ControlAlgorithm::Bbr(controller) => controller.rate(),
            ControlAlgorithm::LossBased(_) | ControlAlgorithm::Constant => None,
        }
    }

    /// The threshold below which the window grows quickly.
    pub(crate) fn threshold(&self) -> Option<u64> {
        match &self.algorithm {
            ControlAlgorithm::LossBased(controller) => {
                Some(controller.threshold).filter(|most| *most < u64::MAX)
            }
            ControlAlgorithm::Bbr(_) | ControlAlgorithm::Constant => None,
        }
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        match &mut self.algorithm {
            ControlAlgorithm::LossBased(controller) => controller.set_mtu(mtu),
            ControlAlgorithm::Bbr(controller) => controller.set_mtu(mtu),
            ControlAlgorithm::Constant => {}
        }
    }

    /// Counts the bytes in flight for the limit of all connections.
    pub(crate) fn set_in_flight(&mut self, bytes: u64) {
        if let Some(memory) = &mut self.memory {
            memory.set(bytes);
        }
    }

    /// A packet was sent; `idle` is the time before it without any in flight.
    pub(crate) fn on_sent(&mut self, now: Instant, number: u64, idle: Duration) {
        match &mut self.algorithm {
            ControlAlgorithm::LossBased(controller) => {
                if !idle.is_zero() {
                    controller.after_idle(idle);
                }
                if let Some(hystart) = &mut controller.hystart {
                    hystart.on_sent(number);
                }
            }
            ControlAlgorithm::Bbr(controller) => controller.on_sent(now, number),
            ControlAlgorithm::Constant => {}
        }
    }

    /// A packet was acknowledged. `is_limited` is set if there was too little to send to use the window.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        is_limited: bool,
        rtt: Duration,
    ) {
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.note_acknowledged(bytes);
        }
        // A window at its limit does not grow on, or it would take long to shrink after a loss.
        let is_limited = is_limited || self.raw_window() >= self.settings.window_max;
        match &mut self.algorithm {
            ControlAlgorithm::LossBased(controller) => controller.on_ack(now, sent, bytes, is_limited, rtt),
            ControlAlgorithm::Bbr(controller) => controller.on_ack(bytes, is_limited),
            ControlAlgorithm::Constant => {}
        }
    }

    /// Ends an acknowledgement of packets up to `largest`, which was sent `sample` before.
    pub(crate) fn end_ack(&mut self, now: Instant, largest: u64, sample: Duration, in_flight: u64) {
        self.lost = 0;
        match &mut self.algorithm {
            ControlAlgorithm::LossBased(controller) => controller.end_ack(largest, sample),
            ControlAlgorithm::Bbr(controller) => controller.end_ack(now, largest, sample, in_flight),
            ControlAlgorithm::Constant => {}
        }
    }

    /// Packets were lost.
    pub(crate) fn on_losses(&mut self, now: Instant, losses: Losses) {
        let Losses { sent, packets, bytes, is_persistent } = losses;
        let window = self.window();
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.note_lost(now, sent, window, bytes, is_persistent);
        }
        self.lost = self.lost.saturating_add(packets);
        let tolerated = match self.settings.algorithm {
            CongestionAlgorithm::Cubic => self.settings.cubic_min_losses,
            _ => 1,
        };
        if self.lost >= tolerated || is_persistent {
            self.on_congestion(now, sent, is_persistent);
        }
    }

    /// The network reports congestion: by losses, or by a mark on a packet sent at `sent`.
    pub(crate) fn on_congestion(&mut self, now: Instant, sent: Instant, is_persistent: bool) {
        let before = self.raw_window();
        match &mut self.algorithm {
            ControlAlgorithm::LossBased(controller) => controller.on_congestion(now, sent, is_persistent),
            ControlAlgorithm::Bbr(controller) if is_persistent => controller.on_persistent_congestion(),
            ControlAlgorithm::Bbr(_) | ControlAlgorithm::Constant => {}
        }
        self.events += u64::from(self.raw_window() < before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1200;

    fn controller(settings: Congestion) -> (Controller, Instant) {
        (Controller::new(Congestion { window_max: 1 << 20, ..settings }, MTU), Instant::now())
    }

    fn lost(sent: Instant, packets: u32) -> Losses {
        let bytes = u64::from(packets) * u64::from(MTU);
        Losses { sent, packets, bytes, is_persistent: false }
    }

    #[test]
    fn few_losses_between_acknowledgements_do_not_reduce_the_window() {
        let (mut controller, start) = controller(Congestion { cubic_min_losses: 3, ..Congestion::default() });
        let window = controller.window();
        let at = |ms| start + Duration::from_millis(ms);
        for turn in 1..5 {
            controller.on_losses(at(turn * 10 + 1), lost(at(turn * 10), 2));
            assert_eq!(controller.window(), window, "two packets");
            controller.end_ack(at(turn * 10 + 2), turn, Duration::from_millis(1), 0);
        }
        controller.on_losses(at(101), lost(at(100), 2));
        controller.on_losses(at(102), lost(at(100), 1));
        assert!(controller.window() < window, "three packets");
    }

    #[test]
    fn marks_of_routers_and_persistent_congestion_always_count() {
        for is_persistent in [false, true] {
            let (mut controller, start) =
                controller(Congestion { cubic_min_losses: 9, ..Congestion::default() });
            let window = controller.window();
            if is_persistent {
                controller.on_losses(start, Losses { is_persistent, ..lost(start, 1) });
            } else {
                controller.on_congestion(start, start, false);
            }
            assert!(controller.window() < window, "{is_persistent}");
            assert_eq!(controller.events, 1);
        }
    }

    #[test]
    fn the_window_of_nocc_is_constant() {
        let (mut controller, start) =
            controller(Congestion { algorithm: CongestionAlgorithm::None, ..Congestion::default() });
        assert_eq!(controller.window(), 1 << 20);
        controller.on_losses(start, lost(start, 100));
        assert_eq!(controller.window(), 1 << 20);
    }

    #[test]
    fn the_window_does_not_grow_beyond_its_limit() {
        for algorithm in [CongestionAlgorithm::Cubic, CongestionAlgorithm::NewReno, CongestionAlgorithm::Bbr]
        {
            let (mut controller, start) = controller(Congestion { algorithm, ..Congestion::default() });
            let rtt = Duration::from_millis(10);
            for round in 1..200 {
                let now = start + rtt * round;
                controller.on_sent(now, round.into(), Duration::ZERO);
                controller.on_ack(now, now - rtt, 1 << 19, false, rtt);
                controller.end_ack(now, round.into(), rtt, 0);
            }
            assert!(controller.window() <= 1 << 20);
            assert!(controller.raw_window() < 1 << 23, "{algorithm:?}: {}", controller.raw_window());
        }
    }
}
