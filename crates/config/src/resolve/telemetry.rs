//! `opentelemetry` sections (docs/opentelemetry.md), and the references to them (`trace-to`, `log otel@…`).

use std::net::IpAddr;
use std::sync::Arc;

use base::address::Host;
use diag::Diagnostic;
use otlp::{ResourceAttributes, SampleRatio};
use plan::Proxy;
use plan::global::LatencyHistograms;
use plan::log::{LogTarget, Logger};
use plan::telemetry::{OtlpEndpoint, TelemetrySection, TraceSettings};
use sample::format::{Format, FormatFor};
use sample::{Acls, Place};
use state::Mode;
use state::telemetry::Collector;
use syntax::Word;
use tls::{Connecting, Connector, Trust, load};

use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::telemetry::TelemetryDraft;
use crate::draft::tls::TlsValue;
use crate::draft::{Draft, Section, SectionKind};
use crate::resolve::rules::scope;
use crate::resolve::tls_files::{certificate, located};
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext};
use crate::system::resolve_host;

/// The schemes of endpoints: whether they use gRPC, whether they use TLS, and the default port.
const SCHEMES: [(&str, bool, bool, u16); 4] = [
    ("http", false, false, 4318),
    ("https", false, true, 443),
    ("grpc", true, false, 4317),
    ("grpcs", true, true, 443),
];

/// The name of the program in resources and scopes.
const PROGRAM: &str = "weir";

