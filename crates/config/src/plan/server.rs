//! A `server` line, resolved (configuration manual, chapter 5.2): how to reach it and what to say to it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use balance::HashKey;
use sample::format::Format;

/// Settings of one server. What changes at run time is in [`state::Server`].
#[derive(Debug)]
pub struct ServerSettings {
    /// The server as it is now.
    pub state: Arc<state::Server>,
    /// Its place in the backend's list.
    pub index: usize,
    /// Where the port comes from when the address has none or a relative one: added to the client's destination port.
    pub port_offset: Option<i32>,
    /// `cookie`: the value that means this server.
    pub cookie: Option<Box<str>>,
    /// `redir`.
    pub redirect: Option<Box<str>>,
    /// What is sent before anything else.
    pub send_proxy: SendProxy,
    /// `source` of the server or its backend.
    pub source: Option<Source>,
    /// `namespace`: a name, or `*` for the client's own.
    pub namespace: Option<Box<str>>,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-md5sig`.
    pub md5sig: Option<Box<str>>,
    /// `cc`.
    pub congestion: Option<Box<str>>,
    /// `on-marked-down shutdown-sessions`.
    pub shutdown_sessions_when_down: bool,
    /// `on-marked-up shutdown-backup-sessions`.
    pub shutdown_backups_when_up: bool,
    /// `pool-max-conn`: idle connections kept, -1 for no limit, 0 for none.
    pub pool_max_conn: i64,
    /// `pool-low-conn`: below this many idle connections, others' are not taken over.
    pub pool_low_conn: u32,
    /// `pool-purge-delay`.
    pub pool_purge_delay: Duration,
    /// `pool-conn-name`: connections are reused only under the same name.
    pub pool_conn_name: Option<sample::Expression>,
    /// `max-reuse`: how often a connection is reused, -1 for no limit.
    pub max_reuse: i64,
    /// `set-proxy-v2-tlv-fmt`, the type and its value.
    pub proxy_v2_tlvs: Vec<(u8, Format)>,
    /// `non-stick`.
    pub non_stick: bool,
    /// `slowstart`.
    pub slow_start: Option<Duration>,
    /// `socks4`.
    pub socks4: Option<SocketAddr>,
    /// `proto`: empty for HTTP/1.
    pub check: Option<CheckSettings>,
    /// `agent-check` and its kin.
    pub agent: Option<AgentSettings>,
    /// `track`: the backend and server whose state this one has.
    pub track: Option<(Arc<state::Proxy>, Arc<state::Server>)>,
    /// `observe layer4|layer7`.
    pub observe: Observe,
    /// `error-limit`.
    pub error_limit: u32,
    /// `on-error`.
    pub on_error: OnError,
    /// `tos`, `mark` set on connections.
    pub tos: Option<u32>,
    /// `hash-key`.
    pub hash_key: HashKey,
    /// `guid`.
    pub guid: Option<Box<str>>,
    /// `strict-maxconn`.
    pub strict_maxconn: bool,
}

/// `observe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Observe {
    #[default]
    None,
    Layer4,
    Layer7,
}

/// `on-error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum OnError {
    FastInter,
    #[default]
    FailCheck,
    SuddenDeath,
    MarkDown,
}

impl OnError {
    /// What [`state::server::Health::observe`] is to ask of the checks.
    pub fn demand(self) -> state::server::Demand {
        match self {
            Self::FastInter => state::server::Demand::FastInter,
            Self::FailCheck => state::server::Demand::FailCheck,
            Self::SuddenDeath => state::server::Demand::SuddenDeath,
            Self::MarkDown => state::server::Demand::MarkDown,
        }
    }
}

/// `send-proxy`, `send-proxy-v2` and `proxy-v2-options`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendProxy {
    /// Nothing.
    #[default]
    None,
    /// Version 1.
    V1,
    /// Version 2 with options.
    V2 {
        /// `unique-id`.
        unique_id: bool,
        /// `crc32c`.
        crc32c: bool,
        /// `authority`, from a TLV received.
        authority: bool,
    },
}

/// `source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The address to bind to.
    pub address: Option<IpAddr>,
    /// The ports to choose from: none, one, or a range.
    pub ports: Option<(u16, u16)>,
    /// `interface`.
    pub interface: Option<Box<str>>,
    /// `usesrc`.
    pub transparent: UseSource,
}

