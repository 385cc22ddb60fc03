//! A proxy, resolved: frontend, backend or both (configuration manual, chapter 4).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base::network::Network;
use rules::{Reply, RuleSet};
use sample::condition::Condition;
use sample::expression::Expression;
use sample::format::Format;
use state::Mode;
use state::table::Table;

use crate::ProxyIndex;
use crate::bind::Bind;
use crate::check::CheckKind;
use crate::compression::Compression;
use crate::discovered::DiscoveredServers;
use crate::fcgi::App;
use crate::filter::{CachePlaces, ScriptFilters, TraceFilter};
use crate::log::{LogForward, LogSteps, Logger};
use crate::mail::EmailAlert;
use crate::peers::Peers;
use crate::ring::RingSettings;
use crate::server::SourceAddress;
use crate::servers::{ServerAt, Servers};
use crate::spoe::{Sending, SpoeEngine};
use crate::telemetry::TelemetrySection;
use crate::udp::UdpLb;

/// One proxy.
#[derive(Debug)]
pub struct Proxy {
    /// The index of the proxy in the plan.
    pub index: ProxyIndex,
    /// The current state of the proxy: counters, servers, queue.
    pub state: Arc<state::Proxy>,
    /// `mode`.
    pub mode: Mode,
    /// `mode haterm`: the frontend answers each HTTP request itself, with the response that its query describes.
    pub is_haterm: bool,
    /// `option …`. Proxies with the same options share them.
    pub options: Arc<ProxyOptions>,
    /// `timeout …`. Proxies with the same timeouts share them.
    pub timeouts: Arc<Timeouts>,
    /// `disabled`.
    pub disabled: bool,
    /// The first line of the section, if the proxy was added at run time. Used to write a configuration.
    pub added: Option<Box<str>>,
    /// `description`.
    pub description: Option<Box<str>>,
    /// `bind`, one entry per socket.
    pub binds: Vec<Bind>,
    /// `backlog`; 0 uses the frontend's `maxconn`.
    pub backlog: u32,
    /// `use_backend`, in order.
    pub use_backends: Vec<UseBackend>,
    /// `force-be-switch`: conditions under which disabled or unpublished backends may be chosen.
    pub force_be_switch: Vec<Condition>,
    /// `default_backend`. A `listen` section without one uses itself.
    pub default_backend: Option<ProxyIndex>,
    /// `persist rdp-cookie`: the name of the cookie with the client's previous server.
    pub rdp_persistence: Option<Box<[u8]>>,
    /// `monitor-uri`.
    pub monitor_uri: Option<Box<[u8]>>,
    /// `monitor fail`.
    pub monitor_fail: Vec<Condition>,
    /// `capture request header`: name and maximum length.
    pub request_captures: Vec<Capture>,
    /// `capture response header`.
    pub response_captures: Vec<Capture>,
    /// `capture cookie`: name or prefix, whether it is a prefix, and maximum length.
    pub cookie_capture: Option<CookieCapture>,
    /// `unique-id-format`.
    pub unique_id_format: Option<Format>,
    /// `unique-id-header`.
    pub unique_id_header: Option<Box<[u8]>>,
    /// `log`, after inheritance (`log global` was replaced by the global loggers).
    pub loggers: Vec<Logger>,
    /// `log-tag` of the proxy, otherwise that of `global`.
    pub log_tag: Box<[u8]>,
    /// `trace-to`: the collector of traces of this frontend's requests.
    pub trace_to: Option<Arc<TelemetrySection>>,
    /// The settings for emails about the proxy's servers.
    pub email_alert: Option<Box<EmailAlert>>,
    /// The log format: from `log-format`, `option httplog|tcplog|httpslog`, or the default.
    pub log_format: Option<Format>,
    /// `error-log-format`.
    pub error_log_format: Option<Format>,
    /// `log-format-sd`.
    pub log_format_sd: Option<Format>,
    /// Whether the line is written when the server has responded: `option logasap`, or a format without late fields.
    pub logs_early: bool,
    /// `log-steps`.
    pub log_steps: LogSteps,
    /// The settings of a `log-forward` section.
    pub log_forward: Option<Box<LogForward>>,
    /// The settings of a `udp-lb` section.
    pub udp: Option<Box<UdpLb>>,
    /// The settings of a `ring` section.
    pub ring: Option<Box<RingSettings>>,
    /// The settings of a `peers` section.
    pub peers: Option<Box<Peers>>,

