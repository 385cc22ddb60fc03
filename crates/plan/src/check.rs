//! Health checks, resolved (configuration manual, 4.2 `option httpchk` … `tcp-check`, 5.2 `check`, 12.9): expressions are compiled,
//! comments are attached to their steps, and implied settings are explicit.
//!
//! `config` creates them, and `health` performs them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sample::expression::Expression;
use sample::format::Format;
use sample::regex::Regex;
use sample::vars::{SetConditions, Var};

/// The health checks of one server: their schedule and content. Their address is part of the server's state, because the runtime
/// socket changes it.
#[derive(Debug, Clone)]
pub struct CheckSettings {
    /// `inter`: the interval while the server is in a stable up state.
    pub inter: Duration,
    /// `fastinter`: the interval while the server's state is changing; `None` for `inter`.
    pub fastinter: Option<Duration>,
    /// `downinter`: the interval while the server is down; `None` for `inter`.
    pub downinter: Option<Duration>,
    /// `rise`.
    pub rise: u32,
    /// `fall`.
    pub fall: u32,
    /// `check-send-proxy`, or the server's `send-proxy` if checks use the same address as requests.
    pub send_proxy: bool,
    /// Whether a version 2 header has both addresses, as for a client's connection (`pp2-never-send-local`).
    pub never_local: bool,
    /// `check-via-socks4`: the proxy set by `socks4`.
    pub socks4: Option<SocketAddr>,
    /// `check-reuse-pool`: the name under which idle connections are shared with requests (`check-pool-conn-name`); empty for none.
    /// `None` if each check opens its own connection.
    pub reuse: Option<Box<str>>,
    /// `check-proto`, or the server's `proto`: the default protocol of the steps.
    pub protocol: Option<Protocol>,
    /// `timeout check`; `None` if only `inter` applies.
    pub timeout: Option<Duration>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
    /// The content of a check.
    pub kind: Arc<CheckKind>,
    /// `option log-health-checks`.
    pub log: bool,
    /// `init-state`: the initial state.
    pub initial: InitState,
}

/// The protocol of a connection, overriding ALPN (`proto`, `check-proto`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `none`: bytes.
    Bytes,
    /// `h1`.
    Http1,
    /// `h2`.
    Http2,
    /// `fcgi`: HTTP over FastCGI.
    FastCgi,
    /// `spop`: the protocol of SPOE agents, only in `option spop-check`.
    Spop,
    /// `quic`: HTTP/3 over QUIC, only for servers that are reached over QUIC.
    Quic,
    /// `qmux`: HTTP/3 over QMux.
    Qmux,
}

impl Protocol {
    /// All protocols and their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("h1", Self::Http1),
        ("h2", Self::Http2),
        ("fcgi", Self::FastCgi),
        ("spop", Self::Spop),
        ("none", Self::Bytes),
        ("quic", Self::Quic),
        ("qmux", Self::Qmux),
    ];

    /// Whether the protocol carries HTTP messages.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2 | Self::FastCgi | Self::Quic | Self::Qmux)
    }
}

/// `init-state`: a server's state before its first check, and how many checks change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitState {
    /// Not set: like `Up`, but without effect after maintenance.
    #[default]
    None,
    /// Up. `fall` failures take the server down.
    FullyUp,
    /// Up. The first failure takes the server down.
    Up,
    /// Down. The first success takes the server up.
    Down,
    /// Down. `rise` successes take the server up.
    FullyDown,
}

/// The agent of a server (`agent-check`). Its address and the text to send are part of the server's state, which the runtime socket
/// changes.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// `agent-inter`.
    pub inter: Duration,
    /// `timeout check`; `None` for `inter`.
    pub timeout: Option<Duration>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
}

/// The kind of a health check.
#[derive(Debug)]
pub enum CheckKind {
    /// A script.
    Script(CheckScript),
    /// `option external-check`: a program decides about the server.
    External {
        /// `external-check command`.
        command: Box<str>,
        /// `external-check path`: the program's `PATH`.
        path: Option<Box<str>>,
        /// Whether the program inherits the environment of this process (`external-check preserve-env` in global).
        preserve_env: bool,
    },
}

