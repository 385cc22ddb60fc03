//! A SPOE agent for the program to query. It implements frames independently, so that errors in the program's frames are noticed.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};

use crate::{Origin, PATIENCE};

/// The types of frames.
#[allow(missing_docs)]
pub mod kind {
    pub const HAPROXY_HELLO: u8 = 1;
    pub const HAPROXY_DISCONNECT: u8 = 2;
    pub const NOTIFY: u8 = 3;
    pub const AGENT_HELLO: u8 = 101;
    pub const AGENT_DISCONNECT: u8 = 102;
    pub const ACK: u8 = 103;
}

/// The scopes of variables.
#[allow(missing_docs)]
pub mod scope {
    pub const PROC: u8 = 0;
    pub const SESS: u8 = 1;
    pub const TXN: u8 = 2;
    pub const REQ: u8 = 3;
    pub const RES: u8 = 4;
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Ip(IpAddr),
    Str(String),
    Bin(Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

/// Names and values, in order.
pub type Items = Vec<(String, Value)>;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// The stream id.
    pub stream: u64,
    /// The frame id within the stream.
    pub frame: u64,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A NOTIFY frame received by an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notified {
    /// The stream id.
    pub stream: u64,
    /// The frame id within the stream.
    pub frame: u64,
    /// Messages with their arguments.
    pub messages: Vec<(String, Items)>,
}

impl Notified {
    /// Returns the names of the messages.
    pub fn names(&self) -> Vec<&str> {
        self.messages.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns an argument of the first message.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let (_, items) = self.messages.first()?;
        items.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }
}

/// An action of an agent.
#[derive(Debug, Clone)]
pub struct Action {
    scope: u8,
    name: String,
    value: Option<Value>,
}

/// Returns an action that sets a variable.
pub fn set(scope: u8, name: &str, value: impl Into<Value>) -> Action {
    Action { scope, name: name.to_owned(), value: Some(value.into()) }
}

/// Returns an action that unsets a variable.
pub fn unset(scope: u8, name: &str) -> Action {
    Action { scope, name: name.to_owned(), value: None }
}

/// The agent's end of a connection.
#[derive(Debug)]
pub struct Frames {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Frames {
    /// Wraps a connection.
    pub fn new(stream: TcpStream) -> Frames {
        stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let _ = stream.set_nodelay(true);
        Frames { stream, bytes: Vec::new() }
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(length) = self.bytes.first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                if self.bytes.len() >= 4 + length {
                    let frame = self.bytes[4..4 + length].to_vec();
                    self.bytes.drain(..4 + length);
                    assert_eq!(frame[1..5], [0, 0, 0, 1], "a whole payload");
                    let mut rest = &frame[5..];
                    let (stream, number) = (read_number(&mut rest), read_number(&mut rest));
                    return Some(Frame { kind: frame[0], stream, frame: number, payload: rest.to_vec() });
                }
            }
            let mut piece = [0; 16384];
            match self.stream.read(&mut piece) {
                Ok(n) if n > 0 => self.bytes.extend_from_slice(&piece[..n]),
                _ => return None,
            }
        }
    }

    /// Receives the program's HELLO and answers it; `None` if none arrived.
    pub fn greet(&mut self, frame_size: u32, capabilities: &str) -> Option<Items> {
        let hello = self.next_frame()?;
        assert_eq!((hello.kind, hello.stream, hello.frame), (kind::HAPROXY_HELLO, 0, 0));
        self.send(&hello_frame(frame_size, capabilities));
        Some(read_items(&hello.payload))
    }

    /// Returns the next NOTIFY frame, or `None` at the end of the connection or if the program disconnects.
    pub fn next_notified(&mut self) -> Option<Notified> {
        let frame = self.next_frame()?;
        if frame.kind == kind::HAPROXY_DISCONNECT {
            return None;
        }
        assert_eq!(frame.kind, kind::NOTIFY);
        let mut rest = &frame.payload[..];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let name = read_text(&mut rest);
            let count = rest[0];
            rest = &rest[1..];
            let items = (0..count).map(|_| (read_text(&mut rest), read_value(&mut rest))).collect();
            messages.push((name, items));
        }
        Some(Notified { stream: frame.stream, frame: frame.frame, messages })
    }

