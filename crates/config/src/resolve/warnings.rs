//! HAProxy's warnings about configurations that are valid but probably not as intended, in its own wording.

use diag::Diagnostic;
use plan::log::Logger;
use plan::proxy::StateFile;
use state::Mode;

use crate::draft::settings::{CheckMode, LogFormatChoice, ProxySettings};
use crate::draft::{SectionKind, Statement};
use crate::resolve::rule_sets::CompiledRules;
use crate::resolve::{PendingProxy, ResolveContext};

/// Checks that the parts of a proxy fit together.
pub(crate) fn check(
    proxy: &PendingProxy<'_>,
    rules: &CompiledRules,
    binds: usize,
    servers: usize,
    loggers: &[Logger],
    context: &mut ResolveContext<'_>,
) {
    let settings = &proxy.settings;
    // A proxy for logs has no requests and needs no timeouts.
    if settings.disabled {
        return;
    }
    if settings.mode == Mode::Log {
        return not_for_logs(proxy, context);
    }
    if settings.mode == Mode::Udp {
        log_format(proxy, loggers, context);
        unused_checks(proxy, context);
        return repeated_timeouts(proxy, context);
    }
    // A refused line may have been the `bind`.
    let whole = !context.diagnostics.has_errors();
    let front = matches!(settings.kind, SectionKind::Frontend | SectionKind::Listen);
    if front && binds == 0 && settings.binds.is_empty() && whole {
        warn(proxy, context, |kind, name| {
            format!(
                "{kind} '{name}' has no 'bind' directive. Please declare it as a backend if this was intended."
            )
        });
    }
    if settings.mode != Mode::Http && !rules.tcp_request.switches_mode() {
        needs_http(proxy, rules, context);
    }
    if settings.mode == Mode::Http && settings.is_backend() && settings.rdp_persistence.is_some() {
        warn(proxy, context, |kind, name| {
            format!("'persist rdp-cookie' will be ignored for {kind} '{name}' (needs 'mode tcp').")
        });
    }
    state_files(proxy, context);
    let described = settings.stats.description.as_deref() != Some("") || context.global.description.is_some();
    if !described {
        warn(proxy, context, |kind, name| {
            format!(
                "'stats show-desc' of {kind} '{name}' requires a parameter or 'description' to be set in the global section."
            )
        });
    }
    log_format(proxy, loggers, context);
    unused_checks(proxy, context);
    repeated_timeouts(proxy, context);
    missing_timeouts(proxy, servers, context);
}

/// The first words of keywords for requests, which have no effect in a log backend.
const ABOUT_REQUESTS: &[&str] = &[
    "acl",
    "cookie",
    "errorfile",
    "errorfiles",
    "errorloc",
    "errorloc302",
    "errorloc303",
    "force-persist",
    "http-after-response",
    "http-error",
    "http-request",
    "http-response",
    "http-reuse",
    "http-send-name-header",
    "ignore-persist",
    "redirect",
    "retry-on",
    "tcp-request",
    "tcp-response",
    "use-server",
];

/// Warns about a log backend's own lines for requests. Inherited lines may be meant for other proxies.
fn not_for_logs(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let (kind, name) = (proxy.settings.kind_name(), proxy.settings.name);
    for statement in &proxy.section.statements {
        let keyword = statement.keyword.name;
        if keyword.split(' ').next().is_some_and(|first| ABOUT_REQUESTS.contains(&first)) {
            context.diagnostics.push(
                Diagnostic::warning(format!("`{keyword}` is ignored: {kind} `{name}` is in `mode log`"))
                    .at(statement.keyword_span())
                    .haproxy(format!(
                        "Cannot use '{keyword}' with 'mode log' in {kind} '{name}'. It will be ignored."
                    )),
            );
        }
    }
}

/// `load-server-state-from-file global` without a file to load from.
fn state_files(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let global = proxy.settings.server_state == StateFile::Global && proxy.settings.is_backend();
    if global && context.global.server_state_file.is_none() {
        warn(proxy, context, |kind, name| {
            format!(
                "{kind} '{name}' configured to load server state file from global section 'server-state-file' directive. \
                 Unfortunately, 'server-state-file' is not set!"
            )
        });
    }
}

