//! Log targets and formats, resolved: `log` lines (configuration manual, 4.2), rings (12.5), log backends, `log-steps`, and the
//! settings of `log-forward` sections (12.6).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use runtime::shared::Shared as _;
use sample::{LogOrigin, LogProfile};
use state::Ring;
use state::telemetry::Collector;

use crate::ProxyIndex;
use crate::bind::BindAddress;

/// A target that accepts each line at once, or loses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogAddress {
    /// Datagrams.
    Udp(SocketAddr),
    /// A UNIX datagram socket.
    Unix(PathBuf),
    /// Linux's abstract namespace.
    Abstract(Vec<u8>),
    /// A file descriptor of this process: `stdout`, `stderr`, `fd@N`.
    Descriptor(i32),
}

/// Where log lines are sent.
#[derive(Debug, Clone)]
pub enum LogTarget {
    /// Directly to this address.
    Address(LogAddress),
    /// `ring@name`, or the ring for a server reached over a stream (`tcp@…`).
    Ring(Arc<Ring>),
    /// `backend@name`: one of the servers of this backend.
    Backend(ProxyIndex),
    /// `otel@name`: the collector of an `opentelemetry` section.
    Collector(Arc<Collector>),
}

/// `format` of a `log` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogFormat {
    Local,
    Rfc3164,
    Rfc5424,
    Priority,
    Short,
    Timed,
    Iso,
    Raw,
    /// The format of the received message. For a `log` line without a format in a `log-forward` section.
    AsReceived,
}

/// The lines that a logger sends.
#[derive(Debug)]
pub struct Sample {
    /// The selected positions within each [`size`](Self::size) lines, from 1.
    ranges: Vec<(u32, u32)>,
    size: u32,
    /// The number of lines so far. Each worker that sends a line to this logger writes it, because the count is process-wide.
    seen: AtomicU64,
}

impl Sample {
    /// Creates a sample that has not counted any lines. `size` must not be 0.
    pub fn new(ranges: Vec<(u32, u32)>, size: u32) -> Self {
        Self { ranges, size, seen: AtomicU64::new(0) }
    }

    /// Whether the next line is selected.
    pub fn takes_next(&self) -> bool {
        let at = (self.seen.add(1) % u64::from(self.size.max(1))) as u32 + 1;
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&at))
    }
}

/// One destination of log lines.
#[derive(Debug, Clone)]
pub struct Logger {
    /// The target.
    pub target: LogTarget,
    /// `len`: maximum line size, in bytes; for a ring, at most its `maxlen`.
    pub max_length: usize,
    /// The header format. For a named ring, that of the ring's section.
    pub format: LogFormat,
    /// 0 (kern) to 23 (local7).
    pub facility: u8,
    /// The least important level to send, 0 (emerg) to 7 (debug).
    pub max_level: u8,
    /// Lines of more important levels are sent with this level.
    pub min_level: u8,
    /// `sample <ranges>:<size>`.
    pub sample: Option<Arc<Sample>>,
    /// `profile`.
    pub profile: Option<Arc<LogProfile>>,
}

impl Logger {
    /// Returns a copy for a proxy that inherits the logger. The copy has its own sample count.
    pub fn inherited(&self) -> Self {
        let anew = |sample: &Arc<Sample>| Arc::new(Sample::new(sample.ranges.clone(), sample.size));
        Self { sample: self.sample.as_ref().map(anew), ..self.clone() }
    }
}

/// `log-steps`: the steps of a stream at which a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSteps(u8);

impl LogSteps {
    const GIVEN: u8 = 1;

    /// The steps by name.
    pub const NAMES: [(&'static str, LogOrigin); 5] = [
        ("accept", LogOrigin::Accept),
        ("request", LogOrigin::Request),
        ("connect", LogOrigin::Connect),
        ("response", LogOrigin::Response),
        ("close", LogOrigin::Close),
    ];

    const fn bit(origin: LogOrigin) -> u8 {
        match origin {
            LogOrigin::Accept => 2,
            LogOrigin::Request => 4,
            LogOrigin::Connect => 8,
            LogOrigin::Response => 16,
            LogOrigin::Close => 32,
            _ => 0,
        }
    }

    /// Returns the steps of a `log-steps` line.
    pub fn of(steps: impl IntoIterator<Item = LogOrigin>) -> Self {
        Self(steps.into_iter().fold(Self::GIVEN, |bits, origin| bits | Self::bit(origin)))
    }

    /// Whether there was a `log-steps` line, which overrides `option logasap`.
    pub fn is_given(self) -> bool {
        self.0 & Self::GIVEN != 0
    }

    /// Whether a line is written at this step.
    #[inline]
    pub fn holds(self, origin: LogOrigin) -> bool {
        self.0 & Self::bit(origin) != 0
    }
}

impl Default for LogSteps {
    /// The default is one line at the end.
    fn default() -> Self {
        Self(Self::bit(LogOrigin::Close))
    }
}

/// `log-proto`: the framing of messages in a stream (RFC 6587, 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogProto {
    /// A line feed ends each message (non-transparent framing).
    #[default]
    Legacy,
    /// A length precedes each message.
    OctetCount,
}

/// How a log backend's server receives lines.
#[derive(Debug, Clone)]
pub enum LogServer {
    /// One datagram per message (`udp@`, `uxdg@`).
    Datagram,
    /// Over a stream, with the messages of this ring.
    Ring(Arc<Ring>),
}

/// A `log-forward` section's settings in addition to those of a frontend.
#[derive(Debug, Default)]
pub struct LogForward {
    /// `dgram-bind`.
    pub datagrams: Vec<DatagramBind>,
    /// `option assume-rfc6587-ntf`.
    pub only_lines: bool,
    /// `option dont-parse-log`.
    pub unparsed: bool,
    /// `option host`.
    pub host: HostStrategy,
}

/// A datagram socket.
#[derive(Debug, Clone)]
pub struct DatagramBind {
    /// The address, with [`Transport::Datagram`](crate::bind::Transport::Datagram).
    pub address: BindAddress,
    /// The file and line in the configuration, such as `haproxy.cfg:8`.
    pub place: Box<str>,
    /// `interface`.
    pub interface: Option<Box<str>>,
    /// `namespace`.
    pub namespace: Option<Box<str>>,
    /// `transparent`.
    pub transparent: bool,
    /// The workers that process the datagrams. One of them reads the socket.
    pub workers: Vec<usize>,
}

/// `option host`: the host in a forwarded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostStrategy {
    /// The sender.
    Replace,
    /// The host in the message, or else the sender.
    #[default]
    Fill,
    /// The host in the message.
    Keep,
    /// The host in the message, followed by the sender.
    Append,
}
