//! `bind` and `server` lines for QUIC: their permitted parameters and their settings (manual, sections 5.1 and 5.2).

use std::sync::Arc;

use diag::{Diagnostic, Span};
use plan::Bind;
use plan::bind::BindAddress;
use plan::check::Protocol;
use plan::quic::{Congestion, QuicBind, QuicServer, QuicTune};
use plan::server::SendProxy;
use state::Mode;
use syntax::Word;
use tls::quic::PROTOCOLS;
use tls::{Certificate, CertificateEntry, EntryOptions, TLS13};

use crate::draft::Statement;
use crate::draft::bind::BindDraft;
use crate::draft::server::ServerDraft;
use crate::draft::tls::{TlsValue, TlsWords, Versions};
use crate::resolve::{PendingProxy, ResolveContext, reverse};

/// A `bind` line of a frontend.
pub(crate) struct QuicLine<'l, 'a> {
    pub(crate) draft: &'l mut BindDraft<'a>,
    /// The addresses, and the word with them.
    pub(crate) addresses: &'l [(BindAddress, String)],
    pub(crate) word: &'a Word,
    /// `bind :443`, for messages.
    pub(crate) title: &'l str,
}

/// Whether an address is for QUIC.
pub(crate) fn is_quic(address: &BindAddress) -> bool {
    matches!(address, BindAddress::Quic(_) | BindAddress::InheritedQuic(_))
}

/// The port of the first QUIC address among `binds`.
pub(crate) fn port(binds: &[Bind]) -> Option<u16> {
    binds.iter().find_map(|bind| match bind.address {
        BindAddress::Quic(address) => Some(address.port()),
        _ => None,
    })
}

/// Refuses QUIC addresses on lines that are not for HTTP clients.
pub(crate) fn refuse(addresses: &[(BindAddress, String)], word: &Word) -> Result<(), Diagnostic> {
    if !addresses.iter().any(|(address, _)| is_quic(address)) {
        return Ok(());
    }
    Err(Diagnostic::alert("QUIC is only supported on `bind` lines of HTTP frontends").at(word.span()))
}

