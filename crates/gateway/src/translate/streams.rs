//! Translates TLS, TCP and UDP routes.

use crate::api::{BackendRef, StreamRouteSpec};
use crate::objects::Key;
use crate::status::StatusCondition;
use crate::text::{Text, line};

use super::attach::{Attachment, Route};
use super::backends::{Backend, BackendMember, Backends};
use super::context::Context;
use super::hostnames::{covers, specificity};
use super::resolve::{self, Unresolved};

/// A route with the listeners to which it is attached.
pub(crate) struct StreamAttached<'a> {
    /// The rank among routes of a listener: the creation time, then the name.
    pub(crate) age: (&'a str, &'a Key),
    pub(crate) destination: StreamDestination,
    pub(crate) attachments: Vec<Attachment>,
}

/// The destination of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StreamDestination {
    /// The backend. Without one, connections are refused.
    pub(crate) backend: Option<String>,
    /// The weight of unresolved references among all weights: their share of connections is refused.
    pub(crate) refused: (u64, u64),
}

/// Compiles the first rule of a route, which is the only one that can be reached, and returns the conditions for its status.
pub(crate) fn lower<'a>(
    context: &mut Context<'a>,
    backends: &mut Backends<'a>,
    route: Route<'a>,
    gateways: &[&Key],
    spec: &StreamRouteSpec,
) -> (StreamDestination, Vec<StatusCondition>) {
    let references = spec.rules.first().map_or(&[][..], |rule| &rule.backend_refs);
    let (mut members, mut error) = (Vec::new(), None);
    let (mut refused, mut total) = (0, 0);
    let mut parameters: Option<String> = None;
    for reference in references {
        let weight = u64::try_from(reference.weight.unwrap_or(1)).unwrap_or_default().min(1_000_000);
        total += weight;
        match member(context, route, gateways, reference) {
            Ok((Some(server), member)) if parameters.as_ref().is_none_or(|own| *own == server) => {
                parameters = Some(server);
                members.push(BackendMember { weight, ..member });
            }
            Ok(_) => refused += weight,
            Err(unresolved) => {
                refused += weight;
                error.get_or_insert(unresolved);
            }
        }
    }
    let is_used = members.iter().any(|member| member.weight > 0);
    let server = parameters.unwrap_or_default();
    let backend =
        is_used.then(|| backends.add(Backend { is_http: false, members, server, lines: Vec::new() }));
    let resolved = match error {
        Some(error) => {
            context.warn(route.kind, route.key, error.reason, error.message.clone());
            error.condition()
        }
        None => StatusCondition::yes("ResolvedRefs", "ResolvedRefs"),
    };
    (StreamDestination { backend, refused: (refused, total) }, vec![resolved])
}

/// The service of a reference with the parameters of its servers: nothing if a policy is invalid.
fn member<'a>(
    context: &mut Context<'a>,
    route: Route<'_>,
    gateways: &[&Key],
    reference: &BackendRef,
) -> Result<(Option<String>, BackendMember<'a>), Unresolved> {
    let (service, port) = resolve::service(context, route, reference)?;
    let mut server = Some(String::new());
    if route.kind != "UDPRoute" {
        for gateway in gateways {
            context.policies.note_user(&service.key, gateway);
        }
        server = match context.policies.server(&service.key, &port.name) {
            Ok(own) => Some(own.unwrap_or_default().to_string()),
            Err(()) => None,
        };
    }
    Ok((server, BackendMember { service, port, weight: 1 }))
}

/// The route that gets the traffic of a listener: the oldest one.
fn oldest<'r, 'a>(
    routes: &'r [StreamAttached<'a>],
    listener: usize,
) -> Option<(&'r StreamAttached<'a>, &'r Attachment)> {
    let attached = routes
        .iter()
        .filter_map(|route| Some((route, route.attachments.iter().find(|it| it.listener == listener)?)));
    attached.min_by_key(|(route, _)| route.age)
}

