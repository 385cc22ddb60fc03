//! An end of HTTP/2 that sends frames as they are and shows what came back. It knows no more of the
//! protocol than its frames: what is valid is for the test to say.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use fields::FieldName;
use h2::hpack::Decoder;

pub use weir_bench::frames::*;

use crate::PATIENCE;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream, 0 for the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The number that the payload begins with, or has at `at`: codes, increments.
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.expect("four bytes"))
    }

    /// What a SETTINGS frame says of `setting`.
    pub fn setting(&self, setting: u16) -> Option<u32> {
        self.payload
            .chunks(6)
            .find(|chunk| chunk[..2] == setting.to_be_bytes())
            .map(|chunk| u32::from_be_bytes([chunk[2], chunk[3], chunk[4], chunk[5]]))
    }
}

/// A connection, from either end.
pub struct Frames {
    stream: TcpStream,
    decoder: Decoder,
}

impl Frames {
    /// Connects as a client, with the preface and empty settings.
    pub fn connect(port: u16) -> Frames {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port takes connections");
        let mut frames = Frames::of(stream);
        frames.raw(PREFACE).send(SETTINGS, 0, 0, b"");
        frames
    }

    /// Waits for a connection as a server; its preface is taken, and empty settings are sent.
    pub fn accept(listener: &TcpListener) -> Frames {
        let (stream, _) = listener.accept().expect("a connection");
        Frames::take(stream)
    }

    /// The server's end of a connection that was accepted; its preface is taken, and empty settings are sent.
    pub fn take(stream: TcpStream) -> Frames {
        let mut frames = Frames::of(stream);
        let mut preface = [0; PREFACE.len()];
        frames.stream.read_exact(&mut preface).expect("a preface");
        assert_eq!(preface, PREFACE);
        frames.send(SETTINGS, 0, 0, b"");
        frames
    }

    fn of(stream: TcpStream) -> Frames {
        stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        Frames { stream, decoder: Decoder::new(4096) }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes as they are. An error is no failure of the test: the other side may have closed,
    /// and said why.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Frames {
        let _ = self.stream.write_all(bytes);
        self
    }

    /// Sends a frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Frames {
        let bytes = frame(kind, flags, stream, payload);
        self.raw(&bytes)
    }

    /// Sends a head of these fields; `flags` beside [`END_HEADERS`].
    pub fn head(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) -> &mut Frames {
        self.send(HEADERS, flags | END_HEADERS, stream, &block(fields))
    }

    /// Sends a GET of `path` without a body.
    pub fn get(&mut self, stream: u32, path: &str) -> &mut Frames {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a.test")];
        self.head(stream, END_STREAM, &fields)
    }

    /// The next frame; `None` when the connection has ended.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// The next frame of this type that is no acknowledgement, whatever comes before it.
    ///
    /// # Panics
    /// The connection ended before.
    pub fn next_of(&mut self, kind: u8) -> Frame {
        self.find(|frame| frame.kind == kind && !(matches!(kind, SETTINGS | PING) && frame.flags & ACK != 0))
            .expect("the connection ended before")
    }

    /// The next frame that is `wanted`; `None` when the connection ended before.
    pub fn find(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.next_frame()?;
            if wanted(&frame) {
                return Some(frame);
            }
            if frame.kind == HEADERS {
                // The table has to stay in step.
                self.fields(&frame);
            }
        }
    }

    /// The next head, as `name: value` lines, and whether nothing follows it.
    ///
    /// # Panics
    /// The connection ended before.
    pub fn next_head(&mut self) -> (Vec<String>, bool) {
        let frame = self.next_of(HEADERS);
        (self.fields(&frame), frame.flags & END_STREAM != 0)
    }

    /// What is left of the connection: reads until it ends.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }

    /// The fields of a HEADERS frame.
    pub fn fields(&mut self, frame: &Frame) -> Vec<String> {
        let mut lines = Vec::new();
        let mut each = |field: fields::Field<'_>| {
            let name = match field.name {
                FieldName::Pseudo(pseudo) => String::from_utf8_lossy(pseudo.text()).into_owned(),
                FieldName::Known(known) => String::from_utf8_lossy(known.text()).into_owned(),
                FieldName::Other(name) => String::from_utf8_lossy(name).into_owned(),
            };
            lines.push(format!("{name}: {}", String::from_utf8_lossy(field.value)));
            true
        };
        self.decoder.decode(&frame.payload, &mut each).expect("a block of fields");
        lines
    }
}
