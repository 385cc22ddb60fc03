//! One proxy: its settings, compiled rules, binds and servers put together into the plan's form.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use balance::Algorithm;
use diag::Diagnostic;
use rules::RuleSet;
use sample::acl::Acls;
use sample::expression::Expression;
use sample::format::{Format, FormatFor};
use sample::{Place, Words};
use syntax::Word;

use crate::args::Args;
use crate::bind;
use crate::draft::{Kind, Statement};
use crate::keyword::{Outcome, not_supported};
use crate::plan::bind::Bind;
use crate::plan::log::Logger;
use crate::plan::proxy::{Capture, Cookie, Proxy, StateFile, StatsPage};
use crate::plan::server::{CheckKind, CheckSettings, ServerSettings};
use crate::resolve::rules::{Rules, arguments, check_modes, compile, no_backend, scope};
use crate::resolve::servers::MadeServer;
use crate::resolve::{Context, Pending, warnings};
use crate::settings::{CheckMode, LogFormatChoice, LogLine, Settings};

/// Resolves the proxy at `place` of the plan.
pub(crate) fn resolve(
    place: usize,
    proxy: &Pending<'_>,
    servers: Vec<MadeServer<'_>>,
    pending: &[Pending<'_>],
    index: &HashMap<Box<str>, usize>,
    context: &mut Context<'_>,
) -> Proxy {
    let settings = &proxy.settings;
    let binds = binds(proxy, context);
    let compiled = compile(proxy, index, pending, context);
    let formats = formats(proxy, &compiled.acls, context);
    let balance = balance(proxy, &compiled.acls, context);
    let default_backend = default_backend(place, proxy, pending, index, context);
    let loggers = loggers(settings, context);
    warnings::check(proxy, &compiled, binds.len(), servers.len(), &loggers, context);
    let check_kind = Arc::new(check_kind(settings));
    let servers = server_settings(proxy, servers, &check_kind, &compiled.acls, context);
    let Rules { stats_rules, stats_admin, .. } = compiled;
    let log_tag = settings.log_tag.or(context.global.log_tag.as_deref()).unwrap_or("haproxy").into();
    Proxy {
        index: place,
        state: proxy.state.clone(),
        mode: settings.mode,
        options: settings.options.clone(),
        timeouts: settings.timeouts,
        disabled: settings.disabled,
        description: settings.description.as_deref().map(Into::into),
        binds,
        backlog: settings.backlog,
        use_backends: compiled.use_backends,
        force_be_switch: compiled.force_be_switch,
        default_backend,
        monitor_uri: settings.monitor_uri.map(|uri| uri.bytes().into()),
        monitor_fail: compiled.monitor_fail,
        request_captures: captures(&compiled.request_captures),
        response_captures: captures(&settings.response_captures),
        cookie_capture: settings.cookie_capture.clone(),
        unique_id_format: formats.unique_id,
        unique_id_header: settings.unique_id_header.map(Into::into),
        loggers,
        log_tag,
        log_format: formats.log,
        error_log_format: formats.error,
        log_format_sd: formats.structured,
        tcp_connection: compiled.tcp_connection,
        tcp_session: compiled.tcp_session,
        tcp_request: compiled.tcp_request,
        request_inspect_delay: settings.request_inspect_delay,
        tcp_response: compiled.tcp_response,
        response_inspect_delay: settings.response_inspect_delay,
        http_request: compiled.http_request,
        redirects: compiled.redirects,
        http_response: compiled.http_response,
        http_after_response: compiled.http_after_response,
        errors: compiled.errors,
        forward_for: settings.forward_for.as_deref().cloned(),
        original_to: settings.original_to.as_deref().cloned(),
        forwarded: formats.forwarded,
        balance,
        servers,
        use_servers: compiled.use_servers,
        force_persist: compiled.force_persist,
        ignore_persist: compiled.ignore_persist,
        cookie: cookie(settings),
        retries: settings.retries,
        redispatch: settings.redispatch,
        retry_on: settings.retry_on.as_deref().cloned().unwrap_or_default(),
        reuse: settings.reuse,
        fullconn: settings.fullconn,
        max_keep_alive_queue: settings.max_keep_alive_queue,
        source: settings.source.as_deref().cloned(),
        dispatch: settings.dispatch,
        transparent: settings.transparent,
        send_name_header: settings.send_name_header.map(Into::into),
        server_state: server_state(settings, context),
        stats: stats_page(settings, stats_rules, stats_admin, context),
        max_session_server_connections: settings.max_session_server_connections,
    }
}

fn binds(proxy: &Pending<'_>, context: &mut Context<'_>) -> Vec<Bind> {
    let mut binds: Vec<Bind> = Vec::new();
    let mut ids: HashMap<u32, (&Word, u32)> = HashMap::new();
    for statement in &proxy.settings.binds {
        match bind_line(statement, proxy.section.keyword.as_str(), binds.len() as u32 + 1, &mut ids, context)
        {
            Ok(mut made) => binds.append(&mut made),
            Err(error) => context.diagnostics.push(error),
        }
    }
    proxy.state.listeners.store(Arc::new(binds.iter().map(|bind| bind.listener.clone()).collect()));
    binds
}

fn bind_line<'a>(
    statement: &'a Statement,
    section: &str,
    first_id: u32,
    ids: &mut HashMap<u32, (&'a Word, u32)>,
    context: &mut Context<'_>,
) -> Result<Vec<Bind>, Diagnostic> {
    let unix = context.global.unix_bind.clone();
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let address = args.next().ok_or_else(|| {
        Diagnostic::alert("`bind` expects an address")
            .at(statement.end())
            .label("usage: bind [<address>]:<port_range> [, ...] [param*]")
            .haproxy("'bind' expects {<path>|[addr1]:port1[-end1]}{,[addr]:port[-end]}... as arguments.")
    })?;
    let addresses = bind::parse_addresses(address, &args, &unix)?;
    let title = format!("bind {address}");
    let draft = bind::parse_params(&mut args, &title, section)?;
    if let Some(id) = draft.id
        && let Some((other, line)) = ids.insert(id, (address, statement.line))
    {
        let file = context.sources.file(statement.span.file).name();
        return Err(Diagnostic::alert(format!("the id {id} is used twice"))
            .at(address.span())
            .related(other.span(), "first here")
            .haproxy(format!(
                "'{title}' in section '{section}': 'id' : custom id {id} already used at {file}:{line} ('bind {other}')"
            )));
    }
    let numbered = addresses.into_iter().enumerate();
    let make = |(at, (address, shown)): (usize, _)| {
        bind::make(&draft, address, shown, draft.id.unwrap_or(first_id + at as u32), &unix)
    };
    Ok(numbered.map(make).collect())
}

/// `stats socket` of global.
pub(crate) fn stats_socket(
    statement: &Statement,
    id: u32,
    context: &mut Context<'_>,
) -> Result<Bind, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.next().ok_or_else(|| {
        Diagnostic::alert("`stats socket` expects an address or a path")
            .at(statement.end())
            .haproxy("'stats socket' in section 'global' expects an address or a path to a UNIX socket.")
    })?;
    // A bare word is a path here.
    let unix = Default::default();
    let addresses = if word.contains([':', '/', '@']) {
        bind::parse_addresses(word, &args, &unix)?
    } else {
        vec![(crate::plan::bind::BindAddress::Unix(word.as_str().into()), format!("unix@{word}"))]
    };
    let draft = bind::parse_params(&mut args, &format!("stats socket {word}"), "global")?;
    let (address, shown) =
        addresses.into_iter().next().ok_or_else(|| Diagnostic::alert("no address").at(word.span()))?;
    Ok(bind::make(&draft, address, shown, draft.id.unwrap_or(id), &unix))
}

