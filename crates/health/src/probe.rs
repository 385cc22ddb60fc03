//! One check of one server: connects, asks what is to be asked, and says what came of it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;
use config::plan::server::{CheckKind, SendProxy, UseSource};
use net::dial::{Dial, Target};
use net::stream::Stream;
use state::server::ServerAddress;
use tokio::time::{Instant, timeout_at};

use crate::{Context, Subject, http_check, script};

/// Whether a check counts for or against the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// For.
    Passed,
    /// For, but nothing new is to be sent (404 with `disable-on-404`).
    Conditional,
    /// Against.
    Failed,
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// `L4OK`, `L7STS` …: a name of [`state::server::CHECK_STATUSES`].
    pub status: &'static str,
    /// A status of HTTP, or 0 for a script.
    pub code: Option<u32>,
    /// What was seen, for people; possibly empty.
    pub info: String,
    /// What it means.
    pub verdict: Verdict,
    /// How long it took.
    pub duration: Duration,
}

impl Outcome {
    pub(crate) fn new(status: &'static str, code: Option<u32>, info: impl Into<String>) -> Self {
        let verdict = match status {
            "L4OK" | "L6OK" | "L7OK" => Verdict::Passed,
            "L7OKC" => Verdict::Conditional,
            _ => Verdict::Failed,
        };
        Self { status, code, info: info.into(), verdict, duration: Duration::ZERO }
    }
}

/// What the kernel said, without the number that Rust adds.
pub(crate) fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Why a connection could not be made, as HAProxy names what the system returned.
fn connect_error(error: &io::Error) -> String {
    let name = match error.kind() {
        io::ErrorKind::ConnectionRefused => "ECONNREFUSED",
        io::ErrorKind::ConnectionReset => "ECONNRESET",
        io::ErrorKind::HostUnreachable => "EHOSTUNREACH",
        // Said by the system before anything was sent.
        io::ErrorKind::NetworkUnreachable => {
            return format!("General socket error ({})", error_text(error));
        }
        io::ErrorKind::AddrInUse => "EADDRINUSE",
        io::ErrorKind::AddrNotAvailable => "EADDRNOTAVAIL",
        io::ErrorKind::PermissionDenied => "EACCES",
        _ => return error_text(error),
    };
    format!("{name} returned by OS")
}

/// Limits of time: for the connection, and for the answer after it (`timeout check`, `timeout connect`, `inter`).
fn limits(subject: &Subject, start: Instant) -> (Instant, Option<Duration>) {
    let settings = &subject.settings;
    let connect = settings.connect_timeout.unwrap_or(settings.inter).min(settings.inter);
    match settings.timeout {
        Some(check) => (start + connect, Some(check)),
        // Without `timeout check` everything must be done within `inter`.
        None => (start + connect, None),
    }
}

/// A connection under check: bytes both ways before a deadline.
pub(crate) struct Link {
    stream: Stream,
    pub(crate) deadline: Instant,
}

/// Why a link failed.
pub(crate) enum LinkError {
    Timeout,
    Io(io::Error),
}

impl Link {
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        let stream = &mut self.stream;
        let writing = async {
            while !bytes.is_empty() {
                match poll_fn(|context| stream.poll_write(context, bytes)).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    n => bytes = &bytes[n..],
                }
            }
            Ok(())
        };
        flatten(timeout_at(self.deadline, writing).await)
    }

    /// Appends what comes next to `buffer`; 0 at the end of the stream.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, LinkError> {
        let stream = &mut self.stream;
        let mut room = [0u8; 4096];
        let read = timeout_at(self.deadline, poll_fn(|context| stream.poll_read(context, &mut room))).await;
        let n = flatten(read)?;
        buffer.extend_from_slice(&room[..n]);
        Ok(n)
    }
}

fn flatten<T>(result: Result<io::Result<T>, tokio::time::error::Elapsed>) -> Result<T, LinkError> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(LinkError::Io(error)),
        Err(_) => Err(LinkError::Timeout),
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A check leaves no connection behind in TIME_WAIT.
        self.stream.reset_on_close();
    }
}

