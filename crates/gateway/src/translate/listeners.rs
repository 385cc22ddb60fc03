//! The listeners of gateways and listener sets: validation, certificates and conflicts.

use std::collections::BTreeMap;

use crate::api::{FromNamespaces, GATEWAY_GROUP, Listener, Object};
use crate::objects::Key;
use crate::status::StatusCondition;
use crate::text::is_hostname;

use super::certificates::{self, BadRef, file_name};
use super::context::Context;
use super::gateways::GatewayState;
use super::grants::Referrer;

/// The object to which a listener belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner<'a> {
    Gateway(&'a Key),
    Set(&'a Key),
}

impl<'a> Owner<'a> {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Gateway(_) => "Gateway",
            Self::Set(_) => "ListenerSet",
        }
    }

    pub(crate) fn key(self) -> &'a Key {
        match self {
            Self::Gateway(key) | Self::Set(key) => key,
        }
    }
}

/// The verification of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientVerification {
    /// The path of the authorities' file.
    pub(crate) authorities: String,
    /// Whether clients without a valid certificate are accepted.
    pub(crate) is_optional: bool,
}

/// A listener and the results of its validation.
pub(crate) struct ListenerState<'a> {
    pub(crate) owner: Owner<'a>,
    /// The gateway's index.
    pub(crate) gateway: usize,
    pub(crate) spec: &'a Listener,
    /// The hostname in lower case; empty for all.
    pub(crate) hostname: String,
    /// The kinds of routes that may be attached.
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) accepted: StatusCondition,
    pub(crate) resolved: StatusCondition,
    /// The reason and message of a conflict.
    pub(crate) conflict: Option<(&'static str, String)>,
    /// The paths of the certificates.
    pub(crate) certificates: Vec<String>,
    pub(crate) client_verification: Option<ClientVerification>,
    /// The number of routes.
    pub(crate) attached: usize,
}

impl ListenerState<'_> {
    /// Whether the listener receives traffic.
    pub(crate) fn is_served(&self) -> bool {
        let needs_certificate = self.terminates_tls() && self.certificates.is_empty();
        self.is_accepted() && !needs_certificate && (!self.kinds.is_empty() || self.resolved.is_true)
    }

    /// Whether the listener is accepted. Routes may be attached even if its references are unresolved.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted.is_true && self.conflict.is_none()
    }

    pub(crate) fn is_passthrough(&self) -> bool {
        self.spec.tls.as_ref().is_some_and(|tls| tls.mode.as_deref() == Some("Passthrough"))
    }

    pub(crate) fn terminates_tls(&self) -> bool {
        matches!(self.spec.protocol.as_str(), "HTTPS" | "TLS") && !self.is_passthrough()
    }

    /// The conditions of the listener's status.
    pub(crate) fn conditions(&self) -> Vec<StatusCondition> {
        let mut list = Vec::new();
        match &self.conflict {
            Some((reason, message)) => {
                list.push(StatusCondition::no("Accepted", reason, message));
                list.push(StatusCondition::yes("Conflicted", reason).with(message));
                list.push(StatusCondition::no("Programmed", reason, message));
            }
            None => {
                list.push(self.accepted.clone());
                list.push(StatusCondition::no("Conflicted", "NoConflicts", ""));
                list.push(if self.is_served() {
                    StatusCondition::yes("Programmed", "Programmed")
                } else {
                    let cause = if self.accepted.is_true { &self.resolved } else { &self.accepted };
                    StatusCondition::no("Programmed", "Invalid", cause.message.clone())
                });
            }
        }
        list.push(self.resolved.clone());
        list
    }
}

/// The listeners of a gateway.
pub(crate) fn of_gateway<'a>(
    context: &mut Context<'a>,
    gateways: &[GatewayState<'a>],
    index: usize,
) -> Vec<ListenerState<'a>> {
    let gateway = &gateways[index];
    let owner = Owner::Gateway(gateway.key);
    gateway.object.spec.listeners.iter().map(|spec| listener(context, gateway, index, owner, spec)).collect()
}

/// The listeners of a set that is attached to a gateway.
pub(crate) fn of_set<'a>(
    context: &mut Context<'a>,
    gateways: &[GatewayState<'a>],
    index: usize,
    set: &'a Key,
) -> Vec<ListenerState<'a>> {
    let gateway = &gateways[index];
    let objects = context.objects;
    let listeners = objects.listener_sets.get(set).map_or(&[][..], |set| &set.spec.listeners);
    listeners.iter().map(|spec| listener(context, gateway, index, Owner::Set(set), spec)).collect()
}

