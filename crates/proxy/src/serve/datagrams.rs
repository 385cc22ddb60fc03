//! Datagram sockets. One worker watches and reads a socket, and all workers of the bind line process its datagrams.
//!
//! All datagrams from one sender are processed by the same worker, in order. The other workers get their datagrams in batches
//! over a channel ([`runtime::datagrams`]), of which they received the receiving end as [`Incoming::Datagrams`]. Because there is
//! only one socket, no datagram is lost when a successor takes it over. Used by `log-forward` ([`forward`]).
//!
//! [`Incoming::Datagrams`]: super::handoff::Incoming::Datagrams

use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base::event_counter;
use base::event_counter::EventCounter;
use plan::Proxy;
use plan::global::MultiQueue;
use runtime::datagrams::{Batch, Sender, channel};
use runtime::{timer, worker};
use state::proxy::Admission;
use tokio::net::UdpSocket;

use super::handoff::{self, Datagrams, Incoming};
use super::log::forward;
use crate::worker::Worker;

pub(crate) static OVERFLOWED: EventCounter =
    event_counter!(Count, "finish()", "datagram dropped because the worker's queue is full");

/// The maximum size of a datagram.
const DATAGRAM: usize = 65_535;

/// How many datagrams and bytes are read before the task yields.
const TURN: usize = 64;
const TURN_BYTES: usize = 128 * 1024;

/// If a turn has at most this many datagrams, waking another worker is not worth the cost.
const FEW: usize = 8;

/// How many bytes of datagrams may wait for one worker.
const WAITING: usize = 256 * 1024;

/// The interval for checking whether processing has ended.
const LOOK: Duration = Duration::from_millis(1);

/// The number of sockets that are being read. The workers that read them change it when they start and end.
static READING: AtomicUsize = AtomicUsize::new(0);

/// Whether datagrams are being read, or were read but not processed yet. A stopping process waits until this is false.
pub fn is_active() -> bool {
    READING.load(Relaxed) > 0
}

/// Counts a socket that is being read.
struct Reading;

impl Reading {
    fn begin() -> Self {
        READING.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.fetch_sub(1, Relaxed);
    }
}

/// Processes this worker's share of the datagrams as long as the socket is read.
pub(super) async fn process(worker: Rc<Worker>, mut datagrams: Datagrams) {
    let proxy = worker.proxy(datagrams.frontend).plan.clone();
    let mut batch = Batch::default();
    while datagrams.receiver.receive(&mut batch).await {
        for (from, bytes) in batch.iter() {
            forward::datagram(&worker, &proxy, *from, bytes);
        }
        tokio::task::yield_now().await;
    }
}

/// Reads `socket`, a `dgram-bind` of frontend number `frontend`, until the frontend stops. `workers`
/// process the datagrams.
///
/// # Errors
/// The socket cannot be watched.
pub async fn serve(
    worker: Rc<Worker>,
    socket: OwnedFd,
    frontend: usize,
    workers: &[usize],
) -> io::Result<()> {
    let proxy = worker.proxy(frontend).plan.clone();
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    let mut buffer = vec![0; DATAGRAM];
    let mut spread = Spread::new(&worker, frontend, workers);
    let _reading = Reading::begin();
    while let Some(is_drained) = read(&proxy, &socket, &mut buffer, &mut spread).await {
        spread.finish(|from, bytes| forward::datagram(&worker, &proxy, from, bytes));
        if is_drained {
            spread.shrink();
        } else {
            tokio::task::yield_now().await;
        }
    }
    while !spread.is_idle() {
        timer::sleep(LOOK).await;
    }
    Ok(())
}

