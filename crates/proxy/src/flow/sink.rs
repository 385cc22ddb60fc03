//! Where the bytes of a direction go, and how payload is written for HTTP/1.

use std::io;
use std::task::{Context, Poll};

use http::Head;
use net::Stream;

use crate::stream;

/// Where a direction's bytes go.
pub(crate) enum Sink<'a> {
    /// A peer that speaks HTTP/1, or TCP.
    Socket(&'a mut Stream),
    /// A stream of a connection that carries many.
    Stream(&'a mut stream::AnyStream),
    /// Memory, which takes so many bytes in all.
    Memory(&'a mut Vec<u8>, usize),
    /// Nowhere: there is no stream any more.
    Gone,
}

/// What follows the bytes that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Following {
    /// Nothing that is known of.
    Unknown,
    /// More of the body, or the end of the connection, at once.
    More,
    /// The end of the body; and with `true` that of the connection, at once.
    End(bool),
}

impl Sink<'_> {
    /// Writes what it takes of both pieces, in their order; how many bytes those were.
    ///
    /// # Errors
    /// The connection's.
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
                    // Whoever takes of it asks again.
                    0 => Poll::Pending,
                    taken => Poll::Ready(Ok(taken)),
                }
            }
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// The stream that may keep a buffer until the bytes in it have left.
    #[inline]
    pub(crate) fn gathering(&mut self) -> Option<&mut stream::AnyStream> {
        match self {
            Self::Stream(stream) => stream.gathers().then_some(stream),
            Self::Socket(_) | Self::Memory(..) | Self::Gone => None,
        }
    }

    /// Sends what was accepted and not sent yet, as far as that is not the connection's matter.
    ///
    /// # Errors
    /// The connection's.
    #[inline]
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_flush(context),
            Self::Stream(_) | Self::Memory(..) | Self::Gone => Poll::Ready(Ok(())),
        }
    }

    /// Has the kernel send what it was told to hold.
    #[inline]
    pub(crate) fn push(&mut self) {
        match self {
            Self::Socket(stream) => stream.push(),
            Self::Stream(_) | Self::Memory(..) | Self::Gone => {}
        }
    }

    /// Ends the message, with trailers or without, where its end is told by the side and not by
    /// what was written.
    #[inline]
    pub(crate) fn end_message(&mut self, trailers: Option<Box<Head>>) {
        match (self, trailers) {
            (Self::Socket(_) | Self::Memory(..) | Self::Gone, _) => {}
            (Self::Stream(stream), None) => stream.end(),
            (Self::Stream(stream), Some(trailers)) => stream.send_trailers(&trailers),
        }
    }

    /// Tells the peer that nothing more comes.
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

/// How payload is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As it is: of a known length, or until the connection closes.
    Bare,
    /// In chunks.
    Chunked,
    /// Not at all: the receiver expects none.
    Nothing,
}

impl Coding {
    /// How many bytes before payload most portions need that are made where they are sent from.
    pub(crate) fn room(self) -> usize {
        match self {
            // The size line of a chunk from 4 KiB to 64 KiB.
            Self::Chunked => 6,
            Self::Bare | Self::Nothing => 0,
        }
    }

    /// Makes what `out` has behind its first [`room`](Self::room) bytes, which is not empty, what is
    /// sent of it.
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

    /// Writes the end of the body, with trailers where it has a place for them.
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
    fn payload_that_is_made_in_its_place_is_sent_as_any_other() {
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
