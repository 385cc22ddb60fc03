//! The requests on a connection and the slots that hold them.

use http::{ChunkDecoder, Method};

use crate::response::Gathered;

/// The caller's handle of a stream. It never refers to a later stream in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) slot: u16,
    pub(crate) number: u32,
}

impl StreamKey {
    /// Returns the slot, which is small, dense, reused after the release, and can be an index of a table of the caller.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot.into()
    }

    /// Returns the request id used in records, for logs.
    #[must_use]
    pub fn id(self) -> u32 {
        u32::from(self.slot) + 1
    }
}

/// How far the response has been received.
#[derive(Debug)]
pub(crate) enum BodyProgress {
    /// The head is being collected; `None` before its first byte.
    Head(Option<Box<Gathered>>),
    /// This many bytes of the body are left.
    Length(u64),
    /// A chunked body.
    Chunked(Box<ChunkDecoder>),
    /// The body ends with the output.
    UntilEnd,
    /// The response has no body, whatever arrives.
    Nothing,
    /// The response is complete, and this has been reported.
    Over,
    /// The response is broken, and this has been reported.
    Broken,
}

/// A request.
#[derive(Debug)]
pub(crate) struct RequestStream {
    pub(crate) number: u32,
    pub(crate) method: Method,
    pub(crate) body: BodyProgress,
    /// The number of bytes of the body that were reported and not yet consumed.
    pub(crate) held: usize,
    /// Whether the request was written completely.
    pub(crate) is_sent: bool,
    /// Whether the stream waits for room in the output.
    pub(crate) waits: bool,
    /// Whether the application has ended the stream.
    pub(crate) is_ended: bool,
    /// Whether the caller has released the stream.
    pub(crate) is_released: bool,
}

impl RequestStream {
    pub(crate) fn new(number: u32, method: Method) -> RequestStream {
        RequestStream {
            number,
            method,
            body: BodyProgress::Head(None),
            held: 0,
            is_sent: false,
            waits: false,
            is_ended: false,
            is_released: false,
        }
    }

    /// Returns whether further output of the stream is ignored.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_released || matches!(self.body, BodyProgress::Broken)
    }
}
