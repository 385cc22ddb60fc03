//! A `server` line, resolved (configuration manual, chapter 5.2): how to reach the server, and the data that is sent to it.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use balance::HashKey;
use sample::format::Format;
use state::table::Table;

use crate::check::{AgentSettings, CheckSettings, Connect};
use crate::discovery::DiscoveredInstance;
use crate::log::LogServer;
use crate::quic::{QmuxUse, QuicServer};
use crate::resolvers::Resolution;

/// One server. Settings that change at run time are in [`state::Server`].
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The server's current state.
    pub state: Arc<state::Server>,
    /// The index of the server in the backend.
    pub index: usize,
    /// The settings, which the servers of a `servers from` line share.
    pub options: Arc<ServerOptions>,
    /// The instance, if the server was discovered.
    pub discovered: Option<Arc<DiscoveredInstance>>,
    /// The configuration line, if the server was added at run time. Used to write a configuration.
    pub added: Option<Box<str>>,
}

impl Deref for ServerSettings {
    type Target = ServerOptions;

    #[inline]
    fn deref(&self) -> &ServerOptions {
        &self.options
    }
}

/// The settings of a server that other servers may have too.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// `cookie`: the value that identifies this server.
    pub cookie: Option<Box<[u8]>>,
    /// `non-stick`: requests to this server are not stored in stick tables.
    pub non_stick: bool,
    /// `redir`.
    pub redirect: Option<Box<[u8]>>,
    /// `proto h2`: HTTP/2 without negotiation.
    pub speaks_h2: bool,
    /// `proto fcgi`: FastCGI.
    pub speaks_fcgi: bool,
    /// HTTP/3 over QMux (`proto qmux`, or `alpn h3` over TCP).
    pub qmux: QmuxUse,
    /// `quic4@`, `quic6@`: HTTP/3 over QUIC.
    pub quic: Option<QuicServer>,
    /// `ws`.
    pub ws: Ws,
    /// `rhttp@`: Weir never connects to the server; clients provide its connections (`attach-srv`).
    pub is_reverse: bool,
    /// `idle-ping`: the interval of pings on idle HTTP/2 connections.
    pub idle_ping: Option<Duration>,
    /// The PROXY header to send first.
    pub send_proxy: SendProxy,
    /// `source` of the server or its backend.
    pub source: Option<Arc<SourceAddress>>,
    /// `namespace`: a name, or `*` for that of the client.
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
    /// `pool-max-conn`: maximum number of idle connections, -1 for no limit, 0 for none.
    pub pool_max_conn: i64,
    /// `pool-low-conn`: if there are fewer idle connections than this, those of other workers are not taken over.
    pub pool_low_conn: u32,
    /// `pool-purge-delay`.
    pub pool_purge_delay: Duration,
    /// `pool-conn-name`: connections are only reused under the same name.
    pub pool_conn_name: Option<Arc<sample::Expression>>,
    /// `max-reuse`: how often a connection is reused, -1 for no limit.
    pub max_reuse: i64,
    /// `set-proxy-v2-tlv-fmt`, the type and its value.
    pub proxy_v2_tlvs: Arc<[(u8, Format)]>,
    /// `slowstart`.
    pub slow_start: Option<Duration>,
    /// `socks4`.
    pub socks4: Option<SocketAddr>,
    /// `check` and related options.
    pub check: Option<Arc<CheckSettings>>,
    /// `agent-check` and related options.
    pub agent: Option<AgentSettings>,
    /// `track`: the backend and the server that this one follows.
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
    /// `maxconn … fleet`: the table with the requests that all members of its `peers` section have at the server.
    pub fleet: Option<Arc<Table>>,
    /// `strict-maxconn`.
    pub strict_maxconn: bool,
    /// `shard`: the shard of keys that a peer gets; 0 for all keys.
    pub shard: u32,
    /// `resolvers`: how the server's name is resolved at run time.
    pub resolution: Option<Resolution>,
    /// How the server receives log lines, in a log backend.
    pub log: Option<LogServer>,
    /// `ssl`, `check-ssl` and related options.
    pub tls: Option<Arc<ServerTls>>,
    /// A hash of the settings on which the server's connections depend. Connections with a different value belong to a different
    /// server.
    pub print: u64,
}

