//! Resolves references from routes to services.

use std::collections::BTreeMap;

use crate::api::{BackendRef, EndpointSlice, GATEWAY_GROUP, Object, Service, ServicePort};
use crate::objects::{Key, Objects};
use crate::status::StatusCondition;
use crate::text::is_hostname;

use super::attach::Route;
use super::context::Context;
use super::grants::Referrer;

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceRef {
    pub(crate) key: Key,
    pub(crate) port: i32,
    pub(crate) is_udp: bool,
}

/// The cause of an unresolved reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unresolved {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Unresolved {
    pub(crate) fn condition(&self) -> StatusCondition {
        StatusCondition::no("ResolvedRefs", self.reason, self.message.clone())
    }
}

/// Finds the service port of a reference.
///
/// # Errors
/// The reference is not allowed, or the service or port does not exist.
pub(crate) fn service<'a>(
    context: &Context<'a>,
    route: Route<'_>,
    reference: &BackendRef,
) -> Result<(ServiceRef, &'a ServicePort), Unresolved> {
    let group = reference.group.as_deref().unwrap_or("");
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let namespace = reference.namespace.as_deref().unwrap_or(&route.key.namespace);
    let key = Key::new(namespace, &reference.name);
    let unresolved = |reason, message| Unresolved { reason, message };
    if (group, kind) != ("", "Service") {
        let message = format!("`{key}` is a {kind}; only Services are supported");
        return Err(unresolved("InvalidKind", message));
    }
    let from = Referrer { group: GATEWAY_GROUP, kind: route.kind, namespace: &route.key.namespace };
    if !context.grants.allow(from, "", "Service", namespace, &reference.name) {
        let message = format!("no ReferenceGrant allows the reference to Service `{key}`");
        return Err(unresolved("RefNotPermitted", message));
    }
    let objects = context.objects;
    let Some(found) = objects.services.get(&key) else {
        return Err(unresolved("BackendNotFound", format!("there is no Service `{key}`")));
    };
    find_port(found, key, reference.port, route.kind == "UDPRoute")
}

fn find_port(
    service: &Service,
    key: Key,
    port: Option<i32>,
    is_udp: bool,
) -> Result<(ServiceRef, &ServicePort), Unresolved> {
    let not_found = |message| Unresolved { reason: "BackendNotFound", message };
    if service.spec.r#type == "ExternalName" {
        return Err(not_found(format!(
            "Service `{key}` has type ExternalName, which only ingresses support"
        )));
    }
    let Some(port) = port else {
        return Err(not_found(format!("the reference to Service `{key}` needs a port")));
    };
    let fits = |own: &&ServicePort| own.port == port && (own.protocol == "UDP") == is_udp;
    match service.spec.ports.iter().find(fits) {
        Some(own) => Ok((ServiceRef { key, port, is_udp }, own)),
        None => {
            let protocol = if is_udp { "UDP" } else { "TCP" };
            Err(not_found(format!("Service `{key}` has no {protocol} port {port}")))
        }
    }
}

/// The slices, keyed by service.
pub(crate) struct Slices<'a>(BTreeMap<Key, Vec<&'a EndpointSlice>>);

/// An address of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodInstance<'a> {
    pub(crate) address: String,
    pub(crate) name: &'a str,
    pub(crate) zone: &'a str,
    pub(crate) is_draining: bool,
}

impl<'a> Slices<'a> {
    pub(crate) fn new(objects: &'a Objects) -> Self {
        let mut slices: BTreeMap<Key, Vec<&EndpointSlice>> = BTreeMap::new();
        for (key, slice) in &objects.endpoint_slices {
            if let Some(service) = slice.meta().labels.get("kubernetes.io/service-name") {
                slices.entry(Key::new(&key.namespace, service)).or_default().push(slice);
            }
        }
        Self(slices)
    }

    /// The addresses of a service port, sorted: those of the first family with addresses, in the order IPv4, IPv6, host names.
    pub(crate) fn instances(&self, service: &ServiceRef, port: &ServicePort) -> Vec<PodInstance<'a>> {
        let slices = self.0.get(&service.key).map_or(&[][..], Vec::as_slice);
        let of = |family: &str| {
            let mut found = Vec::new();
            for slice in slices.iter().filter(|slice| slice.address_type == family) {
                push_instances(&mut found, slice, port, service.is_udp);
            }
            found.sort();
            found.dedup_by(|one, other| one.address == other.address);
            found
        };
        let families = ["IPv4", "IPv6", "FQDN"].into_iter();
        families.map(of).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

/// An IP address or a host name, with a port.
fn address(text: &str, port: u16) -> Option<String> {
    match text.parse::<std::net::IpAddr>() {
        Ok(ip) => Some(std::net::SocketAddr::new(ip, port).to_string()),
        Err(_) => (is_hostname(text) && !text.starts_with('*')).then(|| format!("{text}:{port}")),
    }
}

fn push_instances<'a>(
    found: &mut Vec<PodInstance<'a>>,
    slice: &'a EndpointSlice,
    port: &ServicePort,
    is_udp: bool,
) {
    let own = slice.ports.iter().find(|own| {
        own.name.as_deref().unwrap_or_default() == port.name
            && (own.protocol.as_deref() == Some("UDP")) == is_udp
    });
    let Some(number) = own.and_then(|own| own.port) else { return };
    for endpoint in &slice.endpoints {
        let conditions = &endpoint.conditions;
        let is_ready = conditions.ready.unwrap_or(true);
        let is_terminating = conditions.terminating == Some(true);
        let is_draining = !is_ready && is_terminating && conditions.serving == Some(true);
        let port = u16::try_from(number).unwrap_or_default();
        let Some(address) = endpoint.addresses.first().and_then(|own| address(own, port)) else { continue };
        if is_ready || is_draining {
            found.push(PodInstance {
                address,
                name: endpoint.target_ref.as_ref().map_or("", |target| &target.name),
                zone: endpoint.zone.as_deref().unwrap_or_default(),
                is_draining,
            });
        }
    }
}
