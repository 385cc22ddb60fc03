//! A minimal ACME server (RFC 8555) over plain HTTP, for tests that must run wherever the program builds. It does not verify
//! signatures, and validates HTTP and TLS challenges itself.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::client::exchange;
use crate::{Authority, Origin};

/// A running ACME server. It stops when the value is dropped.
pub struct Acme {
    shared: Arc<Shared>,
    origin: Origin,
}

/// The ports at which challenges are validated.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// For HTTP challenges.
    pub http: u16,
    /// For TLS challenges.
    pub tls: u16,
}

struct Shared {
    ports: Ports,
    /// Whether the server also offers DNS challenges, which it considers met.
    has_dns: AtomicBool,
    authority: Authority,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nonces: HashSet<String>,
    count: usize,
    accounts: HashMap<String, usize>,
    orders: Vec<Order>,
    /// Responses to send instead, each once, by path prefix.
    instead: Vec<(String, Vec<u8>)>,
    asked: Vec<String>,
    /// Output of the clients that validated TLS challenges.
    seen: Vec<String>,
}

#[derive(Default)]
struct Order {
    names: Vec<String>,
    statuses: Vec<&'static str>,
    certificate: Option<String>,
}

impl Acme {
    /// Starts a server.
    pub fn start(ports: Ports) -> Acme {
        let (authority, state, has_dns) = (Authority::new(), Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { ports, has_dns, authority, state });
        let own = shared.clone();
        let origin = Origin::start(move |head, body| own.answer(head, body));
        Acme { shared, origin }
    }

    /// Also offers DNS challenges, without a lookup of their records.
    #[must_use]
    pub fn with_dns(self) -> Acme {
        self.shared.has_dns.store(true, Relaxed);
        self
    }

    /// Returns the server's port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    /// Returns the URL of the server's directory.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/dir", self.origin.port())
    }

    /// Answers the next request with this path prefix with a problem document.
    pub fn refuse(&self, path: &str, status: &str, kind: &str, more: &str) {
        let body =
            json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "said by the test"});
        let answer = response(status, "application/problem+json", more, &body.to_string());
        self.shared.state().instead.push((path.to_owned(), answer));
    }

    /// Returns the paths requested so far.
    pub fn asked(&self) -> Vec<String> {
        self.shared.state().asked.clone()
    }

    /// Returns the output of the clients that validated TLS challenges so far.
    pub fn seen(&self) -> Vec<String> {
        self.shared.state().seen.clone()
    }

    /// Returns the numbers of accounts and orders.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.shared.state();
        (state.accounts.len(), state.orders.len())
    }
}