/// Where the check goes: the server's address unless `addr` or `port` say otherwise.
fn target(subject: &Subject, port: Option<u16>) -> Result<Target, &'static str> {
    let settings = &subject.settings;
    let forced = u16::try_from(subject.server.health.port.load(Relaxed)).ok().filter(|&port| port > 0);
    let port = port.or(forced).or(settings.port);
    match (&**subject.server.address.load(), settings.address) {
        (_, Some(ip)) => {
            let own = match **subject.server.address.load() {
                ServerAddress::Ip(address) => address.port(),
                _ => 0,
            };
            Ok(Target::Ip(SocketAddr::new(ip, port.unwrap_or(own))))
        }
        (ServerAddress::Ip(address), None) => {
            Ok(Target::Ip(SocketAddr::new(address.ip(), port.unwrap_or(address.port()))))
        }
        (ServerAddress::Unix(path), None) => Ok(Target::Unix(path.clone())),
        (ServerAddress::Abstract { name, padded }, None) => {
            Ok(Target::Abstract { name: name.clone(), padded: *padded })
        }
        (ServerAddress::Unresolved, None) => Err("the server's name is not resolved"),
    }
}

/// Opens a connection and sends the PROXY header if there is to be one. `suffix` ends messages of a script's step.
pub(crate) async fn connect(
    subject: &Subject,
    port: Option<u16>,
    send_proxy: SendProxy,
    suffix: &str,
) -> Result<Link, Outcome> {
    let start = Instant::now();
    let (connect_by, answer) = limits(subject, start);
    let target = target(subject, port).map_err(|text| Outcome::new("SOCKERR", None, text))?;
    let source = subject.source.as_ref();
    let dial = Dial {
        source: source.and_then(|source| source.address).map(|ip| SocketAddr::new(ip, 0)),
        transparent: source.is_some_and(|source| matches!(source.transparent, UseSource::Fixed(_))),
        interface: source.and_then(|source| source.interface.as_deref()),
        namespace: subject.namespace.as_deref().filter(|name| *name != "*"),
        ..Dial::default()
    };
    let stream = match timeout_at(connect_by, dial.connect(&target)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(Outcome::new("L4CON", None, connect_error(&error) + suffix)),
        Err(_) => return Err(Outcome::new("L4TOUT", None, suffix)),
    };
    let deadline = match answer {
        Some(answer) => Instant::now() + answer,
        None => start + subject.settings.inter,
    };
    let addresses = stream.local().zip(stream.peer());
    let mut link = Link { stream, deadline };
    let mut header = Vec::new();
    match send_proxy {
        SendProxy::None => return Ok(link),
        SendProxy::V1 => net::proxy_protocol::write_v1(addresses, &mut header),
        SendProxy::V2 { crc32c, .. } => {
            net::proxy_protocol::write_v2(addresses, true, std::iter::empty(), crc32c, &mut header);
        }
    }
    match link.write_all(&header).await {
        Ok(()) => Ok(link),
        Err(LinkError::Timeout) => Err(Outcome::new("L4TOUT", None, suffix)),
        Err(LinkError::Io(error)) => Err(Outcome::new("SOCKERR", None, error_text(&error) + suffix)),
    }
}

/// Runs one check.
pub(crate) async fn run(subject: &Subject, context: &Context) -> Outcome {
    let start = now_ms();
    let mut outcome = match &*subject.settings.kind {
        CheckKind::Tcp => match connect(subject, None, subject.send_proxy, "").await {
            Ok(_) => Outcome::new("L4OK", None, ""),
            Err(outcome) => outcome,
        },
        CheckKind::Http { .. } => http_check::run(subject, context).await,
        CheckKind::Script(steps) => script::run(subject, context, steps).await,
    };
    outcome.duration = Duration::from_millis(now_ms() - start);
    outcome
}