    /// `quic-initial`.
    pub quic_initial: RuleSet,
    /// `udp-request`.
    pub udp_request: RuleSet,
    /// `tcp-request connection`.
    pub tcp_connection: RuleSet,
    /// `tcp-request session`.
    pub tcp_session: RuleSet,
    /// `tcp-request content`.
    pub tcp_request: RuleSet,
    /// `tcp-request inspect-delay`.
    pub request_inspect_delay: Option<Duration>,
    /// `tcp-response content`.
    pub tcp_response: RuleSet,
    /// `tcp-response inspect-delay`.
    pub response_inspect_delay: Option<Duration>,
    /// `http-request`.
    pub http_request: RuleSet,
    /// `redirect` lines, evaluated after `http-request`.
    pub redirects: RuleSet,
    /// `http-response`.
    pub http_response: RuleSet,
    /// `http-after-response`.
    pub http_after_response: RuleSet,

    /// `errorfile`, `errorloc*`, `errorfiles`, `http-error`, by status.
    pub errors: Vec<(u16, Arc<Reply>)>,
    /// `option forwardfor`.
    pub forward_for: Option<Box<ForwardFor>>,
    /// `option originalto`.
    pub original_to: Option<Box<ForwardFor>>,
    /// `option forwarded`.
    pub forwarded: Option<Box<Forwarded>>,

    /// `balance`, `hash-type`, `hash-balance-factor`.
    pub balance: balance::BalanceSettings,
    /// `filter trace`, in configuration order. Only the filters that `filter-sequence` includes.
    pub traces: Vec<Arc<TraceFilter>>,
    /// Script filters.
    pub script_filters: Option<Box<ScriptFilters>>,
    /// `filter spoe`, in order.
    pub engines: Vec<Arc<SpoeEngine>>,
    /// The SPOE message groups sent by rules (`send-spoe-group`), by number.
    pub sendings: Vec<Sending>,
    /// `compression …`, if the proxy has a filter that uses it.
    pub compression: Option<Box<Compression>>,
    /// `use-fcgi-app`.
    pub fcgi: Option<Arc<App>>,
    /// The positions of caches among the proxy's filters.
    pub cache_places: CachePlaces,
    /// `server`, `server-template`, in order. `balance` chooses indexes of this list.
    pub servers: Servers,
    /// `servers from`, in order: their servers follow those of the configuration.
    pub discovered: Vec<Arc<DiscoveredServers>>,
    /// The settings that the proxy's servers inherit, for servers added at run time.
    pub lent: LentToServers,
    /// `use-server`, in order.
    pub use_servers: Vec<UseServer>,
    /// `stick …`.
    pub stick: Option<Box<StickRules>>,
    /// `force-persist`.
    pub force_persist: Vec<Condition>,
    /// `ignore-persist`.
    pub ignore_persist: Vec<Condition>,
    /// `cookie`.
    pub cookie: Option<Box<Cookie>>,
    /// `retries`.
    pub retries: u32,
    /// `retry-delay`: the least time between a failure and the next attempt.
    pub retry_delay: Option<Duration>,
    /// `option redispatch`: 0 for never, n for every n-th retry, -n for the n-th retry from the end.
    pub redispatch: i32,
    /// `retry-on`.
    pub retry_on: RetryOn,
    /// `http-reuse`.
    pub reuse: Reuse,
    /// `fullconn`; 0 to derive it.
    pub fullconn: u32,
    /// `max-keep-alive-queue`: −1 for no limit.
    pub max_keep_alive_queue: i32,
    /// `source` of the backend. It is also copied into servers without their own `source`.
    pub source: Option<Arc<SourceAddress>>,
    /// `http-send-name-header`.
    pub send_name_header: Option<Box<[u8]>>,
    /// `load-server-state-from-file`: where the server states of an earlier process are stored.
    pub server_state: StateFile,
    /// `stats enable` and similar keywords.
    pub stats: Option<Arc<StatsPage>>,
    /// `max-session-srv-conns`.
    pub max_session_server_connections: i32,
}

