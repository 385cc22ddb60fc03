//! The building blocks of the action table: rule sets, rows, and the context of a row's parser.

use std::time::Duration;

use base::keyword_support::Support;
use base::units::{DefaultUnit, parse_duration, parse_size};
use diag::{Diagnostic, Span};
use sample::expression::Expression;
use sample::format::{Format, FormatFor};
use sample::regex::Regex;
use sample::{Place, Scope, Word, Words};

use crate::action::{Action, Number};

/// The rule sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
#[repr(u16)]
pub enum Ruleset {
    TcpConnection = 1,
    TcpSession = 2,
    TcpRequest = 4,
    TcpResponse = 8,
    HttpRequest = 16,
    HttpResponse = 32,
    HttpAfterResponse = 64,
    QuicInitial = 128,
    UdpRequest = 256,
}

impl Ruleset {
    /// The keyword with which the rules of the set begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpConnection => "tcp-request connection",
            Self::TcpSession => "tcp-request session",
            Self::TcpRequest => "tcp-request content",
            Self::TcpResponse => "tcp-response content",
            Self::HttpRequest => "http-request",
            Self::HttpResponse => "http-response",
            Self::HttpAfterResponse => "http-after-response",
            Self::QuicInitial => "quic-initial",
            Self::UdpRequest => "udp-request",
        }
    }

    /// Whether the rules of the set process HTTP messages.
    pub fn is_http(self) -> bool {
        matches!(self, Self::HttpRequest | Self::HttpResponse | Self::HttpAfterResponse)
    }

    /// The place of expressions in the rules of the set.
    pub fn place(self) -> Place {
        match self {
            Self::TcpConnection => Place::TcpConnection,
            Self::TcpSession => Place::TcpSession,
            Self::TcpRequest => Place::TcpRequestContent,
            Self::TcpResponse => Place::TcpResponseContent,
            Self::HttpRequest => Place::HttpRequest,
            Self::HttpResponse | Self::HttpAfterResponse => Place::HttpResponse,
            Self::QuicInitial => Place::QuicInitial,
            Self::UdpRequest => Place::UdpRequest,
        }
    }

    /// All rule sets.
    pub const ALL: [Self; 9] = [
        Self::TcpConnection,
        Self::TcpSession,
        Self::TcpRequest,
        Self::TcpResponse,
        Self::HttpRequest,
        Self::HttpResponse,
        Self::HttpAfterResponse,
        Self::QuicInitial,
        Self::UdpRequest,
    ];
}

/// A row of the action table.
pub struct ActionRow {
    /// The name, without parentheses.
    pub name: &'static str,
    /// The arguments.
    pub arguments: &'static str,
    /// The rule sets that allow it, one bit each.
    pub sets: u16,
    /// A one-line description.
    pub doc: &'static str,
    /// Parses the arguments of the action.
    pub(crate) parse: Parse,
    /// Whether more characters may follow the name (`track-sc0`, `lua.name`).
    pub prefix: bool,
    /// How completely the action is supported.
    pub support: Support,
}

/// The context of an action's parser.
pub(crate) struct Context<'c, 'w, 's> {
    pub(crate) set: Ruleset,
    pub(crate) row: &'static ActionRow,
    /// The action's word, including parentheses.
    pub(crate) word: Word<'w>,
    pub(crate) words: &'c mut Words<'w>,
    pub(crate) scope: &'c Scope<'s>,
}

/// The result of an action's parser.
pub(crate) type Parsed = Result<Action, Diagnostic>;

