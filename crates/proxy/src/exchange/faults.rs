//! Determines the cause of an abnormal end (`%[fault]`, `weir_faults_total`) from the fault or from the action of a rule.

use sample::{Cause, ConnectionError, Phase};
use state::FaultCause;

use crate::client::Client;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;

/// If the stream stopped abnormally, records and counts the cause.
pub(crate) fn note_stop(client: &Client, x: &mut Exchange, stop: Stop) {
    let cause = match stop {
        Stop::Fault(fault) => of_fault(x, fault),
        Stop::Reply | Stop::Close | Stop::Silent => match of_rule(x) {
            Some(cause) => cause,
            None => return,
        },
        Stop::Cached | Stop::Script | Stop::Upgrade(_) => return,
    };
    note(client, x, cause);
}

/// Records and counts the cause of a fault that occurred while a generated response was created or sent.
pub(crate) fn note_late(client: &Client, x: &mut Exchange, fault: Fault) {
    let cause = of_fault(x, fault);
    note(client, x, cause);
}

/// Counts a connection that ended before a stream was created.
pub(crate) fn note_connection(client: &Client, error: ConnectionError) {
    if let Some(cause) = error.fault() {
        client.frontend.state.faults.add(cause);
    }
}

/// Only the first cause is recorded. It is counted at the backend if one was chosen, otherwise at the frontend.
fn note(client: &Client, x: &mut Exchange, cause: FaultCause) {
    if x.txn.fault.is_some() {
        return;
    }
    x.txn.fault = Some(cause);
    let proxy = x.backend.as_ref().map_or(&client.frontend.state, |backend| &backend.state);
    proxy.faults.add(cause);
}

/// Returns the cause if a rule denied the message. Rules that answer a message do not count.
fn of_rule(x: &Exchange) -> Option<FaultCause> {
    let termination = &x.txn.termination;
    if termination.cause != Cause::Proxy {
        return None;
    }
    Some(match termination.phase {
        Phase::Tarpit => FaultCause::Tarpitted,
        Phase::Headers | Phase::Data => FaultCause::ResponseDenied,
        _ if x.error_status == 429 => FaultCause::RateLimited,
        _ => FaultCause::DeniedByRule,
    })
}

/// Returns the cause of a fault.
pub(crate) fn of_fault(x: &Exchange, fault: Fault) -> FaultCause {
    match fault {
        Fault::BadRequest(_) => FaultCause::BadRequest,
        Fault::BadRequestBody => FaultCause::BadRequestBody,
        Fault::RequestTimeout => FaultCause::RequestTimeout,
        Fault::RequestAborted | Fault::RequestCut => FaultCause::RequestAborted,
        Fault::ClientAborted | Fault::ClientLeft => FaultCause::ClientAborted,
        Fault::ClientReset => FaultCause::ClientReset,
        Fault::ClientCut => FaultCause::RequestCut,
        Fault::ClientTimeout => FaultCause::ClientTimeout,
        Fault::NoBackend if x.txn.unknown_backend.is_some() => FaultCause::BackendUnknown,
        Fault::NoBackend => FaultCause::NoBackend,
        Fault::NoServer => FaultCause::NoServer,
        Fault::QueueFull => FaultCause::QueueFull,
        Fault::QueueTimeout => FaultCause::QueueTimeout,
        Fault::ConnectFailed(ConnectionError::REFUSED) => FaultCause::ConnectRefused,
        Fault::ConnectFailed(ConnectionError::UNREACHABLE) => FaultCause::ConnectUnreachable,
        Fault::ConnectFailed(error) if error.is_of_tls() => FaultCause::ConnectTls,
        Fault::ConnectFailed(_) => FaultCause::ConnectFailed,
        Fault::NoConnection => FaultCause::NoConnection,
        Fault::ConnectTimeout => FaultCause::ConnectTimeout,
        Fault::Resource(_) => FaultCause::ConnectResources,
        Fault::EmptyResponse => FaultCause::EmptyResponse,
        Fault::Unprocessed => FaultCause::Unprocessed,
        Fault::ResponseCut => FaultCause::ResponseCut,
        Fault::BadResponse(_) => FaultCause::BadResponse,
        Fault::ResponseTimeout => FaultCause::ResponseTimeout,
        Fault::Truncated => FaultCause::Truncated,
        Fault::BadResponseBody => FaultCause::BadResponseBody,
        Fault::ServerTimeout => FaultCause::ServerTimeout,
        Fault::SendFailed => FaultCause::SendFailed,
        Fault::EarlyRefused => FaultCause::EarlyRefused,
        Fault::RetryStatus(_) => FaultCause::RetryStatus,
        Fault::Unavailable => FaultCause::GrpcUnavailable,
        Fault::Killed(Cause::Down) => FaultCause::KilledServerDown,
        Fault::Killed(Cause::Up) => FaultCause::KilledServerUp,
        Fault::Killed(_) => FaultCause::KilledByOperator,
        Fault::Internal => FaultCause::Internal,
    }
}
