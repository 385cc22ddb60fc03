//! Where the bytes of a direction come from: a socket that speaks HTTP/1, or what lies here
//! already.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use cache::{Feed, FileFeed, Object, Piece};
use http::{BodyLength, ChunkDecoder, ChunkEvent, Head};

use net::Stream;
use runtime::{Buffer, turns};

use super::Socket;
use crate::stream::{self, AnyIncoming};

/// What a direction is read from.
pub(super) enum SourceReader<'a> {
    Socket(&'a mut Stream),
    Stream(AnyIncoming<'a>),
}

impl SourceReader<'_> {
    /// Receives into `buffer` what is here: 0 at the end of the stream.
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

    /// Whether there is something to read at no cost: the connection has read it already.
    #[inline]
    pub(super) fn has_payload(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(incoming) => incoming.has_payload(),
        }
    }

    /// Whether the message has ended with what was read, as far as the side tells.
    #[inline]
    pub(super) fn is_at_end(&mut self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(incoming) => incoming.is_at_end(),
        }
    }

    /// The trailers that came behind the message, where the side knows them.
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
    /// It has ended, or there was none.
    #[default]
    Done,
    /// So many bytes are still to come into the buffer.
    Length(u64),
    /// Chunked coding, strictly checked.
    Chunked(Box<ChunkDecoder>),
    /// The sender closes.
    UntilClose,
    /// It has ended, and filters have not passed that on yet.
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

    /// The trailers of a body in chunks that has ended.
    pub(super) fn trailers(&self) -> Option<Box<Head>> {
        let Self::Chunked(decoder) = self else { return None };
        if decoder.trailers().is_empty() {
            return None;
        }
        let mut head = Box::new(Head::new());
        decoder.trailers_into(&mut head);
        Some(head).filter(|head| !head.is_empty())
    }

    /// The next piece of payload in `input`, from `at` on.
    ///
    /// # Errors
    /// The chunked coding is broken.
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

