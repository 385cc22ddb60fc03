//! Sends statuses and events to the API server, one after the other, while the next configuration may already be applied.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use gateway_model::{Event, StatusUpdate};
use runtime::timer;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::{ApiClient, ApiError, JSON, MERGE_PATCH};
use crate::kinds::WatchedKind;
use crate::lease::timestamp;
use crate::measures::Measures;
use crate::report::warning;
use crate::status;
use crate::store::{ObjectName, ObjectStore};

/// The pause after writes that failed.
const AGAIN: Duration = Duration::from_millis(500);

/// The most events that are sent at once.
const MOST_EVENTS: usize = 1000;

/// The most writes that wait for an answer.
const PARALLEL: usize = 8;

/// Writes the statuses of the last configuration in use.
pub(crate) struct Publisher {
    client: Rc<ApiClient>,
    store: Rc<ObjectStore>,
    measures: Rc<Measures>,
    controller: String,
    wanted: RefCell<Wanted>,
    /// Notified if something may have to be written.
    pub(crate) due: Notify,
}

#[derive(Default)]
struct Wanted {
    /// `None` until a configuration is in use.
    statuses: Option<BTreeMap<ObjectName, Value>>,
    /// The objects with a status that may differ from the wanted one.
    unchecked: BTreeSet<ObjectName>,
    /// Whether the statuses of all objects may differ.
    is_any_unchecked: bool,
    events: Vec<Event>,
    sent: BTreeSet<Event>,
}

/// A status to write.
struct StatusPatch {
    name: ObjectName,
    path: String,
    patch: Value,
}

impl Publisher {
    pub(crate) fn new(
        client: Rc<ApiClient>,
        store: Rc<ObjectStore>,
        measures: Rc<Measures>,
        controller: String,
    ) -> Rc<Self> {
        let (wanted, due) = (RefCell::default(), Notify::new());
        Rc::new(Self { client, store, measures, controller, wanted, due })
    }

    /// Replaces the statuses and events to write.
    pub(crate) fn set(&self, statuses: Vec<StatusUpdate>, events: Vec<Event>) {
        let named = statuses.into_iter().map(|update| ((update.kind, update.key), update.status));
        let new: BTreeMap<ObjectName, Value> = named.collect();
        let mut wanted = self.wanted.borrow_mut();
        match wanted.statuses.take() {
            Some(old) => {
                let changed = new.iter().filter(|(name, status)| old.get(*name) != Some(*status));
                wanted.unchecked.extend(changed.map(|(name, _)| name.clone()));
                wanted.unchecked.extend(old.into_keys().filter(|name| !new.contains_key(name)));
            }
            None => wanted.is_any_unchecked = true,
        }
        wanted.statuses = Some(new);
        wanted.events = events;
        drop(wanted);
        self.due.notify_one();
    }

    /// Compares the statuses of these objects, which have changed in the API server.
    pub(crate) fn compare(&self, names: BTreeSet<ObjectName>) {
        if !names.is_empty() {
            self.wanted.borrow_mut().unchecked.extend(names);
            self.due.notify_one();
        }
    }

