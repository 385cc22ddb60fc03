//! Servers that come up, at once or slowly (manual, 5.2 `slowstart`).

use std::sync::atomic::Ordering::Relaxed;

use crate::server::{Operational, Server};

/// What is called, from any thread, when a server's weight is to begin to rise.
pub(crate) struct Starter(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Starter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Starter")
    }
}

impl Server {
    /// Says who raises its weight once it has come up (`slowstart`); the first word counts.
    pub fn on_rise(&self, raise: impl Fn() + Send + Sync + 'static) {
        let _ = self.starter.set(Starter(Box::new(raise)));
    }

    /// Brings a server up that was down or in maintenance: with the whole of its weight, or as `slowstart` says. Says whether what
    /// checks find of it changed.
    pub fn come_up(&self, now_ms: u64) -> bool {
        let Some(Starter(raise)) = self.starter.get() else {
            self.set_ramp(100);
            return self.set_operational(Operational::Running, now_ms);
        };
        self.rises.fetch_add(1, Relaxed);
        // The weight first: not even one request is to see the server up with all of it.
        self.set_ramp(0);
        let changed = self.set_operational(Operational::Starting, now_ms);
        raise();
        changed
    }

    /// How often its weight began to rise.
    pub fn came_up(&self) -> u32 {
        self.rises.load(Relaxed)
    }
}
