//! Reasons to refuse a message.

use base::event_counter;
use base::event_counter::EventCounter;

/// A field section that is refused. `E` is [`crate::FieldSource::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal<E> {
    /// The section cannot be decoded. This ends the connection, because the compression state of both
    /// sides may differ.
    Coding(E),
    /// The message is malformed (RFC 9113 section 8.1.1, RFC 9114 section 4.1.2). The stream is reset, or the request answered if
    /// [`Cause::answer`] returns a status. The section was decoded completely.
    Message(Cause),
}

impl<E> From<Cause> for Refusal<E> {
    fn from(cause: Cause) -> Self {
        Refusal::Message(cause)
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident $text:literal)*) => {
        /// The rule that a message breaks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Cause {
            $($(#[$doc])* $name),*
        }

        /// Occurrences of each cause.
        static CAUSES: [EventCounter; [$(Cause::$name),*].len()] =
            [$(event_counter!(Glitch, concat!("Cause::", stringify!($name)), $text)),*];

        impl Cause {
            /// A short description for logs and `show errors`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Cause::$name => $text),*
                }
            }
        }
    };
}

/// Counters of this crate for `debug counters`.
pub fn rare() -> impl Iterator<Item = &'static EventCounter> {
    CAUSES.iter()
}

causes! {
    /// A pseudo-field that is undefined, or not allowed in this message.
    PseudoUnknown "unknown pseudo-header field"
    /// A pseudo-field that occurs twice.
    PseudoTwice "pseudo-header field repeated"
    /// A pseudo-field after a regular field.
    PseudoLate "pseudo-header field after a header field"
    /// A pseudo-field is missing, or not allowed with this method.
    PseudoSet "incomplete or contradictory pseudo-header fields for a request"
    /// The method is `PRI` or not a token.
    Method "invalid method"
    /// The scheme breaks RFC 3986 section 3.1.
    Scheme "invalid scheme"
    /// `:authority` is empty or contains a character that neither a host nor a port may have. For
    /// CONNECT, also a missing port. In HTTP/3, also a request without a host.
    Authority "invalid authority"
    /// The path is empty, has a control character or space, or does not begin with a slash.
    Path "invalid path"
    /// `#` in the path.
    Fragment "fragment in the path"
    /// `:protocol` is not a token, or names HTTP itself.
    Protocol "invalid protocol"
    /// A name that is not a lower-case token.
    Name "invalid header field name"
    /// A line break or NUL in a value.
    Value "invalid character in a header field value"
    /// A field about an HTTP/1 connection.
    ConnectionSpecific "connection-specific header field"
    /// `TE` with another value than `trailers`.
    Te "invalid TE"
    /// A length that is not a number, contradicts another one, or does not match the end of the stream.
    ContentLength "invalid Content-Length"
    /// An invalid `Host`, or several that differ.
    Host "invalid Host"
    /// A status below 100, or not of three digits.
    Status "invalid status"
    /// Status 101, which only exists in HTTP/1.
    Switching "101 in HTTP/2 or HTTP/3"
    /// The stream ends with an interim response.
    InterimEnd "stream ends with an interim response"
    /// A field that is not allowed in trailers.
    Trailer "header field not allowed in trailers"
    /// More fields than [`crate::Rules::max_fields`].
    TooMany "too many header fields"
    /// More bytes than [`crate::Rules::max_bytes`].
    TooLarge "header fields too large"
}

impl Cause {
    /// Counts one occurrence.
    pub fn note(self) {
        CAUSES[self as usize].note();
    }

    /// The status of the response that is sent instead of a reset, if any. HAProxy responds in the same cases: to an invalid start
    /// line.
    #[must_use]
    pub fn answer(self) -> Option<u16> {
        matches!(self, Cause::Method | Cause::Scheme).then_some(400)
    }
}
