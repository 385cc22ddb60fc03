//! Servers that follow the state of another one (manual, 5.2 `track`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use diag::Diagnostic;
use plan::check::InitState;
use syntax::Word;

use crate::draft::Statement;
use crate::draft::server::ServerDraft;
use crate::resolve::{PendingProxy, ResolveContext, lines};

/// The backend and server that another server follows.
pub(crate) type Tracked = (Arc<state::Proxy>, Arc<state::Server>);

/// Resolves `track` to the backend and server that this one follows. Returns `None` if there is nothing to follow.
pub(crate) fn follow(
    own: &Arc<state::Server>,
    track: &Word,
    draft: &ServerDraft<'_>,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Result<Option<Tracked>, Diagnostic> {
    let (backend, name) = track.as_str().split_once('/').unwrap_or((proxy.settings.name, track));
    let own_name = format!("{}/{}", proxy.settings.name, own.name);
    let title = format!("server {own_name}");
    let line = lines::shown(context, statement.span);
    let wrong = |message: &str, haproxy: String| {
        let place = statement.keyword_span().to(track.span());
        Diagnostic::alert(message).at(place).haproxy_whole(format!("[{line}] : '{title}' : {haproxy}"))
    };
    // The servers of a disabled proxy follow nothing.
    if proxy.settings.disabled {
        return Ok(None);
    }
    let follower = proxy.state.clone();
    let Some(proxy) = context.names.backends.get(backend) else {
        return Err(Diagnostic::alert(format!("there is no backend `{backend}` with a server to track"))
            .at(track.span())
            .did_you_mean(diag::suggest(backend, context.names.backends.keys().map(|name| &**name)))
            .haproxy_whole(format!(
                "[{line}] : '{title}' : unable to find required proxy '{backend}' for tracking."
            )));
    };
    let Some(server) = proxy.server(name) else {
        if context.refused.contains(&format!("{backend}/{name}")) {
            return Ok(None);
        }
        return Err(Diagnostic::alert(format!("there is no server `{track}` to track"))
            .at(track.span())
            .haproxy_whole(format!(
                "[{line}] : '{title}' : unable to find required server '{name}' for tracking."
            )));
    };
    let followed = format!("{backend}/{name}");
    let mut chain = std::iter::successors(Some(&followed), |next| context.tracks.get(*next));
    // If the chain is longer than the number of tracking servers, it is a cycle, whether or not that includes this server.
    if chain.by_ref().take(context.tracks.len() + 1).any(|next| *next == own_name) {
        return Err(wrong(
            "a server cannot track itself, directly or indirectly",
            format!(
                "unable to track {followed} as it belongs to a tracking chain looping back to {followed}."
            ),
        ));
    }
    if draft.initial != InitState::None {
        return Err(wrong(
            "a server that tracks another cannot have its own `init-state`",
            "unable to set init-state and tracking at the same time!".to_owned(),
        ));
    }
    if draft.check {
        return Err(wrong(
            "a server that tracks another cannot have its own checks",
            "unable to enable checks and tracking at the same time!".to_owned(),
        ));
    }
    let is_checked = server.health.configured.load(Relaxed) || server.agent.is_configured();
    if !is_checked && !context.tracks.contains_key(&followed) {
        return Err(wrong(
            &format!("server `{followed}` has neither checks nor an agent to track"),
            format!("unable to use {followed} for tracking as it does not have any check nor agent enabled."),
        )
        .help(format!("add `check` to the line of server `{followed}`")));
    }
    server.referenced.store(true, Relaxed);
    own.track(&follower, proxy, &server);
    Ok(Some((proxy.clone(), server)))
}
