//! Attaches routes to listeners.

use serde_json::{Value, json};

use crate::api::{GATEWAY_GROUP, Meta, ParentRef};
use crate::objects::Key;
use crate::output::StatusUpdate;
use crate::status::{StatusCondition, conditions};
use crate::text::is_hostname;

use super::Listeners;
use super::context::Context;
use super::hostnames::intersection;
use super::listeners::{ListenerState, Owner, namespace_is_chosen};

/// A route of any kind.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) kind: &'static str,
    pub(crate) key: &'a Key,
    pub(crate) meta: &'a Meta,
    pub(crate) parents: &'a [ParentRef],
    pub(crate) hostnames: &'a [String],
}

/// A route that is attached to a listener for these hostnames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) listener: usize,
    pub(crate) hostnames: Vec<String>,
}

/// The result for one of a route's parents that belongs to the controller.
pub(crate) struct Parent<'a> {
    pub(crate) reference: &'a ParentRef,
    pub(crate) accepted: StatusCondition,
}

/// Attaches a route to the listeners of its parents.
pub(crate) fn attach<'a>(
    context: &Context<'a>,
    listeners: &mut Listeners<'a>,
    route: Route<'a>,
) -> (Vec<Parent<'a>>, Vec<Attachment>) {
    let (mut parents, mut attachments) = (Vec::new(), Vec::<Attachment>::new());
    for reference in route.parents {
        let Some(owner) = owner(listeners, reference, route.key) else { continue };
        let range = listeners.by_owner.get(&owner).cloned().unwrap_or_default();
        let found = choose(context, &listeners.list, range, reference, route);
        let accepted = match found {
            Ok(found) => {
                for attachment in found {
                    if !attachments.iter().any(|it| it.listener == attachment.listener) {
                        listeners.list[attachment.listener].attached += 1;
                        attachments.push(attachment);
                    }
                }
                StatusCondition::yes("Accepted", "Accepted")
            }
            Err(condition) => condition,
        };
        parents.push(Parent { reference, accepted });
    }
    (parents, attachments)
}

/// The gateway or listener set of a reference, if it belongs to the controller.
fn owner<'a>(listeners: &Listeners<'a>, reference: &ParentRef, route: &Key) -> Option<Owner<'a>> {
    if reference.group.as_deref().unwrap_or(GATEWAY_GROUP) != GATEWAY_GROUP {
        return None;
    }
    let namespace = reference.namespace.as_deref().unwrap_or(&route.namespace);
    let key = Key::new(namespace, &reference.name);
    match reference.kind.as_deref().unwrap_or("Gateway") {
        "Gateway" => listeners.gateways.get_key_value(&key).map(|(key, _)| Owner::Gateway(key)),
        "ListenerSet" => listeners.sets.get(&key).map(|key| Owner::Set(key)),
        _ => None,
    }
}

/// The listeners to which a route is attached by a reference.
///
/// # Errors
/// No listener fits.
fn choose(
    context: &Context<'_>,
    listeners: &[ListenerState<'_>],
    range: std::ops::Range<usize>,
    reference: &ParentRef,
    route: Route<'_>,
) -> Result<Vec<Attachment>, StatusCondition> {
    let refuse = |reason, message: &str| StatusCondition::no("Accepted", reason, message);
    let named: Vec<usize> = range
        .filter(|index| {
            let spec = listeners[*index].spec;
            reference.section_name.as_ref().is_none_or(|name| *name == spec.name)
                && reference.port.is_none_or(|port| port == spec.port)
        })
        .collect();
    if named.is_empty() {
        return Err(refuse("NoMatchingParent", "no listener has the name and port of the reference"));
    }
    let allowed: Vec<usize> =
        named.into_iter().filter(|index| allows(context, &listeners[*index], route)).collect();
    if allowed.is_empty() {
        let message = "no accepted listener allows routes of this kind from this namespace";
        return Err(refuse("NotAllowedByListeners", message));
    }
    let attached: Vec<Attachment> = allowed
        .into_iter()
        .filter_map(|listener| {
            let hostnames = common_hostnames(&listeners[listener].hostname, route.hostnames);
            (!hostnames.is_empty()).then_some(Attachment { listener, hostnames })
        })
        .collect();
    if attached.is_empty() {
        return Err(refuse("NoMatchingListenerHostname", "no listener has a hostname of the route"));
    }
    Ok(attached)
}

fn allows(context: &Context<'_>, listener: &ListenerState<'_>, route: Route<'_>) -> bool {
    let namespaces = listener.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let own = &listener.owner.key().namespace;
    listener.is_accepted()
        && listener.kinds.contains(&route.kind)
        && namespace_is_chosen(context, namespaces, "Same", own, &route.key.namespace)
}

fn common_hostnames(of_listener: &str, of_route: &[String]) -> Vec<String> {
    if of_route.is_empty() {
        return vec![of_listener.into()];
    }
    let lower: Vec<String> = of_route.iter().map(|name| name.to_ascii_lowercase()).collect();
    let valid = lower.iter().filter(|name| is_hostname(name));
    let mut common: Vec<String> =
        valid.filter_map(|name| intersection(of_listener, name)).map(str::to_string).collect();
    common.sort();
    common.dedup();
    common
}

/// Sets the status of a route: the entries of the controller.
pub(crate) fn set_status(
    context: &mut Context<'_>,
    route: Route<'_>,
    parents: &[Parent<'_>],
    of_route: &[StatusCondition],
) {
    let controller = &context.settings.controller_name;
    let mut list: Vec<Value> = Vec::new();
    if parents.is_empty() {
        return;
    }
    for parent in parents {
        let mut own = vec![parent.accepted.clone()];
        for condition in of_route {
            match condition.kind {
                // A fault of the route matters only if the parent would accept it.
                "Accepted" if own[0].is_true => own[0] = condition.clone(),
                "Accepted" => {}
                _ => own.push(condition.clone()),
            }
        }
        list.push(json!({
            "parentRef": reference(parent.reference, route.key),
            "controllerName": controller,
            "conditions": conditions(&own, route.meta.generation),
        }));
    }
    context.statuses.push(StatusUpdate {
        kind: route.kind,
        key: route.key.clone(),
        generation: route.meta.generation,
        status: json!({ "parents": list }),
    });
}

/// A reference to a parent, for a status.
pub(crate) fn reference(parent: &ParentRef, route: &Key) -> Value {
    let mut value = json!({
        "group": parent.group.as_deref().unwrap_or(GATEWAY_GROUP),
        "kind": parent.kind.as_deref().unwrap_or("Gateway"),
        "namespace": parent.namespace.as_deref().unwrap_or(&route.namespace),
        "name": parent.name,
    });
    if let Some(name) = &parent.section_name {
        value["sectionName"] = json!(name);
    }
    if let Some(port) = parent.port {
        value["port"] = json!(port);
    }
    value
}
