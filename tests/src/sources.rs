//! Sources of discovered servers: stubs of the interfaces of Kubernetes, etcd, Docker, Consul and Nomad.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::{Origin, PATIENCE};

/// How the requests of a source distinguish lists and watches, and the versions from which watches continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDialect {
    /// `?watch=1&resourceVersion=<version>`.
    Kubernetes,
    /// `/v3/kv/range` and `/v3/watch`.
    Etcd,
    /// `/containers/json` and `/events`, which begins with the next event.
    Containers,
}

#[derive(Debug, Default)]
struct SourceState {
    /// The answer to a request for the list.
    list: String,
    /// The lines of watches. The version of a line is its position, from 1.
    lines: Vec<String>,
    /// Versions up to this one are too old for a watch.
    expired: usize,
    /// Incremented to cut the current streams.
    cuts: usize,
    /// The status of every response, unless it is 200.
    status: Option<u16>,
    /// The status of the responses to watches, unless it is 200.
    watch_status: Option<u16>,
    /// The heads of all requests.
    heads: Vec<String>,
}

/// A source with a list and a stream of changes.
#[derive(Debug)]
pub struct StreamSource {
    shared: Arc<SharedSource>,
    origin: Option<Origin>,
}

#[derive(Debug)]
struct SharedSource {
    dialect: SourceDialect,
    state: Mutex<SourceState>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl StreamSource {
    /// Starts a source on a port of 127.0.0.1, with this list.
    pub fn start(dialect: SourceDialect, list: impl Into<String>) -> Self {
        let shared = SharedSource::new(dialect, list.into());
        let serving = shared.clone();
        Self { shared, origin: Some(Origin::raw(move |stream| serving.serve(stream))) }
    }

    /// Starts a source on a UNIX socket, with this list. It ends with the process.
    pub fn start_unix(dialect: SourceDialect, path: &Path, list: impl Into<String>) -> Self {
        let shared = SharedSource::new(dialect, list.into());
        let listener = UnixListener::bind(path).expect("the directory takes sockets");
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Self { shared, origin: None }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.origin.as_ref().map_or(0, Origin::port)
    }

    fn change(&self, change: impl FnOnce(&mut SourceState)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }

    /// Replaces the list, and sends `line` to the watches.
    pub fn publish(&self, list: impl Into<String>, line: impl Into<String>) {
        self.change(|state| {
            state.list = list.into();
            state.lines.push(line.into());
        });
    }

    /// Ends all streams in the middle of a chunk. A new watch is served.
    pub fn cut(&self) {
        self.change(|state| state.cuts += 1);
    }

    /// Makes all versions so far too old for a watch, and ends all streams.
    pub fn expire(&self) {
        self.change(|state| {
            state.expired = state.lines.len();
            state.cuts += 1;
        });
    }

    /// Answers every request with this status; `None` to answer normally again. Ends all streams.
    pub fn fail(&self, status: Option<u16>) {
        self.change(|state| {
            state.status = status;
            state.cuts += 1;
        });
    }

    /// Answers only watches with this status; `None` to answer normally again. Ends all streams.
    pub fn fail_watches(&self, status: Option<u16>) {
        self.change(|state| {
            state.watch_status = status;
            state.cuts += 1;
        });
    }

    /// Returns the version of the last line.
    pub fn version(&self) -> usize {
        self.shared.state().lines.len()
    }

    /// Returns the heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.state().heads.clone()
    }
}

impl Drop for StreamSource {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.cut();
    }
}

impl SharedSource {
    fn new(dialect: SourceDialect, list: String) -> Arc<Self> {
        let state = Mutex::new(SourceState { list, ..SourceState::default() });
        Arc::new(Self { dialect, state, changed: Condvar::new(), is_over: AtomicBool::new(false) })
    }

