//! A QUIC client that sends whatever a test wants: single packets and frames, without congestion control, retransmissions or checks.
//!
//! TLS and the keys are those of `rustls`. Everything is synchronous, and nothing is sent unless a method is called.

pub mod frame;
pub mod packet;
pub mod relay;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, DirectionalKeys, KeyChange, Keys, PacketKeySet, Secrets, Version};

pub use self::frame::{Close, Frame};
pub use self::packet::Space;
use self::packet::{Header, Protected, VERSION_1};
use crate::PATIENCE;

/// The size of datagrams with Initial packets.
pub const INITIAL_SIZE: usize = 1200;

/// The largest payload of a packet that fits into all datagrams that the server accepts.
pub const PAYLOAD: usize = 1150;

/// The key phase bit of short headers.
const KEY_PHASE: u8 = 0x04;

/// Transport parameters of the client (RFC 9000, 18.2).
#[derive(Debug, Clone)]
pub struct Parameters {
    /// How much the server may send, on all streams and on each.
    pub window: u64,
    /// How many unidirectional streams the server may open.
    pub uni_streams: u64,
    /// Parameters of other numbers.
    pub more: Vec<(u64, Vec<u8>)>,
    /// The connection ID to announce, if it is to differ from that of the packets.
    pub own_id: Option<Vec<u8>>,
    /// The application protocol.
    pub protocol: &'static str,
    /// Encoded parameters, and whether they follow the others instead of replacing them.
    pub encoded: Option<(bool, Vec<u8>)>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            window: 1 << 30,
            uni_streams: 100,
            more: Vec::new(),
            own_id: None,
            protocol: "h3",
            encoded: None,
        }
    }
}

impl Parameters {
    fn encode(&self, id: &[u8]) -> Vec<u8> {
        let window = frame::ints(&[self.window]);
        let id = self.own_id.as_deref().unwrap_or(id);
        let mut all = vec![(0x0f, id.to_vec())];
        all.extend([4, 5, 6, 7].map(|number| (number, window.clone())));
        all.push((9, frame::ints(&[self.uni_streams])));
        all.extend(self.more.iter().cloned());
        let mut out = Vec::new();
        for (number, value) in all {
            out.extend(frame::ints(&[number, value.len() as u64]));
            out.extend_from_slice(&value);
        }
        match &self.encoded {
            Some((true, more)) => [&out[..], more].concat(),
            Some((false, own)) => own.clone(),
            None => out,
        }
    }
}

#[derive(Default)]
struct SpaceState {
    keys: Option<(DirectionalKeys, DirectionalKeys)>,
    next: u64,
    /// Received packet numbers, as ranges: the low end and the high end.
    received: Vec<(u64, u64)>,
    sent_crypto: u64,
    crypto: BTreeMap<u64, Vec<u8>>,
    read_crypto: u64,
}

impl SpaceState {
    fn note(&mut self, number: u64) {
        let at = self.received.partition_point(|range| range.0 > number);
        self.received.insert(at, (number, number));
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for range in &self.received {
            match merged.last_mut() {
                Some(last) if range.1 + 1 >= last.0 => last.0 = last.0.min(range.0),
                _ => merged.push(*range),
            }
        }
        merged.truncate(32);
        self.received = merged;
    }
}

fn random_id() -> Vec<u8> {
    (0..8).map(|_| fastrand::u8(..)).collect()
}