/// Writes the frontend of a TCP listener.
pub(crate) fn write_tcp(
    text: &mut Text,
    name: &str,
    address: &str,
    listener: usize,
    routes: &[StreamAttached<'_>],
) {
    text.section("frontend", name);
    line!(text, "bind {address}");
    text.line("mode tcp");
    let destination =
        oldest(routes, listener).map(|(route, _)| route.destination.clone()).unwrap_or_default();
    let (refused, total) = destination.refused;
    match destination.backend {
        Some(backend) => {
            if refused > 0 {
                line!(text, "tcp-request content reject if {{ rand({total}) lt {refused} }}");
            }
            line!(text, "default_backend {backend}");
        }
        None => text.line("tcp-request connection reject"),
    }
}

/// Writes the section of a UDP listener, unless it has no servers.
pub(crate) fn write_udp(
    text: &mut Text,
    name: &str,
    address: &str,
    listener: usize,
    routes: &[StreamAttached<'_>],
) {
    let destination = oldest(routes, listener).map(|(route, _)| route.destination.clone());
    let Some(StreamDestination { backend: Some(backend), refused: (refused, total) }) = destination else {
        return;
    };
    text.section("udp-lb", name);
    line!(text, "dgram-bind {address}");
    if refused > 0 {
        line!(text, "udp-request reject if {{ rand({total}) lt {refused} }}");
    }
    line!(text, "default_backend {backend}");
}

/// The destinations of TLS connections by their server names.
#[derive(Debug, Default)]
pub(crate) struct ServerNames {
    /// The listeners with their hostnames, the most specific ones first.
    listeners: Vec<(usize, String)>,
    entries: Vec<(String, StreamDestination)>,
}

impl ServerNames {
    /// Destinations for listeners with these hostnames.
    pub(crate) fn new(mut listeners: Vec<(usize, String)>) -> Self {
        listeners.sort_by(|one, other| specificity(&one.1).cmp(&specificity(&other.1)));
        Self { listeners, entries: Vec::new() }
    }

    /// Sets the destination for a server name, unless it has one or belongs to another listener.
    pub(crate) fn add(&mut self, listener: usize, name: &str, destination: StreamDestination) {
        let owner = self.listeners.iter().find(|(_, own)| covers(own, name)).map(|(listener, _)| *listener);
        if owner == Some(listener) && self.entries.iter().all(|(own, _)| own != name) {
            self.entries.push((name.into(), destination));
        }
    }

    /// Adds the routes of a listener.
    pub(crate) fn add_routes(&mut self, listener: usize, routes: &[StreamAttached<'_>]) {
        let mut own: Vec<(&StreamAttached<'_>, &Attachment)> = routes
            .iter()
            .filter_map(|route| Some((route, route.attachments.iter().find(|it| it.listener == listener)?)))
            .collect();
        own.sort_by_key(|(route, _)| route.age);
        for (route, attachment) in own {
            for name in &attachment.hostnames {
                self.add(listener, name, route.destination.clone());
            }
        }
    }

    /// Writes the rules that choose the backend by the server name that `fetch` yields. Other connections are refused.
    pub(crate) fn write(mut self, context: &mut Context<'_>, text: &mut Text, name: &str, fetch: &str) {
        for (listener, host) in self.listeners.clone() {
            // Names of a listener without a route are not passed on to listeners with less specific names.
            self.add(listener, &host, StreamDestination::default());
        }
        self.entries.sort_by(|one, other| one.0.cmp(&other.0));
        let value = |number: usize, destination: &StreamDestination| {
            if destination.backend.is_some() { number.to_string() } else { "-".into() }
        };
        let (mut exact, mut wildcards, mut default) = (String::new(), Vec::new(), None);
        for (number, (host, destination)) in self.entries.iter().enumerate() {
            let value = value(number, destination);
            match host.strip_prefix('*') {
                Some(suffix) => wildcards.push((suffix.to_string(), value)),
                None if host.is_empty() => default = Some(value),
                None => exact.push_str(&format!("{host} {value}\n")),
            }
        }
        let unless = "unless { var(txn.route) -m found }";
        if !exact.is_empty() {
            let path = context.add_map(&format!("{name}-names"), exact);
            line!(text, "tcp-request content set-var(txn.route) {fetch},lower,map_str({path})");
        }
        if !wildcards.is_empty() {
            let path = context.add_suffix_map(&format!("{name}-suffixes"), wildcards);
            line!(text, "tcp-request content set-var(txn.route) {fetch},lower,map_end({path}) {unless}");
        }
        if let Some(value) = default {
            line!(text, "tcp-request content set-var(txn.route) str({value}) {unless}");
        }
        line!(text, "tcp-request content reject {unless}");
        text.line("tcp-request content jump 'route:%[var(txn.route)]'");
        text.line("tcp-request content reject");
        for (number, (_, destination)) in self.entries.iter().enumerate() {
            let StreamDestination { backend: Some(backend), refused: (refused, total) } = destination else {
                continue;
            };
            line!(text, "tcp-request content label route:{number}");
            if *refused > 0 {
                line!(text, "tcp-request content reject if {{ rand({total}) lt {refused} }}");
            }
            line!(text, "tcp-request content set-var(txn.backend) str({backend})");
            text.line("tcp-request content accept");
        }
        text.line("use_backend %[var(txn.backend)]");
    }
}
