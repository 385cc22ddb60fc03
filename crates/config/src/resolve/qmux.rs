//! `bind` and `server` lines for QMux: HTTP/3 over TCP, clear or with TLS (manual, sections 5.1 and 5.2 `proto`). Experimental, as in
//! HAProxy.

use diag::{Diagnostic, Span};
use plan::quic::QmuxUse;
use state::Mode;
use state::server::ServerAddress;

use crate::draft::Statement;
use crate::draft::bind::BindDraft;
use crate::draft::server::ServerDraft;
use crate::draft::tls::{TlsValue, TlsWords};
use crate::resolve::{PendingProxy, ResolveContext};

/// The protocol that TLS negotiates for HTTP/3.
const HTTP3: &str = "h3";

/// HAProxy's words for what the global section has to allow.
const ALLOWED_BY: &str = "must be allowed via a global 'expose-experimental-directives'.";

/// Whether `alpn` contains HTTP/3.
fn lists_http3(words: &TlsWords<'_>) -> bool {
    !words.no_alpn && words.alpn.is_some_and(|alpn| alpn.split(',').any(|name| name == HTTP3))
}

/// Sets `alpn`, unless the line has it.
fn complete_tls(words: &mut TlsWords<'_>, span: Span) {
    words.alpn.get_or_insert(TlsValue { text: HTTP3, span });
}

/// Checks that experimental directives are allowed.
fn allow(
    context: &ResolveContext<'_>,
    span: Span,
    text: &str,
    error: impl FnOnce(Diagnostic) -> Diagnostic,
) -> Result<(), Diagnostic> {
    context.names.experiments.set(true);
    if context.names.experimental || context.around.is_some() {
        return Ok(());
    }
    let diagnostic = Diagnostic::alert(text)
        .at(span)
        .help("add `expose-experimental-directives` to the global section to allow it");
    Err(error(diagnostic))
}

/// Checks a `bind` line with the title `title`, and completes its TLS parameters; `address` is its word with the addresses.
///
/// # Errors
/// QMux is not allowed, or the frontend does not use HTTP.
pub(crate) fn of_bind(
    draft: &mut BindDraft<'_>,
    (title, span): (&str, Span),
    proxy: &PendingProxy<'_>,
    statement: &Statement,
    context: &ResolveContext<'_>,
) -> Result<QmuxUse, Diagnostic> {
    let settings = &proxy.settings;
    let is_http = settings.mode == Mode::Http || settings.disabled;
    let Some(word) = draft.speaks_qmux else {
        if is_http && draft.tls.enabled && lists_http3(&draft.tls.words) {
            let file = context.sources.file(statement.span.file).name();
            let (name, line) = (settings.name, statement.line);
            let haproxy = format!(
                "HTTP/3 on TCP listed via ALPN on frontend '{name}' at [{file}:{line}] relies on the experimental QMux protocol, {ALLOWED_BY}"
            );
            let text = "HTTP/3 over TCP (`alpn h3`) uses QMux, which is experimental";
            allow(context, span, text, |error| error.haproxy_whole(haproxy))?;
        }
        // The `alpn` of a certificate list counts only where the protocol is allowed.
        let is_allowed = context.names.experimental || context.around.is_some();
        let is_free = !(draft.speaks_h2 || draft.http1_alone || draft.stays_raw);
        return Ok(if is_http && is_allowed && is_free { QmuxUse::Negotiated } else { QmuxUse::Never });
    };
    let section = proxy.section.keyword.as_str();
    let haproxy =
        format!("'{title}' in section '{section}' : 'proto' : 'qmux' protocol is experimental, {ALLOWED_BY}");
    allow(context, word.span(), "`proto qmux` is experimental", |error| error.haproxy(haproxy))?;
    if !is_http {
        return Err(Diagnostic::alert("`proto qmux` is only supported on HTTP frontends")
            .at(word.span())
            .help("use `mode http` for the frontend")
            .haproxy(format!(
                "proxy '{}' : MUX protocol 'qmux' is not usable for '{title}'",
                settings.name
            )));
    }
    complete_tls(&mut draft.tls.words, word.span());
    Ok(QmuxUse::Always)
}

/// Refuses `proto qmux` on lines that are not for HTTP clients.
pub(crate) fn refuse(draft: &BindDraft<'_>) -> Result<(), Diagnostic> {
    match draft.speaks_qmux {
        Some(word) => {
            Err(Diagnostic::alert("QMux is only supported on `bind` lines of HTTP frontends").at(word.span()))
        }
        None => Ok(()),
    }
}

/// Checks a `server` line, and completes its TLS parameters. That the backend uses HTTP is checked with other protocols.
///
/// # Errors
/// QMux is not allowed.
pub(crate) fn fit_server(
    draft: &mut ServerDraft<'_>,
    server: &state::Server,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let settings = &proxy.settings;
    let title = format!("'server {}/{}' : ", settings.name, server.name);
    if let Some(word) = draft.speaks_qmux {
        if **server.address.load() == ServerAddress::Reverse {
            return Err(Diagnostic::alert("a reverse HTTP server uses HTTP/2, not `proto qmux`")
                .at(word.span())
                .help("remove `proto`"));
        }
        let haproxy = format!("{title}'proto' : 'qmux' protocol is experimental, {ALLOWED_BY}");
        allow(context, word.span(), "`proto qmux` is experimental", |error| error.haproxy(haproxy))?;
        complete_tls(&mut draft.tls.words, word.span());
    } else if !draft.is_quic
        && draft.tls.enabled
        && settings.mode == Mode::Http
        && lists_http3(&draft.tls.words)
    {
        let haproxy = format!(
            "{title}HTTP/3 on TCP listed via ALPN requires the QMUX protocol which is experimental, {ALLOWED_BY}"
        );
        let text = "HTTP/3 over TCP (`alpn h3`) uses QMux, which is experimental";
        allow(context, statement.keyword_span(), text, |error| error.haproxy(haproxy))?;
    }
    Ok(())
}

/// How a server uses QMux.
pub(crate) fn of_server(draft: &ServerDraft<'_>) -> QmuxUse {
    match draft.speaks_qmux {
        Some(_) => QmuxUse::Always,
        // Another protocol on the line takes precedence over the one that TLS negotiates.
        None if draft.is_quic || draft.speaks_h1 || draft.speaks_h2 || draft.speaks_fcgi => QmuxUse::Never,
        None if lists_http3(&draft.tls.words) => QmuxUse::Negotiated,
        None => QmuxUse::Never,
    }
}
