//! What stays of a server line besides its state: how it is reached, checked and tracked.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use diag::Diagnostic;
use sample::Place;
use sample::acl::Acls;
use sample::expression::Expression;
use sample::format::{Format, FormatFor};

use crate::draft::Statement;
use crate::keyword::Outcome;
use crate::plan::server::{AgentSettings, CheckKind, CheckSettings, SendProxy, ServerSettings};
use crate::resolve::rules::scope;
use crate::resolve::servers::MadeServer;
use crate::resolve::{Context, Pending};
use crate::server::ServerDraft;
use crate::settings::{CheckMode, Settings};

/// What the checks of a backend's servers ask.
pub(crate) fn check_kind(settings: &Settings<'_>) -> CheckKind {
    let check = &settings.check;
    match check.mode {
        CheckMode::Tcp => CheckKind::Tcp,
        CheckMode::Script if check.steps.is_empty() => CheckKind::Tcp,
        CheckMode::Script => CheckKind::Script(check.steps.clone()),
        CheckMode::Http => CheckKind::Http {
            method: check.method.unwrap_or("OPTIONS").into(),
            uri: check.uri.unwrap_or("/").into(),
            version: check.version.as_deref().unwrap_or("HTTP/1.0").into(),
            headers: check.headers.clone(),
            body: check.body.clone(),
            expect: check.expect.clone(),
        },
    }
}

/// Finishes the servers of a proxy, in order.
pub(crate) fn server_settings(
    proxy: &Pending<'_>,
    servers: Vec<MadeServer<'_>>,
    kind: &Arc<CheckKind>,
    acls: &Acls,
    context: &mut Context<'_>,
) -> Vec<Arc<ServerSettings>> {
    let mut settings = Vec::with_capacity(servers.len());
    for (index, server) in servers.into_iter().enumerate() {
        let MadeServer { statement, draft, state, port_offset } = server;
        let mut own = ServerSettings {
            index,
            port_offset,
            cookie: draft.cookie.map(Into::into),
            redirect: draft.redirect.map(Into::into),
            send_proxy: draft.send_proxy,
            source: draft
                .source
                .as_ref()
                .or(proxy.settings.source.as_ref())
                .map(|source| source.as_ref().clone()),
            namespace: draft.namespace.map(Into::into),
            tcp_ut: draft.tcp_ut,
            tfo: draft.tfo,
            md5sig: draft.md5sig.map(Into::into),
            congestion: draft.congestion.map(Into::into),
            shutdown_sessions_when_down: draft.shutdown_sessions_when_down,
            shutdown_backups_when_up: draft.shutdown_backups_when_up,
            pool_max_conn: draft.pool_max_conn,
            pool_low_conn: draft.pool_low_conn,
            pool_purge_delay: draft.pool_purge_delay,
            pool_conn_name: None,
            max_reuse: draft.max_reuse,
            proxy_v2_tlvs: Vec::new(),
            non_stick: draft.non_stick,
            slow_start: draft.slow_start,
            socks4: draft.socks4,
            check: draft.check.then(|| check_settings(&draft, &proxy.settings, kind)),
            agent: agent_settings(&draft, &proxy.settings),
            track: None,
            observe: draft.observe,
            error_limit: draft.error_limit,
            on_error: draft.on_error,
            tos: draft.tos,
            hash_key: draft.hash_key,
            guid: draft.guid.map(Into::into),
            strict_maxconn: draft.strict_maxconn,
            state,
        };
        let outcome = finish_server(&mut own, &draft, statement, proxy, acls, context);
        context.note(outcome);
        settings.push(Arc::new(own));
    }
    settings
}

/// The agent's settings; that it has a port is seen to where the server is finished.
fn agent_settings(draft: &ServerDraft<'_>, settings: &Settings<'_>) -> Option<AgentSettings> {
    let port = draft.agent_port.filter(|_| draft.agent)?;
    Some(AgentSettings {
        address: draft.agent_address,
        port,
        inter: draft.agent_inter,
        send: draft.agent_send.clone(),
        timeout: settings.timeouts.check,
        connect_timeout: settings.timeouts.connect,
    })
}

fn check_settings(draft: &ServerDraft<'_>, settings: &Settings<'_>, kind: &Arc<CheckKind>) -> CheckSettings {
    // A check of another port tells its own PROXY header apart; one of the same port follows the server's.
    let elsewhere = draft.check_port.is_some() || draft.check_address.is_some();
    let sends_proxy = draft.send_proxy != SendProxy::None;
    CheckSettings {
        inter: draft.inter,
        fastinter: draft.fastinter,
        downinter: draft.downinter,
        rise: draft.rise,
        fall: draft.fall,
        address: draft.check_address,
        port: draft.check_port,
        send_proxy: draft.check_send_proxy || (sends_proxy && !elsewhere),
        timeout: settings.timeouts.check,
        connect_timeout: settings.timeouts.connect,
        kind: kind.clone(),
        log: settings.options.log_health_checks,
        disable_on_404: settings.check.disable_on_404,
        send_state: settings.check.send_state,
        initially_up: draft.initially_up,
    }
}

fn finish_server(
    own: &mut ServerSettings,
    draft: &ServerDraft<'_>,
    statement: &Statement,
    proxy: &Pending<'_>,
    acls: &Acls,
    context: &Context<'_>,
) -> Outcome {
    let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::BackendRequest);
    if let Some(word) = draft.pool_conn_name {
        own.pool_conn_name = Some(Expression::compile_str(word, word.span(), &scope)?);
    }
    for (id, word) in &draft.tlvs {
        own.proxy_v2_tlvs.push((*id, Format::compile(word, word.span(), &scope, FormatFor::Text)?));
    }
    if draft.agent && draft.agent_port.is_none() {
        let title = format!("server {}/{}", proxy.settings.name, own.state.name);
        return Err(Diagnostic::alert("`agent-check` needs the port of the agent, `agent-port`")
            .at(statement.keyword_span())
            .haproxy(format!(
                "'{title}' : 'agent-check' : 'agent-port' is required, as no port is specified for the agent."
            )));
    }
    let Some(track) = draft.track else { return Ok(()) };
    let (backend, name) = track.as_str().split_once('/').unwrap_or((proxy.settings.name, track));
    let found = context
        .names
        .backends
        .get(backend)
        .and_then(|backend| Some((backend.clone(), backend.server(name)?)));
    let title = format!("server {}/{}", proxy.settings.name, own.state.name);
    let Some((backend, server)) = found else {
        if context.refused.contains(&format!("{backend}/{name}")) {
            return Ok(());
        }
        return Err(Diagnostic::alert(format!("there is no server `{track}` to track"))
            .at(track.span())
            .haproxy(format!(
                "'{title}' : unable to find required proxy or server '{track}' for tracking."
            )));
    };
    if Arc::ptr_eq(&server, &own.state) {
        return Err(Diagnostic::alert("a server cannot track itself")
            .at(track.span())
            .haproxy(format!("'{title}' : unable to track itself.")));
    }
    if draft.check {
        return Err(Diagnostic::alert("a server that tracks another cannot be checked itself")
            .at(statement.keyword_span().to(track.span()))
            .haproxy(format!(
                "'{title}' : unable to use {backend}/{name} for tracking: tracking disabled.",
                backend = backend.name
            )));
    }
    // A chain of servers that follow each other stays whole.
    server.referenced.store(true, Relaxed);
    own.state.referenced.store(true, Relaxed);
    own.track = Some((backend, server));
    Ok(())
}
