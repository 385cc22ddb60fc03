//! The QUIC connections of a worker, for `show quic`. Each worker has its own register.
//!
//! `proxy` registers a connection with an object that describes it, and removes it at the end. `control` asks for snapshots by
//! posting a closure to each worker, so that an unobserved connection costs nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::Proxy;

/// A connection that can be described.
pub trait QuicConnection {
    /// Describes the connection; [`list`] sets its ID and worker.
    fn snapshot(&self) -> QuicSnapshot;
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuicState {
    /// The handshake is in progress.
    Handshake,
    /// Requests are served.
    Open,
    /// We closed it; the close is repeated if the peer sends more.
    Closing,
    /// The peer closed it: its last packets are ignored.
    Draining,
}

impl QuicState {
    /// Whether the connection was closed by either side.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Closing | Self::Draining)
    }
}

/// A connection at one time, which may be sent to other threads.
#[derive(Debug, Clone)]
pub struct QuicSnapshot {
    /// The number of the connection, unique in the process. Shown in hexadecimal.
    pub id: u64,
    /// The worker that serves it.
    pub worker: usize,
    /// The frontend that accepted it, or the backend of the server.
    pub proxy: Arc<Proxy>,
    /// Whether it is a connection to a server.
    pub is_to_server: bool,
    /// The state.
    pub state: QuicState,
    /// Our address.
    pub local: SocketAddr,
    /// The peer's current address.
    pub remote: SocketAddr,
    /// The descriptor of the socket: the listener's for clients.
    pub descriptor: i32,
    /// The time until the next timer of the connection.
    pub timer: Option<Duration>,
    /// Our transport parameters, in the format of RFC 9000, 18.
    pub local_parameters: Vec<u8>,
    /// The peer's; empty until they are known.
    pub remote_parameters: Vec<u8>,
    /// The path's statistics.
    pub path: QuicPath,
    /// Open requests, the oldest first.
    pub streams: Vec<QuicStreamSnapshot>,
    /// Protocol anomalies.
    pub glitches: u32,
}

/// The statistics of a connection's path.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "as in `quic::Stats`")]
pub struct QuicPath {
    pub rtt: Duration,
    pub rtt_variation: Duration,
    pub rtt_min: Duration,
    pub in_flight: u64,
    pub window: u64,
    pub slow_start_threshold: Option<u64>,
    pub mtu: u16,
    pub packets_sent: u64,
    pub packets_lost: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A request on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuicStreamSnapshot {
    /// The number of its stream.
    pub id: u64,
    /// Whether the request is complete.
    pub is_received: bool,
    /// Whether the response is complete.
    pub is_sent: bool,
    /// Bytes of the request that were received and not processed yet.
    pub held: usize,
    /// Bytes of the response that the transport did not take yet.
    pub queued: usize,
}

#[derive(Default)]
struct Register {
    connections: BTreeMap<u64, Rc<dyn QuicConnection>>,
    next: u64,
}

thread_local! {
    static REGISTER: RefCell<Register> = RefCell::default();
}

/// A registered connection. Dropping it removes the connection from the register.
#[derive(Debug)]
pub struct RegisteredQuic(u64);

impl Drop for RegisteredQuic {
    fn drop(&mut self) {
        // `try_with`, because a task may be dropped during thread exit.
        let removed = REGISTER.try_with(|register| register.borrow_mut().connections.remove(&self.0));
        drop(removed);
    }
}

/// Registers a connection on the calling worker.
#[must_use]
pub fn register(connection: Rc<dyn QuicConnection>) -> RegisteredQuic {
    REGISTER.with_borrow_mut(|register| {
        register.next += 1;
        let id = ((runtime::current_worker() as u64 + 1) << 40) | register.next;
        register.connections.insert(id, connection);
        RegisteredQuic(id)
    })
}

/// Returns the calling worker's connections that `wanted` accepts, the oldest first.
pub fn list(wanted: impl Fn(&QuicSnapshot) -> bool) -> Vec<QuicSnapshot> {
    let worker = runtime::current_worker();
    REGISTER.with_borrow(|register| {
        let all = register.connections.iter();
        let all = all.map(|(id, connection)| QuicSnapshot { id: *id, worker, ..connection.snapshot() });
        all.filter(wanted).collect()
    })
}
