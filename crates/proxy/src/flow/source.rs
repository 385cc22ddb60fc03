//! The sources of a direction: an HTTP/1 socket, a stream, or a stored body.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use cache::{Feed, FileFeed, Object, Piece};
use http::{BodyLength, ChunkDecoder, ChunkEvent, Head};

use net::Stream;
use runtime::{Buffer, turns};

use super::{Repeated, Socket};
use crate::stream::{self, AnyIncoming};

/// The reader of a direction.
pub(super) enum SourceReader<'a> {
    Socket(&'a mut Stream),
    Stream(AnyIncoming<'a>),
}

impl SourceReader<'_> {
    /// Receives available bytes into `buffer`. Returns 0 at the end of the stream.
    #[inline]
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(stream) => {
                let read = stream.poll_read(context, buffer.room());
                if let Poll::Ready(Ok(n)) = read {
                    buffer.fill(n);
                }
                read
            }
            Self::Stream(incoming) => incoming.poll_read(context, buffer),
        }
    }

    /// Whether data can be read without a system call, because the connection has already received it.
    #[inline]
    pub(super) fn has_payload(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(incoming) => incoming.has_payload(),
        }
    }

    /// Whether the message ended with the last read, if the source marks its end.
    #[inline]
    pub(super) fn is_at_end(&mut self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(incoming) => incoming.is_at_end(),
        }
    }

    /// Takes the message's trailers, if the source has parsed them.
    pub(super) fn take_trailers(&mut self) -> Option<Box<Head>> {
        match self {
            Self::Socket(_) => None,
            Self::Stream(incoming) => incoming.take_trailers(),
        }
    }
}

/// How the end of an HTTP/1 body is found.
#[derive(Debug, Default)]
pub(super) enum Framing {
    /// The body has ended, or there is none.
    #[default]
    Done,
    /// This many bytes are still to be received.
    Length(u64),
    /// Chunked coding, strictly validated.
    Chunked(Box<ChunkDecoder>),
    /// The body ends when the sender closes the connection.
    UntilClose,
    /// The body has ended, but filters have not passed on the end yet.
    Held,
}

impl Framing {
    pub(super) fn new(length: BodyLength) -> Self {
        match length {
            BodyLength::None | BodyLength::Length(0) => Self::Done,
            BodyLength::Length(n) => Self::Length(n),
            BodyLength::Chunked => Self::Chunked(Box::default()),
            BodyLength::UntilClose => Self::UntilClose,
        }
    }

    /// Returns the trailers of a chunked body that has ended.
    pub(super) fn trailers(&self) -> Option<Box<Head>> {
        let Self::Chunked(decoder) = self else { return None };
        if decoder.trailers().is_empty() {
            return None;
        }
        let mut head = Box::new(Head::new());
        decoder.trailers_into(&mut head);
        Some(head).filter(|head| !head.is_empty())
    }

    /// Returns the next piece of payload in `input`, starting at `at`.
    ///
    /// # Errors
    /// The chunked coding is malformed.
    pub(super) fn decode(&mut self, input: &[u8], at: usize) -> Result<ChunkEvent, ()> {
        let left = input.len() - at;
        match self {
            Self::Done | Self::Held => Ok(ChunkEvent::Done { consumed: at }),
            Self::Chunked(decoder) => decoder.decode(input, at).map_err(drop),
            _ if left == 0 => Ok(ChunkEvent::More),
            Self::UntilClose => Ok(ChunkEvent::Data { range: at..input.len() }),
            Self::Length(expected) => {
                let taken = (left as u64).min(*expected);
                *expected -= taken;
                if *expected == 0 {
                    *self = Self::Done;
                }
                Ok(ChunkEvent::Data { range: at..at + taken as usize })
            }
        }
    }
}

