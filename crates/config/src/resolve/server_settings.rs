//! The settings of a server line: how the server is reached, checked and tracked. Its state was created before.

use std::collections::HashMap;
use std::sync::Arc;

use base::raw::bytes_of;
use diag::Diagnostic;
use plan::check::{AgentSettings, CheckAction, CheckKind, CheckSettings, Connect, Family, Protocol};
use plan::log::LogServer;
use plan::quic::QuicServer;
use plan::resolvers::Resolution;
use plan::ring::{RingPeer, RingServer};
use plan::server::{SendProxy, ServerOptions, ServerSettings, ServerTls};
use sample::Acls;
use sample::Place;
use sample::expression::Expression;
use sample::format::{Format, FormatFor};
use state::server::{Secured, ServerAddress};
use state::table::Table;
use state::{Mode, Ring};
use syntax::Word;

use crate::draft::check::CheckMode;
use crate::draft::server::ServerDraft;
use crate::draft::settings::ProxySettings;
use crate::draft::{SectionKind, Statement};
use crate::resolve::advice;
use crate::resolve::check::{Sources, check_kind};
use crate::resolve::rules::scope;
use crate::resolve::servers::MadeServer;
use crate::resolve::tables::fleet_limit;
use crate::resolve::track::Tracked;
use crate::resolve::{PendingProxy, ResolveContext, carry_over, qmux, quic, server_modes, tls_server, track};

/// Resolves the servers of a proxy, in order. Also returns the check for servers added at run time, unless that is a plain connect
/// check.
pub(crate) fn server_settings<'a>(
    proxy: &PendingProxy<'a>,
    servers: Vec<MadeServer<'a>>,
    acls: &Acls,
    sources: &mut Sources<'_, 'a>,
    context: &mut ResolveContext<'_>,
) -> (Vec<Arc<ServerSettings>>, Option<Arc<CheckKind>>) {
    // The prototypes of discovered servers follow the servers.
    let own = servers.iter().take_while(|server| server.discovered.is_none()).count();
    advice::servers(proxy, &servers[..own], context);
    let mut settings = Vec::with_capacity(servers.len());
    let mut checks = Checks { proxy, acls, sources, own: None, named: HashMap::new() };
    for (index, mut server) in servers.into_iter().enumerate() {
        let MadeServer { statement, draft, state, is_datagram, .. } = &mut server;
        server_modes::fit(draft, state, statement, proxy, context);
        let line = Line { draft, state, statement, proxy, acls };
        let log = log_server(draft, *is_datagram, state, proxy, context);
        let check = line.check(&mut checks, context);
        line.warn_of_fast_open(context);
        let mut tls = line.tls(check.as_ref(), context);
        let named = line.named(tls.as_mut(), context).unwrap_or_else(|error| {
            context.diagnostics.push(error);
            Named::default()
        });
        let quic = quic::of_server(&server.draft, &context.global.tune.quic);
        let parts = ServerParts { log, check, tls, quic, named };
        let own = Arc::new(assemble(index, &server, proxy, parts));
        feed(&own, &server.draft, proxy, context);
        fleet_limit::check_server(&own, &server.draft, server.discovered.is_some(), context);
        settings.push(own);
    }
    let check = &proxy.settings.check;
    if checks.own.is_none() && check.mode != CheckMode::Connect && proxy.settings.is_backend() {
        checks.own = Some(check_kind(check, proxy, acls, &mut checks.sources.shared, context));
    }
    (settings, checks.own)
}

/// A server line and its surroundings.
struct Line<'l, 'a> {
    draft: &'l ServerDraft<'a>,
    state: &'l Arc<state::Server>,
    statement: &'a Statement,
    proxy: &'l PendingProxy<'a>,
    acls: &'l Acls,
}

/// The settings of a server that depend on more than its draft.
struct ServerParts {
    log: Option<LogServer>,
    check: Option<CheckSettings>,
    tls: Option<ServerTls>,
    quic: Option<QuicServer>,
    named: Named,
}

