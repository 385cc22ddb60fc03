//! A small API server: objects with versions, lists in pages, watches, merge patches of statuses, and updates with a version.
//!
//! It can be stopped and started again on its port, forget old versions (410), and return to an earlier state like after a restore
//! from a backup.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use weir_tests::free_port;

/// How long a watch waits for an event before it looks whether the server was stopped.
const TURN: Duration = Duration::from_millis(50);

/// An event: the version, the path of the collection, the type, and the object.
type LoggedEvent = (u64, String, &'static str, Value);

/// The objects by their path.
#[derive(Debug, Clone, Default)]
struct Stored {
    version: u64,
    objects: BTreeMap<String, Value>,
    log: Vec<LoggedEvent>,
    /// Watches from before this version are refused.
    oldest: u64,
}

#[derive(Debug, Default)]
struct ServerState {
    stored: Stored,
    /// Counts starts and stops: connections of an earlier run are closed.
    run: u64,
    is_running: bool,
    /// Method and path of each request, without watches and lists.
    writes: Vec<String>,
    lists: usize,
}

/// The server.
#[derive(Debug, Clone)]
pub(crate) struct ApiServer {
    port: u16,
    shared: Arc<(Mutex<ServerState>, Condvar)>,
}

/// A state to which a server can return.
#[derive(Debug)]
pub(crate) struct Snapshot(Stored);

/// The plural names of the kinds that tests create, with their paths.
const KINDS: &[(&str, &str)] = &[
    ("GatewayClass", "/apis/gateway.networking.k8s.io/v1/gatewayclasses"),
    ("Gateway", "/apis/gateway.networking.k8s.io/v1/gateways"),
    ("HTTPRoute", "/apis/gateway.networking.k8s.io/v1/httproutes"),
    ("Namespace", "/api/v1/namespaces"),
    ("Service", "/api/v1/services"),
    ("Secret", "/api/v1/secrets"),
    ("EndpointSlice", "/apis/discovery.k8s.io/v1/endpointslices"),
];

/// Kinds without objects.
const EMPTY: &[&str] = &[
    "/api/v1/configmaps",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/gateway.networking.k8s.io/v1/referencegrants",
];

impl ApiServer {
    /// Starts a server without objects.
    pub(crate) fn start() -> ApiServer {
        let server = ApiServer { port: free_port(), shared: Arc::default() };
        server.state().stored.version = 100;
        server.resume();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the server: its port is closed, and all connections end.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.is_running = false;
        state.run += 1;
        drop(state);
        self.shared.1.notify_all();
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }

    /// Starts the server again with its objects.
    pub(crate) fn resume(&self) {
        let mut state = self.state();
        state.is_running = true;
        state.run += 1;
        let run = state.run;
        drop(state);
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("a TCP socket");
        socket.set_reuse_port(true).expect("a TCP socket");
        let address = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        socket.bind(&address.into()).expect("the port is reserved");
        socket.listen(128).expect("a bound socket");
        let (listener, own) = (TcpListener::from(socket), self.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.state().run != run {
                    return;
                }
                let own = own.clone();
                std::thread::spawn(move || own.serve(&stream, run));
            }
        });
    }

    /// Returns the current state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.state().stored.clone())
    }

    /// Returns to an earlier state, versions included. The server must be stopped.
    pub(crate) fn restore(&self, snapshot: Snapshot) {
        let mut state = self.state();
        assert!(!state.is_running, "a store is restored while the server is stopped");
        state.stored = snapshot.0;
    }

    /// Forgets all events, and ends all watches: they cannot be continued.
    pub(crate) fn forget_versions(&self) {
        let mut state = self.state();
        state.stored.oldest = state.stored.version + 1;
        state.stored.version += 10;
        state.stored.log.clear();
        state.run += 1;
        drop(state);
        self.shared.1.notify_all();
        // The thread that accepts belongs to the earlier run.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.resume();
    }

    /// Creates or replaces an object. The status of an existing one is kept.
    pub(crate) fn apply(&self, mut object: Value) {
        let path = path_of(&object);
        let mut state = self.state();
        if let Some(stored) = state.stored.objects.get(&path) {
            object["status"] = stored["status"].clone();
            let generation = stored["metadata"]["generation"].as_u64().unwrap_or_default();
            object["metadata"]["generation"] = (generation + 1).into();
        } else {
            object["metadata"]["generation"] = 1.into();
        }
        object["metadata"]["uid"] = path.clone().into();
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        state.stored.put(&path, object);
        drop(state);
        self.shared.1.notify_all();
    }

    /// Deletes an object.
    pub(crate) fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let path = path_of(&json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}}));
        let mut state = self.state();
        if let Some(object) = state.stored.objects.remove(&path) {
            state.stored.log(&path, "DELETED", object);
        }
        drop(state);
        self.shared.1.notify_all();
    }

    /// Returns an object.
    pub(crate) fn object(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let path = path_of(&json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}}));
        self.state().stored.objects.get(&path).cloned().unwrap_or_default()
    }

    /// Returns the condition of that type, from a list of conditions somewhere in the status of an object.
    pub(crate) fn condition(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        pointer: &str,
        condition: &str,
    ) -> Value {
        let object = self.object(kind, namespace, name);
        let conditions = object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        conditions.into_iter().find(|own| own["type"] == condition).unwrap_or_default()
    }

    /// Returns the objects of a path, such as those below `/api/v1/namespaces/a/events`.
    pub(crate) fn below(&self, path: &str) -> Vec<Value> {
        let state = self.state();
        let found = state.stored.objects.iter().filter(|(own, _)| own.starts_with(path));
        found.map(|(_, object)| object.clone()).collect()
    }

    /// Returns how many objects were written through the API so far, without Leases.
    pub(crate) fn writes(&self) -> usize {
        self.state().writes.iter().filter(|write| !write.contains("/leases")).count()
    }

    /// Returns how many lists were requested so far.
    pub(crate) fn lists(&self) -> usize {
        self.state().lists
    }

    fn serve(&self, stream: &TcpStream, run: u64) {
        let mut reader = BufReader::new(stream);
        while self.state().run == run {
            let Some((method, target, body)) = request(&mut reader) else { break };
            if self.state().run != run {
                break;
            }
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let query: BTreeMap<&str, &str> =
                query.split('&').filter_map(|part| part.split_once('=')).collect();
            if query.get("watch") == Some(&"1") {
                let _ = self.watch(stream, path, &query, run);
                break;
            }
            let (status, answer) = self.answer(&method, path, &query, &body);
            let text = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                text.len()
            );
            if (&*stream).write_all((head + &text).as_bytes()).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn answer(&self, method: &str, path: &str, query: &BTreeMap<&str, &str>, body: &[u8]) -> (u16, Value) {
        let mut state = self.state();
        let is_collection = KINDS.iter().any(|(_, own)| *own == path) || EMPTY.contains(&path);
        if method == "GET" && is_collection {
            state.lists += 1;
            return (200, state.stored.page(path, query));
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let changed = match method {
            "GET" => {
                return state.stored.objects.get(path).map_or((404, json!({})), |own| (200, own.clone()));
            }
            "PATCH" => state.stored.patch(path, &body),
            "PUT" => state.stored.update(path, body),
            "POST" => state.stored.create(path, body),
            _ => Err(405),
        };
        state.writes.push(format!("{method} {path}"));
        drop(state);
        self.shared.1.notify_all();
        match changed {
            Ok(object) => (200, object),
            Err(status) => (status, json!({"kind": "Status", "code": status, "message": "refused"})),
        }
    }

    fn watch(
        &self,
        mut stream: &TcpStream,
        path: &str,
        query: &BTreeMap<&str, &str>,
        run: u64,
    ) -> std::io::Result<()> {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let mut version =
            query.get("resourceVersion").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let mut state = self.state();
        if version < state.stored.oldest {
            drop(state);
            return send_event(
                stream,
                "ERROR",
                &json!({"kind": "Status", "code": 410, "message": "too old"}),
            );
        }
        loop {
            if state.run != run {
                return Ok(());
            }
            let new: Vec<LoggedEvent> = state
                .stored
                .log
                .iter()
                .filter(|event| event.0 > version && event.1 == path)
                .cloned()
                .collect();
            drop(state);
            for (own, _, kind, object) in new {
                send_event(stream, kind, &object)?;
                version = own;
            }
            let waited = self.shared.1.wait_timeout(self.state(), TURN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn send_event(mut stream: &TcpStream, kind: &str, object: &Value) -> std::io::Result<()> {
    let line = json!({"type": kind, "object": object}).to_string() + "\n";
    stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())
}

/// Reads a request: method, target, body.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((method, target, body))
}

/// The collection of all namespaces to which an object's path belongs.
fn collection_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.iter().position(|part| *part == "namespaces") {
        // /…/namespaces/NAMESPACE/PLURAL/NAME
        Some(at) if parts.len() > at + 3 => {
            format!("{}/{}", parts[..at].join("/"), parts[at + 2])
        }
        _ => parts[..parts.len() - 1].join("/"),
    }
}

fn path_of(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (_, collection) = KINDS.iter().find(|(own, _)| *own == kind).expect("the kind is known");
    let (root, plural) = collection.rsplit_once('/').expect("a path");
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{collection}/{name}"),
    }
}

impl Stored {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        let kind = if self.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        object["metadata"]["resourceVersion"] = (self.version + 1).to_string().into();
        self.log(path, kind, object.clone());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn log(&mut self, path: &str, kind: &'static str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.log.push((self.version, collection_of(path), kind, object));
    }

    fn page(&self, path: &str, query: &BTreeMap<&str, &str>) -> Value {
        let own = self.objects.iter().filter(|(own, _)| collection_of(own) == path);
        let items: Vec<&Value> = own.map(|(_, object)| object).collect();
        let number = |name: &str| query.get(name).and_then(|text| text.parse::<usize>().ok());
        let (begin, limit) = (number("continue").unwrap_or_default(), number("limit").unwrap_or(usize::MAX));
        let end = begin.saturating_add(limit).min(items.len());
        let next = if end < items.len() { end.to_string() } else { String::new() };
        json!({"metadata": {"resourceVersion": self.version.to_string(), "continue": next}, "items": items[begin..end]})
    }

    /// A merge patch of a status.
    fn patch(&mut self, path: &str, patch: &Value) -> Result<Value, u16> {
        let path = path.strip_suffix("/status").ok_or(405u16)?;
        let mut object = self.objects.get(path).cloned().ok_or(404u16)?;
        if let Some(version) = patch.pointer("/metadata/resourceVersion")
            && *version != object["metadata"]["resourceVersion"]
        {
            return Err(409);
        }
        merge(&mut object["status"], &patch["status"]);
        Ok(self.put(path, object))
    }

    fn update(&mut self, path: &str, object: Value) -> Result<Value, u16> {
        let stored = self.objects.get(path).ok_or(404u16)?;
        if stored["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return Err(409);
        }
        Ok(self.put(path, object))
    }

    fn create(&mut self, path: &str, mut object: Value) -> Result<Value, u16> {
        let name = match object["metadata"]["name"].as_str() {
            Some(name) => name.to_owned(),
            None => {
                format!("{}{}", object["metadata"]["generateName"].as_str().unwrap_or_default(), self.version)
            }
        };
        object["metadata"]["name"] = name.clone().into();
        let path = format!("{path}/{name}");
        match self.objects.contains_key(&path) {
            true => Err(409),
            false => Ok(self.put(&path, object)),
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(target.as_object_mut().map(|own| own.remove(name))),
            _ => merge(&mut target[name], value),
        }
    }
}
