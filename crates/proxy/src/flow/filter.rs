//! The kinds of filters that payload passes on its way, each by itself. Which of them a direction has,
//! and in which order, is the matter of [`Filters`](super::Filters).
//!
//! A filter gets payload apart from any coding of transfer, and gives payload. Some pass their
//! output on at once; limits, traces and scripts let payload wait in front of them ([`FilterQueue`]).

use std::task::{Context, Poll};

use cache::{Feed, Filling, Piece};
use compress::Encoder;
use runtime::timer::now_ms;

use super::Gate;

/// The most that one read brings, in bytes.
const READ: usize = 64 * 1024;

/// A kind of filter.
#[derive(Debug)]
pub(crate) enum Filter {
    /// A cache keeps the payload, which passes as it is.
    Keep(Box<Keeping>),
    /// Codes the content.
    Compress(Box<Compressor>),
    /// Limits and traces, which pass it as it is and let it wait.
    Hold(Box<Holding>),
    /// One of a script.
    Script(Box<Scripted>),
}

/// A coder and what went through it.
#[derive(Debug)]
pub(crate) struct Compressor {
    /// Gone once the body has ended.
    encoder: Option<Encoder>,
    /// Bytes that it was given.
    pub(crate) taken: u64,
    /// Bytes that it gave.
    pub(crate) given: u64,
}

/// What a cache keeps.
#[derive(Debug)]
pub(crate) struct Keeping {
    filling: Option<Filling>,
    /// The position of the first client, while that is slower than the other readers.
    ahead: Option<Feed>,
    /// Whether only its sender's closing in good order tells that a body is whole.
    until_close: bool,
    /// Whether bytes were added since others had their turn.
    is_fresh: bool,
}

/// What waits before a filter.
#[derive(Debug, Default)]
pub(crate) struct FilterQueue {
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    /// Whether nothing follows.
    pub(super) is_ended: bool,
}

/// Limits of bandwidth and traces that stand side by side, and what waits before them.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(super) gate: Gate,
    pub(super) queue: FilterQueue,
}

/// A script filter and its queue. `message::lua` calls its functions.
#[derive(Debug)]
pub(crate) struct Scripted {
    /// Which one of those of the stream.
    pub(super) place: usize,
    pub(super) queue: FilterQueue,
    /// Whether it was told of the end.
    pub(super) is_told: bool,
    /// Whether it holds as much as it may.
    pub(super) is_full: bool,
    /// Whether it let the end pass.
    pub(super) is_over: bool,
}

impl Filter {
    /// What compresses with `encoder`.
    pub(crate) fn compress(encoder: Encoder) -> Self {
        Self::Compress(Box::new(Compressor { encoder: Some(encoder), taken: 0, given: 0 }))
    }

    /// What keeps the payload in a cache. Of a body that ends with its connection, `until_close`,
    /// nothing is kept before [`Filters::keep`](super::Filters::keep).
    pub(crate) fn keep(filling: Filling, until_close: bool) -> Self {
        Self::Keep(Box::new(Keeping { filling: Some(filling), ahead: None, until_close, is_fresh: false }))
    }

    /// What lets payload wait as `gate` says.
    pub(super) fn hold(gate: Gate) -> Self {
        Self::Hold(Box::new(Holding { gate, queue: FilterQueue::default() }))
    }

    /// The filter of a script, which is that `place` of those of the stream.
    pub(crate) fn script(place: usize) -> Self {
        Self::Script(Box::new(Scripted {
            place,
            queue: FilterQueue::default(),
            is_told: false,
            is_full: false,
            is_over: false,
        }))
    }

    /// Whether what it passes on may be other than what it was given.
    pub(super) fn changes_payload(&self) -> bool {
        matches!(self, Self::Compress(_) | Self::Script(_))
    }
}

impl Compressor {
    /// Takes `data` and writes what comes of it behind what `out` holds.
    pub(super) fn data(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.taken += data.len() as u64;
        self.run(out, |encoder, out| encoder.write(data, out));
    }

    /// Writes what it held back.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.run(out, Encoder::flush);
    }

    /// The payload has ended: writes the last of it.
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

    /// Whether others who read the same response have their turn before it takes more: a task that reads
    /// from a fast server would leave them behind, however fast they are.
    pub(super) fn takes_turn(&mut self, context: &Context<'_>) -> bool {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        is_fresh && self.filling.as_ref().is_some_and(|filling| filling.outruns(context.waker()))
    }

    /// Whether the payload waits in the cache for a client that is slower than others.
    pub(super) fn runs_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Whether to read on although the client is blocked: others read the same response, and it waits only in
    /// memory that the cache uses anyway. The task is woken when another reader begins.
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

    /// The next piece for the client, if the cache is ahead of it. It is not any more once all has been
    /// taken and more may come.
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

    /// Whether others still need the rest although the client is gone. The task is woken when one waits
    /// for more.
    pub(super) fn feeds_others(&self, context: &Context<'_>) -> Option<bool> {
        let filling = self.filling.as_ref()?;
        filling.poll_read(context.waker()).then(|| filling.poll_wanted(context.waker()))
    }

    /// The client is gone.
    pub(super) fn leave(&mut self) {
        self.ahead = None;
    }

    /// The payload has ended.
    pub(super) fn end(&mut self) {
        if !self.until_close {
            self.finish();
        }
    }

    /// The response came to its end: the cache has it from now on.
    pub(super) fn finish(&mut self) {
        if let Some(mut filling) = self.filling.take() {
            filling.finish(now_ms());
        }
    }
}

impl FilterQueue {
    /// How much waits.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// Moves what waits, at most so many bytes, behind what `into` holds.
    pub(super) fn take(&mut self, most: usize, into: &mut Vec<u8>) {
        let (bytes, from) = self.lend();
        let until = from + most.min(bytes.len() - from);
        into.extend_from_slice(&bytes[from..until]);
        self.give_back(bytes, until);
    }

    /// Lends what waits, to be given back with how much of it was taken.
    pub(super) fn lend(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.bytes), self.taken)
    }

    /// Takes back what was lent, less the first `taken` bytes.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>, taken: usize) {
        (self.bytes, self.taken) = (bytes, taken);
        if self.is_empty() {
            self.bytes.clear();
            self.taken = 0;
        }
    }
}

impl Scripted {
    /// Whether there is something that it was not shown yet.
    pub(super) fn has_unseen(&self) -> bool {
        !self.queue.is_empty() || self.queue.is_ended && !self.is_told
    }

    /// Whether nothing more may come before it has passed something on.
    pub(super) fn holds(&self) -> bool {
        !self.is_over && (self.has_unseen() || self.queue.is_ended || self.is_full)
    }
}
