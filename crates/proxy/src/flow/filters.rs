//! The filters of one direction, in order (configuration manual, `filter` and `filter-sequence`). They cost nothing for a
//! [`Flow`](super::Flow) without filters.
//!
//! Payload passes from one filter to the next. While payload is queued in front of a filter, nothing more is read, so the queues
//! hold at most one read, plus the buffers of scripts. Compression flushes when the sender pauses, so that the receiver of a slow
//! stream does not wait for buffered output. The filters are chosen before a direction begins
//! ([`compression`](crate::message::compression), [`cache`](crate::exchange::cache), [`lua`](crate::message::lua)); limits and
//! traces may be added later ([`exchange::filters`](crate::exchange::filters)).
//!
//! If no filter changes the payload, limits and traces are not in this list but in the flow's [`Gate`], which processes the bytes
//! in the form in which they are sent.

use std::cell::RefCell;
use std::ops::Bound;
use std::rc::Rc;
use std::task::{Context, Poll};

use cache::Piece;

use super::filter::{Compressor, Filter};
use super::{Coding, FlowError, Gate, Rank, Stretch, Tap};

/// Buffers longer than this are not pooled.
const KEPT_LENGTH: usize = 64 * 1024;

thread_local! {
    /// A pool of output buffers, which later directions with filters reuse.
    static MADE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A filter and its rank.
#[derive(Debug)]
struct FilterStage {
    rank: Rank,
    filter: Filter,
}

/// The filters of one direction.
#[derive(Debug)]
pub(crate) struct Filters {
    /// Other readers of the payload. They read it before the first filter.
    taps: Vec<Rc<Tap>>,
    stages: Vec<FilterStage>,
    /// Output of the last filter that is not staged yet. If there is any, it is preceded by `room` reserved bytes.
    made: Vec<u8>,
    /// How many bytes the coding of the body needs in front of the output.
    room: usize,
    /// Scratch memory for the output of compression.
    coded: Vec<u8>,
    /// Whether the last filter has passed on the end.
    is_over: bool,
    /// Whether the receiver is gone.
    discards: bool,
    /// How many bytes the receiver still expects, if script filters change a body with a declared length.
    pub(crate) promised: Option<u64>,
}

/// The next step of a direction with filters, once all their output has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextFilter {
    /// Nothing is queued, so more may be read.
    Free,
    /// Payload was passed on.
    Moved,
    /// A script has new payload to see.
    Unseen,
    /// The script filter at this index holds back payload that it has seen.
    Held(usize),
    /// The limits at this index currently allow nothing.
    Limited(usize),
    /// The cache no longer has the remaining payload.
    Cut,
}

impl Filters {
    /// Creates the list from filters in any order. Returns `None` if no filters are given.
    pub(crate) fn of(filters: impl IntoIterator<Item = (Rank, Filter)>) -> Option<Box<Self>> {
        let mut stages: Vec<FilterStage> =
            filters.into_iter().map(|(rank, filter)| FilterStage { rank, filter }).collect();
        if stages.is_empty() {
            return None;
        }
        stages.sort_by_key(|stage| stage.rank);
        Some(Self::in_order(stages))
    }

    fn in_order(stages: Vec<FilterStage>) -> Box<Self> {
        let made = MADE.with_borrow_mut(Vec::pop).unwrap_or_default();
        let (taps, coded) = (Vec::new(), Vec::new());
        Box::new(Self { taps, stages, made, room: 0, coded, is_over: false, discards: false, promised: None })
    }

    /// Adds other readers of the payload to a list, and creates the list if necessary.
    pub(crate) fn with_taps(own: Option<Box<Self>>, taps: &[Rc<Tap>]) -> Box<Self> {
        let mut own = own.unwrap_or_else(|| Self::in_order(Vec::new()));
        taps.iter().for_each(|tap| tap.start());
        own.taps.extend_from_slice(taps);
        own
    }

    /// Sets the coding of the output.
    pub(super) fn start(&mut self, coding: Coding) {
        self.room = coding.room();
    }

    /// Whether to yield to other tasks before more is read.
    pub(super) fn take_turns(&mut self, context: &Context<'_>) -> bool {
        let keeps = self.stages.iter_mut().any(|stage| match &mut stage.filter {
            Filter::Keep(own) => own.takes_turn(context),
            Filter::Compress(own) => own.takes_turn(),
            _ => false,
        });
        keeps || self.taps.iter().any(|tap| tap.takes_turn())
    }