/// Warns about lines for another kind of check than the configured one.
fn unused_checks(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let check = &proxy.settings.check;
    if proxy.settings.check_inherited {
        return;
    }
    if !check.http.is_empty() && check.mode != CheckMode::Http {
        warn(proxy, context, |kind, name| {
            format!(
                "{kind} '{name}' uses http-check rules without 'option httpchk', so the rules are ignored."
            )
        });
    }
    for (setting, line) in [(check.command, "external-check command"), (check.path, "external-check path")] {
        if setting.is_some() && check.mode != CheckMode::External {
            warn(proxy, context, |kind, name| {
                format!("'{line}' will be ignored for {kind} '{name}' (requires 'option external-check').")
            });
        }
    }
    if !check.tcp.is_empty() && !matches!(check.mode, CheckMode::Tcp | CheckMode::Udp) {
        warn(proxy, context, |kind, name| {
            format!(
                "{kind} '{name}' uses tcp-check rules without 'option tcp-check', so the rules are ignored."
            )
        });
    }
}

fn warn(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>, text: impl FnOnce(&str, &str) -> String) {
    let haproxy = text(proxy.settings.kind_name(), proxy.settings.name);
    let mut message = haproxy.clone();
    // In the terminal format, quoted names are in backticks.
    message = message.trim_end_matches('.').replace('\'', "`");
    context
        .diagnostics
        .push(Diagnostic::warning(message).at(proxy.section.name.span()).haproxy_whole(haproxy));
}

/// The order in which rule sets are evaluated, regardless of line order: keyword, and its name with an article.
const ORDER: &[(&str, &str)] = &[
    ("tcp-request connection", "a 'tcp-request connection'"),
    ("tcp-request session", "a 'tcp-request session'"),
    ("tcp-request content", "a 'tcp-request content'"),
    ("monitor fail", "a 'monitor fail'"),
    ("http-request", "an 'http-request'"),
    ("redirect", "a 'redirect'"),
    ("use_backend", "a 'use_backend'"),
    ("use-server", "a 'use-server'"),
];

/// Warns about lines that follow others but are evaluated before them.
pub(crate) fn misplaced_rules(settings: &ProxySettings<'_>, context: &mut ResolveContext<'_>) {
    let mut seen: [Option<&Statement>; ORDER.len()] = [None; ORDER.len()];
    for statement in &settings.rules {
        let Some(level) = ORDER.iter().position(|(name, _)| *name == statement.keyword.name) else {
            continue;
        };
        let later =
            seen.iter().enumerate().skip(level + 1).find_map(|(at, seen)| Some((ORDER[at].1, (*seen)?)));
        if let Some((article, other)) = later {
            let name = statement.keyword.name;
            let family = name.split(' ').next().filter(|first| *first == "tcp-request").unwrap_or(name);
            context.diagnostics.push(
                Diagnostic::warning(format!(
                    "`{name}` is evaluated before `{}`, despite its position",
                    other.keyword.name
                ))
                .at(statement.keyword_span())
                .related(other.keyword_span(), "evaluated later")
                .haproxy(format!(
                    "a '{family}' rule placed after {article} rule will still be processed before."
                )),
            );
        }
        seen[level].get_or_insert(statement);
    }
}

/// Options that only apply to HTTP.
const ABOUT_HTTP: &[&str] = &[
    "option accept-unsafe-violations-in-http-request",
    "option accept-unsafe-violations-in-http-response",
    "option checkcache",
    "option forwarded",
    "option forwardfor",
    "option http-buffer-request",
    "option http-drop-request-trailers",
    "option http-drop-response-trailers",
    "option http-ignore-probes",
    "option http-pretend-keepalive",
    "option http-use-proxy-header",
    "option idle-close-on-response",
    "option originalto",
    "option prefer-last-server",
];

