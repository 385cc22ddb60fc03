//! Bodies of test responses (`mode haterm`): bytes in static memory, sent repeatedly until the body has its length. The bytes are
//! never copied for a response: HTTP/1 writes them directly, and HTTP/2 and HTTP/3 refer to them until they are sent.

use std::sync::LazyLock;
use std::task::{Context, Poll};

use http::BodyLength;
use runtime::turns;

/// The period of the text: a line of 50 bytes, which makes a truncated or shifted body easy to recognize.
const LINE: &[u8; 50] = b".123456789.123456789.123456789.123456789.12345678\n";

/// The size of each area: a whole number of lines. One write to a socket usually accepts this much, and it stays in the
/// second-level cache.
const AREA: usize = 5000 * LINE.len();

static TEXT: LazyLock<Box<[u8]>> = LazyLock::new(|| LINE.repeat(AREA / LINE.len()).into());
static ONES: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![b'1'; AREA].into());
static RANDOM: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut bytes = vec![0; AREA];
    fastrand::fill(&mut bytes);
    bytes.into()
});

/// The number of bytes after which other tasks of the worker run. Otherwise, a fast client could keep the worker busy for the
/// whole body.
const TURN: usize = 1 << 20;

/// Like [`TURN`], for bodies that pass through filters, which need far more time per byte.
const FILTERED_TURN: usize = TURN / 4;

/// The content of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatedBytes {
    /// Lines of digits.
    Text,
    /// The digit 1.
    Ones,
    /// Random bytes, from a random position.
    Random,
}

/// The part of a body that is still to be sent.
#[derive(Debug)]
pub(crate) struct Repeated {
    area: &'static [u8],
    /// The position of the next byte in the area.
    at: usize,
    left: u64,
    /// How the response is framed.
    framing: BodyLength,
    /// Whether the size line of the single chunk was sent.
    has_begun: bool,
    /// How many bytes were sent since other tasks last ran.
    in_turn: usize,
}

impl Repeated {
    /// Creates a body of `length` bytes. `framing` is how the receiver finds its end.
    pub(crate) fn new(bytes: RepeatedBytes, length: u64, framing: BodyLength) -> Self {
        let (area, at): (&'static [u8], _) = match bytes {
            RepeatedBytes::Text => (&TEXT, 0),
            RepeatedBytes::Ones => (&ONES, 0),
            RepeatedBytes::Random => (&RANDOM, fastrand::usize(..AREA)),
        };
        Self { area, at, left: length, framing, has_begun: false, in_turn: 0 }
    }

    /// Returns how many bytes are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns how the response is framed.
    pub(crate) fn framing(&self) -> BodyLength {
        self.framing
    }

    /// Returns the next bytes, as many as are available in one piece. Empty at the end.
    pub(crate) fn piece(&self) -> &'static [u8] {
        let rest = &self.area[self.at..];
        &rest[..rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))]
    }

    /// Returns whether the size line of the single chunk still has to be sent. From then on, it counts as sent.
    pub(super) fn takes_size_line(&mut self) -> bool {
        self.left > 0 && !std::mem::replace(&mut self.has_begun, true)
    }

    /// Whether the size line of the single chunk was sent.
    pub(super) fn has_size_line(&self) -> bool {
        self.has_begun
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

    /// Ready, except after each [`TURN`]: then other tasks run first.
    pub(super) fn poll_turn(&mut self, context: &Context<'_>, is_filtered: bool) -> Poll<()> {
        if self.in_turn < if is_filtered { FILTERED_TURN } else { TURN } {
            return Poll::Ready(());
        }
        self.in_turn = 0;
        turns::yield_turn(context);
        Poll::Pending
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
            // A prime, so that steps end at different positions within lines.
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