/// The kind of a script, which determines how results are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// No option: establishing a connection is sufficient.
    Connect,
    /// `option tcp-check`, `option udp-check`.
    Tcp,
    /// `option httpchk`.
    Http,
    /// `option redis-check` and similar options.
    Protocol,
}

/// A conversation, step by step. The first step with I/O is a [`CheckAction::Connect`].
#[derive(Debug)]
pub struct CheckScript {
    /// The kind of the script.
    pub family: Family,
    /// The steps in order.
    pub steps: Vec<CheckStep>,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
    /// `http-check send-state`.
    pub send_state: bool,
    /// Whether a step holds an expression or a format.
    pub evaluates: bool,
}

impl CheckScript {
    /// Whether the script sends anything.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, CheckAction::Send(_)))
    }

    /// Whether the script is a gRPC health check.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.expects(|what| matches!(what, Matcher::GrpcServing))
    }

    /// Whether the script is that of `option spop-check`.
    #[must_use]
    pub fn is_spop(&self) -> bool {
        self.expects(|what| matches!(what, Matcher::SpopHello))
    }

    fn expects(&self, wanted: impl Fn(&Matcher) -> bool) -> bool {
        self.steps.iter().any(|step| match &step.action {
            CheckAction::Expect(expect) => wanted(&expect.what),
            _ => false,
        })
    }
}

/// A step of a script.
#[derive(Debug)]
pub struct CheckStep {
    /// The number of the step in messages: its position among the lines, starting at 1; 0 for an implied connection.
    pub number: u32,
    /// `comment`, of this step or of an earlier line.
    pub comment: Option<Box<str>>,
    /// The action.
    pub action: CheckAction,
}

/// The action of a step.
#[derive(Debug)]
pub enum CheckAction {
    /// Opens a connection.
    Connect(Connect),
    /// Sends bytes.
    Send(Send),
    /// Sends an HTTP request.
    Request(CheckRequest),
    /// Waits for a response and evaluates it.
    Expect(Box<Expect>),
    /// `set-var`, `set-var-fmt`.
    SetVar(Var, SetConditions, ValueSource),
    /// `unset-var`.
    UnsetVar(Var),
}

/// The source of a variable's value.
#[derive(Debug)]
pub enum ValueSource {
    /// An expression.
    Expression(Expression),
    /// A format.
    Format(Format),
}

/// `connect`.
#[derive(Debug, Default)]
pub struct Connect {
    /// Whether the step is implied.
    pub implied: bool,
    /// `option udp-check`: the check exchanges datagrams.
    pub datagrams: bool,
    /// `default`: uses the options of the server line (`check-send-proxy`, `check-via-socks4`).
    pub default: bool,
    /// `port`.
    pub port: Option<Port>,
    /// `addr`, and the port if specified.
    pub address: Option<(IpAddr, Option<u16>)>,
    /// `send-proxy`.
    pub send_proxy: bool,
    /// `via-socks4`.
    pub via_socks4: bool,
    /// `linger`: whether to close the connection normally instead of with a reset.
    pub linger: bool,
    /// `proto`.
    pub protocol: Option<Protocol>,
    /// `ssl`.
    pub secure: bool,
    /// `sni`.
    pub name: Option<Box<str>>,
    /// `alpn`: the protocols offered.
    pub alpn: Option<Vec<Box<[u8]>>>,
}

impl Connect {
    /// Whether the connection is like those of requests, because no option other than `default` is set.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        let Self { port, address, send_proxy, via_socks4, linger, protocol, secure, name, alpn, .. } = self;
        let special = *send_proxy || *via_socks4 || *linger || protocol.is_some() || *secure;
        !special && port.is_none() && address.is_none() && name.is_none() && alpn.is_none()
    }
}

