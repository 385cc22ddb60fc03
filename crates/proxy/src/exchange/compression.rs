//! What compression does with an exchange, and how that is counted. What is compressed is decided in
//! `message::compression`.

use compress::{Algorithm, Encoder};
use runtime::timer::now_ms;
use state::process::ProcessCounters;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::flow::{Filter, Flow, Rank};

/// What compression does with one exchange.
#[derive(Debug, Default)]
pub(crate) struct Coded {
    /// What the response is coded with if it may be: the client likes it best of what is offered.
    pub(crate) accepted: Option<Algorithm>,
    /// What the request is coded with, and where among its filters.
    pub(crate) request: Option<(Algorithm, Rank)>,
    /// A coder for that, until it is on its way.
    pub(crate) encoder: Option<Encoder>,
    /// Whether the response would have been, had the limits of the process allowed it.
    pub(crate) is_passed_by: bool,
    /// What was decided of the response between two filters of scripts: whether its head says how its
    /// body is framed, and what codes that.
    pub(crate) decided: Option<(bool, Option<(Rank, Filter)>)>,
}

/// Counts what became of the response's body.
#[inline]
pub(crate) fn count(client: &Client, x: &mut Exchange) {
    if let Some(coded) = &x.coded
        && let Some(algorithm) = coded.accepted
    {
        let is_passed_by = coded.is_passed_by;
        count_response(client, x, algorithm, is_passed_by);
    }
}

#[cold]
fn count_response(client: &Client, x: &mut Exchange, algorithm: Algorithm, is_passed_by: bool) {
    if compressed(&x.download).is_none() {
        // What was answered instead is not.
        x.txn.compressed = None;
    }
    let frontend = &client.frontend.state.frontend.mine().compression;
    let backend = x.backend.as_ref().map(|backend| &backend.state.backend.mine().compression);
    let all = || [Some(frontend), backend].into_iter().flatten();
    if is_passed_by {
        all().for_each(|counters| counters.passed_by.add(x.download.received));
        return;
    }
    let Some((taken, given)) = compressed(&x.download) else { return };
    all().for_each(|counters| counters.responses.add(1));
    if algorithm == Algorithm::Identity {
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
