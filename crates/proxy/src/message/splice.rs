//! Decides which directions use a kernel pipe. Called by `upload` and `download`.

use base::event_counter;
use base::event_counter::EventCounter;
use net::splice::Pipe;
use plan::Proxy;

use crate::client::Client;
use crate::flow::Flow;

pub(crate) static NO_PIPE: EventCounter =
    event_counter!(Count, "splice_pipe()", "no pipe available for splicing, data is copied");

/// Returns a pipe for one direction if an option of either proxy enables it and the body is large enough.
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