    /// Returns the compression filter, for statistics.
    pub(crate) fn compressor(&self) -> Option<&Compressor> {
        self.stages.iter().find_map(|stage| match &stage.filter {
            Filter::Compress(own) => Some(&**own),
            _ => None,
        })
    }

    /// Whether any filter may change the payload or its timing.
    pub(crate) fn changes_payload(&self) -> bool {
        self.discards || self.stages.iter().any(|stage| stage.filter.changes_payload() || stage.runs_ahead())
    }

    /// Whether to continue reading although the receiver is blocked, because a cache stores the payload and other readers of the
    /// cache are faster. The task is woken when such a reader starts.
    pub(super) fn run_ahead(&mut self, context: &Context<'_>) -> bool {
        if !self.taps.is_empty() {
            return false;
        }
        for stage in &mut self.stages {
            match &mut stage.filter {
                Filter::Keep(own) => return own.run_ahead(context),
                Filter::Compress(_) => {}
                Filter::Hold(_) | Filter::Script(_) => return false,
            }
        }
        false
    }

    /// Returns whether others read the payload from a cache, and if so, whether they need more of it now.
    pub(super) fn feeds_others(&self, context: &Context<'_>) -> Option<bool> {
        self.stages.iter().find_map(|stage| match &stage.filter {
            Filter::Keep(own) => own.feeds_others(context),
            _ => None,
        })
    }

    /// The receiver is gone. From now on, the payload is only stored in the last cache, without limits.
    #[cold]
    pub(super) fn discard(&mut self) {
        let last = self.stages.iter().rposition(|stage| matches!(stage.filter, Filter::Keep(_)));
        self.stages.truncate(last.map_or(0, |last| last + 1));
        for stage in &mut self.stages {
            if let Filter::Keep(own) = &mut stage.filter {
                own.leave();
            }
        }
        self.discards = true;
        self.promised = None;
        self.made.clear();
    }

