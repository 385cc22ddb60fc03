//! A FastCGI application and the program in front of it. It implements records independently, so that errors in the program's
//! records are noticed.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::versions::TIMEOUTS;
use crate::{Origin, PATIENCE, Weir, free_port};

/// The types of records.
#[allow(missing_docs)]
pub mod kind {
    pub const BEGIN_REQUEST: u8 = 1;
    pub const ABORT_REQUEST: u8 = 2;
    pub const END_REQUEST: u8 = 3;
    pub const PARAMS: u8 = 4;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
    pub const STDERR: u8 = 7;
    pub const GET_VALUES: u8 = 9;
    pub const GET_VALUES_RESULT: u8 = 10;
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its type.
    pub kind: u8,
    /// The request id, or 0.
    pub id: u16,
    /// The content.
    pub content: Vec<u8>,
}

/// A request received by an application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The request id.
    pub id: u16,
    /// Whether the connection stays open after the request.
    pub keeps: bool,
    /// The parameters, in order.
    pub parameters: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Asked {
    /// Returns the last parameter of that name, which is the one that applications see.
    pub fn get(&self, name: &str) -> &str {
        self.parameters.iter().rfind(|(own, _)| own == name).map_or("", |(_, value)| value)
    }
}

/// The application's end of a connection.
#[derive(Debug)]
pub struct Records {
    stream: TcpStream,
    bytes: Vec<u8>,
    requests: HashMap<u16, (Asked, Vec<u8>)>,
}

impl Records {
    /// Wraps a connection.
    pub fn new(stream: TcpStream) -> Records {
        stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let _ = stream.set_nodelay(true);
        Records { stream, bytes: Vec::new(), requests: HashMap::new() }
    }

    /// Returns the next record, or `None` at the end of the connection.
    pub fn next_record(&mut self) -> Option<Record> {
        loop {
            if let Some(&[version, kind, id1, id0, length1, length0, padding, _]) =
                self.bytes.first_chunk::<8>()
            {
                assert_eq!(version, 1, "there is no other version");
                let (id, length) = (u16::from_be_bytes([id1, id0]), u16::from_be_bytes([length1, length0]));
                let whole = 8 + usize::from(length) + usize::from(padding);
                if self.bytes.len() >= whole {
                    let content = self.bytes[8..8 + usize::from(length)].to_vec();
                    self.bytes.drain(..whole);
                    return Some(Record { kind, id, content });
                }
            }
            let mut piece = [0; 16384];
            match self.stream.read(&mut piece) {
                Ok(n) if n > 0 => self.bytes.extend_from_slice(&piece[..n]),
                _ => return None,
            }
        }
    }

    /// Returns the next complete request, or `None` at the end of the connection.
    pub fn next_request(&mut self) -> Option<Asked> {
        loop {
            let Record { kind, id, content } = self.next_record()?;
            match kind {
                kind::BEGIN_REQUEST => {
                    assert_eq!(content[..2], [0, 1], "the role of a responder");
                    let asked = Asked { id, keeps: content[2] & 1 == 1, ..Asked::default() };
                    let before = self.requests.insert(id, (asked, Vec::new()));
                    assert!(before.is_none(), "request {id} begins twice");
                }
                kind::PARAMS if content.is_empty() => {
                    let (asked, text) = self.requests.get_mut(&id).expect("parameters of a request");
                    asked.parameters = pairs(text);
                }
                kind::PARAMS => self.requests.get_mut(&id).expect("a request").1.extend_from_slice(&content),
                kind::STDIN if content.is_empty() => {
                    return Some(self.requests.remove(&id).expect("a request ends once").0);
                }
                kind::STDIN => {
                    self.requests
                        .get_mut(&id)
                        .expect("a body of a request")
                        .0
                        .body
                        .extend_from_slice(&content);
                }
                kind::ABORT_REQUEST => drop(self.requests.remove(&id)),
                _ => {}
            }
        }
    }

    /// Sends bytes; errors are ignored.
    pub fn send(&mut self, bytes: &[u8]) -> &mut Records {
        let _ = self.stream.write_all(bytes);
        self
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Parses name-value pairs.
pub fn pairs(mut bytes: &[u8]) -> Vec<(String, String)> {
    fn length(bytes: &mut &[u8]) -> usize {
        let (length, used) = match bytes[0] {
            long @ 128.. => (u32::from_be_bytes([long & 127, bytes[1], bytes[2], bytes[3]]) as usize, 4),
            short => (short.into(), 1),
        };
        *bytes = &bytes[used..];
        length
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        all.push((text(&bytes[..name]), text(&bytes[name..name + value])));
        bytes = &bytes[name + value..];
    }
    all
}

/// Encodes a record.
pub fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a record's length");
    let mut bytes = vec![1, kind];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(content);
    bytes
}

/// Encodes output of a request, in as many records as needed.
pub fn output(id: u16, text: &[u8]) -> Vec<u8> {
    text.chunks(65535).flat_map(|piece| record(kind::STDOUT, id, piece)).collect()
}

/// Encodes the end of a request; `how` is the protocol status.
pub fn end(id: u16, how: u8) -> Vec<u8> {
    record(kind::END_REQUEST, id, &[0, 0, 0, 0, how, 0, 0, 0])
}

/// Encodes a complete response.
pub fn response(id: u16, text: &[u8]) -> Vec<u8> {
    [output(id, text), record(kind::STDOUT, id, b""), end(id, 0)].concat()
}

/// Starts an application that answers each request with the bytes that `answer` returns. It closes the connection after a request
/// without keep-alive, or if the answer is empty.
pub fn application(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    Origin::raw(move |stream| {
        let mut records = Records::new(stream);
        while let Some(asked) = records.next_request() {
            let bytes = answer(&asked);
            records.send(&bytes);
            if !asked.keeps || bytes.is_empty() {
                return;
            }
        }
    })
}

/// Returns a configuration with a backend `b` and one application; `app` are lines of its section.
pub fn configuration(port: u16, server: u16, back: &str, app: &str) -> String {
    format!(
        "global\n nbthread 1\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n use-fcgi-app app\n{back}\n \
         server s 127.0.0.1:{server} proto fcgi\nfcgi-app app\n docroot /srv\n{app}\n"
    )
}

/// Starts the program in front of this application; returns the frontend's port.
pub fn start(server: &Origin, back: &str, app: &str) -> (Weir, u16) {
    let port = free_port();
    (Weir::start(&configuration(port, server.port(), back, app), &[port]), port)
}

/// Answers with 201, the request id, the script file name and the body.
pub fn echo(asked: &Asked) -> Vec<u8> {
    let body = String::from_utf8_lossy(&asked.body);
    let text =
        format!("Status: 201 Made\r\nX-Id: {}\r\n\r\n{}|{body}", asked.id, asked.get("SCRIPT_FILENAME"));
    response(asked.id, text.as_bytes())
}
