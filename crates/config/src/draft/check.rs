//! Drafts of health checks: the lines of `http-check`, `tcp-check` and the check options in their
//! order, before anything is compiled.
//!
//! `tables::check` and its siblings parse lines into these; `resolve::check` compiles them, once
//! for each backend that uses them.

use diag::{Diagnostic, Span};
use plan::check::{CompareMethod, Protocol, Spelling};
use sample::regex::Regex;
use syntax::Word;

use crate::draft::row::Outcome;

/// A text with its place: a format or an expression to be compiled, or part of one.
#[derive(Debug, Clone, Copy)]
pub struct PlacedText<'a> {
    /// As written.
    pub text: &'a str,
    /// Where; the default for texts that stand in no file.
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
    /// `option httpchk`.
    Http,
    /// `option redis-check` and its kin.
    Protocol,
    /// `option external-check`.
    External,
}

/// What a backend, its defaults or a `healthcheck` section say of checks.
#[derive(Debug, Clone, Default)]
pub struct CheckDraft<'a> {
    /// Which kind.
    pub mode: CheckMode,
    /// `http-check` lines, and the request of `option httpchk`.
    pub http: Vec<RuleDraft<'a>>,
    /// `tcp-check` lines.
    pub tcp: Vec<RuleDraft<'a>>,
    /// What `option redis-check` and its kin stand for.
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
    /// Its place among the lines, from 0: what messages count from.
    pub index: u32,
    /// Its own `comment`.
    pub comment: Option<&'a str>,
    /// What it does.
    pub action: ActionDraft<'a>,
}

impl<'a> From<ActionDraft<'a>> for RuleDraft<'a> {
    fn from(action: ActionDraft<'a>) -> Self {
        Self { index: 0, comment: None, action }
    }
}

/// What a line does.
#[derive(Debug, Clone)]
pub enum ActionDraft<'a> {
    /// `comment`: names the steps behind it.
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
    /// A question of gRPC whether this service is serving, empty for the server as a whole.
    Grpc(&'a str),
    /// `expect`.
    Expect(Box<ExpectDraft<'a>>),
    /// `set-var`: name and conditions, the words of the expression.
    SetVar(PlacedText<'a>, &'a [Word]),
    /// `set-var-fmt`.
    SetVarFormat(PlacedText<'a>, PlacedText<'a>),
    /// `unset-var`.
    UnsetVar(PlacedText<'a>),
}

impl ActionDraft<'_> {
    /// Whether it talks to the server, so that messages count it and the order of steps concerns
    /// it.
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
    /// A number.
    Fixed(u16),
    /// An expression.
    Expression(PlacedText<'a>),
}

/// A value that may be a format.
#[derive(Debug, Clone, Copy)]
pub enum ValueDraft<'a> {
    /// As written.
    Fixed(&'a str),
    /// `…-lf`.
    Format(PlacedText<'a>),
}

/// A request.
#[derive(Debug, Clone, Default)]
pub struct RequestDraft<'a> {
    /// It comes from `option httpchk` and was not yet joined by an `http-check send`.
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
    /// What `newer` says takes the place of what was said before.
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
    /// What is looked for.
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

/// What an answer is compared with.
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
    /// Chooses the kind (`option httpchk` and its kin). Rules of the kind that was chosen before are
    /// dropped silently, as in HAProxy.
    pub fn choose(&mut self, mode: CheckMode) {
        if self.mode != mode {
            match self.mode {
                CheckMode::Http => self.http.clear(),
                CheckMode::Tcp => self.tcp.clear(),
                CheckMode::Connect | CheckMode::Protocol | CheckMode::External => {}
            }
        }
        self.mode = mode;
    }

    /// Adds a `tcp-check` line.
    pub fn push_tcp(&mut self, rule: RuleDraft<'a>) {
        push(&mut self.tcp, rule);
    }

    /// Sets the steps that `option redis-check` or one of its kin stands for.
    pub fn set_protocol(&mut self, rules: impl IntoIterator<Item = RuleDraft<'a>>) {
        self.protocol.clear();
        rules.into_iter().for_each(|rule| push(&mut self.protocol, rule));
        self.choose(CheckMode::Protocol);
    }

    /// Adds an `http-check` line. A request joins that of `option httpchk`, once.
    ///
    /// # Errors
    /// A line that cannot stand behind the last one; `span` is where it stands.
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

    /// Takes the request of `option httpchk`: joins the first `http-check send` above, if there is
    /// one.
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
