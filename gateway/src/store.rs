//! The last known state of the cluster's objects, and their changes since the last configuration.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use gateway_model::{Key, Objects};
use serde_json::Value;
use tokio::sync::Notify;

use crate::kinds::{StatusShape, WatchedKind};
use crate::report::warning;

/// An object: its kind and key.
pub(crate) type ObjectName = (&'static str, Key);

/// The fields of an object in the API server that do not configure the proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LiveObject {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    /// The status, for kinds with a status that is written.
    pub(crate) status: Value,
}

/// The objects and their changes. It is used by the tasks of one thread.
#[derive(Default)]
pub(crate) struct ObjectStore {
    inner: RefCell<Inner>,
    /// Notified after each change.
    pub(crate) changed: Notify,
}

#[derive(Default)]
struct Inner {
    objects: Objects,
    live: HashMap<ObjectName, LiveObject>,
    /// The kinds that were listed at least once, or that the cluster lacks.
    listed: HashSet<&'static str>,
    changes: Changes,
}

/// Changes since the last call of [`ObjectStore::take_changes`].
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    /// The objects that were added, changed or removed, in fields that configure the proxy.
    pub(crate) objects: BTreeSet<ObjectName>,
    /// Those of them that were not changed by a controller's status.
    pub(crate) by_users: BTreeSet<ObjectName>,
    /// The objects with a status that was added, changed or removed.
    pub(crate) statuses: BTreeSet<ObjectName>,
    /// Whether a kind was listed for the first time.
    pub(crate) has_new_kind: bool,
}

impl ObjectStore {
    /// Records an object as the server sent it.
    pub(crate) fn put(&self, kind: &'static WatchedKind, object: Value) {
        self.inner.borrow_mut().put(kind, object);
        self.changed.notify_one();
    }

    /// Records that an object was deleted.
    pub(crate) fn delete(&self, kind: &'static WatchedKind, object: &Value) {
        if let Some(key) = key_of(object) {
            self.inner.borrow_mut().remove(kind, key);
            self.changed.notify_one();
        }
    }

    /// Replaces all objects of a kind.
    pub(crate) fn replace(&self, kind: &'static WatchedKind, objects: Vec<Value>) {
        let mut inner = self.inner.borrow_mut();
        let listed: HashSet<Key> = objects.iter().filter_map(key_of).collect();
        let gone = inner.live.keys().filter(|(own, key)| *own == kind.kind && !listed.contains(key));
        let gone: Vec<Key> = gone.map(|(_, key)| key.clone()).collect();
        for key in gone {
            inner.remove(kind, key);
        }
        for object in objects {
            inner.put(kind, object);
        }
        inner.changes.has_new_kind |= inner.listed.insert(kind.kind);
        drop(inner);
        self.changed.notify_one();
    }

    /// The number of kinds that were listed.
    pub(crate) fn listed(&self) -> usize {
        self.inner.borrow().listed.len()
    }

