//! The kinds of payload filters. [`Filters`](super::Filters) contains the filters of one direction, in order.
//!
//! A filter receives and emits payload without transfer coding. Some filters emit output immediately. For limits, traces and
//! scripts, payload waits in a queue in front of the filter ([`FilterQueue`]).

use std::task::{Context, Poll};

use cache::{Feed, Filling, Piece};
use compress::Encoder;
use runtime::timer::now_ms;

use super::Gate;

/// Maximum size of one read, in bytes.
const READ: usize = 64 * 1024;

/// A kind of filter.
#[derive(Debug)]
pub(crate) enum Filter {
    /// Stores the payload in a cache without changing it.
    Keep(Box<Keeping>),
    /// Compresses the content.
    Compress(Box<Compressor>),
    /// Limits and traces, which do not change the payload but may delay it.
    Hold(Box<Holding>),
    /// A script filter.
    Script(Box<Scripted>),
}

/// An encoder and its byte counts.
#[derive(Debug)]
pub(crate) struct Compressor {
    /// The encoder, or `None` once the body has ended.
    encoder: Option<Encoder>,
    /// Bytes of input.
    pub(crate) taken: u64,
    /// Bytes of output.
    pub(crate) given: u64,
    /// The count of `taken` at which other tasks run.
    turn_end: u64,
}

/// The input that is compressed in one turn. The turns of tasks are otherwise limited by the number of their system calls, which
/// would permit megabytes, and an encoder may need more than 100 ms for one.
const TURN: u64 = 128 * 1024;

/// A response that is being stored in a cache.
#[derive(Debug)]
pub(crate) struct Keeping {
    filling: Option<Filling>,
    /// The read position of the first client, while it is slower than the other readers.
    ahead: Option<Feed>,
    /// Whether only a clean close by the sender shows that the body is complete.
    until_close: bool,
    /// Whether bytes were added since the other readers last ran.
    is_fresh: bool,
}

/// Payload queued before a filter.
#[derive(Debug, Default)]
pub(crate) struct FilterQueue {
    bytes: Vec<u8>,
    /// The number of bytes already taken.
    taken: usize,
    /// Whether the payload ends after these bytes.
    pub(super) is_ended: bool,
}

/// A group of adjacent bandwidth limits and traces, with its queue.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(super) gate: Gate,
    pub(super) queue: FilterQueue,
}

/// A script filter with its queue. `message::lua` calls its functions.
#[derive(Debug)]
pub(crate) struct Scripted {
    /// The index of the filter among the stream's filters.
    pub(super) place: usize,
    pub(super) queue: FilterQueue,
    /// Whether the script has seen the end.
    pub(super) is_told: bool,
    /// Whether the filter's queue is full.
    pub(super) is_full: bool,
    /// Whether the filter has passed on the end.
    pub(super) is_over: bool,
}

impl Filter {
    /// Creates a compression filter.
    pub(crate) fn compress(encoder: Encoder) -> Self {
        Self::Compress(Box::new(Compressor { encoder: Some(encoder), taken: 0, given: 0, turn_end: TURN }))
    }

    /// Creates a filter that stores the payload in a cache. A body that ends with its connection (`until_close`) is stored only
    /// if [`Filters::keep`](super::Filters::keep) is called.
    pub(crate) fn keep(filling: Filling, until_close: bool) -> Self {
        Self::Keep(Box::new(Keeping { filling: Some(filling), ahead: None, until_close, is_fresh: false }))
    }

    /// Creates a filter that delays payload with `gate`.
    pub(super) fn hold(gate: Gate) -> Self {
        Self::Hold(Box::new(Holding { gate, queue: FilterQueue::default() }))
    }

    /// Creates a script filter. `place` is its index among the stream's filters.
    pub(crate) fn script(place: usize) -> Self {
        Self::Script(Box::new(Scripted {
            place,
            queue: FilterQueue::default(),
            is_told: false,
            is_full: false,
            is_over: false,
        }))
    }

    /// Whether the filter's output may differ from its input.
    pub(super) fn changes_payload(&self) -> bool {
        matches!(self, Self::Compress(_) | Self::Script(_))
    }
}

impl Compressor {
    /// Compresses `data` and appends the output to `out`.
    pub(super) fn data(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.taken += data.len() as u64;
        self.run(out, |encoder, out| encoder.write(data, out));
    }

    /// Whether to yield to other tasks before more is compressed.
    pub(super) fn takes_turn(&mut self) -> bool {
        let takes = self.taken >= self.turn_end;
        if takes {
            self.turn_end = self.taken + TURN;
        }
        takes
    }