/// The settings that name other sections or contain expressions.
#[derive(Default)]
struct Named {
    resolution: Option<Resolution>,
    pool_conn_name: Option<Expression>,
    proxy_v2_tlvs: Vec<(u8, Format)>,
    track: Option<Tracked>,
    fleet: Option<Arc<Table>>,
}

fn assemble(
    index: usize,
    server: &MadeServer<'_>,
    proxy: &PendingProxy<'_>,
    parts: ServerParts,
) -> ServerSettings {
    let MadeServer { draft, state, print, .. } = server;
    let ServerParts { log, check, tls, quic, named } = parts;
    let source = draft.source.as_ref().or(proxy.settings.source.as_ref());
    let options = ServerOptions {
        cookie: draft.cookie.map(|value| bytes_of(value).into()),
        redirect: draft.redirect.map(|prefix| bytes_of(prefix).into()),
        send_proxy: draft.send_proxy.resolved(),
        source: source.map(|source| Arc::new(source.as_ref().clone())),
        namespace: draft.namespace.map(Into::into),
        tcp_ut: draft.tcp_ut,
        is_reverse: is_reverse(state),
        speaks_h2: draft.speaks_h2,
        qmux: qmux::of_server(draft),
        speaks_fcgi: draft.speaks_fcgi,
        quic,
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
        pool_conn_name: named.pool_conn_name.map(Arc::new),
        max_reuse: draft.max_reuse,
        proxy_v2_tlvs: named.proxy_v2_tlvs.into(),
        slow_start: draft.slow_start,
        socks4: draft.socks4,
        check: check.map(Arc::new),
        agent: agent_settings(draft, &proxy.settings),
        track: named.track,
        observe: draft.observe,
        error_limit: draft.error_limit,
        on_error: draft.on_error,
        tos: draft.tos,
        hash_key: draft.hash_key,
        guid: draft.guid.map(|word| word.as_str().into()),
        fleet: named.fleet,
        strict_maxconn: draft.strict_maxconn,
        shard: draft.shard,
        resolution: named.resolution,
        tls: tls.map(Arc::new),
        print: *print,
        log,
    };
    let options = Arc::new(options);
    ServerSettings { index, state: state.clone(), options, discovered: None, added: None }
}

fn is_reverse(state: &state::Server) -> bool {
    **state.address.load() == ServerAddress::Reverse
}

