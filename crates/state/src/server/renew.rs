//! Keeps a server that a reloaded configuration also contains. A setting whose configuration is unchanged keeps its current value,
//! even if the value was changed at run time. Changed settings are applied.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Admin, Operational, Server, ServerAddress, ServerSeed};

/// The configured values of settings that an operator or a reload can change. The other settings of a [`ServerSeed`] never change.
#[derive(Debug)]
pub(super) struct ConfiguredValues {
    pub(super) address: Arc<ServerAddress>,
    maxconn: u32,
    weight: u32,
    disabled: bool,
    checked: bool,
}

impl ConfiguredValues {
    pub(super) fn new(seed: &ServerSeed) -> Self {
        Self {
            address: Arc::new(seed.address.clone()),
            maxconn: seed.maxconn,
            weight: seed.weight,
            disabled: seed.disabled,
            checked: seed.checked,
        }
    }
}

impl Server {
    /// Whether the server can be kept for a new plan, because none of its fixed properties has changed.
    pub fn may_become(&self, seed: &ServerSeed) -> bool {
        let own = self.configured.load();
        let same = self.id == seed.id && *self.name == *seed.name && self.backup == seed.backup;
        let limits = (self.minconn, self.maxqueue) == (seed.minconn, seed.maxqueue);
        // A server with client-provided connections is a different kind.
        let kind = std::mem::discriminant(&*own.address) == std::mem::discriminant(&seed.address);
        same && limits && kind && !self.removed.load(Relaxed)
    }

    /// Applies the settings of a new plan. The old plan's callbacks are removed.
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
        if *old.address != seed.address {
            self.set_address(seed.address.clone());
        }
        if old.checked != seed.checked {
            self.checked.store(seed.checked, Relaxed);
            // Without checks, a server that is down would stay so.
            if !seed.checked && !self.admin().in_maintenance() {
                self.set_operational(Operational::Running, now_ms);
            }
        }
        let disabled = Admin::CONFIGURED_MAINT | Admin::FORCED_MAINT;
        if old.disabled != seed.disabled {
            let (set, clear) = if seed.disabled { (disabled, 0) } else { (0, disabled) };
            self.change_admin(set, clear, now_ms);
        }
        self.configured.store(Arc::new(ConfiguredValues::new(&seed)));
    }

    /// Returns the configuration of the server.
    pub fn configured(&self) -> ServerSeed {
        let own = self.configured.load();
        ServerSeed {
            id: self.id,
            name: self.name.first().clone(),
            proxy: self.proxy.clone(),
            backup: self.backup,
            maxconn: own.maxconn,
            minconn: self.minconn,
            maxqueue: self.maxqueue,
            address: own.address.as_ref().clone(),
            weight: own.weight,
            disabled: own.disabled,
            checked: own.checked,
        }
    }
}
