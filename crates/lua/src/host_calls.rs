//! What scripts ask for: sockets and requests of their own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mlua::{MultiValue, Table, UserData, Value};

use crate::convert::number;

/// A socket, as scripts hold it: the host has the connection, by this number.
#[derive(Debug)]
pub(crate) struct Handle {
    number: u64,
    /// Gone when no script holds it any more.
    held: Arc<()>,
}

static HANDLES: AtomicU64 = AtomicU64::new(0);

impl Default for Handle {
    fn default() -> Self {
        Self { number: HANDLES.fetch_add(1, Relaxed), held: Arc::default() }
    }
}

impl UserData for Handle {}

/// What can be done with a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketWork {
    /// It is connected, in the clear.
    Connect,
    /// It is connected, with TLS.
    ConnectTls,
    /// The text is sent.
    Send,
    /// A line, all, or so many bytes are received.
    Receive,
    /// It is closed.
    Close,
    /// The address of the other end is asked for.
    Peer,
    /// The address of this end is asked for.
    Name,
}

impl SocketWork {
    /// As the prelude names it.
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

/// What is done with a socket.
#[derive(Debug)]
pub struct SocketOp {
    /// Which.
    pub number: u64,
    /// Gone when no script holds it any more.
    pub held: Weak<()>,
    /// What.
    pub what: SocketWork,
    /// The address, what is sent, or what is to be received.
    pub text: Vec<u8>,
    /// The port.
    pub port: Option<u16>,
    /// How long it may take.
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

/// A request of a script's own.
#[derive(Debug)]
pub struct ScriptRequest {
    /// The method.
    pub method: String,
    /// Where to.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Where to connect to instead.
    pub destination: Option<String>,
    /// How long it may take.
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