/// A connection.
pub struct RawQuic {
    /// The socket, connected to the server.
    pub socket: UdpSocket,
    /// Whether received packets are acknowledged.
    pub acknowledges: bool,
    /// If set, acknowledgements report ECN counts as if every packet had been sent with ECT(0), and this share of them, in percent,
    /// had arrived with CE.
    pub congestion: Option<u64>,
    /// Whether the handshake is complete.
    pub is_connected: bool,
    /// The server's connection ID.
    pub server_id: Vec<u8>,
    /// The client's connection ID.
    pub own_id: Vec<u8>,
    /// How many bidirectional streams the client may open; known once the server has raised it.
    pub max_streams: u64,
    /// The same for unidirectional streams.
    pub max_uni_streams: u64,
    /// The last 1-RTT packet that the server has to acknowledge.
    sent: u64,
    /// The largest acknowledged 1-RTT packet.
    acked: u64,
    /// The largest packet number of the server's 1-RTT packets.
    pub largest: u64,
    /// Retry packets received.
    pub retries: u32,
    /// Datagrams and bytes received.
    pub received: (u64, u64),
    /// How the server closed the connection.
    pub closed: Option<Close>,
    token: Vec<u8>,
    tls: Box<ClientConnection>,
    /// The keys after the next key update, which the server may begin at any time.
    next_keys: Option<(PacketKeySet, Secrets)>,
    /// The key phase bit of 1-RTT packets.
    phase: u8,
    spaces: [SpaceState; 3],
    offsets: BTreeMap<u64, u64>,
    frames: VecDeque<Frame>,
}

impl RawQuic {
    /// Completes a handshake with a port of 127.0.0.1.
    pub fn connect(port: u16) -> Self {
        Self::connect_with(port, &Parameters::default())
    }

    /// The same with other transport parameters.
    pub fn connect_with(port: u16, parameters: &Parameters) -> Self {
        let mut raw = Self::prepare(([127, 0, 0, 1], port).into(), parameters);
        raw.handshake();
        assert!(raw.is_connected, "a connection: {:?}", raw.closed);
        raw
    }

    /// Prepares a connection; nothing is sent yet.
    pub fn prepare(server: SocketAddr, parameters: &Parameters) -> Self {
        let any =
            if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let socket = UdpSocket::bind((any, 0)).expect("a free port");
        socket.connect(server).expect("an address");
        Self::over(socket, parameters)
    }

    /// The same with this ID for the server.
    pub fn with_server_id(server: SocketAddr, id: &[u8]) -> Self {
        let mut raw = Self::prepare(server, &Parameters::default());
        raw.server_id = id.to_vec();
        raw.reset_initial_keys();
        raw
    }

    fn over(socket: UdpSocket, parameters: &Parameters) -> Self {
        let (own_id, server_id) = (random_id(), random_id());
        let name = ServerName::try_from("localhost").expect("a name");
        let mut config = crate::http3::tls_config();
        config.alpn_protocols = vec![parameters.protocol.into()];
        let tls = ClientConnection::new(Arc::new(config), Version::V1, name, parameters.encode(&own_id));
        let mut raw = Self {
            socket,
            acknowledges: true,
            congestion: None,
            is_connected: false,
            server_id,
            own_id,
            max_streams: 100,
            max_uni_streams: 4,
            sent: 0,
            acked: 0,
            largest: 0,
            retries: 0,
            received: (0, 0),
            closed: None,
            token: Vec::new(),
            tls: Box::new(tls.expect("valid settings")),
            next_keys: None,
            phase: 0,
            spaces: Default::default(),
            offsets: BTreeMap::new(),
            frames: VecDeque::new(),
        };
        raw.reset_initial_keys();
        raw
    }

    /// Begins again as another client: with another ID for the server.
    pub fn forge(&mut self) {
        self.server_id = random_id();
        self.reset_initial_keys();
    }

    fn reset_initial_keys(&mut self) {
        let Keys { local, remote } = packet::initial_keys(&self.server_id);
        self.spaces[0].keys = Some((local, remote));
    }

    /// Runs the handshake until it is complete, the server closes the connection, or [`PATIENCE`] ends.
    pub fn handshake(&mut self) {
        let hello = self.client_hello();
        self.send_hello(&hello);
        let deadline = Instant::now() + PATIENCE;
        let mut retries = 0;
        while !self.is_connected && self.closed.is_none() && Instant::now() < deadline {
            if !self.receive(Duration::from_millis(300)) && self.spaces[1].keys.is_none() {
                self.send_hello(&hello);
            }
            if self.retries > retries {
                retries = self.retries;
                self.send_hello(&hello);
            }
        }
    }

