//! What stays of a server line besides its state: how it is reached, checked and tracked.

use std::collections::HashMap;
use std::sync::Arc;

use diag::Diagnostic;
use plan::check::{AgentSettings, CheckAction, CheckKind, CheckSettings, Connect, Family, Protocol};
use plan::log::LogServer;
use plan::resolvers::Resolution;
use plan::ring::{RingPeer, RingServer};
use plan::server::{SendProxy, ServerSettings};
use sample::Acls;
use sample::Place;
use sample::expression::Expression;
use sample::format::{Format, FormatFor};
use state::server::{Secured, ServerAddress};
use state::{Mode, Ring};

use crate::draft::check::CheckMode;
use crate::draft::row::Outcome;
use crate::draft::server::ServerDraft;
use crate::draft::settings::ProxySettings;
use crate::draft::{SectionKind, Statement};
use crate::resolve::advice;
use crate::resolve::check::{Sources, check_kind};
use crate::resolve::rules::scope;
use crate::resolve::servers::MadeServer;
use crate::resolve::{PendingProxy, ResolveContext, carry_over, server_modes, tls, track};

/// Finishes the servers of a proxy, in order; and what the checks of servers added later are,
/// unless a connection is all.
pub(crate) fn server_settings(
    proxy: &PendingProxy<'_>,
    servers: Vec<MadeServer<'_>>,
    acls: &Acls,
    sources: &mut Sources<'_, '_>,
    context: &mut ResolveContext<'_>,
) -> (Vec<Arc<ServerSettings>>, Option<Arc<CheckKind>>) {
    let mut settings = Vec::with_capacity(servers.len());
    let mut kinds = Kinds::default();
    advice::servers(proxy, &servers, context);
    for (index, server) in servers.into_iter().enumerate() {
        let MadeServer { statement, mut draft, state, is_datagram, print } = server;
        server_modes::fit(&mut draft, &state, statement, proxy, context);
        let mut own = ServerSettings {
            index,
            cookie: draft.cookie.map(Into::into),
            redirect: draft.redirect.map(Into::into),
            send_proxy: draft.send_proxy.resolved(),
            source: draft
                .source
                .as_ref()
                .or(proxy.settings.source.as_ref())
                .map(|source| source.as_ref().clone()),
            namespace: draft.namespace.map(Into::into),
            tcp_ut: draft.tcp_ut,
            is_reverse: **state.address.load() == ServerAddress::Reverse,
            speaks_h2: draft.speaks_h2,
            speaks_fcgi: draft.speaks_fcgi,
            ws: draft.tls.ws,
            idle_ping: draft.idle_ping,
            tfo: draft.tfo,
            md5sig: draft.md5sig.map(Into::into),
            congestion: draft.congestion.map(Into::into),
            shutdown_sessions_when_down: draft.shutdown_sessions_when_down,
            shutdown_backups_when_up: draft.shutdown_backups_when_up,
            non_stick: draft.non_stick,
            pool_max_conn: draft.pool_max_conn,
            pool_low_conn: draft.pool_low_conn,
            pool_purge_delay: draft.pool_purge_delay,
            pool_conn_name: None,
            max_reuse: draft.max_reuse,
            proxy_v2_tlvs: Vec::new(),
            slow_start: draft.slow_start,
            socks4: draft.socks4,
            check: None,
            agent: agent_settings(&draft, &proxy.settings),
            track: None,
            observe: draft.observe,
            error_limit: draft.error_limit,
            on_error: draft.on_error,
            tos: draft.tos,
            hash_key: draft.hash_key,
            guid: draft.guid.map(|word| word.as_str().into()),
            strict_maxconn: draft.strict_maxconn,
            shard: draft.shard,
            resolution: None,
            tls: None,
            added: None,
            print,
            log: log_server(&draft, is_datagram, &state, proxy, context),
            state,
        };
        // A section that does not exist is an error, whether the server is checked or not.
        if draft.check || draft.healthcheck.is_some() {
            match kinds.of(&own.state.name, &draft, proxy, acls, sources, context) {
                Ok(_) if !draft.check => {}
                Ok(kind) => {
                    if !proxy.settings.disabled && !has_port(&state_port(&own), &draft, &kind) {
                        context.diagnostics.push(no_port(&own, &kind, statement, proxy));
                    }
                    if let Some(error) = misfit(&own, &draft, &kind, statement, proxy) {
                        context.diagnostics.push(error);
                    }
                    let never_local = context.global.pp2_never_send_local;
                    own.check =
                        Some(check_settings(&draft, &proxy.settings, never_local, kind, own.is_reverse));
                }
                Err(error) => context.diagnostics.push(error),
            }
        }
        let retry_on = proxy.settings.retry_on.as_deref();
        if draft.tfo && !retry_on.is_some_and(|on| on.empty_response && on.response_timeout) {
            warn_of_fast_open(&own, statement, proxy, context);
        }
        match tls::server(
            &draft.tls,
            (draft.checked_port().is_some() || draft.check_address.is_some(), own.check.as_ref()),
            statement,
            context,
        ) {
            Ok(made) => {
                if draft.tls.said {
                    own.state.set_secured(if draft.tls.enabled { Secured::On } else { Secured::NotYet });
                } else if draft.tls.refused {
                    own.state.set_secured(Secured::Refused);
                }
                own.tls = made;
                if !draft.tls.no_check_sni_auto {
                    check_name(&mut own);
                }
            }
            // Nobody connects for a proxy that is disabled.
            Err(_) if proxy.settings.disabled => {}
            Err(error) => context.diagnostics.push(error),
        }
        let outcome = finish_server(&mut own, &draft, statement, proxy, acls, context);
        context.note(outcome);
        let own = Arc::new(own);
        feed(&own, &draft, proxy, context);
        settings.push(own);
    }
    let check = &proxy.settings.check;
    if kinds.own.is_none() && check.mode != CheckMode::Connect && proxy.settings.is_backend() {
        kinds.own = Some(check_kind(check, proxy, acls, &mut sources.shared, context));
    }
    (settings, kinds.own)
}