fn response(status: &str, kind: &str, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn decoded(part: &Value) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(part.as_str().unwrap_or_default()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn answer(&self, head: &str, body: &[u8]) -> Vec<u8> {
        let host = crate::client::field(head, "host").unwrap_or_default();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let base = format!("http://{host}");
        let mut state = self.state();
        state.asked.push(path.clone());
        state.count += 1;
        let nonce = format!("nonce-{}", state.count);
        state.nonces.insert(nonce.clone());
        let more = format!("Replay-Nonce: {nonce}\r\n");
        if let Some(at) = state.instead.iter().position(|(begin, _)| path.starts_with(begin.as_str())) {
            return state.instead.remove(at).1;
        }
        let signed: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let (header, payload) = (decoded(&signed["protected"]), decoded(&signed["payload"]));
        if !body.is_empty() {
            let known = header["nonce"].as_str().is_some_and(|nonce| state.nonces.remove(nonce));
            if !known || header["url"] != format!("{base}{path}") {
                return problem("badNonce", &more);
            }
        }
        drop(state);
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let number = |at: usize| parts.get(at).and_then(|part| part.parse().ok()).unwrap_or(0);
        let json = |status: &str, place: &str, body: Value| {
            let more = format!("{more}Location: {base}{place}\r\n");
            response(status, "application/json", &more, &body.to_string())
        };
        match parts[0] {
            "dir" => {
                let url = |name: &str| format!("{base}/{name}");
                let body =
                    json!({"newNonce": url("nonce"), "newAccount": url("account"), "newOrder": url("order")});
                json("200 OK", "/dir", body)
            }
            "nonce" => response("200 OK", "text/plain", &more, ""),
            "account" => match self.account(&header, &payload) {
                Some(number) => {
                    json("201 Created", &format!("/account/{number}"), json!({"status": "valid"}))
                }
                None => problem("accountDoesNotExist", &more),
            },
            "order" if parts.len() == 1 => {
                let number = self.order(&payload);
                json("201 Created", &format!("/order/{number}"), self.shown(number, &base))
            }
            "order" => json("200 OK", &path, self.shown(number(1), &base)),
            "authz" => json("200 OK", &path, self.authorization(number(1), number(2), &base)),
            "challenge" => {
                self.look(number(1), number(2), parts.get(3).copied().unwrap_or_default());
                json("200 OK", &path, json!({"status": "processing"}))
            }
            "finalize" => {
                let csr = URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap_or_default());
                let certificate = self.authority.sign_request(&csr.expect("base64url"), "90");
                self.state().orders[number(1)].certificate = Some(certificate);
                json("200 OK", &format!("/order/{}", number(1)), self.shown(number(1), &base))
            }
            "certificate" => {
                let chain = self.state().orders[number(1)].certificate.clone().unwrap_or_default();
                response("200 OK", "application/pem-certificate-chain", &more, &chain)
            }
            _ => response("404 Not Found", "text/plain", &more, ""),
        }
    }

    fn account(&self, header: &Value, payload: &Value) -> Option<usize> {
        let mut state = self.state();
        let (key, next) = (header["jwk"].to_string(), state.accounts.len());
        match state.accounts.get(&key) {
            Some(known) => Some(*known),
            None if payload["onlyReturnExisting"] == true => None,
            None => Some(*state.accounts.entry(key).or_insert(next)),
        }
    }

    fn order(&self, payload: &Value) -> usize {
        let all = payload["identifiers"].as_array().cloned().unwrap_or_default();
        let names: Vec<String> =
            all.iter().map(|one| one["value"].as_str().unwrap_or_default().to_owned()).collect();
        let mut state = self.state();
        let statuses = vec!["pending"; names.len()];
        state.orders.push(Order { names, statuses, certificate: None });
        state.orders.len() - 1
    }

    fn shown(&self, number: usize, base: &str) -> Value {
        let state = self.state();
        let order = &state.orders[number];
        let all = (0..order.names.len()).map(|at| format!("{base}/authz/{number}/{at}"));
        let status = match &order.certificate {
            Some(_) => "valid",
            None if order.statuses.iter().all(|status| *status == "valid") => "ready",
            None => "pending",
        };
        let mut shown = json!({"status": status, "finalize": format!("{base}/finalize/{number}"),
            "authorizations": all.collect::<Vec<_>>()});
        if status == "valid" {
            shown["certificate"] = json!(format!("{base}/certificate/{number}"));
        }
        shown
    }

    fn authorization(&self, number: usize, at: usize, base: &str) -> Value {
        let state = self.state();
        let (name, status) = (&state.orders[number].names[at], state.orders[number].statuses[at]);
        let challenge = |kind: &str| {
            let mut shown = json!({"type": kind, "token": token(number, at), "status": status,
                "url": format!("{base}/challenge/{number}/{at}/{kind}")});
            if status == "invalid" {
                let kind = "urn:ietf:params:acme:error:unauthorized";
                shown["error"] = json!({"type": kind, "detail": "a wrong answer"});
            }
            shown
        };
        let kinds = ["http-01", "tls-alpn-01", "dns-01"];
        let offered = if self.has_dns.load(Relaxed) { &kinds[..] } else { &kinds[..2] };
        let challenges: Vec<Value> = offered.iter().map(|kind| challenge(kind)).collect();
        json!({"status": status, "identifier": {"type": "dns", "value": name}, "challenges": challenges})
    }

    /// Validates a challenge.
    fn look(&self, number: usize, at: usize, kind: &str) {
        let name = self.state().orders[number].names[at].clone();
        let is_met = match kind {
            "dns-01" => true,
            "http-01" => {
                let token = token(number, at);
                let request = format!(
                    "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
                );
                let answer = exchange(self.ports.http, &request);
                answer.is_some_and(|answer| answer.text().starts_with(&format!("{token}.")))
            }
            _ => {
                let seen = by_tls(self.ports.tls, &name);
                let is_met =
                    seen.contains("ALPN protocol: acme-tls/1") && seen.contains("1.3.6.1.5.5.7.1.31");
                self.state().seen.push(seen);
                is_met
            }
        };
        self.state().orders[number].statuses[at] = if is_met { "valid" } else { "invalid" };
    }
}

fn token(number: usize, at: usize) -> String {
    format!("token-{number}-{at}")
}

fn problem(kind: &str, more: &str) -> Vec<u8> {
    let body = json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": kind});
    response("400 Bad Request", "application/problem+json", more, &body.to_string())
}

/// Connects for `name` with the challenge protocol, sends a request after the handshake, and returns the client's output, which
/// includes the certificate as text.
fn by_tls(port: u16, name: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
        .args(["-alpn", "acme-tls/1", "-ign_eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs: `make tools` installs it");
    if let Some(input) = &mut child.stdin {
        // The connection may be closed already.
        let _ = input.write_all(b"GET / HTTP/1.0\r\n\r\n");
    }
    let output = child.wait_with_output().expect("openssl ends with its connection");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut text = Command::new("openssl")
        .args(["x509", "-noout", "-text"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs: `make tools` installs it");
    if let Some(input) = &mut text.stdin {
        let _ = input.write_all(shown.as_bytes());
    }
    let text = text.wait_with_output().expect("openssl ends with its input");
    shown + &String::from_utf8_lossy(&text.stdout)
}
