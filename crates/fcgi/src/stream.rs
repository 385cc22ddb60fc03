//! One request of a connection, and where those of a connection are kept.

use http::{ChunkDecoder, Method};

use crate::response::Gathered;

/// A stream for the caller. It is never mistaken for a later one in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) slot: u16,
    pub(crate) number: u32,
}

impl StreamKey {
    /// The place: small, dense, and reused after the release; for the caller's own table.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot.into()
    }

    /// The number in records, for logs.
    #[must_use]
    pub fn id(self) -> u32 {
        u32::from(self.slot) + 1
    }
}

/// How far the response is.
#[derive(Debug)]
pub(crate) enum BodyProgress {
    /// Its head is being gathered; `None` before its first byte.
    Head(Option<Box<Gathered>>),
    /// So many bytes are to come.
    Length(u64),
    /// It is in chunks.
    Chunked(Box<ChunkDecoder>),
    /// It ends with the output.
    UntilEnd,
    /// It has none, whatever comes.
    Nothing,
    /// All of it has come, and the caller knows.
    Over,
    /// It is broken, and the caller knows.
    Broken,
}

/// One request.
#[derive(Debug)]
pub(crate) struct RequestStream {
    pub(crate) number: u32,
    pub(crate) method: Method,
    pub(crate) body: BodyProgress,
    /// Bytes of the body that were told and not consumed.
    pub(crate) held: usize,
    /// Whether all of the request was written.
    pub(crate) is_sent: bool,
    /// Whether it waits for room in the output.
    pub(crate) waits: bool,
    /// Whether the application has ended it.
    pub(crate) is_ended: bool,
    /// Whether the caller has forgotten it.
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

    /// Whether what comes for it is of no use.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_released || matches!(self.body, BodyProgress::Broken)
    }
}