/// The name that checks of HTTP send in TLS where none is said: the host of their request, unless a
/// line says how to connect, or the host is known only when it is sent (`check-sni-auto`).
fn check_name(own: &mut ServerSettings) {
    let (Some(tls), Some(check)) = (&mut own.tls, &own.check) else { return };
    let CheckKind::Script(script) = &*check.kind else { return };
    let connects =
        |action: &CheckAction| matches!(action, CheckAction::Connect(Connect { implied: false, .. }));
    if tls.check_name.is_some() || script.steps.iter().any(|step| connects(&step.action)) {
        return;
    }
    let host = script.steps.iter().find_map(|step| match &step.action {
        CheckAction::Request(request) => {
            let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"))?;
            str::from_utf8(host.1.as_constant()?).ok()
        }
        _ => None,
    });
    let name = host.map(|host| host.split(':').next().unwrap_or(host)).filter(|name| !name.is_empty());
    tls.check_name = name.map(Box::from);
}

/// The port of a server that is known by its address alone; `None` where the port may come with a
/// name, or does not matter.
fn state_port(own: &ServerSettings) -> Option<u16> {
    match &**own.state.address.load() {
        // Without an address of its own it is where the client wanted to go.
        ServerAddress::Ip(address) if address.ip().is_unspecified() => None,
        ServerAddress::Ip(address) if own.state.fqdn.load().is_none() => Some(address.port()),
        _ => None,
    }
}

/// Whether a check knows which port it asks.
fn has_port(own: &Option<u16>, draft: &ServerDraft<'_>, kind: &CheckKind) -> bool {
    let CheckKind::Script(script) = kind else { return true };
    if *own != Some(0) || draft.checked_port().is_some() {
        return true;
    }
    let mut connects = script.steps.iter().filter_map(|step| match &step.action {
        CheckAction::Connect(connect) => Some(connect),
        _ => None,
    });
    let says =
        |connect: &Connect| connect.port.is_some() || connect.address.is_some_and(|(_, port)| port.is_some());
    connects.next().is_some_and(says) && connects.all(says)
}

fn no_port(
    own: &ServerSettings,
    kind: &CheckKind,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
) -> Diagnostic {
    let (name, backend) = (&own.state.name, proxy.settings.name);
    let plain = matches!(kind, CheckKind::Script(script) if script.family == Family::Connect);
    let tail = if plain { "" } else { " nor tcp_check rule 'connect' with port information" };
    Diagnostic::alert(format!("server `{name}` is checked, but no port is known"))
        .at(statement.keyword_span())
        .help("give the server a port, or the check one with `port`")
        .haproxy_whole(format!(
            "config: {} '{backend}': server '{name}' has neither service port nor check port{tail}.",
            proxy.settings.kind_name()
        ))
}

/// What is sent with the SYN is lost where the server does not take it so.
fn warn_of_fast_open(
    own: &ServerSettings,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) {
    let title = format!("server {}/{}", proxy.settings.name, own.state.name);
    context.diagnostics.push(
        Diagnostic::warning(format!("`tfo` of `{title}` needs retries for when the first data are lost"))
            .at(statement.keyword_span())
            .help("`retry-on conn-failure empty-response response-timeout`")
            .haproxy(format!(
                "'{title}' : server has tfo activated, the backend should be configured with at least 'conn-failure', \
                 'empty-response' and 'response-timeout' or we wouldn't be able to retry the connection on failure."
            )),
    );
}