    /// Returns the stretches of ranks between the filters that change the payload. Limits and traces within a stretch see the
    /// same bytes.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        let mut from = Bound::Unbounded;
        let mut all = Vec::new();
        for stage in self.stages.iter().filter(|stage| stage.filter.changes_payload()) {
            all.push((from, Bound::Excluded(stage.rank)));
            from = Bound::Excluded(stage.rank);
        }
        all.push((from, Bound::Unbounded));
        all
    }

    /// Inserts `gate` at this rank.
    pub(crate) fn hold(&mut self, rank: Rank, gate: Gate) {
        let at = self.stages.partition_point(|stage| stage.rank < rank);
        self.stages.insert(at, FilterStage { rank, filter: Filter::hold(gate) });
    }

    /// Whether there are limits or traces in the list.
    pub(crate) fn has_gates(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage.filter, Filter::Hold(_)))
    }

    /// Removes the limits and traces. Called when no more bytes pass through them.
    pub(crate) fn remove_gates(&mut self) {
        self.stages.retain(|stage| !matches!(&stage.filter, Filter::Hold(_)));
    }

    /// Passes `data`, which no filter changes, to caches and other readers.
    pub(super) fn pass(&mut self, data: &[u8]) {
        self.taps.iter().for_each(|tap| tap.pass(data));
        for stage in &mut self.stages {
            if let Filter::Keep(own) = &mut stage.filter {
                own.data(data);
            }
        }
    }

    /// Filters `data`. Used if a filter changes the payload ([`changes_payload`](Self::changes_payload)).
    pub(super) fn data(&mut self, data: &[u8]) {
        self.taps.iter().for_each(|tap| tap.pass(data));
        self.put(0, data);
    }

    /// The sender's payload is complete.
    pub(super) fn end(&mut self) {
        self.taps.iter().for_each(|tap| tap.end());
        self.end_from(0);
    }

    /// Passes `data` to the filter at this index. After the last filter, appends it to the output.
    fn put(&mut self, from: usize, data: &[u8]) {
        for at in from..self.stages.len() {
            match &mut self.stages[at].filter {
                Filter::Keep(own) => {
                    own.data(data);
                    if own.runs_ahead() {
                        return;
                    }
                }
                Filter::Hold(own) => return own.queue.push(data),
                Filter::Script(own) => return own.queue.push(data),
                Filter::Compress(_) => {
                    self.code(at, |own, out| own.data(data, out));
                    return;
                }
            }
        }
        if !data.is_empty() && !self.discards {
            self.make_room();
            self.made.extend_from_slice(data);
        }
    }

    /// Returns the size of the output that is not staged yet.
    pub(super) fn made(&self) -> usize {
        self.made.len().saturating_sub(self.room)
    }

    /// Reserves room for the coding in front of the output.
    fn make_room(&mut self) {
        if self.made.is_empty() {
            self.made.resize(self.room, 0);
        }
    }

    /// Runs `make` on the compression filter at this index, and passes its output to the next filter. Returns whether there was
    /// output.
    fn code(&mut self, at: usize, make: impl FnOnce(&mut Compressor, &mut Vec<u8>)) -> bool {
        let is_last = at + 1 == self.stages.len();
        if is_last {
            self.make_room();
        }
        let Some(FilterStage { filter: Filter::Compress(own), .. }) = self.stages.get_mut(at) else {
            return false;
        };
        if is_last {
            let before = self.made.len();
            make(own, &mut self.made);
            return self.made.len() > before;
        }
        let mut coded = std::mem::take(&mut self.coded);
        make(own, &mut coded);
        self.put(at + 1, &coded);
        let has_coded = !coded.is_empty();
        coded.clear();
        self.coded = coded;
        has_coded
    }

    /// Ends the input of the filter at this index, and of the filters after it that have no queue.
    fn end_from(&mut self, from: usize) {
        for at in from..self.stages.len() {
            match &mut self.stages[at].filter {
                Filter::Keep(own) => {
                    own.end();
                    if own.runs_ahead() {
                        return;
                    }
                }
                Filter::Compress(_) => _ = self.code(at, Compressor::end),
                Filter::Hold(own) => {
                    own.queue.is_ended = true;
                    if !own.queue.is_empty() {
                        return;
                    }
                }
                Filter::Script(own) => {
                    own.queue.is_ended = true;
                    return;
                }
            }
        }
        self.is_over = true;
    }

    /// Flushes the compression filters from this index on. Returns whether there was output.
    pub(super) fn flush(&mut self, from: usize) -> bool {
        let mut has_given = false;
        for at in from..self.stages.len() {
            has_given |= self.code(at, Compressor::flush);
        }
        has_given
    }

    /// Moves the payload that was queued first, if the limits allow it. Otherwise, the calling task is woken when they do.
    pub(super) fn poll_turn(&mut self, context: &mut Context<'_>) -> NextFilter {
        for at in (0..self.stages.len()).rev() {
            match &mut self.stages[at].filter {
                Filter::Hold(own) if !own.queue.is_empty() => {
                    return self.poll_release(at, context);
                }
                Filter::Keep(own) if own.runs_ahead() => match own.poll_ahead(context) {
                    Some(piece) => return self.take_piece(at, piece),
                    None => continue,
                },
                Filter::Script(own) if own.holds() => {
                    return if own.has_unseen() && !own.is_full {
                        NextFilter::Unseen
                    } else {
                        NextFilter::Held(at)
                    };
                }
                _ => {}
            }
        }
        NextFilter::Free
    }

    /// Passes on a piece from a cache.
    #[cold]
    fn take_piece(&mut self, at: usize, piece: Piece) -> NextFilter {
        match piece {
            Piece::Bytes(bytes, range) => self.put(at + 1, bytes.get(range).unwrap_or_default()),
            Piece::End => self.end_from(at + 1),
            Piece::Cut => return NextFilter::Cut,
        }
        NextFilter::Moved
    }

    /// Forwards as much queued payload as the limits allow.
    fn poll_release(&mut self, at: usize, context: &mut Context<'_>) -> NextFilter {
        let Filter::Hold(own) = &mut self.stages[at].filter else { return NextFilter::Free };
        let waiting = own.queue.len();
        let allowed = loop {
            match own.gate.allow(waiting) {
                0 => match own.gate.poll_open(waiting, context) {
                    Poll::Ready(()) => {}
                    Poll::Pending => return NextFilter::Limited(at),
                },
                allowed => break allowed,
            }
        };
        let (bytes, from) = own.queue.lend();
        let passed = &bytes[from..from + allowed];
        own.gate.pass(passed);
        self.put(at + 1, passed);
        if let Filter::Hold(own) = &mut self.stages[at].filter {
            own.queue.give_back(bytes, from + allowed);
            if own.queue.is_empty() && own.queue.is_ended {
                self.end_from(at + 1);
            }
        }
        NextFilter::Moved
    }

    /// Whether payload is queued anywhere, so that nothing more may be read.
    pub(super) fn holds(&self) -> bool {
        self.stages.iter().any(|stage| stage.holds())
    }

    /// Whether the last filter has passed on the end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the indexes of the script filters, in order.
    pub(super) fn scripts(&self) -> Vec<usize> {
        let is_script = |at: &usize| matches!(self.stages[*at].filter, Filter::Script(_));
        (0..self.stages.len()).filter(is_script).collect()
    }

    /// Moves payload that a script filter has not seen to the end of `into`, up to `room` bytes. Returns `None` if a later filter
    /// must process its payload first.
    pub(super) fn take_unseen(
        &mut self,
        at: usize,
        into: &mut Vec<u8>,
        room: impl FnOnce(usize) -> usize,
    ) -> Option<Unseen> {
        if self.stages.get(at + 1..)?.iter().any(|stage| stage.holds_back()) {
            return None;
        }
        let Filter::Script(own) = &mut self.stages.get_mut(at)?.filter else { return None };
        if own.is_over {
            return None;
        }
        let before = into.len();
        own.queue.take(room(own.place), into);
        let is_ended = own.queue.is_ended && own.queue.is_empty();
        let is_news = into.len() > before || is_ended && !own.is_told;
        own.is_told |= is_ended;
        Some(Unseen { place: own.place, is_news, is_ended })
    }

    /// Forwards the output of a script filter. `is_over` marks the end of the output. If `is_full` is set, the filter takes no
    /// more input until it has forwarded something.
    pub(super) fn put_from_script(&mut self, at: usize, bytes: &[u8], is_over: bool, is_full: bool) {
        if let Some(FilterStage { filter: Filter::Script(own), .. }) = self.stages.get_mut(at) {
            own.is_full = is_full;
            own.is_over = is_over;
        }
        self.put(at + 1, bytes);
        if is_over {
            self.end_from(at + 1);
        }
    }

    /// The response is complete, so caches may store it.
    pub(crate) fn keep(&mut self) {
        for stage in &mut self.stages {
            if let Filter::Keep(own) = &mut stage.filter {
                own.finish();
            }
        }
    }

    /// Appends the output of the filters to `staged`. If `staged` is empty, swaps the buffers instead.
    ///
    /// # Errors
    /// The output does not match the length declared to the receiver.
    pub(super) fn give(&mut self, coding: Coding, staged: &mut Vec<u8>) -> Result<(), FlowError> {
        let payload = self.made.get(self.room..).unwrap_or_default();
        if let Some(left) = &mut self.promised {
            *left = left.checked_sub(payload.len() as u64).ok_or(FlowError::Filter)?;
            if self.is_over && *left > 0 {
                return Err(FlowError::Filter);
            }
        }
        if staged.is_empty() && !payload.is_empty() {
            coding.enclose(&mut self.made);
            std::mem::swap(&mut self.made, staged);
        } else {
            coding.write(payload, staged);
        }
        self.made.clear();
        Ok(())
    }
}

