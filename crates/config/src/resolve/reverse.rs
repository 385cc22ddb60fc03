//! Reverse HTTP (`rhttp@`): listeners that open their own connections, and servers reached over connections opened by clients
//! (manual, 4.2 `bind` and 5.2 `server`).

use diag::{Diagnostic, Span};
use plan::bind::{BindAddress, ReverseTarget};
use state::Mode;
use state::server::ServerAddress;
use syntax::Word;

use crate::draft::bind::BindDraft;
use crate::draft::server::ServerDraft;
use crate::resolve::{PendingProxy, ResolveContext};

/// The prefix of reverse HTTP addresses.
const PREFIX: &str = "rhttp@";

/// Checks that experimental directives are allowed; `what` is a prefix of the message.
///
/// # Errors
/// The global section does not allow them.
pub(crate) fn experimental(
    what: &str,
    title: &str,
    span: Span,
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    context.names.experiments.set(true);
    if context.names.experimental || context.around.is_some() {
        return Ok(());
    }
    let text = format!(
        "{title}{what} is experimental, must be allowed via a global 'expose-experimental-directives'"
    );
    Err(Diagnostic::alert(format!("{what} is experimental"))
        .at(span)
        .help("add `expose-experimental-directives` to the global section to allow it")
        .haproxy(text))
}

/// The reverse HTTP listeners of a `bind` line, each with its address for display, or `None` for other lines.
///
/// # Errors
/// Reverse HTTP addresses are not allowed or are mixed with other addresses, or one names a server that connections
/// cannot be reversed with.
pub(crate) fn listeners(
    word: &Word,
    context: &ResolveContext<'_>,
) -> Result<Option<Vec<(BindAddress, String)>>, Diagnostic> {
    let parts: Vec<&str> = word.strip_suffix(',').unwrap_or(word).split(',').collect();
    let count = parts.iter().filter(|part| part.starts_with(PREFIX)).count();
    if count == 0 {
        return Ok(None);
    }
    if count < parts.len() {
        return Err(Diagnostic::alert("a line cannot mix reverse HTTP and other addresses")
            .at(word.span())
            .help("use a separate `bind` line for each kind of address")
            .haproxy("'bind' : Cannot mix reverse HTTP bind with others."));
    }
    experimental(&format!("Address '{word}'"), "'bind' : ", word.span(), context)?;
    let mut all = Vec::with_capacity(count);
    let mut offset = 0;
    for part in parts {
        let name = &part[PREFIX.len()..];
        let span = word.part(offset + PREFIX.len(), offset + part.len());
        all.push((BindAddress::Reverse(target(name, span, context)?), "rev".to_owned()));
        offset += part.len() + 1;
    }
    Ok(Some(all))
}

/// The server `backend/server`.
fn target(name: &str, span: Span, context: &ResolveContext<'_>) -> Result<ReverseTarget, Diagnostic> {
    let wrong = |text: String, haproxy: String| {
        Diagnostic::alert(text).at(span).haproxy(format!("protocol rev: {haproxy}."))
    };
    let Some((backend_name, server_name)) = name.split_once('/') else {
        return Err(wrong(
            format!("`{name}` is not a server name"),
            format!("Invalid server name: '{name}'"),
        )
        .help("use `rhttp@<backend>/<server>` to select the server to connect to"));
    };
    let backend = context.log.backends.get(backend_name).map(|(index, _)| *index);
    let (Some(backend), Some(state)) = (backend, context.names.backends.get(backend_name)) else {
        let known = context.names.backends.keys().map(|known| &**known);
        return Err(wrong(
            format!("there is no backend `{backend_name}`"),
            format!("No such backend: '{backend_name}'"),
        )
        .did_you_mean(diag::suggest(backend_name, known)));
    };
    let servers = state.servers.load();
    let found = servers.iter().enumerate().find(|(_, server)| *server.name == *server_name);
    let Some((place, server)) = found else {
        return Err(wrong(
            format!("backend `{backend_name}` has no server `{server_name}`"),
            format!("No such server: '{name}'"),
        ));
    };
    if **server.address.load() == ServerAddress::Reverse {
        return Err(wrong(
            format!("`{name}` is a reverse HTTP server, which has no address to connect to"),
            format!("Cannot use reverse HTTP server '{name}' as target to a reverse bind"),
        ));
    }
    if !context.reversible.contains(name) {
        return Err(wrong(
            format!("`{name}` is not guaranteed to use HTTP/2, which reverse HTTP requires"),
            format!(
                "Cannot reverse connect with server '{name}' unless HTTP/2 is activated on it with either proto or alpn keyword"
            ),
        )
        .help("add `proto h2`, or `ssl` with `alpn h2`, to its line"));
    }
    server.referenced.store(true, std::sync::atomic::Ordering::Relaxed);
    Ok(ReverseTarget { backend, server: place, connections: 1 })
}

