//! Decides which directions go through a kernel pipe. Called by `upload` and `download`.

use base::event_counter;
use base::event_counter::EventCounter;
use net::splice::Pipe;
use plan::Proxy;

use crate::client::Client;
use crate::flow::Flow;

pub(crate) static NO_PIPE: EventCounter =
    event_counter!(Count, "splice_pipe()", "no pipe available for splicing, data is copied");

/// Returns a pipe for one direction, if the options of either proxy ask for one and the body is worth it.
#[inline]
pub(crate) fn splice_pipe(
    client: &Client,
    backend: &Proxy,
    flow: &Flow,
    wanted: impl Fn(&plan::ProxyOptions) -> bool,
) -> Option<Pipe> {
    let global = &client.worker.shared.plan.global;
    if flow.gate.is_some()
        || global.no_splice
        || !(wanted(&backend.options) || wanted(&client.frontend.options))
        || !flow.is_long()
    {
        return None;
    }
    Pipe::take(global.tune.pipesize).inspect_err(|_| NO_PIPE.note()).ok()
}
