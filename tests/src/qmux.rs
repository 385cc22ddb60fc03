//! A client that speaks HTTP/3 over QMux, and sends any bytes that a test wants: records, frames and field sections are made here.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};

use h3::qpack::QpackDecoder;
use quic::varint::{self, Reader};

use crate::PATIENCE;

/// The type of the frame with transport parameters.
pub const PARAMETERS: u64 = 0x3f51_5330_0d0a_0d0a;
/// The type of a ping.
pub const PING: u64 = 0x348c_6752_9ef8_c7bd;
/// The type of its answer.
pub const PING_ANSWER: u64 = 0x348c_6752_9ef8_c7be;
/// The largest record, without its size.
pub const RECORD_MAX: usize = 16_382;

/// The number of bytes that the server may send on each stream and on the connection, unless a test sets it.
const WINDOW: u64 = 1 << 18;

/// HTTP/3's frame types.
const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;

/// A client.
pub struct RawQmux {
    socket: TcpStream,
    received: Vec<u8>,
    streams: BTreeMap<u64, ReceivedStream>,
    next_request: u64,
    /// The number of requests that the server permits so far.
    max_requests: u64,
    /// Whether credit is given for received data.
    pub gives_credit: bool,
    /// The server's transport parameters: name and value.
    pub parameters: Vec<(u64, u64)>,
    /// The type and the code of the server's CONNECTION_CLOSE frame.
    pub closed: Option<(u64, u64)>,
    /// The sequence numbers of answered pings.
    pub answers: Vec<u64>,
    /// The sequence numbers of the server's pings.
    pub pings: Vec<u64>,
    /// How many records arrived.
    pub records: usize,
    data: u64,
}

/// The server's side of a stream.
#[derive(Debug, Default, Clone)]
pub struct ReceivedStream {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether they are all.
    pub is_ended: bool,
    /// The code of a RESET_STREAM frame.
    pub reset: Option<u64>,
    /// The code of a STOP_SENDING frame.
    pub stop: Option<u64>,
}

/// A response: the status of its last head, and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawResponse {
    /// The status.
    pub status: u16,
    /// The fields of the last head.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Returns numbers of variable length.
pub fn numbers(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write_all(&mut out, values);
    out
}

/// Returns a record with these frames.
pub fn record(frames: &[u8]) -> Vec<u8> {
    [&numbers(&[frames.len() as u64]), frames].concat()
}

/// Returns a STREAM frame with a length.
pub fn stream(id: u64, offset: u64, data: &[u8], fin: bool) -> Vec<u8> {
    [&numbers(&[0x0e | u64::from(fin), id, offset, data.len() as u64]), data].concat()
}

/// Returns a frame with transport parameters.
pub fn parameters(values: &[(u64, u64)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (name, value) in values {
        varint::write_all(&mut content, &[*name, varint::length(*value) as u64, *value]);
    }
    [numbers(&[PARAMETERS, content.len() as u64]), content].concat()
}

/// The usual transport parameters, with `window` as the limit for each stream and for the connection.
pub fn usual(window: u64) -> Vec<(u64, u64)> {
    vec![(1, 30_000), (4, window), (5, window), (6, window), (7, window), (8, 0), (9, 10)]
}

/// Returns an HTTP/3 frame.
fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&numbers(&[kind, payload.len() as u64]), payload].concat()
}

