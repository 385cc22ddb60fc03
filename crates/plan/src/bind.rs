//! One `bind` line, resolved (configuration manual, chapter 5.1). An address range is expanded to one entry per port.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::quic::{QmuxUse, QuicBind};

/// How a socket receives data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Connections are accepted from the socket.
    Stream,
    /// Datagrams are read from the socket.
    Datagram,
}

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindAddress {
    /// TCP.
    Ip(SocketAddr),
    /// UDP.
    Udp(SocketAddr),
    /// UDP for QUIC connections.
    Quic(SocketAddr),
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// A name in Linux's abstract namespace, without the leading NUL; padded to the full length (`abns`) or not.
    Abstract {
        /// The name.
        name: Vec<u8>,
        /// Whether the address has the full length.
        padded: bool,
    },
    /// A listening descriptor inherited under this number (`fd@N`).
    Inherited(i32),
    /// A UDP descriptor inherited under this number, for QUIC connections (`quic+fd@N`).
    InheritedQuic(i32),
    /// One end of a socket pair inherited under this number, over which connection descriptors are received (`sockpair@N`).
    SocketPair(i32),
    /// Connections that are opened to a server, which then sends requests over them (`rhttp@`).
    Reverse(ReverseTarget),
}

impl BindAddress {
    /// Returns the transport of its socket.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) | Self::Quic(_) | Self::InheritedQuic(_) => Transport::Datagram,
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
    /// Formats the address with the prefix of its family (configuration manual, chapter 11).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address @ SocketAddr::V4(_)) => write!(f, "ipv4@{address}"),
            Self::Ip(address @ SocketAddr::V6(_)) => write!(f, "ipv6@{address}"),
            Self::Udp(address @ SocketAddr::V4(_)) => write!(f, "udp4@{address}"),
            Self::Udp(address @ SocketAddr::V6(_)) => write!(f, "udp6@{address}"),
            Self::Quic(address @ SocketAddr::V4(_)) => write!(f, "quic4@{address}"),
            Self::Quic(address @ SocketAddr::V6(_)) => write!(f, "quic6@{address}"),
            Self::Unix(path) => write!(f, "unix@{}", path.display()),
            Self::Abstract { name, padded } => {
                let family = if *padded { "abns" } else { "abnsz" };
                write!(f, "{family}@{}", String::from_utf8_lossy(name))
            }
            Self::Inherited(number) => write!(f, "fd@{number}"),
            Self::InheritedQuic(number) => write!(f, "quic+fd@{number}"),
            Self::SocketPair(number) => write!(f, "sockpair@{number}"),
            Self::Reverse(_) => f.write_str("rhttp@"),
        }
    }
}

/// The server to which a reverse HTTP listener opens its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReverseTarget {
    /// The index of the server's backend.
    pub backend: usize,
    /// The index of the server in the backend.
    pub server: usize,
    /// `nbconn`: how many connections are kept open.
    pub connections: u32,
}

/// The access level of a runtime socket (`level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AccessLevel {
    /// Only information that is not sensitive.
    User,
    /// All information, and counters.
    #[default]
    Operator,
    /// Everything.
    Admin,
}

/// One socket to listen on.
#[derive(Debug, Clone)]
pub struct Bind {
    /// The address of the socket.
    pub address: BindAddress,
    /// The file and line in the configuration, such as `haproxy.cfg:8`.
    pub place: Box<str>,
    /// The state of the listener: name, counters. Also exists for `stats socket`.
    pub listener: Arc<state::Listener>,
    /// `accept-proxy`.
    pub accept_proxy: bool,
    /// `accept-netscaler-cip`: the magic number shared with the sender.
    pub netscaler_magic: Option<u32>,
    /// `proto none`: TCP streams are never upgraded to HTTP.
    pub stays_raw: bool,
    /// `proto h2`: clients speak HTTP/2 without negotiation.
    pub speaks_h2: bool,
    /// Whether clients speak HTTP/3 over QMux (`proto qmux`, or `alpn h3` over TCP).
    pub qmux: QmuxUse,
    /// `proto h1`: an HTTP/2 preface is not recognized.
    pub http1_alone: bool,
    /// `idle-ping`: the interval of pings on idle HTTP/2 connections.
    pub idle_ping: Option<Duration>,
    /// `tcp-ss`: whether to save the SYN of connections, starting at the IP header (1) or at the Ethernet header (2).
    pub save_syn: Option<u8>,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-md5sig`: the key.
    pub md5sig: Option<Box<str>>,
    /// `mss`: a positive value is the maximum; a negative value is added to the interface's.
    pub mss: Option<i32>,
    /// `defer-accept`.
    pub defer_accept: bool,
    /// `transparent`.
    pub transparent: bool,
    /// `v4v6`, `v6only`; `None` uses the system's default.
    pub v6only: Option<bool>,
    /// `interface`.
    pub interface: Option<Box<str>>,
    /// `namespace`.
    pub namespace: Option<Box<str>>,
    /// `backlog`; 0 uses that of the frontend.
    pub backlog: u32,
    /// `mode`, for a UNIX socket.
    pub mode: Option<u32>,
    /// `uid`/`user`.
    pub uid: Option<u32>,
    /// `gid`/`group`.
    pub gid: Option<u32>,
    /// `level`, for a runtime socket.
    pub level: AccessLevel,
    /// `expose-fd listeners`.
    pub expose_fds: bool,
    /// `cc`: the congestion control algorithm.
    pub congestion: Option<Box<str>>,
    /// `shards`: the number of sockets with the same address; `None` uses `tune.listener.default-shards`.
    pub shards: Option<Shards>,
    /// `thread`: the workers that accept from the socket.
    pub workers: Vec<usize>,
    /// `severity-output`.
    pub severity_output: SeverityOutput,
    /// `ssl` and related options: the TLS settings for clients.
    pub tls: Option<Arc<tls::Acceptor>>,
    /// The QUIC settings, if clients use QUIC.
    pub quic: Option<Box<QuicBind>>,
}

impl Bind {
    /// Whether a connection starts with a header from a proxy in front of Weir, or with a TLS handshake.
    pub fn begins_with_a_handshake(&self) -> bool {
        self.accept_proxy || self.netscaler_magic.is_some() || self.tls.is_some()
    }
}

/// `severity-output` of a runtime socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeverityOutput {
    /// The severity is not shown.
    #[default]
    None,
    /// The severity is shown as a number.
    Number,
    /// The severity is shown as a word.
    String,
}

/// `shards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shards {
    /// One socket per thread group.
    #[default]
    ByGroup,
    /// One socket per thread.
    ByThread,
    /// A fixed number.
    Count(usize),
}