/// The compiled formats of a proxy.
#[derive(Default)]
struct Formats {
    log: Option<Format>,
    error: Option<Format>,
    structured: Option<Format>,
    unique_id: Option<Format>,
    forwarded: Option<crate::plan::proxy::Forwarded>,
}

fn formats(proxy: &Pending<'_>, acls: &Acls, context: &mut Context<'_>) -> Formats {
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
    proxy: &Pending<'_>,
    acls: &Acls,
    context: &mut Context<'_>,
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

fn log_format(proxy: &Pending<'_>, acls: &Acls, context: &Context<'_>) -> Result<Option<Format>, Diagnostic> {
    use sample::format;
    let http = proxy.settings.mode == state::Mode::Http;
    let (text, span) = match proxy.settings.log_format {
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
        // Warned of elsewhere.
        LogFormatChoice::Http(statement)
        | LogFormatChoice::Clf(statement)
        | LogFormatChoice::Https(statement) => (format::TCP_LOG, statement.span),
    };
    let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::Log);
    Format::compile(text, span, &scope, FormatFor::Log).map(Some)
}

fn loggers(settings: &Settings<'_>, context: &Context<'_>) -> Vec<Logger> {
    let mut loggers = Vec::new();
    for line in settings.loggers.iter() {
        match line {
            LogLine::Global => loggers.extend(context.global.loggers.iter().cloned()),
            LogLine::Own(logger) => loggers.push(logger.clone()),
        }
    }
    loggers
}