    /// Sends bytes; errors are ignored.
    pub fn send(&mut self, bytes: &[u8]) -> &mut Frames {
        let _ = self.stream.write_all(bytes);
        self
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Encodes a frame.
pub fn frame(kind: u8, stream: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, 0, 0, 0, 1];
    write_number(&mut frame, stream);
    write_number(&mut frame, number);
    frame.extend_from_slice(payload);
    let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
    bytes.append(&mut frame);
    bytes
}

/// Encodes an agent's HELLO.
pub fn hello_frame(frame_size: u32, capabilities: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    write_text(&mut payload, "version");
    write_value(&mut payload, &"2.0".into());
    write_text(&mut payload, "max-frame-size");
    payload.push(3);
    write_number(&mut payload, frame_size.into());
    write_text(&mut payload, "capabilities");
    write_value(&mut payload, &capabilities.into());
    frame(kind::AGENT_HELLO, 0, 0, &payload)
}

/// Encodes an agent's DISCONNECT.
pub fn goodbye(status: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    write_text(&mut payload, "status-code");
    payload.push(3);
    write_number(&mut payload, status.into());
    write_text(&mut payload, "message");
    write_value(&mut payload, &"bye".into());
    frame(kind::AGENT_DISCONNECT, 0, 0, &payload)
}

/// Encodes actions.
pub fn actions(all: &[Action]) -> Vec<u8> {
    let mut payload = Vec::new();
    for Action { scope, name, value } in all {
        match value {
            Some(_) => payload.extend_from_slice(&[1, 3, *scope]),
            None => payload.extend_from_slice(&[2, 2, *scope]),
        }
        write_text(&mut payload, name);
        if let Some(value) = value {
            write_value(&mut payload, value);
        }
    }
    payload
}

/// Encodes the ACK of a NOTIFY frame.
pub fn ack(told: &Notified, all: &[Action]) -> Vec<u8> {
    frame(kind::ACK, told.stream, told.frame, &actions(all))
}

/// Starts an agent that answers each NOTIFY frame with the actions that `answer` returns.
pub fn agent(answer: impl Fn(&Notified) -> Vec<Action> + Send + Sync + 'static) -> Origin {
    greeted(16380, "pipelining", move |mut frames| {
        while let Some(told) = frames.next_notified() {
            let all = answer(&told);
            frames.send(&ack(&told, &all));
        }
    })
}

/// Starts an agent that runs `then` on each connection after a handshake with this frame size and these capabilities.
pub fn greeted(
    size: u32,
    capabilities: &'static str,
    then: impl Fn(Frames) + Send + Sync + 'static,
) -> Origin {
    Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        if frames.greet(size, capabilities).is_some() {
            then(frames);
        }
    })
}

/// Parses the names and values of a handshake.
pub fn read_items(mut bytes: &[u8]) -> Items {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push((read_text(&mut bytes), read_value(&mut bytes)));
    }
    all
}

fn write_number(out: &mut Vec<u8>, value: u64) {
    if value < 240 {
        return out.push(value as u8);
    }
    out.push(value as u8 | 0xf0);
    let mut rest = (value - 240) >> 4;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest = (rest - 128) >> 7;
    }
    out.push(rest as u8);
}

fn read_number(bytes: &mut &[u8]) -> u64 {
    let mut next = || {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        u64::from(byte)
    };
    let mut value = next();
    let mut shift = 4;
    while value >= 240 {
        let byte = next();
        value = value.wrapping_add(byte << shift);
        if byte < 128 {
            break;
        }
        shift += 7;
    }
    value
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    write_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn read_bytes(bytes: &mut &[u8]) -> Vec<u8> {
    let length = read_number(bytes) as usize;
    let (text, rest) = bytes.split_at(length);
    *bytes = rest;
    text.to_vec()
}

fn read_text(bytes: &mut &[u8]) -> String {
    String::from_utf8(read_bytes(bytes)).expect("a name is text")
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(value) => out.push(1 | u8::from(*value) << 4),
        Value::Int(value) => {
            out.push(4);
            write_number(out, value.cast_unsigned());
        }
        Value::Ip(IpAddr::V4(address)) => {
            out.push(6);
            out.extend_from_slice(&address.octets());
        }
        Value::Ip(IpAddr::V6(address)) => {
            out.push(7);
            out.extend_from_slice(&address.octets());
        }
        Value::Str(text) => {
            out.push(8);
            write_text(out, text);
        }
        Value::Bin(bytes) => {
            out.push(9);
            write_number(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

fn read_value(bytes: &mut &[u8]) -> Value {
    let kind = bytes[0];
    *bytes = &bytes[1..];
    match kind & 15 {
        0 => Value::Null,
        1 => Value::Bool(kind & 16 != 0),
        2..=5 => Value::Int(read_number(bytes).cast_signed()),
        6 => {
            let (address, rest) = bytes.split_first_chunk::<4>().expect("four bytes");
            *bytes = rest;
            Value::Ip(IpAddr::from(*address))
        }
        7 => {
            let (address, rest) = bytes.split_first_chunk::<16>().expect("sixteen bytes");
            *bytes = rest;
            Value::Ip(IpAddr::from(*address))
        }
        8 => Value::Str(String::from_utf8_lossy(&read_bytes(bytes)).into_owned()),
        9 => Value::Bin(read_bytes(bytes)),
        other => panic!("there is no type {other}"),
    }
}
