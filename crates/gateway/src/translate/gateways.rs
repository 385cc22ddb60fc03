//! The gateways that are served, and their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Value, json};

use crate::api::{GATEWAY_GROUP, Gateway, Object};
use crate::objects::Key;
use crate::output::StatusUpdate;
use crate::status::{StatusCondition, conditions};

use super::certificates::{BadRef, key_pair};
use super::context::Context;
use super::features;
use super::grants::Referrer;

/// A gateway of one of the controller's classes.
pub(crate) struct GatewayState<'a> {
    pub(crate) key: &'a Key,
    pub(crate) object: &'a Gateway,
    /// The addresses at which it listens, as indexes of the settings' list. Empty if it cannot be served.
    pub(crate) addresses: Vec<usize>,
    /// The requested addresses have an unsupported type.
    pub(crate) has_unsupported_address: bool,
    /// The requested addresses that are not available.
    pub(crate) unusable: Vec<String>,
    /// The path of the certificate for connections to services, or the cause of an unusable reference.
    pub(crate) certificate: Option<Result<String, BadRef>>,
    /// A fault of the parameters.
    pub(crate) bad_parameters: Option<String>,
}

impl GatewayState<'_> {
    /// The path of the certificate for connections to services.
    pub(crate) fn client_certificate(&self) -> Option<&str> {
        self.certificate.as_ref()?.as_deref().ok()
    }
}

/// Sets the statuses of the controller's classes, and returns their names.
pub(crate) fn classes<'a>(context: &mut Context<'a>) -> BTreeSet<&'a str> {
    let objects = context.objects;
    let mut own = BTreeSet::new();
    for (key, class) in &objects.gateway_classes {
        if class.spec.controller_name != context.settings.controller_name {
            continue;
        }
        let accepted = match class.spec.parameters_ref {
            None => StatusCondition::yes("Accepted", "Accepted"),
            Some(_) => StatusCondition::no(
                "Accepted",
                "InvalidParameters",
                "parametersRef is not supported; remove it from the class",
            ),
        };
        if accepted.is_true {
            own.insert(&*key.name);
        }
        let generation = class.metadata.generation;
        let list = [accepted, StatusCondition::yes("SupportedVersion", "SupportedVersion")];
        context.statuses.push(StatusUpdate {
            kind: "GatewayClass",
            key: key.clone(),
            generation,
            status: json!({
                "conditions": conditions(&list, generation),
                "supportedFeatures": features::supported(),
            }),
        });
    }
    own
}

/// The gateways of these classes, the oldest first, with their addresses.
pub(crate) fn gateways<'a>(context: &mut Context<'a>, classes: &BTreeSet<&str>) -> Vec<GatewayState<'a>> {
    let mut list: Vec<GatewayState<'_>> = context
        .objects
        .gateways
        .iter()
        .filter(|(_, gateway)| classes.contains(&*gateway.spec.gateway_class_name))
        .map(|(key, object)| GatewayState {
            key,
            object,
            addresses: Vec::new(),
            has_unsupported_address: false,
            unusable: Vec::new(),
            certificate: None,
            bad_parameters: parameters(object),
        })
        .collect();
    list.sort_by_key(|it| (&it.object.meta().creation_timestamp, it.key));
    assign(context, &mut list);
    for gateway in &mut list {
        let tls = gateway.object.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
        let reference = tls.and_then(|tls| tls.client_certificate_ref.as_ref());
        let from = Referrer { group: GATEWAY_GROUP, kind: "Gateway", namespace: &gateway.key.namespace };
        gateway.certificate =
            reference.map(|reference| key_pair(context, reference, from).map(|file| file.path));
    }
    list
}

fn parameters(gateway: &Gateway) -> Option<String> {
    let infrastructure = gateway.spec.infrastructure.as_ref()?;
    infrastructure.parameters_ref.as_ref()?;
    Some("infrastructure.parametersRef is not supported; remove it from the gateway".into())
}

/// Assigns addresses: first those that gateways request, then those that they had, then free ones. Gateways for which no
/// address is left share the first one.
fn assign(context: &Context<'_>, gateways: &mut [GatewayState<'_>]) {
    let shared = context.settings.addresses.len();
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    for gateway in &mut *gateways {
        let placed = context.settings.placements.keys().position(|key| key == gateway.key);
        let candidates = placed.map_or(0..shared, |place| shared + place..shared + place + 1);
        for wanted in &gateway.object.spec.addresses {
            if !matches!(wanted.r#type.as_deref(), None | Some("IPAddress" | "Hostname")) {
                gateway.has_unsupported_address = true;
            } else if let Some(found) = find(context, candidates.clone(), &wanted.value) {
                gateway.addresses.push(found);
            } else if !wanted.value.is_empty() {
                gateway.unusable.push(wanted.value.clone());
            }
        }
        if placed.is_some() && gateway.addresses.is_empty() {
            gateway.addresses.push(candidates.start);
        }
        gateway.addresses.sort_unstable();
        gateway.addresses.dedup();
        taken.extend(&gateway.addresses);
    }
    let is_open = |it: &GatewayState<'_>| {
        it.addresses.is_empty() && !it.has_unsupported_address && it.unusable.is_empty()
    };
    for gateway in gateways.iter_mut().filter(|it| is_open(it)) {
        let mut own = gateway.object.status.addresses.iter();
        let had = own.find_map(|own| find(context, 0..shared, &own.value));
        if let Some(had) = had.filter(|had| taken.insert(*had)) {
            gateway.addresses.push(had);
        }
    }
    for gateway in gateways.iter_mut().filter(|it| is_open(it)) {
        let free = (0..shared).find(|index| !taken.contains(index));
        if let Some(free) = free.or((shared > 0).then_some(0)) {
            taken.insert(free);
            gateway.addresses.push(free);
        }
    }
    for gateway in gateways {
        if gateway.has_unsupported_address || gateway.bad_parameters.is_some() {
            gateway.addresses.clear();
        }
    }
}

/// The address with a value, among some of the settings' addresses.
fn find(context: &Context<'_>, mut range: Range<usize>, value: &str) -> Option<usize> {
    range.find(|index| {
        let own = context.addresses[*index];
        !value.is_empty() && (own.bind == value || own.reported.iter().any(|own| own == value))
    })
}

/// The addresses of a gateway's status.
pub(crate) fn status_addresses(context: &Context<'_>, gateway: &GatewayState<'_>) -> Value {
    let own = gateway.addresses.iter().flat_map(|index| &context.addresses[*index].reported);
    own.map(|value| {
        let is_address = value.parse::<std::net::IpAddr>().is_ok();
        json!({ "type": if is_address { "IPAddress" } else { "Hostname" }, "value": value })
    })
    .collect()
}

/// Maps the key of each gateway to its index in the list.
pub(crate) fn by_key<'a>(gateways: &[GatewayState<'a>]) -> BTreeMap<&'a Key, usize> {
    gateways.iter().enumerate().map(|(index, gateway)| (gateway.key, index)).collect()
}