fn listener<'a>(
    context: &mut Context<'a>,
    gateway: &GatewayState<'a>,
    index: usize,
    owner: Owner<'a>,
    spec: &'a Listener,
) -> ListenerState<'a> {
    let possible = kinds_of(spec);
    let mut state = ListenerState {
        owner,
        gateway: index,
        spec,
        hostname: spec.hostname.as_deref().unwrap_or_default().to_ascii_lowercase(),
        kinds: possible.to_vec(),
        accepted: StatusCondition::yes("Accepted", "Accepted"),
        resolved: StatusCondition::yes("ResolvedRefs", "ResolvedRefs"),
        conflict: None,
        certificates: Vec::new(),
        client_verification: None,
        attached: 0,
    };
    if possible.is_empty() {
        let message =
            format!("protocol `{}` is not supported; use HTTP, HTTPS, TLS, TCP or UDP", spec.protocol);
        state.accepted = StatusCondition::no("Accepted", "UnsupportedProtocol", message);
        return state;
    }
    if !(1..=65535).contains(&spec.port) {
        let message = format!("{} is not a port", spec.port);
        state.accepted = StatusCondition::no("Accepted", "PortUnavailable", message);
        return state;
    }
    if !state.hostname.is_empty() && !is_hostname(&state.hostname) {
        let message = format!("`{}` is not a hostname", state.hostname);
        state.accepted = StatusCondition::no("Accepted", "UnsupportedValue", message);
        return state;
    }
    choose_kinds(&mut state, possible);
    if state.terminates_tls() {
        load_certificates(context, &mut state);
        verify_clients(context, gateway, &mut state);
    }
    state
}

/// The kinds of routes that suit the protocol.
fn kinds_of(spec: &Listener) -> &'static [&'static str] {
    match spec.protocol.as_str() {
        "HTTP" | "HTTPS" => &["HTTPRoute", "GRPCRoute"],
        "TLS" => &["TLSRoute"],
        "TCP" => &["TCPRoute"],
        "UDP" => &["UDPRoute"],
        _ => &[],
    }
}

fn choose_kinds(state: &mut ListenerState<'_>, possible: &[&'static str]) {
    let Some(allowed) = state.spec.allowed_routes.as_ref().filter(|allowed| !allowed.kinds.is_empty()) else {
        return;
    };
    let mut invalid = Vec::new();
    state.kinds.clear();
    for kind in &allowed.kinds {
        let known = possible.iter().find(|name| **name == kind.kind);
        match known.filter(|_| kind.group.as_deref().is_none_or(|group| group == GATEWAY_GROUP)) {
            Some(known) if !state.kinds.contains(known) => state.kinds.push(known),
            Some(_) => {}
            None => invalid.push(kind.kind.as_str()),
        }
    }
    if !invalid.is_empty() {
        let message = format!("{} cannot be attached to {}", invalid.join(", "), state.spec.protocol);
        state.resolved = StatusCondition::no("ResolvedRefs", "InvalidRouteKinds", message);
    }
}

fn load_certificates(context: &mut Context<'_>, state: &mut ListenerState<'_>) {
    let references = state.spec.tls.as_ref().map_or(&[][..], |tls| &tls.certificate_refs);
    let from = referrer(state.owner);
    if references.is_empty() {
        let message = "the listener needs certificateRefs";
        state.resolved = StatusCondition::no("ResolvedRefs", "InvalidCertificateRef", message);
    }
    for reference in references {
        match certificates::key_pair(context, reference, from) {
            Ok(file) => {
                state.certificates.push(file.path);
                // The certificate stays in use: clients decide whether they accept it.
                if let Some(message) = file.expired.filter(|_| state.resolved.is_true) {
                    state.resolved.message = message;
                }
            }
            Err(error) => {
                let reason = match error {
                    BadRef::NotPermitted(_) => "RefNotPermitted",
                    BadRef::Kind(_) | BadRef::Invalid(_) => "InvalidCertificateRef",
                };
                state.resolved = StatusCondition::no("ResolvedRefs", reason, error.message());
                context.warn(state.owner.kind(), state.owner.key(), reason, error.message());
            }
        }
    }
}