/// How a server of a log backend gets its lines; and a word about parameters that only such servers
/// have.
fn log_server(
    draft: &ServerDraft<'_>,
    is_datagram: bool,
    state: &state::Server,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<LogServer> {
    let is_log = proxy.settings.mode == Mode::Log;
    if !is_log && (draft.log_proto.is_some() || draft.log_bufsize.is_some()) {
        let name = if draft.log_proto.is_some() { "log-proto" } else { "log-bufsize" };
        context.diagnostics.push(
            Diagnostic::advice(format!(
                "`{name}` of server `{}` has no effect: its proxy is not in `mode log`",
                state.name
            ))
            .at(proxy.section.name.span()),
        );
    }
    if !is_log || proxy.settings.kind == SectionKind::Ring {
        return None;
    }
    if is_datagram {
        return Some(LogServer::Datagram);
    }
    let size = draft.log_bufsize.unwrap_or(context.global.tune.bufsize);
    let title = format!("{}/{}", proxy.settings.name, state.name);
    let ring = Ring::new(&title, &format!("messages for server {title}"), size, size);
    Some(LogServer::Ring(carry_over::ring(ring, context.previous)))
}

/// Says which ring is sent to this server, if one is.
fn feed(
    own: &Arc<ServerSettings>,
    draft: &ServerDraft<'_>,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) {
    let ring = match &own.log {
        Some(LogServer::Ring(ring)) => {
            context.log.all_rings.push(ring.clone());
            ring.clone()
        }
        _ => match context.log.rings.get(proxy.settings.name) {
            Some(settings) if proxy.settings.kind == SectionKind::Ring => settings.ring.clone(),
            _ => return,
        },
    };
    context.log.servers.push(RingServer {
        ring,
        peer: RingPeer::Server(own.clone()),
        proto: draft.log_proto.unwrap_or_default(),
        connect_timeout: proxy.settings.timeouts.connect,
        server_timeout: proxy.settings.timeouts.server,
    });
}

/// The checks of a backend compiled so far: its own, and those of `healthcheck` sections.
#[derive(Default)]
struct Kinds<'a> {
    own: Option<Arc<CheckKind>>,
    named: HashMap<&'a str, Arc<CheckKind>>,
}

impl<'a> Kinds<'a> {
    fn of(
        &mut self,
        name: &str,
        draft: &ServerDraft<'a>,
        proxy: &PendingProxy<'_>,
        acls: &Acls,
        sources: &mut Sources<'_, '_>,
        context: &mut ResolveContext<'_>,
    ) -> Result<Arc<CheckKind>, Diagnostic> {
        let Some(word) = draft.healthcheck else {
            let own = self.own.get_or_insert_with(|| {
                check_kind(&proxy.settings.check, proxy, acls, &mut sources.shared, context)
            });
            return Ok(own.clone());
        };
        if let Some(kind) = self.named.get(word.as_str()) {
            return Ok(kind.clone());
        }
        let Some((check, _)) = sources.healthchecks.get(word.as_str()) else {
            return Err(Diagnostic::alert(format!("there is no healthcheck section `{word}`"))
                .at(word.span())
                .did_you_mean(diag::suggest(word, sources.healthchecks.keys().copied()))
                .haproxy(format!("healthcheck section '{word}' not found for server '{name}'.")));
        };
        let kind = check_kind(check, proxy, acls, &mut sources.shared, context);
        self.named.insert(word.as_str(), kind.clone());
        Ok(kind)
    }
}

/// The agent's settings; that it has a port is seen to where the server is finished.
fn agent_settings(draft: &ServerDraft<'_>, settings: &ProxySettings<'_>) -> Option<AgentSettings> {
    draft.agent_port.or(draft.check_port).filter(|_| draft.agent)?;
    Some(AgentSettings {
        inter: draft.agent_inter,
        timeout: settings.timeouts.check,
        connect_timeout: settings.timeouts.connect,
    })
}

/// A protocol that a check of this kind cannot be spoken in.
fn misfit(
    own: &ServerSettings,
    draft: &ServerDraft<'_>,
    kind: &CheckKind,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
) -> Option<Diagnostic> {
    let protocol = draft.check_protocol?;
    let (is_http, is_grpc, is_spop) = match kind {
        CheckKind::Script(script) => (script.family == Family::Http, script.is_grpc(), script.is_spop()),
        CheckKind::External { .. } => (false, false, false),
    };
    let fits = match protocol {
        Protocol::Spop => is_spop,
        _ if is_grpc => protocol == Protocol::Http2,
        _ => is_http == protocol.is_http(),
    };
    if fits {
        return None;
    }
    let (name, backend) = (&own.state.name, proxy.settings.name);
    let told = format!(
        "backend '{backend}': server '{name}' uses an incompatible MUX protocol for the selected check type"
    );
    let (text, help) = if is_grpc {
        (
            "`check-proto` names another protocol than the one that gRPC is spoken over",
            "leave it out, or name `h2`",
        )
    } else if is_spop || protocol == Protocol::Spop {
        ("`check-proto spop` and `option spop-check` go together", "leave `check-proto` out")
    } else if is_http {
        ("`check-proto` names no protocol of HTTP, and the check is one of HTTP", "`h1` and `h2` are such")
    } else {
        ("`check-proto` names a protocol of HTTP, and the check is none", "`option httpchk` makes it one")
    };
    Some(Diagnostic::alert(text).at(statement.keyword_span()).help(help).haproxy(told))
}