    /// Appends the output that was held back so far.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.run(out, Encoder::flush);
    }

    /// Ends the payload and appends the last output.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let before = out.len();
        if let Some(encoder) = self.encoder.take() {
            encoder.finish(&[], out);
        }
        self.given += (out.len() - before) as u64;
    }

    fn run(&mut self, out: &mut Vec<u8>, code: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let before = out.len();
        if let Some(encoder) = &mut self.encoder {
            code(encoder, out);
        }
        self.given += (out.len() - before) as u64;
    }
}

impl Keeping {
    pub(super) fn data(&mut self, data: &[u8]) {
        if let Some(filling) = &mut self.filling {
            filling.push(data, now_ms());
            self.is_fresh = true;
        }
    }

    /// Whether to yield to other readers of the response before taking more. Otherwise, a task that reads from a fast server
    /// would get ahead of them, however fast they are.
    pub(super) fn takes_turn(&mut self, context: &Context<'_>) -> bool {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        is_fresh && self.filling.as_ref().is_some_and(|filling| filling.outruns(context.waker()))
    }

    /// Whether the cache holds payload for a client that is slower than other readers.
    pub(super) fn runs_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Whether to continue reading although the client is blocked. This applies if others read the same response: for the client,
    /// it then waits only in memory that the cache uses anyway. The task is woken when another reader starts.
    pub(super) fn run_ahead(&mut self, context: &Context<'_>) -> bool {
        let Some(filling) = &self.filling else { return false };
        if self.until_close || !filling.may_run_ahead(READ) {
            return false;
        }
        if self.ahead.is_none() && filling.poll_read(context.waker()) {
            self.ahead = filling.follow();
        }
        self.ahead.is_some()
    }

    /// If the cache is ahead of the client, returns the next piece for the client. The cache stops being ahead once the client
    /// has taken everything and more may arrive.
    pub(super) fn poll_ahead(&mut self, context: &mut Context<'_>) -> Option<Piece> {
        let Poll::Ready(piece) = self.ahead.as_mut()?.poll_piece(context) else {
            self.ahead = None;
            return None;
        };
        if !matches!(piece, Piece::Bytes(..)) {
            self.ahead = None;
        }
        Some(piece)
    }

    /// Returns whether others still need the remaining payload although the client is gone. The task is woken when one of them
    /// waits for more.
    pub(super) fn feeds_others(&self, context: &Context<'_>) -> Option<bool> {
        let filling = self.filling.as_ref()?;
        filling.poll_read(context.waker()).then(|| filling.poll_wanted(context.waker()))
    }

    /// Records that the client is gone.
    pub(super) fn leave(&mut self) {
        self.ahead = None;
    }

    /// The payload has ended.
    pub(super) fn end(&mut self) {
        if !self.until_close {
            self.finish();
        }
    }

    /// Marks the response as complete, which makes it available in the cache.
    pub(super) fn finish(&mut self) {
        if let Some(mut filling) = self.filling.take() {
            filling.finish(now_ms());
        }
    }
}

impl FilterQueue {
    /// Returns the number of queued bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// Moves up to `most` queued bytes to the end of `into`.
    pub(super) fn take(&mut self, most: usize, into: &mut Vec<u8>) {
        let (bytes, from) = self.lend();
        let until = from + most.min(bytes.len() - from);
        into.extend_from_slice(&bytes[from..until]);
        self.give_back(bytes, until);
    }

    /// Lends the bytes of the queue. `give_back` returns them.
    pub(super) fn lend(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.bytes), self.taken)
    }

    /// Takes back the lent bytes without the first `taken` bytes.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>, taken: usize) {
        (self.bytes, self.taken) = (bytes, taken);
        if self.is_empty() {
            self.bytes.clear();
            self.taken = 0;
        }
    }
}

impl Scripted {
    /// Whether there is input that the script has not seen.
    pub(super) fn has_unseen(&self) -> bool {
        !self.queue.is_empty() || self.queue.is_ended && !self.is_told
    }

    /// Whether no more input is accepted until the script has forwarded something.
    pub(super) fn holds(&self) -> bool {
        !self.is_over && (self.has_unseen() || self.queue.is_ended || self.is_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressors_yield_after_each_turn() {
        let settings = compress::CoderSettings { level: 1, window_bits: 15, memory_level: 8, most_memory: 0 };
        let encoder = Encoder::new(compress::Algorithm::Brotli, &settings).unwrap();
        let Filter::Compress(mut compressor) = Filter::compress(encoder) else { panic!("another filter") };
        let (piece, mut out) = (vec![0; 16 * 1024], Vec::new());
        let turns: Vec<bool> = (0..16)
            .map(|_| {
                compressor.data(&piece, &mut out);
                compressor.takes_turn()
            })
            .collect();
        let expected: Vec<bool> = (1..=16).map(|count| count % 8 == 0).collect();
        assert_eq!(turns, expected);
        assert!(!compressor.takes_turn());
    }
}
