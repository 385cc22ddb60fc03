//! The peer's unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).

use super::control::ControlReader;
use super::{Connection, Role};
use crate::Code;
use crate::event::H3Event;
use crate::fault::{self, Violation};
use crate::frame::uni;
use crate::limits;
use crate::transport::{StreamChunk, Streams};
use crate::varint;

/// The use of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UniKind {
    /// Its type has not arrived.
    Untyped,
    Control,
    Encoder,
    Decoder,
}

#[derive(Debug)]
struct UniStream {
    id: u64,
    kind: UniKind,
    is_ready: bool,
    /// An incomplete type or instruction.
    partial: Vec<u8>,
}

/// All of the peer's unidirectional streams that are read.
#[derive(Debug, Default)]
pub(super) struct PeerStreams {
    streams: Vec<UniStream>,
    pub(super) control: ControlReader,
}

impl PeerStreams {
    pub(super) fn open(&mut self, id: u64) {
        if self.streams.iter().all(|stream| stream.id != id) {
            self.streams.push(UniStream { id, kind: UniKind::Untyped, is_ready: true, partial: Vec::new() });
        }
    }

    pub(super) fn wake(&mut self, id: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            stream.is_ready = true;
        }
    }

    fn has(&self, kind: UniKind) -> bool {
        self.streams.iter().any(|stream| stream.kind == kind)
    }

    pub(super) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
        for stream in &mut self.streams {
            stream.partial.shrink_to_fit();
        }
        self.control.shrink();
    }

    pub(super) fn heap(&self) -> usize {
        self.streams.capacity() * size_of::<UniStream>()
            + self.streams.iter().map(|stream| stream.partial.capacity()).sum::<usize>()
            + self.control.heap()
    }
}

impl Connection {
    /// Reads unidirectional streams up to the next event.
    pub(super) fn read_unis(&mut self, streams: &mut impl Streams) -> Result<Option<H3Event>, Violation> {
        // Bytes that arrived with an earlier event.
        if let Some(event) = self.control_frames(&[], streams)? {
            return Ok(Some(event));
        }
        while let Some(at) = self.peers.streams.iter().position(|stream| stream.is_ready) {
            let stream = &mut self.peers.streams[at];
            let (id, kind) = (stream.id, stream.kind);
            let max = if kind == UniKind::Untyped { varint::LONGEST } else { limits::READ };
            let bytes = match streams.read(id, max) {
                StreamChunk::Bytes(bytes) => bytes,
                StreamChunk::Blocked => {
                    stream.is_ready = false;
                    continue;
                }
                StreamChunk::Finished | StreamChunk::Reset(_) if kind == UniKind::Untyped => {
                    self.peers.streams.swap_remove(at);
                    self.waste(1)?;
                    continue;
                }
                StreamChunk::Finished | StreamChunk::Reset(_) => return Err(Violation::CriticalClosed),
            };
            if let Some(event) = self.uni_bytes(at, &bytes, streams)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn uni_bytes(
        &mut self,
        at: usize,
        bytes: &[u8],
        streams: &mut impl Streams,
    ) -> Result<Option<H3Event>, Violation> {
        match self.peers.streams[at].kind {
            UniKind::Untyped => self.uni_type(at, bytes, streams),
            UniKind::Control => self.control_frames(bytes, streams),
            UniKind::Encoder => self.encoder_bytes(at, bytes).map(|()| None),
            UniKind::Decoder => self.decoder_bytes(at, bytes).map(|()| None),
        }
    }

    /// Reads the type of a stream, and the bytes that arrived with it.
    fn uni_type(
        &mut self,
        at: usize,
        bytes: &[u8],
        streams: &mut impl Streams,
    ) -> Result<Option<H3Event>, Violation> {
        let mut partial = std::mem::take(&mut self.peers.streams[at].partial);
        partial.extend_from_slice(bytes);
        let mut rest = &partial[..];
        let Some(number) = varint::take(&mut rest) else {
            self.peers.streams[at].partial = partial;
            let untyped = self.peers.streams.iter().filter(|stream| stream.kind == UniKind::Untyped);
            return if untyped.count() > limits::UNTYPED { Err(Violation::Flood) } else { Ok(None) };
        };
        let (kind, violation) = match number {
            uni::CONTROL => (UniKind::Control, Violation::ControlTwice),
            uni::QPACK_ENCODER => (UniKind::Encoder, Violation::EncoderTwice),
            uni::QPACK_DECODER => (UniKind::Decoder, Violation::DecoderTwice),
            uni::PUSH if self.role == Role::Server => return Err(Violation::PushByClient),
            uni::PUSH => return Err(Violation::Push),
            _ => return self.refuse_uni(at, streams).map(|()| None),
        };
        if self.peers.has(kind) {
            return Err(violation);
        }
        self.peers.streams[at].kind = kind;
        self.uni_bytes(at, rest, streams)
    }

    /// Stops a stream of an unknown type, which is allowed (RFC 9114 section 6.2.3).
    fn refuse_uni(&mut self, at: usize, streams: &mut impl Streams) -> Result<(), Violation> {
        let stream = self.peers.streams.swap_remove(at);
        streams.stop(stream.id, Code::StreamCreationError.number());
        self.used.unknown = self.used.unknown.saturating_add(1);
        if self.used.unknown > limits::UNKNOWN_PLAIN {
            fault::UNKNOWN.note();
            self.glitch();
        }
        if self.used.unknown > limits::UNKNOWN_MOST { Err(Violation::Flood) } else { self.waste(1) }
    }

    /// Applies instructions of the peer's QPACK encoder.
    fn encoder_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), Violation> {
        let decoder = &mut self.decoder;
        let apply = |input: &[u8]| decoder.instructions(input).map_err(|_| Violation::EncoderStream);
        take_instructions(&mut self.peers.streams[at].partial, bytes, apply)?;
        let answers = self.own.decoder.output.len();
        self.decoder.acknowledge_insertions(&mut self.own.decoder.output);
        if self.own.decoder.output.len() > answers {
            self.own.wake();
            self.unblock();
        }
        Ok(())
    }

    /// Applies instructions of the peer's QPACK decoder.
    fn decoder_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), Violation> {
        let encoder = &mut self.encoder;
        let apply = |input: &[u8]| encoder.instructions(input).map_err(|_| Violation::DecoderStream);
        take_instructions(&mut self.peers.streams[at].partial, bytes, apply)
    }
}

/// Passes bytes to `apply`, after those of an incomplete instruction, and keeps the unused rest.
fn take_instructions(
    partial: &mut Vec<u8>,
    bytes: &[u8],
    apply: impl FnOnce(&[u8]) -> Result<usize, Violation>,
) -> Result<(), Violation> {
    if partial.is_empty() {
        let used = apply(bytes)?;
        partial.extend_from_slice(&bytes[used..]);
    } else {
        partial.extend_from_slice(bytes);
        let used = apply(partial)?;
        partial.drain(..used);
    }
    Ok(())
}
