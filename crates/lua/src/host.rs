//! What scripts ask of the process around them: to run beside requests, to speak over sockets, to
//! make requests, to log. The binary does it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mlua::{MultiValue, Table, UserData, Value};

use crate::bridge::Bridge;
use crate::running::{Running, Step};
use crate::state::State;
use crate::wait::number;

/// Who does for scripts what they cannot.
pub trait Host: Send + Sync {
    /// Logs a message that is of no request; says whether a logger took it.
    fn log(&self, level: u8, text: &[u8]) -> bool;
    /// The statistics of something, as `show stat` and `show info` have them; none where there is no
    /// such thing.
    fn statistics(&self, whose: Whose<'_>) -> Vec<(&'static str, Statistic)>;
    /// Runs a task on the calling worker.
    fn spawn(&self, task: Task);
}

/// Whose statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Whose<'a> {
    Frontend(&'a str),
    Backend(&'a str),
    /// A backend and its server.
    Server(&'a str, &'a str),
    Process,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Statistic {
    Integer(i64),
    Number(f64),
    Text(String),
}

/// A function that runs beside requests.
#[derive(Debug, Clone)]
pub struct Task {
    pub(crate) state: Arc<State>,
    run: mlua::Function,
    args: Vec<Value>,
}

impl Task {
    pub(crate) fn new(state: &Arc<State>, run: mlua::Function, args: Vec<Value>) -> Self {
        Self { state: state.clone(), run, args }
    }

    /// Begins it.
    pub fn begin(&self, bridge: &dyn Bridge) -> (Running, Step) {
        let mut running = Running::new(self.state.clone(), self.state.settings.task);
        let step = running.begin_alone(bridge, &self.run, &self.args);
        (running, step)
    }
}

/// A command of the runtime socket that a script registered.
#[derive(Debug, Clone)]
pub struct Command {
    state: Arc<State>,
    /// The words that it begins with.
    pub(crate) path: Vec<String>,
    /// What is said of it.
    pub(crate) usage: String,
    run: mlua::Function,
}

impl Command {
    pub(crate) fn new(state: &Arc<State>, (path, usage, run): (Vec<String>, String, mlua::Function)) -> Self {
        Self { state: state.clone(), path, usage, run }
    }

    /// Begins it with the words behind its own.
    pub fn begin(&self, bridge: &dyn Bridge, args: &[String]) -> (Running, Step) {
        let mut running = Running::new(self.state.clone(), self.state.settings.service);
        let step = running.begin_command(bridge, &self.run, args);
        (running, step)
    }
}

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

/// What is done with a socket.
#[derive(Debug)]
pub struct SocketOp {
    /// Which.
    pub number: u64,
    /// Gone when no script holds it any more.
    pub held: Weak<()>,
    /// What: `connect`, `connect_ssl`, `send`, `receive`, `close`, `peer` or `name`.
    pub what: String,
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
            what: values.get(1)?.to_string().ok()?,
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
pub struct Ask {
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

impl Ask {
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
