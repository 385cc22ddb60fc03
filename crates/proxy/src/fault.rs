//! The faults of the data path. One type is mapped in one place to a status, a termination state and the conditions of `retry-on`
//! (configuration manual, 8.5 and 4.2 `retry-on`).

use http::ErrorKind;
use sample::{Cause, ConnectionError, Phase};
use state::sessions::Kill;

/// Why a request or stream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client's bytes are not a valid request.
    BadRequest(ErrorKind),
    /// The request's body is malformed.
    BadRequestBody,
    /// The head did not arrive in time (`timeout http-request`).
    RequestTimeout,
    /// The client closed the connection before its request was complete.
    RequestAborted,
    /// The client closed its side in the middle of the request head, and may still read.
    RequestCut,
    /// The client closed the connection while its request was being served.
    ClientAborted,
    /// The client closed its side while the server processed a complete request, and may still read.
    ClientLeft,
    /// The client's connection broke in this phase.
    ClientReset,
    /// The client closed its side in the middle of the request body, before the response began.
    ClientCut,
    /// For too long, the client neither sent nor accepted data.
    ClientTimeout,
    /// No backend was found for this request.
    NoBackend,
    /// No server of the backend can be used.
    NoServer,
    /// The queue was full.
    QueueFull,
    /// No server had a free slot in time (`timeout queue`).
    QueueTimeout,
    /// The connection was refused, or failed for another reason.
    ConnectFailed(ConnectionError),
    /// Clients provide the connections to the server (`rhttp@`), and none is available.
    NoConnection,
    /// Connecting timed out (`timeout connect`).
    ConnectTimeout,
    /// Descriptors, ports or memory ran out while connecting.
    Resource(ConnectionError),
    /// The server closed or reset the connection before any byte of the response, on a new or a reused connection.
    EmptyResponse,
    /// The server reports that it has not processed the request (RFC 9113, 8.7).
    Unprocessed,
    /// The server closed or reset the connection in the middle of the response head.
    ResponseCut,
    /// The server's bytes are not a valid response.
    BadResponse(ErrorKind),
    /// The response's head did not arrive in time (`timeout server`).
    ResponseTimeout,
    /// The server closed the connection in the middle of the body.
    Truncated,
    /// The server's body is malformed.
    BadResponseBody,
    /// For too long, the server neither sent nor accepted data, in the middle of the body.
    ServerTimeout,
    /// Writing the request failed.
    SendFailed,
    /// The server rejected early data without processing the request.
    EarlyRefused,
    /// A status listed in `retry-on`.
    RetryStatus(u16),
    /// A gRPC call that its server could not serve (`retry-on grpc-unavailable`).
    Unavailable,
    /// An internal error, such as a rewrite without enough room or a panic.
    Internal,
    /// An operator or the failure of the server ended the stream.
    Killed(Cause),
}

/// The `retry-on` conditions under which a fault may be retried.
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
    /// Returns the fault for a stream that was killed.
    pub(crate) fn of_kill(why: Kill) -> Self {
        Self::Killed(match why {
            Kill::Operator => Cause::Killed,
            Kill::ServerDown => Cause::Down,
            Kill::ServerUp => Cause::Up,
        })
    }

    /// Returns the status to send to the client if no response was sent yet, or `None` if the client could not read a response.
    pub(crate) fn status(self) -> Option<u16> {
        Some(match self {
            Self::BadRequest(kind) => kind.status(),
            Self::BadRequestBody | Self::RequestCut | Self::ClientLeft | Self::ClientTimeout => 400,
            Self::RequestTimeout => 408,
            Self::RequestAborted | Self::ClientAborted | Self::ClientReset | Self::ClientCut => return None,
            // A killed session is closed at once.
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

    /// Returns the status to log if none is sent: the one that the client would otherwise have received.
    pub(crate) fn logged_status(self) -> Option<u16> {
        match self {
            Self::RequestAborted | Self::ClientReset | Self::ClientCut => Some(400),
            Self::Killed(_) => Some(500),
            _ => None,
        }
    }

    /// Returns the cause and the phase for logs; `phase` is the stream's phase.
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
            // Logged as in HAProxy, regardless of the stream's phase.
            Self::Killed(cause) => (cause, Phase::Connect),
        }
    }

    /// Returns the reason why the connection failed, as in `bc_err`.
    pub(crate) fn connection_error(self) -> ConnectionError {
        match self {
            Self::ConnectFailed(error) | Self::Resource(error) => error,
            _ => ConnectionError::default(),
        }
    }

    /// Returns the condition under which the request may be retried, or `None` if it must not be retried.
    pub(crate) fn retry_kind(self) -> Option<RetryKind> {
        Some(match self {
            // An unprocessed request can be treated as one that was never sent.
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

    /// Returns the error type (`error.type`) in the span of an attempt that failed with this fault.
    pub(crate) fn error_type(self) -> &'static str {
        match self {
            Self::ConnectFailed(_) => "connection_failed",
            Self::NoConnection => "no_connection",
            Self::ConnectTimeout => "connect_timeout",
            Self::Resource(_) => "resource_exhausted",
            Self::EmptyResponse => "empty_response",
            Self::Unprocessed => "unprocessed",
            Self::ResponseCut | Self::Truncated => "truncated_response",
            Self::BadResponse(_) | Self::BadResponseBody => "invalid_response",
            Self::ResponseTimeout | Self::ServerTimeout => "server_timeout",
            Self::SendFailed => "send_failed",
            Self::EarlyRefused | Self::RetryStatus(_) | Self::Unavailable => "refused",
            Self::BadRequest(_)
            | Self::BadRequestBody
            | Self::RequestTimeout
            | Self::RequestAborted
            | Self::RequestCut
            | Self::ClientAborted
            | Self::ClientLeft
            | Self::ClientReset
            | Self::ClientCut => "client_aborted",
            Self::ClientTimeout => "client_timeout",
            Self::NoBackend | Self::NoServer | Self::QueueFull | Self::QueueTimeout => "no_server",
            Self::Internal => "internal_error",
            Self::Killed(_) => "killed",
        }
    }

    /// Whether the fault counts against the server.
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
