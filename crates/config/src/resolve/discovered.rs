//! `servers from` lines (docs/discovery.md): the selector of the instances, and the prototype of the servers made of them.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use balance::BalanceSettings;
use base::address::{Destination, Host, Ports};
use diag::Diagnostic;
use plan::discovered::DiscoveredServers;
use plan::discovery::{DiscoverySection, InstanceFilter, PortChoice, SourceKind};
use plan::server::ServerSettings;
use state::Mode;
use syntax::Word;

use crate::draft::Statement;
use crate::draft::args::Args;
use crate::draft::server::ServerDraft;
use crate::draft::settings::DefaultServers;
use crate::resolve::server_line::ServerLine;
use crate::resolve::{PendingProxy, ResolveContext, discovery};
use crate::tables::server::{origin, parse_params};
use crate::tables::server_address::ServerPlace;

/// A line without the parameters of its servers.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveredDraft {
    section: Arc<DiscoverySection>,
    /// The subject of the list.
    query: String,
    filter: InstanceFilter,
    max: usize,
    prefer_zone: Option<Box<str>>,
    span: diag::Span,
}

/// The number of servers, unless `max` sets another.
const DEFAULT_MAX: usize = 1000;
/// The largest `max`.
const LARGEST_MAX: usize = 100_000;

/// Parameters that belong to one machine, or to its name, with the reason why discovered servers cannot have them.
const NOT_SHARED: [(&str, &str); 9] = [
    ("cookie", "all servers would have the same value: use `cookie <name> dynamic` and `dynamic-cookie-key`"),
    ("disabled", "whether an instance is in service is decided by the source"),
    ("guid", "it would not be unique"),
    ("id", "it would not be unique"),
    ("init-addr", "the source provides the addresses"),
    ("redir", "it names one server"),
    ("resolvers", "the source provides the addresses"),
    ("shard", "it is only for `peers` sections"),
    ("track", "use `check`"),
];