/// Where a direction's bytes come from.
pub(crate) enum Source<'a> {
    /// A peer that speaks HTTP/1, or TCP.
    Socket(&'a mut Socket),
    /// A stream of a connection that carries many.
    Stream(&'a mut stream::AnyStream),
    /// Nothing: there is no stream any more.
    Gone,
    /// A body that lies here.
    Stored(&'a mut MemoryBody),
}

/// A body in pieces, each made when it is asked for.
pub(crate) type Pieces = Box<dyn Iterator<Item = Vec<u8>>>;

/// So many bytes are gathered before they are sent; a body that is not longer is sent whole.
pub(super) const PORTION: usize = 16 * 1024;

/// How long pieces are made without a pause.
const TURN: Duration = Duration::from_micros(200);

/// A body that a cache gives piece by piece.
pub(crate) enum CachedBody {
    /// That of another request's response, as it comes.
    Coming(Feed),
    /// One in a file.
    Filed(FileFeed),
}

impl CachedBody {
    /// Ready once the next piece is there, or nothing will come.
    pub(crate) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        match self {
            Self::Coming(feed) => feed.poll_piece(context),
            Self::Filed(feed) => feed.poll_piece(context),
        }
    }
}

/// The body of an answer made here.
#[derive(Default)]
pub(crate) struct MemoryBody {
    /// What there is of it.
    pub(crate) bytes: Vec<u8>,
    /// What follows, where it is made in pieces.
    pub(crate) pieces: Option<Pieces>,
    /// What a cache has instead of all that, and what of its body is still to be sent.
    pub(crate) object: Option<Arc<Object>>,
    rest: Range<usize>,
    /// What a cache has of a body that is not in memory as a whole, and how much that will be, where
    /// it is known.
    pub(crate) feed: Option<Box<(CachedBody, Option<u64>)>>,
    /// Whether it passes the filters of responses: a cache or a service gives it.
    pub(crate) is_filtered: bool,
    /// Whether more will be put in by who makes it.
    is_open: bool,
    /// Whether what there was has been taken, and the next portion is to be made.
    is_taken: bool,
    /// Whether other tasks of the worker had their turn since.
    yielded: bool,
}

impl MemoryBody {
    /// Forgets all of it.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pieces = None;
        self.object = None;
        self.feed = None;
        self.is_filtered = false;
        self.is_open = false;
        self.rest = 0..0;
        self.is_taken = false;
        self.yielded = false;
    }

    /// Makes it the body of `object`.
    pub(crate) fn hold(&mut self, object: Arc<Object>) {
        self.clear();
        self.rest = 0..object.body.len();
        self.object = Some(object);
    }

    /// Makes it what comes out of `feed`, so many bytes where that is known.
    pub(crate) fn come(&mut self, feed: CachedBody, length: Option<u64>) {
        self.clear();
        self.feed = Some(Box::new((feed, length)));
        self.open();
    }

    /// Leaves this part of an object's body.
    pub(crate) fn narrow(&mut self, part: Range<usize>) {
        self.rest = part;
    }

    /// How long it is, as far as it is not made in pieces.
    pub(crate) fn len(&self) -> u64 {
        match self.object {
            Some(_) => self.rest.len() as u64,
            None => self.bytes.len() as u64,
        }
    }

    /// What of an object's body is still to be sent.
    pub(crate) fn rest(&self) -> &[u8] {
        let body = self.object.as_ref().and_then(|object| object.body.get(self.rest.clone()));
        body.unwrap_or_default()
    }

    /// So many bytes of that were sent.
    pub(super) fn advance(&mut self, sent: usize) {
        self.rest.start += sent;
    }

    /// Whether more will be put in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// More will be put in by [`put`](Self::put).
    pub(crate) fn open(&mut self) {
        self.is_open = true;
        self.is_taken = true;
    }

    /// Puts more in.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.is_taken = false;
    }

    /// Nothing more is put in.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
        self.is_taken = false;
    }

    /// Whether its length is known by what there is of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.pieces.is_none() && !self.is_open
    }

    /// Takes pieces until there is a portion, or the body has ended. Pieces may be empty and take
    /// their time all the same, so that others have their turn after a while.
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

    /// Whether what there was has been taken, and the next portion is to be made.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Has the next portion made, once other tasks have had their turn.
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

    /// Has `take` the portion that there is; says whether it was the last.
    pub(super) fn take_portion(&mut self, take: impl FnOnce(&[u8])) -> bool {
        if self.object.is_some() {
            let portion = self.rest();
            let portion = &portion[..portion.len().min(PORTION)];
            let taken = portion.len();
            take(portion);
            self.advance(taken);
            return self.rest().is_empty();
        }
        take(&self.bytes);
        self.bytes.clear();
        self.is_taken = true;
        self.is_whole()
    }
}

/// What is here of a body that nothing was taken of yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where it is payload alone, whether its stream has ended behind it.
    pub(crate) is_all: Option<bool>,
}

impl Beginning<'_> {
    /// Decodes it into `out`; says whether that is all of the body.
    ///
    /// # Errors
    /// It is badly coded.
    pub(crate) fn decode(self, length: BodyLength, out: &mut Vec<u8>) -> Result<bool, http::ChunkError> {
        out.clear();
        self.decode_more(length, &mut Decoding::default(), out)
    }

    /// As [`decode`](Self::decode), of what came since `decoding` was used last, behind what `out` has.
    ///
    /// # Errors
    /// It is badly coded.
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

/// How far a body that stays in its buffer was decoded.
#[derive(Debug, Default)]
pub(crate) struct Decoding {
    chunks: ChunkDecoder,
    /// So many bytes of the buffer.
    at: usize,
}

impl Decoding {
    /// Goes on with `input`, which has come to be longer: adds to `out` what that has of the body;
    /// says whether that is all of it.
    ///
    /// # Errors
    /// It is badly coded.
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
    fn a_body_is_decoded_as_it_comes_to_the_same_as_at_once() {
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
    fn payload_alone_is_all_of_a_body_where_its_stream_or_its_length_says_so() {
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