/// `ws`: the protocol for WebSockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ws {
    /// The same protocol as for other requests. If TLS offers both HTTP/1 and HTTP/2, HTTP/1 is used.
    #[default]
    Auto,
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The TLS settings of a server.
#[derive(Debug)]
pub struct ServerTls {
    /// The settings for requests and for all other purposes.
    pub connector: Arc<tls::Connector>,
    /// The server name to send.
    pub name: ServerName,
    /// `check-ssl`, or `ssl` without `no-check-ssl`: the settings for checks.
    pub check: Option<Arc<tls::Connector>>,
    /// `allow-0rtt`: requests may be sent as early data.
    pub early: bool,
    /// `check-sni`.
    pub check_name: Option<Box<str>>,
    /// The settings for `connect` steps of the check with their own protocols (`alpn`).
    pub steps: Vec<StepConnector>,
    /// The settings for upgrade requests, if they differ (`ws`).
    pub of_upgrades: Option<Arc<tls::Connector>>,
}

/// Protocols in order of preference, and the connector that offers them.
pub type StepConnector = (Vec<Box<[u8]>>, Arc<tls::Connector>);

impl ServerTls {
    /// Returns the TLS settings of a `connect` step in the server's check, and the server name to send. `None` if the step does not
    /// use TLS.
    pub fn of_step<'a>(&'a self, step: &'a Connect) -> Option<(&'a tls::Connector, Option<&'a str>)> {
        let is_usual = step.default || step.implied;
        let usual = self.check.as_ref().filter(|_| is_usual);
        let usual = usual.or_else(|| step.secure.then(|| self.check.as_ref().unwrap_or(&self.connector)))?;
        let own = step.alpn.as_ref().and_then(|alpn| self.steps.iter().find(|(own, _)| own == alpn));
        let name = step.name.as_deref().or(self.check_name.as_deref().filter(|_| is_usual));
        Some((own.map_or(usual, |(_, connector)| connector), name))
    }
}

impl ServerSettings {
    /// Whether the server is more than an address: tasks attend to its checks, its agent, its name, the changes of its weight over time,
    /// or its limit in a fleet.
    pub fn is_attended(&self) -> bool {
        self.check.is_some()
            || self.agent.is_some()
            || self.track.is_some()
            || self.resolution.is_some()
            || self.fleet.is_some()
            || self.slow_start.is_some()
            || self.shutdown_sessions_when_down
            || self.shutdown_backups_when_up
    }

    /// Returns the server's TLS settings, if it currently uses TLS.
    #[inline]
    pub fn speaks_tls(&self) -> Option<&ServerTls> {
        self.tls.as_deref().filter(|_| self.state.is_secured())
    }
}

/// The server name to send (SNI).
#[derive(Debug)]
pub enum ServerName {
    /// No server name is sent.
    None,
    /// The result of an expression about the request: `sni`, or by default the host.
    Expression(sample::Expression),
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
    /// Returns the demand for [`state::server::Health::observe`].
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
    /// No header.
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
        /// `authority`: from a received TLV, or the server name sent by the client.
        authority: bool,
        /// The TLS part.
        tls: Option<ProxyTls>,
    },
}

/// The optional parts about the client's TLS in a version 2 PROXY header, in addition to the version and whether the client has a
/// certificate (`send-proxy-v2-ssl`, `proxy-v2-options`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyTls {
    /// `cert-cn`: the common name of the client's certificate.
    pub common_name: bool,
    /// `ssl-cipher`.
    pub cipher: bool,
    /// `cert-sig`: the signature algorithm of the certificate that Weir presents.
    pub signature: bool,
    /// `cert-key`: the kind and size of the key of that certificate.
    pub key: bool,
}

/// `source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAddress {
    /// The address to bind to.
    pub address: Option<IpAddr>,
    /// The ports to choose from: none, one, or a range.
    pub ports: Option<(u16, u16)>,
    /// `interface`.
    pub interface: Option<Box<str>>,
    /// `usesrc`.
    pub transparent: UseSource,
}

/// `usesrc`: the source address visible to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UseSource {
    /// The address of this machine.
    #[default]
    No,
    /// A fixed address.
    Fixed(SocketAddr),
    /// `client`: the client's address and port.
    Client,
    /// `clientip`: the client's address.
    ClientIp,
    /// `hdr_ip(name,occurrence)`: an address from a header.
    Header(Box<str>, i32),
}
