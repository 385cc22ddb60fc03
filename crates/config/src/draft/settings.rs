//! The settings of a section before names are resolved: plain values, and the statements that can only be compiled once every proxy
//! is known.
//!
//! A proxy starts as a clone of its `defaults`; rarely changed parts are shared by `Rc`, so that many backends inherit cheaply.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use base::address::Destination;
use diag::Span;
use plan::compression::CompressionSide;
use plan::filter::TraceFilter;
use plan::global::{Global, UnixBind};
use plan::log::{HostStrategy, LogAddress, LogFormat, LogSteps};
use plan::proxy::{Cookie, CookieCapture, ForwardFor, ProxyOptions, RetryOn, Reuse, StateFile, Timeouts};
use plan::server::SourceAddress;
use sample::bandwidth::BandwidthFilter;
use state::Mode;
use syntax::Word;

pub(crate) use crate::draft::check::{CheckDraft, CheckMode};
pub use crate::draft::httpclient::HttpClientWords;
use crate::draft::inherited::Inherited;
use crate::draft::lua::LuaWords;
use crate::draft::mail::EmailDraft;
use crate::draft::row::Negation;
use crate::draft::server::ServerDraft;
use crate::draft::tls::TlsDefaults;
use crate::draft::udp::UdpDraft;
use crate::draft::{Section, SectionKind, Statement};

/// A `log` line of a proxy.
#[derive(Debug, Clone)]
pub enum LogLine<'a> {
    /// `log global`.
    Global,
    /// Any other logger.
    Own(LoggerDraft<'a>),
}

/// A `log` line with unresolved names; otherwise like [`plan::Logger`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct LoggerDraft<'a> {
    /// The line's location, shared by all proxies that inherit it.
    pub span: Span,
    pub target: TargetDraft<'a>,
    pub max_length: usize,
    pub format: Option<LogFormat>,
    pub facility: u8,
    pub max_level: u8,
    pub min_level: u8,
    pub sample: Option<(Vec<(u32, u32)>, u32)>,
    pub profile: Option<&'a Word>,
}

/// The target of a `log` line, with the word that names it.
#[derive(Debug, Clone)]
pub enum TargetDraft<'a> {
    /// An address to which lines are sent directly.
    Address(LogAddress),
    /// `tcp@…`, `uxst@…`.
    Stream(&'a Word, Destination),
    /// `ring@<name>`.
    Ring(&'a Word, &'a str),
    /// `backend@<name>`.
    Backend(&'a Word, &'a str),
    /// `otel@<name>`.
    Collector(&'a Word, &'a str),
}

/// Settings of `ring` and `log-forward` sections that proxies do not have, and `log-steps`.
#[derive(Debug, Clone, Default)]
pub struct LogDraft<'a> {
    /// `log-steps`.
    pub steps: LogSteps,
    /// `dgram-bind`.
    pub datagram_binds: Vec<&'a Statement>,
    /// `option assume-rfc6587-ntf`.
    pub only_lines: bool,
    /// `option dont-parse-log`.
    pub unparsed: bool,
    /// `option host`.
    pub host: HostStrategy,
    /// `format` of a ring.
    pub ring_format: Option<LogFormat>,
    /// `maxlen`.
    pub ring_max_length: Option<usize>,
    /// `size`.
    pub ring_size: Option<usize>,
    /// `backing-file`.
    pub backing_file: Option<&'a str>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy)]