/// Parses a line. Returns the prototype of its servers, unless the section that it names has errors.
pub(crate) fn line<'a>(
    proxy: &PendingProxy<'a>,
    statement: &'a Statement,
    defaults: &DefaultServers<'a>,
    context: &mut ResolveContext<'_>,
) -> Result<Option<(ServerLine<'a>, DiscoveredDraft)>, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.required("the name of a `discovery` section")?;
    let selected = word;
    if !matches!(proxy.settings.mode, Mode::Http | Mode::Tcp | Mode::Udp) {
        let mode = proxy.settings.mode.name();
        return Err(Diagnostic::alert(format!("`servers from` cannot be used in `mode {mode}`"))
            .at(statement.keyword_span())
            .help("use it in `mode http`, in `mode tcp`, or in a `udp-lb` section"));
    }
    let Some(section) = discovery::find(word, context)? else { return Ok(None) };
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    args.next();
    let draft = selector(section, &mut args)?;
    let origin = origin(&mut args, proxy.settings.name, defaults)?;
    let mut own = origin.unwrap_or_else(|| defaults.unnamed.as_ref().clone());
    clear(&mut own);
    let parameters = args.remaining();
    parse_params(&mut own, &mut args, &format!("servers from {}/{word}", proxy.settings.name))?;
    refuse(&own, parameters)?;
    // The address of a prototype is never used. It is one for documentation (RFC 5737).
    let host = Host::Ip(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let place = ServerPlace {
        place: Destination::Ip { host, ports: Ports::One(1) },
        port_offset: None,
        is_datagram: false,
        is_quic: false,
    };
    let line = ServerLine {
        statement,
        name: format!("from {word}").into(),
        name_word: selected,
        address_word: selected,
        place: Rc::new(place),
        draft: own,
    };
    Ok(Some((line, draft)))
}

/// Clears the parameters that several servers cannot share, which `default-server` may have set for others.
fn clear(draft: &mut ServerDraft<'_>) {
    draft.cookie = None;
    draft.disabled = false;
    draft.guid = None;
    draft.id = None;
    draft.init_addr = Vec::new();
    draft.redirect = None;
    draft.resolvers = None;
    draft.shard = 0;
    draft.track = None;
}

/// Refuses, in the line itself, the parameters that several servers cannot share.
fn refuse(draft: &ServerDraft<'_>, parameters: &[Word]) -> Result<(), Diagnostic> {
    let is_set = |name: &str| match name {
        "cookie" => draft.cookie.is_some(),
        "disabled" => draft.disabled,
        "guid" => draft.guid.is_some(),
        "id" => draft.id.is_some(),
        "init-addr" => !draft.init_addr.is_empty(),
        "redir" => draft.redirect.is_some(),
        "resolvers" => draft.resolvers.is_some(),
        "shard" => draft.shard != 0,
        _ => draft.track.is_some(),
    };
    let Some((name, why)) = NOT_SHARED.iter().find(|(name, _)| is_set(name)) else { return Ok(()) };
    let place = parameters.iter().find(|word| word.as_str() == *name).or(parameters.first());
    let error = Diagnostic::alert(format!("`{name}` cannot be used for discovered servers")).help(*why);
    Err(match place {
        Some(word) => error.at(word.span()),
        None => error,
    })
}

/// Parses the words that select instances.
fn selector(section: Arc<DiscoverySection>, args: &mut Args<'_, '_>) -> Result<DiscoveredDraft, Diagnostic> {
    let kind = section.kind;
    let span = args.statement.span;
    let filter = InstanceFilter::default();
    let mut draft =
        DiscoveredDraft { section, query: String::new(), filter, max: DEFAULT_MAX, prefer_zone: None, span };
    let (mut subject, mut namespace) = (None, None);
    while let Some(word) = args.peek() {
        let (filter, name) = (&mut draft.filter, word.as_str());
        // Servers have a parameter of that name too.
        if !SELECTORS.contains(&name) || name == "namespace" && kind != SourceKind::Nomad {
            break;
        }
        if !applies(name, kind) {
            return Err(Diagnostic::alert(format!("`{name}` does not apply to a `{}` source", kind.name()))
                .at(word.span())
                .help(help(kind)));
        }
        args.next();
        match name {
            "label" => {
                let pair = args.required("<name>=<value>")?;
                filter.labels.push(label(pair, args)?);
            }
            "max" => draft.max = args.integer("a number of servers", 1, LARGEST_MAX)?,
            "namespace" => namespace = Some(args.required("a namespace")?),
            "port" => filter.port = Some(port(args.required("a port")?)),
            "prefer-zone" => draft.prefer_zone = Some(args.required("a zone")?.as_str().into()),
            "prefix" => subject = Some(args.required("a prefix of keys")?),
            "service" => subject = Some(args.required("a service")?),
            "tag" => filter.labels.push(("tag".into(), args.required("a tag")?.as_str().into())),
            _ => filter.zone = Some(args.required("a zone")?.as_str().into()),
        }
    }
    draft.query = query(kind, subject, namespace, args)?;
    Ok(draft)
}

/// The words that select instances.
const SELECTORS: [&str; 9] =
    ["label", "max", "namespace", "port", "prefer-zone", "prefix", "service", "tag", "zone"];

/// Whether a selector applies to a kind of source.
fn applies(selector: &str, kind: SourceKind) -> bool {
    match selector {
        "service" => matches!(kind, SourceKind::Kubernetes | SourceKind::Consul | SourceKind::Nomad),
        "tag" => matches!(kind, SourceKind::Consul | SourceKind::Nomad),
        "namespace" => kind == SourceKind::Nomad,
        "prefix" => kind == SourceKind::Etcd,
        _ => true,
    }
}

/// How the list of a source is selected.
fn help(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Kubernetes => "use `service <namespace>/<name>`",
        SourceKind::Consul => "use `service <name>`",
        SourceKind::Nomad => "use `service <name>`, and `namespace <name>` if it is not the default one",
        SourceKind::Etcd => "use `prefix <prefix>`, such as `prefix /services/web/`",
        SourceKind::Targets | SourceKind::Docker | SourceKind::Podman => {
            "use `label <name>=<value>` and `port <port>`"
        }
    }
}

