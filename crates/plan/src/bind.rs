//! One `bind` line, resolved (configuration manual, chapter 5.1). An address range has become one
//! entry a port.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a socket receives data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Connections are accepted from it.
    Stream,
    /// Datagrams are read from it.
    Datagram,
}

/// What a socket is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindAddress {
    /// TCP.
    Ip(SocketAddr),
    /// UDP.
    Udp(SocketAddr),
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// Linux's abstract namespace, the name without its leading NUL; padded to the full length
    /// (`abns`) or not.
    Abstract {
        /// The name.
        name: Vec<u8>,
        /// Whether the address has the full length.
        padded: bool,
    },
    /// A listening descriptor inherited under this number (`fd@N`).
    Inherited(i32),
    /// One end of a socket pair inherited under this number, over which connections' descriptors
    /// are received (`sockpair@N`).
    SocketPair(i32),
    /// Connections that are opened to a server and then bring requests (`rhttp@`).
    Reverse(ReverseTarget),
}

impl BindAddress {
    /// The transport of its socket.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Datagram,
            Self::Ip(_)
            | Self::Unix(_)
            | Self::Abstract { .. }
            | Self::Inherited(_)
            | Self::SocketPair(_)
            | Self::Reverse(_) => Transport::Stream,
        }
    }
}

impl fmt::Display for BindAddress {
    /// The address with the prefix of its family (configuration manual, chapter 11).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address @ SocketAddr::V4(_)) => write!(f, "ipv4@{address}"),
            Self::Ip(address @ SocketAddr::V6(_)) => write!(f, "ipv6@{address}"),
            Self::Udp(address @ SocketAddr::V4(_)) => write!(f, "udp4@{address}"),
            Self::Udp(address @ SocketAddr::V6(_)) => write!(f, "udp6@{address}"),
            Self::Unix(path) => write!(f, "unix@{}", path.display()),
            Self::Abstract { name, padded } => {
                let family = if *padded { "abns" } else { "abnsz" };
                write!(f, "{family}@{}", String::from_utf8_lossy(name))
            }
            Self::Inherited(number) => write!(f, "fd@{number}"),
            Self::SocketPair(number) => write!(f, "sockpair@{number}"),
            Self::Reverse(_) => f.write_str("rhttp@"),
        }
    }
}

/// Whom a listener of reverse HTTP opens its connections to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReverseTarget {
    /// The number of the server's backend.
    pub backend: usize,
    /// The server's place there.
    pub server: usize,
    /// `nbconn`: how many connections are kept open.
    pub connections: u32,
}

/// Who may do what on a runtime socket (`level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AccessLevel {
    /// Only what is harmless to see.
    User,
    /// Everything that only looks, and counters.
    #[default]
    Operator,
    /// Everything.
    Admin,
}

/// One socket to listen on.
#[derive(Debug, Clone)]
pub struct Bind {
    /// What it is bound to.
    pub address: BindAddress,
    /// The file and line that ask for it, such as `haproxy.cfg:8`.
    pub place: Box<str>,
    /// Its state: name, counters. For `stats socket` too.
    pub listener: Arc<state::Listener>,
    /// `accept-proxy`.
    pub accept_proxy: bool,
    /// `accept-netscaler-cip`: the magic number that both sides agreed on.
    pub netscaler_magic: Option<u32>,
    /// `proto none`: streams of TCP do not become streams of HTTP.
    pub stays_raw: bool,
    /// `proto h2`: clients speak HTTP/2 without being asked.
    pub speaks_h2: bool,
    /// `proto h1`: no preface of HTTP/2 is looked for.
    pub http1_alone: bool,
    /// `idle-ping`: how often an idle client of HTTP/2 is asked whether it lives.
    pub idle_ping: Option<Duration>,
    /// `tcp-ss`: 1 saves the SYN of connections from its IP header on, 2 from its Ethernet header
    /// on.
    pub save_syn: Option<u8>,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-md5sig`: the key.
    pub md5sig: Option<Box<str>>,
    /// `mss`: positive to cap, negative to subtract from the interface's.
    pub mss: Option<i32>,
    /// `defer-accept`.
    pub defer_accept: bool,
    /// `transparent`.
    pub transparent: bool,
    /// `v4v6`, `v6only`; `None` for the system's default.
    pub v6only: Option<bool>,
    /// `interface`.
    pub interface: Option<Box<str>>,
    /// `namespace`.
    pub namespace: Option<Box<str>>,
    /// `backlog`; 0 for the frontend's.
    pub backlog: u32,
    /// `mode`, of a UNIX socket.
    pub mode: Option<u32>,
    /// `uid`/`user`.
    pub uid: Option<u32>,
    /// `gid`/`group`.
    pub gid: Option<u32>,
    /// `level`, of a runtime socket.
    pub level: AccessLevel,
    /// `expose-fd listeners`.
    pub expose_fds: bool,
    /// `cc`: the congestion control.
    pub congestion: Option<Box<str>>,
    /// `shards`: sockets of the same address; `None` for what `tune.listener.default-shards` says.
    pub shards: Option<Shards>,
    /// `thread`: the workers that accept from it.
    pub workers: Vec<usize>,
    /// `severity-output`.
    pub severity_output: SeverityOutput,
    /// `ssl` and what belongs to it: how clients are met in TLS.
    pub tls: Option<Arc<tls::Acceptor>>,
}

impl Bind {
    /// Whether something comes before the first request: a header of a proxy before us, or the
    /// handshake of TLS.
    pub fn begins_with_a_handshake(&self) -> bool {
        self.accept_proxy || self.netscaler_magic.is_some() || self.tls.is_some()
    }
}

/// `severity-output` of a runtime socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeverityOutput {
    /// Not shown.
    #[default]
    None,
    /// As a number.
    Number,
    /// As a word.
    String,
}

/// `shards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shards {
    /// One socket a thread group.
    #[default]
    ByGroup,
    /// One socket a thread.
    ByThread,
    /// So many.
    Count(usize),
}
