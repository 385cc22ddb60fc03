//! Why a stream ended, as its layers saw it (`term_events`): noted when it ends, by `exchange`,
//! `conclude`, `relay` and `tunnel`.

use sample::{ConnectionError, End, Ending, Link, Phase};

use crate::client::Client;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;

/// Notes what made the stream stop.
pub(crate) fn note(client: &Client, x: &mut Exchange, stop: Stop) {
    let connected = if x.txn.server_ends.is_some() { Link::Closed } else { Link::None };
    let (end, server) = match stop {
        Stop::Fault(Fault::ConnectFailed(_)) => (End::Refused, Link::Failed),
        Stop::Fault(Fault::ConnectTimeout | Fault::Resource(_)) => (End::NoServer, Link::Failed),
        Stop::Fault(Fault::NoBackend | Fault::NoServer | Fault::QueueFull | Fault::QueueTimeout) => {
            (End::NoServer, Link::None)
        }
        // Told by who saw it.
        _ if x.txn.ending.end != End::None => (x.txn.ending.end, connected),
        Stop::Fault(fault) if x.phase == Phase::Connect => (of_fault(client, x, fault), Link::Closed),
        Stop::Fault(fault) => (of_fault(client, x, fault), connected),
        Stop::Upgrade(_) => return,
        Stop::Cached | Stop::Script => (End::Service, connected),
        Stop::Reply if x.txn.service.is_some() => (End::Service, connected),
        Stop::Reply | Stop::Close | Stop::Silent => match x.txn.termination.phase {
            Phase::Headers => (End::ResponseDenied, connected),
            _ => (End::Denied, connected),
        },
    };
    x.txn.ending = Ending { end, server, client_closed: false };
}

fn of_fault(client: &Client, x: &Exchange, fault: Fault) -> End {
    let is_reset = client.session.error.get() != ConnectionError::default();
    let by_reset = |yes: End, no: End| if is_reset { yes } else { no };
    let no_request = x.txn.is_http && x.txn.request.method().is_empty();
    match fault {
        Fault::BadRequest(_) if no_request => End::BadHead,
        Fault::BadRequest(_) => End::BadRequest,
        Fault::BadRequestBody => End::BadRequestBody,
        Fault::RequestTimeout if no_request => End::NoRequest,
        Fault::RequestTimeout => End::Denied,
        Fault::RequestAborted | Fault::RequestCut if no_request => match !client.side.is_drained() {
            true => by_reset(End::HeadReset, End::HeadCut),
            false => by_reset(End::ResetSilently, End::ClosedSilently),
        },
        Fault::RequestAborted | Fault::RequestCut | Fault::ClientCut => {
            by_reset(End::ClientCutReset, End::ClientCut)
        }
        Fault::ClientAborted if x.phase == Phase::Tarpit => by_reset(End::TarpitReset, End::TarpitLeft),
        Fault::ClientAborted if is_reset && x.download.is_blocked() => End::ClientUnwritable,
        Fault::ClientAborted => by_reset(End::ClientReset, End::ClientLeft),
        Fault::ClientLeft => End::ClientLeft,
        Fault::ClientReset => End::ClientReset,
        Fault::ClientTimeout if x.download.is_blocked() => End::ClientStalled,
        Fault::ClientTimeout => End::ClientTimeout,
        Fault::EmptyResponse | Fault::Unprocessed | Fault::SendFailed | Fault::Truncated => {
            of_server(x, fault)
        }
        Fault::ResponseCut if x.txn.server_error == ConnectionError::default() => End::ServerHeadCut,
        Fault::ResponseCut => End::ServerHeadReset,
        Fault::BadResponse(_) | Fault::BadResponseBody => End::BadResponse,
        Fault::ResponseTimeout | Fault::ServerTimeout => End::ServerTimeout,
        Fault::Internal => End::Internal,
        Fault::Killed(_) => End::Killed,
        Fault::EarlyRefused => End::NoServer,
        Fault::RetryStatus(_) | Fault::Unavailable => End::Whole,
        Fault::NoBackend
        | Fault::NoServer
        | Fault::QueueFull
        | Fault::QueueTimeout
        | Fault::ConnectFailed(_)
        | Fault::NoConnection
        | Fault::ConnectTimeout
        | Fault::Resource(_) => End::NoServer,
    }
}

fn of_server(x: &Exchange, fault: Fault) -> End {
    match x.txn.server_error == ConnectionError::default() {
        true => End::ServerCut,
        false if fault == Fault::Truncated && x.download.is_until_close() => End::ServerEndReset,
        false => End::ServerReset,
    }
}
