//! Which stream sends next: RFC 9218's urgency, then turns.
//!
//! A stream whose client said nothing about priority takes turns with the others, as in HAProxy; one
//! whose client did say and not "incremental" goes on until its end, as the RFC has it. Only streams
//! that have something to send and a window are in a queue.

use fields::Priority;

use crate::stream::{NONE, QUEUED, StreamState, Streams};

/// Urgencies.
const LEVELS: usize = 8;
/// Updates that are kept for streams which are not open yet.
const EARLY: usize = 4;

type QueueEnds = [(u32, u32); LEVELS];

/// Queues of streams that may send, one an urgency.
#[derive(Debug)]
pub(crate) struct SendQueues {
    /// The first and last of each; none before anything waited, as most connections never have it.
    ends: Option<Box<QueueEnds>>,
    /// A bit for each queue that is not empty.
    filled: u8,
}

impl SendQueues {
    pub(crate) fn new() -> SendQueues {
        SendQueues { ends: None, filled: 0 }
    }

    fn ends(&mut self) -> &mut QueueEnds {
        self.ends.get_or_insert_with(|| Box::new([(NONE, NONE); LEVELS]))
    }

    /// Whether a stream of this urgency or a more urgent one is in a queue.
    #[inline]
    pub(crate) fn is_before(&self, urgency: u8) -> bool {
        self.filled & (0xff >> (7 - urgency)) != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Puts a stream at the end of its queue, or at the front.
    pub(crate) fn push(&mut self, streams: &mut Streams, slot: u32, front: bool) {
        let stream = streams.at(slot);
        if stream.has(QUEUED) {
            return;
        }
        stream.flags |= QUEUED;
        let level = stream.urgency as usize;
        let ends = &mut self.ends()[level];
        let (first, last) = *ends;
        let (previous, next) = if front { (NONE, first) } else { (last, NONE) };
        (stream.previous, stream.next) = (previous, next);
        match previous {
            NONE => ends.0 = slot,
            _ => streams.at(previous).next = slot,
        }
        match next {
            NONE => ends.1 = slot,
            _ => streams.at(next).previous = slot,
        }
        self.filled |= 1 << level;
    }

    /// Takes a stream out of its queue, if it is in one.
    pub(crate) fn remove(&mut self, streams: &mut Streams, slot: u32) {
        let stream = streams.at(slot);
        if !stream.has(QUEUED) {
            return;
        }
        stream.flags &= !QUEUED;
        let StreamState { urgency, previous, next, .. } = *stream;
        let level = urgency as usize;
        let ends = &mut self.ends()[level];
        match previous {
            NONE => ends.0 = next,
            _ => streams.at(previous).next = next,
        }
        match next {
            NONE => ends.1 = previous,
            _ => streams.at(next).previous = previous,
        }
        if ends.0 == NONE {
            self.filled &= !(1 << level);
        }
    }

    /// The place of the stream whose turn it is; it leaves its queue.
    pub(crate) fn pop(&mut self, streams: &mut Streams) -> Option<u32> {
        if self.filled == 0 {
            return None;
        }
        let level = self.filled.trailing_zeros() as usize;
        let slot = self.ends()[level].0;
        self.remove(streams, slot);
        Some(slot)
    }

    /// Gives a stream another priority; its place in a queue follows.
    pub(crate) fn set(&mut self, streams: &mut Streams, slot: u32, priority: Priority) {
        let queued = streams.at(slot).has(QUEUED);
        self.remove(streams, slot);
        streams.at(slot).set_priority(priority);
        if queued {
            self.push(streams, slot, false);
        }
    }

    /// The places in the queues, the most urgent first.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn walk(&self, streams: &mut Streams) -> Vec<u32> {
        let mut all = Vec::new();
        for (first, last) in self.ends.as_deref().copied().unwrap_or([(NONE, NONE); LEVELS]) {
            let (mut slot, mut before) = (first, NONE);
            while slot != NONE {
                debug_assert_eq!(streams.at(slot).previous, before);
                all.push(slot);
                before = slot;
                slot = streams.at(slot).next;
            }
            debug_assert_eq!(before, last);
        }
        all
    }
}

/// The last few priorities that came before their streams (RFC 9218 section 7).
#[derive(Debug, Default)]
pub(crate) struct Early {
    kept: [Option<(u32, Priority)>; EARLY],
    at: u8,
}

impl Early {
    pub(crate) fn keep(&mut self, id: u32, priority: Priority) {
        if let Some(same) = self.kept.iter_mut().flatten().find(|kept| kept.0 == id) {
            same.1 = priority;
            return;
        }
        self.kept[self.at as usize] = Some((id, priority));
        self.at = (self.at + 1) % EARLY as u8;
    }

    pub(crate) fn take(&mut self, id: u32) -> Option<Priority> {
        let kept = self.kept.iter_mut().find(|kept| kept.is_some_and(|kept| kept.0 == id))?;
        kept.take().map(|kept| kept.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_serve_urgency_first_and_then_in_turns() {
        let (mut streams, mut ready) = (Streams::new(), SendQueues::new());
        for (n, urgency) in [3, 3, 0, 7, 3].into_iter().enumerate() {
            let key = streams.open(2 * n as u32 + 1, 0, 0);
            streams.at(key.slot).urgency = urgency;
            ready.push(&mut streams, key.slot, false);
        }
        assert_eq!(ready.walk(&mut streams), [2, 0, 1, 4, 3]);
        ready.remove(&mut streams, 1);
        ready.set(&mut streams, 3, Priority { urgency: 1, incremental: true });
        ready.push(&mut streams, 1, true);
        assert_eq!(ready.walk(&mut streams), [2, 3, 1, 0, 4]);
        assert!(ready.is_before(0));
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop(&mut streams)).collect();
        assert_eq!((order, ready.is_empty()), (vec![2, 3, 1, 0, 4], true));
    }

    #[test]
    fn few_early_priorities_are_kept() {
        let mut early = Early::default();
        for id in [1, 3, 3, 5, 7, 9] {
            early.keep(id, Priority { urgency: (id % 8) as u8, incremental: false });
        }
        assert_eq!(early.take(1), None);
        assert_eq!(early.take(9).map(|p| p.urgency), Some(1));
        assert_eq!((early.take(9), early.take(3).is_some()), (None, true));
    }
}
