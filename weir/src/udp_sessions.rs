//! UDP sessions that move from a process to its successor, over a link that is passed with the listening sockets.
//!
//! Once its workers run, the successor requests the sessions ([`take_over`]). The old process then stops reading its sockets, and
//! sends all sessions with the sockets to their servers before it ends ([`finish`]). If it does not answer in time, the successor
//! continues without them.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use net::pass::{self, Passed};
use proxy::serve::udp::hand_over::{self, PassedRoute, PassedSession, SessionFacts};
use proxy::serve::udp::{SuccessorGuard, expect_sessions, worker_of_inode};

/// The mark at the beginning of the note about the link.
const MARK: u8 = b'U';

/// The longest time for each step of the old process.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of sessions in a message.
const BATCH: usize = 64;

/// The number of QUIC connection IDs in a message.
const ROUTES: usize = 1000;

/// The bit that is set in the length of a message with QUIC connection IDs.
const OF_ROUTES: u32 = 1 << 31;

/// The maximum message size in bytes: a batch with its addresses, names and numbers.
const LARGEST: u32 = 1 << 20;

/// The link to the process that this one replaces.
static LINK: Mutex<Option<UnixStream>> = Mutex::new(None);

fn link() -> MutexGuard<'static, Option<UnixStream>> {
    LINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of successors that are getting the sessions of this process.
static TRANSFERS: Mutex<usize> = Mutex::new(0);

/// Notified when a transfer ends.
static TRANSFER_END: Condvar = Condvar::new();

/// A successor that is getting the sessions.
struct Transfer;

impl Transfer {
    fn begin() -> Self {
        *TRANSFERS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        *TRANSFERS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TRANSFER_END.notify_all();
    }
}

/// Waits until each successor that has requested the sessions has received them. Called before the process ends: its workers have
/// nothing left to do once they have released their sessions.
pub(crate) fn finish() {
    let transfers = TRANSFERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A successor that does not read ends its transfer, so the wait is bounded.
    drop(TRANSFER_END.wait_while(transfers, |count| *count > 0));
}

/// Keeps the link, if `passed` is one; otherwise returns it.
pub(crate) fn keep(passed: Passed<OwnedFd>) -> Option<Passed<OwnedFd>> {
    if passed.note[0] != MARK {
        return Some(passed);
    }
    let stream = UnixStream::from(passed.socket);
    // A link that is not a stream fails later.
    let _ = stream.set_nonblocking(false);
    *link() = Some(stream);
    expect_sessions(true);
    None
}

/// Closes the link of a process that does not serve.
pub(crate) fn forget() {
    *link() = None;
}

/// Returns the end of a new link for a successor, and waits on a thread until it requests the sessions.
pub(crate) fn offer() -> io::Result<Passed<OwnedFd>> {
    let (ours, theirs) = UnixStream::pair()?;
    let guard = SuccessorGuard::begin();
    std::thread::Builder::new().name("weir/sessions".into()).spawn(move || {
        let _guard = guard;
        // The successor may end without a request.
        let _ = serve(&ours);
    })?;
    Ok(Passed {
        socket: theirs.into(),
        namespace: String::new(),
        interface: String::new(),
        note: [MARK, 0, 0, 0],
    })
}

/// Waits for the request, and answers it.
fn serve(mut link: &UnixStream) -> io::Result<()> {
    link.read_exact(&mut [0])?;
    let _transfer = Transfer::begin();
    link.set_write_timeout(Some(PATIENCE))?;
    let (sender, released) = mpsc::channel();
    for worker in 0..runtime::shard::workers() {
        let sender = sender.clone();
        runtime::worker::post(worker, move || {
            // The receiver waits for all workers.
            let _ = sender.send(hand_over::release());
        });
    }
    drop(sender);
    for all in released {
        for batch in all.chunks(BATCH) {
            send(link, batch)?;
        }
    }
    let (sender, known) = mpsc::channel();
    runtime::worker::post(0, move || {
        let routes = proxy::worker::now().map(|worker| hand_over::routes(&worker.shared.plan));
        // The receiver waits.
        let _ = sender.send(routes.unwrap_or_default());
    });
    for batch in known.recv().unwrap_or_default().chunks(ROUTES) {
        let mut bytes = vec![0; 4];
        batch.iter().for_each(|route| route.write(&mut bytes));
        let length = (bytes.len() - 4) as u32 | OF_ROUTES;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        link.write_all(&bytes)?;
    }
    link.write_all(&0u32.to_le_bytes())
}

fn send(link: &UnixStream, batch: &[PassedSession]) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    for session in batch {
        bytes.extend_from_slice(&session.inode.to_le_bytes());
        session.facts.write(&mut bytes);
    }
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let sockets: Vec<_> = batch.iter().map(|session| session.socket.as_fd()).collect();
    pass::send(link, &bytes, &sockets)
}

/// Requests the sessions of the process that this one replaces, if there is a link. Called once all workers serve their sockets.
pub(crate) fn take_over() {
    let Some(link) = link().take() else { return };
    let started = std::thread::Builder::new().name("weir/sessions".into()).spawn(move || {
        // Without the old process, its sessions are lost.
        let _ = receive(&link);
        go_on();
    });
    if started.is_err() {
        go_on();
    }
}

/// Lets all workers read their sockets.
fn go_on() {
    expect_sessions(false);
    for worker in 0..runtime::shard::workers() {
        runtime::worker::post(worker, hand_over::begin_reading);
    }
}

fn receive(mut link: &UnixStream) -> io::Result<()> {
    link.set_read_timeout(Some(PATIENCE))?;
    link.set_write_timeout(Some(PATIENCE))?;
    link.write_all(&[0])?;
    loop {
        let mut length = [0; 4];
        // The sockets arrive with the first byte.
        let (had, sockets) = pass::receive(link, &mut length)?;
        link.read_exact(&mut length[had..])?;
        let length = u32::from_le_bytes(length);
        let (size, has_routes) = (length & !OF_ROUTES, length & OF_ROUTES != 0);
        if size == 0 || size > LARGEST || had == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; size as usize];
        link.read_exact(&mut bytes)?;
        let mut rest = &bytes[..];
        if has_routes {
            let all: Vec<PassedRoute> = std::iter::from_fn(|| PassedRoute::read(&mut rest)).collect();
            runtime::worker::post(0, move || {
                if let Some(worker) = proxy::worker::now() {
                    all.iter().for_each(|route| hand_over::learn(&worker.shared.plan, route));
                }
            });
            continue;
        }
        for socket in sockets {
            let Some(inode) = rest.split_off(..8).and_then(|bytes| bytes.first_chunk()) else { break };
            let Some(facts) = SessionFacts::read(&mut rest) else { break };
            let inode = u64::from_le_bytes(*inode);
            let passed = PassedSession { inode, socket, facts };
            if let Some(worker) = worker_of_inode(inode) {
                runtime::worker::post(worker, move || hand_over::adopt(passed));
            }
        }
    }
}
