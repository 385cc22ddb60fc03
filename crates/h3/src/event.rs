//! The events returned by `next`.

use bytes::Bytes;

use crate::fault::FaultReason;
use crate::{Code, RequestKey};

/// An event caused by the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum H3Event {
    /// A request, which opens a stream, or a response, in [`crate::Connection::head_mut`].
    Head {
        /// The stream.
        key: RequestKey,
        /// Whether the message ends with it.
        end: bool,
        /// An extended CONNECT (RFC 9220).
        protocol: bool,
    },
    /// Trailers, in [`crate::Connection::head_mut`], and the end of the message.
    Trailers {
        /// The stream.
        key: RequestKey,
    },
    /// Part of a body. The caller must call [`crate::Connection::consume`] for as many bytes.
    Data {
        /// The stream.
        key: RequestKey,
        /// The transport's bytes.
        bytes: Bytes,
        /// Whether the message ends with them.
        end: bool,
    },
    /// The end of the message, without more bytes.
    End {
        /// The stream.
        key: RequestKey,
    },
    /// The stream is over in both directions and must be released. A response that was complete before remains valid.
    Reset {
        /// The stream.
        key: RequestKey,
        /// The error code received or sent.
        code: Code,
        /// The side that ended it.
        by: ResetBy,
    },
    /// A stream opened by the peer was refused; there is nothing to release.
    Refused {
        /// The stream's ID.
        id: u64,
        /// The error code sent.
        code: Code,
        /// The reason.
        reason: FaultReason,
    },
    /// The peer neither opens nor accepts further streams. Each of our requests from `id` on is reported by a following
    /// [`H3Event::Reset`].
    Goaway {
        /// The first request that it does not process, or the first push that it does not accept.
        id: u64,
    },
    /// The peer's SETTINGS were applied.
    Settings,
}

/// The side that ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetBy {
    /// The peer, with RESET_STREAM or STOP_SENDING.
    Peer,
    /// The peer's GOAWAY, which guarantees that the stream was not processed.
    Goaway,
    /// This side, because of an error of the peer.
    Us(FaultReason),
}

impl ResetBy {
    /// Whether the peer guarantees that it did not process the request, so that any method may be retried elsewhere (RFC 9114
    /// section 4.1.1).
    #[must_use]
    pub fn is_unprocessed(self, code: Code) -> bool {
        self == ResetBy::Goaway || (self == ResetBy::Peer && code == Code::RequestRejected)
    }
}
