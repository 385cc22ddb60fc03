//! The requests in flight on a multiplexed connection, by the slots of their streams.

use crate::clock::Nanos;
use crate::environment::Job;

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running<K> {
    pub(super) key: K,
    pub(super) job: Job,
    /// The status of the final response; 0 before it.
    pub(super) status: u16,
    /// The part of the body that was not sent yet.
    pub(super) unsent: u64,
}

/// Requests in flight.
#[derive(Debug)]
pub(super) struct Requests<K> {
    slots: Vec<Option<Running<K>>>,
    count: usize,
}

impl<K: Copy + PartialEq> Requests<K> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), count: 0 }
    }

    /// The number of requests.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a request in the slot of its stream.
    pub(super) fn put(&mut self, slot: usize, running: Running<K>) {
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.count += usize::from(self.slots[slot].replace(running).is_none());
    }

    /// The request of a stream.
    pub(super) fn get(&mut self, slot: usize, key: K) -> Option<&mut Running<K>> {
        self.slots.get_mut(slot)?.as_mut().filter(|running| running.key == key)
    }

    /// Removes the request of a stream.
    pub(super) fn take(&mut self, slot: usize, key: K) -> Option<Running<K>> {
        let place = self.slots.get_mut(slot)?;
        let running = place.take_if(|running| running.key == key)?;
        self.count -= 1;
        Some(running)
    }

    /// Removes all requests.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.count = 0;
        self.slots.iter_mut().filter_map(Option::take).map(|running| running.job)
    }

    /// A request without progress since `since`.
    pub(super) fn stalled(&self, since: Nanos) -> Option<K> {
        let is_stalled = |running: &&Running<K>| running.job.touched <= since;
        self.slots.iter().flatten().find(is_stalled).map(|running| running.key)
    }

    /// When the request that is longest without progress had some.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.slots.iter().flatten().map(|running| running.job.touched).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_by_slot_and_key() {
        let job = |touched| Job {
            request: 0,
            begun: 0,
            first_byte: 0,
            touched,
            is_repeated: false,
            is_first: false,
        };
        let running = |key, touched| Running { key, job: job(touched), status: 0, unsent: 0 };
        let mut all = Requests::new();
        all.put(2, running(7, 30));
        all.put(0, running(9, 20));
        assert_eq!((all.len(), all.oldest(), all.stalled(20), all.stalled(19)), (2, Some(20), Some(9), None));
        assert!(all.get(2, 8).is_none(), "the slot was used by another stream before");
        assert!(all.take(5, 7).is_none() && all.take(2, 7).is_some() && all.take(2, 7).is_none());
        assert_eq!(all.drain().count(), 1);
        assert_eq!((all.len(), all.oldest()), (0, None));
    }
}