/// Checks a `bind` line and completes its TLS parameters if it is for QUIC, or `None` if it is not.
///
/// # Errors
/// A parameter is for the other kind of sockets, or the frontend does not use HTTP.
pub(crate) fn settings(
    line: QuicLine<'_, '_>,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Option<QuicBind>, Diagnostic> {
    let QuicLine { draft, addresses, word, title } = line;
    let section = proxy.section.keyword.as_str();
    let wrong = |text: &str, haproxy: &str| {
        Diagnostic::alert(text)
            .at(word.span())
            .haproxy(format!("'{title}' in section '{section}' : {haproxy}."))
    };
    let count = addresses.iter().filter(|(address, _)| is_quic(address)).count();
    if count > 0 && count < addresses.len() {
        return Err(wrong(
            "a line cannot mix QUIC and other addresses",
            "cannot mix datagram and stream protocols",
        )
        .help("use a separate `bind` line for each kind of address"));
    }
    if count == 0 {
        if let Some(word) = draft.speaks_quic {
            return Err(wrong("`proto quic` requires a QUIC address", "'proto quic' needs a QUIC address")
                .at(word.span())
                .help("QUIC addresses start with `quic4@` or `quic6@`"));
        }
        if let Some(name) = draft.quic.first {
            let text = format!("`{name}` has no effect, because this socket is not for QUIC");
            context.diagnostics.push(Diagnostic::warning(text).at(word.span()).tolerated());
        }
        return Ok(None);
    }
    if proxy.settings.mode != Mode::Http && !proxy.settings.disabled {
        return Err(wrong("QUIC requires a frontend in HTTP mode", "QUIC is only usable with 'mode http'")
            .help("add `mode http` to the frontend"));
    }
    if draft.accept_proxy || draft.netscaler_magic.is_some() {
        let name = if draft.accept_proxy { "accept-proxy" } else { "accept-netscaler-cip" };
        return Err(wrong(
            &format!("`{name}` is not possible on a QUIC listener"),
            &format!("'{name}' is not supported by QUIC listeners"),
        ));
    }
    if draft.speaks_h2 || draft.http1_alone || draft.stays_raw || draft.speaks_qmux.is_some() {
        return Err(wrong(
            "a QUIC listener has no other protocol than `quic`",
            "'proto' needs a stream address",
        ));
    }
    if !draft.tls.enabled {
        context.diagnostics.push(
            Diagnostic::warning("QUIC always uses TLS")
                .at(word.span())
                .help("add `ssl` to the line")
                .haproxy(format!(
                    "'{title}' in section '{section}' : 'ssl' is missing on a QUIC listener and is enabled."
                )),
        );
    }
    draft.tls.enabled = true;
    complete_tls(&mut draft.tls.words, word.span(), ("clients", &PROTOCOLS), context);
    congestion(draft, context).map(Some)
}

/// Sets what QUIC requires of TLS (RFC 9001, 4.2 and 8.1); `peers` may use the `known` protocols.
fn complete_tls(
    words: &mut TlsWords<'_>,
    span: Span,
    (peers, known): (&str, &[&str]),
    context: &mut ResolveContext<'_>,
) {
    words.versions = Versions { only: Some(TLS13), ..Versions::default() };
    let alpn = words.alpn.get_or_insert(TlsValue { text: PROTOCOLS[0], span });
    for name in alpn.split(',').filter(|name| !known.contains(name)) {
        let text = format!("`alpn`: QUIC {peers} cannot use `{name}`");
        let known = format!("known protocols: {}", known.join(", "));
        context.diagnostics.push(Diagnostic::warning(text).at(alpn.span).help(known).tolerated());
    }
}

fn congestion(draft: &BindDraft<'_>, context: &mut ResolveContext<'_>) -> Result<QuicBind, Diagnostic> {
    let algorithm = draft.quic.congestion.map(|(algorithm, _)| algorithm).unwrap_or_default();
    if let (Congestion::None, Some((_, word))) = (algorithm, draft.quic.congestion) {
        reverse::experimental("'quic-cc-algo nocc'", "'bind' : ", word.span(), context)?;
    }
    let front = &context.global.tune.quic.front;
    Ok(QuicBind {
        congestion: algorithm,
        max_window: draft.quic.max_window.unwrap_or(front.max_window),
        force_retry: draft.quic.force_retry,
    })
}

/// Checks a `server` line and completes its TLS parameters if it is for QUIC.
///
/// # Errors
/// A parameter is not possible over QUIC, or the backend does not use HTTP.
pub(crate) fn fit_server(
    draft: &mut ServerDraft<'_>,
    name: &str,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let title = format!("server {}/{name}", proxy.settings.name);
    let at = statement.keyword_span();
    let wrong =
        |text: &str, haproxy: &str| Diagnostic::alert(text).at(at).haproxy(format!("'{title}' : {haproxy}."));
    if !draft.is_quic {
        if let Some(word) = draft.speaks_quic {
            return Err(wrong("`proto quic` requires a QUIC address", "'proto quic' needs a QUIC address")
                .at(word.span())
                .help("QUIC addresses start with `quic4@` or `quic6@`"));
        }
        if draft.check_protocol == Some(Protocol::Quic) {
            return Err(wrong(
                "`check-proto quic` requires a QUIC address",
                "'check-proto quic' needs a QUIC server",
            )
            .help("QUIC addresses start with `quic4@` or `quic6@`"));
        }
        if let Some(name) = draft.quic.first {
            let text = format!("`{name}` has no effect, because this server is not reached over QUIC");
            context.diagnostics.push(Diagnostic::warning(text).at(at).tolerated());
        }
        return Ok(());
    }
    // HAProxy requires `expose-experimental-directives`.
    context.names.experiments.set(true);
    if proxy.settings.mode != Mode::Http && !proxy.settings.disabled {
        return Err(wrong("QUIC requires a backend in HTTP mode", "QUIC is only usable with 'mode http'")
            .help("add `mode http` to the backend"));
    }
    let other = draft.speaks_h1 || draft.speaks_h2 || draft.speaks_fcgi || draft.speaks_spop;
    if other || draft.speaks_qmux.is_some() {
        return Err(wrong(
            "a QUIC server has no other protocol than `quic`",
            "'proto' needs a stream address",
        ));
    }
    let is_elsewhere = draft.checked_port().is_some() || draft.check_address.is_some();
    let is_usual = draft.check_protocol.is_none_or(|protocol| protocol == Protocol::Quic);
    let checks = draft.check && is_usual && !is_elsewhere;
    let refused = [
        (draft.send_proxy.resolved() != SendProxy::None, "send-proxy"),
        (draft.socks4.is_some(), "socks4"),
        (checks && draft.tls.check == Some(false), "no-check-ssl"),
        (checks && draft.check_send_proxy, "check-send-proxy"),
    ];
    if let Some((_, name)) = refused.iter().find(|(is_set, _)| *is_set) {
        return Err(wrong(
            &format!("`{name}` is not possible for a QUIC server"),
            &format!("'{name}' is not supported by QUIC servers"),
        ));
    }
    if !draft.tls.enabled {
        context.diagnostics.push(
            Diagnostic::warning("QUIC always uses TLS")
                .at(at)
                .help("add `ssl` to the line")
                .haproxy(format!("'{title}' : 'ssl' is missing on a QUIC server and is enabled.")),
        );
    }
    (draft.tls.enabled, draft.tls.is_set, draft.tls.refused) = (true, true, false);
    draft.tls.is_quic = true;
    complete_tls(&mut draft.tls.words, at, ("servers", &PROTOCOLS[..1]), context);
    if let Some((Congestion::None, word)) = draft.quic.congestion {
        reverse::experimental("'quic-cc-algo nocc'", "'server' : ", word.span(), context)?;
    }
    Ok(())
}

/// The QUIC settings of a server, or `None` if it is reached otherwise.
pub(crate) fn of_server(draft: &ServerDraft<'_>, tune: &QuicTune) -> Option<QuicServer> {
    draft.is_quic.then(|| QuicServer {
        congestion: draft.quic.congestion.map(|(algorithm, _)| algorithm).unwrap_or_default(),
        max_window: draft.quic.max_window.unwrap_or(tune.back.max_window),
    })
}

/// Warns about options of crt-list lines that QUIC cannot use.
pub(crate) fn warn_of_lines(
    entries: &[CertificateEntry],
    options: &Arc<EntryOptions>,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) {
    for entry in entries.iter().filter(|entry| !Arc::ptr_eq(&entry.options, options)) {
        let EntryOptions { parameters, alpn, .. } = &*entry.options;
        let name = &entry.certificate.name;
        let unknown = alpn.iter().map(|name| String::from_utf8_lossy(name));
        let unknown = unknown
            .filter(|name| !PROTOCOLS.contains(&&**name))
            .map(|name| format!("`alpn`: QUIC clients cannot use `{name}`, which the crt-list sets"));
        let version = (parameters.max < TLS13)
            .then(|| "`ssl-max-ver` of the crt-list has no effect: QUIC always uses TLS 1.3".to_owned());
        for text in unknown.chain(version) {
            let diagnostic = Diagnostic::warning(text).at(statement.keyword_span());
            let help = format!("the line of `{name}` can be in a separate crt-list for TCP");
            context.diagnostics.push(diagnostic.help(help).tolerated());
        }
    }
}

/// Checks that a certificate's key can be used over QUIC.
///
/// # Errors
/// Only OpenSSL can use it.
pub(crate) fn check_key(certificate: &Certificate, statement: &Statement) -> Result<(), Diagnostic> {
    if !certificate.key.needs_openssl() {
        return Ok(());
    }
    let name = &certificate.name;
    Err(Diagnostic::alert(format!("the kind or size of the key in `{name}` is not supported over QUIC"))
        .at(statement.keyword_span())
        .help("use an ECDSA key (P-256, P-384), an Ed25519 key, or an RSA key of 2048 to 8192 bits"))
}