fn captures(captures: &[(Option<impl AsRef<str>>, usize)]) -> Vec<Capture> {
    let capture = |(name, length): &(Option<_>, usize)| Capture {
        header: name.as_ref().map(|name| http::Name::new(AsRef::<str>::as_ref(name).as_bytes())),
        length: *length,
    };
    captures.iter().map(capture).collect()
}

fn default_backend(
    place: usize,
    proxy: &Pending<'_>,
    pending: &[Pending<'_>],
    index: &HashMap<Box<str>, usize>,
    context: &mut Context<'_>,
) -> Option<usize> {
    let settings = &proxy.settings;
    if !settings.is_frontend() {
        return None;
    }
    let Some(name) = settings.default_backend else {
        return (settings.kind == Kind::Listen).then_some(place);
    };
    let Some(found) = index.get(name.as_str()).copied() else {
        context.diagnostics.push(no_backend(proxy, name, name.span(), index, "default_backend"));
        return None;
    };
    let outcome = check_modes(proxy, &pending[found], name.span(), "as its default backend", context);
    context.note(outcome);
    Some(found)
}

/// The file of a backend's server states: its name is relative to `server-state-base`.
fn server_state(settings: &Settings<'_>, context: &Context<'_>) -> StateFile {
    match settings.server_state {
        StateFile::Local(_) => {
            let base = context.global.server_state_base.clone().unwrap_or_default();
            StateFile::Local(base.join(settings.server_state_name.unwrap_or(settings.name)))
        }
        ref other => other.clone(),
    }
}

fn cookie(settings: &Settings<'_>) -> Option<Cookie> {
    let own = settings.cookie.as_deref()?;
    // `dynamic` left an empty key; the key is a line of its own.
    let dynamic_key = own.dynamic_key.as_ref().and(settings.dynamic_cookie_key).map(Into::into);
    Some(Cookie { dynamic_key, ..own.clone() })
}

fn stats_page(
    settings: &Settings<'_>,
    rules: RuleSet,
    admin: Vec<sample::condition::Condition>,
    context: &Context<'_>,
) -> Option<Arc<StatsPage>> {
    let stats = &settings.stats;
    if !stats.enabled || !settings.is_frontend() && !settings.is_backend() {
        return None;
    }
    let own = |text: &str| Box::<str>::from(text);
    Some(Arc::new(StatsPage {
        uri: own(stats.uri.unwrap_or("/haproxy?stats")),
        realm: own(stats.realm.unwrap_or("HAProxy Statistics")),
        users: stats.users.iter().map(|(user, password)| (own(user), own(password))).collect(),
        refresh: stats.refresh,
        scope: stats.scope.iter().map(|name| own(name)).collect(),
        hide_version: stats.hide_version,
        show_legends: stats.show_legends,
        show_modules: stats.show_modules,
        node: stats.node.map(|name| match (name, &context.global.node) {
            ("", Some(node)) => node.clone(),
            _ => own(name),
        }),
        description: stats.description.as_deref().map(|text| match (text, &context.global.description) {
            ("", Some(description)) => description.clone(),
            _ => own(text),
        }),
        admin,
        rules,
    }))
}

fn balance(proxy: &Pending<'_>, acls: &Acls, context: &mut Context<'_>) -> balance::Settings {
    let settings = &proxy.settings;
    let algorithm = match settings.balance {
        // The default since HAProxy 3.3.
        None => Ok(Algorithm::Random { draws: 2 }),
        Some(statement) => algorithm(statement, proxy, acls, context),
    };
    balance::Settings {
        algorithm: context.diagnostics.take(algorithm).unwrap_or_default(),
        hash: settings.hash,
        balance_factor: settings.balance_factor,
        all_backups: settings.options.allbackups,
    }
}

fn algorithm(
    statement: &Statement,
    proxy: &Pending<'_>,
    acls: &Acls,
    context: &mut Context<'_>,
) -> Result<Algorithm, Diagnostic> {
    if statement.arguments().first().is_some_and(|word| *word == "hash") {
        let list = arguments(statement);
        let mut words = Words::new(&list[1..], statement.end());
        let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::BackendRequest);
        let expression = Expression::compile(&mut words, &scope)?;
        return Ok(Algorithm::Hash(expression));
    }
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.required("an algorithm")?;
    let (name, inside) = match word.as_str().split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')')),
        None => (word.as_str(), None),
    };
    let algorithm = match name {
        "roundrobin" => Algorithm::RoundRobin,
        "static-rr" => Algorithm::StaticRr,
        "leastconn" => Algorithm::LeastConn,
        "first" => Algorithm::First,
        "source" => Algorithm::Source,
        "random" => Algorithm::Random { draws: draws(inside, &args)? },
        "uri" => uri(&mut args)?,
        "url_param" => {
            let parameter = args.required("a parameter name")?;
            let check_post = args.take("check_post");
            if check_post {
                args.rest();
            }
            Algorithm::UrlParam { name: parameter.as_str().into(), check_post }
        }
        "hdr" => {
            let header = inside.filter(|name| !name.is_empty()).ok_or_else(|| {
                args.wrong("`hdr` needs the name of a header")
                    .label("such as `hdr(host)`")
                    .haproxy("'hdr(name)' requires an http header field name.")
            })?;
            let domain_only = args.take("use_domain_only");
            Algorithm::Header { name: http::Name::new(header.as_bytes()), domain_only }
        }
        "rdp-cookie" => Algorithm::RdpCookie { name: inside.unwrap_or("mstshash").into() },
        "log-hash" | "sticky" => return Err(not_supported(&format!("balance {name}")).at(word.span())),
        _ => return Err(unknown_algorithm(name, word)),
    };
    args.finish()?;
    Ok(algorithm)
}

