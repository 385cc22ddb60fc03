//! The weight of a server: as it was set, as `slowstart` lets it rise, and as balancers and
//! statistics see it.

use std::sync::atomic::Ordering::Relaxed;

use super::{Operational, Server};

impl Server {
    /// The weight that counts for balancing: 0 when the server must get nothing new.
    #[inline]
    pub fn effective_weight(&self) -> u32 {
        if !self.is_up() || self.admin().draining() || self.operational() == Operational::Stopping {
            return 0;
        }
        self.shown_weight()
    }

    /// The weight as statistics show it: what `slowstart` makes of it, whether the server may be
    /// used or not. Rounded up, as HAProxy does.
    #[inline]
    pub fn shown_weight(&self) -> u32 {
        let weight = self.weight.load(Relaxed);
        if self.ramp.load(Relaxed) >= 100 { weight } else { (weight * self.sixteenths()).div_ceil(16) }
    }

    /// The share of the weight that counts while `slowstart` raises it, in HAProxy's own steps: 1
    /// to 16.
    fn sixteenths(&self) -> u32 {
        ((16 * self.ramp.load(Relaxed) + 100) / 100).min(16)
    }

    /// The same in percent, as the statistics show it while it rises for new requests.
    pub fn throttle(&self) -> Option<u32> {
        let rises = self.operational() == Operational::Starting && self.effective_weight() > 0;
        (rises && self.ramp() < 100).then(|| self.sixteenths() * 100 / 16)
    }

    /// The weight that counts now in sixteenths, so that `slowstart` shows even with small weights:
    /// 0 when no new request may go to it, else at least a sixteenth of its weight.
    pub fn fine_weight(&self) -> u32 {
        if self.effective_weight() == 0 { 0 } else { self.weight.load(Relaxed) * self.sixteenths() }
    }

    /// The weight as set, 0 to 256, whatever the state.
    pub fn user_weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Sets the weight (0 to 256).
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight.min(256), Relaxed);
        self.touch();
    }

    /// The share of the weight that counts, in percent; 100 outside of `slowstart`.
    pub fn ramp(&self) -> u32 {
        self.ramp.load(Relaxed)
    }

    /// Sets the share of the weight that counts, in percent (`slowstart`).
    pub fn set_ramp(&self, percent: u32) {
        if self.ramp.swap(percent.min(100), Relaxed) != percent.min(100) {
            self.touch();
            // The limit of connections rises with it.
            self.queue.wake_all();
        }
    }
}