impl Proxy {
    /// Whether the proxy is an internal one for another kind of section: `log-forward`, `ring`, `peers`.
    pub fn is_hidden(&self) -> bool {
        self.log_forward.is_some() || self.ring.is_some() || self.peers.is_some()
    }

    /// Returns its servers as the balancer takes them. A removed server keeps its index, in maintenance, until another server takes
    /// that index.
    pub fn members(&self) -> Vec<balance::Member> {
        let member = |server: ServerAt<'_>| balance::Member {
            server: server.state.clone(),
            hash_key: server.hash_key,
            guid: server.guid.clone(),
        };
        self.servers.iter().map(member).collect()
    }

    /// Returns all its rules.
    pub fn rule_sets(&self) -> [&RuleSet; 10] {
        [
            &self.quic_initial,
            &self.udp_request,
            &self.tcp_connection,
            &self.tcp_session,
            &self.tcp_request,
            &self.tcp_response,
            &self.http_request,
            &self.redirects,
            &self.http_response,
            &self.http_after_response,
        ]
    }
}

/// The settings that servers inherit from their backend.
#[derive(Debug)]
pub struct LentToServers {
    /// The kind of checks; `None` for a plain connection check.
    pub check_kind: Option<Arc<CheckKind>>,
    /// The arguments of the `default-server` lines, inherited ones first.
    pub default_server: Vec<Box<str>>,
}

impl LentToServers {
    /// Returns the names of the default servers as listed by `show default-server`; empty for the one without a name.
    pub fn default_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in &self.default_server {
            let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
            let (name, rest) = match words[..] {
                ["name", name, ref rest @ ..] => (name, rest),
                ref rest => ("", rest),
            };
            names.retain(|known| *known != name);
            if !matches!(rest, ["from", "none"]) {
                names.push(name);
            }
        }
        names.sort_unstable();
        names
    }
}

/// `timeout …`, `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Timeouts {
    pub client: Option<Duration>,
    pub client_fin: Option<Duration>,
    pub client_handshake: Option<Duration>,
    pub http_request: Option<Duration>,
    pub http_keep_alive: Option<Duration>,
    pub connect: Option<Duration>,
    pub queue: Option<Duration>,
    pub server: Option<Duration>,
    pub server_fin: Option<Duration>,
    pub tunnel: Option<Duration>,
    pub tarpit: Option<Duration>,
    pub check: Option<Duration>,
}

/// How connections are kept after a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConnectionMode {
    /// `option http-keep-alive`, and the default.
    #[default]
    KeepAlive,
    /// `option http-server-close`.
    ServerClose,
    /// `option httpclose`.
    Close,
}

