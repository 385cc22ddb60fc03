//! Builds one proxy of the plan from its settings, compiled rules, binds and servers.

use std::collections::HashMap;
use std::sync::Arc;

use base::raw::bytes_of;
use diag::Diagnostic;
use plan::Bind;
use plan::check::CheckKind;
use plan::compression::Compression;
use plan::discovered::DiscoveredServers;
use plan::fcgi::App;
use plan::filter::{CachePlaces, FilterPlaces, TraceFilter};
use plan::log::{LogForward, Logger};
use plan::peers::Peers;
use plan::proxy::{
    Capture, CookieCapture, LentToServers, Proxy, ProxyOptions, RestrictNames, StateFile, StatsPage,
};
use plan::ring::RingSettings;
use plan::server::ServerSettings;
use plan::spoe::{Sending, SpoeEngine};
use rules::RuleSet;

use crate::draft::settings::ProxySettings;
use crate::draft::{SectionKind, Statement};
use crate::resolve::balance::balance;
use crate::resolve::binds::binds;
use crate::resolve::cache;
use crate::resolve::check::Sources;
use crate::resolve::discovered;
use crate::resolve::filters::{compression, filters, places};
use crate::resolve::formats::{Formats, formats};
use crate::resolve::log::loggers;
use crate::resolve::log_sections::log_forward;
use crate::resolve::mail::email_alert;
use crate::resolve::rule_sets::CompiledRules;
use crate::resolve::rules::{check_modes, compile, loops, no_backend};
use crate::resolve::script_filters::script_filters;
use crate::resolve::server_settings::server_settings;
use crate::resolve::servers::{MadeServer, state_file};
use crate::resolve::{PendingProxy, ResolveContext, fcgi, peers, quic, spoe, telemetry, udp, warnings};

/// Resolves the proxy at index `place` of the plan.
pub(crate) fn resolve<'a>(
    place: usize,
    proxy: &PendingProxy<'a>,
    servers: Vec<MadeServer<'a>>,
    pending: &[PendingProxy<'a>],
    index: &HashMap<Box<str>, usize>,
    checks: &mut Sources<'_, 'a>,
    context: &mut ResolveContext<'_>,
) -> Proxy {
    let settings = &proxy.settings;
    let binds = match settings.kind {
        SectionKind::Peers => peers::binds(place, proxy, context),
        SectionKind::UdpLb => udp::binds(proxy, context),
        _ => binds(proxy, context),
    };
    let order = places(proxy);
    let traces = filters(place, proxy, &order, context);
    let compression = compression(proxy, &order, context);
    let fcgi = application(proxy, context);
    let engines = spoe::engines(proxy, &order, index, pending, context);
    // Compiling records in `context` which SPOE groups and caches the rules use.
    let rules = compile(proxy, index, pending, context);
    let sendings = spoe::sendings(proxy, &engines, context);
    let caches = context.names.caches_used.take();
    let cache_places = cache::places(proxy, &caches, &order, context);
    let formats = formats(proxy, &rules.acls, context);
    let balance = balance(proxy, &rules.acls, context);
    let default_backend = default_backend(place, proxy, pending, index, context);
    let loggers = loggers(settings, context);
    check_log_mode(proxy, context);
    check_spop_mode(proxy, context);
    check_haterm_mode(proxy, context);
    warnings::check(proxy, &rules, binds.len(), servers.len(), &loggers, context);
    let log_forward = log_forwarder(proxy, context);
    let ring = ring_settings(proxy, context);
    let drafts: Vec<_> = servers.iter().filter_map(|server| server.discovered.clone()).collect();
    if settings.kind == SectionKind::UdpLb {
        udp::check_servers(proxy, context);
        if let Some(backend) = default_backend.and_then(|index| pending.get(index)) {
            udp::check_servers(backend, context);
        }
    }
    let (mut servers, check_kind) = server_settings(proxy, servers, &rules.acls, checks, context);
    fcgi::check_servers(proxy, &servers, context);
    let prototypes = servers.split_off(servers.len() - drafts.len());
    let discovered = discovered::lines(proxy, drafts, prototypes, &balance, context);
    let peers = peers::peers(place, proxy, &binds, &servers, context);
    refuse_two_ways_of_access(proxy, &rules.stats_rules, context);
    let engines = engines.iter().map(spoe::CompiledEngine::engine).collect();
    let parts = ProxyParts {
        binds,
        order,
        traces,
        compression,
        fcgi,
        engines,
        rules,
        sendings,
        cache_places,
        formats,
        balance,
        default_backend,
        loggers,
        log_forward,
        ring,
        servers,
        discovered,
        check_kind,
        peers,
    };
    assemble(place, proxy, parts, context)
}

