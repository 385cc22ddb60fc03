//! Why a message is refused.

use base::rare;
use base::rare::Rare;

use crate::Code;

/// What a block that is refused means for the stream or the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The connection ends: the header tables of both sides are no longer the same.
    Connection(Code),
    /// The stream alone is reset, or answered where [`Cause::answer`] says so. The block was decoded
    /// to its end.
    Stream(Code, Cause),
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident $text:literal)*) => {
        /// What is wrong with a message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Cause {
            $($(#[$doc])* $name),*
        }

        /// How often each was seen.
        pub(crate) static CAUSES: [Rare; [$(Cause::$name),*].len()] =
            [$(rare!(Glitch, concat!("Cause::", stringify!($name)), $text)),*];

        impl Cause {
            /// A few words for logs and `show errors`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Cause::$name => $text),*
                }
            }
        }
    };
}

impl Cause {
    /// Counts one.
    pub(crate) fn note(self) {
        CAUSES[self as usize].note();
    }
}

causes! {
    /// A pseudo-field that has no meaning, or none in this message.
    PseudoUnknown "unknown pseudo-header field"
    /// A pseudo-field that came before.
    PseudoTwice "pseudo-header field repeated"
    /// A pseudo-field behind a field.
    PseudoLate "pseudo-header field after a header field"
    /// A pseudo-field is missing, or one is there that does not go with the method.
    PseudoSet "pseudo-header fields that do not make a request"
    /// The method is no token, or PRI.
    Method "invalid method"
    /// The scheme is none (RFC 3986 section 3.1).
    Scheme "invalid scheme"
    /// `:authority` is empty or has a character of no host or port; for CONNECT, has no port.
    Authority "invalid authority"
    /// The path is empty, has a control character or space, or does not begin with a slash.
    Path "invalid path"
    /// `#` in the path.
    Fragment "fragment in the path"
    /// `:protocol` is not the name of one.
    Protocol "invalid protocol"
    /// A name that is no token in lower case.
    Name "invalid header field name"
    /// A line break or NUL in a value.
    Value "invalid character in a header field value"
    /// A field that concerns a connection of HTTP/1.
    ConnectionSpecific "connection-specific header field"
    /// `TE` with something else than `trailers`.
    Te "invalid TE"
    /// A length that is no number, contradicts another, or announces what cannot come.
    ContentLength "invalid Content-Length"
    /// Several `Host` that differ, or one that is none.
    Host "invalid Host"
    /// A status that is not three digits, or below 100.
    Status "invalid status"
    /// 101, which HTTP/2 has not.
    Switching "101 in HTTP/2"
    /// The stream ends with an interim response.
    InterimEnd "stream ends with an interim response"
    /// A field that trailers may not have.
    Trailer "header field that may not stand in trailers"
    /// More fields than [`super::Rules::max_fields`].
    TooMany "too many header fields"
    /// More bytes than [`super::Rules::max_bytes`].
    TooLarge "header fields too large"
}

impl Cause {
    /// The status that a request is answered with where HAProxy answers it, and does not reset the
    /// stream: what it finds in the start line.
    #[must_use]
    pub fn answer(self) -> Option<u16> {
        matches!(self, Cause::Method | Cause::Scheme).then_some(400)
    }
}

/// The stream is reset for what was sent on it.
pub(crate) fn refuse<T>(cause: Cause) -> Result<T, Refusal> {
    Err(Refusal::Stream(Code::ProtocolError, cause))
}
