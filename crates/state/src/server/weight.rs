//! The weight of a server: as configured or set, as raised by `slowstart`, and as used by balancers and statistics.

use std::sync::atomic::Ordering::Relaxed;

use super::{Operational, Server};

impl Server {
    /// Returns the weight for balancing; 0 if the server must not get new requests.
    #[inline]
    pub fn effective_weight(&self) -> u32 {
        if !self.is_up() || self.admin().draining() || self.operational() == Operational::Stopping {
            return 0;
        }
        self.shown_weight()
    }

    /// Returns the weight for statistics: scaled by `slowstart`, whether the server is usable or not. Rounded up, as in HAProxy.
    #[inline]
    pub fn shown_weight(&self) -> u32 {
        let weight = self.weight.load(Relaxed);
        if self.ramp.load(Relaxed) >= 100 { weight } else { (weight * self.sixteenths()).div_ceil(16) }
    }

    /// Returns the effective share of the weight during `slowstart`, in HAProxy's steps: 1 to 16.
    fn sixteenths(&self) -> u32 {
        ((16 * self.ramp.load(Relaxed) + 100) / 100).min(16)
    }

    /// Returns the effective share of the weight in percent, as shown in the statistics while the server takes requests.
    pub fn throttle(&self) -> Option<u32> {
        let rises = self.operational() == Operational::Starting && self.effective_weight() > 0;
        (rises && self.ramp() < 100).then(|| self.sixteenths() * 100 / 16)
    }

    /// Returns the effective weight in sixteenths, so that `slowstart` works with small weights. 0 if the server must not get new
    /// requests, otherwise at least a sixteenth of its weight.
    pub fn fine_weight(&self) -> u32 {
        if self.effective_weight() == 0 { 0 } else { self.weight.load(Relaxed) * self.sixteenths() }
    }

    /// Returns the weight as configured or set, 0 to 256, independent of the state.
    pub fn user_weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Sets the weight (0 to 256).
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight.min(256), Relaxed);
        self.touch();
    }

    /// Returns the effective share of the weight, in percent; 100 outside of `slowstart`.
    pub fn ramp(&self) -> u32 {
        self.ramp.load(Relaxed)
    }

    /// Sets the effective share of the weight, in percent (`slowstart`).
    pub fn set_ramp(&self, percent: u32) {
        if self.ramp.swap(percent.min(100), Relaxed) != percent.min(100) {
            self.touch();
            // The connection limit rises together with the weight.
            self.queue.wake_all();
        }
    }
}