impl<'a> Line<'_, 'a> {
    /// The check, if the server has one.
    fn check(
        &self,
        checks: &mut Checks<'_, '_, 'a>,
        context: &mut ResolveContext<'_>,
    ) -> Option<CheckSettings> {
        let draft = self.draft;
        // A missing section is an error even if the server is not checked.
        if !draft.check && draft.healthcheck.is_none() {
            return None;
        }
        let kind = match checks.kind(&self.state.name, draft, context) {
            Ok(kind) => kind,
            Err(error) => {
                context.diagnostics.push(error);
                return None;
            }
        };
        if !draft.check {
            return None;
        }
        if !self.proxy.settings.disabled && !self.has_port(&kind) {
            context.diagnostics.push(self.no_port(&kind));
        }
        if let Some(error) = self.misfit(&kind) {
            context.diagnostics.push(error);
        }
        Some(self.check_settings(kind, context.global.pp2_never_send_local))
    }

    /// TLS to the server and its checks.
    fn tls(&self, check: Option<&CheckSettings>, context: &mut ResolveContext<'_>) -> Option<ServerTls> {
        let draft = &self.draft.tls;
        let checks_elsewhere = self.draft.checked_port().is_some() || self.draft.check_address.is_some();
        match tls_server::server(draft, checks_elsewhere, check, self.statement, context) {
            Ok(mut made) => {
                if draft.is_quic {
                    self.state.set_secured(Secured::Always);
                } else if draft.is_set {
                    self.state.set_secured(if draft.enabled { Secured::On } else { Secured::NotYet });
                } else if draft.refused {
                    self.state.set_secured(Secured::Refused);
                }
                if !draft.no_check_sni_auto
                    && let (Some(tls), Some(check)) = (&mut made, check)
                {
                    check_name(tls, check);
                }
                made
            }
            // A disabled proxy makes no connections.
            Err(_) if self.proxy.settings.disabled => None,
            Err(error) => {
                context.diagnostics.push(error);
                None
            }
        }
    }

    /// The port of the server's address, or `None` if a lookup may provide it, or if it does not matter.
    fn port(&self) -> Option<u16> {
        match &**self.state.address.load() {
            // The address is replaced by the client's destination.
            ServerAddress::Ip(address) if address.ip().is_unspecified() => None,
            ServerAddress::Ip(address) if self.state.fqdn.load().is_none() => Some(address.port()),
            _ => None,
        }
    }

    /// Whether a check of this kind has a port to connect to.
    fn has_port(&self, kind: &CheckKind) -> bool {
        let CheckKind::Script(script) = kind else { return true };
        if self.port() != Some(0) || self.draft.checked_port().is_some() {
            return true;
        }
        let mut connects = script.steps.iter().filter_map(|step| match &step.action {
            CheckAction::Connect(connect) => Some(connect),
            _ => None,
        });
        let says = |connect: &Connect| {
            connect.port.is_some() || connect.address.is_some_and(|(_, port)| port.is_some())
        };
        connects.next().is_some_and(says) && connects.all(says)
    }

    fn no_port(&self, kind: &CheckKind) -> Diagnostic {
        let (name, settings) = (&self.state.name, &self.proxy.settings);
        let backend = settings.name;
        let plain = matches!(kind, CheckKind::Script(script) if script.family == Family::Connect);
        let tail = if plain { "" } else { " nor tcp_check rule 'connect' with port information" };
        Diagnostic::alert(format!("server `{name}` has checks, but no port is known"))
            .at(self.statement.keyword_span())
            .help("add a port to the server address, or use `port` for the check")
            .haproxy_whole(format!(
                "config: {} '{backend}': server '{name}' has neither service port nor check port{tail}.",
                settings.kind_name()
            ))
    }

    /// Warns if data sent with the SYN could be lost because the server refuses it.
    fn warn_of_fast_open(&self, context: &mut ResolveContext<'_>) {
        let retry_on = self.proxy.settings.retry_on.as_deref();
        if !self.draft.tfo || retry_on.is_some_and(|on| on.empty_response && on.response_timeout) {
            return;
        }
        let title = format!("server {}/{}", self.proxy.settings.name, self.state.name);
        context.diagnostics.push(
            Diagnostic::warning(format!("`tfo` of `{title}` requires retries in case the initial data is lost"))
                .at(self.statement.keyword_span())
                .help("use `retry-on conn-failure empty-response response-timeout`")
                .haproxy(format!(
                    "'{title}' : server has tfo activated, the backend should be configured with at least 'conn-failure', \
                     'empty-response' and 'response-timeout' or we wouldn't be able to retry the connection on failure."
                )),
        );
    }

    /// Returns an error if the check's protocol does not fit its kind.
    fn misfit(&self, kind: &CheckKind) -> Option<Diagnostic> {
        let protocol = self.draft.check_protocol?;
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
        let (name, backend) = (&self.state.name, self.proxy.settings.name);
        let haproxy = format!(
            "backend '{backend}': server '{name}' uses an incompatible MUX protocol for the selected check type"
        );
        let (text, help) = if is_grpc {
            ("`check-proto` is incompatible with a gRPC check", "remove it, or use `h2`")
        } else if is_spop || protocol == Protocol::Spop {
            ("`check-proto spop` and `option spop-check` require each other", "remove `check-proto`")
        } else if is_http {
            ("an HTTP check requires an HTTP protocol in `check-proto`", "use `h1` or `h2`")
        } else {
            (
                "`check-proto` selects an HTTP protocol, but the check is not an HTTP check",
                "use `option httpchk` for HTTP checks",
            )
        };
        Some(Diagnostic::alert(text).at(self.statement.keyword_span()).help(help).haproxy(haproxy))
    }

    fn check_settings(&self, kind: Arc<CheckKind>, never_local: bool) -> CheckSettings {
        let (draft, settings) = (self.draft, &self.proxy.settings);
        // A check of another address has its own setting for the PROXY header; otherwise it uses the server's.
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
            // A check with its own connection settings cannot share connections with requests.
            reuse: ((draft.check_reuse_pool || is_reverse(self.state))
                && !elsewhere
                && !draft.check_via_socks4
                && draft.check_protocol.is_none())
            .then(|| draft.check_pool_conn_name.unwrap_or_default().into()),
            protocol: draft.check_protocol.or(if draft.speaks_fcgi {
                Some(Protocol::FastCgi)
            } else {
                let known =
                    [(draft.speaks_h2, Protocol::Http2), (draft.speaks_qmux.is_some(), Protocol::Qmux)];
                known.into_iter().find_map(|(is_set, protocol)| is_set.then_some(protocol))
            }),
            timeout: settings.timeouts.check,
            connect_timeout: settings.timeouts.connect,
            kind,
            log: settings.options.log_health_checks,
            initial: draft.initial,
        }
    }

    /// `resolvers` and related parameters.
    fn resolution(&self, context: &ResolveContext<'_>) -> Result<Option<Resolution>, Diagnostic> {
        let (draft, settings) = (self.draft, &self.proxy.settings);
        // A disabled proxy resolves nothing.
        let Some(word) = draft.resolvers.filter(|_| !settings.disabled) else { return Ok(None) };
        let known = &context.names.resolvers;
        let Some(resolvers) = known.iter().find(|one| *one.state.name == **word) else {
            let (backend, name) = (settings.name, &self.state.name);
            return Err(Diagnostic::alert(format!("there is no resolvers section `{word}`"))
                .at(word.span())
                .did_you_mean(diag::suggest(word, known.iter().map(|one| &*one.state.name)))
                .haproxy_whole(format!(
                    "{} '{backend}', server '{name}': unable to find required resolvers '{word}'",
                    settings.kind_name()
                )));
        };
        Ok(Some(Resolution { resolvers: resolvers.clone(), wishes: draft.resolve.clone() }))
    }

    /// Resolves names and expressions, and the SNI of `tls`.
    fn named(&self, tls: Option<&mut ServerTls>, context: &ResolveContext<'_>) -> Result<Named, Diagnostic> {
        let Self { draft, statement, proxy, .. } = self;
        let resolution = self.resolution(context)?;
        let mode = proxy.settings.mode;
        let scope = match context.around {
            Some(around) => around.scope(proxy.settings.name, mode, Place::BackendRequest),
            None => scope(context, self.acls, Some(&proxy.state), mode, Place::BackendRequest),
        };
        let expression = |word: &Word| Expression::compile_str(word, word.span(), &scope);
        let pool_conn_name = draft.pool_conn_name.map(expression).transpose()?;
        let tlv = |(id, word): &(u8, &Word)| {
            Ok((*id, Format::compile(word, word.span(), &scope, FormatFor::Text)?))
        };
        let proxy_v2_tlvs = draft.tlvs.iter().map(tlv).collect::<Result<_, Diagnostic>>()?;
        if let Some(tls) = tls {
            tls.name = tls_server::server_name(&draft.tls, mode, &scope, statement)?;
        }
        if let Some(around) = context.around {
            around.suffices(statement.keyword_span())?;
        }
        if draft.agent && draft.agent_port.or(draft.check_port).is_none() {
            return Err(self.no_agent_port());
        }
        let track = match draft.track {
            Some(word) => track::follow(self.state, word, draft, statement, proxy, context)?,
            None => None,
        };
        let fleet =
            draft.fleet.map(|word| fleet_limit::table(word, draft, self.state, context)).transpose()?;
        Ok(Named { resolution, pool_conn_name, proxy_v2_tlvs, track, fleet })
    }

    fn no_agent_port(&self) -> Diagnostic {
        let title = format!("server {}/{}", self.proxy.settings.name, self.state.name);
        Diagnostic::alert("`agent-check` requires the agent's port: `agent-port` or `port`")
            .at(self.statement.keyword_span())
            .haproxy(format!(
                "'{title}' : 'agent-check' : 'agent-port' is required, as no port is specified for the agent."
            ))
    }
}

