//! How a server comes up, either immediately or slowly (manual, 5.2 `slowstart`), and the callbacks for going up or down.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Operational, Server};

/// The callback that starts to raise a server's weight. It may be called from any thread.
pub(crate) struct Starter(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Starter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Starter")
    }
}

/// The callback for a server that went up (`true`) or down, for any reason. It may be called from any thread.
pub(crate) struct Marked(Box<dyn Fn(bool) + Send + Sync>);

impl std::fmt::Debug for Marked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Marked")
    }
}

impl Server {
    /// Sets the callback for going up or down (`on-marked-up`, `on-marked-down`), replacing any earlier callback.
    pub fn on_mark(&self, notify: impl Fn(bool) + Send + Sync + 'static) {
        self.marked.store(Some(Arc::new(Marked(Box::new(notify)))));
    }

    /// Reports that the server went up or down.
    pub(crate) fn mark(&self, up: bool) {
        if let Some(marked) = self.marked.load_full() {
            (marked.0)(up);
        }
    }

    /// Sets the callback that raises the weight after the server came up (`slowstart`), replacing any earlier callback.
    pub fn on_rise(&self, raise: impl Fn() + Send + Sync + 'static) {
        self.starter.store(Some(Arc::new(Starter(Box::new(raise)))));
    }

    /// Brings up a server that was down or in maintenance: with its full weight, or with `slowstart`. Returns whether the
    /// operational state changed.
    pub fn come_up(&self, now_ms: u64) -> bool {
        let Some(starter) = self.starter.load_full() else {
            self.set_ramp(100);
            return self.set_operational(Operational::Running, now_ms);
        };
        self.rises.fetch_add(1, Relaxed);
        // The weight is set first, because no request must see the server up with its full weight.
        self.set_ramp(0);
        let changed = self.set_operational(Operational::Starting, now_ms);
        (starter.0)();
        changed
    }

    /// Returns how often the weight started to rise.
    pub fn came_up(&self) -> u32 {
        self.rises.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::server;

    #[test]
    fn slow_start_never_rounds_a_weight_down_to_nothing() {
        let server = server();
        server.set_weight(1);
        server.set_ramp(5);
        assert_eq!(server.effective_weight(), 1);
        assert_eq!(server.fine_weight(), 1);
        server.set_ramp(50);
        assert_eq!(server.fine_weight(), 9);
        server.set_weight(100);
        assert_eq!(server.throttle(), None, "only while it rises");
        server.set_operational(Operational::Starting, 1);
        for (percent, shown, throttle) in [(6, 7, 6), (37, 38, 37), (68, 69, 68)] {
            server.set_ramp(percent);
            assert_eq!((server.shown_weight(), server.throttle()), (shown, Some(throttle)));
        }
        server.set_weight(1);
        server.set_ramp(100);
        assert_eq!(server.fine_weight(), 16);
        server.set_weight(0);
        assert_eq!(server.fine_weight(), 0);
    }
}
