//! The request of an HTTP check (`http-check send`, `option httpchk`, `http-check send-state`).

use std::sync::atomic::Ordering::Relaxed;

use http::Version;
use plan::check::{CheckRequest, CheckScript, CheckText};
use state::Server;
use state::server::{Operational, ServerAddress};

use crate::check_env::CheckEnv;
use crate::{CheckContext, Subject};

/// Returns a fixed text, or the result of a format.
pub(crate) fn text(text: &CheckText, facts: &CheckEnv) -> Vec<u8> {
    match text {
        CheckText::Fixed(bytes) => bytes.to_vec(),
        CheckText::Format(format) => facts.render(format),
    }
}

/// A request with its texts computed.
pub(crate) struct CheckMessage<'a> {
    method: &'a [u8],
    uri: Vec<u8>,
    version: &'a [u8],
    fields: Vec<(&'a [u8], Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Whether the connection persists after the request.
    pub(crate) persistent: bool,
}

/// Computes the texts of `request`.
pub(crate) fn make<'a>(
    request: &'a CheckRequest,
    script: &CheckScript,
    facts: &CheckEnv,
    subject: &Subject,
    context: &CheckContext,
) -> CheckMessage<'a> {
    let mut uri = text(&request.uri, facts);
    if uri.is_empty() {
        uri.push(b'/');
    }
    let mut fields: Vec<(&[u8], Vec<u8>)> = Vec::new();
    let mut connection: Option<Vec<u8>> = None;
    for (name, format) in &request.headers {
        let value = facts.render(format);
        if value.is_empty() {
            continue;
        }
        if name.eq_ignore_ascii_case(b"connection") {
            let listed = connection.get_or_insert_default();
            listed.extend_from_slice(&value);
            listed.push(b',');
        }
        if name.eq_ignore_ascii_case(b"host") {
            set_authority(&mut uri, &value);
        }
        fields.push((name, value));
    }
    if script.send_state {
        fields.push((b"x-haproxy-server-state", server_state(subject, context).into_bytes()));
    }
    let body = text(&request.body, facts);
    let bodyless = matches!(&*request.method, b"OPTIONS" | b"GET" | b"HEAD" | b"DELETE");
    if !bodyless || !body.is_empty() {
        fields.push((b"content-length", body.len().to_string().into_bytes()));
    }
    // HTTP/1.0 closes by default.
    let is_new = *request.version > b"HTTP/1.0"[..];
    if connection.is_none() && is_new {
        fields.push((b"connection", b"close".to_vec()));
    }
    let persistent = connection.is_some_and(|listed| {
        let says = |what: &[u8]| {
            listed.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(what))
        };
        !says(b"close") && (is_new || says(b"keep-alive"))
    });
    CheckMessage { method: &request.method, uri, version: &request.version, fields, body, persistent }
}

impl CheckMessage<'_> {
    /// Returns the request in HTTP/1.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = [self.method, b" ", &self.uri, b" ", self.version, b"\r\n"].concat();
        for (name, value) in &self.fields {
            out.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// Returns the head for protocols other than HTTP/1. Fields that are invalid in HTTP are left out.
    pub(crate) fn head(&self) -> http::Head {
        let mut head = http::Head::new();
        head.start_request(self.method, &self.uri);
        if self.version == b"HTTP/1.0" {
            head.set_version(Version::Http10);
        }
        for (name, value) in &self.fields {
            head.append(name, value);
        }
        head
    }
}

/// Sets the host of an absolute target to that of the `Host` field.
fn set_authority(uri: &mut Vec<u8>, host: &[u8]) {
    let Some(start) = memchr::memmem::find(uri, b"://").map(|at| at + 3) else { return };
    if uri.first() == Some(&b'/') {
        return;
    }
    let end = uri[start..].iter().position(|byte| *byte == b'/').map_or(uri.len(), |at| start + at);
    uri.splice(start..end, host.iter().copied());
}

/// Returns the server's state: `UP 1/2; address=127.0.0.1; port=80; name=be/s1; node=n1; weight=1/7; scur=0/0; qcur=0` (manual,
/// `http-check send-state`), or `UP; address=…` if the state is not changing.
fn server_state(subject: &Subject, context: &CheckContext) -> String {
    let (proxy, server) = (&subject.backend().state, subject.server());
    let (word, level, of) = level(server);
    // The two numbers show a change of state in progress, as on the statistics page.
    let is_settled = level == 0 || word != "DOWN" && level == of;
    let level = if is_settled { String::new() } else { format!(" {level}/{of}") };
    let address = match &**server.address.load() {
        ServerAddress::Ip(address) => format!("address={}; port={}", address.ip(), address.port()),
        _ => "address=unix; port=unix".to_owned(),
    };
    let all: u32 = proxy.servers.load().iter().map(|server| server.serving()).sum();
    format!(
        "{word}{level}; {address}; name={}/{}; node={}; weight={}/{}; scur={}/{all}; qcur={}",
        proxy.name,
        server.name,
        context.node,
        server.effective_weight(),
        proxy.total_weight(),
        server.serving(),
        server.queue.len()
    )
}

/// Returns the word and the two numbers that describe a level. For a server that is down, the numbers are the checks that passed
/// and the checks needed to come up. For a server that is up, they are the failures left and the failures that take it down.
pub(crate) fn level(server: &Server) -> (&'static str, u32, u32) {
    let health = &server.health;
    let (level, rise, fall) =
        (health.level.load(Relaxed), health.rise.load(Relaxed), health.fall.load(Relaxed));
    if level < rise {
        return ("DOWN", level, rise);
    }
    let word = if server.operational() == Operational::Stopping { "NOLB" } else { "UP" };
    (word, level - rise + 1, fall)
}