/// The checks compiled so far for a backend: its own checks and those of `healthcheck` sections.
struct Checks<'c, 's, 'a> {
    proxy: &'c PendingProxy<'a>,
    acls: &'c Acls,
    sources: &'c mut Sources<'s, 'a>,
    own: Option<Arc<CheckKind>>,
    named: HashMap<&'a str, Arc<CheckKind>>,
}

impl<'a> Checks<'_, '_, 'a> {
    /// The check for the server of that name.
    fn kind(
        &mut self,
        name: &str,
        draft: &ServerDraft<'a>,
        context: &mut ResolveContext<'_>,
    ) -> Result<Arc<CheckKind>, Diagnostic> {
        let Self { proxy, acls, sources, own, named } = self;
        let Some(word) = draft.healthcheck else {
            let make = || check_kind(&proxy.settings.check, proxy, acls, &mut sources.shared, context);
            return Ok(own.get_or_insert_with(make).clone());
        };
        if let Some(kind) = named.get(word.as_str()) {
            return Ok(kind.clone());
        }
        let Some((check, _)) = sources.healthchecks.get(word.as_str()) else {
            return Err(Diagnostic::alert(format!("there is no healthcheck section `{word}`"))
                .at(word.span())
                .did_you_mean(diag::suggest(word, sources.healthchecks.keys().copied()))
                .haproxy(format!("healthcheck section '{word}' not found for server '{name}'.")));
        };
        let kind = check_kind(check, proxy, acls, &mut sources.shared, context);
        named.insert(word.as_str(), kind.clone());
        Ok(kind)
    }
}