/// The enabled options (`option …`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ProxyOptions {
    pub connection: ConnectionMode,
    pub abortonclose: Option<bool>,
    pub accept_unsafe_request: bool,
    pub accept_unsafe_response: bool,
    pub allbackups: bool,
    pub checkcache: bool,
    pub clitcpka: bool,
    pub srvtcpka: bool,
    pub tcp_keepalive_client: KeepAliveProbe,
    pub tcp_keepalive_server: KeepAliveProbe,
    pub contstats: bool,
    pub dontlog_normal: bool,
    pub dontlognull: bool,
    pub log_separate_errors: bool,
    pub logasap: bool,
    pub h1_case_adjust_bogus_client: bool,
    pub h1_case_adjust_bogus_server: bool,
    pub http_buffer_request: bool,
    pub http_drop_request_trailers: bool,
    pub http_drop_response_trailers: bool,
    pub http_ignore_probes: bool,
    pub http_pretend_keepalive: bool,
    pub restrict_header_names: RestrictNames,
    pub http_use_proxy_header: bool,
    pub idle_close_on_response: bool,
    /// `option disable-h2-upgrade`.
    pub disable_h2_upgrade: bool,
    pub independent_streams: bool,
    pub nolinger_frontend: bool,
    pub nolinger_backend: bool,
    pub persist: bool,
    pub prefer_last_server: bool,
    pub socket_stats: bool,
    pub splice_auto: bool,
    pub splice_request: bool,
    pub splice_response: bool,
    pub tcp_smart_accept: Option<bool>,
    pub tcp_smart_connect: Option<bool>,
    pub log_health_checks: bool,
}

/// `clitcpka-*`, `srvtcpka-*`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct KeepAliveProbe {
    pub count: Option<u32>,
    pub idle: Option<Duration>,
    pub interval: Option<Duration>,
}

/// `option http-restrict-req-hdr-names`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RestrictNames {
    #[default]
    Preserve,
    Delete,
    Reject,
}

/// `use_backend`.
#[derive(Debug)]
pub struct UseBackend {
    /// The backend.
    pub target: BackendTarget,
    /// The condition; `None` for always.
    pub condition: Option<Condition>,
}

/// The backend of a `use_backend`.
#[derive(Debug)]
pub enum BackendTarget {
    /// A fixed backend.
    Fixed(ProxyIndex),
    /// A name that is computed at run time. If the name does not exist, the rule is skipped.
    Named(Format),
}

/// `stick …` lines, by kind, in order.
#[derive(Debug, Default)]
pub struct StickRules {
    /// The rules for requests.
    pub of_request: Vec<StickRule>,
    /// `stick store-response`.
    pub of_response: Vec<StickRule>,
}

/// A `stick` line.
#[derive(Debug)]
pub struct StickRule {
    /// The key.
    pub key: Expression,
    /// The table with the servers.
    pub table: Arc<Table>,
    /// The condition.
    pub condition: Option<Condition>,
    /// Whether an entry chooses the server.
    pub matches: bool,
    /// Whether the chosen server is stored.
    pub stores: bool,
}

/// `use-server`.
#[derive(Debug)]
pub struct UseServer {
    /// The server.
    pub target: ServerTarget,
    /// The condition.
    pub condition: Option<Condition>,
}

/// The server of a `use-server`.
#[derive(Debug)]
pub enum ServerTarget {
    /// The index of a fixed server.
    Fixed(usize),
    /// A name computed at run time.
    Named(Format),
}

/// `capture request|response header`.
#[derive(Debug, Clone)]
pub struct Capture {
    /// The header; `None` for a slot declared by `declare capture`.
    pub header: Option<http::Name>,
    /// Maximum length of the value.
    pub length: usize,
}

/// `capture cookie`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieCapture {
    /// The name, or a prefix of it.
    pub name: Box<[u8]>,
    /// Whether any cookie with this prefix matches.
    pub prefix: bool,
    /// Maximum length of `name=value`.
    pub length: usize,
}

/// `option forwardfor`, `option originalto`.
#[derive(Debug, Clone)]
pub struct ForwardFor {
    /// The header.
    pub header: Box<[u8]>,
    /// `except`: client networks for which no header is added.
    pub except: Option<Network>,
    /// `if-none`.
    pub if_none: bool,
}

/// `option forwarded` (RFC 7239): the parameters to add.
#[derive(Debug, Default)]
pub struct Forwarded {
    /// `proto`.
    pub proto: bool,
    /// `host`, `host-expr`.
    pub host: Option<ForwardedHost>,
    /// `by`, `by-expr`, `by_port`, `by_port-expr`.
    pub by: Option<ForwardedNode>,
    /// `for`, `for-expr`, `for_port`, `for_port-expr`.
    pub for_: Option<ForwardedNode>,
}

