//! The parameters of a `server`, `server-template` or `default-server` line, as plain values. Names (tracked servers), expressions
//! and formats are still words at this stage.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use balance::HashKey;
use plan::check::{InitState, Protocol};
use plan::log::LogProto;
use plan::resolvers::Wishes;
use plan::server::{Observe, OnError, ProxyTls, SendProxy, SourceAddress};
use syntax::Word;

use crate::draft::bind::QuicWords;
use crate::draft::inherited::Inherited;
use crate::draft::tls::ServerTls;

/// A method of finding a server's address at startup (`init-addr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitAddr {
    /// From the state file.
    Last,
    /// By the system's resolver.
    Libc,
    /// No address: the server starts in the down state.
    None,
    /// This address.
    Ip(IpAddr),
}

/// The PROXY protocol settings of a server line. Their words may be in any order; a version is set only if it is named.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct SendProxyWords {
    pub version_1: bool,
    pub version_2: bool,
    pub unique_id: bool,
    pub crc32c: bool,
    pub authority: bool,
    /// The TLS data in the header (`send-proxy-v2-ssl`, `ssl` and other options).
    pub tls: Option<ProxyTls>,
}

impl SendProxyWords {
    /// The resulting header: version 2 takes precedence over version 1, and options apply only to version 2.
    #[must_use]
    pub fn resolved(self) -> SendProxy {
        let SendProxyWords { version_1, version_2, unique_id, crc32c, authority, tls } = self;
        match (version_1, version_2) {
            (_, true) => SendProxy::V2 { unique_id, crc32c, authority, tls },
            (true, false) => SendProxy::V1,
            (false, false) => SendProxy::None,
        }
    }
}

/// The parameters of a server.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct ServerDraft<'a> {
    pub id: Option<u32>,
    pub backup: bool,
    /// `non-stick`.
    pub non_stick: bool,
    pub disabled: bool,
    pub maxconn: u32,
    /// `maxconn … fleet`: the table with the requests of all members.
    pub fleet: Option<&'a Word>,
    pub minconn: u32,
    pub maxqueue: u32,
    pub weight: u32,
    pub cookie: Option<&'a str>,
    pub redirect: Option<&'a str>,
    pub send_proxy: SendProxyWords,
    pub source: Option<Rc<SourceAddress>>,
    pub namespace: Option<&'a str>,
    pub tcp_ut: Option<Duration>,
    pub tfo: bool,
    pub md5sig: Option<&'a str>,
    pub congestion: Option<&'a str>,
    pub shutdown_sessions_when_down: bool,
    pub shutdown_backups_when_up: bool,
    pub pool_max_conn: i64,
    pub pool_low_conn: u32,
    pub pool_purge_delay: Duration,
    pub pool_conn_name: Option<&'a Word>,
    pub max_reuse: i64,
    pub tlvs: Vec<(u8, &'a Word)>,
    pub slow_start: Option<Duration>,
    pub socks4: Option<SocketAddr>,
    pub check: bool,
    pub inter: Duration,
    pub fastinter: Option<Duration>,
    pub downinter: Option<Duration>,
    pub rise: u32,
    pub fall: u32,
    pub check_address: Option<IpAddr>,
    pub check_port: Option<u16>,
    /// The port in `addr`, used if `port` is not given.
    pub check_address_port: Option<u16>,
    pub check_send_proxy: bool,
    pub check_via_socks4: bool,
    /// `check-proto`.
    pub check_protocol: Option<Protocol>,
    pub check_reuse_pool: bool,
    pub check_pool_conn_name: Option<&'a str>,
    pub initial: InitState,
    pub healthcheck: Option<&'a Word>,
    pub agent: bool,
    pub agent_address: Option<IpAddr>,
    pub agent_port: Option<u16>,
    pub agent_inter: Duration,
    pub agent_send: Box<[u8]>,
    pub track: Option<&'a Word>,
    pub observe: Observe,
    pub error_limit: u32,
    pub on_error: OnError,
    pub tos: Option<u32>,
    pub hash_key: HashKey,
    /// `guid`.
    pub guid: Option<&'a Word>,
    pub strict_maxconn: bool,
    /// The value of `shard`; 0 for all.
    pub shard: u32,
    pub init_addr: Vec<InitAddr>,
    pub resolvers: Option<&'a Word>,
    pub resolve: Wishes,
    pub log_proto: Option<LogProto>,
    pub log_bufsize: Option<usize>,
    /// `proto h1`.
    pub speaks_h1: bool,
    /// `proto h2`.
    pub speaks_h2: bool,
    /// `proto fcgi`.
    pub speaks_fcgi: bool,
    /// `proto spop`.
    pub speaks_spop: bool,
    /// `proto quic`.
    pub speaks_quic: Option<&'a Word>,
    /// `proto qmux`.
    pub speaks_qmux: Option<&'a Word>,
    /// Whether the address is for QUIC.
    pub is_quic: bool,
    /// QUIC parameters.
    pub quic: QuicWords<'a>,
    /// `idle-ping`.
    pub idle_ping: Option<Duration>,
    /// TLS parameters.
    pub tls: Inherited<ServerTls<'a>>,
}

impl ServerDraft<'_> {
    /// The port to check, if it differs from the server's.
    pub fn checked_port(&self) -> Option<u16> {
        self.check_port.or(self.check_address_port)
    }
}

impl Default for ServerDraft<'_> {
    fn default() -> Self {
        Self {
            id: None,
            backup: false,
            non_stick: false,
            disabled: false,
            maxconn: 0,
            fleet: None,
            minconn: 0,
            maxqueue: 0,
            weight: 1,
            cookie: None,
            redirect: None,
            send_proxy: SendProxyWords::default(),
            source: None,
            namespace: None,
            tcp_ut: None,
            tfo: false,
            md5sig: None,
            congestion: None,
            shutdown_sessions_when_down: false,
            shutdown_backups_when_up: false,
            pool_max_conn: -1,
            pool_low_conn: 0,
            pool_purge_delay: Duration::from_secs(5),
            pool_conn_name: None,
            max_reuse: -1,
            tlvs: Vec::new(),
            slow_start: None,
            socks4: None,
            check: false,
            inter: Duration::from_secs(2),
            fastinter: None,
            downinter: None,
            rise: 2,
            fall: 3,
            check_address: None,
            check_port: None,
            check_address_port: None,
            check_send_proxy: false,
            check_via_socks4: false,
            check_protocol: None,
            check_reuse_pool: false,
            check_pool_conn_name: None,
            initial: InitState::None,
            healthcheck: None,
            agent: false,
            agent_address: None,
            agent_port: None,
            agent_inter: Duration::from_secs(2),
            agent_send: Box::default(),
            track: None,
            observe: Observe::None,
            error_limit: 10,
            on_error: OnError::FailCheck,
            tos: None,
            hash_key: HashKey::Id,
            guid: None,
            strict_maxconn: false,
            shard: 0,
            init_addr: Vec::new(),
            resolvers: None,
            resolve: Wishes::default(),
            log_proto: None,
            log_bufsize: None,
            speaks_h1: false,
            speaks_h2: false,
            speaks_fcgi: false,
            speaks_spop: false,
            speaks_quic: None,
            speaks_qmux: None,
            is_quic: false,
            quic: QuicWords::default(),
            idle_ping: None,
            tls: Inherited::default(),
        }
    }
}