/// Reads one turn of datagrams into `spread`. Returns whether the socket is drained, or `None` once the frontend has stopped.
async fn read(proxy: &Proxy, socket: &UdpSocket, buffer: &mut [u8], spread: &mut Spread) -> Option<bool> {
    let listeners = proxy.state.listeners.load_full();
    poll_fn(|context| {
        let admission = proxy.state.admission();
        match admission {
            Admission::Stopped => return Poll::Ready(None),
            Admission::Open => {
                if let Poll::Ready(is_drained) = poll_turn(context, socket, buffer, spread) {
                    return Poll::Ready(Some(is_drained));
                }
            }
            Admission::Paused => {}
        }
        if let Some(listener) = listeners.last() {
            listener.wait(context.waker().clone());
        }
        if proxy.state.admission() != admission {
            // The state changed before the task had registered for changes.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

fn poll_turn(
    context: &mut Context<'_>,
    socket: &UdpSocket,
    buffer: &mut [u8],
    spread: &mut Spread,
) -> Poll<bool> {
    let mut room = tokio::io::ReadBuf::new(buffer);
    // An error affects only a single datagram, for example because an earlier answer was refused.
    if let Ok(from) = ready!(socket.poll_recv_from(context, &mut room)) {
        spread.take(from, room.filled());
    }
    let mut bytes = 0;
    for _ in 1..TURN {
        match socket.try_recv_from(buffer) {
            Ok((length, from)) => {
                spread.take(from, &buffer[..length]);
                bytes += length;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Ready(true),
            Err(_) => {}
        }
        if bytes > TURN_BYTES {
            break;
        }
    }
    Poll::Ready(false)
}

/// Distributes the datagrams of a turn to workers.
struct Spread {
    shares: Vec<Share>,
    hasher: RandomState,
    /// The number of datagrams in this turn.
    count: usize,
}

/// The datagrams of one worker.
#[derive(Default)]
struct Share {
    batch: Batch<SocketAddr>,
    /// The channel to the worker. `None` for the worker that reads the socket.
    sender: Option<Sender<SocketAddr>>,
}

impl Spread {
    /// Creates the channels, and passes the receiving ends to the other `workers`.
    fn new(worker: &Worker, frontend: usize, workers: &[usize]) -> Self {
        let (own, generation) = (worker.index, worker.shared.generation);
        let stays = worker.shared.plan.global.tune.multi_queue == MultiQueue::Off;
        let others = workers.iter().filter(|target| **target != own && !stays);
        let share_of = |target: &usize| {
            let (sender, receiver) = channel(WAITING);
            let datagrams = Datagrams { receiver, generation, frontend };
            worker::post(*target, move || handoff::start(Incoming::Datagrams(datagrams)));
            Share { sender: Some(sender), ..Share::default() }
        };
        Self::of([Share::default()].into_iter().chain(others.map(share_of)).collect())
    }

    fn of(shares: Vec<Share>) -> Self {
        Self { shares, hasher: RandomState::new(), count: 0 }
    }

    /// Adds a datagram to the share of the worker that processes its sender.
    fn take(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.count += 1;
        let at = match self.shares.len() {
            1 => 0,
            count => self.hasher.hash_one(from) as usize % count,
        };
        self.shares[at].batch.push(from, bytes);
    }

    /// Sends the other workers their shares, and passes the remaining datagrams to `process`: the share of this worker, shares
    /// that are too small to wake another worker, and datagrams that exceed the limit of their channel.
    fn finish(&mut self, mut process: impl FnMut(SocketAddr, &[u8])) {
        let is_small = std::mem::take(&mut self.count) <= FEW;
        for Share { batch, sender } in &mut self.shares {
            let Some(sender) = sender else { continue };
            // A worker that is not idle may still have earlier datagrams from the same senders.
            if batch.is_empty() || (is_small && sender.is_idle()) {
                continue;
            }
            sender.send(batch);
            batch.iter().for_each(|_| OVERFLOWED.note());
        }
        for Share { batch, .. } in &mut self.shares {
            batch.iter().for_each(|(from, bytes)| process(*from, bytes));
            batch.clear();
        }
    }

    /// Whether the other workers have processed their shares.
    fn is_idle(&self) -> bool {
        self.shares.iter().filter_map(|share| share.sender.as_ref()).all(Sender::is_idle)
    }

    /// Frees memory that was needed for a burst.
    fn shrink(&mut self) {
        self.shares.iter_mut().for_each(|share| share.batch.shrink());
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use runtime::datagrams::Receiver;

    use super::*;

    /// Returns a spread over three workers, and the receiving ends of the two others.
    fn three(limit: usize) -> (Spread, [Receiver<SocketAddr>; 2]) {
        let [(first, one), (second, two)] = [channel(limit), channel(limit)];
        let share = |sender| Share { sender, ..Share::default() };
        (Spread::of(vec![share(None), share(Some(first)), share(Some(second))]), [one, two])
    }

    fn sender(number: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1000 + number))
    }

    /// Returns the datagrams that wait in a channel, each as its sender and its number.
    fn received(receiver: &mut Receiver<SocketAddr>) -> Vec<(SocketAddr, u8)> {
        let mut batch = Batch::default();
        let _ = receiver.poll_receive(&Context::from_waker(Waker::noop()), &mut batch);
        batch.iter().map(|(from, bytes)| (*from, bytes[0])).collect()
    }

    fn finish(spread: &mut Spread) -> Vec<(SocketAddr, u8)> {
        let mut own = Vec::new();
        spread.finish(|from, bytes| own.push((from, bytes[0])));
        own
    }

    #[test]
    fn each_sender_has_one_worker_that_gets_its_datagrams_in_order() {
        let (mut spread, mut others) = three(WAITING);
        let mut all: [Vec<(SocketAddr, u8)>; 3] = Default::default();
        for turn in 0..4 {
            for number in 0..10 {
                (0..30).for_each(|from| spread.take(sender(from), &[turn * 10 + number]));
            }
            all[0].extend(finish(&mut spread));
            for (all, receiver) in all[1..].iter_mut().zip(&mut others) {
                all.extend(received(receiver));
            }
        }
        assert!(all.iter().all(|own| !own.is_empty()), "thirty senders have more than one worker");
        for from in 0..30 {
            let of_sender = |own: &&Vec<(SocketAddr, u8)>| own.iter().any(|(by, _)| *by == sender(from));
            let own: Vec<_> = all.iter().filter(of_sender).collect();
            let [own] = own[..] else { panic!("several workers for sender {from}") };
            let numbers: Vec<u8> =
                own.iter().filter(|(by, _)| *by == sender(from)).map(|(_, number)| *number).collect();
            assert_eq!(numbers, (0..40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_datagrams_wake_no_idle_worker_and_never_overtake() {
        let (mut spread, mut others) = three(WAITING);
        (0..90).for_each(|from| spread.take(sender(from), &[0]));
        assert!(finish(&mut spread).len() < 90);
        let [receiver, _] = &mut others;
        let (remote, _) = received(receiver)[0];
        // That worker has received the batch and may still be processing it.
        (0..8).for_each(|_| spread.take(remote, &[1]));
        assert_eq!(finish(&mut spread).len(), 0);
        assert_eq!(received(receiver).len(), 8);
        // From here on, the worker waits for more.
        assert!(received(receiver).is_empty());
        (0..8).for_each(|_| spread.take(remote, &[2]));
        assert_eq!(finish(&mut spread).len(), 8);
        (0..9).for_each(|_| spread.take(remote, &[3]));
        assert_eq!(finish(&mut spread).len(), 0);
        assert_eq!(received(receiver).len(), 9);
    }

    #[test]
    fn a_worker_that_does_not_keep_up_or_is_gone_loses_no_datagram() {
        let before = OVERFLOWED.count();
        let (mut spread, [mut slow, gone]) = three(2000);
        drop(gone);
        let mut own = 0;
        for number in 0..100 {
            (0..30).for_each(|from| spread.take(sender(from), &[number]));
            own += finish(&mut spread).len();
        }
        let waiting = received(&mut slow).len();
        assert!((1..=2000).contains(&waiting) && own + waiting == 3000);
        assert!(OVERFLOWED.count() > before);
    }
}
