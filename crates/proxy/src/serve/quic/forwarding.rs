//! Passes on datagrams that reach a worker other than that of their connection.
//!
//! Usually the kernel passes each datagram to the right socket (`net::steering`). It cannot if several workers share one socket,
//! because it is inherited or the kernel refuses the program, and for a moment after a socket was closed. The worker that receives such
//! a datagram forwards it over a bounded queue. Without that, it would answer with a stateless reset, which ends the connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use net::steering::SocketPlace;
use runtime::datagrams::{Batch, Receiver, Sender, channel};

/// The number of bytes of datagrams that may wait for one worker.
const WAITING: usize = 512 * 1024;

/// The description of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatagramInfo {
    pub(super) source: SocketAddr,
    /// The address that it was sent to, if the kernel reports it.
    pub(super) destination: Option<IpAddr>,
    /// The ECN bits of the IP header.
    pub(super) ecn: u8,
}

/// The shared state of the workers of a bind line.
#[derive(Debug)]
struct Colleagues {
    /// The queue of each worker, in the order of their indexes.
    senders: Box<[Sender<DatagramInfo>]>,
    /// Whether other sockets get the new connections. Set once, by a reload.
    is_retired: AtomicBool,
}

/// A worker's end of the queues between the workers of a bind line.
#[derive(Debug)]
pub struct DatagramQueue {
    receiver: Receiver<DatagramInfo>,
    colleagues: Arc<Colleagues>,
}

/// Retires the sockets of a bind line when others replace them.
#[derive(Debug, Clone)]
pub struct Retirement(Arc<Colleagues>);

impl Retirement {
    /// From now on, the workers accept no connections, and each closes its socket after the last one. They notice it when their tasks
    /// run.
    pub fn begin(&self) {
        self.0.is_retired.store(true, Relaxed);
    }

    /// Whether it has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.0.is_retired.load(Relaxed)
    }
}

impl DatagramQueue {
    /// Creates the queues of `count` workers.
    pub fn between(count: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel(WAITING)).unzip();
        let colleagues = Arc::new(Colleagues { senders: senders.into(), is_retired: AtomicBool::new(false) });
        receivers.into_iter().map(|receiver| Self { receiver, colleagues: colleagues.clone() }).collect()
    }

    /// Returns the value that retires the workers of these queues.
    pub fn retirement(&self) -> Retirement {
        Retirement(self.colleagues.clone())
    }

    /// Replaces the contents of `batch` with the forwarded datagrams. Pending without any.
    pub(super) fn poll_receive(
        &mut self,
        context: &Context<'_>,
        batch: &mut Batch<DatagramInfo>,
    ) -> Poll<bool> {
        self.receiver.poll_receive(context, batch)
    }
}

/// The datagrams that a worker forwards, until the end of its turn.
pub(super) struct Forwarder {
    place: SocketPlace,
    colleagues: Arc<Colleagues>,
    /// The datagrams for each worker; empty until there are any.
    batches: Vec<Batch<DatagramInfo>>,
}

impl Forwarder {
    pub(super) fn new(place: SocketPlace, queue: &DatagramQueue) -> Self {
        Self { place, colleagues: queue.colleagues.clone(), batches: Vec::new() }
    }

    /// Takes a datagram that belongs to another worker. Returns whether it does.
    pub(super) fn take(&mut self, info: DatagramInfo, datagram: &[u8]) -> bool {
        let own = usize::from(self.place.index.wrapping_sub(self.place.first));
        let share = self.place.share_of_datagram(datagram).unwrap_or(own);
        if share == own || share >= self.colleagues.senders.len() {
            return false;
        }
        self.batches.resize_with(self.colleagues.senders.len(), Batch::default);
        self.batches[share].push(info, datagram);
        true
    }

    /// Forwards the datagrams. Returns the number of those that were dropped because a queue was full.
    pub(super) fn finish(&mut self) -> usize {
        let mut dropped = 0;
        for (batch, sender) in
            self.batches.iter_mut().zip(&*self.colleagues.senders).filter(|(batch, _)| !batch.is_empty())
        {
            sender.send(batch);
            dropped += batch.len();
            batch.clear();
            batch.shrink();
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use ::quic::SocketIndex;

    use super::*;

    fn info() -> DatagramInfo {
        DatagramInfo { source: ([127, 0, 0, 1], 1).into(), destination: None, ecn: 0 }
    }

    /// A packet with a short header, for the connection of the worker at `index`.
    fn packet(index: u8) -> Vec<u8> {
        let mut id = [1, 2, 3, 4, 5, 6, 7, 8];
        SocketIndex(index).mark(&mut id);
        assert!(net::steering::is_issued(id), "both crates agree");
        [&[0x40][..], &id, &[0; 100]].concat()
    }

    fn received(queue: &mut DatagramQueue) -> usize {
        let mut batch = Batch::default();
        let polled = queue.poll_receive(&Context::from_waker(Waker::noop()), &mut batch);
        if polled.is_ready() { batch.len() } else { 0 }
    }

    #[test]
    fn datagrams_reach_the_worker_of_their_connection() {
        let mut queues = DatagramQueue::between(3);
        let place = SocketPlace { index: 11, first: 10, count: 3 };
        let mut forwarder = Forwarder::new(place, &queues[1]);
        assert!(forwarder.take(info(), &packet(10)));
        assert!(!forwarder.take(info(), &packet(11)), "its own");
        assert!(forwarder.take(info(), &packet(12)));
        assert!(forwarder.take(info(), &packet(12)));
        assert!(!forwarder.take(info(), &packet(13)), "of another process");
        assert!(!forwarder.take(info(), &[0x40]), "too short");
        assert_eq!(forwarder.finish(), 0);
        assert_eq!(queues.iter_mut().map(received).collect::<Vec<_>>(), [1, 0, 2]);
    }

    #[test]
    fn full_queues_drop_datagrams() {
        let mut queues = DatagramQueue::between(2);
        let place = SocketPlace { index: 0, first: 0, count: 2 };
        let mut forwarder = Forwarder::new(place, &queues[0]);
        let datagram = [packet(1), vec![0; 900]].concat();
        let count = 1000;
        for _ in 0..count {
            assert!(forwarder.take(info(), &datagram));
        }
        let dropped = forwarder.finish();
        assert!(dropped > 0);
        assert_eq!(received(&mut queues[1]), count - dropped);
        let gone = queues.remove(1);
        drop(gone);
        assert!(forwarder.take(info(), &datagram));
        assert_eq!(forwarder.finish(), 1, "the worker has ended");
    }
}