/// Builds every section, or uses those of the plan that is being extended. Formats may refer to anything that is available in
/// HTTP mode.
pub(crate) fn sections(draft: &Draft, context: &mut ResolveContext<'_>) {
    if let Some(around) = context.around {
        context.names.telemetry = around.telemetry();
        return;
    }
    let mut seen: Vec<&Section> = Vec::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::OpenTelemetry) {
        if let Some(other) = seen.iter().find(|other| *other.name == *section.name) {
            let haproxy = |name: &str, place: &str| {
                format!("opentelemetry section '{name}' already declared at {place}.")
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        seen.push(section);
        context.enter(section);
        let mut own = TelemetryDraft::default();
        for statement in &section.statements {
            if let Apply::Telemetry(read) = apply_of(statement) {
                let mut args = Args::new(statement, context.diagnostics, context.environment);
                let outcome = read(&mut own, &mut args);
                context.note(outcome);
            }
        }
        match make(section, &own, context) {
            Ok(made) => context.names.telemetry.push(Arc::new(made)),
            Err(error) => {
                context.names.refused_telemetry.insert(section.name.as_str().into());
                context.diagnostics.push(error);
            }
        }
    }
    let exports_metrics = context.names.telemetry.iter().any(|section| section.metrics_interval.is_some());
    let global = &mut context.global;
    global.counts_by_attributes = exports_metrics;
    global.counts_only_classic = !exports_metrics && global.latency_histograms == LatencyHistograms::On;
}

fn make(
    section: &Section,
    draft: &TelemetryDraft<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<TelemetrySection, Diagnostic> {
    let name = &section.name;
    let word = draft.endpoint.ok_or_else(|| {
        Diagnostic::alert(format!("opentelemetry section `{name}` has no `endpoint`"))
            .at(section.keyword.span().to(name.span()))
            .help("use `endpoint http://<host>:4318` for OTLP over HTTP, or `endpoint grpc://<host>:4317` for gRPC")
    })?;
    let endpoint = endpoint(word, draft, context)?;
    check_headers(draft)?;
    let connector = if endpoint.is_tls { Some(connector(word, &endpoint, draft, context)?) } else { None };
    if let (false, Some(line)) = (endpoint.is_tls, without_tls(draft)) {
        return Err(Diagnostic::alert(format!(
            "TLS settings require a URL with TLS, but the endpoint is `{word}`"
        ))
        .at(line)
        .help("use `https://` or `grpcs://` in `endpoint`, or remove this line"));
    }
    let resolvers = match draft.resolvers {
        None => None,
        Some(word) => {
            let found = context.names.resolvers.iter().find(|one| *one.state.name == **word);
            Some(found.map(|one| one.state.clone()).ok_or_else(|| {
                let known = context.names.resolvers.iter().map(|one| &*one.state.name);
                Diagnostic::alert(format!("there is no resolvers section `{word}`"))
                    .at(word.span())
                    .did_you_mean(diag::suggest(word, known))
                    .help(format!("define it with a section `resolvers {word}`"))
            })?)
        }
    };
    let mut attributes = Vec::new();
    for (name, format) in &draft.attributes {
        let acls = Acls::default();
        let scope = scope(context, &acls, None, Mode::Http, Place::Log);
        let format = Format::compile(format, format.span(), &scope, FormatFor::Text)?;
        attributes.push((name.as_str().into(), format));
    }
    Ok(TelemetrySection {
        collector: collector(name, draft, context),
        endpoint,
        headers: draft
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect(),
        gzip: draft.gzip,
        connect_timeout: draft.connect_timeout,
        server_timeout: draft.server_timeout,
        resolvers,
        connector,
        verifies: draft.verify.is_none_or(|(verify, _)| verify),
        resource: resource(draft),
        batch_size: draft.batch_size,
        interval: draft.interval,
        metrics_interval: draft.metrics_interval,
        tracing: TraceSettings {
            ratio: SampleRatio::new(draft.ratio),
            parent: draft.parent,
            keeps_errors: draft.keeps_errors,
            keeps_slower_than: draft.keeps_slower_than.map(|time| time.as_micros() as u64),
            has_query: draft.has_query,
            attributes,
        },
    })
}

/// The state of a section, carried over from the previous plan with its queues and counters.
fn collector(name: &str, draft: &TelemetryDraft<'_>, context: &ResolveContext<'_>) -> Arc<Collector> {
    let former = context.previous.map_or(&[][..], |plan| &plan.telemetry);
    match former.iter().find(|section| *section.collector.name == *name) {
        Some(section) => {
            section.collector.set_limits(draft.queue_size, draft.batch_size);
            section.collector.clone()
        }
        None => Arc::new(Collector::new(name, draft.queue_size, draft.batch_size)),
    }
}

/// Returns the attributes of the resource: the default ones that no line sets, and those that lines set.
fn resource(draft: &TelemetryDraft<'_>) -> ResourceAttributes {
    let version = env!("CARGO_PKG_VERSION");
    let host = String::from_utf8_lossy(sample::fetch::hostname());
    let defaults = [
        ("service.name", PROGRAM),
        ("service.version", version),
        ("host.name", &*host),
        ("process.runtime.name", PROGRAM),
    ];
    let is_set = |name: &str| draft.resource.iter().any(|(own, _)| **own == *name);
    let defaults = defaults.into_iter().filter(|(name, _)| !is_set(name));
    let own = draft.resource.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    ResourceAttributes::new(defaults.chain(own), (PROGRAM, version))
}

fn endpoint(
    word: &Word,
    draft: &TelemetryDraft<'_>,
    context: &ResolveContext<'_>,
) -> Result<OtlpEndpoint, Diagnostic> {
    let wrong = |what: &str| {
        Diagnostic::alert(format!("invalid endpoint `{word}`: {what}"))
            .at(word.span())
            .help("use a URL such as `http://127.0.0.1:4318` or `grpcs://collector.example.com:4317`")
    };
    let (scheme, rest) = word.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
    let known = SCHEMES.iter().find(|known| known.0.eq_ignore_ascii_case(scheme));
    let &(_, is_grpc, is_tls, port) = known.ok_or_else(|| {
        wrong(&format!("unknown scheme `{scheme}`"))
            .did_you_mean(diag::suggest(scheme, SCHEMES.iter().map(|known| known.0)))
    })?;
    let at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = (&rest[..at], rest[at..].trim_end_matches('/'));
    if !path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')) {
        return Err(wrong("the path may not contain blanks, a query or a fragment"));
    }
    if is_grpc && !path.is_empty() {
        return Err(wrong("a gRPC endpoint has no path"));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inside) => {
            let (host, behind) = inside.split_once(']').ok_or_else(|| wrong("`]` is missing"))?;
            (host, if behind.is_empty() { Some(port) } else { behind.strip_prefix(':').and_then(number) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, number(port)),
            None => (authority, Some(port)),
        },
    };
    let port = port.ok_or_else(|| wrong("the port must be a number from 1 to 65535"))?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let ip: Option<IpAddr> = host.parse().ok();
    if ip.is_none() && (host.is_empty() || host.len() > 253 || !host.bytes().all(fits)) {
        return Err(wrong("a host name can contain letters, digits, `-`, `_` and `.`"));
    }
    let address = match (ip, draft.resolvers) {
        (Some(ip), _) => Some(ip),
        (None, Some(_)) => None,
        (None, None) => {
            let name = Host::Name { name: host.to_owned(), family: None };
            match resolve_host(&name) {
                Ok(ip) => Some(ip),
                Err(_) if context.setting.ignore_resolution_failures => None,
                Err(error) => {
                    return Err(Diagnostic::alert(format!(
                        "cannot resolve the collector's name `{host}`: {error}"
                    ))
                    .at(word.span())
                    .help("use an IP address, or `resolve-with <section>` to resolve the name at run time"));
                }
            }
        }
    };
    Ok(OtlpEndpoint { is_grpc, is_tls, host: host.into(), address, port, path: path.into() })
}

fn number(digits: &str) -> Option<u16> {
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
        .filter(|port| *port > 0)
}

/// Headers that the exporter sets itself.
const OWN_HEADERS: [&str; 6] =
    ["content-type", "content-length", "content-encoding", "host", "connection", "te"];

fn check_headers(draft: &TelemetryDraft<'_>) -> Result<(), Diagnostic> {
    for (name, value) in &draft.headers {
        let wrong = |word: &Word, what: String| Err(Diagnostic::alert(what).at(word.span()));
        if !http::is_token(name.as_bytes()) {
            return wrong(name, format!("`{name}` is not a valid header name"));
        }
        if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return wrong(name, format!("header `{name}` is set by Weir and cannot be changed"));
        }
        if !value.as_str().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return wrong(value, format!("the value of header `{name}` is not printable ASCII"));
        }
    }
    Ok(())
}