/// The subject of the list that a line needs.
fn query(
    kind: SourceKind,
    subject: Option<&Word>,
    namespace: Option<&Word>,
    args: &Args<'_, '_>,
) -> Result<String, Diagnostic> {
    if matches!(kind, SourceKind::Targets | SourceKind::Docker | SourceKind::Podman) {
        return Ok(String::new());
    }
    let missing = || {
        let what = if kind == SourceKind::Etcd { "prefix" } else { "service" };
        Diagnostic::alert(format!("`{what}` is missing")).at(args.statement.keyword_span()).help(help(kind))
    };
    let word = subject.filter(|word| !word.is_empty()).ok_or_else(missing)?;
    let is_name = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !text.is_empty() && text.len() <= 253 && text.bytes().all(fits)
    };
    let wrong = |word: &Word| {
        Err(Diagnostic::alert(format!("invalid name `{word}`"))
            .at(word.span())
            .help("a name can contain letters, digits, `-`, `_` and `.`"))
    };
    match kind {
        SourceKind::Kubernetes => match word.split_once('/') {
            Some((namespace, service)) if is_name(namespace) && is_name(service) => Ok(word.to_string()),
            _ => Err(Diagnostic::alert(format!("`{word}` is not `<namespace>/<name>`"))
                .at(word.span())
                .help(help(kind))),
        },
        SourceKind::Etcd => Ok(word.to_string()),
        _ if !is_name(word) => wrong(word),
        SourceKind::Nomad => match namespace {
            Some(namespace) if !is_name(namespace) => wrong(namespace),
            Some(namespace) => Ok(format!("{namespace}/{word}")),
            None => Ok(word.to_string()),
        },
        _ => Ok(word.to_string()),
    }
}

fn label(pair: &Word, args: &Args<'_, '_>) -> Result<(Box<str>, Box<str>), Diagnostic> {
    match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(args
            .wrong(format!("`{pair}` is not `<name>=<value>`"))
            .help("use, for example, `label env=prod`")),
    }
}

fn port(word: &Word) -> PortChoice {
    match word.parse().ok().filter(|port| *port > 0) {
        Some(port) => PortChoice::Number(port),
        None => PortChoice::Name(word.as_str().into()),
    }
}

/// Builds the lines of a backend from their prototypes.
pub(crate) fn lines(
    proxy: &PendingProxy<'_>,
    drafts: Vec<DiscoveredDraft>,
    prototypes: Vec<Arc<ServerSettings>>,
    balance: &BalanceSettings,
    context: &mut ResolveContext<'_>,
) -> Vec<Arc<DiscoveredServers>> {
    if let Some(draft) = drafts.first()
        && !balance.algorithm.is_dynamic(balance.hash)
    {
        context.diagnostics.push(
            Diagnostic::alert(format!(
                "the load balancing algorithm of backend `{}` does not allow servers to be added",
                proxy.settings.name
            ))
            .at(draft.span)
            .help("use `balance roundrobin`, `leastconn`, `random`, or a hash with `hash-type consistent`"),
        );
        return Vec::new();
    }
    let former = |name: &str, query: &str| {
        let mut sections = context.previous?.discovery.iter();
        let section = sections.find(|section| *section.state.name == *name)?;
        let feed = section.state.feeds().into_iter().find(|feed| *feed.query == *query)?;
        feed.list().map(|list| list.to_vec())
    };
    let line = |(number, (draft, prototype)): (usize, (DiscoveredDraft, Arc<ServerSettings>))| {
        let DiscoveredDraft { section, query, filter, max, prefer_zone, .. } = draft;
        let feed = section.state.feed(&query);
        // If only the source has changed, its last list remains until the new one answers.
        if let Some(list) = former(&section.state.name, &query) {
            feed.restore(list);
        }
        let prototype = prototype.as_ref().clone();
        let (excess, count) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(DiscoveredServers {
            number,
            section,
            feed,
            filter,
            max,
            prefer_zone,
            prototype,
            excess,
            count,
        })
    };
    drafts.into_iter().zip(prototypes).enumerate().map(line).collect()
}
