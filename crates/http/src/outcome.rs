//! What a parse gives: a length, a need for more bytes, or what is wrong and where.

/// Outcome of a parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStatus {
    /// The head takes the first `len` bytes of the buffer, the empty line included; the body
    /// follows.
    Complete {
        /// Bytes consumed.
        len: usize,
    },
    /// The buffer ends before the head does: call again with the same bytes and more behind them.
    Partial,
}

/// What is wrong with a message. The status for requests is [`ErrorKind::status`]; a bad response
/// is always a 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ErrorKind {
    /// The method is not a token followed by a space.
    Method,
    /// The target is empty, has a forbidden character, or a form that does not go with the method.
    Target,
    /// `#` in the target.
    Fragment,
    /// Not `HTTP/` digit `.` digit.
    Version,
    /// A status that is not three digits, or below 100.
    StatusCode,
    /// A NUL in a value or reason.
    Nul,
    /// CR without LF.
    BareCr,
    /// LF without CR where [`ParseOptions::lone_lf`] is off.
    BareLf,
    /// A header line that begins with a space or tab: first in the head, or where
    /// [`ParseOptions::folding`] is off.
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
    /// A transfer coding before `chunked` that we cannot decode (422).
    TransferCoding,
    /// Chunks of a body that is badly coded.
    Chunk,
    /// `Host` contradicts another `Host` or the authority of the target.
    Host,
    /// `Host` has a character that no host or port has.
    HostCharacter,
    /// An HTTP/1.0 GET, HEAD or DELETE with a payload (413); see
    /// `h1-accept-payload-with-any-method`.
    Payload,
    /// The preface of HTTP/2 where only HTTP/1 is spoken (405).
    Preface,
    /// A WebSocket handshake without a valid `Sec-WebSocket-Key`, or its answer without
    /// `Sec-WebSocket-Accept`.
    WebSocket,
}

impl ErrorKind {
    /// Status of the error sent for a request (manual 1.4.1 and `errorfile`).
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

    /// A few words for logs and `show errors`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            ErrorKind::Method => "invalid method",
            ErrorKind::Target => "invalid request target",
            ErrorKind::Fragment => "fragment in the request target",
            ErrorKind::Version => "invalid HTTP version",
            ErrorKind::Preface => "the preface of HTTP/2",
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

/// A malformed message: what, and at which byte of the buffer given to the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Offset of the byte where it shows.
    pub offset: usize,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at offset {}", self.kind.text(), self.offset)
    }
}

impl std::error::Error for ParseError {}

/// Where an incomplete parse stands: lines before `line` are done, and the line there does not end
/// before `seen`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ParseProgress {
    pub(crate) line: usize,
    pub(crate) seen: usize,
    pub(crate) phase: ParsePhase,
}

/// What of a head is looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ParsePhase {
    #[default]
    Before,
    StartLine,
    Fields,
}