fn referrer(owner: Owner<'_>) -> Referrer<'_> {
    Referrer { group: GATEWAY_GROUP, kind: owner.kind(), namespace: &owner.key().namespace }
}

/// Applies the gateway's settings for client certificates.
fn verify_clients(context: &mut Context<'_>, gateway: &GatewayState<'_>, state: &mut ListenerState<'_>) {
    let Some(frontend) = gateway.object.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref()) else {
        return;
    };
    let own = frontend.per_port.iter().find(|port| port.port == state.spec.port).map(|port| &port.tls);
    let Some(validation) = &own.unwrap_or(&frontend.default).validation else { return };
    let from = referrer(Owner::Gateway(gateway.key));
    let (pem, errors) = certificates::authorities(context, &validation.ca_certificate_refs, from);
    if let Some(error) = errors.first() {
        let reason = match error {
            BadRef::NotPermitted(_) => "RefNotPermitted",
            BadRef::Kind(_) => "InvalidCACertificateKind",
            BadRef::Invalid(_) => "InvalidCACertificateRef",
        };
        state.resolved = StatusCondition::no("ResolvedRefs", reason, error.message());
    }
    if pem.is_empty() {
        let message = "there is no valid authority for client certificates";
        state.accepted = StatusCondition::no("Accepted", "NoValidCACertificate", message);
        return;
    }
    let relative = format!("ca/{}-{}.pem", file_name(gateway.key), state.spec.port);
    let authorities = context.path(&relative);
    context.files.insert(relative, pem);
    let is_optional = validation.mode.as_deref() == Some("AllowInsecureFallback");
    state.client_verification = Some(ClientVerification { authorities, is_optional });
}

/// Marks indistinguishable listeners. Among listeners of different objects, the first one in the list wins; listeners of one object are
/// all refused, unless one of them is refused because of another object.
pub(crate) fn find_conflicts(listeners: &mut [ListenerState<'_>], gateways: &[GatewayState<'_>]) {
    let mut by_port: BTreeMap<(usize, bool, i32), Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        if listener.accepted.is_true {
            for address in &gateways[listener.gateway].addresses {
                let is_udp = listener.spec.protocol == "UDP";
                by_port.entry((*address, is_udp, listener.spec.port)).or_default().push(index);
            }
        }
    }
    for group in by_port.values() {
        let mut rest = &group[..];
        while let Some(first) = rest.first() {
            let owner = listeners[*first].owner;
            let count = rest.iter().take_while(|index| listeners[**index].owner == owner).count();
            let (own, others) = (&rest[..count], &group[..group.len() - rest.len()]);
            mark(listeners, own, others);
            // Those that are refused now do not count.
            let left: Vec<usize> =
                own.iter().copied().filter(|index| listeners[*index].conflict.is_none()).collect();
            mark(listeners, &left, &left);
            rest = &rest[count..];
        }
    }
}

/// Marks the listeners that conflict with one of `others` that was not refused before.
fn mark(listeners: &mut [ListenerState<'_>], own: &[usize], others: &[usize]) {
    let found = own.iter().map(|index| {
        let others = others.iter().filter(|other| *other != index && listeners[**other].conflict.is_none());
        others.into_iter().find_map(|other| conflict(&listeners[*index], &listeners[*other]))
    });
    let found: Vec<_> = found.collect();
    for (index, found) in own.iter().zip(found) {
        if found.is_some() {
            listeners[*index].conflict = found;
        }
    }
}

/// The reason and message if two listeners of one port and address are indistinguishable.
fn conflict(own: &ListenerState<'_>, other: &ListenerState<'_>) -> Option<(&'static str, String)> {
    let of = format!("listener `{}` of {} `{}`", other.spec.name, other.owner.kind(), other.owner.key());
    let is_tls = |it: &ListenerState<'_>| matches!(it.spec.protocol.as_str(), "HTTPS" | "TLS");
    let (own_protocol, other_protocol) = (&own.spec.protocol, &other.spec.protocol);
    let same_family = own_protocol == other_protocol || is_tls(own) && is_tls(other);
    let has_names = matches!(own_protocol.as_str(), "HTTP" | "HTTPS" | "TLS");
    if !same_family || !has_names {
        let message = format!("port {} has protocol {other_protocol} in {of}", own.spec.port);
        return Some(("ProtocolConflict", message));
    }
    (own.hostname == other.hostname).then(|| {
        let host = if own.hostname.is_empty() { "all hostnames" } else { &own.hostname };
        ("HostnameConflict", format!("port {} for {host} belongs to {of}", own.spec.port))
    })
}

/// Whether objects of a namespace are chosen. `own` is the namespace of the object that chooses.
pub(crate) fn namespace_is_chosen(
    context: &Context<'_>,
    choice: Option<&FromNamespaces>,
    default: &str,
    own: &str,
    namespace: &str,
) -> bool {
    let from = choice.and_then(|choice| choice.from.as_deref()).unwrap_or(default);
    match from {
        "All" => true,
        "Same" => own == namespace,
        "Selector" => {
            let labels = context.objects.namespaces.get(&Key::new("", namespace));
            let selector = choice.and_then(|choice| choice.selector.as_ref());
            matches!((labels, selector), (Some(object), Some(selector)) if selector.matches(&object.meta().labels))
        }
        _ => false,
    }
}
