//! What compression does with an exchange, and how that is counted. What is compressed is decided in
//! `message::compression`.

use compress::{Algorithm, Encoder};
use runtime::timer::now_ms;
use state::process::ProcessCounters;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::flow::Flow;

/// What compression does with one exchange.
#[derive(Debug, Default)]
pub(crate) struct Coded {
    /// What the client decodes of what is offered, best first.
    pub(crate) accepted: Option<Algorithm>,
    /// What the request is coded with.
    pub(crate) request: Option<Algorithm>,
    /// A coder for it, until it is on its way.
    pub(crate) encoder: Option<Encoder>,
    /// Whether the response would have been, had the limits of the process allowed it.
    pub(crate) is_passed_by: bool,
}

impl Coded {
    /// Makes it as new.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.accepted = None;
        self.request = None;
        self.encoder = None;
        self.is_passed_by = false;
    }
}

/// Counts what became of the response's body.
#[inline]
pub(crate) fn count(client: &Client, x: &mut Exchange) {
    if x.coded.accepted.is_some() {
        count_response(client, x);
    }
}

#[cold]
fn count_response(client: &Client, x: &mut Exchange) {
    if compressed(&x.download).is_none() {
        // What was answered instead is not.
        x.txn.compressed = None;
    }
    let frontend = &client.frontend.state.frontend.mine().compression;
    let backend = x.backend.as_ref().map(|backend| &backend.state.backend.mine().compression);
    let all = || [Some(frontend), backend].into_iter().flatten();
    if x.coded.is_passed_by {
        all().for_each(|counters| counters.passed_by.add(x.download.received));
        return;
    }
    let Some((taken, given)) = compressed(&x.download) else { return };
    all().for_each(|counters| counters.responses.add(1));
    if x.coded.accepted == Some(Algorithm::Identity) {
        all().for_each(|counters| counters.passed_by.add(taken));
        return;
    }
    for counters in all() {
        counters.taken.add(taken);
        counters.given.add(given);
    }
    let process = client.worker.shared.process.counters.mine();
    let now = now_ms();
    process.compressed_in_rate.tick_by(now, ProcessCounters::rate_units(taken));
    process.compressed_out_rate.tick_by(now, ProcessCounters::rate_units(given));
}

fn compressed(flow: &Flow) -> Option<(u64, u64)> {
    let compressor = flow.filters.as_ref()?.compressor()?;
    Some((compressor.taken, compressor.given))
}
