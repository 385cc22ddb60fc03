//! The events returned by `receive`.

use std::ops::Range;

use crate::fault::Reason;
use crate::{Code, StreamKey};

/// An event caused by the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request, which opens a stream, or a response, in [`crate::Connection::head_mut`].
    Head {
        /// The stream.
        key: StreamKey,
        /// Whether the message ends with it.
        end: bool,
        /// An extended CONNECT (RFC 8441).
        protocol: bool,
    },
    /// Trailers, in [`crate::Connection::head_mut`], and the end of the message.
    Trailers {
        /// The stream.
        key: StreamKey,
    },
    /// Part of a body. The caller must call [`crate::Connection::consume`] for as many bytes.
    Data {
        /// The stream.
        key: StreamKey,
        /// The location of the bytes in the input.
        range: Range<usize>,
        /// Whether the message ends with them.
        end: bool,
    },
    /// The end of the message, without more bytes.
    End {
        /// The stream.
        key: StreamKey,
    },
    /// The stream is over in both directions and must be released. A response that was complete before remains valid.
    Reset {
        /// The stream.
        key: StreamKey,
        /// The error code received or sent.
        code: Code,
        /// The side that ended it.
        by: By,
    },
    /// A stream opened by the peer was refused; there is nothing to release.
    Refused {
        /// The stream's number.
        id: u32,
        /// The error code sent.
        code: Code,
        /// The reason.
        reason: Reason,
    },
    /// The peer neither opens nor accepts further streams. Each of our streams above `last` is reported by a following
    /// [`Event::Reset`].
    Goaway {
        /// The last stream that it may process.
        last: u32,
        /// The reason.
        code: Code,
    },
    /// The peer's SETTINGS were applied: limits may have changed.
    Settings,
    /// The response to [`crate::Connection::ping`].
    Pong,
}

/// The side that ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The peer, with RST_STREAM.
    Peer,
    /// The peer's GOAWAY, which guarantees that the stream was not processed.
    Goaway,
    /// This side, because of an error of the peer.
    Us(Reason),
}

impl By {
    /// Whether the peer guarantees that it did not process the request, so that any method may be retried elsewhere (RFC 9113
    /// section 8.7).
    #[must_use]
    pub fn is_unprocessed(self, code: Code) -> bool {
        self == By::Goaway || (self == By::Peer && code == Code::RefusedStream)
    }
}
