//! The destinations of a direction, and how payload is written for HTTP/1.

use std::io;
use std::task::{Context, Poll};

use http::Head;
use net::Stream;

use crate::stream;

/// The destination of a direction's bytes.
pub(crate) enum Sink<'a> {
    /// An HTTP/1 or TCP peer.
    Socket(&'a mut Stream),
    /// A stream of a multiplexed connection.
    Stream(&'a mut stream::AnyStream),
    /// Memory, limited to a total size.
    Memory(&'a mut Vec<u8>, usize),
    /// A stream that no longer exists.
    Gone,
}

/// The data or the end that follows a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Following {
    /// Unknown.
    Unknown,
    /// More of the body, or the end of the connection, follows at once.
    More,
    /// The end of the body. With `true`, the end of the connection follows at once.
    End(bool),
}

impl Sink<'_> {
    /// Writes both pieces in order. Returns how many bytes were accepted.
    ///
    /// # Errors
    /// The connection's error.
    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        staged: &[u8],
        ready: &[u8],
        following: Following,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(stream) => {
                let more = matches!(following, Following::More | Following::End(true));
                stream.poll_write_both(context, staged, ready, more)
            }
            Self::Stream(stream) => {
                stream.poll_write(context, staged, ready, matches!(following, Following::End(_)))
            }
            Self::Memory(bytes, most) => {
                let room = most.saturating_sub(bytes.len());
                let staged = &staged[..staged.len().min(room)];
                let ready = &ready[..ready.len().min(room - staged.len())];
                bytes.extend_from_slice(staged);
                bytes.extend_from_slice(ready);
                match staged.len() + ready.len() {
                    // The reader of the memory polls again.
                    0 => Poll::Pending,
                    taken => Poll::Ready(Ok(taken)),
                }
            }
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Like [`poll_write`](Self::poll_write), for payload in static memory, which streams do not copy.
    ///
    /// # Errors
    /// The connection's error.
    pub(super) fn poll_write_static(
        &mut self,
        context: &mut Context<'_>,
        staged: &[u8],
        payload: &'static [u8],
        following: Following,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Stream(stream) if staged.is_empty() && stream.gathers() => {
                stream.poll_write_static(context, payload, matches!(following, Following::End(_)))
            }
            _ => self.poll_write(context, staged, payload, following),
        }
    }

    /// Returns the stream if it can hold a buffer until the bytes in it are sent.
    #[inline]
    pub(crate) fn gathering(&mut self) -> Option<&mut stream::AnyStream> {
        match self {
            Self::Stream(stream) => stream.gathers().then_some(stream),
            Self::Socket(_) | Self::Memory(..) | Self::Gone => None,
        }
    }

    /// Flushes accepted bytes, unless the connection does so itself.
    ///
    /// # Errors
    /// The connection's error.
    #[inline]
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_flush(context),
            Self::Stream(_) | Self::Memory(..) | Self::Gone => Poll::Ready(Ok(())),
        }
    }

    /// Makes the kernel send the bytes that it holds back.
    #[inline]
    pub(crate) fn push(&mut self) {
        match self {
            Self::Socket(stream) => stream.push(),
            Self::Stream(_) | Self::Memory(..) | Self::Gone => {}
        }
    }

    /// Ends the message, with or without trailers, if the sink marks the end separately from the data.
    #[inline]
    pub(crate) fn end_message(&mut self, trailers: Option<Box<Head>>) {
        match (self, trailers) {
            (Self::Socket(_) | Self::Memory(..) | Self::Gone, _) => {}
            (Self::Stream(stream), None) => stream.end(),
            (Self::Stream(stream), Some(trailers)) => stream.send_trailers(&trailers),
        }
    }

    /// Closes the write side.
    pub(crate) fn finish(&mut self) {
        match self {
            Self::Socket(stream) => {
                stream.close();
                stream.shutdown_write();
            }
            Self::Stream(stream) => stream.end(),
            Self::Memory(..) | Self::Gone => {}
        }
    }
}

/// The coding of written payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// No coding: the length is known, or the connection's close ends the body.
    Bare,
    /// Chunked.
    Chunked,
    /// No body is written, because the receiver expects none.
    Nothing,
}

impl Coding {
    /// Returns how many bytes to reserve in front of payload, so that most portions can be encoded in place.
    pub(crate) fn room(self) -> usize {
        match self {
            // The size line of a chunk of 4 KiB to 64 KiB.
            Self::Chunked => 6,
            Self::Bare | Self::Nothing => 0,
        }
    }

    /// Encodes the (non-empty) payload after the first [`room`](Self::room) bytes of `out`, in place.
    pub(crate) fn enclose(self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => out.clear(),
            Self::Bare => {}
            Self::Chunked => {
                let room = self.room();
                out.splice(..room, http::chunk::chunk_size(out.len() - room));
                out.extend_from_slice(http::chunk::CHUNK_END);
            }
        }
    }

    /// Appends a piece of encoded payload to `out`.
    pub(crate) fn write(self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            // An empty chunk would be the last chunk.
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

    /// Appends the end of the body, with trailers if the coding has them.
    pub(crate) fn finish(self, trailers: &mut Option<Box<Head>>, out: &mut Vec<u8>) {
        if self != Self::Chunked {
            return;
        }
        match trailers.take() {
            None => out.extend_from_slice(http::chunk::LAST_CHUNK),
            Some(trailers) => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.fields() {
                    for part in [name, b": ", value, b"\r\n"] {
                        out.extend_from_slice(part);
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_encoded_in_place_matches_written_payload() {
        for coding in [Coding::Bare, Coding::Chunked, Coding::Nothing] {
            for length in [1, 15, 16, 4095, 4096, 65535, 65536, 200_000] {
                let payload = vec![b'x'; length];
                let (mut written, mut enclosed) = (Vec::new(), vec![0; coding.room()]);
                coding.write(&payload, &mut written);
                enclosed.extend_from_slice(&payload);
                coding.enclose(&mut enclosed);
                assert!(written == enclosed, "{coding:?} {length}");
            }
        }
    }
}
