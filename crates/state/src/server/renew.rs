//! A server that a plan made anew has too (reload): what the configuration says of it as before
//! stays as it is now, whoever changed it since; what it says otherwise counts from now on.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Admin, Server, ServerSeed};

impl Server {
    /// Whether a server of a plan made anew is this one: what cannot change in it is the same.
    pub fn may_become(&self, seed: &ServerSeed) -> bool {
        let own = self.configured.load();
        let same = self.id == seed.id && *self.name == *seed.name && self.backup == seed.backup;
        let limits = (self.minconn, self.maxqueue) == (seed.minconn, seed.maxqueue);
        // One that clients bring is another kind of thing.
        let kind = std::mem::discriminant(&own.address) == std::mem::discriminant(&seed.address);
        same && limits && kind && !self.removed.load(Relaxed)
    }

    /// Takes what a plan made anew says. Whoever the old plan told of it is told no more.
    pub fn renew(&self, seed: ServerSeed, now_ms: u64) {
        let old = self.configured.load_full();
        self.tracked.store(None);
        self.starter.store(None);
        self.marked.store(None);
        self.doubt.store(None);
        self.health.running.store(false, Relaxed);
        self.dynamic.store(false, Relaxed);
        self.referenced.store(false, Relaxed);
        if old.maxconn != seed.maxconn {
            self.set_maxconn(seed.maxconn);
        }
        if old.weight != seed.weight {
            self.initial_weight.store(seed.weight, Relaxed);
            self.set_weight(seed.weight);
        }
        if old.address != seed.address {
            self.set_address(seed.address.clone());
        }
        if old.checked != seed.checked {
            self.checked.store(seed.checked, Relaxed);
        }
        let disabled = Admin::CONFIGURED_MAINT | Admin::FORCED_MAINT;
        if old.disabled != seed.disabled {
            let (set, clear) = if seed.disabled { (disabled, 0) } else { (0, disabled) };
            self.change_admin(set, clear, now_ms);
        }
        self.configured.store(Arc::new(seed));
    }

    /// What the configuration says of it.
    pub fn configured(&self) -> Arc<ServerSeed> {
        self.configured.load_full()
    }
}
