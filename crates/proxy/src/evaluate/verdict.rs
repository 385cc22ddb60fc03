//! Applies the final verdict of a rule to a request, a response or a stream: generates the response, and sets the counters and
//! the termination state.

use std::sync::Arc;

use plan::Proxy;
use rules::{Final, Service};
use runtime::timer;
use sample::track::CountedEvent;
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::answers::page;
use crate::answers::service;
use crate::client::Client;
use crate::exchange::lua::scripting;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;

/// The message to which a rule set applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageSide {
    Request,
    Response,
}

/// Ends a TCP stream because of a rule about its client's data.
pub(super) fn close_stream(client: &Client, x: &mut Exchange, verdict: Final) -> Stop {
    if let Final::Service(Service::Script(call)) = verdict {
        scripting::of(x).service = Some(scripting::ScriptService::new(call));
        return Stop::Script;
    }
    // Content rules count at the listener, even if they belong to the backend.
    client.count(|traffic| traffic.denied_requests.add(1));
    x.txn.termination.set(Cause::Proxy, Phase::Request);
    if let Final::SilentDrop { rst_ttl } = verdict {
        client.side.vanish(rst_ttl);
    }
    Stop::Close
}

/// Ends a TCP stream because of a rule about its server's data. A plain close is not counted as denied.
pub(super) fn close_answer(client: &Client, x: &mut Exchange, backend: &Proxy, verdict: &Final) -> Stop {
    if matches!(verdict, Final::CloseServer) {
        // If the server sent nothing until the deadline, its timeout ended the stream.
        return if x.response_body.is_silent { Fault::ServerTimeout.into() } else { Stop::Close };
    }
    count_denied_response(client, x, backend);
    x.txn.termination.set(Cause::Proxy, Phase::Data);
    Stop::Close
}

/// Applies a final verdict to the request.
pub(super) async fn conclude(
    client: &mut Client,
    x: &mut Exchange,
    proxy: &Proxy,
    verdict: Final,
    side: MessageSide,
) -> Stop {
    match verdict {
        Final::Deny(reply) if side == MessageSide::Response => {
            count_denied_response(client, x, proxy);
            x.txn.termination.set(Cause::Proxy, Phase::Headers);
            answer(client, x, &reply)
        }
        Final::Reply(reply) if side == MessageSide::Response => {
            x.txn.termination.set(Cause::Local, Phase::Headers);
            answer(client, x, &reply)
        }
        Final::Reject | Final::CloseServer if side == MessageSide::Response => {
            x.txn.times.response = 0;
            x.txn.status = 0;
            if matches!(verdict, Final::Reject) {
                count_denied_response(client, x, proxy);
                x.txn.termination.set(Cause::Proxy, Phase::Data);
                return Stop::Close;
            }
            let server = x.txn.server.as_ref().map(|server| server.counters.mine());
            for counters in [Some(proxy.state.backend.mine()), server].into_iter().flatten() {
                counters.response_errors.add(1);
            }
            Stop::Fault(Fault::EmptyResponse)
        }
        Final::Deny(reply) => {
            x.note(client, CountedEvent::Error);
            count_denied_request(client, x);
            x.txn.termination.set(Cause::Proxy, Phase::Request);
            answer(client, x, &reply)
        }
        Final::Tarpit(reply) => {
            x.note(client, CountedEvent::Error);
            count_denied_request(client, x);
            let timeouts = &proxy.timeouts;
            let pause = x.timeout(TimeoutSlot::Tarpit, timeouts.tarpit.or(timeouts.connect));
            let waited = client.pause(pause.unwrap_or_default(), true).await;
            // Logged as in HAProxy, which reports a queue time for a request that does not exist.
            (x.txn.times.request, x.txn.times.queued) = (0, timer::now_us());
            if let Err(fault) = waited {
                x.phase = Phase::Tarpit;
                return Stop::Fault(fault);
            }
            x.txn.termination.set(Cause::Proxy, Phase::Tarpit);
            answer(client, x, &reply)
        }
        Final::Reply(reply) => {
            if matches!(reply.content, rules::Content::Challenge(_)) {
                x.note(client, CountedEvent::Error);
            }
            x.txn.termination.set(Cause::Local, Phase::Request);
            answer(client, x, &reply)
        }
        Final::Reject => {
            if !client.frontend.options.http_buffer_request {
                x.txn.times.request = 0;
            }
            count_denied_request(client, x);
            x.txn.termination.set(Cause::Proxy, Phase::Request);
            Stop::Close
        }
        Final::SilentDrop { rst_ttl } => {
            x.txn.times.request = 0;
            count_denied_request(client, x);
            x.txn.termination.set(Cause::Proxy, Phase::Request);
            client.side.vanish(rst_ttl);
            Stop::Close
        }
        Final::Service(Service::Script(call)) => {
            scripting::of(x).service = Some(scripting::ScriptService::new(call));
            Stop::Script
        }
        Final::Service(Service::PrometheusExporter) => service::metrics(client, x).await,
        Final::Internal | Final::SwitchMode(_) | Final::CloseServer | Final::SendRetry => {
            Stop::Fault(Fault::Internal)
        }
    }
}

pub(super) fn count_denied_request(client: &Client, x: &Exchange) {
    client.count(|traffic| traffic.denied_requests.add(1));
    if let Some(backend) = &x.backend {
        backend.state.backend.mine().traffic.denied_requests.add(1);
    }
}

pub(crate) fn count_denied_response(client: &Client, x: &Exchange, proxy: &Proxy) {
    client.count(|traffic| traffic.denied_responses.add(1));
    let backend = x.backend.as_ref().map_or(&proxy.state, |backend| &backend.state);
    backend.backend.mine().traffic.denied_responses.add(1);
    if let Some(server) = &x.txn.server {
        server.counters.mine().traffic.denied_responses.add(1);
    }
}

/// Renders a rule's reply: its own content, or the error page for its status.
fn answer(client: &Client, x: &mut Exchange, reply: &Arc<rules::Reply>) -> Stop {
    match (reply.bare_status(), &reply.content) {
        (Some(status), _) => page::error(client, x, status),
        (_, rules::Content::Challenge(realm)) => {
            page::error(client, x, reply.status);
            rules::challenge(reply.status, realm, &mut x.txn.response);
        }
        (_, rules::Content::Message(_)) => {
            page::render(client, x, reply);
            // The file is sent verbatim, but logs and statistics show the rule's status.
            x.error_status = reply.status;
        }
        _ => page::render(client, x, reply),
    }
    Stop::Reply
}
