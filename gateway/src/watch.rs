//! Keeps the objects of one kind current: lists them, and follows their changes.
//!
//! A watch that the server ends is continued. After anything else (a broken connection, an expired version, a version older than
//! one seen before), the objects are listed again without a version, because the server may have been restored from an older state.
//! The objects seen last stay in use until a list arrives.

use std::rc::Rc;
use std::time::Duration;

use base::clock::now_ms;
use runtime::timer;
use serde_json::Value;

use crate::api::{ApiClient, ApiError, failure};
use crate::kinds::WatchedKind;
use crate::measures::Measures;
use crate::report::{notice, warning};
use crate::store::ObjectStore;

/// The number of objects in a page of a list.
const PAGE: usize = 500;

/// How long a watch lasts, in seconds, before it is continued.
const WATCH: u64 = 300;

/// The shortest time between two watches, for servers that end them at once.
const SHORTEST_WATCH: Duration = Duration::from_millis(100);

/// The delays after consecutive failures.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(15);

/// How often a kind is looked for that the cluster lacks.
const ABSENT: Duration = Duration::from_secs(10);

/// How long a kind must be missing before its objects are dropped. A server that has just started does not know all kinds yet.
const MISSING_MS: u64 = 60_000;

/// The longest event of a watch, in bytes. The server stores objects of at most about 1.5 MB.
const LONGEST_EVENT: usize = 8 << 20;

/// A task that keeps one kind current.
pub(crate) struct KindWatcher {
    pub(crate) client: Rc<ApiClient>,
    pub(crate) store: Rc<ObjectStore>,
    pub(crate) measures: Rc<Measures>,
    pub(crate) kind: &'static WatchedKind,
}

/// Why a watch ended.
enum WatchEnd {
    /// The server ended it as asked.
    Whole,
    /// The objects must be listed again.
    Expired,
    Failed(ApiError),
}

