//! Writes statuses: what the translation found is merged with what the API server has, and only differences are sent.
//!
//! Statuses of routes and policies are lists to which each controller adds its own entries. The entries of others are kept, and the
//! patch has the version of the object that was read, so that a concurrent change is not lost.

use gateway_model::StatusUpdate;
use serde_json::{Map, Value, json};

use crate::kinds::{StatusShape, WatchedKind};
use crate::store::LiveObject;

/// Returns the merge patch that brings the status of an object to the one of `update`, or `None` if nothing differs.
///
/// `now` is the time of transitions, in RFC 3339.
pub(crate) fn patch(
    kind: &WatchedKind,
    live: &LiveObject,
    wanted: Value,
    controller: &str,
    now: &str,
) -> Option<Value> {
    let mut wanted = match kind.status {
        StatusShape::None | StatusShape::Observed => return None,
        StatusShape::Whole => wanted,
        StatusShape::Entries(field) => json!({ field: entries(field, &live.status, wanted, controller) }),
        StatusShape::Field(field) => {
            json!({ field: wanted.get(field).cloned().unwrap_or_else(|| json!({})) })
        }
    };
    keep_transitions(&mut wanted, &live.status, now);
    let difference = match kind.status {
        StatusShape::Field(field) => {
            let own = live.status.get(field).cloned().unwrap_or_else(|| json!({}));
            difference(&json!({ field: own }), &wanted)?
        }
        _ => difference(&live.status, &wanted)?,
    };
    Some(json!({ "metadata": { "resourceVersion": live.resource_version }, "status": difference }))
}

/// The update that removes the entries of this controller.
pub(crate) fn removal(kind: &WatchedKind, live: &LiveObject, controller: &str) -> Option<Value> {
    let StatusShape::Entries(field) = kind.status else { return None };
    let has_own = list(field, &live.status).iter().any(|entry| is_own(entry, controller));
    has_own.then(|| json!({ field: [] }))
}

fn list<'a>(field: &str, status: &'a Value) -> &'a [Value] {
    status.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_own(entry: &Value, controller: &str) -> bool {
    entry.get("controllerName").and_then(Value::as_str) == Some(controller)
}

/// The entries of other controllers in their order, followed by those of this one.
fn entries(field: &str, live: &Value, wanted: Value, controller: &str) -> Vec<Value> {
    let foreign = list(field, live).iter().filter(|entry| !is_own(entry, controller)).cloned();
    foreign.chain(list(field, &wanted).iter().cloned().map(complete)).collect()
}

/// Adds the fields of a reference to a Gateway that the server would add.
fn complete(mut entry: Value) -> Value {
    for name in ["parentRef", "ancestorRef"] {
        if let Some(reference) = entry.get_mut(name).and_then(Value::as_object_mut) {
            reference.entry("group").or_insert_with(|| gateway_model::api::GATEWAY_GROUP.into());
            reference.entry("kind").or_insert_with(|| "Gateway".into());
        }
    }
    entry
}

/// The fields that identify an entry of a list.
const IDENTITIES: [&str; 6] = ["type", "name", "parentRef", "ancestorRef", "controllerName", "value"];

fn is_same(one: &Value, other: &Value) -> bool {
    IDENTITIES.iter().all(|field| one.get(field) == other.get(field))
}

/// Gives each condition the time of its last transition: the one that the server has if the status is the same, or `now`.
fn keep_transitions(wanted: &mut Value, live: &Value, now: &str) {
    match wanted {
        Value::Array(entries) => {
            for entry in entries {
                let known = live.as_array().and_then(|all| all.iter().find(|own| is_same(own, entry)));
                keep_transitions(entry, known.unwrap_or(&Value::Null), now);
            }
        }
        Value::Object(fields) => {
            if fields.contains_key("type") && fields.contains_key("status") && fields.contains_key("reason") {
                let is_kept = live.get("status") == fields.get("status");
                let time = live.get("lastTransitionTime").filter(|_| is_kept).and_then(Value::as_str);
                // Entries of other controllers have their own times.
                fields.entry("lastTransitionTime").or_insert_with(|| time.unwrap_or(now).into());
                return;
            }
            for (name, value) in fields {
                keep_transitions(value, live.get(name).unwrap_or(&Value::Null), now);
            }
        }
        _ => {}
    }
}

/// Returns the JSON merge patch from one document to another, or `None` if they are equal.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for (name, value) in to {
                match from.get(name) {
                    Some(own) => {
                        if let Some(inner) = difference(own, value) {
                            patch.insert(name.clone(), inner);
                        }
                    }
                    // An empty object in a patch would create nothing that the server keeps.
                    None if value.as_object().is_some_and(Map::is_empty) => {}
                    None => drop(patch.insert(name.clone(), value.clone())),
                }
            }
            for name in from.keys().filter(|name| !to.contains_key(*name)) {
                patch.insert(name.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (from, to) if from == to => None,
        (Value::Null, Value::Object(to)) if to.is_empty() => None,
        (_, to) => Some(to.clone()),
    }
}