pub enum LogFormatChoice<'a> {
    /// Neither an option nor `log-format` was set: the traditional short format.
    Default,
    /// `option tcplog`, the statement.
    Tcp(&'a Statement),
    /// `option tcplog clf`.
    TcpClf(&'a Statement),
    /// `option httplog`.
    Http(&'a Statement),
    /// `option httplog clf`.
    Clf(&'a Statement),
    /// `option httpslog`.
    Https(&'a Statement),
    /// `log-format`.
    Custom(&'a Statement),
}

/// `stats …` of a proxy.
#[derive(Debug, Clone, Default)]
pub struct StatsDraft<'a> {
    /// Whether any line has enabled the page.
    pub enabled: bool,
    /// `stats uri`.
    pub uri: Option<&'a str>,
    /// `stats realm`.
    pub realm: Option<&'a str>,
    /// `stats auth`.
    pub users: Vec<(&'a str, &'a str)>,
    /// `stats refresh`.
    pub refresh: Option<Duration>,
    /// `stats scope`.
    pub scope: Vec<&'a str>,
    /// `stats hide-version`.
    pub hide_version: bool,
    /// `stats show-legends`.
    pub show_legends: bool,
    /// The sources of `stats frame-ancestors`.
    pub frame_ancestors: Vec<&'a str>,
    /// The value of `stats show-node`; empty for the host name.
    pub node: Option<&'a str>,
    /// The value of `stats show-desc`; empty for the description in `global`.
    pub description: Option<String>,
}

/// The cumulative effect of the `default-server` lines so far on the servers below them.
#[derive(Clone, Default)]
pub struct DefaultServers<'a> {
    /// Defaults from lines without a name.
    pub unnamed: Rc<ServerDraft<'a>>,
    /// Defaults from lines with a name.
    pub named: Rc<HashMap<&'a str, ServerDraft<'a>>>,
}

/// A `filter` line.
#[derive(Debug, Clone)]
pub struct FilterDraft<'a> {
    /// The filter's name in `filter-sequence`.
    pub keyword: &'a Word,
    /// The kind of filter.
    pub kind: FilterKind<'a>,
    /// The key and table of a shared bandwidth limit.
    pub shared: Option<SharedDraft<'a>>,
}

/// The key and table of a shared bandwidth limit.
#[derive(Debug, Clone)]
pub struct SharedDraft<'a> {
    /// The words of the key expression.
    pub key: Vec<&'a Word>,
    /// The stick table; `None` for the proxy's own.
    pub table: Option<&'a Word>,
}

/// The kind of a filter.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum FilterKind<'a> {
    Trace(TraceFilter),
    Bandwidth(BandwidthFilter),
    Compression(CompressionFilter),
    Fcgi(&'a Word),
    /// A cache, by name.
    Cache(&'a Word),
    /// An SPOE engine: the engine's name, if it has one, and the file.
    Spoe(Option<&'a Word>, &'a Word),
    /// A script filter (`lua.…`), with the words after its name.
    Script(Vec<&'a Word>),
}

/// The direction of a compression filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionFilter {
    /// `comp-req`.
    Request,
    /// `comp-res`.
    Response,
    /// `compression`: the directions set by `compression direction`.
    Both,
}

/// The `compression` lines.
#[derive(Debug, Clone)]
pub struct CompressionDraft {
    /// Settings for requests.
    pub request: CompressionSide,
    /// Settings for responses.
    pub response: CompressionSide,
    /// `compression direction`: whether requests are compressed, and whether responses are.
    pub directions: (bool, bool),
    /// `compression offload`.
    pub offload: bool,
}

impl Default for CompressionDraft {
    fn default() -> Self {
        Self {
            request: CompressionSide::default(),
            response: CompressionSide::default(),
            directions: (false, true),
            offload: false,
        }
    }
}

/// Policies that protect servers and requests from each other's failures, each with its line.
#[derive(Debug, Clone, Default)]
pub struct PoliciesDraft<'a> {
    /// `outlier-ejection`.
    pub outliers: Option<(Box<balance::Outliers>, &'a Statement)>,
    /// `retry-budget`.
    pub budget: Option<(balance::Budget, &'a Statement)>,
    /// `hedge`.
    pub hedge: Option<(balance::Hedge, &'a Statement)>,
}

/// The settings of a proxy or a `defaults` section.
#[derive(Clone)]
pub struct ProxySettings<'a> {
    /// The section.
    pub kind: SectionKind,
    /// The name of the proxy.
    pub name: &'a str,
    /// The section itself.
    pub section: &'a Section,
    /// The defaults sections that it inherits from, the most distant first.
    pub inherits: Rc<Vec<&'a Section>>,
    /// `mode`.
    pub mode: Mode,
    /// `mode haterm`, which is a kind of `mode http`.
    pub is_haterm: bool,
    /// `id`.
    pub id: Option<u32>,
    /// `guid`.
    pub guid: Option<&'a Word>,
    /// `disabled`.
    pub disabled: bool,
    /// `be-unpublished`.
    pub unpublished: bool,
    /// `description`.
    pub description: Option<Rc<str>>,
    /// `option …`.
    pub options: Inherited<ProxyOptions>,
    /// `timeout …`.
    pub timeouts: Inherited<Timeouts>,
    /// `maxconn` of a frontend.
    pub maxconn: Option<u32>,
    /// `backlog`.
    pub backlog: u32,
    /// `fullconn`.
    pub fullconn: u32,
    /// `rate-limit sessions`.
    pub session_limit: u32,
    /// `retries`.
    pub retries: u32,
    /// `retry-delay`.
    pub retry_delay: Option<Duration>,
    /// `retry-on`.
    pub retry_on: Option<Rc<RetryOn>>,
    /// `option redispatch`.
    pub redispatch: i32,
    /// `http-reuse`.
    pub reuse: Reuse,
    /// `max-keep-alive-queue`.
    pub max_keep_alive_queue: i32,
    /// `max-session-srv-conns`.
    pub max_session_server_connections: i32,
    /// `http-send-name-header`.
    pub send_name_header: Option<&'a str>,
    /// `log`.
    pub loggers: Rc<Vec<LogLine<'a>>>,
    /// Settings of a `udp-lb` section.
    pub udp: Rc<UdpDraft>,
    /// Log settings of rarer sections.
    pub log: Rc<LogDraft<'a>>,
    /// `log-tag`.
    pub log_tag: Option<&'a str>,
    /// `option alt-svc`.
    pub alt_svc: bool,
    /// `trace-to`.
    pub trace_to: Option<&'a Word>,
    /// `email-alert …`.
    pub email: EmailDraft<'a>,
    /// The format of log lines.
    pub log_format: LogFormatChoice<'a>,
    /// `error-log-format`.
    pub error_log_format: Option<&'a Statement>,
    /// `log-format-sd`.
    pub log_format_sd: Option<&'a Statement>,
    /// `unique-id-format`.
    pub unique_id_format: Option<&'a Statement>,
    /// `unique-id-header`.
    pub unique_id_header: Option<&'a str>,
    /// `monitor-uri`.
    pub monitor_uri: Option<&'a Word>,
    /// `default_backend`.
    pub default_backend: Option<&'a Word>,
    /// `capture request header` and `declare capture request`.
    pub request_captures: Vec<DeclaredCapture<'a>>,
    /// `capture response header`: the name (none for `declare capture`) and the length.
    pub response_captures: Vec<(Option<&'a str>, usize)>,
    /// `capture cookie`.
    pub cookie_capture: Option<CookieCapture>,
    /// `option forwardfor`.
    pub forward_for: Option<Rc<ForwardFor>>,
    /// `option originalto`.
    pub original_to: Option<Rc<ForwardFor>>,
    /// `option forwarded`.
    pub forwarded: Option<&'a Statement>,
    /// `balance`.
    pub balance: Option<&'a Statement>,
    /// `hash-type`.
    pub hash: balance::HashType,
    /// `hash-balance-factor`.
    pub balance_factor: u32,
    /// `hash-preserve-affinity`.
    pub preserve_affinity: balance::PreserveAffinity,
    /// `outlier-ejection`, `retry-budget` and `hedge`.
    pub policies: PoliciesDraft<'a>,
    /// Settings of a `peers` section.
    pub peers: Rc<PeersDraft<'a>>,
    /// `stick-table`.
    pub stick_table: Option<&'a Statement>,
    /// `cookie`.
    pub cookie: Option<Rc<Cookie>>,
    /// `dynamic-cookie-key`.
    pub dynamic_cookie_key: Option<&'a str>,
    /// `persist rdp-cookie`: the cookie's name.
    pub rdp_persistence: Option<&'a str>,
    /// The value of `load-server-state-from-file`. The path of `Local` is empty until it is resolved.
    pub server_state: StateFile,
    /// The value of `server-state-file-name`; `None` for the backend's name.
    pub server_state_name: Option<&'a str>,
    /// `source`.
    pub source: Option<Rc<SourceAddress>>,
    /// `stats …`.
    pub stats: Rc<StatsDraft<'a>>,
    /// Health checks.
    pub check: Rc<CheckDraft<'a>>,
    /// Whether the checks are inherited from defaults. If so, the section's first own line replaces them.
    pub check_inherited: bool,
    /// The parsed `default-server` lines.
    pub default_servers: DefaultServers<'a>,
    /// The arguments of all `default-server` lines, as written.
    pub default_server_lines: Rc<Vec<String>>,
    /// `compression …`.
    pub compression: Option<CompressionDraft>,
    /// `use-fcgi-app`.
    pub fcgi_app: Option<&'a Word>,
    /// Whether `option http-restrict-req-hdr-names` was set explicitly.
    pub restricts_names: bool,
    /// `filter`, in order.
    pub filters: Vec<FilterDraft<'a>>,
    /// `filter-sequence request` and `response`.
    pub filter_sequence: (Option<&'a Word>, Option<&'a Word>),
    /// `tcp-request inspect-delay`.
    pub request_inspect_delay: Option<Duration>,
    /// `tcp-response inspect-delay`.
    pub response_inspect_delay: Option<Duration>,
    /// Rules inherited from defaults sections, in order.
    pub inherited_rules: Rc<Vec<&'a Statement>>,
    /// The proxy's own rules, in order.
    pub rules: Vec<&'a Statement>,
    /// `bind`.
    pub binds: Vec<&'a Statement>,
    /// `ssl-f-use`.
    pub certificates: Vec<&'a Statement>,
    /// `server` and `server-template` lines, each with the default servers in effect at that point.
    pub servers: Vec<(&'a Statement, DefaultServers<'a>)>,
}

impl<'a> ProxySettings<'a> {
    /// HAProxy's default settings.
    pub fn new(section: &'a Section) -> Self {
        Self {
            kind: section.kind,
            name: &section.name,
            section,
            inherits: Rc::default(),
            mode: match section.kind {
                SectionKind::LogForward | SectionKind::Ring => Mode::Log,
                SectionKind::UdpLb => Mode::Udp,
                _ => Mode::Tcp,
            },
            is_haterm: false,
            policies: PoliciesDraft::default(),
            peers: Rc::default(),
            id: None,
            disabled: false,
            unpublished: false,
            description: None,
            guid: None,
            options: Inherited::default(),
            alt_svc: false,
            timeouts: section.kind.default_timeouts().into(),
            // The default for log forwarders is low (manual, 12.6 `maxconn`).
            maxconn: (section.kind == SectionKind::LogForward).then_some(10),
            backlog: 0,
            fullconn: 0,
            session_limit: 0,
            retries: 3,
            retry_delay: None,
            retry_on: None,
            redispatch: 0,
            reuse: Reuse::default(),
            max_keep_alive_queue: -1,
            max_session_server_connections: 5,
            send_name_header: None,
            loggers: Rc::default(),
            udp: Rc::default(),
            log: Rc::default(),
            log_tag: None,
            trace_to: None,
            email: EmailDraft::default(),
            log_format: LogFormatChoice::Default,
            error_log_format: None,
            log_format_sd: None,
            unique_id_format: None,
            unique_id_header: None,
            monitor_uri: None,
            default_backend: None,
            request_captures: Vec::new(),
            response_captures: Vec::new(),
            cookie_capture: None,
            forward_for: None,
            original_to: None,
            forwarded: None,
            balance: None,
            hash: balance::HashType::default(),
            balance_factor: 0,
            preserve_affinity: balance::PreserveAffinity::default(),
            stick_table: None,
            cookie: None,
            dynamic_cookie_key: None,
            rdp_persistence: None,
            server_state: StateFile::None,
            server_state_name: None,
            source: None,
            stats: Rc::default(),
            check: Rc::default(),
            check_inherited: false,
            default_servers: DefaultServers::default(),
            default_server_lines: Rc::default(),
            compression: None,
            fcgi_app: None,
            restricts_names: false,
            filters: Vec::new(),
            filter_sequence: (None, None),
            request_inspect_delay: None,
            response_inspect_delay: None,
            inherited_rules: Rc::default(),
            rules: Vec::new(),
            binds: Vec::new(),
            certificates: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Creates the initial settings of `section`, which inherits from these defaults.
    pub fn inherit(&self, section: &'a Section) -> Self {
        let mut own = Self { kind: section.kind, name: &section.name, section, ..self.clone() };
        Rc::make_mut(&mut own.inherits).push(self.section);
        own.id = None;
        own.check_inherited = true;
        own.description = None;
        if !own.rules.is_empty() {
            Rc::make_mut(&mut own.inherited_rules).append(&mut own.rules);
        }
        own
    }

    /// The section's own health check. At its first line, inherited lines are dropped and only the kind is kept.
    pub fn own_check(&mut self) -> &mut CheckDraft<'a> {
        let check = Rc::make_mut(&mut self.check);
        if std::mem::take(&mut self.check_inherited) {
            check.http.clear();
            check.tcp.clear();
        }
        check
    }

    /// Whether the proxy has a frontend side.
    pub fn is_frontend(&self) -> bool {
        matches!(
            self.kind,
            SectionKind::Frontend
                | SectionKind::Listen
                | SectionKind::LogForward
                | SectionKind::Peers
                | SectionKind::UdpLb
        )
    }

    /// Whether the proxy has a backend side.
    pub fn is_backend(&self) -> bool {
        matches!(self.kind, SectionKind::Backend | SectionKind::Listen | SectionKind::UdpLb)
    }

    /// The kind in HAProxy's messages, where a `listen` is a "proxy".
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            SectionKind::Frontend => "frontend",
            SectionKind::Backend => "backend",
            SectionKind::Listen => "proxy",
            SectionKind::LogForward => "log-forward",
            SectionKind::Ring => "ring",
            SectionKind::Peers => "peers",
            SectionKind::UdpLb => "udp-lb",
            _ => "defaults",
        }
    }

    /// Whether the proxy, or a defaults section that it inherits from, has a line with this keyword; `no …` cancels such a line.
    pub fn has_keyword(&self, name: &str) -> bool {
        let sections = self.inherits.iter().chain([&self.section]);
        let mut lines = sections.flat_map(|section| &section.statements);
        let last = lines.rfind(|line| line.keyword.name == name);
        last.is_some_and(|line| {
            line.negation == Negation::None && line.keyword.places.holds(self.kind.place())
        })
    }

    /// All rules in order, inherited ones first.
    pub fn all_rules(&self) -> impl Iterator<Item = &'a Statement> + '_ {
        self.inherited_rules.iter().chain(&self.rules).copied()
    }
}

/// The lines of a `peers` section other than `bind` and `server`.
#[derive(Clone, Default)]
pub struct PeersDraft<'a> {
    /// The value of `shards`; 0 for none.
    pub shards: u32,
    /// `default-bind`.
    pub default_binds: Vec<&'a Statement>,
    /// `table`.
    pub tables: Vec<&'a Statement>,
}

/// A capture slot for requests. Rules that capture allocate slots as well (`len`), all in line order.
#[derive(Clone, Copy)]
pub struct DeclaredCapture<'a> {
    /// The header's name; `None` for `declare capture`.
    pub header: Option<&'a str>,
    /// The maximum length.
    pub length: usize,
    /// The number of rules above it, including inherited ones.
    pub rules_before: usize,
}

/// The settings of `global`.
#[derive(Default)]
pub struct GlobalSettings<'a> {
    /// Settings that need no further resolution.
    pub plan: Global,
    /// `stats socket`.
    pub stats_sockets: Vec<&'a Statement>,
    /// `log`.
    pub loggers: Vec<LoggerDraft<'a>>,
    /// `set-var`, `set-var-fmt`.
    pub variables: Vec<&'a Statement>,
    /// `unix-bind`.
    pub unix_bind: UnixBind,
    /// `expose-experimental-directives`.
    pub experimental: bool,
    /// `crt-base`, `key-base`.
    pub(crate) bases: Bases<'a>,
    /// `ssl-default-…` and others.
    pub(crate) tls: TlsDefaults<'a>,
    /// `httpclient.…`.
    pub(crate) http_client: HttpClientWords<'a>,
    /// `lua-…`, `tune.lua.…`.
    pub lua: LuaWords<'a>,
    /// `jwt.decrypt_alg_list`, `jwt.decrypt_enc_list`: one bit per name in the lists of `sample::convert::jwe`.
    pub allowed_jwt: [Option<u32>; 2],
}

/// The base directories for relative certificate and key file names.
#[derive(Clone, Default)]
pub(crate) struct Bases<'a> {
    pub(crate) certificates: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
}