fn needs_http(proxy: &PendingProxy<'_>, rules: &CompiledRules, context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    let sets = [
        ("http-request", rules.http_request.is_empty()),
        ("http-response", rules.http_response.is_empty()),
        ("http-after-response", rules.http_after_response.is_empty()),
        ("redirect", rules.redirects.is_empty()),
    ];
    for (name, _) in sets.iter().filter(|(_, empty)| !empty) {
        warn(proxy, context, |kind, proxy| {
            format!("'{name}' rules ignored for {kind} '{proxy}' as they require HTTP mode.")
        });
    }
    let captures = !settings.request_captures.is_empty()
        || !settings.response_captures.is_empty()
        || settings.cookie_capture.is_some();
    let front = settings.is_frontend();
    let lines = [
        ("stats", settings.stats.enabled || !rules.stats_rules.is_empty() || !rules.stats_admin.is_empty()),
        ("monitor-uri", front && settings.has_keyword("monitor-uri")),
        ("capture", front && captures),
    ];
    for (line, _) in lines.iter().filter(|(_, is_used)| *is_used) {
        warn(proxy, context, |kind, name| {
            format!("'{line}' statement ignored for {kind} '{name}' as it requires HTTP mode.")
        });
    }
    for option in ABOUT_HTTP.iter().filter(|option| settings.has_keyword(option)) {
        warn(proxy, context, |kind, name| {
            format!("'{option}' ignored for {kind} '{name}' as it requires HTTP mode.")
        });
    }
    if settings.cookie.is_some() && settings.is_backend() {
        warn(proxy, context, |kind, name| {
            format!("cookie will be ignored for {kind} '{name}' (needs 'mode http').")
        });
    }
    let http_log = match settings.log_format {
        LogFormatChoice::Http(statement) => Some((statement, "httplog")),
        LogFormatChoice::Clf(statement) => Some((statement, "httplog clf")),
        LogFormatChoice::Https(statement) => Some((statement, "httpslog")),
        _ => None,
    };
    if let Some((statement, option)) = http_log.filter(|_| settings.is_frontend()) {
        let (kind, name) = (settings.kind_name(), settings.name);
        context.diagnostics.push(
            Diagnostic::warning(format!("`option {option}` requires `mode http`: {kind} `{name}` logs as with `option tcplog`"))
                .at(statement.keyword_span())
                .haproxy(format!(
                    "'option {option}' not usable with {kind} '{name}' (needs 'mode http'). Falling back to 'option tcplog'."
                )),
        );
    }
}

fn log_format(proxy: &PendingProxy<'_>, loggers: &[Logger], context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    let chosen = !matches!(settings.log_format, LogFormatChoice::Default) || settings.log_format_sd.is_some();
    if chosen && loggers.is_empty() && settings.is_frontend() {
        warn(proxy, context, |kind, name| {
            format!("log format ignored for {kind} '{name}' since it has no log address.")
        });
    }
}

fn repeated_timeouts(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let timeouts = || proxy.section.statements.iter().filter(|one| one.keyword.name.starts_with("timeout "));
    for (at, statement) in timeouts().enumerate() {
        let name = statement.keyword.name;
        if let Some(first) = timeouts().take(at).find(|earlier| earlier.keyword.name == name) {
            context.diagnostics.push(
                Diagnostic::warning(format!("`{name}` is already set: this line is used"))
                    .at(statement.keyword_span())
                    .related(first.keyword_span(), "the first one is here")
                    .haproxy(format!("overwriting '{name}' which was already specified")),
            );
        }
    }
}

fn missing_timeouts(proxy: &PendingProxy<'_>, servers: usize, context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    let timeouts = &settings.timeouts;
    let front = settings.is_frontend() && timeouts.client.is_none();
    let no_server_timeout =
        timeouts.server.is_none() && (settings.mode == Mode::Http || timeouts.tunnel.is_none());
    let back = settings.is_backend() && servers > 0 && (timeouts.connect.is_none() || no_server_timeout);
    if !front && !back {
        return;
    }
    let (kind, name) = (settings.kind_name(), settings.name);
    let mut missing = Vec::new();
    if front {
        missing.push("`timeout client`");
    }
    if back {
        missing.extend(
            [("`timeout connect`", timeouts.connect), ("`timeout server`", timeouts.server)]
                .iter()
                .filter(|(_, set)| set.is_none())
                .map(|(text, _)| *text),
        );
    }
    context.diagnostics.push(
        Diagnostic::warning(format!("missing timeouts for {kind} `{name}`"))
            .at(proxy.section.name.span())
            .label(format!("without {}", missing.join(", ")))
            .help("without them, connections of unresponsive peers stay open forever; set them here or in `defaults`")
            .haproxy_whole(format!(
                "missing timeouts for {kind} '{name}'.\n   | While not properly invalid, you will certainly encounter various problems\n   \
                 | with such a configuration. To fix this, please ensure that all following\n   \
                 | timeouts are set to a non-zero value: 'client', 'connect', 'server'."
            )),
    );
}

/// Warns about `expose-experimental-directives` if nothing is experimental.
pub(crate) fn unneeded_experiments(context: &mut ResolveContext<'_>) {
    if context.around.is_none() && context.names.experimental && !context.names.experiments.get() {
        context.diagnostics.push(
            Diagnostic::warning("`expose-experimental-directives` is not needed")
                .help("remove it, so that no experimental directive is used by accident")
                .haproxy(
                    "Option 'expose-experimental-directives' is set in the global section but is no longer used.",
                ),
        );
    }
}
