//! Why a stream ended before its message did, in terms that all protocols share.
//!
//! Each engine converts these to its own codes, HTTP/2 in [`h2`](super::h2). FastCGI and SPOP have no codes and drop the reason.

/// Why a stream ended before its message did.
///
/// An engine converts its own codes to these and back without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// The request was withdrawn.
    Cancelled,
    /// The request was not processed, and may be sent again.
    Refused,
    /// An internal error of either side, or the end of the connection.
    Internal,
    /// Another code of the protocol, with its number on the wire.
    Code(u64),
}