    /// Returns the ClientHello.
    pub fn client_hello(&mut self) -> Vec<u8> {
        let mut hello = Vec::new();
        assert!(self.tls.write_hs(&mut hello).is_none(), "no keys before the ServerHello");
        hello
    }

    /// Sends a ClientHello in as many Initial packets as it needs.
    pub fn send_hello(&mut self, hello: &[u8]) {
        let mut offset = 0;
        for piece in hello.chunks(1100) {
            self.send_initial(&frame::crypto(offset, piece));
            offset += piece.len() as u64;
        }
    }

    /// Sends an Initial packet in a datagram of [`INITIAL_SIZE`] bytes.
    pub fn send_initial(&mut self, frames: &[u8]) {
        let datagram = self.initial(frames, INITIAL_SIZE);
        self.send_datagram(&datagram);
    }

    /// Assembles an Initial packet of this size.
    pub fn initial(&mut self, frames: &[u8], size: usize) -> Vec<u8> {
        let mut payload = frames.to_vec();
        let head = 1 + 4 + 1 + self.server_id.len() + 1 + self.own_id.len() + 8 + self.token.len();
        payload.resize(payload.len().max(size.saturating_sub(head + 4 + 16)), 0);
        let mut datagram = self.packet(Space::Initial, &payload, VERSION_1, 0);
        datagram.resize(datagram.len().max(size), 0);
        datagram
    }

    /// Assembles a packet. `bits` are inverted in the first byte of its header.
    pub fn packet(&mut self, space: Space, frames: &[u8], version: u32, bits: u8) -> Vec<u8> {
        let state = &mut self.spaces[space as usize];
        let (local, _) = state.keys.as_ref().expect("keys of this space");
        let number = state.next;
        state.next += 1;
        let bits = if space == Space::OneRtt { bits ^ self.phase } else { bits };
        let header = Header {
            space,
            version,
            to: &self.server_id,
            from: &self.own_id,
            token: &self.token,
            number,
            bits,
        };
        packet::protect(&header, local, frames)
    }

    /// Sends frames in a packet of a space.
    pub fn send_in(&mut self, space: Space, frames: &[u8]) {
        if space == Space::Initial {
            return self.send_initial(frames);
        }
        let datagram = self.packet(space, frames, VERSION_1, 0);
        self.send_datagram(&datagram);
    }

    /// Sends frames in a 1-RTT packet.
    pub fn send(&mut self, frames: &[u8]) {
        self.sent = self.spaces[Space::OneRtt as usize].next;
        self.send_in(Space::OneRtt, frames);
    }

    /// Sends a datagram. Errors are like losses.
    pub fn send_datagram(&self, datagram: &[u8]) {
        let _ = self.socket.send(datagram);
    }

    /// Returns the STREAM frame of the next bytes of a stream.
    pub fn next_of_stream(&mut self, id: u64, data: &[u8], fin: bool) -> Vec<u8> {
        let offset = self.offsets.entry(id).or_default();
        let frame = frame::stream(id, *offset, data, fin);
        *offset += data.len() as u64;
        frame
    }

    /// Sends the next bytes of a stream, in as many packets as they need.
    pub fn write(&mut self, id: u64, data: &[u8], fin: bool) {
        let mut pieces: Vec<_> = data.chunks(PAYLOAD - 30).collect();
        if pieces.is_empty() {
            pieces.push(&[]);
        }
        let last = pieces.len() - 1;
        for (at, piece) in pieces.into_iter().enumerate() {
            let frame = self.next_of_stream(id, piece, fin && at == last);
            self.send(&frame);
        }
    }

