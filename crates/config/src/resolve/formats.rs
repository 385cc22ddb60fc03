//! Compiles the formats of a proxy's log lines, unique IDs and `Forwarded` headers.

use std::rc::Rc;

use diag::Diagnostic;
use plan::log::Logger;
use plan::proxy::{Forwarded, ForwardedHost, ForwardedNode};
use sample::Acls;
use sample::Place;
use sample::expression::Expression;
use sample::format::{self, Format, FormatFor};
use syntax::Word;

use crate::draft::Statement;
use crate::draft::settings::{LogFormatChoice, ProxySettings};
use crate::resolve::rules::scope;
use crate::resolve::{PendingProxy, ResolveContext};

/// The compiled formats of a proxy.
#[derive(Default)]
pub(crate) struct Formats {
    pub(crate) log: Option<Format>,
    pub(crate) error: Option<Format>,
    pub(crate) structured: Option<Format>,
    pub(crate) unique_id: Option<Format>,
    pub(crate) forwarded: Option<Forwarded>,
}

impl Formats {
    /// Whether a log line is written as soon as the server has responded or a TCP stream is connected. This is the case if the
    /// configuration requests it, or if no format contains a value that is known only at the end.
    pub(crate) fn are_early(&self, settings: &ProxySettings<'_>, loggers: &[Logger]) -> bool {
        let known = |format: &Format| !format.is_late();
        // Profiles have formats of their own.
        let own = || loggers.iter().all(|logger| logger.profile.is_none());
        !settings.log.steps.is_given()
            && (settings.options.logasap
                || self.log.as_ref().is_some_and(known)
                    && self.structured.as_ref().is_none_or(known)
                    && own())
    }
}

/// Compiles all formats; errors are added to the diagnostics.
pub(crate) fn formats(proxy: &PendingProxy<'_>, acls: &Acls, context: &mut ResolveContext<'_>) -> Formats {
    let settings = &proxy.settings;
    let mut formats = Formats::default();
    if settings.is_frontend() {
        let log = log_format(proxy, acls, context);
        formats.log = context.diagnostics.take(log).flatten();
        formats.error = one_format(settings.error_log_format, proxy, acls, context);
        formats.structured = one_format(settings.log_format_sd, proxy, acls, context);
    }
    formats.unique_id = one_format(settings.unique_id_format, proxy, acls, context);
    if let Some(statement) = settings.forwarded.filter(|_| settings.is_backend()) {
        let forwarded = forwarded(statement, proxy, acls, context);
        formats.forwarded = context.diagnostics.take(forwarded);
    }
    formats
}

fn one_format(
    statement: Option<&Statement>,
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &mut ResolveContext<'_>,
) -> Option<Format> {
    let word = statement?.arguments().first()?;
    let compiled = {
        let place =
            if statement?.keyword.name == "unique-id-format" { Place::HttpRequest } else { Place::Log };
        let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, place);
        let what = match statement?.keyword.name {
            "unique-id-format" => FormatFor::UniqueId,
            _ => FormatFor::Log,
        };
        Format::compile(word, word.span(), &scope, what)
    };
    context.diagnostics.take(compiled)
}

fn log_format(
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &ResolveContext<'_>,
) -> Result<Option<Format>, Diagnostic> {
    let http = proxy.settings.mode == state::Mode::Http;
    let (text, span) = match proxy.settings.log_format {
        LogFormatChoice::Default if proxy.settings.mode == state::Mode::Udp => {
            (format::UDP_LOG, proxy.section.name.span())
        }
        LogFormatChoice::Default => return Ok(None),
        LogFormatChoice::Custom(statement) => match statement.arguments().first() {
            Some(word) => (word.as_str(), word.span()),
            None => return Ok(None),
        },
        LogFormatChoice::Tcp(statement) => (format::TCP_LOG, statement.span),
        LogFormatChoice::TcpClf(statement) => (format::TCP_CLF_LOG, statement.span),
        LogFormatChoice::Http(statement) if http => (format::HTTP_LOG, statement.span),
        LogFormatChoice::Clf(statement) if http => (format::CLF_LOG, statement.span),
        LogFormatChoice::Https(statement) if http => (format::HTTPS_LOG, statement.span),
        // Warned about elsewhere.
        LogFormatChoice::Http(statement)
        | LogFormatChoice::Clf(statement)
        | LogFormatChoice::Https(statement) => (format::TCP_LOG, statement.span),
    };
    let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::Log);
    Format::compile(text, span, &scope, FormatFor::Log).map(Some)
}

fn forwarded(
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &mut ResolveContext<'_>,
) -> Result<Forwarded, Diagnostic> {
    let words: Rc<[&Word]> = statement.arguments().iter().collect();
    let mut own = Forwarded::default();
    if words.is_empty() {
        own.proto = true;
        own.for_ = Some(ForwardedNode::default());
        return Ok(own);
    }
    let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::BackendRequest);
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let expression = word.ends_with("-expr").then(|| {
            let text = words.get(at).ok_or_else(|| {
                Diagnostic::alert(format!("`{word}` expects an expression")).at(statement.end())
            })?;
            Expression::compile_str(text, text.span(), &scope)
        });
        at += usize::from(expression.is_some());
        let expression = expression.transpose()?;
        let node = |node: &mut Option<ForwardedNode>, expression| {
            node.get_or_insert_default().name = expression;
        };
        let port = |node: &mut Option<ForwardedNode>, expression| {
            node.get_or_insert_default().port = Some(expression);
        };
        match word.as_str() {
            "proto" => own.proto = true,
            "host" => own.host = Some(ForwardedHost::Default),
            "host-expr" => own.host = expression.map(ForwardedHost::Expression),
            "by" | "by-expr" => node(&mut own.by, expression),
            "for" | "for-expr" => node(&mut own.for_, expression),
            "by_port" | "by_port-expr" => port(&mut own.by, expression),
            "for_port" | "for_port-expr" => port(&mut own.for_, expression),
            other => {
                const KNOWN: &[&str] = &[
                    "proto",
                    "host",
                    "host-expr",
                    "by",
                    "by-expr",
                    "by_port",
                    "by_port-expr",
                    "for",
                    "for-expr",
                    "for_port",
                    "for_port-expr",
                ];
                return Err(Diagnostic::alert(format!("unknown option `{other}` for `option forwarded`"))
                    .at(word.span())
                    .did_you_mean(diag::suggest(other, KNOWN.iter().copied())));
            }
        }
    }
    Ok(own)
}
