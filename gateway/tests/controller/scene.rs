//! A controller with its proxy and a small API server, and the objects that tests create.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_tests::load::Load;
use weir_tests::{PATIENCE, Scratch, eventually, free_port, program, scratch};

use crate::api_server::ApiServer;

/// The namespace of the objects.
pub(crate) const NAMESPACE: &str = "shop";

/// A running controller, which runs the proxy.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    directory: PathBuf,
    health: u16,
}

impl Controller {
    /// Starts a controller that uses `server`, with its files in `directory`.
    pub(crate) fn start(server: &ApiServer, directory: &Path) -> Controller {
        let health = free_port();
        std::fs::create_dir_all(directory).expect("the temporary directory takes files");
        let messages = File::options().create(true).append(true).open(directory.join("messages"));
        let child = Command::new(env!("CARGO_BIN_EXE_weir-gateway"))
            .args(["--drain-delay", "0", "--drain", "5", "--server", &server.url(), "--run"])
            .arg(program())
            .args(["--http", &format!("127.0.0.1:{health}"), "--address", "192.0.2.1", "--directory"])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages.expect("the temporary directory takes files"))
            .spawn()
            .expect("the controller runs");
        Controller { child, directory: directory.to_path_buf(), health }
    }

    /// Waits until the controller is ready.
    pub(crate) fn await_ready(&self) {
        assert!(eventually(|| self.status("/readyz") == 200), "{}", self.messages());
    }

    /// Returns the status of a page of the controller's listener; 0 without a response.
    pub(crate) fn status(&self, path: &str) -> u16 {
        get(self.health, path).map_or(0, |(status, _)| status)
    }

    /// Returns the value of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = get(self.health, "/metrics").map(|(_, text)| text).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("weir_gateway_{name} ")));
        line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
    }

    /// Returns the answer of the proxy's runtime socket.
    pub(crate) fn ask(&self, command: &str) -> String {
        weir_tests::ask(&self.directory.join("weir.sock"), command)
    }

    /// The process of the proxy.
    pub(crate) fn proxy_pid(&self) -> String {
        let info = self.ask("show info");
        info.lines().find_map(|line| line.strip_prefix("Pid: ")).unwrap_or_default().to_owned()
    }

    /// The resident memory in kB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn messages(&self) -> String {
        std::fs::read_to_string(self.directory.join("messages")).unwrap_or_default()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Waits for the end of the process, and returns whether it succeeded.
    pub(crate) fn await_end(&mut self) -> bool {
        let mut status = None;
        eventually(|| {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // The controller ends its proxy. Without an answer both are killed.
        self.terminate();
        if !eventually(|| matches!(self.child.try_wait(), Ok(Some(_)))) {
            let _ = Command::new("kill").args(["-9", &self.proxy_pid()]).status();
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A server, a controller, and a Gateway with an HTTP listener.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) server: ApiServer,
    pub(crate) controller: Controller,
    pub(crate) directory: Scratch,
    /// The port of the Gateway.
    pub(crate) port: u16,
}

impl Scene {
    /// Starts everything, with a Gateway `web` that has a listener `http`.
    pub(crate) fn start() -> Scene {
        let (server, directory, port) = (ApiServer::start(), scratch("gateway"), free_port());
        server.apply(json!({"kind": "GatewayClass", "metadata": {"name": "weir"},
            "spec": {"controllerName": "weir.dev/gateway-controller"}}));
        server.apply(json!({"kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        server.apply(gateway("web", json!([http_listener("http", port)])));
        let controller = Controller::start(&server, &directory.join("one"));
        controller.await_ready();
        Scene { server, controller, directory, port }
    }

    /// Creates a Service with endpoints on 127.0.0.1, and a route for a path prefix.
    pub(crate) fn serve(&self, name: &str, prefix: &str, ports: &[u16]) {
        self.server.apply(service(name));
        self.server.apply(endpoints(name, ports));
        self.server.apply(route(name, prefix));
    }

    /// Returns the response to a request for a path: its status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(self.port, path).unwrap_or_default()
    }

    /// Waits until a path has this response.
    pub(crate) fn await_answer(&self, path: &str, status: u16, body: &str) {
        let is_there = || {
            let (own, text) = self.get(path);
            own == status && (body.is_empty() || text == body)
        };
        assert!(eventually(is_there), "{:?}: {}", self.get(path), self.controller.messages());
    }

    /// Starts clients that request `/`, after its first answer: the listeners may have been
    /// served before the route was.
    pub(crate) fn start_load(&self, keep_alive: bool) -> Load {
        self.await_answer("/", 200, "");
        Load::start(self.port, keep_alive)
    }

    /// Returns the condition of a route for its only parent.
    pub(crate) fn route_condition(&self, name: &str, condition: &str) -> Value {
        self.server.condition("HTTPRoute", NAMESPACE, name, "/status/parents/0/conditions", condition)
    }

    /// Returns the condition of a Gateway.
    pub(crate) fn gateway_condition(&self, name: &str, condition: &str) -> Value {
        self.server.condition("Gateway", NAMESPACE, name, "/status/conditions", condition)
    }

    /// Returns a field of a Gateway; `null` if it is missing.
    pub(crate) fn gateway_field(&self, name: &str, pointer: &str) -> Value {
        self.server.object("Gateway", NAMESPACE, name).pointer(pointer).cloned().unwrap_or_default()
    }
}

/// Returns the status and the body of a response; `None` if there is no connection.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: www.shop.test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

pub(crate) fn gateway(name: &str, listeners: Value) -> Value {
    json!({"kind": "Gateway", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"gatewayClassName": "weir", "listeners": listeners}})
}

pub(crate) fn http_listener(name: &str, port: u16) -> Value {
    json!({"name": name, "port": port, "protocol": "HTTP"})
}

pub(crate) fn https_listener(name: &str, port: u16, secret: &str) -> Value {
    json!({"name": name, "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": secret}]}})
}

pub(crate) fn service(name: &str) -> Value {
    json!({"kind": "Service", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

/// A slice for each port, because the endpoints of a slice share their ports.
pub(crate) fn endpoints(name: &str, ports: &[u16]) -> Value {
    let port = ports.first().copied().unwrap_or(1);
    let endpoints: Vec<Value> = ports
        .iter()
        .take(1)
        .map(|_| json!({"addresses": ["127.0.0.1"], "conditions": {"ready": true}}))
        .collect();
    json!({"kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": NAMESPACE, "name": format!("{name}-a"), "labels": {"kubernetes.io/service-name": name}},
        "endpoints": endpoints, "ports": [{"name": "http", "port": port, "protocol": "TCP"}]})
}

pub(crate) fn route(name: &str, prefix: &str) -> Value {
    json!({"kind": "HTTPRoute", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"parentRefs": [{"name": "web"}], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
            "backendRefs": [{"name": name, "port": 80}]}]}})
}

/// A Secret with the certificate and the key of a file.
pub(crate) fn secret(name: &str, file: &Path) -> Value {
    let pem = weir_tests::certificates::text(file);
    let block = |kind: &str| {
        let begin = pem.find(&format!("-----BEGIN {kind}")).expect("the file has both");
        let end = pem[begin..].find(&format!("-----END {kind}")).expect("a block ends");
        let last = pem[begin + end..].find('\n').unwrap_or(pem.len() - begin - end);
        format!("{}\n", &pem[begin..begin + end + last])
    };
    json!({"kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"namespace": NAMESPACE, "name": name},
        "data": {"tls.crt": STANDARD.encode(block("CERTIFICATE")), "tls.key": STANDARD.encode(block("PRIVATE KEY"))}})
}
