//! Where the bytes of a direction go, and how payload is written for HTTP/1.

use net::Stream;

/// Where a direction's bytes go.
pub(crate) enum Sink<'a> {
    /// A peer that speaks HTTP/1, or TCP.
    H1(&'a mut Stream),
}

impl Sink<'_> {
    /// Tells the peer that nothing more comes.
    pub(crate) fn finish(&mut self) {
        let Self::H1(stream) = self;
        stream.close();
        stream.shutdown_write();
    }
}

/// How payload is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As it is: of a known length, or until the connection closes.
    Bare,
    /// In chunks, without trailers.
    Chunked,
    /// Not at all: the receiver expects none.
    Nothing,
}

impl Coding {
    /// Writes a piece of payload behind what `out` holds.
    pub(crate) fn write(self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            // An empty chunk would be the last one.
            _ if data.is_empty() => {}
            Self::Nothing => {}
            Self::Bare => out.extend_from_slice(data),
            Self::Chunked => {
                http::chunk::write_chunk_size(out, data.len());
                out.extend_from_slice(data);
                out.extend_from_slice(http::chunk::CHUNK_END);
            }
        }
    }

    /// Writes the end of the body.
    pub(crate) fn finish(self, out: &mut Vec<u8>) {
        if self == Self::Chunked {
            out.extend_from_slice(http::chunk::LAST_CHUNK);
        }
    }
}