/// `usesrc`: the address shown to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UseSource {
    /// Our own.
    #[default]
    No,
    /// This one.
    Fixed(SocketAddr),
    /// `client`: the client's address and port.
    Client,
    /// `clientip`: the client's address.
    ClientIp,
    /// `hdr_ip(name,occurrence)`: one found in a header.
    Header(Box<str>, i32),
}

/// Health checks of one server in their simple form, and the backend's check (see [`CheckKind`]).
#[derive(Debug, Clone)]
pub struct CheckSettings {
    /// `inter`, `fastinter`, `downinter`.
    pub inter: Duration,
    /// Likewise; `None` for `inter`.
    pub fastinter: Option<Duration>,
    /// Likewise.
    pub downinter: Option<Duration>,
    /// `rise`.
    pub rise: u32,
    /// `fall`.
    pub fall: u32,
    /// `addr`, `port`: where to check instead.
    pub address: Option<IpAddr>,
    /// Likewise.
    pub port: Option<u16>,
    /// `check-send-proxy`.
    pub send_proxy: bool,
    /// `timeout check`; `None` for connect's and `inter`.
    pub timeout: Option<Duration>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
    /// What is asked.
    pub kind: Arc<CheckKind>,
    /// `option log-health-checks`.
    pub log: bool,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
    /// `http-check send-state`.
    pub send_state: bool,
    /// `init-state`: what it is before the first check.
    pub initially_up: bool,
}

/// The agent of a server (`agent-check`).
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// `agent-addr`; `None` for the server's own.
    pub address: Option<IpAddr>,
    /// `agent-port`.
    pub port: u16,
    /// `agent-inter`.
    pub inter: Duration,
    /// `agent-send`.
    pub send: Box<[u8]>,
    /// `timeout check`; `None` for `inter`.
    pub timeout: Option<Duration>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
}

/// What a health check asks.
#[derive(Debug, Clone)]
pub enum CheckKind {
    /// A connection is enough.
    Tcp,
    /// `option httpchk`: a request and what is expected.
    Http {
        /// The request line's parts.
        method: Box<str>,
        /// The target.
        uri: Box<str>,
        /// The version, with fields (`HTTP/1.1`, Host …).
        version: Box<str>,
        /// Fields.
        headers: Vec<(Box<str>, Box<str>)>,
        /// The body.
        body: Box<[u8]>,
        /// What must hold.
        expect: Vec<HttpExpect>,
    },
    /// Bytes sent and bytes expected, one after the other (`tcp-check send/expect`).
    Script(Vec<CheckStep>),
}

/// `http-check expect`.
#[derive(Debug, Clone)]
pub struct HttpExpect {
    /// `!`.
    pub negate: bool,
    /// What.
    pub what: HttpExpectWhat,
}

/// What an `http-check expect` looks at.
#[derive(Debug, Clone)]
pub enum HttpExpectWhat {
    /// Ranges of statuses.
    Status(Vec<(u16, u16)>),
    /// `rstatus`.
    StatusRegex(regex::bytes::Regex),
    /// `string`.
    Body(Box<[u8]>),
    /// `rstring`.
    BodyRegex(regex::bytes::Regex),
}

/// A step of a scripted check.
#[derive(Debug, Clone)]
pub enum CheckStep {
    /// Opens a connection (to another port).
    Connect {
        /// `port`.
        port: Option<u16>,
        /// `send-proxy`.
        send_proxy: bool,
    },
    /// Sends bytes.
    Send(Box<[u8]>),
    /// Waits for bytes.
    Expect {
        /// `!`.
        negate: bool,
        /// `min-recv`.
        min_recv: Option<usize>,
        /// What.
        what: ExpectBytes,
    },
    /// Takes what a passed check reports from what was last received: the code from the first group, the information
    /// from the second, or the text given when the pattern has none.
    Report {
        /// What is looked for.
        pattern: regex::bytes::Regex,
        /// The information, when no group gives it.
        text: Box<str>,
    },
    /// Names the step for messages.
    Comment(Box<str>),
}

/// Bytes waited for.
#[derive(Debug, Clone)]
pub enum ExpectBytes {
    /// These.
    Bytes(Box<[u8]>),
    /// What this matches.
    Regex(regex::bytes::Regex),
}
