//! The default for a backend's full load (manual, 4.2 `fullconn`): a tenth of the connection limits of all frontends that may
//! choose the backend. Called at startup, when the limit of the process is known.

use std::sync::atomic::Ordering::Relaxed;

use crate::Plan;
use crate::proxy::{BackendTarget, Proxy};

impl Plan {
    /// Sets the full load of the backends that this plan does not share with the plan that it replaces. `max_connections` is the limit
    /// for frontends without their own.
    pub fn settle_full_loads(&self, max_connections: u32, former: Option<&Self>) {
        let mut arrivals = vec![0u64; self.proxies.len()];
        for proxy in self.listening().filter(|proxy| proxy.state.is_frontend && !proxy.disabled) {
            let limit = match proxy.state.maxconn.load(Relaxed) {
                0 => max_connections,
                limit => limit,
            };
            for target in targets(proxy) {
                arrivals[target] += u64::from(limit);
            }
        }
        for (proxy, arrivals) in self.unshared(former).map(|proxy| (proxy, arrivals[proxy.index])) {
            let full = match proxy.fullconn {
                0 => u32::try_from(arrivals.div_ceil(10)).unwrap_or(u32::MAX),
                full => full,
            };
            proxy.state.fullconn.store(full.max(1), Relaxed);
        }
    }
}

/// Returns the backends that a frontend names, each once. Names computed at run time are not known.
fn targets(frontend: &Proxy) -> Vec<usize> {
    let mut found: Vec<usize> = frontend.default_backend.into_iter().collect();
    for rule in &frontend.use_backends {
        if let BackendTarget::Fixed(target) = rule.target
            && !found.contains(&target)
        {
            found.push(target);
        }
    }
    found
}
