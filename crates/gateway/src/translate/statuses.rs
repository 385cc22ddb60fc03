//! The statuses of gateways and listener sets.

use serde_json::{Value, json};

use crate::api::{GATEWAY_GROUP, ListenerSet, TlsConfig};
use crate::objects::Key;
use crate::output::StatusUpdate;
use crate::status::{StatusCondition, conditions};

use super::Listeners;
use super::certificates::BadRef;
use super::context::Context;
use super::gateways::{GatewayState, status_addresses};
use super::listeners::{ListenerState, Owner, namespace_is_chosen};

/// The gateway of a listener set, if it belongs to the controller.
pub(crate) fn gateway_of_set(listeners: &Listeners<'_>, key: &Key, set: &ListenerSet) -> Option<usize> {
    let parent = &set.spec.parent_ref;
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
        && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
    let namespace = parent.namespace.as_deref().unwrap_or(&key.namespace);
    let gateway = Key::new(namespace, &parent.name);
    listeners.gateways.get(&gateway).copied().filter(|_| is_gateway)
}

/// Whether a gateway admits a listener set.
pub(crate) fn admits(context: &Context<'_>, gateway: &GatewayState<'_>, set: &Key) -> bool {
    let allowed = gateway.object.spec.allowed_listeners.as_ref();
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    namespace_is_chosen(context, namespaces, "None", &gateway.key.namespace, &set.namespace)
}

/// Sets the statuses of all gateways and listener sets.
pub(crate) fn set(context: &mut Context<'_>, gateways: &[GatewayState<'_>], listeners: &Listeners<'_>) {
    for gateway in gateways {
        gateway_status(context, gateway, listeners);
    }
    for key in &listeners.sets {
        set_status(context, gateways, listeners, key);
    }
}

fn of_owner<'l, 'a>(listeners: &'l Listeners<'a>, owner: Owner<'a>) -> &'l [ListenerState<'a>] {
    listeners.by_owner.get(&owner).map_or(&[], |range| &listeners.list[range.clone()])
}

fn gateway_status(context: &mut Context<'_>, gateway: &GatewayState<'_>, listeners: &Listeners<'_>) {
    let own = of_owner(listeners, Owner::Gateway(gateway.key));
    let generation = gateway.object.metadata.generation;
    let sets = listeners.sets.iter().filter(|key| {
        let set = of_owner(listeners, Owner::Set(key));
        set.iter().any(ListenerState::is_accepted) && listeners.gateways[gateway.key] == set[0].gateway
    });
    let mut list = vec![accepted(gateway, own)];
    list.push(programmed(gateway, own, &list[0]));
    list.push(match &gateway.certificate {
        Some(Err(error)) => {
            let reason = match error {
                BadRef::NotPermitted(_) => "RefNotPermitted",
                BadRef::Kind(_) | BadRef::Invalid(_) => "InvalidClientCertificateRef",
            };
            StatusCondition::no("ResolvedRefs", reason, error.message())
        }
        _ => StatusCondition::yes("ResolvedRefs", "ResolvedRefs"),
    });
    if has_insecure_fallback(gateway) {
        let message = "a port accepts clients without a valid certificate";
        list.push(
            StatusCondition::yes("InsecureFrontendValidationMode", "ConfigurationChanged").with(message),
        );
    }
    let mut status = json!({
        "conditions": conditions(&list, generation),
        "listeners": listener_statuses(own, generation),
        "attachedListenerSets": sets.count(),
    });
    let addresses = status_addresses(context, gateway);
    if addresses.as_array().is_some_and(|list| !list.is_empty()) {
        status["addresses"] = addresses;
    }
    for condition in list.iter().filter(|condition| !condition.is_true) {
        context.warn("Gateway", gateway.key, condition.reason, condition.message.clone());
    }
    let key = gateway.key.clone();
    context.statuses.push(StatusUpdate { kind: "Gateway", key, generation, status });
}

/// Whether the gateway accepts clients without a valid certificate, although it has authorities for certificates.
fn has_insecure_fallback(gateway: &GatewayState<'_>) -> bool {
    let frontend = gateway.object.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref());
    let is_insecure = |tls: &TlsConfig| {
        tls.validation.as_ref().is_some_and(|own| own.mode.as_deref() == Some("AllowInsecureFallback"))
    };
    frontend.is_some_and(|own| {
        is_insecure(&own.default) || own.per_port.iter().any(|port| is_insecure(&port.tls))
    })
}

