//! Drafts of health checks: the lines of `http-check`, `tcp-check` and the check options in order, before compilation.
//!
//! `tables::check` and its siblings parse lines into these; `resolve::check` compiles them, once for each backend that uses them.

use diag::{Diagnostic, Span};
use plan::check::{CompareMethod, Protocol, Spelling};
use sample::regex::Regex;
use syntax::Word;

use crate::draft::row::Outcome;

/// A text with its location: a format or an expression to be compiled, or a part of one.
#[derive(Debug, Clone, Copy)]
pub struct PlacedText<'a> {
    /// The text as written.
    pub text: &'a str,
    /// The location; the default for texts that are not in a file.
    pub span: Span,
}

impl<'a> From<&'a Word> for PlacedText<'a> {
    fn from(word: &'a Word) -> Self {
        Self { text: word.as_str(), span: word.span() }
    }
}

impl<'a> From<&'a str> for PlacedText<'a> {
    fn from(text: &'a str) -> Self {
        Self { text, span: Span::default() }
    }
}

/// The kind of the health checks of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckMode {
    /// A connection.
    #[default]
    Connect,
    /// `option tcp-check`.
    Tcp,
    /// `option udp-check`.
    Udp,
    /// `option httpchk`.
    Http,
    /// `option redis-check` and related options.
    Protocol,
    /// `option external-check`.
    External,
}

/// The check settings of a backend, its defaults or a `healthcheck` section.
#[derive(Debug, Clone, Default)]
pub struct CheckDraft<'a> {
    /// The kind of check.
    pub mode: CheckMode,
    /// `http-check` lines, and the request of `option httpchk`.
    pub http: Vec<RuleDraft<'a>>,
    /// `tcp-check` lines.
    pub tcp: Vec<RuleDraft<'a>>,
    /// The steps of `option redis-check` and related options.
    pub protocol: Vec<RuleDraft<'a>>,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
    /// `http-check send-state`.
    pub send_state: bool,
    /// `external-check command`.
    pub command: Option<&'a str>,
    /// `external-check path`.
    pub path: Option<&'a str>,
}

/// One line.
#[derive(Debug, Clone)]
pub struct RuleDraft<'a> {
    /// The index among the lines, from 0, which messages use.
    pub index: u32,
    /// The rule's own `comment`.
    pub comment: Option<&'a str>,
    /// The action.
    pub action: ActionDraft<'a>,
}

impl<'a> From<ActionDraft<'a>> for RuleDraft<'a> {
    fn from(action: ActionDraft<'a>) -> Self {
        Self { index: 0, comment: None, action }
    }
}