/// Checks the rest of the line and sets how many connections the `addresses` keep open.
///
/// # Errors
/// A parameter is for listeners of the other kind.
pub(crate) fn finish(
    draft: &BindDraft<'_>,
    addresses: &mut [(BindAddress, String)],
    title: &str,
    section: &str,
    span: Span,
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let place = format!("'{title}' in section '{section}' : ");
    let targets = || addresses.iter().any(|(address, _)| matches!(address, BindAddress::Reverse(_)));
    let is_reverse = targets();
    if let Some((_, word)) = draft.nbconn {
        experimental("'nbconn'", &place, word.span(), context)?;
        if !is_reverse {
            return Err(Diagnostic::alert("`nbconn` is only for reverse HTTP listeners")
                .at(word.span())
                .help("their addresses start with `rhttp@`")
                .haproxy(format!("{place}'nbconn' : only valid for reverse HTTP listeners.")));
        }
    }
    if !is_reverse {
        return Ok(());
    }
    if draft.speaks_qmux.is_some() {
        return Err(Diagnostic::alert("a reverse HTTP listener uses HTTP/2, not `proto qmux`")
            .at(span)
            .help("remove `proto`")
            .haproxy("'proto' option is not accepted for reverse HTTP"));
    }
    if let Some(name) = draft.of_sockets {
        return Err(Diagnostic::alert(format!("`{name}` has no effect on a reverse HTTP listener"))
            .at(span)
            .help("its connections use the settings of the server line")
            .haproxy(format!("'{name}' option is not accepted for reverse HTTP")));
    }
    let placement = &context.placement;
    let workers = placement.select(&draft.threads);
    let spans_groups = workers.first().is_some_and(|first| {
        workers.iter().any(|worker| placement.group_of(*worker) != placement.group_of(*first))
    });
    if !draft.threads.is_empty() && spans_groups {
        return Err(Diagnostic::alert("a reverse HTTP listener cannot span several thread groups")
            .at(span)
            .help("use one `bind` line per group")
            .haproxy(format!("{place}'thread' : reverse HTTP bind cannot span multiple thread groups.")));
    }
    for (address, _) in addresses {
        if let (BindAddress::Reverse(target), Some((count, _))) = (address, draft.nbconn) {
            target.connections = count;
        }
    }
    Ok(())
}

/// Checks the line of a server that is reached over connections opened by clients.
///
/// # Errors
/// The line is not allowed there.
pub(crate) fn server(
    word: &Word,
    name: &str,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let backend = proxy.settings.name;
    experimental(
        &format!("Address '{word}'"),
        &format!("'server {backend}/{name}' : "),
        word.span(),
        context,
    )?;
    if proxy.settings.mode != Mode::Http && !proxy.settings.disabled {
        return Err(Diagnostic::alert("reverse HTTP requires a backend in HTTP mode")
            .at(word.span())
            .help("add `mode http` to the backend")
            .haproxy(format!(
                "backend '{backend}' : server {name} uses reverse HTTP addressing which can only be used with HTTP mode."
            )));
    }
    Ok(())
}

/// Whether connections to the line's server can be reversed: it must only use HTTP/2.
pub(crate) fn is_reversible(draft: &ServerDraft<'_>) -> bool {
    let tls = &draft.tls;
    let alone = tls.enabled && !tls.words.no_alpn && tls.words.alpn.is_some_and(|alpn| &*alpn == "h2");
    draft.speaks_h2 || alone
}
