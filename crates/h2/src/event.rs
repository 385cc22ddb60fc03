//! What `receive` tells.

use std::ops::Range;

use crate::fault::Reason;
use crate::{Code, StreamKey};

/// What came from the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request (of a stream that this opens) or a response, in [`crate::Connection::head_mut`].
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
    /// Part of a body. The caller owes a [`crate::Connection::consume`] of as many bytes.
    Data {
        /// The stream.
        key: StreamKey,
        /// Where in the input the bytes are.
        range: Range<usize>,
        /// Whether the message ends with them.
        end: bool,
    },
    /// The end of the message, without further bytes.
    End {
        /// The stream.
        key: StreamKey,
    },
    /// The stream is over in both directions; it is to be released. A response whose end came
    /// before is still good.
    Reset {
        /// The stream.
        key: StreamKey,
        /// The code received or sent.
        code: Code,
        /// Who ended it.
        by: By,
    },
    /// A stream that the peer opened was refused at once; there is nothing to release.
    Refused {
        /// Its number.
        id: u32,
        /// The code sent.
        code: Code,
        /// Why.
        reason: Reason,
    },
    /// The peer opens, and takes, no more streams. Of ours, each above `last` is told by a
    /// [`Event::Reset`] of its own that follows.
    Goaway {
        /// The last stream that it may process.
        last: u32,
        /// Why.
        code: Code,
    },
    /// SETTINGS of the peer were taken: limits may have changed.
    Settings,
    /// The answer to [`crate::Connection::ping`].
    Pong,
}

/// Who ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// RST_STREAM of the peer.
    Peer,
    /// The peer's GOAWAY says that it did not and will not look at it.
    Goaway,
    /// This side, for what the peer did wrong.
    Us(Reason),
}

impl By {
    /// Whether the peer promises that it did nothing for the request, so that it may be sent again
    /// elsewhere, whatever its method (RFC 9113 section 8.7).
    #[must_use]
    pub fn is_unprocessed(self, code: Code) -> bool {
        self == By::Goaway || (self == By::Peer && code == Code::RefusedStream)
    }
}