    /// Returns whether the kind has objects.
    pub(crate) fn has_any(&self, kind: &WatchedKind) -> bool {
        self.inner.borrow().live.keys().any(|(own, _)| *own == kind.kind)
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changes(&self) -> Changes {
        std::mem::take(&mut self.inner.borrow_mut().changes)
    }

    /// Calls a function with the objects.
    pub(crate) fn with<T>(&self, use_objects: impl FnOnce(&Objects) -> T) -> T {
        use_objects(&self.inner.borrow().objects)
    }

    /// Returns what is known about an object.
    pub(crate) fn live(&self, name: &ObjectName) -> Option<LiveObject> {
        self.inner.borrow().live.get(name).cloned()
    }

    /// Returns the names of all objects with a status.
    pub(crate) fn with_status(&self) -> BTreeSet<ObjectName> {
        let inner = self.inner.borrow();
        let named = inner.live.iter().filter(|(_, live)| !live.status.is_null());
        named.map(|(name, _)| name.clone()).collect()
    }

    /// The number of objects.
    pub(crate) fn count(&self) -> usize {
        self.inner.borrow().live.len()
    }
}

impl Inner {
    fn put(&mut self, kind: &'static WatchedKind, mut object: Value) {
        let Some(key) = key_of(&object) else { return };
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut live = LiveObject {
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            status: Value::Null,
        };
        if kind.status != StatusShape::None
            && let Some(status) = object.as_object_mut().and_then(|fields| fields.remove("status"))
        {
            // A Gateway keeps the address that was assigned to it.
            if let Some(addresses) = status.get("addresses").filter(|_| kind.kind == "Gateway") {
                object["status"] = serde_json::json!({ "addresses": addresses });
            }
            live.status = status;
        }
        // Lists of managed fields are larger than most objects.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        remove_nulls(&mut object);
        let name = (kind.kind, key);
        match self.objects.insert(kind.kind, object) {
            Ok(true) => {
                self.changes.objects.insert(name.clone());
                // The address that was assigned to a Gateway does not make it acceptable.
                let known = self.live.get(&name);
                if kind.kind != "Gateway" || known.is_none_or(|own| own.generation != live.generation) {
                    self.changes.by_users.insert(name.clone());
                }
            }
            Ok(false) => {}
            Err(error) => {
                warning(format!("{} {} cannot be read and is left out: {error}.", kind.kind, name.1));
                if self.objects.remove(kind.kind, &name.1) {
                    self.changes.objects.insert(name.clone());
                }
            }
        }
        if kind.status != StatusShape::None
            && self.live.get(&name).is_none_or(|own| own.status != live.status)
        {
            self.changes.statuses.insert(name.clone());
        }
        self.live.insert(name, live);
    }

    fn remove(&mut self, kind: &'static WatchedKind, key: Key) {
        let was_used = self.objects.remove(kind.kind, &key);
        let name = (kind.kind, key);
        self.live.remove(&name);
        if was_used {
            self.changes.objects.insert(name.clone());
        }
        self.changes.by_users.insert(name);
    }
}

/// Removes fields without a value, which the server writes for some empty lists.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn key_of(object: &Value) -> Option<Key> {
    let metadata = object.get("metadata")?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    Some(Key::new(namespace, metadata.get("name")?.as_str()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, version: &str, port: u16) -> Value {
        json!({"metadata": {"namespace": "a", "name": name, "uid": "u", "resourceVersion": version, "labels": null},
            "spec": {"ports": [{"port": port, "name": null}]}})
    }

    #[test]
    fn only_changes_of_used_fields_are_changes() {
        let store = ObjectStore::default();
        let kind = WatchedKind::named("Service").expect("services are watched");
        store.replace(kind, vec![service("x", "1", 80), service("y", "1", 80)]);
        let all = |names: &[&str]| names.iter().map(|name| ("Service", Key::new("a", name))).collect();
        let first = store.take_changes();
        assert_eq!((first.objects, first.has_new_kind), (all(&["x", "y"]), true));
        assert_eq!((first.by_users, first.statuses), (all(&["x", "y"]), all(&["x", "y"])));
        store.put(kind, service("x", "2", 80));
        assert_eq!(store.take_changes(), Changes::default());
        store.put(kind, service("x", "3", 81));
        let changed = Changes { objects: all(&["x"]), by_users: all(&["x"]), ..Changes::default() };
        assert_eq!(store.take_changes(), changed);
        store.replace(kind, vec![service("x", "3", 81)]);
        assert_eq!(store.take_changes().objects, all(&["y"]));
        assert_eq!(store.count(), 1);
        store.delete(kind, &service("x", "4", 81));
        assert!(!store.has_any(kind));
    }

    #[test]
    fn statuses_of_others_are_noticed() {
        let store = ObjectStore::default();
        let kind = WatchedKind::named("HTTPRoute").expect("routes are watched");
        let route = |status: Value| json!({"metadata": {"namespace": "a", "name": "r"}, "spec": {}, "status": status});
        store.replace(kind, vec![route(json!({}))]);
        store.take_changes();
        store.put(kind, route(json!({"parents": [{"controllerName": "b/c"}]})));
        let statuses = BTreeSet::from([("HTTPRoute", Key::new("a", "r"))]);
        assert_eq!(store.take_changes(), Changes { statuses: statuses.clone(), ..Changes::default() });
        assert_eq!(store.with_status(), statuses);
    }
}
