//! Server parameters that apply only in some proxy modes. In other modes they are refused or ignored, as in HAProxy.

use diag::Diagnostic;
use plan::server::{Observe, SendProxy};
use state::Mode;
use state::server::ServerAddress;

use crate::draft::Statement;
use crate::draft::server::{SendProxyWords, ServerDraft};
use crate::resolve::{PendingProxy, ResolveContext, qmux, quic};

/// Checks the parameters of a server against the mode of its proxy and removes those without effect.
pub(crate) fn fit(
    draft: &mut ServerDraft<'_>,
    server: &state::Server,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) {
    if let Err(error) = quic::fit_server(draft, &server.name, statement, proxy, context) {
        context.diagnostics.push(error);
    }
    if let Err(error) = qmux::fit_server(draft, server, statement, proxy, context) {
        context.diagnostics.push(error);
    }
    let settings = &proxy.settings;
    let (mode, backend, name) = (settings.mode, settings.name, &server.name);
    let mut say = |error: Diagnostic| context.diagnostics.push(error.at(statement.keyword_span()));
    if let Some((spoken, wanted)) = spoken(draft)
        && mode != wanted
        && !settings.disabled
    {
        let wanted = wanted.name();
        say(Diagnostic::alert(format!("`proto {spoken}` requires a backend in `mode {wanted}`"))
            .help(format!("add `mode {wanted}` to the backend"))
            .haproxy(format!(
                "proxy '{backend}' : MUX protocol '{spoken}' is not usable for server '{name}'"
            )));
    }
    if matches!(mode, Mode::Log | Mode::Spop) && draft.send_proxy.resolved() != SendProxy::None {
        draft.send_proxy = SendProxyWords::default();
        say(Diagnostic::warning(format!("`send-proxy` has no effect in `mode {}`", mode.name()))
            .help("there is no client connection to describe in a PROXY header; remove it")
            .haproxy("'send-proxy*' server option is unsupported there, ignoring it"));
    }
    if mode == Mode::Udp
        && !matches!(**server.address.load(), ServerAddress::Ip(_) | ServerAddress::Unresolved)
    {
        say(Diagnostic::alert(format!("server `{backend}/{name}` needs an IP address: it gets datagrams"))
            .help("use an address and a port, or a name and a port"));
    }
    if mode == Mode::Http || !settings.is_backend() || settings.disabled {
        return;
    }
    if draft.cookie.is_some() {
        say(Diagnostic::warning(format!(
            "`cookie` of server `{backend}/{name}` is ignored: it requires `mode http`"
        ))
        .haproxy_whole(format!(
            "backend '{backend}' : ignoring cookie for server '{name}' as HTTP mode is disabled."
        )));
    }
    if draft.redirect.is_some() {
        say(Diagnostic::alert(format!("`redir` of server `{backend}/{name}` requires `mode http`"))
            .help("only HTTP requests can be redirected")
            .haproxy_whole(format!(
                "backend '{backend}' : server cannot have cookie or redirect prefix in non-HTTP mode."
            )));
    }
    if draft.observe == Observe::Layer7 {
        draft.observe = Observe::None;
        say(Diagnostic::warning(format!(
            "`observe layer7` of server `{backend}/{name}` is ignored: it requires `mode http`"
        ))
        .help("use `observe layer4` to observe connections")
        .haproxy(format!("'server {backend}/{name}' : 'layer7' can only be used in http proxies..")));
    }
}

/// The configured protocol, and the mode it belongs to.
fn spoken(draft: &ServerDraft<'_>) -> Option<(&'static str, Mode)> {
    match draft {
        _ if draft.speaks_h1 => Some(("h1", Mode::Http)),
        _ if draft.speaks_fcgi => Some(("fcgi", Mode::Http)),
        _ if draft.speaks_h2 => Some(("h2", Mode::Http)),
        _ if draft.speaks_qmux.is_some() => Some(("qmux", Mode::Http)),
        _ if draft.speaks_spop => Some(("spop", Mode::Spop)),
        _ => None,
    }
}