/// The payload that a script filter has not seen yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unseen {
    /// The index of the filter among the stream's filters.
    pub(crate) place: usize,
    /// Whether there is anything new, including the end.
    pub(crate) is_news: bool,
    /// Whether the payload ends after these bytes.
    pub(crate) is_ended: bool,
}

impl FilterStage {
    /// Whether the receiver reads from the cache.
    fn runs_ahead(&self) -> bool {
        matches!(&self.filter, Filter::Keep(own) if own.runs_ahead())
    }

    /// Whether payload is queued before or in the filter, so that nothing more may be read.
    fn holds(&self) -> bool {
        match &self.filter {
            Filter::Hold(own) => !own.queue.is_empty(),
            Filter::Script(own) => own.holds(),
            Filter::Keep(_) | Filter::Compress(_) => false,
        }
    }

    /// Whether the filter accepts no more payload for now.
    fn holds_back(&self) -> bool {
        match &self.filter {
            Filter::Hold(own) => !own.queue.is_empty(),
            Filter::Script(own) => own.is_full,
            Filter::Keep(_) | Filter::Compress(_) => false,
        }
    }
}

impl Drop for Filters {
    /// Returns the memory to the pool.
    fn drop(&mut self) {
        let mut made = std::mem::take(&mut self.made);
        made.clear();
        // The pool no longer exists when the thread exits.
        let _ = MADE.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.len() < 16
                && made.capacity() <= KEPT_LENGTH
            {
                kept.push(made);
            }
        });
    }
}
