//! A UDP relay between a client and the program that can hold back the program's datagrams.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a thread of the relay waits before it looks whether the relay was dropped.
const LOOK: Duration = Duration::from_millis(50);

/// A relay for one client. It stops when the value is dropped.
#[derive(Debug)]
pub struct DatagramRelay {
    /// The port for the client.
    pub port: u16,
    gate: Arc<Gate>,
    stop: Arc<AtomicBool>,
}

/// Holds back the program's datagrams while it is closed.
#[derive(Debug)]
pub struct Gate {
    inner: UdpSocket,
    outer: UdpSocket,
    client: Mutex<Option<SocketAddr>>,
    is_open: AtomicBool,
    held: Mutex<Vec<Vec<u8>>>,
}

impl Gate {
    /// Lets the program's datagrams pass, starting with those that were held back.
    pub fn open(&self) {
        let mut held = self.held.lock().expect("no panic");
        self.is_open.store(true, Ordering::Release);
        held.drain(..).for_each(|datagram| self.pass(&datagram));
    }

    fn take(&self, datagram: &[u8]) {
        let mut held = self.held.lock().expect("no panic");
        if self.is_open.load(Ordering::Acquire) {
            self.pass(datagram);
        } else {
            held.push(datagram.to_vec());
        }
    }

    fn pass(&self, datagram: &[u8]) {
        if let Some(client) = *self.client.lock().expect("no panic") {
            let _ = self.outer.send_to(datagram, client);
        }
    }
}

impl DatagramRelay {
    /// Starts a relay to a port of 127.0.0.1. Its gate is closed.
    pub fn start(to: u16) -> Self {
        let socket = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            socket.set_read_timeout(Some(LOOK)).expect("a timeout");
            socket
        };
        let (inner, outer) = (socket(), socket());
        inner.connect((Ipv4Addr::LOCALHOST, to)).expect("a local address");
        let port = outer.local_addr().expect("a bound socket has an address").port();
        let gate = Arc::new(Gate {
            inner,
            outer,
            client: Mutex::default(),
            is_open: AtomicBool::new(false),
            held: Mutex::default(),
        });
        let stop = Arc::new(AtomicBool::new(false));
        for from_client in [true, false] {
            let (gate, stop) = (gate.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while !stop.load(Ordering::Acquire) {
                    if from_client {
                        let Ok((length, client)) = gate.outer.recv_from(&mut bytes) else { continue };
                        *gate.client.lock().expect("no panic") = Some(client);
                        let _ = gate.inner.send(&bytes[..length]);
                    } else if let Ok(length) = gate.inner.recv(&mut bytes) {
                        gate.take(&bytes[..length]);
                    }
                }
            });
        }
        Self { port, gate, stop }
    }

    /// Returns the gate.
    pub fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }
}

impl Drop for DatagramRelay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}
