//! Records why a stream ended, as its layers saw it (`term_events`). Called by `exchange`, `conclude`, `relay` and `tunnel` when
//! the stream ends.

use sample::{ConnectionError, ConnectionOutcome, Ending, Phase, StreamEnd};

use crate::client::Client;
use crate::exchange::{Exchange, Stop, faults};
use crate::fault::Fault;

/// Records why the stream stopped.
pub(crate) fn note(client: &Client, x: &mut Exchange, stop: Stop) {
    faults::note_stop(client, x, stop);
    let connected =
        if x.txn.server_ends.is_some() { ConnectionOutcome::Closed } else { ConnectionOutcome::None };
    let (end, server) = match stop {
        Stop::Fault(Fault::ConnectFailed(_)) => (StreamEnd::Refused, ConnectionOutcome::Failed),
        Stop::Fault(Fault::ConnectTimeout | Fault::Resource(_)) => {
            (StreamEnd::NoServer, ConnectionOutcome::Failed)
        }
        Stop::Fault(Fault::NoBackend | Fault::NoServer | Fault::QueueFull | Fault::QueueTimeout) => {
            (StreamEnd::NoServer, ConnectionOutcome::None)
        }
        // Already recorded by the layer that noticed the end.
        _ if x.txn.ending.end != StreamEnd::None => (x.txn.ending.end, connected),
        Stop::Fault(fault) if x.phase == Phase::Connect => {
            (of_fault(client, x, fault), ConnectionOutcome::Closed)
        }
        Stop::Fault(fault) => (of_fault(client, x, fault), connected),
        Stop::Upgrade(_) => return,
        Stop::Cached | Stop::Script => (StreamEnd::Service, connected),
        Stop::Reply if x.txn.service.is_some() => (StreamEnd::Service, connected),
        Stop::Reply | Stop::Close | Stop::Silent => match x.txn.termination.phase {
            Phase::Headers => (StreamEnd::ResponseDenied, connected),
            _ => (StreamEnd::Denied, connected),
        },
    };
    x.txn.ending = Ending { end, server, client_closed: false };
}

fn of_fault(client: &Client, x: &Exchange, fault: Fault) -> StreamEnd {
    let is_reset = client.session.error.get() != ConnectionError::default();
    let by_reset = |yes: StreamEnd, no: StreamEnd| if is_reset { yes } else { no };
    let no_request = x.txn.is_http && x.txn.request.method().is_empty();
    match fault {
        Fault::BadRequest(_) if no_request => StreamEnd::BadHead,
        Fault::BadRequest(_) => StreamEnd::BadRequest,
        Fault::BadRequestBody => StreamEnd::BadRequestBody,
        Fault::RequestTimeout if no_request => StreamEnd::NoRequest,
        Fault::RequestTimeout => StreamEnd::Denied,
        Fault::RequestAborted | Fault::RequestCut if no_request => match !client.side.is_drained() {
            true => by_reset(StreamEnd::HeadReset, StreamEnd::HeadCut),
            false => by_reset(StreamEnd::ResetSilently, StreamEnd::ClosedSilently),
        },
        Fault::RequestAborted | Fault::RequestCut | Fault::ClientCut => {
            by_reset(StreamEnd::ClientCutReset, StreamEnd::ClientCut)
        }
        Fault::ClientAborted if x.phase == Phase::Tarpit => {
            by_reset(StreamEnd::TarpitReset, StreamEnd::TarpitLeft)
        }
        Fault::ClientAborted if is_reset && x.download.is_blocked() => StreamEnd::ClientUnwritable,
        Fault::ClientAborted => by_reset(StreamEnd::ClientReset, StreamEnd::ClientLeft),
        Fault::ClientLeft => StreamEnd::ClientLeft,
        Fault::ClientReset => StreamEnd::ClientReset,
        Fault::ClientTimeout if x.download.is_blocked() => StreamEnd::ClientStalled,
        Fault::ClientTimeout => StreamEnd::ClientTimeout,
        Fault::EmptyResponse | Fault::Unprocessed | Fault::SendFailed | Fault::Truncated => {
            of_server(x, fault)
        }
        Fault::ResponseCut if x.txn.server_error == ConnectionError::default() => StreamEnd::ServerHeadCut,
        Fault::ResponseCut => StreamEnd::ServerHeadReset,
        Fault::BadResponse(_) | Fault::BadResponseBody => StreamEnd::BadResponse,
        Fault::ResponseTimeout | Fault::ServerTimeout => StreamEnd::ServerTimeout,
        Fault::Internal => StreamEnd::Internal,
        Fault::Killed(_) => StreamEnd::Killed,
        Fault::EarlyRefused => StreamEnd::NoServer,
        Fault::RetryStatus(_) | Fault::Unavailable => StreamEnd::Whole,
        Fault::NoBackend
        | Fault::NoServer
        | Fault::QueueFull
        | Fault::QueueTimeout
        | Fault::ConnectFailed(_)
        | Fault::NoConnection
        | Fault::ConnectTimeout
        | Fault::Resource(_) => StreamEnd::NoServer,
    }
}

fn of_server(x: &Exchange, fault: Fault) -> StreamEnd {
    match x.txn.server_error == ConnectionError::default() {
        true => StreamEnd::ServerCut,
        false if fault == Fault::Truncated && x.download.is_until_close() => StreamEnd::ServerEndReset,
        false => StreamEnd::ServerReset,
    }
}
