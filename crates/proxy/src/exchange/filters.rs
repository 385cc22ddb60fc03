//! Which filters stand in the way of a stream's two directions: `filter bwlim-in|bwlim-out` that rules have switched on, and
//! `filter trace`. Called where a direction is about to begin.

use std::sync::Arc;

use plan::Proxy;
use plan::filter::TraceFilter;
use runtime::timer::now_ms;
use sample::bandwidth::BandwidthLimit;

use crate::exchange::Exchange;
use crate::flow::{Gate, Throttle, Tracer};

/// Puts a gate before one direction of `x` where a filter asks for one and there is none yet. What is staged is a head.
pub(crate) fn install(x: &mut Exchange, frontend: &Proxy, upload: bool) {
    let none = |proxy: &Proxy| proxy.traces.is_empty();
    if x.txn.bandwidth.is_empty() && none(frontend) && x.backend.as_ref().is_none_or(|backend| none(backend))
    {
        return;
    }
    let flow = if upload { &x.upload } else { &x.download };
    if flow.gate.is_some() {
        return;
    }
    let now = now_ms();
    let limits = x.txn.bandwidth.iter().filter(|own| own.filter.upload == upload);
    let throttle = |own: &BandwidthLimit| Throttle::new(own.limit, own.period_ms, own.filter.min_size, now);
    let throttles: Vec<Throttle> = limits.map(throttle).collect();
    let backend =
        x.backend.as_ref().map(|backend| &***backend).filter(|backend| backend.index != frontend.index);
    let used = |trace: &&Arc<TraceFilter>| if upload { trace.on_request } else { trace.on_response };
    let side = |proxy: &Proxy, of_backend: bool| -> Vec<Tracer> {
        let tracer = |filter: &Arc<TraceFilter>| Tracer {
            filter: filter.clone(),
            proxy: proxy.state.name.clone(),
            stream: x.txn.id,
            upload,
            http: x.txn.is_http,
            of_backend,
        };
        proxy.traces.iter().filter(used).map(tracer).collect()
    };
    let mut tracers = side(frontend, false);
    tracers.extend(backend.map(|backend| side(backend, true)).unwrap_or_default());
    if throttles.is_empty() && tracers.is_empty() {
        return;
    }
    let name = x.backend.as_ref().map(|backend| backend.state.name.clone());
    let flow = if upload { &mut x.upload } else { &mut x.download };
    for tracer in &tracers {
        tracer.begin(name.as_deref(), &flow.staged);
    }
    let gate = Gate::new(throttles, tracers, flow.staged_left());
    flow.gate = Some(Box::new(gate));
}
