//! Leader election: only the process that holds the Lease writes statuses and events. All processes serve traffic.

use std::rc::Rc;
use std::time::Duration;

use base::clock::{Date, WallTime, now_ms};
use runtime::timer;
use serde_json::{Value, json};

use crate::api::{ApiClient, ApiError, JSON};
use crate::measures::Measures;
use crate::report::{notice, warning};

/// The name of the Lease.
const NAME: &str = "weir-gateway";

/// How long a Lease lasts without being renewed.
const LASTS: Duration = Duration::from_secs(15);

/// How often the Lease is renewed or looked at.
const TURN: Duration = Duration::from_secs(3);

/// A process that gives up after this time without a renewal does so before another one takes over.
const GIVES_UP_MS: u64 = 10_000;

/// The election of one process.
pub(crate) struct LeaderElection {
    client: Rc<ApiClient>,
    measures: Rc<Measures>,
    identity: String,
    path: String,
    /// The last version of the Lease that another process wrote, and when it was first seen.
    seen: Option<(String, u64)>,
    renewed_at: u64,
}

impl LeaderElection {
    pub(crate) fn new(client: Rc<ApiClient>, measures: Rc<Measures>, identity: String) -> Self {
        let namespace = &client.access().namespace;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self { client, measures, identity, path, seen: None, renewed_at: 0 }
    }

    /// Takes part until the task is dropped. `changed` is called after each change of leadership.
    pub(crate) async fn run(mut self, changed: impl Fn()) {
        let mut has_failed = false;
        loop {
            let was_leader = self.measures.is_leader.get();
            let is_leader = match self.turn().await {
                Ok(is_leader) => {
                    has_failed = false;
                    is_leader
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        warning(format!("Lease {NAME}: {error}."));
                    }
                    was_leader && now_ms() - self.renewed_at < GIVES_UP_MS
                }
            };
            if is_leader != was_leader {
                self.measures.is_leader.set(is_leader);
                notice(match is_leader {
                    true => "this process is the leader and writes statuses.",
                    false => "another process is the leader and writes statuses.",
                });
                changed();
            }
            timer::sleep(TURN).await;
        }
    }

    /// Looks at the Lease, and takes or renews it if possible. Returns whether this process holds it.
    async fn turn(&mut self) -> Result<bool, ApiError> {
        let path = format!("{}/{NAME}", self.path);
        let bytes = match self.client.send("GET", &path, None).await {
            Ok(bytes) => bytes,
            Err(error) if error.status() == Some(404) => return self.create().await,
            Err(error) => return Err(error),
        };
        let mut lease: Value = serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::NoResponse(format!("the Lease is malformed: {error}")))?;
        let text =
            |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (holder, version) = (text("/spec/holderIdentity"), text("/metadata/resourceVersion"));
        if holder != self.identity && !holder.is_empty() {
            // Clocks of other hosts are not compared: what counts is how long the Lease has not changed here.
            match &self.seen {
                Some((seen, since)) if *seen == version => {
                    if now_ms() - since < LASTS.as_millis() as u64 {
                        return Ok(false);
                    }
                }
                _ => {
                    self.seen = Some((version, now_ms()));
                    return Ok(false);
                }
            }
        }
        let transitions = lease.pointer("/spec/leaseTransitions").and_then(Value::as_u64).unwrap_or_default();
        let acquired = lease.pointer("/spec/acquireTime").cloned().unwrap_or_default();
        let is_new = holder != self.identity;
        lease["spec"] =
            self.spec(&self.identity, transitions + u64::from(is_new), (!is_new).then_some(acquired));
        self.write("PUT", &path, &lease).await
    }

    async fn create(&mut self) -> Result<bool, ApiError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": NAME },
            "spec": self.spec(&self.identity, 0, None),
        });
        let path = self.path.clone();
        self.write("POST", &path, &lease).await
    }

    async fn write(&mut self, method: &str, path: &str, lease: &Value) -> Result<bool, ApiError> {
        match self.client.send_json(method, path, JSON, lease).await {
            Ok(_) => {
                self.renewed_at = now_ms();
                Ok(true)
            }
            // Another process was faster.
            Err(error) if error.status() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn spec(&self, holder: &str, transitions: u64, acquired: Option<Value>) -> Value {
        let now = timestamp(true);
        json!({
            "holderIdentity": holder, "leaseDurationSeconds": LASTS.as_secs(), "leaseTransitions": transitions,
            "acquireTime": acquired.unwrap_or_else(|| now.clone().into()), "renewTime": now,
        })
    }
}

/// Gives the Lease up if this process holds it, so that another process need not wait for its end.
pub(crate) async fn release(client: &ApiClient, identity: &str) {
    let namespace = &client.access().namespace;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}");
    let Ok(bytes) = client.send("GET", &path, None).await else { return };
    let Ok(mut lease) = serde_json::from_slice::<Value>(&bytes) else { return };
    if lease.pointer("/spec/holderIdentity").and_then(Value::as_str) != Some(identity) {
        return;
    }
    lease["spec"]["holderIdentity"] = "".into();
    // With the version that was read, the Lease of another process is never overwritten.
    let _ = client.send_json("PUT", &path, JSON, &lease).await;
}

/// Returns a name for this process that no other one has.
pub(crate) fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{:08x}", fastrand::u32(..))
}

/// The current time in RFC 3339, with microseconds if `is_precise`.
pub(crate) fn timestamp(is_precise: bool) -> String {
    let now = WallTime::now().since_1970_us();
    let date = Date::utc((now / 1_000_000) as i64);
    let mut out = String::new();
    let micros = is_precise.then_some((now % 1_000_000) as u32);
    // Writing to a string cannot fail.
    let _ = date.write_iso(micros, &mut out);
    out.replace("+00:00", "Z")
}