/// The settings of a proxy that are resolved separately.
struct ProxyParts {
    binds: Vec<Bind>,
    /// The order of the filters.
    order: Vec<FilterPlaces>,
    traces: Vec<Arc<TraceFilter>>,
    compression: Option<Box<Compression>>,
    fcgi: Option<Arc<App>>,
    engines: Vec<Arc<SpoeEngine>>,
    rules: CompiledRules,
    sendings: Vec<Sending>,
    cache_places: CachePlaces,
    formats: Formats,
    balance: balance::BalanceSettings,
    default_backend: Option<usize>,
    loggers: Vec<Logger>,
    log_forward: Option<Box<LogForward>>,
    ring: Option<Box<RingSettings>>,
    servers: Vec<Arc<ServerSettings>>,
    discovered: Vec<Arc<DiscoveredServers>>,
    check_kind: Option<Arc<CheckKind>>,
    peers: Option<Box<Peers>>,
}

/// Assembles the proxy from its parts and from the settings that only change their form.
fn assemble(
    place: usize,
    proxy: &PendingProxy<'_>,
    parts: ProxyParts,
    context: &mut ResolveContext<'_>,
) -> Proxy {
    let settings = &proxy.settings;
    let ProxyParts { rules, formats, .. } = parts;
    let logs_early = formats.are_early(settings, &parts.loggers);
    let request_captures = captures(&rules.request_captures);
    let response_captures = captures(&settings.response_captures);
    let lengths = |captures: &[Capture]| captures.iter().map(|capture| capture.length).collect();
    let lengths = [lengths(&request_captures), lengths(&response_captures)];
    proxy.state.capture_lengths.store(Some(Arc::new(lengths)));
    let alt_svc = quic::port(&parts.binds).filter(|_| settings.alt_svc);
    let mut http_after_response = rules.http_after_response;
    if let Some(port) = alt_svc {
        http_after_response.announce_http3(port);
    }
    let log_tag = settings.log_tag.map(|tag| Box::from(bytes_of(tag)));
    let log_tag = log_tag.or_else(|| context.global.log_tag.clone()).unwrap_or_else(|| b"haproxy"[..].into());
    Proxy {
        index: place,
        state: proxy.state.clone(),
        mode: settings.mode,
        is_haterm: settings.is_haterm && settings.is_frontend(),
        options: options(settings),
        timeouts: settings.timeouts.shared(),
        disabled: settings.disabled,
        added: None,
        description: settings.description.as_deref().map(Into::into),
        binds: parts.binds,
        backlog: settings.backlog,
        use_backends: rules.use_backends,
        force_be_switch: rules.force_be_switch,
        default_backend: parts.default_backend,
        rdp_persistence: settings.rdp_persistence.map(|name| bytes_of(name).into()),
        monitor_uri: settings.monitor_uri.map(|uri| uri.bytes().into()),
        monitor_fail: rules.monitor_fail,
        request_captures,
        response_captures,
        cookie_capture: settings.cookie_capture.clone().map(|capture| CookieCapture {
            length: capture.length.min(context.global.tune.cookie_length),
            ..capture
        }),
        unique_id_format: formats.unique_id,
        unique_id_header: settings.unique_id_header.map(|name| bytes_of(name).into()),
        logs_early,
        loggers: parts.loggers,
        log_tag,
        trace_to: telemetry::of_frontend(proxy, context),
        email_alert: email_alert(proxy, context).map(Box::new),
        log_format: formats.log,
        error_log_format: formats.error,
        log_format_sd: formats.structured,
        log_steps: settings.log.steps,
        log_forward: parts.log_forward,
        udp: udp::settings(settings),
        ring: parts.ring,
        peers: parts.peers,
        quic_initial: rules.quic_initial,
        udp_request: rules.udp_request,
        tcp_connection: rules.tcp_connection,
        tcp_session: rules.tcp_session,
        tcp_request: rules.tcp_request,
        request_inspect_delay: settings.request_inspect_delay,
        tcp_response: rules.tcp_response,
        response_inspect_delay: settings.response_inspect_delay,
        http_request: rules.http_request,
        redirects: rules.redirects,
        http_response: rules.http_response,
        http_after_response,
        errors: rules.errors,
        forward_for: settings.forward_for.as_deref().cloned().map(Box::new),
        original_to: settings.original_to.as_deref().cloned().map(Box::new),
        forwarded: formats.forwarded.map(Box::new),
        balance: parts.balance,
        traces: parts.traces,
        script_filters: script_filters(proxy, &parts.order, context),
        engines: parts.engines,
        sendings: parts.sendings,
        compression: parts.compression,
        fcgi: parts.fcgi,
        cache_places: parts.cache_places,
        servers: parts.servers.into(),
        discovered: parts.discovered,
        lent: LentToServers {
            check_kind: parts.check_kind,
            default_server: settings.default_server_lines.iter().map(|line| line.as_str().into()).collect(),
        },
        use_servers: rules.use_servers,
        stick: rules.stick,
        force_persist: rules.force_persist,
        ignore_persist: rules.ignore_persist,
        cookie: settings.cookie.as_deref().cloned().map(Box::new),
        retries: settings.retries,
        retry_delay: settings.retry_delay,
        redispatch: settings.redispatch,
        retry_on: settings.retry_on.as_deref().cloned().unwrap_or_default(),
        reuse: settings.reuse,
        fullconn: settings.fullconn,
        max_keep_alive_queue: settings.max_keep_alive_queue,
        source: settings.source.as_deref().cloned().map(Arc::new),
        send_name_header: settings.send_name_header.map(|name| bytes_of(name).into()),
        server_state: server_state(settings, context),
        stats: stats_page(settings, rules.stats_rules, rules.stats_admin, context),
        max_session_server_connections: settings.max_session_server_connections,
    }
}