fn check_settings(
    draft: &ServerDraft<'_>,
    settings: &ProxySettings<'_>,
    never_local: bool,
    kind: Arc<CheckKind>,
    is_reverse: bool,
) -> CheckSettings {
    // A check of another port tells its own PROXY header apart; one of the same port follows the
    // server's.
    let elsewhere = draft.checked_port().is_some() || draft.check_address.is_some();
    let sends_proxy = draft.send_proxy.resolved() != SendProxy::None;
    CheckSettings {
        inter: draft.inter,
        fastinter: draft.fastinter,
        downinter: draft.downinter,
        rise: draft.rise,
        fall: draft.fall,
        send_proxy: draft.check_send_proxy || (sends_proxy && !elsewhere),
        never_local,
        socks4: draft.socks4.filter(|_| draft.check_via_socks4),
        // What a check alone is told of its connection makes it another than those of requests.
        reuse: ((draft.check_reuse_pool || is_reverse)
            && !elsewhere
            && !draft.check_via_socks4
            && draft.check_protocol.is_none())
        .then(|| draft.check_pool_conn_name.unwrap_or_default().into()),
        protocol: draft.check_protocol.or(if draft.speaks_fcgi {
            Some(Protocol::FastCgi)
        } else {
            draft.speaks_h2.then_some(Protocol::Http2)
        }),
        timeout: settings.timeouts.check,
        connect_timeout: settings.timeouts.connect,
        kind,
        log: settings.options.log_health_checks,
        initial: draft.initial,
    }
}

/// `resolvers` and its kin.
fn resolution(
    own: &ServerSettings,
    draft: &ServerDraft<'_>,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Result<Option<Resolution>, Diagnostic> {
    // Nobody looks anything up for a proxy that is disabled.
    let Some(word) = draft.resolvers.filter(|_| !proxy.settings.disabled) else { return Ok(None) };
    let known = &context.names.resolvers;
    let Some(resolvers) = known.iter().find(|one| *one.state.name == **word) else {
        let (backend, name) = (proxy.settings.name, &own.state.name);
        return Err(Diagnostic::alert(format!("there is no resolvers section `{word}`"))
            .at(word.span())
            .did_you_mean(diag::suggest(word, known.iter().map(|one| &*one.state.name)))
            .haproxy_whole(format!(
                "{} '{backend}', server '{name}': unable to find required resolvers '{word}'",
                proxy.settings.kind_name()
            )));
    };
    Ok(Some(Resolution { resolvers: resolvers.clone(), wishes: draft.resolve.clone() }))
}

fn finish_server(
    own: &mut ServerSettings,
    draft: &ServerDraft<'_>,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &ResolveContext<'_>,
) -> Outcome {
    own.resolution = resolution(own, draft, proxy, context)?;
    let mode = proxy.settings.mode;
    let scope = match context.around {
        Some(around) => around.scope(proxy.settings.name, mode, Place::BackendRequest),
        None => scope(context, acls, Some(&proxy.state), mode, Place::BackendRequest),
    };
    if let Some(word) = draft.pool_conn_name {
        own.pool_conn_name = Some(Expression::compile_str(word, word.span(), &scope)?);
    }
    for (id, word) in &draft.tlvs {
        own.proxy_v2_tlvs.push((*id, Format::compile(word, word.span(), &scope, FormatFor::Text)?));
    }
    if let Some(tls) = &mut own.tls {
        tls.name = tls::server_name(&draft.tls, mode, &scope, statement)?;
    }
    if let Some(around) = context.around {
        around.suffices(statement.keyword_span())?;
    }
    if draft.agent && draft.agent_port.or(draft.check_port).is_none() {
        let title = format!("server {}/{}", proxy.settings.name, own.state.name);
        return Err(Diagnostic::alert("`agent-check` needs the port of the agent, `agent-port` or `port`")
            .at(statement.keyword_span())
            .haproxy(format!(
                "'{title}' : 'agent-check' : 'agent-port' is required, as no port is specified for the agent."
            )));
    }
    match draft.track {
        Some(word) => track::follow(own, word, draft, statement, proxy, context),
        None => Ok(()),
    }
}
