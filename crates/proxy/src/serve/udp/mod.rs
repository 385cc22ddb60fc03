//! UDP load balancing (`udp-lb` sections).
//!
//! Each socket of a `dgram-bind` line has one task on one worker, a [`Shard`]. The kernel distributes clients among the sockets of an
//! address, so a client always reaches the same shard, which has the client's session. [`udplb`] keeps the sessions and decides when
//! they end; [`begin`] chooses the server of a new one, [`forward`] moves datagrams, and [`end`] counts and logs.
//!
//! A shard outlives plans: at a reload in place it follows the new plan with all its sessions ([`shard::Shard::follow`]). A process
//! that replaces this one gets the sockets of all sessions ([`hand_over`]).

mod begin;
mod end;
mod flow;
mod forward;
pub mod hand_over;
mod place;
mod routes;
mod shard;
mod slots;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::worker::Worker;
use shard::Shard;

thread_local! {
    /// The shards of the calling worker.
    static SHARDS: RefCell<Vec<Rc<Shard>>> = RefCell::default();
}

/// A socket with a shard.
struct ServedSocket {
    inode: u64,
    worker: usize,
    address: SocketAddr,
}

/// The sockets that have a shard. Changed when a shard begins or ends.
static PLACES: Mutex<Vec<ServedSocket>> = Mutex::new(Vec::new());

fn places() -> std::sync::MutexGuard<'static, Vec<ServedSocket>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bit for each port that a shard has had, so that most lookups in [`PLACES`] are avoided.
static PORTS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn port_bit(port: u16) -> (&'static AtomicU64, u64) {
    (&PORTS[usize::from(port / 64)], 1 << (port % 64))
}

/// Whether a shard receives the datagrams that are sent to `source`, which has sent to `destination`. With a forged source, an answer
/// would begin another session, the answer in that one a third, and so on.
fn is_served(source: SocketAddr, destination: Option<IpAddr>) -> bool {
    let (bits, bit) = port_bit(source.port());
    if bits.load(Relaxed) & bit == 0 {
        return false;
    }
    let ip = source.ip().to_canonical();
    let is_local = ip.is_loopback() || destination.is_some_and(|own| own.to_canonical() == ip);
    places()
        .iter()
        .map(|own| own.address)
        .any(|own| own.port() == source.port() && (own.ip() == ip || own.ip().is_unspecified() && is_local))
}

/// The kernel's number of a socket, which all copies of its descriptor share.
fn inode(socket: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(socket)?.st_ino)
}

/// The number of successors that have the sockets and may request the sessions.
static SUCCESSORS: AtomicUsize = AtomicUsize::new(0);

/// Whether another process is going to pass its sessions, so that sockets are not read yet.
static EXPECTS: AtomicBool = AtomicBool::new(false);

/// A successor that has the sockets. While it exists, clients still get sessions although the process stops, because the successor
/// takes these over.
#[derive(Debug)]
pub struct SuccessorGuard(());

impl SuccessorGuard {
    /// Counts a successor.
    pub fn begin() -> Self {
        SUCCESSORS.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for SuccessorGuard {
    fn drop(&mut self) {
        SUCCESSORS.fetch_sub(1, Relaxed);
    }
}

/// Sets whether another process is going to pass its sessions. Shards that begin in the meantime wait for
/// [`begin_reading`](hand_over::begin_reading).
pub fn expect_sessions(expects: bool) {
    EXPECTS.store(expects, Relaxed);
}

/// The worker that serves a socket already; `None` for a new socket.
pub fn worker_of(socket: impl AsFd) -> Option<usize> {
    worker_of_inode(inode(socket).ok()?)
}

/// The worker that serves the socket with this inode; `None` if no worker does.
pub fn worker_of_inode(inode: u64) -> Option<usize> {
    places().iter().find(|own| own.inode == inode).map(|own| own.worker)
}

/// Serves `socket`, which belongs to bind line `bind` of `frontend`. A socket that is served already follows the worker's plan instead,
/// without a future. The future is ready when the frontend has stopped and its sessions have ended. It returns the place of the
/// socket in the plan in use, if that has it: the frontend and the bind line.
///
/// # Errors
/// The socket cannot be watched.
pub fn serve(
    worker: Rc<Worker>,
    socket: OwnedFd,
    frontend: usize,
    bind: usize,
) -> io::Result<Option<impl Future<Output = Option<(usize, usize)>>>> {
    let inode = inode(&socket)?;
    let known = SHARDS.with_borrow(|shards| shards.iter().find(|shard| shard.inode == inode).cloned());
    if let Some(known) = known {
        known.follow(worker, frontend, bind);
        return Ok(None);
    }
    let shard = Rc::new(Shard::new(worker.clone(), socket, inode, frontend, bind)?);
    SHARDS.with_borrow_mut(|shards| shards.push(shard.clone()));
    let address = shard.socket.local_addr();
    places().push(ServedSocket { inode, worker: worker.index, address });
    let (bits, bit) = port_bit(address.port());
    bits.fetch_or(bit, Relaxed);
    drop(worker);
    Ok(Some(async move {
        shard.run().await;
        SHARDS.with_borrow_mut(|shards| shards.retain(|other| !Rc::ptr_eq(other, &shard)));
        places().retain(|other| other.inode != inode);
        let place = shard.place();
        (!place.worker.is_old()).then(|| (place.frontend.index, place.bind))
    }))
}

/// Ends the calling worker's shards that the plan of `worker` does not have. Called once it has all of its sockets.
pub fn leave_others(worker: &Worker) {
    SHARDS.with_borrow(|shards| {
        shards
            .iter()
            .filter(|shard| shard.generation() != worker.shared.generation)
            .for_each(|shard| shard.stop());
    });
}
