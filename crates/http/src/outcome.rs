//! The result of a parse: a length, a need for more bytes, or an error with its position.

/// Outcome of a parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStatus {
    /// The head takes the first `len` bytes of the buffer, including the empty line; the body follows.
    Complete {
        /// Bytes consumed.
        len: usize,
    },
    /// The buffer ends before the head. Call the parser again with the same bytes followed by more.
    Partial,
}

/// The kind of error in a message. For requests, [`ErrorKind::status`] is the status of the response; an invalid response always
/// causes a 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ErrorKind {
    /// The method is not a token followed by a space.
    Method,
    /// The target is empty, contains a forbidden character, or has a form that does not fit the method.
    Target,
    /// `#` in the target.
    Fragment,
    /// Not of the form `HTTP/` digit `.` digit.
    Version,
    /// A status that is not three digits, or below 100.
    StatusCode,
    /// A NUL in a value or reason.
    Nul,
    /// CR without LF.
    BareCr,
    /// LF without CR although [`ParseOptions::lone_lf`] is off.
    BareLf,
    /// A header line that begins with a space or tab, and is the first one or [`ParseOptions::folding`] is off.
    Folding,
    /// A header name that is empty, has a character outside `token`, or a space before the colon.
    Name,
    /// More lines than `tune.http.maxhdr`.
    TooManyFields,
    /// The request line does not fit (414).
    TargetTooLong,
    /// The head does not fit (431).
    HeadTooLarge,
    /// A `Content-Length` that is empty, not a number, too large or contradictory.
    ContentLength,
    /// A `Transfer-Encoding` with an empty value, `chunked` twice, or not ending in `chunked`.
    TransferEncoding,
    /// A transfer coding before `chunked` that cannot be decoded (422).
    TransferCoding,
    /// An invalid chunk.
    Chunk,
    /// `Host` contradicts another `Host` or the authority of the target.
    Host,
    /// `Host` contains a character that cannot occur in a host or port.
    HostCharacter,
    /// An HTTP/1.0 GET, HEAD or DELETE with a payload (413); see
    /// `h1-accept-payload-with-any-method`.
    Payload,
    /// The HTTP/2 preface on an HTTP/1 connection (405).
    Preface,
    /// A WebSocket handshake without a valid `Sec-WebSocket-Key`, or a response without `Sec-WebSocket-Accept`.
    WebSocket,
}

impl ErrorKind {
    /// The status of the error response to a request (manual 1.4.1 and `errorfile`).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            ErrorKind::Preface => 405,
            ErrorKind::Payload => 413,
            ErrorKind::TargetTooLong => 414,
            ErrorKind::TransferCoding => 422,
            ErrorKind::HeadTooLarge => 431,
            _ => 400,
        }
    }

    /// A short description for logs and `show errors`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            ErrorKind::Method => "invalid method",
            ErrorKind::Target => "invalid request target",
            ErrorKind::Fragment => "fragment in the request target",
            ErrorKind::Version => "invalid HTTP version",
            ErrorKind::Preface => "the HTTP/2 preface",
            ErrorKind::StatusCode => "invalid status code",
            ErrorKind::Nul => "NUL character",
            ErrorKind::BareCr => "CR without LF",
            ErrorKind::BareLf => "LF without CR",
            ErrorKind::Folding => "folded line",
            ErrorKind::Name => "invalid header name",
            ErrorKind::TooManyFields => "too many headers",
            ErrorKind::TargetTooLong => "request line too long",
            ErrorKind::HeadTooLarge => "headers too large",
            ErrorKind::ContentLength => "invalid Content-Length",
            ErrorKind::TransferEncoding => "invalid Transfer-Encoding",
            ErrorKind::TransferCoding => "unsupported transfer coding",
            ErrorKind::Chunk => "invalid chunk",
            ErrorKind::Host => "Host does not match",
            ErrorKind::HostCharacter => "invalid character in Host",
            ErrorKind::Payload => "payload with this method and version",
            ErrorKind::WebSocket => "invalid WebSocket handshake",
        }
    }
}

/// An error in a message, and its position in the parser's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The offset of the byte at which the error is detected.
    pub offset: usize,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at offset {}", self.kind.text(), self.offset)
    }
}

impl std::error::Error for ParseError {}

/// The state of an incomplete parse: lines before `line` are done, and the line at `line` does not end before `seen`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ParseProgress {
    pub(crate) line: usize,
    pub(crate) seen: usize,
    pub(crate) phase: ParsePhase,
}

/// The part of the head being parsed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ParsePhase {
    #[default]
    Before,
    StartLine,
    Fields,
}