    /// Sends frames, as many in each packet as fit.
    pub fn send_all(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let mut payload = Vec::new();
        for frame in frames {
            if payload.len() + frame.len() > PAYLOAD {
                self.send(&payload);
                payload.clear();
            }
            payload.extend(frame);
        }
        if !payload.is_empty() {
            self.send(&payload);
        }
    }

    /// Receives until the server has acknowledged most packets, so that the kernel drops none of them.
    pub fn pace(&mut self) {
        while self.sent.saturating_sub(self.acked) > 50 && self.closed.is_none() {
            if !self.receive(Duration::from_millis(50)) {
                // A server that gets no acknowledgements itself sends none at some point.
                self.acked = self.sent;
                return;
            }
        }
    }

    /// Receives one datagram, and answers it if the handshake or `acknowledges` requires it. Returns false if none arrives.
    pub fn receive(&mut self, within: Duration) -> bool {
        let mut bytes = [0; 65_536];
        self.socket.set_read_timeout(Some(within.max(Duration::from_millis(1)))).expect("a socket");
        let Ok(length) = self.socket.recv(&mut bytes) else { return false };
        self.process(&bytes[..length]);
        true
    }

    fn process(&mut self, datagram: &[u8]) {
        self.received.0 += 1;
        self.received.1 += datagram.len() as u64;
        let mut needs_ack = [false; 3];
        for packet in packet::split(datagram, self.own_id.len()) {
            match packet {
                Protected::Retry(from, token) => {
                    (self.server_id, self.token) = (from, token);
                    self.retries += 1;
                    self.reset_initial_keys();
                }
                Protected::Versions(..) => {}
                Protected::Packet(space, from, at, packet) => {
                    let index = space as usize;
                    let Some((number, payload)) = self.open(space, at, &packet) else { continue };
                    self.spaces[index].note(number);
                    if space == Space::OneRtt {
                        self.largest = self.largest.max(number);
                    } else {
                        self.server_id = from;
                    }
                    needs_ack[index] |= self.take_frames(space, &payload);
                }
            }
        }
        for space in [Space::Initial, Space::Handshake, Space::OneRtt] {
            if needs_ack[space as usize] && self.acknowledges {
                let ranges = &self.spaces[space as usize].received;
                let mut ack = frame::ack(ranges);
                if let Some(percent) = self.congestion {
                    let received: u64 = ranges.iter().map(|(low, high)| high - low + 1).sum();
                    let marked = received * percent / 100;
                    ack[0] = 0x03;
                    ack.extend(frame::ints(&[received - marked, 0, marked]));
                }
                self.send_in(space, &ack);
            }
        }
    }

    /// Removes the protection of a packet. One that the next keys open is a key update (RFC 9001, 6).
    fn open(&mut self, space: Space, at: usize, packet: &[u8]) -> Option<(u64, Vec<u8>)> {
        let state = &mut self.spaces[space as usize];
        let (local, remote) = state.keys.as_mut()?;
        let largest = state.received.first().map_or(0, |range| range.1);
        let opened = packet::open((&*remote.header, &*remote.packet), at, packet, largest);
        if opened.is_some() || space != Space::OneRtt {
            return opened;
        }
        let (keys, secrets) = self.next_keys.as_mut()?;
        let opened = packet::open((&*remote.header, &*keys.remote), at, packet, largest)?;
        let keys = std::mem::replace(keys, secrets.next_packet_keys());
        (local.packet, remote.packet) = (keys.local, keys.remote);
        self.phase ^= KEY_PHASE;
        Some(opened)
    }

