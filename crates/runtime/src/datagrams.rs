//! A bounded channel that carries datagrams from one worker to another.
//!
//! [`worker::post`](crate::worker::post) suits connections: one closure and one wake-up each, without a
//! limit. Datagrams arrive in bursts, and a peer can send more of them than a worker processes. This
//! channel moves whole batches under one lock, wakes the receiving worker at most once per batch, and
//! limits the memory of waiting datagrams. Datagrams that exceed the limit stay with the sender, which
//! processes or drops them.
//!
//! The payloads of a [`Batch`] share one buffer. Both ends exchange their buffers, so a steady load
//! needs no allocation. `M` is a description of each datagram, such as the address of its peer.
//!
//! Caller: `proxy::serve::datagrams`, for sockets that several workers serve.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The capacity in bytes that an idle receiver and an empty channel keep.
const KEPT: usize = 16 * 1024;

/// Datagrams in order of arrival.
#[derive(Debug)]
pub struct Batch<M> {
    bytes: Vec<u8>,
    /// The description of each datagram, with the end of its payload in `bytes`.
    entries: Vec<(M, usize)>,
}

impl<M> Default for Batch<M> {
    fn default() -> Self {
        Self { bytes: Vec::new(), entries: Vec::new() }
    }
}

impl<M> Batch<M> {
    /// The memory in bytes that a datagram of this length takes.
    #[must_use]
    pub const fn size_of(length: usize) -> usize {
        length + size_of::<(M, usize)>()
    }

    /// Appends a datagram. The payload is copied.
    pub fn push(&mut self, meta: M, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.entries.push((meta, self.bytes.len()));
    }

