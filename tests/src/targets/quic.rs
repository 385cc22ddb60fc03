//! Fuzz targets: the transport parameters and the decrypted packets of a QUIC client.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ::quic::transport::StreamConnection as _;
use ::quic::{
    ConnectionHandle, Demultiplexed, Endpoint, QuicConnection, QuicEvent, Settings, SharedKeys, SocketIndex,
    StreamDirection, StreamRead,
};
use tls::{Acceptor, Certificate, CertificateEntry, EntryOptions, Keep, Listening};

use crate::Authority;
use crate::quic::{Parameters, RawQuic};

/// The number of datagrams that the server may send for one of the client, after the handshake.
const REPLIES_MAX: usize = 1000;

fn acceptor() -> &'static Arc<Acceptor> {
    static ACCEPTOR: OnceLock<Arc<Acceptor>> = OnceLock::new();
    ACCEPTOR.get_or_init(|| {
        let authority = Authority::new();
        let pem = std::fs::read(authority.issue(&["localhost"])).expect("the authority wrote it");
        let certificate = Arc::new(Certificate::from_pem("fuzz.pem", &pem).expect("a certificate"));
        let options = Arc::new(EntryOptions { alpn: vec![b"h3"[..].into()], ..EntryOptions::default() });
        let entry = CertificateEntry { certificate, filters: Vec::new(), is_default: false, options };
        let listening = Listening { entries: vec![entry], is_quic: true, ..Listening::default() };
        Arc::new(Acceptor::new(listening).expect("valid settings"))
    })
}

/// A server and a client over the loopback interface, on which datagrams arrive at once.
struct Pair {
    endpoint: Endpoint,
    socket: UdpSocket,
    connection: Option<(ConnectionHandle, QuicConnection)>,
    now: Instant,
    client: RawQuic,
}

impl Pair {
    fn new(parameters: &Parameters) -> Self {
        let keys = SharedKeys::new(b"fuzz");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        socket.set_nonblocking(true).expect("a socket");
        let client = RawQuic::prepare(socket.local_addr().expect("it is bound"), parameters);
        // Nothing is awaited.
        client.socket.set_nonblocking(true).expect("a socket");
        let endpoint = Endpoint::new(&keys, SocketIndex(0), &Settings::default());
        Self { endpoint, socket, connection: None, now: Instant::now(), client }
    }

    /// Runs the handshake; returns whether it is complete.
    fn handshake(&mut self) -> bool {
        let hello = self.client.client_hello();
        self.client.send_hello(&hello);
        for _ in 0..6 {
            self.serve();
            while self.client.receive(Duration::from_micros(1)) {}
        }
        self.client.is_connected
    }

    /// Passes the client's datagrams to the server, and sends the server's.
    fn serve(&mut self) {
        let mut bytes = [0; 2048];
        while let Ok((length, from)) = self.socket.recv_from(&mut bytes) {
            let (mut out, datagram) = (Vec::new(), &mut bytes[..length]);
            match self.endpoint.demultiplex(from, None, None, datagram, &mut out) {
                Demultiplexed::Nothing | Demultiplexed::Reply(_) => {}
                Demultiplexed::ForConnection(_) => {
                    if let Some((_, connection)) = &mut self.connection {
                        connection.receive(self.now, from, None, None, datagram);
                    }
                }
                Demultiplexed::Reset(_) => {
                    if let Some((_, connection)) = &mut self.connection {
                        connection.receive_reset();
                    }
                }
                Demultiplexed::NewClient(_) if self.connection.is_some() => {}
                Demultiplexed::NewClient(client) => {
                    let (now, keep) = (self.now, Keep::default());
                    let accepted =
                        self.endpoint.accept(now, client, datagram, acceptor(), keep, None, &mut out);
                    self.connection = accepted.ok();
                }
            }
            self.turn();
        }
    }

    /// Processes events, reads all streams, and sends.
    fn turn(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        let timeout = connection.timeout();
        // Acknowledgements are delayed.
        self.now = self.now.max(timeout.unwrap_or(self.now).min(self.now + Duration::from_millis(30)));
        connection.handle_timeout(self.now);
        while let Some(event) = connection.poll() {
            match event {
                QuicEvent::Opened(direction) => while connection.accept_stream(direction).is_some() {},
                QuicEvent::Readable(id) => {
                    while matches!(connection.read(id, 1 << 16), StreamRead::Bytes(_)) {}
                    if id & 2 == 0 {
                        connection.write(id, b"answer").ok();
                        connection.finish(id);
                    }
                }
                _ => {}
            }
        }
        let _ = connection.open(StreamDirection::One);
        let mut replies = 0;
        let mut out = Vec::new();
        loop {
            while let Some(input) = connection.endpoint_input() {
                self.endpoint.handle(*handle, input);
            }
            out.clear();
            let Some(transmit) = connection.transmit(self.now, 1, &mut out) else { return };
            assert_eq!(transmit.length, out.len());
            let _ = self.socket.send_to(&out, transmit.destination);
            replies += 1;
            assert!(replies < REPLIES_MAX, "the server goes on sending");
        }
    }
}

/// Checks that a handshake with arbitrary transport parameters of the client ends in some way. A first byte with bit 0 puts valid
/// parameters in front of the others.
pub fn quic_parameters(bytes: &[u8]) {
    let Some((flags, bytes)) = bytes.split_first() else { return };
    let encoded = Some((flags & 1 != 0, bytes.to_vec()));
    let mut pair = Pair::new(&Parameters { encoded, ..Parameters::default() });
    if pair.handshake() {
        pair.client.write(0, b"request", true);
        pair.serve();
    }
    let is_open = pair.connection.as_ref().is_some_and(|(_, connection)| !connection.is_closed());
    assert!(is_open || !pair.client.is_connected || pair.client.closed.is_some() || !bytes.is_empty());
}

/// Checks that the frames of arbitrary packets leave the connection open, or close it. Each packet is preceded by its length in two
/// bytes.
pub fn quic_frames(mut bytes: &[u8]) {
    let mut pair = Pair::new(&Parameters::default());
    assert!(pair.handshake(), "the handshake is valid: {:?}", pair.client.closed);
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length) & 0x3ff).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        bytes = rest;
        // Room for the sample of the header's protection.
        let padded = [payload, &[0; 4]].concat();
        pair.client.send(&padded);
        pair.serve();
        while pair.client.receive(Duration::from_micros(1)) {}
    }
    pair.serve();
}
