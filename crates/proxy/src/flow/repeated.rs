//! Bodies of test responses (`mode haterm`): bytes in static memory, sent again and again until the body has its length. The bytes are
//! never copied for a response: HTTP/1 writes them from there, and HTTP/2 and HTTP/3 refer to them until they were sent.

use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use http::BodyLength;
use runtime::turns;

use super::sink::Following;
use super::source::{Framing, MemoryBody, PORTION};
use super::{COPY, Coding, Flow, FlowError, Sink};

/// The period of the text: a line of 50 bytes, on which a truncated or shifted body is easy to see.
const LINE: &[u8; 50] = b".123456789.123456789.123456789.123456789.12345678\n";

/// The size of each area: a whole number of lines, which one write to a socket usually accepts, and which stays in the second-level
/// cache.
const AREA: usize = 5000 * LINE.len();

static TEXT: LazyLock<Box<[u8]>> = LazyLock::new(|| LINE.repeat(AREA / LINE.len()).into());
static ONES: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![b'1'; AREA].into());
static RANDOM: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut bytes = vec![0; AREA];
    fastrand::fill(&mut bytes);
    bytes.into()
});

/// The number of bytes after which other tasks of the worker run. A fast client could otherwise keep it busy for the whole body.
const TURN: usize = 1 << 20;

/// The same for bodies that pass through filters, which take far more time for each byte.
const FILTERED_TURN: usize = 16 * PORTION;

/// What a body consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatedBytes {
    /// Lines of digits.
    Text,
    /// The digit 1.
    Ones,
    /// Random bytes, from a random position.
    Random,
}

/// The rest of a body.
#[derive(Debug)]
pub(crate) struct Repeated {
    area: &'static [u8],
    /// The position of the next byte in the area.
    at: usize,
    left: u64,
    /// How the response is framed.
    framing: BodyLength,
    /// Whether the size line of the only chunk was sent.
    has_begun: bool,
    /// How many bytes were sent since other tasks have run.
    in_turn: usize,
}

impl Repeated {
    /// A body of `length` bytes. `framing` tells how the receiver finds its end.
    pub(crate) fn new(bytes: RepeatedBytes, length: u64, framing: BodyLength) -> Self {
        let (area, at): (&'static [u8], _) = match bytes {
            RepeatedBytes::Text => (&TEXT, 0),
            RepeatedBytes::Ones => (&ONES, 0),
            RepeatedBytes::Random => (&RANDOM, fastrand::usize(..AREA)),
        };
        Self { area, at, left: length, framing, has_begun: false, in_turn: 0 }
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// How the response is framed.
    pub(crate) fn framing(&self) -> BodyLength {
        self.framing
    }

    /// The bytes that follow, as many as there are in one piece; empty at the end.
    pub(crate) fn piece(&self) -> &'static [u8] {
        let rest = &self.area[self.at..];
        &rest[..rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))]
    }

    /// Moves on by `count` bytes of the last [`piece`](Self::piece).
    pub(super) fn advance(&mut self, count: usize) {
        self.at += count;
        if self.at >= self.area.len() {
            self.at = 0;
        }
        self.left -= (count as u64).min(self.left);
        self.in_turn += count;
    }

    /// Ready unless so many bytes were sent that other tasks have to run first.
    pub(super) fn poll_turn(&mut self, context: &Context<'_>, is_filtered: bool) -> Poll<()> {
        if self.in_turn < if is_filtered { FILTERED_TURN } else { TURN } {
            return Poll::Ready(());
        }
        self.in_turn = 0;
        turns::yield_turn(context);
        Poll::Pending
    }
}

impl Flow {
    /// Sends a body that neither filters nor limits need to see. With chunked coding, it is one chunk.
    pub(super) fn poll_repeated(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut MemoryBody,
        coding: Coding,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let Some(body) = &mut stored.repeated else { return Poll::Ready(Err(FlowError::unwritten())) };
        let is_chunked = coding == Coding::Chunked;
        loop {
            if self.is_received() {
                ready!(self.poll_flush(context, to))?;
                return self.poll_finished(context, to);
            }
            if is_chunked && body.left > 0 && !std::mem::replace(&mut body.has_begun, true) {
                // Bodies are never longer than what 63 bits can count.
                let length = usize::try_from(body.left).unwrap_or(usize::MAX);
                http::chunk::write_chunk_size(&mut self.staged, length);
            }
            let piece = body.piece();
            let is_last = piece.len() as u64 == body.left;
            if piece.is_empty() || is_last && piece.len() <= COPY && self.staged_left() > 0 {
                self.staged.extend_from_slice(piece);
                body.advance(piece.len());
                if body.has_begun {
                    self.staged.extend_from_slice(http::chunk::CHUNK_END);
                }
                coding.finish(&mut None, &mut self.staged);
                self.framing = Framing::Done;
                continue;
            }
            ready!(body.poll_turn(context, false));
            let following = if is_last && !is_chunked { Following::End(self.ends) } else { Following::More };
            let staged = &self.staged[self.staged_sent..];
            let n = match to.poll_write_static(context, staged, piece, following) {
                Poll::Pending => {
                    self.release(context, to);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(FlowError::unwritten())),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::write(&error))),
            };
            let of_staged = n.min(staged.len());
            self.note_staged(of_staged);
            self.sent += (n - of_staged) as u64;
            body.advance(n - of_staged);
            self.held = matches!(following, Following::More | Following::End(true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_continue_the_text_across_the_end_of_the_area() {
        let length = AREA + 7;
        let mut body = Repeated::new(RepeatedBytes::Text, length as u64, BodyLength::UntilClose);
        let mut bytes = Vec::new();
        while !body.piece().is_empty() {
            // Steps that are no divisor of anything.
            let piece = body.piece();
            let taken = piece.len().min(997);
            bytes.extend_from_slice(&piece[..taken]);
            body.advance(taken);
        }
        assert_eq!(bytes.len(), length);
        assert!(bytes.chunks(LINE.len()).all(|line| LINE.starts_with(line)));
        assert_eq!(body.left(), 0);
    }

    #[test]
    fn random_bodies_differ() {
        let body = || Repeated::new(RepeatedBytes::Random, 64, BodyLength::Length(64));
        let first = body().piece();
        assert!((0..64).any(|_| body().piece() != first));
    }
}
