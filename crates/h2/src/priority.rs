//! The order in which streams send: by RFC 9218's urgency, then round robin.
//!
//! As in HAProxy, streams without an explicit priority take turns. As the RFC specifies, a stream with an explicit priority that is
//! not "incremental" is sent to its end. Only streams with data to send and an open window are in a queue.

use fields::Priority;

use crate::stream::{NONE, QUEUED, StreamState, Streams};

/// The number of urgencies.
const LEVELS: usize = 8;
/// The number of updates kept for streams that are not open yet.
const EARLY: usize = 4;

type QueueEnds = [(u32, u32); LEVELS];

/// The queues of streams that may send, one per urgency.
#[derive(Debug)]
pub(crate) struct SendQueues {
    /// The first and last stream of each queue. Allocated when a stream waits for the first time, which never happens on most
    /// connections.
    ends: Option<Box<QueueEnds>>,
    /// A bit for each non-empty queue.
    filled: u8,
}

impl SendQueues {
    pub(crate) fn new() -> SendQueues {
        SendQueues { ends: None, filled: 0 }
    }

    fn ends(&mut self) -> &mut QueueEnds {
        self.ends.get_or_insert_with(|| Box::new([(NONE, NONE); LEVELS]))
    }

    /// Whether a stream of this or a higher urgency is queued.
    #[inline]
    pub(crate) fn is_before(&self, urgency: u8) -> bool {
        self.filled & (0xff >> (7 - urgency)) != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Adds a stream to the end or the front of its queue.
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

    /// Removes a stream from its queue, if it is in one.
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

    /// Removes the next stream from its queue and returns its slot.
    pub(crate) fn pop(&mut self, streams: &mut Streams) -> Option<u32> {
        if self.filled == 0 {
            return None;
        }
        let level = self.filled.trailing_zeros() as usize;
        let slot = self.ends()[level].0;
        self.remove(streams, slot);
        Some(slot)
    }

    /// Changes a stream's priority, and moves it to the matching queue.
    pub(crate) fn set(&mut self, streams: &mut Streams, slot: u32, priority: Priority) {
        let queued = streams.at(slot).has(QUEUED);
        self.remove(streams, slot);
        streams.at(slot).set_priority(priority);
        if queued {
            self.push(streams, slot, false);
        }
    }

    /// The queued slots, the most urgent first.
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

/// The last few priorities that arrived before their streams (RFC 9218 section 7).
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
    fn queues_are_served_by_urgency_then_round_robin() {
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