/// The source of a direction's bytes.
pub(crate) enum Source<'a> {
    /// An HTTP/1 or TCP peer.
    Socket(&'a mut Socket),
    /// A stream of a multiplexed connection.
    Stream(&'a mut stream::AnyStream),
    /// A stream that no longer exists.
    Gone,
    /// A stored body.
    Stored(&'a mut MemoryBody),
}

/// A body that consists of pieces, each generated on demand.
pub(crate) type Pieces = Box<dyn Iterator<Item = Vec<u8>>>;

/// The size of a portion to send. A shorter body is sent as a whole.
pub(super) const PORTION: usize = 16 * 1024;

/// How long pieces are generated before the task yields.
const TURN: Duration = Duration::from_micros(200);

/// A body read from a cache piece by piece.
pub(crate) enum CachedBody {
    /// The body of the response to another request, delivered as it arrives.
    Coming(Feed),
    /// A body in a file.
    Filed(FileFeed),
}

impl CachedBody {
    /// Ready once the next piece is available, or the body has ended.
    pub(crate) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        match self {
            Self::Coming(feed) => feed.poll_piece(context),
            Self::Filed(feed) => feed.poll_piece(context),
        }
    }
}

/// The body of a generated response.
#[derive(Default)]
pub(crate) struct MemoryBody {
    /// The bytes available.
    pub(crate) bytes: Vec<u8>,
    /// The remaining pieces, if the body is generated in pieces.
    pub(crate) pieces: Option<Pieces>,
    /// A cached object that provides the body instead, and the part of that body that is still to be sent.
    pub(crate) object: Option<Arc<Object>>,
    rest: Range<usize>,
    /// A cached body that is not completely in memory, and how much of it remains, if known.
    pub(crate) feed: Option<Box<(CachedBody, Option<u64>)>>,
    /// The body of a test response (`mode haterm`), which is sent instead.
    pub(crate) repeated: Option<Repeated>,
    /// Whether response filters apply to the body, because it comes from a cache or a service.
    pub(crate) is_filtered: bool,
    /// Whether the producer will add more.
    is_open: bool,
    /// Whether the available bytes were taken, so that the next portion must be generated.
    is_taken: bool,
    /// Whether other tasks of the worker have run since the last portion was taken.
    yielded: bool,
}

impl MemoryBody {
    /// Clears the body.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pieces = None;
        self.object = None;
        self.feed = None;
        self.repeated = None;
        self.is_filtered = false;
        self.is_open = false;
        self.rest = 0..0;
        self.is_taken = false;
        self.yielded = false;
    }

    /// Sets the body to that of `object`.
    pub(crate) fn hold(&mut self, object: Arc<Object>) {
        self.clear();
        self.rest = 0..object.body.len();
        self.object = Some(object);
    }

    /// Sets the body to the output of `feed`. `length` is its length, if known.
    pub(crate) fn come(&mut self, feed: CachedBody, length: Option<u64>) {
        self.clear();
        self.feed = Some(Box::new((feed, length)));
        self.open();
    }

    /// Restricts an object's body to this part.
    pub(crate) fn narrow(&mut self, part: Range<usize>) {
        self.rest = part;
    }

    /// Returns the length, without pieces that are not generated yet.
    pub(crate) fn len(&self) -> u64 {
        match (&self.object, &self.repeated) {
            (Some(_), _) => self.rest.len() as u64,
            (None, Some(body)) => body.left(),
            (None, None) => self.bytes.len() as u64,
        }
    }

    /// Returns how the response is framed, unless this follows from the length.
    pub(crate) fn framing(&self) -> Option<BodyLength> {
        self.repeated.as_ref().map(Repeated::framing)
    }

    /// Returns the part of an object's body that is still to be sent.
    pub(crate) fn rest(&self) -> &[u8] {
        let body = self.object.as_ref().and_then(|object| object.body.get(self.rest.clone()));
        body.unwrap_or_default()
    }

    /// Marks the next `sent` bytes of the body as sent.
    pub(super) fn advance(&mut self, sent: usize) {
        self.rest.start += sent;
    }

    /// Whether more will be added.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Announces that [`put`](Self::put) will add more.
    pub(crate) fn open(&mut self) {
        self.is_open = true;
        self.is_taken = true;
    }

    /// Appends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.is_taken = false;
    }

    /// Marks the body as complete.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
        self.is_taken = false;
    }

    /// Whether the available bytes are the whole body.
    pub(crate) fn is_whole(&self) -> bool {
        self.pieces.is_none() && !self.is_open
    }

    /// Generates pieces until there is a portion or the body has ended. Even empty pieces take time, so this yields after a
    /// while.
    pub(crate) fn poll_gather(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let since = Instant::now();
        while let Some(pieces) = &mut self.pieces
            && self.bytes.len() < PORTION
        {
            match pieces.next() {
                Some(mut piece) => self.bytes.append(&mut piece),
                None => self.pieces = None,
            }
            if since.elapsed() >= TURN && self.pieces.is_some() {
                turns::yield_turn(context);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Whether the available bytes were taken, so that the next portion must be generated.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Generates the next portion, after yielding to other tasks once.
    pub(super) fn poll_portion(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.yielded, true) {
            turns::yield_turn(context);
            return Poll::Pending;
        }
        ready!(self.poll_gather(context));
        self.yielded = false;
        self.is_taken = false;
        Poll::Ready(())
    }

    /// Calls `take` with the available portion. Returns whether it was the last one.
    pub(super) fn take_portion(&mut self, take: impl FnOnce(&[u8])) -> bool {
        if self.object.is_some() {
            let portion = self.rest();
            let portion = &portion[..portion.len().min(PORTION)];
            let taken = portion.len();
            take(portion);
            self.advance(taken);
            return self.rest().is_empty();
        }
        if let Some(body) = &mut self.repeated {
            let piece = body.piece();
            let portion = &piece[..piece.len().min(PORTION)];
            take(portion);
            body.advance(portion.len());
            return body.left() == 0;
        }
        take(&self.bytes);
        self.bytes.clear();
        self.is_taken = true;
        self.is_whole()
    }
}

/// The received part of a body that has not been read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning<'a> {
    pub(crate) bytes: &'a [u8],
    /// For bare payload: whether the stream has ended after these bytes.
    pub(crate) is_all: Option<bool>,
}

