//! A response that others read while it arrives (`collapsed-forwarding`): the pieces of its body received so far, its outcome, and
//! the waiting readers. Filled by [`Filling`](crate::Filling), read by any number of [`Feed`]s.
//!
//! Each piece is copied once, into memory shared by all readers. The readers and the request that fetches it do not wait for each
//! other. Each reader holds one piece at a time.

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

/// Pieces shorter than this are extended by the bytes that follow, so that a sender of single bytes causes no additional memory.
const SHORT: usize = 4096;

/// How much is read at once from a complete body.
const PORTION: usize = 64 * 1024;

/// A response that is being received and has other readers.
#[derive(Debug)]
pub(crate) struct Growing {
    /// The head to send, without its length.
    head: Head,
    variant: Variant,
    /// The length of the body, if the server declared it.
    length: Option<u64>,
    lifetime: Lifetime,
    /// When the response was received, in ms of the monotonic clock.
    began_ms: u64,
    /// The number of readers. Changed when they start and when they end.
    readers: AtomicUsize,
    state: Mutex<GrowingState>,
}

/// The outcome of the response.
#[derive(Debug, Default)]
enum Fate {
    /// More will follow.
    #[default]
    Open,
    /// The response is complete, and this object is stored or would have been.
    Whole(Arc<Object>),
    /// The response is complete but too long to store: only the pieces are left.
    Passed,
    /// The response was truncated.
    Cut,
}

#[derive(Debug, Default)]
struct GrowingState {
    pieces: VecDeque<Arc<[u8]>>,
    /// The number of pieces that were dropped before the first of the kept ones.
    gone: usize,
    /// The number of bytes in the kept pieces.
    held: usize,
    fate: Fate,
    /// Waiting readers, in order of arrival.
    waiting: BTreeMap<u64, Waker>,
    /// The number of readers that have waited.
    came: u64,
    /// The number of bytes received so far.
    pushed: u64,
    /// The first piece that the fetching request still needs for its client.
    needed: Option<usize>,
    /// Wakes the task that fetches the response when a reader starts or waits, or when the last one leaves.
    filler: Option<Waker>,
    /// The memory of the remaining pieces, once the filling has ended.
    room: Option<Room>,
}

/// The next part of a body.
#[derive(Debug)]
pub enum Piece {
    /// A range of these bytes.
    Bytes(Arc<[u8]>, Range<usize>),
    /// The end of the body.
    End,
    /// The end of a truncated body.
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

    /// Whether the response may answer `request`.
    pub(crate) fn suits(&self, request: &Head) -> bool {
        self.variant.suits(request, &mut None)
    }

    /// Whether the response has readers.
    pub(crate) fn is_read(&self) -> bool {
        self.readers.load(Relaxed) > 0
    }

    /// Adds a reader.
    pub(crate) fn feed(self: &Arc<Self>) -> Feed {
        let feed = self.feed_at(0, 0, 0);
        wake_filler(self.state());
        feed
    }

    /// Returns a reader of the bytes that are still to arrive, for the client of the fetching request. No piece is dropped before
    /// this reader has read it.
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

    /// Whether a reader waits for more. `filler` is woken when a reader waits or starts.
    pub(crate) fn poll_wanted(&self, filler: &Waker) -> bool {
        let mut state = self.state();
        if state.filler.as_ref().is_none_or(|known| !known.will_wake(filler)) {
            state.filler = Some(filler.clone());
        }
        !state.waiting.is_empty()
    }

    /// Adds bytes. If the response is not stored, at most `most` bytes are kept, and readers that are slower than that are cut off.
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

    /// Returns all pieces joined.
    pub(crate) fn collect(&self) -> Vec<u8> {
        let pieces: Vec<Arc<[u8]>> = self.state().pieces.iter().cloned().collect();
        pieces.concat()
    }

    /// Marks the response as complete; `object` has its content from here on.
    pub(crate) fn end(&self, object: Arc<Object>) {
        let mut state = self.state();
        state.fate = Fate::Whole(object);
        // Readers continue with the object. Pieces that they hold are not affected.
        let pieces = std::mem::take(&mut state.pieces);
        wake(state);
        drop(pieces);
    }

    /// Marks the response as complete without being stored. The memory of the remaining pieces is counted in `room`.
    pub(crate) fn pass(&self, room: Room) {
        let mut state = self.state();
        state.fate = Fate::Passed;
        state.room = Some(room);
        wake(state);
    }

    /// Marks the response as truncated.
    pub(crate) fn cut(&self) {
        let mut state = self.state();
        if matches!(state.fate, Fate::Open) {
            state.fate = Fate::Cut;
        }
        wake(state);
    }
}

/// Wakes the fetching task, after releasing the lock.
fn wake_filler(mut state: MutexGuard<'_, GrowingState>) {
    let filler = state.filler.take();
    drop(state);
    if let Some(filler) = filler {
        filler.wake();
    }
}

/// Wakes the waiting readers, after releasing the lock.
fn wake(mut state: MutexGuard<'_, GrowingState>) {
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    waiting.into_values().for_each(Waker::wake);
}

/// A reader of a response being received.
#[derive(Debug)]
pub struct Feed {
    growing: Arc<Growing>,
    /// The index of the next piece among all pieces, and the offset in it.
    piece: usize,
    within: usize,
    /// The number of bytes passed on so far.
    at: u64,
    /// The requested part.
    from: u64,
    until: u64,
    /// The key of this reader in the map of waiting readers, once it waits.
    number: Option<u64>,
    /// Whether pieces from the reader's position on are kept for it.
    is_needed: bool,
}

impl Feed {
    /// Returns the head to send, without its length.
    pub fn head(&self) -> &Head {
        &self.growing.head
    }

    /// Returns the length of the body, if the server declared it.
    pub fn length(&self) -> Option<u64> {
        self.growing.length
    }

    /// Returns the date for `If-Modified-Since`, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.growing.lifetime.modified
    }

    /// Returns the age of the response, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.growing.lifetime.age) + now_ms.saturating_sub(self.growing.began_ms) / 1000
    }

    /// Whether the response was truncated.
    pub fn is_cut(&self) -> bool {
        matches!(self.growing.state().fate, Fate::Cut)
    }

    /// Restricts the reader to this part.
    pub fn narrow(&mut self, part: Range<u64>) {
        (self.from, self.until) = (part.start, part.end);
    }

    /// Ready once there is something to read, or at the end.
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

    /// Returns the requested part of `range`, the next bytes of the body.
    fn wanted(&mut self, range: &Range<usize>) -> Option<Range<usize>> {
        let length = range.len() as u64;
        let skipped = self.from.saturating_sub(self.at).min(length);
        let end = self.until.saturating_sub(self.at).min(length);
        self.at += length;
        (skipped < end).then(|| range.start + skipped as usize..range.start + end as usize)
    }

    /// Returns the next bytes, requested or not.
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
            // The last piece may still grow.
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
    /// Removes the waker of the dropped reader. After the last reader, the fetching task is woken, because it may have nothing more
    /// to do.
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
