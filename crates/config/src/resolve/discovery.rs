//! `discovery` sections (docs/discovery.md).

use std::sync::Arc;
use std::time::Duration;

use diag::Diagnostic;
use plan::Proxy;
use plan::discovery::{DiscoverySection, SourceKind, SourcePlace, SourceUrl};
use state::discovery::DiscoverySource;
use syntax::Word;
use tls::{Connecting, Connector, Trust, load};

use crate::draft::args::Args;
use crate::draft::discovery::{DiscoveryDraft, SourceDraft};
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::{Draft, Section, SectionKind};
use crate::resolve::ResolveContext;
use crate::resolve::tls_files::{certificate, located};
use crate::resolve::unique::second;

/// The time between two requests, unless `refresh` sets another.
const REFRESH: Duration = Duration::from_secs(5);

/// Builds every section, or uses those of the plan that is being extended.
pub(crate) fn sections(draft: &Draft, context: &mut ResolveContext<'_>) {
    if let Some(around) = context.around {
        context.names.discovery = around.discovery();
        return;
    }
    let mut seen: Vec<&Section> = Vec::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Discovery) {
        if let Some(other) = seen.iter().find(|other| *other.name == *section.name) {
            let haproxy =
                |name: &str, place: &str| format!("discovery section '{name}' already declared at {place}.");
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        seen.push(section);
        context.enter(section);
        let mut own = DiscoveryDraft::default();
        let before = context.diagnostics.error_count();
        for statement in &section.statements {
            if let Apply::Discovery(read) = apply_of(statement) {
                let mut args = Args::new(statement, context.diagnostics, context.environment);
                let outcome = read(&mut own, &mut args);
                context.note(outcome);
            }
        }
        let made = match &own.source {
            _ if context.diagnostics.error_count() > before => None,
            Some(source) => {
                make(section, source, context).map_err(|error| context.diagnostics.push(error)).ok()
            }
            None => {
                let place = section.keyword.span().to(section.name.span());
                context.diagnostics.push(
                    Diagnostic::alert(format!("discovery section `{}` has no source", section.name))
                        .at(place)
                        .help("use a line such as `targets <file>`"),
                );
                None
            }
        };
        match made {
            Some(made) => context.names.discovery.push(Arc::new(made)),
            None => drop(context.names.refused_discovery.insert(section.name.as_str().into())),
        }
    }
}