/// The action of a line.
#[derive(Debug, Clone)]
pub enum ActionDraft<'a> {
    /// `comment`: names the following steps.
    Comment(&'a str),
    /// `connect`.
    Connect(ConnectDraft<'a>),
    /// `send`, `send-binary`.
    Send(Box<[u8]>),
    /// `send-lf`.
    SendFormat(PlacedText<'a>),
    /// `send-binary-lf`.
    SendHex(PlacedText<'a>),
    /// `http-check send`, `option httpchk`.
    Request(RequestDraft<'a>),
    /// A gRPC health check of this service; if empty, of the whole server.
    Grpc(&'a str),
    /// `expect`.
    Expect(Box<ExpectDraft<'a>>),
    /// `set-var`: the name and conditions, and the words of the expression.
    SetVar(PlacedText<'a>, &'a [Word]),
    /// `set-var-fmt`.
    SetVarFormat(PlacedText<'a>, PlacedText<'a>),
    /// `unset-var`.
    UnsetVar(PlacedText<'a>),
}

impl ActionDraft<'_> {
    /// Whether the step exchanges data with the server. Messages number these steps, and their order is checked.
    pub fn talks(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::Send(_)
                | Self::SendFormat(_)
                | Self::SendHex(_)
                | Self::Request(_)
                | Self::Grpc(_)
                | Self::Expect(_)
        )
    }
}

/// `connect`.
#[derive(Debug, Clone, Default)]
pub struct ConnectDraft<'a> {
    /// `default`.
    pub default: bool,
    /// `port`.
    pub port: Option<PortDraft<'a>>,
    /// `addr`.
    pub address: Option<(std::net::IpAddr, Option<u16>)>,
    /// `send-proxy`.
    pub send_proxy: bool,
    /// `via-socks4`.
    pub via_socks4: bool,
    /// `linger`.
    pub linger: bool,
    /// `proto`.
    pub protocol: Option<Protocol>,
    /// `ssl`.
    pub secure: bool,
    /// `sni`.
    pub name: Option<&'a str>,
    /// `alpn`.
    pub alpn: Option<Vec<Box<[u8]>>>,
}

/// `port`.
#[derive(Debug, Clone, Copy)]
pub enum PortDraft<'a> {
    /// A fixed port.
    Fixed(u16),
    /// An expression for the port.
    Expression(PlacedText<'a>),
}

/// A value that may be a log format.
#[derive(Debug, Clone, Copy)]
pub enum ValueDraft<'a> {
    /// Literal text.
    Fixed(&'a str),
    /// `…-lf`.
    Format(PlacedText<'a>),
}

/// A request.
#[derive(Debug, Clone, Default)]
pub struct RequestDraft<'a> {
    /// Whether the request comes from `option httpchk` and was not merged with an `http-check send` yet.
    pub from_option: bool,
    /// `meth`.
    pub method: Option<&'a str>,
    /// `uri`, `uri-lf`.
    pub uri: Option<ValueDraft<'a>>,
    /// `ver`.
    pub version: Option<&'a str>,
    /// `hdr`.
    pub headers: Vec<(&'a str, PlacedText<'a>)>,
    /// `body`, `body-lf`.
    pub body: Option<ValueDraft<'a>>,
}

impl<'a> RequestDraft<'a> {
    /// Overwrites the request with the parts that `newer` sets.
    fn overwrite(&mut self, newer: Self) {
        self.method = newer.method.or(self.method);
        self.uri = newer.uri.or(self.uri);
        self.version = newer.version.or(self.version);
        if !newer.headers.is_empty() {
            self.headers = newer.headers;
        }
        self.body = newer.body.or(self.body);
    }
}

/// `expect`.
#[derive(Debug, Clone)]
pub struct ExpectDraft<'a> {
    /// The match.
    pub what: MatcherDraft<'a>,
    /// `!`.
    pub negate: bool,
    /// `min-recv`.
    pub min_recv: Option<usize>,
    /// `ok-status`.
    pub ok_status: Option<&'static str>,
    /// `error-status`.
    pub error_status: Option<&'static str>,
    /// `tout-status`.
    pub timeout_status: Option<&'static str>,
    /// `on-success`.
    pub on_success: Option<PlacedText<'a>>,
    /// `on-error`.
    pub on_error: Option<PlacedText<'a>>,
    /// `status-code`.
    pub code: Option<PlacedText<'a>>,
}

impl<'a> ExpectDraft<'a> {
    /// An expectation with nothing but its matcher.
    pub fn new(what: MatcherDraft<'a>) -> Self {
        Self {
            what,
            negate: false,
            min_recv: None,
            ok_status: None,
            error_status: None,
            timeout_status: None,
            on_success: None,
            on_error: None,
            code: None,
        }
    }
}

/// The match of an expectation.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "as plan::check::Matcher")]
pub enum MatcherDraft<'a> {
    Bytes(Box<[u8]>, Spelling),
    Regex(Regex),
    HexRegex(Regex),
    Format(PlacedText<'a>),
    HexFormat(PlacedText<'a>),
    Status(Vec<(u16, u16)>),
    StatusRegex(Regex),
    Header { name: PatternDraft<'a>, value: Option<PatternDraft<'a>>, full: bool },
    Body(Box<[u8]>),
    BodyRegex(Regex),
    BodyFormat(PlacedText<'a>),
    Mysql { after_greeting: bool },
    LdapBind,
    SpopHello,
    GrpcServing,
}

/// The name or the value of a header.
#[derive(Debug, Clone)]
pub enum PatternDraft<'a> {
    /// `str`, `beg`, `end`, `sub`.
    Text(CompareMethod, ValueDraft<'a>),
    /// `reg`.
    Regex(Regex),
}

impl<'a> CheckDraft<'a> {
    /// Sets the kind (`option httpchk` and related options). Rules of the previous kind are dropped silently, as in HAProxy.
    pub fn choose(&mut self, mode: CheckMode) {
        if self.mode != mode {
            match self.mode {
                CheckMode::Http => self.http.clear(),
                CheckMode::Tcp | CheckMode::Udp => self.tcp.clear(),
                CheckMode::Connect | CheckMode::Protocol | CheckMode::External => {}
            }
        }
        self.mode = mode;
    }

    /// Adds a `tcp-check` line.
    pub fn push_tcp(&mut self, rule: RuleDraft<'a>) {
        push(&mut self.tcp, rule);
    }

    /// Sets the steps of `option redis-check` or a related option.
    pub fn set_protocol(&mut self, rules: impl IntoIterator<Item = RuleDraft<'a>>) {
        self.protocol.clear();
        rules.into_iter().for_each(|rule| push(&mut self.protocol, rule));
        self.choose(CheckMode::Protocol);
    }

    /// Adds an `http-check` line. A request is merged with that of `option httpchk`, once.
    ///
    /// # Errors
    /// The line may not follow the last one. `span` is its location.
    pub fn push_http(&mut self, mut rule: RuleDraft<'a>, span: Span) -> Outcome {
        rule.index = next_index(&self.http);
        if rule.action.talks() {
            self.check_order(&rule, span)?;
        }
        if let ActionDraft::Request(own) = &mut rule.action
            && let Some(at) = self.http.iter().position(|rule| rule.action.talks())
            && let ActionDraft::Request(RequestDraft { from_option: true, .. }) = self.http[at].action
        {
            let former = self.http.remove(at);
            let ActionDraft::Request(mut request) = former.action else { return Ok(()) };
            rule.index = former.index;
            request.overwrite(std::mem::take(own));
            request.from_option = false;
            *own = request;
        }
        self.http.push(rule);
        Ok(())
    }

    fn check_order(&self, rule: &RuleDraft<'a>, span: Span) -> Outcome {
        use ActionDraft::{Connect, Expect, Request};
        let Some(last) = self.http.iter().rev().find(|rule| rule.action.talks()) else { return Ok(()) };
        let (what, missing) = match (&last.action, &rule.action) {
            (Request(RequestDraft { from_option: true, .. }), _) | (Connect(_), Request(_)) => return Ok(()),
            (_, Request(_)) => ("send", "connect"),
            (Connect(_), Expect(_)) => ("expect", "send"),
            (Request(_) | Connect(_), Connect(_)) => ("connect", "expect"),
            _ => return Ok(()),
        };
        let step = rule.index + 1;
        Err(Diagnostic::alert(format!("`http-check {what}` needs an `http-check {missing}` before it"))
            .at(span)
            .haproxy(format!(
                "'http-check {what}' : unable to add http-check {what} rule at step {step} (missing {missing} rule)."
            )))
    }

    /// Adds the request of `option httpchk`: merges it with the first `http-check send` above, if there is one.
    pub fn set_option_request(&mut self, request: RequestDraft<'a>) {
        self.choose(CheckMode::Http);
        let mut talking = self.http.iter_mut().filter(|rule| rule.action.talks());
        let first = talking.next();
        let first = match first {
            Some(RuleDraft { action: ActionDraft::Connect(_), .. }) => talking.next(),
            first => first,
        };
        match first {
            Some(RuleDraft { action: ActionDraft::Request(own), .. }) if own.from_option => *own = request,
            Some(RuleDraft { action: ActionDraft::Request(own), .. }) => own.overwrite(request),
            _ => self.http.insert(0, ActionDraft::Request(request).into()),
        }
    }
}

fn next_index(rules: &[RuleDraft<'_>]) -> u32 {
    rules.last().map_or(0, |last| last.index + 1)
}

fn push<'a>(rules: &mut Vec<RuleDraft<'a>>, rule: RuleDraft<'a>) {
    rules.push(RuleDraft { index: next_index(rules), ..rule });
}
