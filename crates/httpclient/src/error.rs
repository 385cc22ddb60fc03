//! Errors of requests.

use std::fmt;

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The host name has no address, or no resolver is configured.
    Name,
    /// The connection failed.
    Connect,
    /// The TLS handshake failed, or no trust anchors are configured.
    Tls,
    /// A timeout expired.
    Timeout,
    /// The connection broke or ended before the response was complete.
    Broken,
    /// The response is not valid HTTP.
    Protocol,
    /// The head or the body of the response exceeds the caller's limit.
    TooLarge,
    /// The request cannot be encoded, for example because it contains a line break.
    Request,
}

/// The error of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// A short description of the cause; may be empty.
    pub cause: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, cause: impl fmt::Display) -> Self {
        Self { kind, cause: cause.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::Name => "the host name cannot be resolved",
            ErrorKind::Connect => "no connection",
            ErrorKind::Tls => "TLS failed",
            ErrorKind::Timeout => "timed out",
            ErrorKind::Broken => "the connection was closed before the response was complete",
            ErrorKind::Protocol => "the response is malformed",
            ErrorKind::TooLarge => "the response is too large",
            ErrorKind::Request => "the request cannot be sent",
        })?;
        if self.cause.is_empty() { Ok(()) } else { write!(f, ": {}", self.cause) }
    }
}

impl std::error::Error for Error {}
