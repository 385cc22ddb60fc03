//! A UDP relay between clients and a server that loses, delays, repeats and corrupts datagrams, and changes the client's address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The treatment of datagrams. Rates are per 1000 datagrams, in each direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Dropped datagrams.
    pub loss: u32,
    /// Datagrams that arrive after the next ones.
    pub reordering: u32,
    /// Datagrams that arrive twice.
    pub duplication: u32,
    /// Datagrams with a changed byte.
    pub corruption: u32,
    /// The number of the client's datagrams after which the server sees another address; 0 for never.
    pub address_change: u64,
    /// The number after which it sees another port of the same address; 0 for never.
    pub port_change: u64,
}

/// A running relay. It stops when the value is dropped.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    near: UdpSocket,
    server: SocketAddr,
    faults: Faults,
    client: Mutex<Option<SocketAddr>>,
    is_over: AtomicBool,
    addresses: AtomicU64,
    faulty: AtomicU64,
}

impl Relay {
    /// Starts a relay to a port of 127.0.0.1, for one client.
    pub fn start(server: u16, faults: Faults) -> Self {
        let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = near.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared {
            near,
            server: (Ipv4Addr::LOCALHOST, server).into(),
            faults,
            client: Mutex::default(),
            is_over: AtomicBool::new(false),
            addresses: AtomicU64::new(0),
            faulty: AtomicU64::new(0),
        });
        let own = shared.clone();
        std::thread::spawn(move || forward(&own));
        Self { port, shared }
    }

    /// The port for the client.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of addresses that the server has seen.
    pub fn addresses(&self) -> u64 {
        self.shared.addresses.load(Ordering::Relaxed)
    }

    /// The number of datagrams that were lost, delayed, repeated or corrupted.
    pub fn faulty(&self) -> u64 {
        self.shared.faulty.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// How long a thread waits for a datagram before it looks whether the relay is over, or delivers a delayed datagram.
const TICK: Duration = Duration::from_millis(20);

/// Passes on the datagrams of the client.
fn forward(shared: &Arc<Shared>) {
    let mut host = 1;
    let mut far = open_far(shared, host);
    let (mut count, mut lane) = (0, Lane::new(1));
    shared.near.set_read_timeout(Some(TICK)).expect("a socket");
    let mut bytes = [0; 2048];
    while !shared.is_over.load(Ordering::Relaxed) {
        match shared.near.recv_from(&mut bytes) {
            Ok((length, client)) => {
                *shared.client.lock().expect("no panic") = Some(client);
                count += 1;
                let is_due = |every: u64| every > 0 && count % every == 0;
                if is_due(shared.faults.address_change) {
                    host = host % 200 + 1;
                }
                if is_due(shared.faults.address_change) || is_due(shared.faults.port_change) {
                    far = open_far(shared, host);
                }
                lane.pass(shared, &mut bytes[..length], |bytes| far.send(bytes));
            }
            Err(_) => lane.flush(|bytes| far.send(bytes)),
        }
    }
}

/// Opens a socket towards the server, at a new port of this host of 127.0.0.0/24, and forwards the datagrams that arrive there.
fn open_far(shared: &Arc<Shared>, host: u8) -> Arc<UdpSocket> {
    let number = shared.addresses.fetch_add(1, Ordering::Relaxed);
    let address = Ipv4Addr::new(127, 0, 0, host);
    let far = UdpSocket::bind((address, 0)).expect("a free port");
    far.connect(shared.server).expect("an address");
    far.set_read_timeout(Some(TICK)).expect("a socket");
    let far = Arc::new(far);
    let (socket, shared) = (far.clone(), shared.clone());
    std::thread::spawn(move || {
        let mut lane = Lane::new(1000 + number);
        let mut bytes = [0; 2048];
        let client = || shared.client.lock().expect("no panic").unwrap_or(shared.server);
        while !shared.is_over.load(Ordering::Relaxed) {
            match socket.recv(&mut bytes) {
                Ok(length) => {
                    lane.pass(&shared, &mut bytes[..length], |bytes| shared.near.send_to(bytes, client()))
                }
                Err(_) => lane.flush(|bytes| shared.near.send_to(bytes, client())),
            }
        }
    });
    far
}

/// One direction.
struct Lane {
    random: fastrand::Rng,
    delayed: Vec<(u32, Vec<u8>)>,
}

impl Lane {
    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), delayed: Vec::new() }
    }

    fn pass(&mut self, shared: &Shared, bytes: &mut [u8], mut send: impl FnMut(&[u8]) -> io::Result<usize>) {
        let faults = &shared.faults;
        let [loss, reordering, duplication, corruption] =
            [faults.loss, faults.reordering, faults.duplication, faults.corruption]
                .map(|rate| self.random.u32(..1000) < rate);
        if loss || reordering || duplication || corruption {
            shared.faulty.fetch_add(1, Ordering::Relaxed);
        }
        if corruption && !bytes.is_empty() {
            let at = self.random.usize(..bytes.len());
            bytes[at] ^= 1 << self.random.u32(..8);
        }
        if reordering {
            self.delayed.push((self.random.u32(1..5), bytes.to_vec()));
        } else if !loss {
            let _ = send(bytes);
        }
        if duplication {
            let _ = send(bytes);
        }
        self.delayed.retain_mut(|(after, bytes)| {
            *after -= 1;
            if *after == 0 {
                let _ = send(bytes);
            }
            *after > 0
        });
    }

    fn flush(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<usize>) {
        for (_, bytes) in self.delayed.drain(..) {
            let _ = send(&bytes);
        }
    }
}