/// The host of a `Forwarded` field.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum ForwardedHost {
    Default,
    Expression(Expression),
}

/// A node of a `Forwarded` field.
#[derive(Debug, Default)]
pub struct ForwardedNode {
    /// An expression instead of the address.
    pub name: Option<Expression>,
    /// Whether the port is shown, or an expression instead of it.
    pub port: Option<Option<Expression>>,
}

/// `cookie` of a backend.
#[derive(Debug, Clone)]
pub struct Cookie {
    /// The name of the cookie.
    pub name: Box<[u8]>,
    /// `rewrite`, `insert` or `prefix`. Without any of them, the cookie is only read.
    pub operation: CookieOperation,
    /// `indirect`.
    pub indirect: bool,
    /// `nocache`.
    pub nocache: bool,
    /// `postonly`.
    pub postonly: bool,
    /// `preserve`.
    pub preserve: bool,
    /// `httponly`.
    pub httponly: bool,
    /// `secure`.
    pub secure: bool,
    /// `domain`, any number.
    pub domains: Vec<Box<[u8]>>,
    /// `attr`, any number.
    pub attributes: Vec<Box<[u8]>>,
    /// `maxidle`.
    pub max_idle: Option<Duration>,
    /// `maxlife`.
    pub max_life: Option<Duration>,
    /// `dynamic`: values are derived from the servers' addresses. [`state::Proxy::cookie_key`] returns the current setting.
    pub dynamic: bool,
}

/// The operation on the cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum CookieOperation {
    #[default]
    Passive,
    Rewrite,
    Insert,
    Prefix,
}

/// `retry-on`, a set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RetryOn {
    pub conn_failure: bool,
    pub empty_response: bool,
    pub junk_response: bool,
    pub response_timeout: bool,
    pub zero_rtt_rejected: bool,
    pub grpc_unavailable: bool,
    pub statuses: Vec<u16>,
}

impl Default for RetryOn {
    fn default() -> Self {
        Self {
            conn_failure: true,
            empty_response: false,
            junk_response: false,
            response_timeout: false,
            zero_rtt_rejected: false,
            grpc_unavailable: false,
            statuses: Vec::new(),
        }
    }
}

/// `load-server-state-from-file`, with `server-state-file-name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StateFile {
    /// Not loaded.
    #[default]
    None,
    /// From the file for all backends, global's `server-state-file`.
    Global,
    /// From a separate file.
    Local(std::path::PathBuf),
}

/// `http-reuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Reuse {
    Never,
    #[default]
    Safe,
    Aggressive,
    Always,
}

/// The statistics page (`stats …`).
#[derive(Debug, Default)]
pub struct StatsPage {
    /// `stats uri`.
    pub uri: Box<[u8]>,
    /// `stats realm`.
    pub realm: Box<str>,
    /// `stats auth`: user and password, any number.
    pub users: Vec<sample::auth::NameAndPassword>,
    /// `stats refresh`.
    pub refresh: Option<Duration>,
    /// `stats scope`: proxies shown; `.` is this one. Empty for all.
    pub scope: Vec<Box<str>>,
    /// `stats hide-version`.
    pub hide_version: bool,
    /// `stats show-legends`.
    pub show_legends: bool,
    /// `stats show-node`: the name shown.
    pub node: Option<Box<str>>,
    /// `stats show-desc`.
    pub description: Option<Box<str>>,
    /// `stats frame-ancestors`: pages that may show this one in a frame; empty for all.
    pub frame_ancestors: Box<str>,
    /// `stats admin if …`: conditions for allowing changes.
    pub admin: Vec<Condition>,
    /// `stats http-request`.
    pub rules: RuleSet,
}

/// Whether `address` is in the `except` network.
pub fn excepted(except: &Option<Network>, address: IpAddr) -> bool {
    except.as_ref().is_some_and(|network| network.contains(address))
}