    /// Number of datagrams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it contains no datagrams.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that all datagrams take, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * Self::size_of(0)
    }

    /// The datagrams, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&M, &[u8])> {
        (0..self.len()).map(|at| (&self.entries[at].0, &self.bytes[self.range(at)]))
    }

    /// Removes all datagrams and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// The range of the payload of datagram `at` in `bytes`.
    fn range(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].1);
        start..self.entries[at].1
    }

    /// Number of datagrams at the front that fit into `room` bytes.
    fn fitting(&self, room: usize) -> usize {
        let size_to = |at: usize| self.entries[at].1 + (at + 1) * Self::size_of(0);
        // Sizes grow with the position.
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if size_to(middle) <= room { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Moves the first `count` datagrams to the end of `other`.
    fn move_front(&mut self, count: usize, other: &mut Self) {
        let Some(last) = count.checked_sub(1) else { return };
        let (start, end) = (other.bytes.len(), self.entries[last].1);
        other.bytes.extend(self.bytes.drain(..end));
        other.entries.extend(self.entries.drain(..count).map(|(meta, at)| (meta, start + at)));
        for (_, at) in &mut self.entries {
            *at -= end;
        }
    }

    /// Frees the buffers of an empty batch if they are large.
    pub fn shrink(&mut self) {
        if self.is_empty() && self.bytes.capacity() + self.entries.capacity() * Self::size_of(0) > KEPT {
            *self = Self::default();
        }
    }
}

/// The state of a channel. Written by the workers of both ends.
#[derive(Debug)]
struct ChannelState<M> {
    waiting: Batch<M>,
    /// Set while the receiver waits.
    waker: Option<Waker>,
    is_closed: bool,
}

#[derive(Debug)]
struct ChannelShared<M> {
    state: Mutex<ChannelState<M>>,
    limit: usize,
}

impl<M> ChannelShared<M> {
    fn lock(&self) -> MutexGuard<'_, ChannelState<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the channel and wakes the receiver.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Makes a channel. Datagrams that wait in it take at most `limit` bytes ([`Batch::size`]); a single
/// datagram beyond that is never accepted.
#[must_use]
pub fn channel<M>(limit: usize) -> (Sender<M>, Receiver<M>) {
    let state = ChannelState { waiting: Batch::default(), waker: None, is_closed: false };
    let shared = Arc::new(ChannelShared { state: Mutex::new(state), limit });
    (Sender(shared.clone()), Receiver(shared))
}

/// The sending end. When it is dropped, the receiver ends after the waiting datagrams.
#[derive(Debug)]
pub struct Sender<M>(Arc<ChannelShared<M>>);

impl<M> Sender<M> {
    /// Moves datagrams from the front of `batch` into the channel, as many as fit, and wakes the receiver if it waits. The others
    /// stay in `batch`; if the receiver is gone, all of them do.
    pub fn send(&self, batch: &mut Batch<M>) {
        let mut state = self.0.lock();
        if batch.is_empty() || state.is_closed {
            return;
        }
        if state.waiting.is_empty() && batch.size() <= self.0.limit {
            std::mem::swap(&mut state.waiting, batch);
        } else {
            let room = self.0.limit.saturating_sub(state.waiting.size());
            batch.move_front(batch.fitting(room), &mut state.waiting);
        }
        let waker = if state.waiting.is_empty() { None } else { state.waker.take() };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether the receiver has processed all sent datagrams and waits for more, or is gone.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.waker.is_some() || state.is_closed
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The receiving end, which may move to another worker before its first use. Dropping it closes the
/// channel and discards the datagrams that wait.
#[derive(Debug)]
pub struct Receiver<M>(Arc<ChannelShared<M>>);

impl<M> Receiver<M> {
    /// Replaces the contents of `batch` with all waiting datagrams; waits for one if necessary. Returns `false` once the sender is
    /// gone and everything was received.
    pub fn poll_receive(&mut self, context: &Context<'_>, batch: &mut Batch<M>) -> Poll<bool> {
        batch.clear();
        let mut state = self.0.lock();
        if !state.waiting.is_empty() {
            std::mem::swap(&mut state.waiting, batch);
            return Poll::Ready(true);
        }
        if state.is_closed {
            return Poll::Ready(false);
        }
        batch.shrink();
        state.waiting.shrink();
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Like [`poll_receive`](Self::poll_receive).
    pub async fn receive(&mut self, batch: &mut Batch<M>) -> bool {
        poll_fn(|context| self.poll_receive(context, batch)).await
    }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.is_closed, state.waker) = (true, None);
        state.waiting = Batch::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;
    use std::thread;

    use super::*;

    /// Counts the wake-ups, and unparks the thread that created it.
    struct Bell(AtomicUsize, thread::Thread);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
            self.1.unpark();
        }
    }

    fn bell() -> Arc<Bell> {
        Arc::new(Bell(AtomicUsize::new(0), thread::current()))
    }

    fn batch(payloads: &[&[u8]]) -> Batch<usize> {
        let mut batch = Batch::default();
        for (number, payload) in payloads.iter().enumerate() {
            batch.push(number, payload);
        }
        batch
    }

    fn contents(batch: &Batch<usize>) -> Vec<(usize, Vec<u8>)> {
        batch.iter().map(|(number, payload)| (*number, payload.to_vec())).collect()
    }

    #[test]
    fn datagrams_arrive_in_order_with_their_bounds() {
        let (sender, mut receiver) = channel(10_000);
        let waker = bell().into();
        let context = Context::from_waker(&waker);
        sender.send(&mut batch(&[b"one", b"", b"three"]));
        let mut second = batch(&[b"four"]);
        sender.send(&mut second);
        assert!(second.is_empty());
        let mut received = batch(&[b"old contents"]);
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Ready(true));
        let expected = [(0, &b"one"[..]), (1, b""), (2, b"three"), (0, b"four")];
        assert_eq!(contents(&received), expected.map(|(number, payload)| (number, payload.to_vec())));
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Pending);
        assert!(received.is_empty());
    }

    #[test]
    fn datagrams_beyond_the_limit_stay_with_the_sender() {
        let each = Batch::<usize>::size_of(10);
        for limit in [0, each - 1, each, 3 * each, 3 * each + 5, 4 * each, 10 * each] {
            let (sender, mut receiver) = channel(limit);
            let waker = bell().into();
            let context = Context::from_waker(&waker);
            let (mut accepted, mut kept) = (Vec::new(), Vec::new());
            // In one batch, or in several batches that are appended.
            for part in [&[[b'a'; 10], [b'b'; 10]][..], &[[b'c'; 10], [b'd'; 10], [b'e'; 10]]] {
                let payloads: Vec<&[u8]> = part.iter().map(<[u8; 10]>::as_slice).collect();
                let mut batch = batch(&payloads);
                sender.send(&mut batch);
                kept.extend(contents(&batch));
            }
            let mut received = Batch::default();
            if receiver.poll_receive(&context, &mut received).is_ready() {
                assert!(received.size() <= limit, "{limit}");
                accepted = contents(&received);
            }
            assert_eq!(accepted.len(), (limit / each).min(5), "{limit}");
            let payload = |(_, payload): &(usize, Vec<u8>)| payload[0];
            let mut all: Vec<u8> = accepted.iter().chain(&kept).map(payload).collect();
            assert!(accepted.iter().map(payload).is_sorted() && kept.iter().map(payload).is_sorted());
            all.sort_unstable();
            assert_eq!(all, b"abcde", "{limit}");
        }
    }

    #[test]
    fn a_waiting_receiver_is_woken_once_per_batch() {
        let (sender, mut receiver) = channel(10_000);
        let bell = bell();
        let waker = bell.clone().into();
        let (context, mut received) = (Context::from_waker(&waker), Batch::default());
        assert!(!sender.is_idle(), "it never waited");
        for round in 1..4 {
            assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Pending);
            assert!(sender.is_idle());
            sender.send(&mut Batch::default());
            assert_eq!(bell.0.load(SeqCst), round - 1, "nothing was sent");
            for _ in 0..3 {
                sender.send(&mut batch(&[b"one", b"two"]));
                assert!(!sender.is_idle());
            }
            assert_eq!(bell.0.load(SeqCst), round);
            assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Ready(true));
            assert!(received.len() == 6 && !sender.is_idle(), "it is at work");
        }
    }

    #[test]
    fn either_end_closes_the_channel() {
        let (sender, mut receiver) = channel(10_000);
        let bell = bell();
        let waker = bell.clone().into();
        let (context, mut received) = (Context::from_waker(&waker), Batch::default());
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Pending);
        sender.send(&mut batch(&[b"last"]));
        drop(sender);
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Ready(true));
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Ready(false));

        let (sender, mut receiver) = channel(10_000);
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Pending);
        let before = bell.0.load(SeqCst);
        drop(sender);
        assert_eq!(bell.0.load(SeqCst), before + 1);
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Ready(false));

        let (sender, receiver) = channel(10_000);
        drop(receiver);
        let mut refused = batch(&[b"one", b"two"]);
        sender.send(&mut refused);
        assert!(refused.len() == 2 && sender.is_idle());
    }

    #[test]
    fn an_idle_channel_keeps_little_memory() {
        let (sender, mut receiver) = channel(1 << 20);
        let waker = bell().into();
        let (context, mut received) = (Context::from_waker(&waker), Batch::default());
        for _ in 0..3 {
            sender.send(&mut batch(&[&[b'x'; 500_000]]));
            sender.send(&mut batch(&[&[b'y'; 500_000]]));
            assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Ready(true));
        }
        assert_eq!(receiver.poll_receive(&context, &mut received), Poll::Pending);
        let state = sender.0.lock();
        for batch in [&received, &state.waiting] {
            assert!(batch.bytes.capacity() + batch.entries.capacity() * Batch::<usize>::size_of(0) <= KEPT);
        }
    }

    #[test]
    fn no_datagram_is_lost_between_threads() {
        const COUNT: usize = 50_000;
        let (sender, mut receiver) = channel::<usize>(4_000);
        let consumer = thread::spawn(move || {
            let waker = bell().into();
            let (context, mut batch, mut next) = (Context::from_waker(&waker), Batch::default(), 0_usize);
            loop {
                match receiver.poll_receive(&context, &mut batch) {
                    Poll::Pending => thread::park(),
                    Poll::Ready(false) => return next,
                    Poll::Ready(true) => {
                        for (number, payload) in batch.iter() {
                            assert_eq!((*number, payload), (next, &next.to_be_bytes()[..next % 8]));
                            next += 1;
                        }
                    }
                }
            }
        });
        let mut batch = Batch::default();
        for number in 0..COUNT {
            batch.push(number, &number.to_be_bytes()[..number % 8]);
            if number % 7 == 0 {
                sender.send(&mut batch);
            }
        }
        while !batch.is_empty() {
            sender.send(&mut batch);
            thread::yield_now();
        }
        drop(sender);
        assert_eq!(consumer.join().expect("every datagram in order"), COUNT);
    }
}
