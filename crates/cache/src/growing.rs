//! A response that others get while it still comes (`collapsed-forwarding`): the pieces of its body
//! that are here, what became of it, and who waits for more. Filled by [`Filling`](crate::Filling),
//! read by any number of [`Feed`]s.
//!
//! A piece is copied once, into memory that all readers share; none of them waits for another, nor
//! does the request that fetches it. Who reads holds one piece at a time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use http::Head;

use crate::freshness::{Lifetime, Now};
use crate::object::Object;
use crate::room::Room;
use crate::vary::Variant;

/// A piece that is shorter is made longer by what comes next, so that a sender of single bytes
/// costs no more memory than any other.
const SHORT: usize = 4096;

/// So much is read at once of what is whole.
const PORTION: usize = 64 * 1024;

/// A response on its way that others may read.
#[derive(Debug)]
pub(crate) struct Growing {
    /// What is sent of its head, without its length.
    head: Head,
    variant: Variant,
    /// Its length, where the server tells.
    length: Option<u64>,
    lifetime: Lifetime,
    /// When it came, in ms of the monotonic clock.
    began_ms: u64,
    /// How many read it. Written by who begins and who ends.
    readers: AtomicUsize,
    state: Mutex<GrowingState>,
}

/// What became of it.
#[derive(Debug, Default)]
enum Fate {
    /// More comes.
    #[default]
    Open,
    /// It is whole; what is kept of it, or would have been.
    Whole(Arc<Object>),
    /// It is whole, and too long to be kept: the pieces are all there is.
    Passed,
    /// It did not come to its end.
    Cut,
}

#[derive(Debug, Default)]
struct GrowingState {
    pieces: VecDeque<Arc<[u8]>>,
    /// How many pieces there were before the first of these.
    gone: usize,
    /// Bytes in them.
    held: usize,
    fate: Fate,
    /// Those who wait for more, by when they came.
    waiting: BTreeMap<u64, Waker>,
    /// How many came.
    came: u64,
    /// Bytes pushed so far.
    pushed: u64,
    /// The first piece that the request which fetches the response still needs for its client.
    needed: Option<usize>,
    /// Wakes the task that fetches the response, once a reader begins or waits, or the last one leaves.
    filler: Option<Waker>,
    /// Memory of what is left where nobody fills it any more.
    room: Option<Room>,
}

/// What comes next of a body.
#[derive(Debug)]
pub enum Piece {
    /// These bytes of it.
    Bytes(Arc<[u8]>, Range<usize>),
    /// Nothing: it is whole.
    End,
    /// Nothing, and it is not whole.
    Cut,
}

impl Growing {
    pub(crate) fn new(
        head: Head,
        variant: Variant,
        length: Option<u64>,
        lifetime: Lifetime,
        began: Now,
    ) -> Arc<Self> {
        let (readers, state) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { head, variant, length, lifetime, began_ms: began.ms, readers, state })
    }

    fn state(&self) -> MutexGuard<'_, GrowingState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether `request` may be answered with it.
    pub(crate) fn suits(&self, request: &Head) -> bool {
        self.variant.suits(request, &mut None)
    }

    /// Whether anybody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.readers.load(Relaxed) > 0
    }

    /// One more reader.
    pub(crate) fn feed(self: &Arc<Self>) -> Feed {
        let feed = self.feed_at(0, 0, 0);
        wake_filler(self.state());
        feed
    }

    /// A reader of the bytes that are still to come, for the client of the request that fetches them. No
    /// piece is given up before it has read it.
    pub(crate) fn feed_behind(self: &Arc<Self>) -> Feed {
        let mut state = self.state();
        let piece = state.gone + state.pieces.len().saturating_sub(1);
        let within = state.pieces.back().map_or(0, |last| last.len());
        state.needed = Some(piece);
        let at = state.pushed;
        drop(state);
        let mut feed = self.feed_at(piece, within, at);
        feed.is_needed = true;
        feed
    }

    fn feed_at(self: &Arc<Self>, piece: usize, within: usize, at: u64) -> Feed {
        self.readers.fetch_add(1, Relaxed);
        let (growing, until, number) = (self.clone(), u64::MAX, None);
        Feed { growing, piece, within, at, from: 0, until, number, is_needed: false }
    }

    /// Whether a reader waits for more. `filler` is woken when one does, or begins.
    pub(crate) fn poll_wanted(&self, filler: &Waker) -> bool {
        let mut state = self.state();
        if state.filler.as_ref().is_none_or(|known| !known.will_wake(filler)) {
            state.filler = Some(filler.clone());
        }
        !state.waiting.is_empty()
    }

    /// More of it. Of what is not kept no more than `most` bytes stay: who reads too slowly for that
    /// is cut off.
    pub(crate) fn push(&self, data: &[u8], most: Option<usize>) {
        let mut state = self.state();
        match state.pieces.back_mut() {
            Some(last) if last.len() < SHORT => *last = [&last[..], data].concat().into(),
            _ => state.pieces.push_back(data.into()),
        }
        state.held += data.len();
        state.pushed += data.len() as u64;
        while let Some(most) = most
            && state.held > most
            && state.pieces.len() > 1
            && state.needed.is_none_or(|needed| state.gone < needed)
            && let Some(first) = state.pieces.pop_front()
        {
            state.held -= first.len();
            state.gone += 1;
        }
        wake(state);
    }

    /// All of it in one.
    pub(crate) fn collect(&self) -> Vec<u8> {
        let pieces: Vec<Arc<[u8]>> = self.state().pieces.iter().cloned().collect();
        pieces.concat()
    }

    /// It is whole, and `object` is what it is from here on.
    pub(crate) fn end(&self, object: Arc<Object>) {
        let mut state = self.state();
        state.fate = Fate::Whole(object);
        // Readers go on in the object. What they hold of the pieces is theirs.
        let pieces = std::mem::take(&mut state.pieces);
        wake(state);
        drop(pieces);
    }

    /// It has come to its end without being kept. What is left of it takes `room`.
    pub(crate) fn pass(&self, room: Room) {
        let mut state = self.state();
        state.fate = Fate::Passed;
        state.room = Some(room);
        wake(state);
    }

    /// It does not come to its end.
    pub(crate) fn cut(&self) {
        let mut state = self.state();
        if matches!(state.fate, Fate::Open) {
            state.fate = Fate::Cut;
        }
        wake(state);
    }
}

