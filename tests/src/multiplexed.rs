//! An HTTP/2 endpoint that sends raw frames and returns the received ones. It knows only the frame format; validity is up to the
//! test.

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
    /// Its stream id, 0 for the connection.
    pub stream: u32,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the 32-bit number at `at` in the payload, for example an error code or increment.
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.expect("four bytes"))
    }

    /// Returns the value of `setting` in a SETTINGS frame.
    pub fn setting(&self, setting: u16) -> Option<u32> {
        self.payload
            .chunks(6)
            .find(|chunk| chunk[..2] == setting.to_be_bytes())
            .map(|chunk| u32::from_be_bytes([chunk[2], chunk[3], chunk[4], chunk[5]]))
    }
}

/// A connection, on either side.
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

    /// Accepts a connection as a server; reads its preface and sends empty settings.
    pub fn accept(listener: &TcpListener) -> Frames {
        let (stream, _) = listener.accept().expect("a connection");
        Frames::take(stream)
    }

    /// Wraps an accepted connection as a server; reads its preface and sends empty settings.
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

    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends raw bytes. Errors are ignored: the peer may have sent an error and closed already.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Frames {
        let _ = self.stream.write_all(bytes);
        self
    }

    /// Sends a frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Frames {
        let bytes = frame(kind, flags, stream, payload);
        self.raw(&bytes)
    }

    /// Sends a HEADERS frame with these fields; `flags` are added to [`END_HEADERS`].
    pub fn head(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) -> &mut Frames {
        self.send(HEADERS, flags | END_HEADERS, stream, &block(fields))
    }

    /// Sends a GET of `path` without a body.
    pub fn get(&mut self, stream: u32, path: &str) -> &mut Frames {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a.test")];
        self.head(stream, END_STREAM, &fields)
    }

    /// Returns the next frame, or `None` if the connection has ended.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// Returns the next frame of this type, skipping others and acknowledgements.
    ///
    /// # Panics
    /// The connection ended before.
    pub fn next_of(&mut self, kind: u8) -> Frame {
        self.find(|frame| frame.kind == kind && !(matches!(kind, SETTINGS | PING) && frame.flags & ACK != 0))
            .expect("the connection ended before")
    }

    /// Returns the next frame that is `wanted`, or `None` if the connection ended before.
    pub fn find(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.next_frame()?;
            if wanted(&frame) {
                return Some(frame);
            }
            if frame.kind == HEADERS {
                // The compression table must be updated in step with the peer's.
                self.fields(&frame);
            }
        }
    }

    /// Returns the next head as `name: value` lines, and whether the stream ends with it.
    ///
    /// # Panics
    /// The connection ended before.
    pub fn next_head(&mut self) -> (Vec<String>, bool) {
        let frame = self.next_of(HEADERS);
        (self.fields(&frame), frame.flags & END_STREAM != 0)
    }

    /// Returns all frames until the connection ends.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }

    /// Decodes the fields of a HEADERS frame.
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