    /// Writes what differs until the task is dropped.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.due.notified().await;
            if !self.measures.is_leader.get() {
                let mut wanted = self.wanted.borrow_mut();
                wanted.is_any_unchecked = true;
                wanted.unchecked.clear();
                continue;
            }
            let unwritten = self.write_statuses().await;
            if !unwritten.is_empty() {
                self.wanted.borrow_mut().unchecked.extend(unwritten);
                let own = self.clone();
                // A new version of the object usually arrives before this.
                tokio::task::spawn_local(async move {
                    timer::sleep(AGAIN).await;
                    own.due.notify_one();
                });
            }
            self.send_events().await;
        }
    }

    /// Takes the names of objects to compare, and returns the patches of statuses that differ.
    fn patches(&self) -> Vec<StatusPatch> {
        let now = timestamp(false);
        let mut wanted = self.wanted.borrow_mut();
        if wanted.statuses.is_none() {
            return Vec::new();
        }
        let mut names = std::mem::take(&mut wanted.unchecked);
        if std::mem::take(&mut wanted.is_any_unchecked) {
            names.extend(wanted.statuses.iter().flatten().map(|(name, _)| name.clone()));
            names.extend(self.store.with_status());
        }
        let patch = |name: ObjectName| {
            let (kind, live) = (WatchedKind::named(name.0)?, self.store.live(&name)?);
            let status = match wanted.statuses.as_ref()?.get(&name) {
                Some(status) => status.clone(),
                None => status::removal(kind, &live, &self.controller)?,
            };
            let patch = status::patch(kind, &live, status, &self.controller, &now)?;
            Some(StatusPatch { path: format!("{}/status", kind.path(&name.1)), name, patch })
        };
        names.into_iter().filter_map(patch).collect()
    }

    /// Writes the statuses that differ. Returns the objects with writes that failed.
    async fn write_statuses(&self) -> BTreeSet<ObjectName> {
        let patches = self.patches();
        let mut unwritten: BTreeSet<ObjectName> = patches.iter().map(|own| own.name.clone()).collect();
        let mut patches = patches.into_iter();
        let mut running = JoinSet::new();
        loop {
            while running.len() < PARALLEL
                && let Some(StatusPatch { name, path, patch }) = patches.next()
            {
                let client = self.client.clone();
                running.spawn_local(async move {
                    let sent = client.send_json("PATCH", &path, MERGE_PATCH, &patch).await;
                    sent.map(|_| name).map_err(|error| (path, error))
                });
            }
            match running.join_next().await {
                None => return unwritten,
                Some(Ok(Ok(name))) => {
                    unwritten.remove(&name);
                    self.measures.status_writes.add();
                }
                // The object has changed or is gone: its next version leads to the next write.
                Some(Ok(Err((_, error)))) if matches!(error.status(), Some(404 | 409)) => {}
                Some(Ok(Err((path, error)))) => {
                    self.measures.status_failures.add();
                    warning(format!("cannot write {path}: {error}."));
                    // Without an answer, further attempts would only take time.
                    if matches!(error, ApiError::NoResponse(_) | ApiError::Silent) {
                        return unwritten;
                    }
                }
                Some(Err(_)) => {}
            }
        }
    }

    /// Sends the events that were not sent before.
    async fn send_events(&self) {
        let new: Vec<Event> = {
            let mut wanted = self.wanted.borrow_mut();
            let current: BTreeSet<Event> = wanted.events.iter().cloned().collect();
            // An event that no longer applies is sent again if it comes back.
            wanted.sent.retain(|event| current.contains(event));
            let new = current.into_iter().filter(|event| !wanted.sent.contains(event));
            new.take(MOST_EVENTS).collect()
        };
        for event in new {
            let Some(kind) = WatchedKind::named(event.kind) else { continue };
            let live = self.store.live(&(kind.kind, event.key.clone())).unwrap_or_default();
            let namespace = if event.key.namespace.is_empty() { "default" } else { &event.key.namespace };
            let now = timestamp(false);
            let body = json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": { "generateName": format!("{}.", event.key.name), "namespace": namespace },
                "involvedObject": {
                    "apiVersion": kind.version, "kind": kind.kind, "namespace": event.key.namespace,
                    "name": event.key.name, "uid": live.uid, "resourceVersion": live.resource_version,
                },
                "reason": event.reason, "message": event.message,
                "type": if event.is_warning { "Warning" } else { "Normal" },
                "source": { "component": "weir-gateway" }, "reportingComponent": self.controller,
                "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            });
            let path = format!("/api/v1/namespaces/{namespace}/events");
            match self.client.send_json("POST", &path, JSON, &body).await {
                // A namespace that is being deleted takes no events.
                Ok(_) => drop(self.wanted.borrow_mut().sent.insert(event)),
                Err(error) if error.status().is_some() => drop(self.wanted.borrow_mut().sent.insert(event)),
                Err(_) => return,
            }
        }
    }
}
