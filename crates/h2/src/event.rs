//! The events returned by `receive`.

use std::ops::Range;

use crate::fault::Reason;
use crate::{Code, StreamKey};

/// An event caused by the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request, which opens a stream, or a response. The head is in [`crate::Connection::head_mut`].
    Head {
        /// The stream.
        key: StreamKey,
        /// Whether the message ends with the head.
        end: bool,
        /// An extended CONNECT (RFC 8441).
        protocol: bool,
    },
    /// Trailers, which end the message. They are in [`crate::Connection::head_mut`].
    Trailers {
        /// The stream.
        key: StreamKey,
    },
    /// Part of a body. The caller must call [`crate::Connection::consume`] for this number of bytes.
    Data {
        /// The stream.
        key: StreamKey,
        /// The location of the bytes in the input.
        range: Range<usize>,
        /// Whether the message ends with these bytes.
        end: bool,
    },
    /// The end of the message, without further bytes.
    End {
        /// The stream.
        key: StreamKey,
    },
    /// The stream is over in both directions and must be released. A response that was already complete remains valid.
    Reset {
        /// The stream.
        key: StreamKey,
        /// The error code received or sent.
        code: Code,
        /// The side that ended the stream.
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
    /// The peer neither opens nor accepts further streams. An [`Event::Reset`] follows for each stream of this side above `last`.
    Goaway {
        /// The last stream that the peer may process.
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
    /// The peer, by a GOAWAY that guarantees that the stream was not processed.
    Goaway,
    /// This side, because of an error of the peer.
    Us(Reason),
}

impl By {
    /// Whether the peer guarantees that it did not process the request, so that the request may be retried elsewhere whatever its
    /// method (RFC 9113 section 8.7).
    #[must_use]
    pub fn is_unprocessed(self, code: Code) -> bool {
        self == By::Goaway || (self == By::Peer && code == Code::RefusedStream)
    }
}