/// The longest message of a condition, in characters (Gateway API: 32768).
const LONGEST_MESSAGE: usize = 1000;

/// Changes an update so that it reports an object that the proxy refuses.
pub(crate) fn refused(update: &mut StatusUpdate, answer: &str) {
    let message: String = format!("The proxy refuses the configuration of this object: {}", answer.trim());
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    mark(&mut update.status, &message, update.kind == "Gateway" || update.kind == "ListenerSet");
}

/// Sets the conditions of an object that has no effect.
fn mark(status: &mut Value, message: &str, is_gateway: bool) {
    match status {
        Value::Array(entries) => entries.iter_mut().for_each(|entry| mark(entry, message, is_gateway)),
        Value::Object(fields) => {
            let name = fields.get("type").and_then(Value::as_str).unwrap_or_default();
            let reason = match (name, is_gateway) {
                ("Programmed", true) => "Invalid",
                ("Accepted", false) => "UnsupportedValue",
                _ => {
                    fields.values_mut().for_each(|value| mark(value, message, is_gateway));
                    return;
                }
            };
            fields.insert("status".to_owned(), "False".into());
            fields.insert("reason".to_owned(), reason.into());
            fields.insert("message".to_owned(), message.into());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "weir.dev/gateway-controller";

    fn kind(name: &str) -> &'static WatchedKind {
        WatchedKind::named(name).expect("it is watched")
    }

    fn live(status: Value) -> LiveObject {
        LiveObject { resource_version: "7".to_owned(), status, ..LiveObject::default() }
    }

    fn condition(status: &str, time: Option<&str>) -> Value {
        let mut condition = json!({"type": "Accepted", "status": status, "reason": "r", "message": ""});
        if let Some(time) = time {
            condition["lastTransitionTime"] = time.into();
        }
        condition
    }

    fn parent(controller: &str, condition: Value) -> Value {
        let group = "gateway.networking.k8s.io";
        json!({"parentRef": {"group": group, "kind": "Gateway", "name": "g"}, "controllerName": controller, "conditions": [condition]})
    }

    #[test]
    fn entries_of_other_controllers_are_kept() {
        let other = parent("other/c", condition("True", Some("t0")));
        let stored = live(json!({"parents": [other.clone(), parent(OWN, condition("False", Some("t1")))]}));
        let wanted = json!({"parents": [parent(OWN, condition("True", None))]});
        let patch = patch(kind("HTTPRoute"), &stored, wanted, OWN, "now").expect("a status differs");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let expected = json!([other, parent(OWN, condition("True", Some("now")))]);
        assert_eq!(patch["status"]["parents"], expected);
    }

    #[test]
    fn equal_statuses_keep_their_time_and_are_not_written() {
        let stored = live(json!({"parents": [parent(OWN, condition("True", Some("t1")))]}));
        let wanted = json!({"parents": [parent(OWN, condition("True", None))]});
        assert_eq!(patch(kind("HTTPRoute"), &stored, wanted, OWN, "now"), None);
    }

    #[test]
    fn a_new_reason_keeps_the_time_of_the_transition() {
        let stored =
            live(json!({"conditions": [condition("True", Some("t1"))], "addresses": [{"value": "a"}]}));
        let mut wanted = condition("True", None);
        wanted["reason"] = "other".into();
        let wanted = json!({"conditions": [wanted]});
        let patch = patch(kind("Gateway"), &stored, wanted, OWN, "now").expect("the reason differs");
        assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], "t1");
        assert_eq!(patch["status"]["addresses"], Value::Null);
    }

    #[test]
    fn other_fields_of_an_ingress_are_left_alone() {
        let stored = live(json!({"other": 1, "loadBalancer": {}}));
        let wanted = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        let written = patch(kind("Ingress"), &stored, wanted.clone(), OWN, "now").expect("an address is new");
        assert_eq!(written["status"], wanted);
        assert_eq!(patch(kind("Ingress"), &live(wanted.clone()), wanted, OWN, "now"), None);
    }

    #[test]
    fn entries_of_objects_that_left_are_removed() {
        let stored = live(json!({"parents": [parent(OWN, condition("True", Some("t1")))]}));
        let wanted = removal(kind("HTTPRoute"), &stored, OWN).expect("there is an own entry");
        let patch = patch(kind("HTTPRoute"), &stored, wanted, OWN, "now").expect("an entry is removed");
        assert_eq!(patch["status"]["parents"], json!([]));
        let foreign = live(json!({"parents": [parent("other/c", condition("True", Some("t1")))]}));
        assert_eq!(removal(kind("HTTPRoute"), &foreign, OWN), None);
    }
}
