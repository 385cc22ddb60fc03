//! UDP servers and clients for tests of `udp-lb` sections.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{PATIENCE, Weir, eventually};

/// A UDP server on a free port.
pub struct DatagramServer {
    socket: UdpSocket,
    received: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DatagramServer {
    /// Starts a server that answers each datagram as `answer` decides, given the datagram and its sender.
    pub fn start(answer: impl Fn(&[u8], SocketAddr) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        Self::start_at(0, answer)
    }

    /// Starts a server on this port.
    pub fn start_at(port: u16, answer: impl Fn(&[u8], SocketAddr) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
        let (received, stops) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let own = socket.try_clone().expect("a descriptor");
        let (count, is_over) = (received.clone(), stops.clone());
        let thread = std::thread::spawn(move || {
            let mut room = vec![0; 65_536];
            while !is_over.load(Relaxed) {
                let Ok((length, from)) = own.recv_from(&mut room) else { continue };
                count.fetch_add(1, Relaxed);
                for reply in answer(&room[..length], from) {
                    let _ = own.send_to(&reply, from);
                }
            }
        });
        Self { socket, received, stops, thread: Some(thread) }
    }

    /// Starts a server that answers each datagram with its name and the datagram.
    pub fn echo(name: &'static str) -> Self {
        Self::start(move |datagram, _| vec![[name.as_bytes(), b" ", datagram].concat()])
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.socket.local_addr().expect("it is bound").port()
    }

    /// The number of datagrams that it has received.
    pub fn received(&self) -> usize {
        self.received.load(Relaxed)
    }
}

impl Drop for DatagramServer {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client with one port.
pub struct DatagramClient(pub UdpSocket);

impl DatagramClient {
    /// Creates a client of the program at this port.
    pub fn connect(port: u16) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        socket.connect((Ipv4Addr::LOCALHOST, port)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self(socket)
    }

    /// The client's own port.
    pub fn port(&self) -> u16 {
        self.0.local_addr().expect("it is bound").port()
    }

    /// Sends a datagram.
    pub fn send(&self, text: &str) {
        self.0.send(text.as_bytes()).expect("it is sent");
    }

    /// Receives a datagram.
    pub fn receive(&self) -> String {
        let mut room = [0; 2048];
        let length = self.0.recv(&mut room).expect("a datagram");
        String::from_utf8_lossy(&room[..length]).into_owned()
    }

    /// Sends a datagram and returns the answer.
    pub fn ask(&self, text: &str) -> String {
        self.send(text);
        self.receive()
    }

    /// Sends a datagram again and again until there is an answer, or for the duration; returns the answer.
    pub fn ask_for(&self, text: &str, time: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(time)).expect("a socket");
        self.send(text);
        let mut room = [0; 2048];
        let received = self.0.recv(&mut room).ok();
        self.0.set_read_timeout(Some(PATIENCE)).expect("a socket");
        received.map(|length| String::from_utf8_lossy(&room[..length]).into_owned())
    }
}

/// Starts the program, and waits until it has bound this UDP port.
pub fn start(configuration: &str, port: u16) -> Weir {
    let weir = Weir::start(configuration, &[]);
    let address = (Ipv4Addr::LOCALHOST, port).into();
    assert!(eventually(|| net::udp::bound_elsewhere(address, None) > 0), "{}", weir.messages());
    weir
}