    /// Keeps the frames of a packet; returns whether it is to be acknowledged.
    fn take_frames(&mut self, space: Space, mut payload: &[u8]) -> bool {
        let mut needs_ack = false;
        while let Some(frame) = frame::read(&mut payload) {
            needs_ack |= !matches!(frame, Frame::Ack(_) | Frame::Close(_));
            match frame {
                Frame::Crypto(offset, data) if space != Space::OneRtt || !self.is_connected => {
                    self.spaces[space as usize].crypto.insert(offset, data);
                    self.go_on_with_tls(space);
                }
                Frame::MaxUniStreams(most) => self.max_uni_streams = self.max_uni_streams.max(most),
                Frame::Ack(largest) if space == Space::OneRtt => self.acked = self.acked.max(largest),
                Frame::MaxStreams(most) => self.max_streams = self.max_streams.max(most),
                Frame::Close(close) => self.closed = Some(self.closed.unwrap_or(close)),
                frame => self.frames.push_back(frame),
            }
        }
        needs_ack
    }

    fn go_on_with_tls(&mut self, space: Space) {
        let state = &mut self.spaces[space as usize];
        while let Some((offset, data)) = state.crypto.pop_first() {
            let Some(known) = state.read_crypto.checked_sub(offset) else {
                state.crypto.insert(offset, data);
                break;
            };
            let Some(new) = data.get(known as usize..).filter(|new| !new.is_empty()) else { continue };
            state.read_crypto += new.len() as u64;
            if self.tls.read_hs(new).is_err() {
                return;
            }
        }
        let mut level = if self.spaces[1].keys.is_some() { Space::Handshake } else { Space::Initial };
        loop {
            let mut output = Vec::new();
            let change = self.tls.write_hs(&mut output);
            if !output.is_empty() {
                let offset = self.spaces[level as usize].sent_crypto;
                self.spaces[level as usize].sent_crypto += output.len() as u64;
                self.send_in(level, &frame::crypto(offset, &output));
            }
            match change {
                Some(KeyChange::Handshake { keys: Keys { local, remote } }) => {
                    self.spaces[1].keys = Some((local, remote));
                    level = Space::Handshake;
                }
                Some(KeyChange::OneRtt { keys: Keys { local, remote }, mut next }) => {
                    self.next_keys = Some((next.next_packet_keys(), next));
                    self.spaces[2].keys = Some((local, remote));
                    self.is_connected = true;
                    level = Space::OneRtt;
                }
                None if output.is_empty() => break,
                None => {}
            }
        }
    }

    /// Returns the first frame that `wanted` accepts, and drops those before it; `None` if none arrives within [`PATIENCE`].
    pub fn await_frame<T>(&mut self, mut wanted: impl FnMut(&Frame) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(frame) = self.frames.pop_front() {
                if let Some(found) = wanted(&frame) {
                    return Some(found);
                }
            }
            if self.closed.is_some() || Instant::now() >= deadline {
                return None;
            }
            self.receive(Duration::from_millis(100));
        }
    }

    /// Waits until the server closes the connection.
    pub fn await_close(&mut self) -> Option<Close> {
        self.await_frame(|_| None::<()>);
        self.closed
    }

    /// Waits until the server resets a stream, or refuses to read it; returns the code.
    pub fn await_reset(&mut self, stream: u64) -> Option<u64> {
        self.await_frame(|frame| match frame {
            Frame::Reset(id, code) | Frame::Stop(id, code) if *id == stream => Some(*code),
            _ => None,
        })
    }

    /// Waits for the beginning of a response: whether it has the status 200, as index 25 of QPACK's static table.
    pub fn await_success(&mut self, stream: u64) -> bool {
        let first = self.await_frame(|frame| match frame {
            Frame::Stream { id, offset: 0, data, .. } if *id == stream => Some(data.clone()),
            Frame::Reset(id, _) if *id == stream => Some(Vec::new()),
            _ => None,
        });
        // A HEADERS frame, the prefix of the section, and the first field.
        first.is_some_and(|data| data.first() == Some(&1) && data.get(4) == Some(&0xd9))
    }

    /// Receives datagrams until the server is silent for a while.
    pub fn drain(&mut self, silence: Duration) {
        while self.receive(silence) {}
        self.frames.clear();
    }
}