/// An action's parser.
pub(crate) type Parse = fn(&mut Context<'_, '_, '_>) -> Parsed;

impl<'w> Context<'_, 'w, '_> {
    pub(crate) fn usage(&self, missing: &str) -> Diagnostic {
        let error = Diagnostic::alert(format!("`{}` needs {missing}", self.row.name))
            .at(self.words.span())
            .help(self.usage_line());
        match missing_arguments(self.set, self.row.name) {
            Some(text) => error.haproxy(text),
            None => error,
        }
    }

    pub(crate) fn usage_line(&self) -> String {
        let ActionRow { name, arguments, .. } = self.row;
        let gap = if arguments.starts_with('(') { "" } else { " " };
        format!("usage: {} {name}{gap}{arguments}", self.set.name())
    }

    /// Takes the next word, unless it begins the condition.
    pub(crate) fn need(&mut self, what: &str) -> Result<Word<'w>, Diagnostic> {
        match self.words.peek() {
            Some(word) if !matches!(word.text, "if" | "unless") => {
                self.words.next();
                Ok(word)
            }
            _ => Err(self.usage(what)),
        }
    }

    pub(crate) fn format(&mut self, what: &str, used_for: FormatFor) -> Result<Format, Diagnostic> {
        let word = self.need(what)?;
        Format::compile(word.text, word.span, self.scope, used_for)
    }

    pub(crate) fn expression(&mut self) -> Result<Expression, Diagnostic> {
        if matches!(self.words.peek_text(), "" | "if" | "unless") {
            return Err(self.usage("a sample expression"));
        }
        Expression::compile(self.words, self.scope)
    }

    /// The text in the parentheses of the action's word, and its location.
    pub(crate) fn parenthesised(&self) -> Result<(&'w str, Span), Diagnostic> {
        let text = self.word.text;
        let inner =
            text.find('(').and_then(|open| text[open + 1..].strip_suffix(')').map(|inner| (open + 1, inner)));
        match inner {
            Some((start, inner)) if !inner.is_empty() => {
                Ok((inner, self.word.span.part(start, start + inner.len())))
            }
            _ => Err(Diagnostic::alert(format!("`{}` needs an argument in parentheses", self.row.name))
                .at(self.word.span)
                .help(self.usage_line())),
        }
    }

    pub(crate) fn duration(&self, word: Word<'_>) -> Result<u64, Diagnostic> {
        let parsed = parse_duration(word.text, DefaultUnit::Milliseconds);
        parsed
            .map(|time: Duration| time.as_millis() as u64)
            .map_err(|error| Diagnostic::alert(format!("`{}`: {error}", word.text)).at(word.span))
    }

    /// Takes a time, or an expression that yields milliseconds.
    pub(crate) fn time_or_expression(&mut self) -> Result<Number, Diagnostic> {
        let Some(word) = self.words.peek() else { return Err(self.usage("a time or an expression")) };
        if word.text.starts_with(|first: char| first.is_ascii_digit()) {
            self.words.next();
            return Ok(Number::Fixed(self.duration(word)? as i64));
        }
        Ok(Number::Made(self.expression()?))
    }

    /// Takes a time above 0, or an expression that yields milliseconds.
    pub(crate) fn positive_time_or_expression(&mut self, rule: &str) -> Result<Number, Diagnostic> {
        let span = self.words.span();
        match self.time_or_expression()? {
            Number::Fixed(0) => Err(Diagnostic::alert(format!("`{rule}` with a time of 0 has no effect"))
                .at(span)
                .haproxy(format!("null value is not valid for a '{rule}' rule."))),
            time => Ok(time),
        }
    }

    /// Takes a size, or an expression that yields bytes.
    pub(crate) fn size_or_expression(&mut self) -> Result<Number, Diagnostic> {
        let Some(word) = self.words.peek() else { return Err(self.usage("a size or an expression")) };
        if word.text.starts_with(|first: char| first.is_ascii_digit()) {
            self.words.next();
            let size = parse_size(word.text)
                .map_err(|error| Diagnostic::alert(format!("`{}`: {error}", word.text)).at(word.span))?;
            return Ok(Number::Fixed(size as i64));
        }
        Ok(Number::Made(self.expression()?))
    }

    pub(crate) fn number_or_expression(&mut self, low: i64, high: i64) -> Result<Number, Diagnostic> {
        let Some(word) = self.words.peek() else { return Err(self.usage("a number or an expression")) };
        let digits = word.text.strip_prefix("0x");
        let number = match digits {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => word.text.parse::<i64>().ok(),
        };
        match number {
            Some(number) if (low..=high).contains(&number) => {
                self.words.next();
                Ok(Number::Fixed(number))
            }
            Some(_) => {
                Err(Diagnostic::alert(format!("`{}` is not between {low} and {high}", word.text))
                    .at(word.span))
            }
            None => Ok(Number::Made(self.expression()?)),
        }
    }

    pub(crate) fn regex(&mut self) -> Result<Regex, Diagnostic> {
        let word = self.need("a regular expression")?;
        Regex::new(word.text, false)
            .map_err(|error| Diagnostic::alert(format!("bad regular expression: {error}")).at(word.span))
    }
}

/// HAProxy's message for missing arguments of an action, if there is one.
fn missing_arguments(set: Ruleset, action: &str) -> Option<&'static str> {
    Some(match action {
        "add-acl" | "del-acl" | "del-map" | "strict-mode" => "expects exactly 1 arguments",
        "add-header" | "early-hint" | "set-header" | "set-map" | "set-timeout" => {
            "expects exactly 2 arguments"
        }
        "add-headers-bin" | "set-headers-bin" => {
            "expects exactly one argument or three arguments <headers> prefix <pfx>"
        }
        "cache-store" | "cache-use" => "expects a cache name",
        "capture" if set == Ruleset::HttpRequest => "expects <expression> [ 'len' <length> | id <idx> ]",
        "capture" if set.is_http() => "expects <expression> id <idx>",
        "del-header" | "del-headers-bin" => "expects at least 1 argument",
        "normalize-uri" => "missing argument <normalizer>",
        "replace-header" | "replace-value" => "expects exactly 3 arguments",
        "replace-path" | "replace-pathq" | "replace-uri" => {
            "expects exactly 2 arguments <match-regex> and <replace-format>"
        }
        "send-spoe-group" => "expects 2 arguments: <engine-id> <group-id>",
        "set-bandwidth-limit" => "missing bwlim filter name",
        "set-log-level" => "expects exactly 1 argument (log level name or 'silent')",
        "set-method" | "set-path" | "set-pathq" | "set-query" | "set-uri" => {
            "expects exactly 1 argument <format>"
        }
        "set-nice" => "expects exactly 1 argument (integer value)",
        "set-retries" => "expects exactly 1 argument (an expression or an integer between 1 and 100)",
        "set-status" => "expects 1 argument: <status>; or 3 arguments: <status> reason <fmt>",
        "set-bc-mark" | "set-bc-tos" | "set-fc-mark" | "set-fc-tos" | "set-mark" | "set-tos" => {
            "expects an argument"
        }
        "capture"
        | "set-dst"
        | "set-dst-port"
        | "set-priority-class"
        | "set-priority-offset"
        | "set-src"
        | "set-src-port"
        | "set-var"
        | "track-sc" => "missing fetch method",
        "switch-mode" => "'tcp-request switch-mode' expects a mode as argument.",
        "use-service" => "'use-service' expects a service name.",
        "wait-for-body" => "expects time <time> [ at-least <bytes> ]",
        _ => return None,
    })
}
