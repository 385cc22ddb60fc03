//! Hosts outside the cluster: Services of type `ExternalName`, and authorization services that an ingress names by their URL.
//!
//! Each becomes a Service that exists only during the translation. Its only endpoint has the host's name, which the proxy resolves.

use std::collections::BTreeMap;

use crate::api::*;
use crate::objects::{Key, Objects};
use crate::text::is_hostname;

use super::NAME;

/// A port of a host outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExternalHost {
    pub(crate) name: String,
    pub(crate) port: i32,
}

impl ExternalHost {
    /// The reference to the host's Service.
    pub(crate) fn reference(&self) -> BackendRef {
        BackendRef {
            name: format!("{NAME}{}:{}", self.name, self.port),
            namespace: Some(String::new()),
            port: Some(self.port),
            ..BackendRef::default()
        }
    }

    /// Adds the host's Service.
    pub(crate) fn add_to(&self, objects: &mut Objects) {
        let reference = self.reference();
        add_service(
            objects,
            Key::new("", &reference.name),
            &self.name,
            BTreeMap::from([(self.port, self.port)]),
        );
    }
}

/// The name of a Service in references of ingresses: another one if it has type `ExternalName`.
pub(crate) fn service_name(objects: &Objects, key: &Key) -> String {
    match external_name(objects, key) {
        Some(_) => format!("{NAME}{}", key.name),
        None => key.name.clone(),
    }
}

/// Adds the Services for those of type `ExternalName` to which backends refer.
pub(crate) fn add_services<'a>(
    objects: &Objects,
    expanded: &mut Objects,
    backends: impl Iterator<Item = (&'a str, &'a IngressService)>,
) {
    let mut ports: BTreeMap<Key, BTreeMap<i32, i32>> = BTreeMap::new();
    for (namespace, backend) in backends {
        let key = Key::new(namespace, &backend.name);
        if external_name(objects, &key).is_none() {
            continue;
        }
        let service = &objects.services[&key];
        let declared = |own: &&ServicePort| match &backend.port.name {
            Some(name) => own.name == *name,
            None => Some(own.port) == backend.port.number,
        };
        // Such a Service needs no ports. Without them, the reference has the number.
        let port = match service.spec.ports.iter().find(declared) {
            Some(own) => (own.port, own.target_port.as_ref().and_then(|own| own.as_i64())),
            None => (backend.port.number.unwrap_or_default(), None),
        };
        let target = port.1.and_then(|own| i32::try_from(own).ok()).unwrap_or(port.0);
        ports.entry(key).or_default().insert(port.0, target);
    }
    for (key, ports) in ports {
        let Some(host) = external_name(objects, &key) else { continue };
        let own = Key::new(&key.namespace, &format!("{NAME}{}", key.name));
        add_service(expanded, own, host, ports);
    }
}

/// The host of a Service with type `ExternalName`.
fn external_name<'a>(objects: &'a Objects, key: &Key) -> Option<&'a str> {
    let spec = &objects.services.get(key)?.spec;
    let host = spec.external_name.trim_end_matches('.');
    (spec.r#type == "ExternalName" && is_hostname(host) && !host.starts_with('*')).then_some(host)
}

/// Adds a Service with a host as its only endpoint. `ports` has the ports of the host, keyed by those of the Service.
fn add_service(objects: &mut Objects, key: Key, host: &str, ports: BTreeMap<i32, i32>) {
    let mut meta = Meta { namespace: key.namespace.clone(), name: key.name.clone(), ..Meta::default() };
    let own = |(port, _): (&i32, &i32)| ServicePort {
        name: port.to_string(),
        port: *port,
        ..ServicePort::default()
    };
    let spec = ServiceSpec { ports: ports.iter().map(own).collect(), ..ServiceSpec::default() };
    objects.services.insert(key.clone(), Service { metadata: meta.clone(), spec });
    meta.labels.insert("kubernetes.io/service-name".into(), key.name.clone());
    let endpoint = Endpoint { addresses: vec![host.into()], ..Endpoint::default() };
    let own = |(port, target): (i32, i32)| EndpointPort {
        name: Some(port.to_string()),
        port: Some(target),
        protocol: None,
    };
    let slice = EndpointSlice {
        metadata: meta,
        address_type: "FQDN".into(),
        endpoints: vec![endpoint],
        ports: ports.into_iter().map(own).collect(),
    };
    objects.endpoint_slices.insert(key, slice);
}