/// The first line that requires TLS.
fn without_tls(draft: &TelemetryDraft<'_>) -> Option<diag::Span> {
    let files = [draft.ca_file, draft.certificate].into_iter().flatten().map(|word| word.span);
    files.chain(draft.verify.map(|(_, word)| word.span())).next()
}

fn connector(
    word: &Word,
    endpoint: &OtlpEndpoint,
    draft: &TelemetryDraft<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Arc<Connector>, Diagnostic> {
    let verifies = draft.verify.is_none_or(|(verify, _)| verify);
    let trust = if verifies { Some(Arc::new(trust(word, draft.ca_file, context)?)) } else { None };
    let defaults = context.tls.clone();
    let certificate = match draft.certificate {
        Some(word) => Some(certificate(word, &defaults, context)?),
        None => None,
    };
    let alpn = if endpoint.is_grpc { vec![Box::from(*b"h2")] } else { Vec::new() };
    let connecting = Connecting { trust, certificate, alpn, sessions: 1, ..Connecting::default() };
    let connector = Connector::new(&connecting).map_err(|error| Diagnostic::alert(error).at(word.span()))?;
    let connector = Arc::new(connector);
    context.tls_files.all.add_server(&connector);
    Ok(connector)
}

fn trust(word: &Word, file: Option<TlsValue<'_>>, context: &ResolveContext<'_>) -> Result<Trust, Diagnostic> {
    let path = match &file {
        Some(file) => located(context.tls.authorities, file, context),
        None => "@system-ca".to_owned(),
    };
    let parts = load::authorities(&path).map_err(|error| {
        Diagnostic::alert(format!("cannot verify the collector's certificate: {error}"))
            .at(file.map_or(word.span(), |file| file.span))
            .help("use `ca-file <file>` to set the trusted CAs, or `verify none` to disable verification")
    })?;
    Ok(Trust { authorities: parts.certificates, crls: parts.crls, ..Trust::default() })
}

/// Warns about sections that nothing is sent to.
pub(crate) fn check_use(draft: &Draft, proxies: &[Arc<Proxy>], context: &mut ResolveContext<'_>) {
    let is_logged_to = |loggers: &[Logger], section: &TelemetrySection| {
        loggers.iter().any(|logger| {
            matches!(&logger.target, LogTarget::Collector(own) if Arc::ptr_eq(own, &section.collector))
        })
    };
    for section in &context.names.telemetry {
        let is_used = section.metrics_interval.is_some()
            || is_logged_to(&context.global.loggers, section)
            || proxies.iter().any(|proxy| {
                proxy.trace_to.as_ref().is_some_and(|own| Arc::ptr_eq(own, section))
                    || is_logged_to(&proxy.loggers, section)
            });
        let name = &section.collector.name;
        let mut written = draft.sections.iter().filter(|one| one.kind == SectionKind::OpenTelemetry);
        if !is_used && let Some(written) = written.find(|one| *one.name == **name) {
            context.diagnostics.push(
                Diagnostic::warning(format!("nothing is exported to the opentelemetry section `{name}`"))
                    .at(written.name.span())
                    .help(format!("use `trace-to {name}`, `log otel@{name} <facility>` or `metrics-interval <time>`, or remove the section")),
            );
        }
    }
}

/// Returns the section with that name. `None` if it has errors, which were reported.
///
/// # Errors
/// No section has that name.
pub(crate) fn find(
    name: &str,
    span: diag::Span,
    context: &ResolveContext<'_>,
) -> Result<Option<Arc<TelemetrySection>>, Diagnostic> {
    let known = &context.names.telemetry;
    match known.iter().find(|section| *section.collector.name == *name) {
        Some(section) => Ok(Some(section.clone())),
        None if context.names.refused_telemetry.contains(name) => Ok(None),
        None => Err(Diagnostic::alert(format!("there is no opentelemetry section `{name}`"))
            .at(span)
            .did_you_mean(diag::suggest(name, known.iter().map(|section| &*section.collector.name)))
            .help(format!("define it with a section `opentelemetry {name}`"))),
    }
}

/// `trace-to` of a frontend.
pub(crate) fn of_frontend(
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<Arc<TelemetrySection>> {
    let word = proxy.settings.trace_to.filter(|_| proxy.settings.is_frontend())?;
    match find(word, word.span(), context) {
        Ok(found) => found,
        Err(error) => {
            context.diagnostics.push(error);
            None
        }
    }
}
