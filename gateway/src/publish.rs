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
    events: Vec<Event>,
    sent: BTreeSet<Event>,
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
        let mut wanted = self.wanted.borrow_mut();
        let named = statuses.into_iter().map(|update| ((update.kind, update.key), update.status));
        wanted.statuses = Some(named.collect());
        wanted.events = events;
        drop(wanted);
        self.due.notify_one();
    }

    /// Writes what differs until the task is dropped.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.due.notified().await;
            if !self.measures.is_leader.get() {
                continue;
            }
            if self.write_statuses().await {
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

    /// Returns the patches of all statuses that differ.
    fn patches(&self) -> Vec<(String, Value)> {
        let now = timestamp(false);
        let wanted = self.wanted.borrow();
        let Some(statuses) = &wanted.statuses else { return Vec::new() };
        let mut patches = Vec::new();
        for ((kind, key), status) in statuses {
            let (Some(kind), Some(live)) = (WatchedKind::named(kind), self.store.live(&(kind, key.clone())))
            else {
                continue;
            };
            if let Some(patch) = status::patch(kind, &live, status.clone(), &self.controller, &now) {
                patches.push((format!("{}/status", kind.path(key)), patch));
            }
        }
        for (kind, key, live) in self.store.with_entries() {
            if !statuses.contains_key(&(kind.kind, key.clone()))
                && let Some(status) = status::removal(kind, &live, &self.controller)
                && let Some(patch) = status::patch(kind, &live, status, &self.controller, &now)
            {
                patches.push((format!("{}/status", kind.path(&key)), patch));
            }
        }
        patches
    }

    /// Writes the statuses that differ. Returns whether some writes failed.
    async fn write_statuses(&self) -> bool {
        let mut patches = self.patches().into_iter();
        let mut running = JoinSet::new();
        let mut has_failed = false;
        loop {
            while running.len() < PARALLEL
                && let Some((path, patch)) = patches.next()
            {
                let client = self.client.clone();
                running.spawn_local(async move {
                    let sent = client.send_json("PATCH", &path, MERGE_PATCH, &patch).await;
                    sent.map_err(|error| (path, error))
                });
            }
            match running.join_next().await {
                None => return has_failed,
                Some(Ok(Ok(_))) => self.measures.status_writes.add(),
                // The object has changed or is gone: its next version leads to the next write.
                Some(Ok(Err((_, error)))) if matches!(error.status(), Some(404 | 409)) => has_failed = true,
                Some(Ok(Err((path, error)))) => {
                    has_failed = true;
                    self.measures.status_failures.add();
                    warning(format!("cannot write {path}: {error}."));
                    // Without an answer, further attempts would only take time.
                    if matches!(error, ApiError::NoResponse(_) | ApiError::Silent) {
                        return true;
                    }
                }
                Some(Err(_)) => has_failed = true,
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