fn unknown_algorithm(name: &str, word: &Word) -> Diagnostic {
    const KNOWN: &[&str] = &[
        "roundrobin",
        "static-rr",
        "leastconn",
        "first",
        "source",
        "random",
        "uri",
        "url_param",
        "hdr",
        "rdp-cookie",
        "hash",
    ];
    Diagnostic::alert(format!("`balance` does not know `{word}`"))
        .at(word.span())
        .did_you_mean(diag::suggest(name, KNOWN.iter().copied()))
        .help(format!("one of: {}", KNOWN.join(", ")))
        .haproxy("balance only supports 'roundrobin', 'static-rr', 'leastconn', 'source', 'uri', 'url_param', 'hash', 'hdr(name)', 'rdp-cookie(name)', 'log-hash' and 'log-sticky' options.")
}

fn draws(inside: Option<&str>, args: &Args<'_, '_>) -> Result<u32, Diagnostic> {
    let Some(text) = inside else { return Ok(2) };
    text.parse::<u32>().ok().filter(|draws| *draws > 0).ok_or_else(|| {
        args.wrong(format!("`random` needs a number of draws above zero, not `{text}`"))
            .haproxy("'random' expects a positive integer argument.")
    })
}

fn uri(args: &mut Args<'_, '_>) -> Result<Algorithm, Diagnostic> {
    let (mut length, mut depth, mut whole, mut path_only) = (None, None, false, false);
    while let Some(word) = args.next() {
        match word.as_str() {
            "len" => length = Some(args.integer("a length", 1, 65_535)?),
            "depth" => depth = Some(args.integer("a depth", 1, 65_535)?),
            "whole" => whole = true,
            "path-only" => path_only = true,
            other => {
                return Err(args
                    .wrong(format!("`balance uri` does not know `{other}`"))
                    .did_you_mean(diag::suggest(other, ["len", "depth", "whole", "path-only"]))
                    .haproxy(format!("balance uri only accepts parameters 'len', 'depth', 'path-only', and 'whole' (got '{other}').")));
            }
        }
    }
    Ok(Algorithm::Uri { length, depth, whole, path_only })
}

fn check_kind(settings: &Settings<'_>) -> CheckKind {
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

fn server_settings(
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
            track: None,
            observe: draft.observe,
            error_limit: draft.error_limit,
            on_error: draft.on_error,
            tos: draft.tos,
            hash_key: draft.hash_key,
            strict_maxconn: draft.strict_maxconn,
            state,
        };
        let outcome = finish_server(&mut own, &draft, statement, proxy, acls, context);
        context.note(outcome);
        settings.push(Arc::new(own));
    }
    settings
}

fn check_settings(
    draft: &crate::server::ServerDraft<'_>,
    settings: &Settings<'_>,
    kind: &Arc<CheckKind>,
) -> CheckSettings {
    // A check of another port tells its own PROXY header apart; one of the same port follows the server's.
    let elsewhere = draft.check_port.is_some() || draft.check_address.is_some();
    let sends_proxy = draft.send_proxy != crate::plan::server::SendProxy::None;
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
    draft: &crate::server::ServerDraft<'_>,
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
    own.track = Some((backend, server));
    Ok(())
}

fn forwarded(
    statement: &Statement,
    proxy: &Pending<'_>,
    acls: &Acls,
    context: &mut Context<'_>,
) -> Result<crate::plan::proxy::Forwarded, Diagnostic> {
    use crate::plan::proxy::{Forwarded, ForwardedHost, ForwardedNode};
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
                return Err(Diagnostic::alert(format!("`option forwarded` does not know `{other}`"))
                    .at(word.span())
                    .did_you_mean(diag::suggest(other, KNOWN.iter().copied())));
            }
        }
    }
    Ok(own)
}