/// Returns the bytes of a request on its stream.
pub fn request(method: &str, path: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in
        [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
    {
        // A literal name, with the length in three bits and a second byte (RFC 9204, 4.5.6).
        match name.len() {
            length @ 0..7 => section.push(0x20 | length as u8),
            length => section.extend([0x27, length as u8 - 7]),
        }
        section.extend(name.as_bytes());
        assert!(value.len() < 127, "one byte has the length");
        section.push(value.len() as u8);
        section.extend(value.as_bytes());
    }
    let mut all = frame(HEADERS, &section);
    if let Some(body) = body {
        all.extend(frame(DATA, body));
    }
    all
}

impl RawQmux {
    /// Connects, and sends nothing.
    pub fn bare(port: u16) -> Self {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the program listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket.set_nodelay(true).expect("a socket");
        Self {
            socket,
            received: Vec::new(),
            streams: BTreeMap::new(),
            next_request: 0,
            max_requests: 0,
            gives_credit: true,
            parameters: Vec::new(),
            closed: None,
            answers: Vec::new(),
            pings: Vec::new(),
            records: 0,
            data: 0,
        }
    }

    /// Connects, sends transport parameters and HTTP/3's settings, and receives the server's parameters.
    pub fn connect(port: u16) -> Self {
        Self::connect_with(port, &usual(WINDOW))
    }

    /// The same with these parameters.
    pub fn connect_with(port: u16, values: &[(u64, u64)]) -> Self {
        Self::begin(port, values, true)
    }

    /// The same without further credit for the server.
    pub fn with_limits(port: u16, values: &[(u64, u64)]) -> Self {
        Self::begin(port, values, false)
    }

    fn begin(port: u16, values: &[(u64, u64)], gives_credit: bool) -> Self {
        let mut client = Self::bare(port);
        client.gives_credit = gives_credit;
        client.send_record(&parameters(values));
        client.send_record(&stream(2, 0, &[0, 4, 0], false));
        while client.parameters.is_empty() {
            assert!(client.receive(), "the server closed the connection");
        }
        client
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection, which the next read shows.
        let _ = self.socket.write_all(bytes);
    }

    /// Sends a record.
    pub fn send_record(&mut self, frames: &[u8]) {
        self.send(&record(frames));
    }

    /// Ends the client's direction of the TCP connection.
    pub fn shut(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Returns the number of the next request's stream, once the server permits it.
    pub fn next_stream(&mut self) -> u64 {
        while self.next_request / 4 >= self.max_requests && !self.parameters.is_empty() {
            assert!(self.receive(), "the server closed the connection");
        }
        self.next_request += 4;
        self.next_request - 4
    }

    /// Sends a request in as many records as it takes; returns its stream.
    pub fn request(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> u64 {
        let id = self.next_stream();
        let all = request(method, path, body);
        let count = all.chunks(16_000).count();
        for (at, piece) in all.chunks(16_000).enumerate() {
            self.send_record(&stream(id, at as u64 * 16_000, piece, at + 1 == count));
        }
        id
    }

    /// Reads once; `false` at the end of the connection.
    pub fn receive(&mut self) -> bool {
        let mut room = vec![0; 1 << 16];
        let n = match self.socket.read(&mut room) {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("no answer: {error}"),
        };
        self.received.extend_from_slice(&room[..n]);
        while self.take_record() {}
        n > 0
    }

    fn take_record(&mut self) -> bool {
        let received = std::mem::take(&mut self.received);
        let mut reader = Reader::new(&received);
        let Some(record) = reader.prefixed() else {
            self.received = received;
            return false;
        };
        assert!(record.len() <= RECORD_MAX && !record.is_empty(), "a record of {} bytes", record.len());
        self.records += 1;
        let mut frames = Reader::new(record);
        while !frames.is_empty() {
            self.take_frame(&mut frames).expect("a valid frame");
        }
        self.received = reader.rest().to_vec();
        true
    }

    fn take_frame(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let kind = reader.number()?;
        assert_eq!(self.records == 1, kind == PARAMETERS, "parameters are the first frame, and only that");
        match kind {
            PARAMETERS => {
                let mut content = Reader::new(reader.prefixed()?);
                while !content.is_empty() {
                    let (name, value) = (content.number()?, content.prefixed()?);
                    let value = Reader::new(value).number()?;
                    self.parameters.push((name, value));
                    if name == 0x08 {
                        self.max_requests = value;
                    }
                }
            }
            PING => {
                let sequence = reader.number()?;
                self.pings.push(sequence);
                self.send_record(&numbers(&[PING_ANSWER, sequence]));
            }
            PING_ANSWER => self.answers.push(reader.number()?),
            0x04 => {
                let (id, code, _) = (reader.number()?, reader.number()?, reader.number()?);
                self.streams.entry(id).or_default().reset = Some(code);
            }
            0x05 => {
                let (id, code) = (reader.number()?, reader.number()?);
                self.streams.entry(id).or_default().stop = Some(code);
            }
            0x08..=0x0f => self.take_data(kind, reader)?,
            0x12 => self.max_requests = reader.number()?,
            0x10 | 0x13 | 0x14 | 0x16 | 0x17 => drop(reader.number()?),
            0x11 | 0x15 => drop((reader.number()?, reader.number()?)),
            0x1c | 0x1d => {
                let code = reader.number()?;
                if kind == 0x1c {
                    reader.number()?;
                }
                reader.prefixed()?;
                self.closed = Some((kind, code));
            }
            _ => panic!("a frame of type {kind:#x}"),
        }
        Some(())
    }

    fn take_data(&mut self, kind: u64, reader: &mut Reader<'_>) -> Option<()> {
        let id = reader.number()?;
        let offset = if kind & 4 != 0 { reader.number()? } else { 0 };
        let data = if kind & 2 != 0 { reader.prefixed()? } else { reader.rest() };
        let stream = self.streams.entry(id).or_default();
        assert_eq!(offset, stream.bytes.len() as u64, "data is in order");
        assert!(!stream.is_ended, "nothing follows the end");
        stream.bytes.extend_from_slice(data);
        stream.is_ended = kind & 1 != 0;
        self.data += data.len() as u64;
        if self.gives_credit {
            let frames = numbers(&[0x10, self.data + WINDOW, 0x11, id, stream.bytes.len() as u64 + WINDOW]);
            self.send_record(&frames);
        }
        Some(())
    }

    /// Returns the bytes that have arrived on a stream.
    pub fn stream(&self, id: u64) -> ReceivedStream {
        self.streams.get(&id).cloned().unwrap_or_default()
    }

    /// How many bytes of streams arrived so far.
    pub fn received_data(&self) -> u64 {
        self.data
    }

    /// Receives until `is_enough`, or the end of the connection; returns whether it was enough.
    pub fn receive_until(&mut self, mut is_enough: impl FnMut(&Self) -> bool) -> bool {
        loop {
            if is_enough(self) {
                return true;
            }
            if !self.receive() {
                return is_enough(self);
            }
        }
    }

    /// Receives the rest of the connection.
    pub fn receive_end(&mut self) {
        while self.receive() {}
    }

    /// Receives the response on a stream; `None` if it was reset, or the connection has ended.
    pub fn response(&mut self, id: u64) -> Option<RawResponse> {
        let is_over = |client: &Self| {
            client.streams.get(&id).is_some_and(|stream| stream.is_ended || stream.reset.is_some())
        };
        self.receive_until(is_over);
        let stream = self.streams.get(&id).filter(|stream| stream.is_ended)?;
        parse(&stream.bytes)
    }

    /// Sends a GET request, and returns status and body of its response.
    pub fn get(&mut self, path: &str) -> Option<(u16, String)> {
        let id = self.request("GET", path, None);
        let response = self.response(id)?;
        Some((response.status, String::from_utf8_lossy(&response.body).into_owned()))
    }
}

/// Parses the bytes of a response's stream.
fn parse(bytes: &[u8]) -> Option<RawResponse> {
    let mut response = RawResponse { status: 0, fields: Vec::new(), body: Vec::new() };
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let kind = reader.number()?;
        let payload = reader.prefixed()?;
        match kind {
            DATA => response.body.extend_from_slice(payload),
            HEADERS if response.body.is_empty() => {
                response.fields.clear();
                let mut decoder = QpackDecoder::new(0);
                let decoded = decoder.decode(payload, &mut |field| {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    response.fields.push((text(field.name.bytes()), text(field.value)));
                    true
                });
                decoded.ok()?;
                let status = response.fields.iter().find(|(name, _)| name == ":status")?;
                response.status = status.1.parse().ok()?;
            }
            _ => {}
        }
    }
    Some(response)
}