impl Beginning<'_> {
    /// Decodes the bytes into `out`. Returns whether they are the whole body.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn decode(self, length: BodyLength, out: &mut Vec<u8>) -> Result<bool, http::ChunkError> {
        out.clear();
        self.decode_more(length, &mut Decoding::default(), out)
    }

    /// Like [`decode`](Self::decode), but decodes only the bytes received since `decoding` was last used, and appends to `out`.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn decode_more(
        self,
        length: BodyLength,
        decoding: &mut Decoding,
        out: &mut Vec<u8>,
    ) -> Result<bool, http::ChunkError> {
        match (length, self.is_all) {
            (BodyLength::Chunked | BodyLength::UntilClose, Some(is_all)) => {
                decoding.go_on(BodyLength::UntilClose, self.bytes, out)?;
                Ok(is_all)
            }
            _ => decoding.go_on(length, self.bytes, out),
        }
    }
}

/// The decoding progress of a body that stays in its buffer.
#[derive(Debug, Default)]
pub(crate) struct Decoding {
    chunks: ChunkDecoder,
    /// How many bytes of the buffer were decoded.
    at: usize,
}

impl Decoding {
    /// Continues with a longer `input`, and appends the new payload to `out`. Returns whether the body is complete.
    ///
    /// # Errors
    /// The body is malformed.
    fn go_on(
        &mut self,
        length: BodyLength,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, http::ChunkError> {
        match length {
            BodyLength::None => Ok(true),
            BodyLength::UntilClose | BodyLength::Length(_) => {
                let end = match length {
                    BodyLength::Length(n) => usize::try_from(n).unwrap_or(usize::MAX),
                    _ => usize::MAX,
                };
                let from = std::mem::replace(&mut self.at, end.min(input.len()));
                out.extend_from_slice(&input[from..self.at]);
                Ok(self.at == end)
            }
            BodyLength::Chunked => loop {
                match self.chunks.decode(input, self.at)? {
                    ChunkEvent::Data { range } => {
                        self.at = range.end;
                        out.extend_from_slice(&input[range]);
                    }
                    ChunkEvent::More => {
                        self.at = input.len();
                        return Ok(false);
                    }
                    ChunkEvent::Done { consumed } => {
                        self.at = consumed;
                        return Ok(true);
                    }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incremental_decoding_matches_decoding_at_once() {
        let chunked: &[u8] = b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\nnext";
        let plain: &[u8] = b"abcdenext";
        for (length, input) in [
            (BodyLength::Chunked, chunked),
            (BodyLength::Length(5), plain),
            (BodyLength::UntilClose, plain),
            (BodyLength::None, plain),
        ] {
            let mut whole = Vec::new();
            let ended = Beginning { bytes: input, is_all: None }.decode(length, &mut whole).unwrap();
            for step in 1..4 {
                let (mut decoding, mut out, mut came) = (Decoding::default(), Vec::new(), 0);
                while came < input.len() {
                    came = (came + step).min(input.len());
                    if decoding.go_on(length, &input[..came], &mut out).unwrap() {
                        break;
                    }
                }
                assert_eq!(out, whole, "{length:?} by {step}");
                assert_eq!(decoding.go_on(length, input, &mut out).unwrap(), ended);
            }
        }
        assert!(Decoding::default().go_on(BodyLength::Chunked, b"x\r\n", &mut Vec::new()).is_err());
    }

    #[test]
    fn bare_payload_ends_with_its_stream_or_length() {
        let mut out = Vec::new();
        for (length, is_all, expected) in [
            (BodyLength::Chunked, false, false),
            (BodyLength::Chunked, true, true),
            (BodyLength::UntilClose, true, true),
            (BodyLength::Length(4), true, false),
            (BodyLength::Length(3), false, true),
        ] {
            let beginning = Beginning { bytes: b"3\r\n", is_all: Some(is_all) };
            assert_eq!(beginning.decode(length, &mut out).unwrap(), expected, "{length:?}");
            assert_eq!(out, b"3\r\n");
        }
    }
}
