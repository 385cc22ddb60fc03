//! Which filters stand in the way of a stream's two directions: `filter bwlim-in|bwlim-out` that
//! rules have switched on, and `filter trace`. Called where a direction is about to begin.

use runtime::timer::now_ms;
use sample::bandwidth::BandwidthLimit;

use crate::exchange::Exchange;
use crate::flow::{Gate, Shared, Throttle, Tracer};

/// Puts a gate before one direction of `x` where a filter asks for one and there is none yet. What
/// is staged is a head.
pub(crate) fn install(x: &mut Exchange, upload: bool) {
    if x.txn.bandwidth.is_empty() && x.trace.is_none() {
        return;
    }
    let flow = if upload { &x.upload } else { &x.download };
    if flow.gate.is_some() || flow.is_finished() {
        return;
    }
    let now = now_ms();
    let limits = x.txn.bandwidth.iter().filter(|own| own.filter.upload == upload);
    let throttle = |own: &BandwidthLimit| {
        let shared = own.entry.clone().map(|entry| Shared::new(entry, own.filter.rate()));
        Throttle::new(own.limit, own.period_ms, own.filter.min_size, now).share(shared)
    };
    let throttles: Vec<Throttle> = limits.map(throttle).collect();
    let flow = if upload { &mut x.upload } else { &mut x.download };
    let tracer = x.trace.clone().map(|trace| Tracer::begin(trace, upload, &flow.staged));
    if throttles.is_empty() && tracer.is_none() {
        return;
    }
    let gate = Gate::new(throttles, tracer, flow.staged_left());
    flow.gate = Some(Box::new(gate));
}
