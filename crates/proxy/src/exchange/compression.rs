//! The compression state of an exchange, with its statistics. `message::compression` decides which messages are compressed.

use compress::{Algorithm, Encoder};
use runtime::timer::now_ms;
use state::process::ProcessCounters;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::flow::{Filter, Flow, Rank};

/// The compression state of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Coded {
    /// The coding for the response if it may be compressed: among the configured ones, the one that the client prefers.
    pub(crate) accepted: Option<Algorithm>,
    /// The coding of the request, and the rank of the compression filter.
    pub(crate) request: Option<(Algorithm, Rank)>,
    /// The encoder for the request, until the request is sent.
    pub(crate) encoder: Option<Encoder>,
    /// Whether the response would have been compressed if the process limits allowed it.
    pub(crate) is_passed_by: bool,
    /// The decision about the response between two script filters: whether its head declares its framing, and the compression
    /// filter.
    pub(crate) decided: Option<(bool, Option<(Rank, Filter)>)>,
}

/// Counts the body of the response.
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
        // A generated response that replaces it is not compressed.
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
