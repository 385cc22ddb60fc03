//! What health checks ask and expect, resolved (configuration manual, 4.2 `option httpchk` …
//! `tcp-check`, 5.2 `check`, 12.9): expressions are compiled, comments stand at their steps, what
//! was implied is written out.
//!
//! Made by `config`; carried out by `health`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sample::expression::Expression;
use sample::format::Format;
use sample::regex::Regex;
use sample::vars::{SetConditions, Var};

/// Health checks of one server: when, and what. Where to is the server's state, which the runtime
/// socket changes.
#[derive(Debug, Clone)]
pub struct CheckSettings {
    /// `inter`: between two checks of a server that is steadily up.
    pub inter: Duration,
    /// `fastinter`: while its state is changing; `None` for `inter`.
    pub fastinter: Option<Duration>,
    /// `downinter`: while it is down; `None` for `inter`.
    pub downinter: Option<Duration>,
    /// `rise`.
    pub rise: u32,
    /// `fall`.
    pub fall: u32,
    /// `check-send-proxy`, or the server's own `send-proxy` where the check goes where requests go.
    pub send_proxy: bool,
    /// Whether a header of version 2 names both ends, as if a client had connected
    /// (`pp2-never-send-local`).
    pub never_local: bool,
    /// `check-via-socks4`: the proxy of `socks4`.
    pub socks4: Option<SocketAddr>,
    /// `check-reuse-pool`: the name under which idle connections are shared with requests
    /// (`check-pool-conn-name`), empty for none. `None` where each check has a connection of its
    /// own.
    pub reuse: Option<Box<str>>,
    /// `check-proto`, or the server's own `proto`: what is spoken unless a step says something else.
    pub protocol: Option<Protocol>,
    /// `timeout check`; `None` when `inter` limits all.
    pub timeout: Option<Duration>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
    /// What is asked.
    pub kind: Arc<CheckKind>,
    /// `option log-health-checks`.
    pub log: bool,
    /// `init-state`: where it begins.
    pub initial: InitState,
}

/// What is spoken on a connection whatever was agreed in TLS (`proto`, `check-proto`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `none`: bytes.
    Bytes,
    /// `h1`.
    Http1,
    /// `h2`.
    Http2,
    /// `fcgi`: HTTP as applications have it.
    FastCgi,
    /// `spop`: what agents speak, in `option spop-check` alone.
    Spop,
}

impl Protocol {
    /// The protocols and their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("h1", Self::Http1),
        ("h2", Self::Http2),
        ("fcgi", Self::FastCgi),
        ("spop", Self::Spop),
        ("none", Self::Bytes),
    ];

    /// Whether it carries messages of HTTP.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2 | Self::FastCgi)
    }
}

/// `init-state`: what a server is before its first check, and how many checks it takes to change
/// that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitState {
    /// Not said: up as with `Up`, and nothing changes when the server comes back from maintenance.
    #[default]
    None,
    /// Up; `fall` failures bring it down.
    FullyUp,
    /// Up; the first failure brings it down.
    Up,
    /// Down; the first success brings it up.
    Down,
    /// Down; `rise` successes bring it up.
    FullyDown,
}

/// The agent of a server (`agent-check`). Where it is and what it is told is the server's state,
/// which the runtime socket changes.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// `agent-inter`.
    pub inter: Duration,
    /// `timeout check`; `None` for `inter`.
    pub timeout: Option<Duration>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
}

/// What a health check is.
#[derive(Debug)]
pub enum CheckKind {
    /// A conversation.
    Script(CheckScript),
    /// `option external-check`: a program says.
    External {
        /// `external-check command`.
        command: Box<str>,
        /// `external-check path`: its `PATH`.
        path: Option<Box<str>>,
        /// Whether it gets the environment of this process (`external-check preserve-env` of
        /// global).
        preserve_env: bool,
    },
}

/// What kind of script it is: decides how results are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// No option at all: a connection is enough.
    Connect,
    /// `option tcp-check`.
    Tcp,
    /// `option httpchk`.
    Http,
    /// `option redis-check` and its kin.
    Protocol,
}

/// A conversation, step by step. The first step that talks is a [`CheckAction::Connect`].
#[derive(Debug)]
pub struct CheckScript {
    /// What kind it is.
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
    /// Whether it asks in gRPC.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.expects(|what| matches!(what, Matcher::GrpcServing))
    }

    /// Whether it is the one of `option spop-check`.
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
    /// Its number in messages: from 1, by its place among the lines; 0 for a connection that was
    /// implied.
    pub number: u32,
    /// `comment`, of its own or of a line before it.
    pub comment: Option<Box<str>>,
    /// What is done.
    pub action: CheckAction,
}

