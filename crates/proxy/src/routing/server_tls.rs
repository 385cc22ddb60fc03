//! TLS on a connection to a server: the server name to send and the handshake.

use std::task::{Context, ready};

use net::Stream;
use plan::server::{ServerName, ServerTls};
use plan::{Proxy, ServerSettings};
use sample::{ConnectionError, Env};

use crate::client::Client;
use crate::exchange::{Exchange, trace, view};
use crate::fault::Fault;
use crate::routing::connect_wait::reach;

/// Returns the TLS server name for this request.
pub(super) fn server_name(client: &Client, x: &Exchange, settings: &ServerSettings) -> Option<Vec<u8>> {
    let tls = settings.speaks_tls()?;
    let ServerName::Expression(expression) = &tls.name else { return None };
    let mut name = Vec::new();
    view::with(client, x, |env: &Env<'_>| expression.eval_into(env, &mut name));
    (!name.is_empty()).then_some(name)
}

/// Whether this request may be sent as early data (`allow-0rtt`). This is allowed if the client itself sent it as early data, or
/// if it can be resent and `retry-on 0rtt-rejected` is set. In the second case, only safe methods are allowed (RFC 8470, 4).
pub(super) fn may_be_early(client: &Client, x: &Exchange, backend: &Proxy, tls: &ServerTls) -> bool {
    let by_us = || {
        use http::Method::{Get, Head, Options, Trace};
        backend.retry_on.zero_rtt_rejected
            && x.is_kept()
            && matches!(x.txn.request.method_id(), Get | Head | Options | Trace)
    };
    tls.early && x.txn.is_http && !x.choice.never_early && (client.side.is_early() || by_us())
}

/// Sends `preamble` and then performs the handshake, all within the remaining connect timeout. `early` data may be sent before
/// the handshake is complete. If the client is watched (`option abortonclose`), the attempt ends when the client leaves.
pub(super) async fn begin(
    client: &mut Client,
    x: &mut Exchange,
    stream: &mut Stream,
    connector: &tls::Connector,
    (name, mut preamble, early): (Option<&[u8]>, &[u8], bool),
    watch: bool,
) -> Result<(), Fault> {
    // If the name is not text, it is not a valid host name either.
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let keep = keep(client);
    let mut begun = false;
    let step = |context: &mut Context<'_>| {
        while !preamble.is_empty() {
            let written = ready!(stream.poll_write(context, preamble));
            let written =
                written.map_err(|error| Fault::ConnectFailed(ConnectionError::of_kernel(&error)))?;
            preamble = &preamble[written..];
        }
        if !std::mem::replace(&mut begun, true) {
            stream.connect_tls_early(connector, name, keep, early).map_err(failed)?;
        }
        stream.poll_early_handshake(context).map_err(failed)
    };
    let reached = reach(client, x, watch, step).await;
    let details = || stream.tls().map(|session| session.details().clone());
    trace::events::server_tls(client, x, details, reached.as_ref().err().copied());
    reached?;
    if let Some(session) = stream.tls() {
        count_handshake(client, session.details());
    }
    Ok(())
}

/// Returns the handshake data that expressions need.
pub(super) fn keep(client: &Client) -> tls::Keep {
    let variables = &client.worker.shared.plan.variables;
    tls::Keep {
        session: variables.wants_tls_session(),
        finished: variables.wants_tls_finished(),
        ..tls::Keep::default()
    }
}

/// Counts a full handshake.
pub(super) fn count_handshake(client: &Client, details: &tls::Details) {
    if !details.is_resumed {
        let counters = client.worker.shared.process.counters.mine();
        counters.server_key_rate.tick(runtime::timer::now_ms());
    }
}

/// Maps a handshake failure to a fault.
pub(super) fn failed(error: tls::Error) -> Fault {
    match error.kind {
        // The server did not cause this.
        tls::FailureKind::TooMany => Fault::Internal,
        kind => Fault::ConnectFailed(ConnectionError(kind.facts().0)),
    }
}