/// The options. By default, headers with names that applications would confuse are deleted (manual, 4.2 `option
/// http-restrict-req-hdr-names`).
fn options(settings: &ProxySettings<'_>) -> Arc<ProxyOptions> {
    let mut options = settings.options.clone();
    if settings.fcgi_app.is_some() && !settings.restricts_names {
        options.restrict_header_names = RestrictNames::Delete;
    }
    options.shared()
}

/// Resolves the FastCGI application of a backend, and also sets it in the proxy's state.
fn application(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Option<Arc<App>> {
    let app = fcgi::of_backend(proxy, context);
    let shared =
        |app: &Arc<App>| state::proxy::Application { docroot: app.docroot.clone(), index: app.index.clone() };
    proxy.state.application.store(app.as_ref().map(shared).map(Arc::new));
    app
}

/// The settings of a log forwarder. It gets one more listener, which wakes the readers of datagrams.
fn log_forwarder(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Option<Box<LogForward>> {
    let forward = log_forward(proxy, context)?;
    let entry = Arc::new(state::Listener::new(u32::MAX, "dgram".into(), "".into(), 0));
    let with_entry = |listeners: &Arc<Vec<Arc<state::Listener>>>| -> Vec<Arc<state::Listener>> {
        listeners.iter().cloned().chain([entry.clone()]).collect()
    };
    proxy.state.listeners.rcu(with_entry);
    Some(forward)
}

/// Checks that only backends use `mode log`.
fn check_log_mode(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    if settings.mode != state::Mode::Log || !settings.is_frontend() || !settings.kind.is_proxy() {
        return;
    }
    let (kind, name) = (settings.kind_name(), settings.name);
    context.diagnostics.push(
        Diagnostic::alert(format!("{kind} `{name}` cannot use `mode log`: it is only for backends"))
            .at(proxy.section.name.span())
            .help("use a `log-forward` section to receive log messages")
            .haproxy_whole(format!("'mode log' is not supported in {kind} '{name}': only in backends.")),
    );
}

/// Checks `mode spop`: only proxies with a backend side may use it, and filters have no effect.
fn check_spop_mode(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    if settings.mode != state::Mode::Spop {
        return;
    }
    if settings.is_backend() {
        for filter in &settings.filters {
            context.diagnostics.push(
                // HAProxy does not warn and passes the frames through the filter, so the behaviour differs.
                Diagnostic::warning("`filter` has no effect in `mode spop`")
                    .tolerated()
                    .at(filter.keyword.span())
                    .help("put filters into the proxy that uses the agents"),
            );
        }
        return;
    }
    let (kind, name) = (settings.kind_name(), settings.name);
    context.diagnostics.push(
        Diagnostic::alert(format!("{kind} `{name}` cannot use `mode spop`: it is only for backends"))
            .at(proxy.section.name.span())
            .help("use `filter spoe` in a frontend to query the agents of a backend in this mode")
            .haproxy("mode spop is only applicable on proxies with backend capability."),
    );
}

/// Checks `mode haterm`: such a frontend answers its requests itself, so nothing that chooses a server has an effect.
fn check_haterm_mode(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    if !settings.is_haterm || !settings.is_frontend() {
        return;
    }
    let chooses = |line: &&Statement| {
        matches!(
            line.keyword.name,
            "use_backend" | "default_backend" | "use-server" | "server" | "server-template" | "servers from"
        )
    };
    for line in settings.section.statements.iter().filter(chooses) {
        context.diagnostics.push(
            Diagnostic::warning(format!("`{}` has no effect in `mode haterm`", line.keyword.name))
                .tolerated()
                .at(line.keyword_span())
                .help("a frontend in this mode answers all requests itself"),
        );
    }
}

/// The ring of a `ring` section.
fn ring_settings(proxy: &PendingProxy<'_>, context: &ResolveContext<'_>) -> Option<Box<RingSettings>> {
    let is_ring = proxy.settings.kind == SectionKind::Ring;
    is_ring.then(|| context.log.rings.get(proxy.settings.name).cloned().map(Box::new)).flatten()
}

fn captures(captures: &[(Option<impl AsRef<str>>, usize)]) -> Vec<Capture> {
    let capture = |(name, length): &(Option<_>, usize)| Capture {
        header: name.as_ref().map(|name| http::Name::new(&bytes_of(AsRef::<str>::as_ref(name)))),
        length: *length,
    };
    captures.iter().map(capture).collect()
}

fn default_backend(
    place: usize,
    proxy: &PendingProxy<'_>,
    pending: &[PendingProxy<'_>],
    index: &HashMap<Box<str>, usize>,
    context: &mut ResolveContext<'_>,
) -> Option<usize> {
    let settings = &proxy.settings;
    // A backend that a disabled proxy names, or a backend inherits, need not exist.
    let own = settings.section.statements.iter().any(|line| line.keyword.name == "default_backend");
    if settings.disabled || !own && !settings.is_frontend() {
        return None;
    }
    let Some(name) = settings.default_backend else {
        return (settings.kind == SectionKind::Listen).then_some(place);
    };
    let Some(found) = index.get(name.as_str()).copied() else {
        context.diagnostics.push(no_backend(proxy, name, name.span(), index, "default_backend"));
        return None;
    };
    if found == place {
        context.diagnostics.push(loops(proxy, name, name.span(), "default_backend"));
        return None;
    }
    // As in HAProxy, the default backend of a backend must have a compatible mode, although it is never used.
    let outcome = check_modes(proxy, &pending[found], name.span(), "as its default backend", context);
    context.note(outcome);
    if !settings.is_frontend() {
        return None;
    }
    pending[found].state.referenced.store(true, std::sync::atomic::Ordering::Relaxed);
    Some(found)
}

fn server_state(settings: &ProxySettings<'_>, context: &ResolveContext<'_>) -> StateFile {
    match settings.server_state {
        StateFile::Local(_) => state_file(settings, context).map_or(StateFile::None, StateFile::Local),
        ref other => other.clone(),
    }
}

/// `stats auth` and `stats realm` already imply access rules for the page.
fn refuse_two_ways_of_access(proxy: &PendingProxy<'_>, rules: &RuleSet, context: &mut ResolveContext<'_>) {
    let stats = &proxy.settings.stats;
    if rules.is_empty() || stats.users.is_empty() && stats.realm.is_none() {
        return;
    }
    context.diagnostics.push(
        Diagnostic::alert("`stats auth` and `stats realm` cannot be combined with `stats http-request`")
            .at(proxy.section.name.span())
            .help("use `stats http-request auth` to authenticate users of a `userlist`")
            .haproxy_whole(format!(
                "proxy '{}': stats 'auth'/'realm' and 'http-request' can't be used at the same time.",
                proxy.settings.name
            )),
    );
}

fn stats_page(
    settings: &ProxySettings<'_>,
    rules: RuleSet,
    admin: Vec<sample::condition::Condition>,
    context: &ResolveContext<'_>,
) -> Option<Arc<StatsPage>> {
    let stats = &settings.stats;
    if !stats.enabled || !settings.is_frontend() && !settings.is_backend() {
        return None;
    }
    let own = |text: &str| Box::<str>::from(text);
    let bytes = |text: &str| Box::<[u8]>::from(bytes_of(text));
    Some(Arc::new(StatsPage {
        uri: bytes(stats.uri.unwrap_or("/haproxy?stats")),
        realm: own(stats.realm.unwrap_or("HAProxy Statistics")),
        users: stats.users.iter().map(|(user, password)| (bytes(user), bytes(password))).collect(),
        refresh: stats.refresh,
        // A dot stands for the proxy that serves the page.
        scope: stats.scope.iter().map(|name| own(if *name == "." { settings.name } else { name })).collect(),
        hide_version: stats.hide_version,
        show_legends: stats.show_legends,
        node: stats.node.map(|name| match (name, &context.global.node) {
            ("", Some(node)) => node.clone(),
            _ => own(name),
        }),
        description: stats.description.as_deref().map(|text| match (text, &context.global.description) {
            ("", Some(description)) => description.clone(),
            _ => own(text),
        }),
        frame_ancestors: stats.frame_ancestors.join(" ").into(),
        admin,
        rules,
    }))
}
