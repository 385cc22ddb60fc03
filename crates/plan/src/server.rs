//! A `server` line, resolved (configuration manual, chapter 5.2): how to reach it and what to say
//! to it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use balance::HashKey;
use sample::format::Format;

use crate::check::{AgentSettings, CheckSettings, Connect};
use crate::log::LogServer;
use crate::resolvers::Resolution;

/// Settings of one server. What changes at run time is in [`state::Server`].
#[derive(Debug)]
pub struct ServerSettings {
    /// The server as it is now.
    pub state: Arc<state::Server>,
    /// Its place in the backend's list.
    pub index: usize,
    /// `cookie`: the value that means this server.
    pub cookie: Option<Box<str>>,
    /// `non-stick`: requests that it serves are noted in no stick table.
    pub non_stick: bool,
    /// `redir`.
    pub redirect: Option<Box<str>>,
    /// `proto h2`: HTTP/2 is spoken without asking.
    pub speaks_h2: bool,
    /// `proto fcgi`: FastCGI is spoken.
    pub speaks_fcgi: bool,
    /// `ws`.
    pub ws: Ws,
    /// `rhttp@`: it is never dialled, clients bring its connections (`attach-srv`).
    pub is_reverse: bool,
    /// `idle-ping`: how often it is asked on an idle connection of HTTP/2 whether it lives.
    pub idle_ping: Option<Duration>,
    /// What is sent before anything else.
    pub send_proxy: SendProxy,
    /// `source` of the server or its backend.
    pub source: Option<SourceAddress>,
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
    /// `slowstart`.
    pub slow_start: Option<Duration>,
    /// `socks4`.
    pub socks4: Option<SocketAddr>,
    /// `check` and its kin.
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
    /// `shard`: the part of the keys that a peer gets; 0 for all.
    pub shard: u32,
    /// `resolvers`: who is asked for the server's name while it runs.
    pub resolution: Option<Resolution>,
    /// How it gets log lines, in a log backend.
    pub log: Option<LogServer>,
    /// `ssl`, `check-ssl` and what belongs to them.
    pub tls: Option<ServerTls>,
    /// Its line, where it was added at run time: for a configuration that has it.
    pub added: Option<Box<str>>,
    /// What its connections depend on, as one number: those of a server with another are not its.
    pub print: u64,
}

/// `ws`: what is spoken for WebSockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ws {
    /// What is spoken otherwise; in TLS HTTP/1 where both are offered.
    #[default]
    Auto,
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// How a server is met in TLS.
#[derive(Debug)]
pub struct ServerTls {
    /// What requests and the rest of a server's line say.
    pub connector: Arc<tls::Connector>,
    /// The name that a server is sent.
    pub name: ServerName,
    /// `check-ssl`, or `ssl` without `no-check-ssl`: what checks say.
    pub check: Option<Arc<tls::Connector>>,
    /// `allow-0rtt`: requests may be sent before the server has said anything.
    pub early: bool,
    /// `check-sni`.
    pub check_name: Option<Box<str>>,
    /// What `connect` steps of its check say that name protocols of their own (`alpn`).
    pub steps: Vec<StepConnector>,
    /// What requests for an upgrade say, where that is something else (`ws`).
    pub of_upgrades: Option<Arc<tls::Connector>>,
}

/// Protocols, preferred first, and what offers them.
pub type StepConnector = (Vec<Box<[u8]>>, Arc<tls::Connector>);

impl ServerTls {
    /// How a `connect` step of its check speaks TLS, and the name that it sends; `None` where it
    /// does not.
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
    /// How to speak TLS with it, where that is spoken now.
    #[inline]
    pub fn speaks_tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref().filter(|_| self.state.is_secured())
    }
}

/// The name that a server is sent in the hello (SNI).
#[derive(Debug)]
pub enum ServerName {
    /// None.
    None,
    /// What an expression says of the request: `sni`, or its host.
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
        /// `authority`: from a TLV received, or the name that the client sent in TLS.
        authority: bool,
        /// What it tells of TLS.
        tls: Option<ProxyTls>,
    },
}

/// What a PROXY header of version 2 tells of the client's TLS beside its version and whether the
/// client has a certificate (`send-proxy-v2-ssl`, `proxy-v2-options`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyTls {
    /// `cert-cn`: the common name of the client's certificate.
    pub common_name: bool,
    /// `ssl-cipher`.
    pub cipher: bool,
    /// `cert-sig`: what our own certificate is signed with.
    pub signature: bool,
    /// `cert-key`: the kind and size of our own key.
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