fn make(
    section: &Section,
    draft: &SourceDraft<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<DiscoverySection, Diagnostic> {
    let place = place(draft, context)?;
    let is_tls = matches!(&place, SourcePlace::Url(url) if url.is_tls);
    let of_tls = [draft.ca_file, draft.certificate].into_iter().flatten().map(|word| word.span);
    if !is_tls && let Some(span) = of_tls.chain(draft.verify.map(|(_, span)| span)).next() {
        return Err(Diagnostic::alert(format!(
            "TLS options require an `https` URL, but the source is `{place}`"
        ))
        .at(span)
        .help("use an `https://` URL, or remove this option"));
    }
    if let (SourcePlace::File(_) | SourcePlace::Unix(_), Some(word)) = (&place, draft.token_file) {
        return Err(Diagnostic::alert(format!("`{place}` needs no token"))
            .at(word.span())
            .help("remove `token-file`"));
    }
    let connector = if is_tls { Some(connector(draft, context)?) } else { None };
    Ok(DiscoverySection {
        state: carried(&section.name, &draft.text, context),
        kind: draft.kind,
        place,
        refresh: draft.refresh.unwrap_or(REFRESH),
        connector,
        verifies: draft.verify.is_none_or(|(verify, _)| verify),
        token_file: match draft.token_file {
            Some(word) => Some(context.names.path(word)),
            None if draft.kind == SourceKind::Kubernetes && draft.place.is_none() => Some(POD_TOKEN.into()),
            None => None,
        },
    })
}

/// The state of a section, carried over from the previous plan with its lists if the source is the same.
fn carried(name: &str, line: &str, context: &ResolveContext<'_>) -> Arc<DiscoverySource> {
    let former = context.previous.map_or(&[][..], |plan| &plan.discovery);
    let same =
        |section: &&Arc<DiscoverySection>| *section.state.name == *name && *section.state.line == *line;
    match former.iter().find(same) {
        Some(section) => section.state.clone(),
        None => Arc::new(DiscoverySource::new(name, line)),
    }
}

/// Resolves the location of a source, with the default port of its kind.
fn place(draft: &SourceDraft<'_>, context: &ResolveContext<'_>) -> Result<SourcePlace, Diagnostic> {
    let Some(word) = draft.place else { return in_pod(draft) };
    let url = |port: u16| {
        SourceUrl::parse(word, port).map_err(|what| {
            Diagnostic::alert(format!("invalid URL `{word}`: {what}"))
                .at(word.span())
                .help(format!("use a URL such as `http://127.0.0.1:{port}`"))
        })
    };
    // The path is that of the request.
    let server = |port: u16| {
        let url = url(port)?;
        match &*url.path {
            "" | "/" => Ok(SourcePlace::Url(SourceUrl { path: "".into(), ..url })),
            _ => {
                Err(Diagnostic::alert(format!("the URL `{word}` has a path, but only the server is needed"))
                    .at(word.span())
                    .help("remove the path"))
            }
        }
    };
    match draft.kind {
        SourceKind::Targets if word.contains("://") => Ok(SourcePlace::Url(url(80)?)),
        SourceKind::Targets => Ok(SourcePlace::File(context.names.path(word))),
        SourceKind::Docker | SourceKind::Podman => match word.strip_prefix("unix@") {
            Some(path) if !path.is_empty() => Ok(SourcePlace::Unix(context.names.path(path))),
            Some(_) => Err(Diagnostic::alert("the path of the UNIX socket is missing")
                .at(word.span())
                .help("use, for example, `unix@/run/docker.sock`")),
            None => server(2375),
        },
        SourceKind::Consul => server(8500),
        SourceKind::Nomad => server(4646),
        SourceKind::Etcd => server(2379),
        SourceKind::Kubernetes => server(6443),
    }
}

/// The files and variables by which a pod finds the API server.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const POD_VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// The API server of the cluster in which the process runs.
fn in_pod(draft: &SourceDraft<'_>) -> Result<SourcePlace, Diagnostic> {
    let [host, port] = POD_VARIABLES.map(|name| std::env::var(name).unwrap_or_default());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    SourceUrl::parse(&format!("https://{host}:{port}"), 443).map(SourcePlace::Url).map_err(|_| {
        let [host, port] = POD_VARIABLES;
        Diagnostic::alert(format!("the process does not run in a pod: `{host}` and `{port}` are not set"))
            .at(draft.span)
            .help("use `kubernetes https://<server>:6443 ca-file <file> token-file <file>`")
    })
}

fn connector(
    draft: &SourceDraft<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Arc<Connector>, Diagnostic> {
    let verifies = draft.verify.is_none_or(|(verify, _)| verify);
    let trust = if verifies { Some(Arc::new(trust(draft, context)?)) } else { None };
    let defaults = context.tls.clone();
    let certificate = draft.certificate.map(|word| certificate(word, &defaults, context)).transpose()?;
    let connecting = Connecting { trust, certificate, sessions: 1, ..Connecting::default() };
    let connector = Connector::new(&connecting).map_err(|error| Diagnostic::alert(error).at(draft.span))?;
    let connector = Arc::new(connector);
    context.tls_files.all.add_server(&connector);
    Ok(connector)
}

fn trust(draft: &SourceDraft<'_>, context: &ResolveContext<'_>) -> Result<Trust, Diagnostic> {
    let path = match &draft.ca_file {
        Some(file) => located(context.tls.authorities, file, context),
        None if draft.kind == SourceKind::Kubernetes && draft.place.is_none() => POD_CA.to_owned(),
        None => "@system-ca".to_owned(),
    };
    let parts = load::authorities(&path).map_err(|error| {
        Diagnostic::alert(format!("cannot verify the certificate of the source: {error}"))
            .at(draft.ca_file.map_or(draft.span, |file| file.span))
            .help("use `ca-file <file>` to set the trusted CAs, or `verify none` to disable verification")
    })?;
    Ok(Trust { authorities: parts.certificates, crls: parts.crls, ..Trust::default() })
}

/// Warns about sections that no line uses.
pub(crate) fn check_use(draft: &Draft, proxies: &[Arc<Proxy>], context: &mut ResolveContext<'_>) {
    for section in &context.names.discovery {
        let mut lines = proxies.iter().flat_map(|proxy| &proxy.discovered);
        if lines.any(|line| Arc::ptr_eq(&line.section, section)) {
            continue;
        }
        let name = &section.state.name;
        let mut written = draft.sections.iter().filter(|one| one.kind == SectionKind::Discovery);
        if let Some(written) = written.find(|one| *one.name == **name) {
            context.diagnostics.push(
                Diagnostic::warning(format!("no backend uses the discovery section `{name}`"))
                    .at(written.name.span())
                    .help(format!("use `servers from {name}` in a backend, or remove the section")),
            );
        }
    }
}

/// Returns the section with that name. `None` if it has errors, which were reported.
///
/// # Errors
/// No section has that name.
pub(crate) fn find(
    word: &Word,
    context: &ResolveContext<'_>,
) -> Result<Option<Arc<DiscoverySection>>, Diagnostic> {
    let known = &context.names.discovery;
    match known.iter().find(|section| *section.state.name == **word) {
        Some(section) => Ok(Some(section.clone())),
        None if context.names.refused_discovery.contains(word.as_str()) => Ok(None),
        None => Err(Diagnostic::alert(format!("there is no discovery section `{word}`"))
            .at(word.span())
            .did_you_mean(diag::suggest(word, known.iter().map(|section| &*section.state.name)))
            .help(format!("define it with a section `discovery {word}`"))),
    }
}