    fn state(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one request, which has `Connection: close`.
    fn serve(&self, mut stream: impl Read + Write) {
        let Some((head, body)) = request(&mut stream) else { return };
        let mut state = self.state();
        state.heads.push(head.clone());
        let line = head.lines().next().unwrap_or_default();
        let is_watch = match self.dialect {
            SourceDialect::Kubernetes => line.contains("watch=1"),
            SourceDialect::Etcd => line.contains("/v3/watch"),
            SourceDialect::Containers => line.contains("/events"),
        };
        if let Some(status) = state.status.or(state.watch_status.filter(|_| is_watch)) {
            drop(state);
            let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        if !is_watch {
            let list = state.list.clone();
            drop(state);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{list}", list.len());
            return;
        }
        let mut sent = match self.dialect {
            SourceDialect::Kubernetes => number_after(line, "resourceVersion="),
            SourceDialect::Etcd => start_revision(&body).saturating_sub(1),
            SourceDialect::Containers => state.lines.len(),
        };
        if sent < state.expired {
            drop(state);
            let _ = write!(stream, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        let cuts = state.cuts;
        if stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err() {
            return;
        }
        loop {
            while state.lines.len() == sent && state.cuts == cuts {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.cuts != cuts || self.is_over.load(Ordering::Relaxed) {
                // The chunk promises more than it has.
                let _ = stream.write_all(b"ff\r\n{\"type\":");
                return;
            }
            let line = format!("{}\n", state.lines[sent]);
            sent += 1;
            drop(state);
            // The line is split, as any sender may do.
            let (first, rest) = line.split_at(line.len() / 2);
            let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n", first.len(), rest.len());
            if stream.write_all(chunks.as_bytes()).is_err() {
                return;
            }
            state = self.state();
        }
    }
}

/// Reads a request: its head and its body.
fn request(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut more = |bytes: &mut Vec<u8>| {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&part[..count]);
        Some(())
    };
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        more(&mut bytes)?;
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length =
        crate::client::field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        more(&mut bytes)?;
    }
    Some((head, bytes.split_off(end + 4)))
}

fn number_after(text: &str, name: &str) -> usize {
    let digits = text.split_once(name).map_or("", |(_, rest)| rest);
    digits.split(|own: char| !own.is_ascii_digit()).next().and_then(|own| own.parse().ok()).unwrap_or(0)
}

fn start_revision(body: &[u8]) -> usize {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.pointer("/create_request/start_revision")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Returns an EndpointSlice of the service `web` in the namespace `shop`: the names, ports and conditions of endpoints on 127.0.0.1,
/// with one port.
pub fn endpoint_slice(name: &str, version: usize, port: u16, pods: &[(&str, Value)]) -> Value {
    let endpoint = |(pod, conditions): &(&str, Value)| {
        json!({"addresses": ["127.0.0.1"], "conditions": conditions, "zone": "z1", "nodeName": "n1",
            "targetRef": {"kind": "Pod", "name": pod, "namespace": "shop"}})
    };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>()})
}

/// Returns a list of EndpointSlices.
pub fn slice_list(version: usize, slices: &[Value]) -> String {
    json!({"kind": "EndpointSliceList", "metadata": {"resourceVersion": version.to_string()}, "items": slices}).to_string()
}

/// Returns an event of a watch of Kubernetes.
pub fn watch_event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

/// Returns the answer of etcd to a range request.
pub fn key_range(revision: usize, pairs: &[(&str, &str)]) -> String {
    let pair =
        |(key, value): &(&str, &str)| json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
    json!({"header": {"revision": revision.to_string()}, "kvs": pairs.iter().map(pair).collect::<Vec<_>>()})
        .to_string()
}

/// Returns an answer of a watch of etcd: a key with its new value, or without one if it was deleted.
pub fn key_event(revision: usize, key: &str, value: Option<&str>) -> String {
    let event = match value {
        Some(value) => json!({"kv": {"key": STANDARD.encode(key), "value": STANDARD.encode(value)}}),
        None => json!({"type": "DELETE", "kv": {"key": STANDARD.encode(key)}}),
    };
    json!({"result": {"header": {"revision": revision.to_string()}, "events": [event]}}).to_string()
}

/// A source that answers when its list has changed, with an index in a header (Consul, Nomad).
#[derive(Debug)]
pub struct BlockingSource {
    state: Arc<(Mutex<BlockingState>, Condvar)>,
    origin: Origin,
}

#[derive(Debug, Default)]
struct BlockingState {
    index: u64,
    list: String,
    heads: Vec<String>,
}

impl BlockingSource {
    /// Starts a source with this list, which sends its index in `header`.
    pub fn start(header: &'static str, list: impl Into<String>) -> Self {
        let first = BlockingState { index: 1, list: list.into(), heads: Vec::new() };
        let state = Arc::new((Mutex::new(first), Condvar::new()));
        let serving = state.clone();
        let origin = Origin::start(move |head, _| {
            let (state, changed) = &*serving;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.heads.push(head.to_owned());
            let known = number_after(head, "index=") as u64;
            let waited =
                changed.wait_timeout_while(state, PATIENCE, |state| known > 0 && state.index == known);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let BlockingState { index, list, .. } = &*state;
            format!("HTTP/1.1 200 OK\r\n{header}: {index}\r\nContent-Length: {}\r\n\r\n{list}", list.len())
                .into_bytes()
        });
        Self { state, origin }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    /// Replaces the list and the index.
    pub fn publish(&self, list: impl Into<String>, index: u64) {
        let mut state = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.list, state.index) = (list.into(), index);
        drop(state);
        self.state.1.notify_all();
    }

    /// Returns the heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).heads.clone()
    }
}

/// Returns an entry of Consul's health endpoint: a service on 127.0.0.1 with one check.
pub fn consul_entry(id: &str, port: u16, tag: &str, status: &str) -> Value {
    json!({"Node": {"ID": "a0d5b2c4-0000-0000-0000-000000000000", "Node": "n1", "Address": "127.0.0.1", "Datacenter": "dc1", "Meta": {"zone": "z1"}},
        "Service": {"ID": id, "Service": "web", "Tags": [tag], "Address": "", "Port": port, "Weights": {"Passing": 10, "Warning": 1},
            "Meta": {}},
        "Checks": [{"Node": "n1", "CheckID": "service:web", "Status": status, "ServiceID": id}]})
}

/// Returns a registration of a service in Nomad, on 127.0.0.1.
pub fn nomad_entry(allocation: &str, port: u16, tag: &str) -> Value {
    json!({"ID": format!("_nomad-task-{allocation}-web"), "ServiceName": "web", "Namespace": "default", "NodeID": "n1", "Datacenter": "dc1",
        "JobID": "shop", "AllocID": allocation, "Tags": [tag], "Address": "127.0.0.1", "Port": port, "CreateIndex": 5, "ModifyIndex": 5})
}

/// Returns a running container, in the network of the machine.
pub fn container(name: &str, port: u16, service: &str) -> Value {
    json!({"Id": format!("{name}0123"), "Names": [format!("/{name}")], "State": "running", "Status": "Up 3 minutes", "Ports": [],
        "Labels": {"service": service, "weir.port": port.to_string()},
        "NetworkSettings": {"Networks": {"host": {"IPAddress": ""}}}})
}
