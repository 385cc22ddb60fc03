//! What can go wrong on the data path: one type, mapped in one place to a status, the termination
//! state and the conditions of `retry-on` (configuration manual, 8.5 and 4.2 `retry-on`).

use http::ErrorKind;
use sample::{Cause, ConnectionError, Phase};
use state::sessions::Kill;

/// Why a request or stream did not go the usual way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client's bytes are no request.
    BadRequest(ErrorKind),
    /// The request's body is badly coded.
    BadRequestBody,
    /// The head did not come in time (`timeout http-request`).
    RequestTimeout,
    /// The client closed before its request was complete.
    RequestAborted,
    /// The client ended its side within the head of its request; it may still read.
    RequestCut,
    /// The client closed while its request was being served.
    ClientAborted,
    /// The client closed its side while the server thought about a request that it had whole; the
    /// client may still read.
    ClientLeft,
    /// The client's connection broke then.
    ClientReset,
    /// The client closed within the body of its request, before there was a response.
    ClientCut,
    /// The client sent or took nothing for too long.
    ClientTimeout,
    /// No backend serves this request.
    NoBackend,
    /// No server of the backend can be used.
    NoServer,
    /// The queue was full.
    QueueFull,
    /// No server had room in time (`timeout queue`).
    QueueTimeout,
    /// The connection was refused, or failed otherwise.
    ConnectFailed(ConnectionError),
    /// Clients bring the server's connections (`rhttp@`), and none has one to spare.
    NoConnection,
    /// Nobody answered in time (`timeout connect`).
    ConnectTimeout,
    /// Descriptors, ports or memory ran out while connecting.
    Resource(ConnectionError),
    /// The server closed or reset before any byte of the response; whether the connection had
    /// served before.
    EmptyResponse,
    /// The server says that it has not looked at the request (RFC 9113, 8.7).
    Unprocessed,
    /// The server closed or reset within the head of its response.
    ResponseCut,
    /// The server's bytes are no response.
    BadResponse(ErrorKind),
    /// No head came in time (`timeout server`).
    ResponseTimeout,
    /// The server closed within the body.
    Truncated,
    /// The server's body is badly coded.
    BadResponseBody,
    /// The server sent or took nothing for too long, within the body.
    ServerTimeout,
    /// Writing the request failed.
    SendFailed,
    /// The server refused a request that it was sent before the end of the handshake, unseen.
    EarlyRefused,
    /// A status that `retry-on` names.
    RetryStatus(u16),
    /// A call of gRPC that its server could not serve (`retry-on grpc-unavailable`).
    Unavailable,
    /// Something inside the proxy: a rewrite without room, a panic.
    Internal,
    /// An administrator or a failing server ended it.
    Killed(Cause),
}

/// The conditions of `retry-on` that a fault may be retried under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryKind {
    Connection,
    Empty,
    Junk,
    Timeout,
    Early,
    Unavailable,
    Status(u16),
}

impl Fault {
    /// What a stream that is ended from outside ends with.
    pub(crate) fn of_kill(why: Kill) -> Self {
        Self::Killed(match why {
            Kill::Operator => Cause::Killed,
            Kill::ServerDown => Cause::Down,
            Kill::ServerUp => Cause::Up,
        })
    }

    /// The status sent to the client if nothing was sent yet; `None` when nobody reads it.
    pub(crate) fn status(self) -> Option<u16> {
        Some(match self {
            Self::BadRequest(kind) => kind.status(),
            Self::BadRequestBody | Self::RequestCut | Self::ClientLeft | Self::ClientTimeout => 400,
            Self::RequestTimeout => 408,
            Self::RequestAborted | Self::ClientAborted | Self::ClientReset | Self::ClientCut => return None,
            // Whoever ends a session from outside wants it closed at once.
            Self::Killed(_) => return None,
            Self::NoBackend
            | Self::NoServer
            | Self::QueueFull
            | Self::QueueTimeout
            | Self::ConnectFailed(_)
            | Self::NoConnection
            | Self::ConnectTimeout
            | Self::Unavailable
            | Self::Resource(_) => 503,
            Self::EmptyResponse
            | Self::Unprocessed
            | Self::ResponseCut
            | Self::BadResponse(_)
            | Self::BadResponseBody
            | Self::Truncated
            | Self::SendFailed => 502,
            Self::EarlyRefused => 425,
            Self::ResponseTimeout | Self::ServerTimeout => 504,
            Self::RetryStatus(status) => status,
            Self::Internal => 500,
        })
    }

    /// The status that is logged where nothing is sent: what the client would have been told.
    pub(crate) fn untold_status(self) -> Option<u16> {
        match self {
            Self::RequestAborted | Self::ClientReset | Self::ClientCut => Some(400),
            Self::Killed(_) => Some(500),
            _ => None,
        }
    }