/// What a step does.
#[derive(Debug)]
pub enum CheckAction {
    /// Opens a connection.
    Connect(Connect),
    /// Sends bytes.
    Send(Send),
    /// Sends a request of HTTP.
    Request(CheckRequest),
    /// Waits for an answer and judges it.
    Expect(Box<Expect>),
    /// `set-var`, `set-var-fmt`.
    SetVar(Var, SetConditions, ValueSource),
    /// `unset-var`.
    UnsetVar(Var),
}

/// Where the value of a variable comes from.
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
    /// Nobody wrote it.
    pub implied: bool,
    /// `default`: with the options of the server line (`check-send-proxy`, `check-via-socks4`).
    pub default: bool,
    /// `port`.
    pub port: Option<Port>,
    /// `addr`, with its port where it has one.
    pub address: Option<(IpAddr, Option<u16>)>,
    /// `send-proxy`.
    pub send_proxy: bool,
    /// `via-socks4`.
    pub via_socks4: bool,
    /// `linger`: end the connection as usual instead of by a reset.
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
    /// Whether the connection is to be as those of requests are: nothing but `default` was said of
    /// it.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        let Self { port, address, send_proxy, via_socks4, linger, protocol, secure, name, alpn, .. } = self;
        let special = *send_proxy || *via_socks4 || *linger || protocol.is_some() || *secure;
        !special && port.is_none() && address.is_none() && name.is_none() && alpn.is_none()
    }
}

/// A port, written or computed.
#[derive(Debug)]
pub enum Port {
    /// This one.
    Fixed(u16),
    /// What this gives; nothing or 0 for the usual one.
    Expression(Expression),
}

/// What is sent.
#[derive(Debug)]
pub enum Send {
    /// `send`, `send-binary`.
    Bytes(Box<[u8]>),
    /// `send-lf`.
    Format(Format),
    /// `send-binary-lf`: hexadecimal digits.
    Hex(Format),
}

/// A text, written or computed.
#[derive(Debug)]
pub enum CheckText {
    /// This one.
    Fixed(Box<[u8]>),
    /// What this gives.
    Format(Format),
}

/// `http-check send`.
#[derive(Debug)]
pub struct CheckRequest {
    /// `meth`.
    pub method: Box<str>,
    /// `uri`, `uri-lf`.
    pub uri: CheckText,
    /// `ver`.
    pub version: Box<str>,
    /// `hdr`: empty values are left out.
    pub headers: Vec<(Box<str>, Format)>,
    /// `body`, `body-lf`.
    pub body: CheckText,
}

/// `expect`.
#[derive(Debug)]
pub struct Expect {
    /// What is looked for.
    pub what: Matcher,
    /// `!`.
    pub negate: bool,
    /// `min-recv`: how many bytes must be there, and then a mismatch is conclusive.
    pub min_recv: Option<usize>,
    /// `ok-status`, as the statistics name it.
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

/// What an answer is compared with.
#[derive(Debug)]
pub enum Matcher {
    /// `string`, `binary`: these bytes somewhere in what was received.
    Bytes(Box<[u8]>, Spelling),
    /// `rstring`, over the bytes.
    Regex(Regex),
    /// `rbinary`, over their hexadecimal digits.
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
    /// `string` of HTTP.
    Body(Box<[u8]>),
    /// `rstring` of HTTP.
    BodyRegex(Regex),
    /// `string-lf` of HTTP.
    BodyFormat(Format),
    /// The greeting of MySQL, or its answer to a login.
    Mysql {
        /// Whether the greeting stands before the answer.
        after_greeting: bool,
    },
    /// LDAP's answer to a bind.
    LdapBind,
    /// The hello of an agent of SPOE.
    SpopHello,
    /// The answer of gRPC to a health check: it is serving.
    GrpcServing,
}

/// How bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As text.
    Text,
    /// In hexadecimal.
    Hex,
}

/// `hdr` and `fhdr`: a header whose name, and maybe value, match.
#[derive(Debug)]
pub struct HeaderMatcher {
    /// Its name, compared without regard to case.
    pub name: Pattern,
    /// Its value; `None` for any.
    pub value: Option<Pattern>,
    /// `fhdr`: whole lines instead of the values between commas.
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

/// How a pattern is compared.
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
