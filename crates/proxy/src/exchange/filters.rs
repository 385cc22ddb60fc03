//! Bandwidth limits and traces on both directions of a stream: `filter bwlim-in|bwlim-out` where rules enable them, and `filter
//! trace`. Called just before a direction begins.

use std::ops::{Bound, RangeBounds};

use runtime::timer::now_ms;
use sample::bandwidth::BandwidthLimit;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::flow::{EVERYWHERE, Gate, Rank, SharedRate, Stretch, Throttle, Tracer};

/// Installs gates in one direction of `x` if filters need them and there are none yet. If no filter changes the payload, a single
/// gate is placed before the receiver. Otherwise, each stretch between filters that change the payload gets one. Bytes that are
/// already staged are a head.
#[inline(always)]
pub(crate) fn install(client: &Client, x: &mut Exchange, upload: bool) {
    if !x.txn.bandwidth.is_empty() || x.trace.is_some() {
        install_gates(client, x, upload);
    }
}

fn install_gates(client: &Client, x: &mut Exchange, upload: bool) {
    let flow = if upload { &x.upload } else { &x.download };
    if flow.is_gated() || flow.is_finished() {
        return;
    }
    let stretches = match &flow.filters {
        Some(filters) if filters.changes_payload() => filters.stretches(),
        _ => {
            let free = flow.staged_left();
            let gate = gate(client, x, upload, EVERYWHERE, free);
            let flow = if upload { &mut x.upload } else { &mut x.download };
            flow.gate = gate.map(Box::new);
            return;
        }
    };
    for stretch in stretches {
        let Some(gate) = gate(client, x, upload, stretch, 0) else { continue };
        let flow = if upload { &mut x.upload } else { &mut x.download };
        if let Some(filters) = &mut flow.filters {
            filters.hold(behind(stretch.0), gate);
        }
    }
}

/// Returns the gate with the limits and traces for a stretch of a direction, if there are any. The next `free` bytes are a head,
/// which is not limited.
fn gate(client: &Client, x: &Exchange, upload: bool, stretch: Stretch, free: usize) -> Option<Gate> {
    let now = now_ms();
    let limits = x.txn.bandwidth.iter().filter(|own| own.filter.upload == upload);
    let limits = limits.filter(|own| rank(client, own).is_some_and(|rank| stretch.contains(&rank)));
    let throttle = |own: &BandwidthLimit| {
        let shared = own.entry.clone().map(|entry| SharedRate::new(entry, own.filter.rate()));
        Throttle::new(own.limit, own.period_ms, own.filter.min_size, now).share(shared)
    };
    let throttles: Vec<Throttle> = limits.map(throttle).collect();
    let flow = if upload { &x.upload } else { &x.download };
    let traced = x.trace.as_ref().filter(|trace| trace.has_any(upload, &stretch));
    let tracer = traced.map(|trace| Tracer::begin(trace.clone(), upload, stretch, &flow.staged));
    if throttles.is_empty() && tracer.is_none() {
        return None;
    }
    Some(Gate::new(throttles, tracer, free))
}

/// Returns the rank of a limit, or `None` if `filter-sequence` omits it.
fn rank(client: &Client, own: &BandwidthLimit) -> Option<Rank> {
    let of_backend = own.filter.proxy != client.frontend.index;
    Some(Rank { of_backend, place: own.filter.place? })
}

/// Returns the rank of the first filter in a stretch that begins at `from`.
fn behind(from: Bound<Rank>) -> Rank {
    match from {
        Bound::Unbounded => Rank { of_backend: false, place: 0 },
        Bound::Included(rank) => rank,
        Bound::Excluded(rank) => Rank { place: rank.place.saturating_add(1), ..rank },
    }
}
