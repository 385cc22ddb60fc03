//! What counts as full load of a backend that does not say (manual, 4.2 `fullconn`): a tenth of
//! what the frontends may bring that may choose it. Called at boot, when the process's own limit is
//! known.

use std::sync::atomic::Ordering::Relaxed;

use crate::Plan;
use crate::proxy::{BackendTarget, Proxy};

impl Plan {
    /// Notes the full load of every backend; `max_connections` is what frontends without a limit of
    /// their own may bring.
    pub fn settle_full_loads(&self, max_connections: u32) {
        let mut arrivals = vec![0u64; self.proxies.len()];
        for proxy in self.proxies.iter().filter(|proxy| proxy.state.is_frontend && !proxy.disabled) {
            let limit = match proxy.state.maxconn.load(Relaxed) {
                0 => max_connections,
                limit => limit,
            };
            for target in targets(proxy) {
                arrivals[target] += u64::from(limit);
            }
        }
        for (proxy, arrivals) in self.proxies.iter().zip(arrivals) {
            let full = match proxy.fullconn {
                0 => u32::try_from(arrivals.div_ceil(10)).unwrap_or(u32::MAX),
                full => full,
            };
            proxy.state.fullconn.store(full.max(1), Relaxed);
        }
    }
}

/// The backends that a frontend names, each once; names made at run time are not known.
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
