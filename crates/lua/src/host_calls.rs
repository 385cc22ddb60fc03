//! Sockets and requests opened by scripts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mlua::{MultiValue, Table, UserData, Value};

use crate::convert::number;

/// A socket as scripts hold it. The host has the connection, under this number.
#[derive(Debug)]
pub(crate) struct Handle {
    number: u64,
    /// Dropped when no script refers to the socket any more.
    held: Arc<()>,
}

static HANDLES: AtomicU64 = AtomicU64::new(0);

impl Default for Handle {
    fn default() -> Self {
        Self { number: HANDLES.fetch_add(1, Relaxed), held: Arc::default() }
    }
}

impl UserData for Handle {}

/// An operation on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketWork {
    /// Connect without TLS.
    Connect,
    /// Connect with TLS.
    ConnectTls,
    /// Send the text.
    Send,
    /// Receive a line, everything, or a number of bytes.
    Receive,
    /// Close the socket.
    Close,
    /// Return the peer's address.
    Peer,
    /// Return the local address.
    Name,
}

impl SocketWork {
    /// Returns the operation by its name in the prelude.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "connect" => Self::Connect,
            "connect_ssl" => Self::ConnectTls,
            "send" => Self::Send,
            "receive" => Self::Receive,
            "close" => Self::Close,
            "peer" => Self::Peer,
            "name" => Self::Name,
            _ => return None,
        })
    }
}

/// A request for a socket operation.
#[derive(Debug)]
pub struct SocketOp {
    /// The number of the socket.
    pub number: u64,
    /// Dropped when no script refers to the socket any more.
    pub held: Weak<()>,
    /// The operation.
    pub what: SocketWork,
    /// The address, the data to send, or what to receive.
    pub text: Vec<u8>,
    /// The port.
    pub port: Option<u16>,
    /// The time limit.
    pub timeout: Option<Duration>,
}

impl SocketOp {
    pub(crate) fn read(values: &MultiValue) -> Option<Self> {
        let handle = values.front()?.as_userdata()?.borrow::<Handle>().ok()?;
        let timeout = values.get(4).and_then(number).filter(|time| *time > 0.0);
        Some(Self {
            number: handle.number,
            held: Arc::downgrade(&handle.held),
            what: SocketWork::named(&values.get(1)?.to_string().ok()?)?,
            text: match values.get(2) {
                Some(Value::String(text)) => text.as_bytes().to_vec(),
                _ => Vec::new(),
            },
            port: values.get(3).and_then(|value| u16::try_from(value.as_integer()?).ok()),
            timeout: timeout.map(|time| Duration::from_millis(time.min(1e12) as u64)),
        })
    }
}

/// An HTTP request made by a script.
#[derive(Debug)]
pub struct ScriptRequest {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// An alternative address to connect to.
    pub destination: Option<String>,
    /// The time limit.
    pub timeout: Option<Duration>,
}

impl ScriptRequest {
    pub(crate) fn read(values: &MultiValue) -> Option<Self> {
        let text = |at: usize| values.get(at).and_then(|value| value.to_string().ok());
        let mut headers = Vec::new();
        if let Some(Value::Table(all)) = values.get(2) {
            for pair in all.sequence_values::<Table>() {
                let pair = pair.ok()?;
                headers.push((pair.get::<String>(1).ok()?, pair.get::<String>(2).ok()?));
            }
        }
        Some(Self {
            method: text(0)?,
            url: text(1)?,
            headers,
            body: match values.get(3) {
                Some(Value::String(text)) => text.as_bytes().to_vec(),
                _ => Vec::new(),
            },
            destination: values
                .get(4)
                .filter(|value| !value.is_nil())
                .and_then(|value| value.to_string().ok()),
            timeout: values.get(5).and_then(number).map(|time| Duration::from_millis(time.max(0.0) as u64)),
        })
    }
}