/// Wakes the task that fetches the response, without the lock.
fn wake_filler(mut state: MutexGuard<'_, GrowingState>) {
    let filler = state.filler.take();
    drop(state);
    if let Some(filler) = filler {
        filler.wake();
    }
}

/// Wakes who waits, without the lock.
fn wake(mut state: MutexGuard<'_, GrowingState>) {
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    waiting.into_values().for_each(Waker::wake);
}

/// One reader of a response on its way.
#[derive(Debug)]
pub struct Feed {
    growing: Arc<Growing>,
    /// Which piece comes next, of all that there were, and from where on.
    piece: usize,
    within: usize,
    /// So many bytes were passed.
    at: u64,
    /// The part that is wanted.
    from: u64,
    until: u64,
    /// Which of those who wait it is, once it does.
    number: Option<u64>,
    /// Whether it keeps the pieces from where it is.
    is_needed: bool,
}

impl Feed {
    /// What is sent of its head, apart from its length.
    pub fn head(&self) -> &Head {
        &self.growing.head
    }

    /// Its length, where the server tells.
    pub fn length(&self) -> Option<u64> {
        self.growing.length
    }

    /// What `If-Modified-Since` is compared with, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.growing.lifetime.modified
    }

    /// How old it is, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.growing.lifetime.age) + now_ms.saturating_sub(self.growing.began_ms) / 1000
    }

    /// Whether it ended before its end.
    pub fn is_cut(&self) -> bool {
        matches!(self.growing.state().fate, Fate::Cut)
    }

    /// Leaves this part of it.
    pub fn narrow(&mut self, part: Range<u64>) {
        (self.from, self.until) = (part.start, part.end);
    }

    /// Ready once there is something to be read, or nothing will come.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        loop {
            if self.at >= self.until {
                return Poll::Ready(Piece::End);
            }
            let next = match self.poll_next(context) {
                Poll::Ready(Piece::Bytes(bytes, range)) => (bytes, range),
                other => return other,
            };
            if let Some(part) = self.wanted(&next.1) {
                return Poll::Ready(Piece::Bytes(next.0, part));
            }
        }
    }

    /// What of `range`, the next bytes of the body, is wanted.
    fn wanted(&mut self, range: &Range<usize>) -> Option<Range<usize>> {
        let length = range.len() as u64;
        let skipped = self.from.saturating_sub(self.at).min(length);
        let end = self.until.saturating_sub(self.at).min(length);
        self.at += length;
        (skipped < end).then(|| range.start + skipped as usize..range.start + end as usize)
    }

    /// The next bytes, wanted or not.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        let mut state = self.growing.state();
        if let Fate::Whole(object) = &state.fate {
            let object = object.clone();
            drop(state);
            let rest = usize::try_from(self.at).ok().and_then(|at| object.body.get(at..)).unwrap_or_default();
            let portion = &rest[..rest.len().min(PORTION)];
            return Poll::Ready(match portion.is_empty() {
                true => Piece::End,
                false => Piece::Bytes(portion.into(), 0..portion.len()),
            });
        }
        if self.piece < state.gone {
            return Poll::Ready(Piece::Cut);
        }
        while let Some(piece) = state.pieces.get(self.piece - state.gone) {
            if self.within < piece.len() {
                let range = self.within..piece.len();
                self.within = piece.len();
                return Poll::Ready(Piece::Bytes(piece.clone(), range));
            }
            // The last one may become longer.
            if self.piece + 1 >= state.gone + state.pieces.len() {
                break;
            }
            (self.piece, self.within) = (self.piece + 1, 0);
            if self.is_needed {
                state.needed = Some(self.piece);
            }
        }
        match state.fate {
            Fate::Cut => return Poll::Ready(Piece::Cut),
            Fate::Passed => return Poll::Ready(Piece::End),
            Fate::Open | Fate::Whole(_) => {}
        }
        let number = *self.number.get_or_insert_with(|| {
            state.came += 1;
            state.came
        });
        state.waiting.insert(number, context.waker().clone());
        wake_filler(state);
        Poll::Pending
    }
}

impl Drop for Feed {
    /// A reader that is gone is not woken. The task that fetches the response is, after the last of them:
    /// it may have nothing more to do.
    fn drop(&mut self) {
        let is_last = self.growing.readers.fetch_sub(1, Relaxed) == 1;
        if self.number.is_none() && !self.is_needed && !is_last {
            return;
        }
        let mut state = self.growing.state();
        if let Some(number) = self.number {
            state.waiting.remove(&number);
        }
        if self.is_needed {
            state.needed = None;
        }
        if is_last {
            wake_filler(state);
        }
    }
}
