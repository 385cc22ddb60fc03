//! Servers that come up, at once or slowly (manual, 5.2 `slowstart`), and who is told when they go
//! up or down.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Operational, Server};

/// What is called, from any thread, when a server's weight is to begin to rise.
pub(crate) struct Starter(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Starter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Starter")
    }
}

/// What is called, from any thread, when a server went up (`true`) or down, whoever decided it.
pub(crate) struct Marked(Box<dyn Fn(bool) + Send + Sync>);

impl std::fmt::Debug for Marked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Marked")
    }
}

impl Server {
    /// Says who is told when it goes up or down (`on-marked-up`, `on-marked-down`); the last word
    /// counts.
    pub fn on_mark(&self, tell: impl Fn(bool) + Send + Sync + 'static) {
        self.marked.store(Some(Arc::new(Marked(Box::new(tell)))));
    }

    /// It went up or down.
    pub(crate) fn mark(&self, up: bool) {
        if let Some(marked) = self.marked.load_full() {
            (marked.0)(up);
        }
    }

    /// Says who raises its weight once it has come up (`slowstart`); the last word counts.
    pub fn on_rise(&self, raise: impl Fn() + Send + Sync + 'static) {
        self.starter.store(Some(Arc::new(Starter(Box::new(raise)))));
    }

    /// Brings a server up that was down or in maintenance: with the whole of its weight, or as
    /// `slowstart` says. Says whether what checks find of it changed.
    pub fn come_up(&self, now_ms: u64) -> bool {
        let Some(starter) = self.starter.load_full() else {
            self.set_ramp(100);
            return self.set_operational(Operational::Running, now_ms);
        };
        self.rises.fetch_add(1, Relaxed);
        // The weight first: not even one request is to see the server up with all of it.
        self.set_ramp(0);
        let changed = self.set_operational(Operational::Starting, now_ms);
        (starter.0)();
        changed
    }

    /// How often its weight began to rise.
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
