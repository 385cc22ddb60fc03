//! Why there is no response.

use std::fmt;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The host's name has no address, or names are not resolved.
    Name,
    /// No connection was made.
    Connect,
    /// The TLS handshake failed, or there is nobody to trust.
    Tls,
    /// A time ran out.
    Timeout,
    /// The connection broke or ended before the response did.
    Broken,
    /// What came is no HTTP/1 response.
    Protocol,
    /// The head or the body of the response is larger than the caller takes.
    TooLarge,
    /// The request cannot be written: a line break or the like in it.
    Request,
}

/// A request without a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What failed.
    pub kind: ErrorKind,
    /// Why, in a few words; may be empty.
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
            ErrorKind::Name => "the host's name cannot be resolved",
            ErrorKind::Connect => "no connection",
            ErrorKind::Tls => "TLS failed",
            ErrorKind::Timeout => "timed out",
            ErrorKind::Broken => "the connection ended before the response did",
            ErrorKind::Protocol => "the response is malformed",
            ErrorKind::TooLarge => "the response is too large",
            ErrorKind::Request => "the request cannot be sent",
        })?;
        if self.cause.is_empty() { Ok(()) } else { write!(f, ": {}", self.cause) }
    }
}

impl std::error::Error for Error {}