impl KindWatcher {
    /// Runs until the task is dropped.
    pub(crate) async fn run(self) {
        let mut failures = 0u32;
        let mut missing_since: Option<u64> = None;
        loop {
            match self.list().await {
                Ok(version) => {
                    self.end_of_failure(&mut failures, &mut missing_since);
                    let failed = self.follow(version).await;
                    if let Some(error) = failed {
                        failures = 1;
                        self.report(&error);
                    }
                }
                Err(error) if error.status() == Some(404) && self.kind.is_extension => {
                    let since = *missing_since.get_or_insert_with(|| {
                        notice(format!(
                            "{}: the cluster does not have this kind; it is used once it is installed.",
                            self.kind.kind
                        ));
                        now_ms()
                    });
                    if !self.store.has_any(self.kind) || now_ms() - since > MISSING_MS {
                        self.store.replace(self.kind, Vec::new());
                    }
                    timer::sleep(ABSENT).await;
                    continue;
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        self.report(&error);
                    }
                }
            }
            timer::sleep(delay(failures)).await;
        }
    }

    fn report(&self, error: &ApiError) {
        self.measures.watch_failures.add();
        warning(format!("{}: cannot be watched, the last state stays in use: {error}.", self.kind.kind));
    }

    fn end_of_failure(&self, failures: &mut u32, missing: &mut Option<u64>) {
        if std::mem::take(failures) > 0 || missing.take().is_some() {
            notice(format!("{}: is watched.", self.kind.kind));
        }
    }

    /// Lists the objects. Returns the version from which a watch can start.
    async fn list(&self) -> Result<String, ApiError> {
        let mut objects = Vec::new();
        let mut page = String::new();
        loop {
            let mut path = format!("{}?limit={PAGE}", self.kind.list_path());
            for (name, value) in [("fieldSelector", self.kind.selector), ("continue", &page)] {
                if !value.is_empty() {
                    path += &format!("&{name}={value}");
                }
            }
            let bytes = self.client.send("GET", &path, None).await?;
            let mut list: Value = serde_json::from_slice(&bytes)
                .map_err(|error| ApiError::NoResponse(format!("the list is malformed: {error}")))?;
            drop(bytes);
            if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
                objects.extend(items);
            }
            let metadata = |name: &str| {
                let value = list.pointer(&format!("/metadata/{name}")).and_then(Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            page = encoded(&metadata("continue"));
            if page.is_empty() {
                let version = metadata("resourceVersion");
                self.store.replace(self.kind, objects);
                return Ok(version);
            }
        }
    }

    /// Follows changes until the objects must be listed again. Returns the reason if it is a failure.
    async fn follow(&self, mut version: String) -> Option<ApiError> {
        loop {
            let begun = now_ms();
            match self.watch(&mut version).await {
                WatchEnd::Whole => {
                    timer::sleep(SHORTEST_WATCH.saturating_sub(Duration::from_millis(now_ms() - begun)))
                        .await;
                }
                WatchEnd::Expired => return None,
                WatchEnd::Failed(error) => return Some(error),
            }
        }
    }

    async fn watch(&self, version: &mut String) -> WatchEnd {
        let mut path = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH}&resourceVersion={version}",
            self.kind.list_path()
        );
        if !self.kind.selector.is_empty() {
            path += &format!("&fieldSelector={}", self.kind.selector);
        }
        let mut stream = match self.client.watch(&path).await {
            Ok(stream) => stream,
            Err(error) if error.status() == Some(410) => return WatchEnd::Expired,
            Err(error) => return WatchEnd::Failed(error),
        };
        let (mut bytes, mut searched) = (Vec::new(), 0);
        loop {
            match stream.read(&mut bytes).await {
                Ok(true) => {}
                Ok(false) => return WatchEnd::Whole,
                // The connection may be dead. If it is not, there was nothing to send.
                Err(error) => {
                    return match failure(error) {
                        ApiError::Silent => WatchEnd::Whole,
                        error => WatchEnd::Failed(error),
                    };
                }
            }
            let mut begin = 0;
            while let Some(at) = bytes[searched..].iter().position(|byte| *byte == b'\n') {
                let end = searched + at;
                if let Some(reason) = self.event(&bytes[begin..end], version) {
                    return reason;
                }
                (begin, searched) = (end + 1, end + 1);
            }
            bytes.drain(..begin);
            searched = bytes.len();
            if bytes.len() > LONGEST_EVENT {
                return WatchEnd::Failed(ApiError::NoResponse(format!(
                    "an event has more than {LONGEST_EVENT} bytes"
                )));
            }
        }
    }

    /// Applies an event. Returns a reason to end the watch.
    fn event(&self, line: &[u8], version: &mut String) -> Option<WatchEnd> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
            return Some(WatchEnd::Failed(ApiError::NoResponse("an event is malformed".to_owned())));
        };
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind == "ERROR" {
            let status = object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
            let status = status.unwrap_or(500);
            let message = object.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
            return Some(match status {
                410 => WatchEnd::Expired,
                _ => WatchEnd::Failed(ApiError::Refused { status, message }),
            });
        }
        let own = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        if is_older(own, version) {
            notice(format!(
                "{}: version {own} follows {version}, as after a restore of an older state: all objects are listed again.",
                self.kind.kind
            ));
            return Some(WatchEnd::Expired);
        }
        version.clear();
        version.push_str(own);
        self.measures.events_received.add();
        match kind {
            "ADDED" | "MODIFIED" => self.store.put(self.kind, object),
            "DELETED" => self.store.delete(self.kind, &object),
            _ => {}
        }
        None
    }
}

/// Returns whether one version is older than another. Versions that are not numbers cannot be compared.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

/// Returns the pause after failures; it is spread, so that clients do not come back at once after an outage.
fn delay(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::from_millis(20);
    }
    let longest = FIRST_DELAY.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_DELAY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Encodes a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(is_older("9", "10") && !is_older("10", "10") && !is_older("11", "10"));
        assert!(!is_older("", "10") && !is_older("a", "10"));
    }

    #[test]
    fn delays_grow_to_a_limit() {
        for failures in 1..40 {
            assert!(delay(failures) <= LONGEST_DELAY, "{failures}");
        }
        assert!(delay(40) >= LONGEST_DELAY / 2);
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(encoded("a/b=ü~"), "a%2Fb%3D%C3%BC~");
    }
}