fn accepted(gateway: &GatewayState<'_>, own: &[ListenerState<'_>]) -> StatusCondition {
    if let Some(problem) = &gateway.bad_parameters {
        return StatusCondition::no("Accepted", "InvalidParameters", problem.clone());
    }
    if gateway.has_unsupported_address {
        let message = "only addresses of type IPAddress and Hostname are supported";
        return StatusCondition::no("Accepted", "UnsupportedAddress", message);
    }
    let invalid: Vec<&str> =
        own.iter().filter(|it| !it.is_accepted()).map(|it| it.spec.name.as_str()).collect();
    if invalid.is_empty() {
        return StatusCondition::yes("Accepted", "Accepted");
    }
    let message = format!("listeners that are not accepted: {}", invalid.join(", "));
    if invalid.len() == own.len() {
        return StatusCondition::no("Accepted", "ListenersNotValid", message);
    }
    StatusCondition::yes("Accepted", "ListenersNotValid").with(message)
}

fn programmed(
    gateway: &GatewayState<'_>,
    own: &[ListenerState<'_>],
    accepted: &StatusCondition,
) -> StatusCondition {
    if !accepted.is_true {
        return StatusCondition::no("Programmed", "Invalid", accepted.message.clone());
    }
    if !gateway.unusable.is_empty() {
        let message = format!("addresses that are not available: {}", gateway.unusable.join(", "));
        return StatusCondition::no("Programmed", "AddressNotUsable", message);
    }
    if gateway.addresses.is_empty() {
        return StatusCondition::no("Programmed", "AddressNotAssigned", "the controller has no addresses");
    }
    if !own.iter().any(ListenerState::is_served) {
        return StatusCondition::no("Programmed", "Invalid", "no listener can be served");
    }
    StatusCondition::yes("Programmed", "Programmed")
}

fn set_status(
    context: &mut Context<'_>,
    gateways: &[GatewayState<'_>],
    listeners: &Listeners<'_>,
    key: &Key,
) {
    let Some(set) = context.objects.listener_sets.get(key) else { return };
    let Some(index) = gateway_of_set(listeners, key, set) else { return };
    let generation = set.metadata.generation;
    let own = of_owner(listeners, Owner::Set(key));
    let no = |reason: &'static str, message: &str| {
        [StatusCondition::no("Accepted", reason, message), StatusCondition::no("Programmed", reason, message)]
    };
    let list = if !admits(context, &gateways[index], key) {
        no("NotAllowed", "allowedListeners of the gateway does not admit this namespace")
    } else if !accepted(&gateways[index], of_owner(listeners, Owner::Gateway(gateways[index].key))).is_true {
        no("ParentNotAccepted", "the gateway is not accepted")
    } else if !own.iter().any(ListenerState::is_served) {
        no("ListenersNotValid", "no listener can be served: their conditions have the reasons")
    } else {
        let reason =
            if own.iter().all(ListenerState::is_accepted) { "Accepted" } else { "ListenersNotValid" };
        [StatusCondition::yes("Accepted", reason), StatusCondition::yes("Programmed", "Programmed")]
    };
    let mut status = json!({ "conditions": conditions(&list, generation) });
    if !own.is_empty() {
        status["listeners"] = listener_statuses(own, generation);
    }
    let key = key.clone();
    context.statuses.push(StatusUpdate { kind: "ListenerSet", key, generation, status });
}

fn listener_statuses(own: &[ListenerState<'_>], generation: i64) -> Value {
    own.iter()
        .map(|listener| {
            let kinds = listener.kinds.iter().map(|kind| json!({ "group": GATEWAY_GROUP, "kind": kind }));
            json!({
                "name": listener.spec.name,
                "supportedKinds": kinds.collect::<Value>(),
                "attachedRoutes": listener.attached,
                "conditions": conditions(&listener.conditions(), generation),
            })
        })
        .collect()
}