    /// Who and when, as logs tell it; `phase` is where the stream was.
    pub(crate) fn termination(self, phase: Phase) -> (Cause, Phase) {
        match self {
            Self::BadRequest(_) => (Cause::Proxy, Phase::Request),
            Self::BadRequestBody => (Cause::Proxy, phase),
            Self::RequestTimeout => (Cause::ClientTimeout, Phase::Request),
            Self::RequestAborted | Self::RequestCut => (Cause::Client, Phase::Request),
            Self::ClientAborted | Self::ClientLeft | Self::ClientCut => (Cause::Client, phase),
            Self::ClientReset => (Cause::Client, Phase::Data),
            Self::ClientTimeout => (Cause::ClientTimeout, phase),
            Self::BadResponse(_) | Self::ResponseCut => (Cause::Proxy, Phase::Headers),
            Self::BadResponseBody => (Cause::Proxy, Phase::Data),
            Self::NoBackend | Self::NoServer => (Cause::Server, Phase::Connect),
            Self::QueueFull => (Cause::Server, Phase::Queue),
            Self::QueueTimeout => (Cause::ServerTimeout, Phase::Queue),
            Self::ConnectFailed(_) | Self::NoConnection => (Cause::Server, Phase::Connect),
            Self::ConnectTimeout => (Cause::ServerTimeout, Phase::Connect),
            Self::Resource(_) => (Cause::Resource, Phase::Connect),
            Self::EmptyResponse
            | Self::Unprocessed
            | Self::SendFailed
            | Self::EarlyRefused
            | Self::Unavailable
            | Self::RetryStatus(_) => (Cause::Server, Phase::Headers),
            Self::ResponseTimeout => (Cause::ServerTimeout, Phase::Headers),
            Self::Truncated => (Cause::Server, Phase::Data),
            Self::ServerTimeout => (Cause::ServerTimeout, phase),
            Self::Internal => (Cause::Internal, phase),
            Self::Killed(cause) if phase == Phase::Request => (cause, phase),
            // As HAProxy logs it, wherever the stream was.
            Self::Killed(cause) => (cause, Phase::Connect),
        }
    }

    /// Why connecting failed, as `bc_err` tells it.
    pub(crate) fn connection_error(self) -> ConnectionError {
        match self {
            Self::ConnectFailed(error) | Self::Resource(error) => error,
            _ => ConnectionError::default(),
        }
    }

    /// Under which condition the request may be tried again; `None` for never.
    pub(crate) fn retry_kind(self) -> Option<RetryKind> {
        Some(match self {
            // What the server did not look at is as good as never sent.
            Self::ConnectFailed(_) | Self::ConnectTimeout | Self::Unprocessed => RetryKind::Connection,
            Self::EmptyResponse | Self::SendFailed => RetryKind::Empty,
            Self::BadResponse(_) | Self::ResponseCut => RetryKind::Junk,
            Self::ResponseTimeout => RetryKind::Timeout,
            Self::EarlyRefused => RetryKind::Early,
            Self::Unavailable => RetryKind::Unavailable,
            Self::RetryStatus(status) => RetryKind::Status(status),
            _ => return None,
        })
    }

    /// Whether the fault tells something against the server.
    pub(crate) fn blames_server(self) -> bool {
        matches!(
            self,
            Self::ConnectFailed(_)
                | Self::ConnectTimeout
                | Self::EmptyResponse
                | Self::Unprocessed
                | Self::ResponseCut
                | Self::BadResponse(_)
                | Self::ResponseTimeout
                | Self::Truncated
                | Self::BadResponseBody
                | Self::ServerTimeout
                | Self::SendFailed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_haproxys_status_and_letters() {
        let cases = [
            (Fault::BadRequest(ErrorKind::Method), Some(400), "PR"),
            (Fault::RequestTimeout, Some(408), "cR"),
            (Fault::ClientTimeout, Some(400), "cD"),
            (Fault::RequestAborted, None, "CR"),
            (Fault::RequestCut, Some(400), "CR"),
            (Fault::NoServer, Some(503), "SC"),
            (Fault::QueueTimeout, Some(503), "sQ"),
            (Fault::ConnectFailed(ConnectionError::REFUSED), Some(503), "SC"),
            (Fault::NoConnection, Some(503), "SC"),
            (Fault::ConnectTimeout, Some(503), "sC"),
            (Fault::ClientReset, None, "CD"),
            (Fault::EmptyResponse, Some(502), "SH"),
            (Fault::Unprocessed, Some(502), "SH"),
            (Fault::ResponseCut, Some(502), "PH"),
            (Fault::BadResponse(ErrorKind::StatusCode), Some(502), "PH"),
            (Fault::ResponseTimeout, Some(504), "sH"),
            (Fault::Truncated, Some(502), "SD"),
            (Fault::EarlyRefused, Some(425), "SH"),
        ];
        for (fault, status, letters) in cases {
            let (cause, phase) = fault.termination(Phase::Data);
            assert_eq!(fault.status(), status, "{fault:?}");
            assert_eq!([cause as u8, phase as u8], letters.as_bytes(), "{fault:?}");
        }
    }
}
