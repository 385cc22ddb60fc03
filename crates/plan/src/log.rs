//! Where log lines go and what is made of them, resolved: `log` lines (configuration manual, 4.2),
//! rings (12.5), log backends, `log-steps`, and what `log-forward` sections receive (12.6).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use runtime::shared::Shared as _;
use sample::{LogOrigin, LogProfile};
use state::Ring;

use crate::ProxyIndex;
use crate::bind::BindAddress;

/// A place that takes each line at once, or loses it.
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

/// Where log lines go.
#[derive(Debug, Clone)]
pub enum LogTarget {
    /// Straight there.
    Address(LogAddress),
    /// `ring@name`, and the ring before a server reached over a stream (`tcp@…`).
    Ring(Arc<Ring>),
    /// `backend@name`: to one of its servers.
    Backend(ProxyIndex),
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
    /// As the message came in: a `log` line of a `log-forward` section that names no format.
    AsReceived,
}

/// Which lines of a proxy's stream of lines a logger sends.
#[derive(Debug)]
pub struct Sample {
    /// Those of each [`size`](Self::size) that are sent, from 1.
    ranges: Vec<(u32, u32)>,
    size: u32,
    /// Lines seen so far. Each worker that has a line for this logger writes it: the count is the
    /// process's.
    seen: AtomicU64,
}

impl Sample {
    /// One that has seen no line. `size` is not 0.
    pub fn new(ranges: Vec<(u32, u32)>, size: u32) -> Self {
        Self { ranges, size, seen: AtomicU64::new(0) }
    }

    /// Whether the next line is among those sent.
    pub fn takes_next(&self) -> bool {
        let at = (self.seen.add(1) % u64::from(self.size.max(1))) as u32 + 1;
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&at))
    }
}

/// One destination of log lines.
#[derive(Debug, Clone)]
pub struct Logger {
    /// Where to.
    pub target: LogTarget,
    /// `len`: the longest line sent, in bytes; of a ring its `maxlen` if that is less.
    pub max_length: usize,
    /// How a line begins; of a named ring what its section says.
    pub format: LogFormat,
    /// 0 (kern) to 23 (local7).
    pub facility: u8,
    /// The least important level that is sent, 0 (emerg) to 7 (debug).
    pub max_level: u8,
    /// Levels more important than this are sent as this.
    pub min_level: u8,
    /// `sample <ranges>:<size>`.
    pub sample: Option<Arc<Sample>>,
    /// `profile`.
    pub profile: Option<Arc<LogProfile>>,
}

impl Logger {
    /// The same for a proxy that inherits it, whose lines are counted apart.
    pub fn inherited(&self) -> Self {
        let anew = |sample: &Arc<Sample>| Arc::new(Sample::new(sample.ranges.clone(), sample.size));
        Self { sample: self.sample.as_ref().map(anew), ..self.clone() }
    }
}

/// `log-steps`: at which steps of a stream a line is written.
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

    /// Those of a `log-steps` line.
    pub fn of(steps: impl IntoIterator<Item = LogOrigin>) -> Self {
        Self(steps.into_iter().fold(Self::GIVEN, |bits, origin| bits | Self::bit(origin)))
    }

    /// Whether there was such a line: `option logasap` has no say then.
    pub fn is_given(self) -> bool {
        self.0 & Self::GIVEN != 0
    }

    /// Whether a line is written there.
    #[inline]
    pub fn holds(self, origin: LogOrigin) -> bool {
        self.0 & Self::bit(origin) != 0
    }
}

impl Default for LogSteps {
    /// One line, at the end.
    fn default() -> Self {
        Self(Self::bit(LogOrigin::Close))
    }
}

/// `log-proto`: how messages are told apart in a stream (RFC 6587, 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogProto {
    /// A line feed ends each (non-transparent framing).
    #[default]
    Legacy,
    /// Its length stands before each.
    OctetCount,
}

/// How a server of a log backend gets its lines.
#[derive(Debug, Clone)]
pub enum LogServer {
    /// A datagram each (`udp@`, `uxdg@`).
    Datagram,
    /// Over a stream, by way of this ring.
    Ring(Arc<Ring>),
}

/// A `log-forward` section, beside what every frontend has.
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

/// A socket for datagrams.
#[derive(Debug, Clone)]
pub struct DatagramBind {
    /// Its address, with [`Transport::Datagram`](crate::bind::Transport::Datagram).
    pub address: BindAddress,
    /// The file and line that ask for it, such as `haproxy.cfg:8`.
    pub place: Box<str>,
    /// `interface`.
    pub interface: Option<Box<str>>,
    /// `namespace`.
    pub namespace: Option<Box<str>>,
    /// `transparent`.
    pub transparent: bool,
    /// The workers that process its datagrams. One of them reads the socket.
    pub workers: Vec<usize>,
}

/// `option host`: the host that a forwarded message names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostStrategy {
    /// Who sent it.
    Replace,
    /// Its own, or who sent it.
    #[default]
    Fill,
    /// Its own.
    Keep,
    /// Its own and who sent it.
    Append,
}
