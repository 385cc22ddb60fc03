//! A UDP relay between a client and a server that loses, delays, repeats and corrupts datagrams, and changes the addresses of both.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
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
    /// Sends the server's datagrams if `is_moved`.
    other: UdpSocket,
    /// The port of 127.0.0.1 on which the server listens.
    server: AtomicU16,
    is_cut: AtomicBool,
    is_moved: AtomicBool,
    faults: Faults,
    client: Mutex<Option<SocketAddr>>,
    is_over: AtomicBool,
    addresses: AtomicU64,
    faulty: AtomicU64,
}

impl Relay {
    /// Starts a relay to a port of 127.0.0.1, for one client.
    pub fn start(server: u16, faults: Faults) -> Self {
        let [near, other] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
        let port = near.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared {
            near,
            other,
            server: AtomicU16::new(server),
            is_cut: AtomicBool::new(false),
            is_moved: AtomicBool::new(false),
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

    /// Drops all datagrams from now on.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::Relaxed);
    }

    /// Sends the server's datagrams from another port from now on.
    pub fn answer_from_another_port(&self) {
        self.shared.is_moved.store(true, Ordering::Relaxed);
    }

    /// Sends the client's next datagrams to the server at another port of 127.0.0.1.
    pub fn replace_server(&self, port: u16) {
        self.shared.server.store(port, Ordering::Relaxed);
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
    let mut server = shared.server.load(Ordering::Relaxed);
    let mut far = open_far(shared, server, host);
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
                let current = shared.server.load(Ordering::Relaxed);
                let is_replaced = std::mem::replace(&mut server, current) != current;
                if is_due(shared.faults.address_change) || is_due(shared.faults.port_change) || is_replaced {
                    far = open_far(shared, server, host);
                }
                lane.pass(shared, &mut bytes[..length], |bytes| far.send(bytes));
            }
            Err(_) => lane.flush(|bytes| far.send(bytes)),
        }
    }
}

/// Opens a socket towards the server, at a new port of this host of 127.0.0.0/24, and forwards the datagrams that arrive there.
fn open_far(shared: &Arc<Shared>, server: u16, host: u8) -> Arc<UdpSocket> {
    let number = shared.addresses.fetch_add(1, Ordering::Relaxed);
    let address = Ipv4Addr::new(127, 0, 0, host);
    let far = UdpSocket::bind((address, 0)).expect("a free port");
    far.connect((Ipv4Addr::LOCALHOST, server)).expect("an address");
    far.set_read_timeout(Some(TICK)).expect("a socket");
    let far = Arc::new(far);
    let (socket, shared) = (far.clone(), shared.clone());
    std::thread::spawn(move || {
        let mut lane = Lane::new(1000 + number);
        let mut bytes = [0; 2048];
        let send = |bytes: &[u8]| {
            let near = if shared.is_moved.load(Ordering::Relaxed) { &shared.other } else { &shared.near };
            let client = *shared.client.lock().expect("no panic");
            client.map_or(Ok(0), |client| near.send_to(bytes, client))
        };
        while !shared.is_over.load(Ordering::Relaxed) {
            match socket.recv(&mut bytes) {
                Ok(length) => lane.pass(&shared, &mut bytes[..length], send),
                Err(_) => lane.flush(send),
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
        if shared.is_cut.load(Ordering::Relaxed) {
            return;
        }
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