/// A port, fixed or computed.
#[derive(Debug)]
pub enum Port {
    /// A fixed port.
    Fixed(u16),
    /// The result of an expression. Without a result, or with 0, the default is used.
    Expression(Expression),
}

/// The data to send.
#[derive(Debug)]
pub enum Send {
    /// `send`, `send-binary`.
    Bytes(Box<[u8]>),
    /// `send-lf`.
    Format(Format),
    /// `send-binary-lf`: hexadecimal digits.
    Hex(Format),
}

/// A text, fixed or computed.
#[derive(Debug)]
pub enum CheckText {
    /// A fixed text.
    Fixed(Box<[u8]>),
    /// The result of a format.
    Format(Format),
}

/// `http-check send`.
#[derive(Debug)]
pub struct CheckRequest {
    /// `meth`.
    pub method: Box<[u8]>,
    /// `uri`, `uri-lf`.
    pub uri: CheckText,
    /// `ver`.
    pub version: Box<[u8]>,
    /// `hdr`: the headers. Those with empty values are omitted.
    pub headers: Vec<(Box<[u8]>, Format)>,
    /// `body`, `body-lf`.
    pub body: CheckText,
}

/// `expect`.
#[derive(Debug)]
pub struct Expect {
    /// The expected content.
    pub what: Matcher,
    /// `!`.
    pub negate: bool,
    /// `min-recv`: the number of bytes that must have arrived before a mismatch is final.
    pub min_recv: Option<usize>,
    /// `ok-status`, by its name in the statistics.
    pub ok_status: Option<&'static str>,
    /// `error-status`.
    pub error_status: Option<&'static str>,
    /// `tout-status`.
    pub timeout_status: Option<&'static str>,
    /// `on-success`.
    pub on_success: Option<Format>,
    /// `on-error`.
    pub on_error: Option<Format>,
    /// `status-code`.
    pub code: Option<Expression>,
}

/// The expected content of a response.
#[derive(Debug)]
pub enum Matcher {
    /// `string`, `binary`: these bytes anywhere in the received data.
    Bytes(Box<[u8]>, Spelling),
    /// `rstring`, matched against the bytes.
    Regex(Regex),
    /// `rbinary`, matched against the hexadecimal digits of the data.
    HexRegex(Regex),
    /// `string-lf`.
    Format(Format),
    /// `binary-lf`.
    HexFormat(Format),
    /// `status`: ranges.
    Status(Vec<(u16, u16)>),
    /// `rstatus`.
    StatusRegex(Regex),
    /// `hdr`, `fhdr`.
    Header(HeaderMatcher),
    /// `string` in HTTP.
    Body(Box<[u8]>),
    /// `rstring` in HTTP.
    BodyRegex(Regex),
    /// `string-lf` in HTTP.
    BodyFormat(Format),
    /// MySQL's greeting, or the answer to a login.
    Mysql {
        /// Whether the greeting precedes the answer.
        after_greeting: bool,
    },
    /// LDAP's answer to a bind.
    LdapBind,
    /// A SPOE agent's hello.
    SpopHello,
    /// A gRPC health check response with status SERVING.
    GrpcServing,
}

/// The notation of bytes in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As text.
    Text,
    /// In hexadecimal.
    Hex,
}

/// `hdr` and `fhdr`: a header with a matching name, and optionally a matching value.
#[derive(Debug)]
pub struct HeaderMatcher {
    /// The name, compared case-insensitively.
    pub name: Pattern,
    /// The value; `None` for any.
    pub value: Option<Pattern>,
    /// `fhdr`: whole lines instead of comma-separated values.
    pub full: bool,
}

/// A pattern with its method (`-m`).
#[derive(Debug)]
pub enum Pattern {
    /// `str`, `beg`, `end`, `sub`.
    Text(CompareMethod, CheckText),
    /// `reg`.
    Regex(Regex),
}

/// The comparison method of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareMethod {
    /// `str`.
    Exact,
    /// `beg`.
    Begin,
    /// `end`.
    End,
    /// `sub`.
    Inside,
}