/// Sets the SNI of HTTP checks on lines that do not set it. The SNI is the host of the check's request, unless a `connect` line
/// is present or the host is known only when the request is sent (`check-sni-auto`).
fn check_name(tls: &mut ServerTls, check: &CheckSettings) {
    let CheckKind::Script(script) = &*check.kind else { return };
    let connects =
        |action: &CheckAction| matches!(action, CheckAction::Connect(Connect { implied: false, .. }));
    if tls.check_name.is_some() || script.steps.iter().any(|step| connects(&step.action)) {
        return;
    }
    let host = script.steps.iter().find_map(|step| match &step.action {
        CheckAction::Request(request) => {
            let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"host"))?;
            str::from_utf8(host.1.as_constant()?).ok()
        }
        _ => None,
    });
    let name = host.map(|host| host.split(':').next().unwrap_or(host)).filter(|name| !name.is_empty());
    tls.check_name = name.map(Box::from);
}

/// How a server of a log backend receives lines. Warns about parameters that only such servers have.
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

/// Registers the server for the ring that is sent to it, if there is one.
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

/// The settings of the agent. The port is validated when the server is finished.
fn agent_settings(draft: &ServerDraft<'_>, settings: &ProxySettings<'_>) -> Option<AgentSettings> {
    draft.agent_port.or(draft.check_port).filter(|_| draft.agent)?;
    Some(AgentSettings {
        inter: draft.agent_inter,
        timeout: settings.timeouts.check,
        connect_timeout: settings.timeouts.connect,
    })
}
