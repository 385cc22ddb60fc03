//! One `log` line, resolved (configuration manual, 4.2 `log`).

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogTarget {
    /// Datagrams.
    Udp(SocketAddr),
    /// A UNIX datagram socket.
    Unix(PathBuf),
    /// Linux's abstract namespace.
    Abstract(Vec<u8>),
    /// A file descriptor of this process: `stdout`, `stderr`, `fd@N`.
    Descriptor(i32),
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
}

/// One destination of log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logger {
    /// Where to.
    pub target: LogTarget,
    /// `len`: the longest line sent, in bytes.
    pub max_length: usize,
    /// How a line begins.
    pub format: LogFormat,
    /// 0 (kern) to 23 (local7).
    pub facility: u8,
    /// The least important level that is sent, 0 (emerg) to 7 (debug).
    pub max_level: u8,
    /// Levels more important than this are sent as this.
    pub min_level: u8,
    /// `sample <ranges>:<size>`: which of each `size` lines are sent (from 1), and the size.
    pub sample: Option<(Vec<(u32, u32)>, u32)>,
}
