//! The request of an HTTP check (`http-check send`, `option httpchk`, `http-check send-state`).

use std::sync::atomic::Ordering::Relaxed;

use plan::check::{Request, Script, Text};
use state::Server;
use state::server::{Operational, ServerAddress};

use crate::facts::Facts;
use crate::{Context, Subject};

/// A fixed text, or what a format gives.
pub(crate) fn text(text: &Text, facts: &Facts) -> Vec<u8> {
    match text {
        Text::Fixed(bytes) => bytes.to_vec(),
        Text::Format(format) => facts.render(format),
    }
}

/// The request's bytes, and whether it lets the connection live on.
pub(crate) fn write(
    request: &Request,
    script: &Script,
    facts: &Facts,
    subject: &Subject,
    context: &Context,
) -> (Vec<u8>, bool) {
    let mut uri = text(&request.uri, facts);
    if uri.is_empty() {
        uri.push(b'/');
    }
    let mut fields = Vec::new();
    let mut connection: Option<Vec<u8>> = None;
    for (name, format) in &request.headers {
        let value = facts.render(format);
        if value.is_empty() {
            continue;
        }
        if name.eq_ignore_ascii_case("connection") {
            let said = connection.get_or_insert_default();
            said.extend_from_slice(&value);
            said.push(b',');
        }
        if name.eq_ignore_ascii_case("host") {
            set_authority(&mut uri, &value);
        }
        field(&mut fields, name, &value);
    }
    if script.send_state {
        field(&mut fields, "x-haproxy-server-state", server_state(subject, context).as_bytes());
    }
    let body = text(&request.body, facts);
    let bodyless = matches!(&*request.method, "OPTIONS" | "GET" | "HEAD" | "DELETE");
    if !bodyless || !body.is_empty() {
        field(&mut fields, "content-length", body.len().to_string().as_bytes());
    }
    // Before 1.1 it is understood.
    let is_new = request.version.as_ref() > "HTTP/1.0";
    if connection.is_none() && is_new {
        field(&mut fields, "connection", b"close");
    }
    let persistent = connection.is_some_and(|said| {
        let says = |what: &[u8]| {
            said.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(what))
        };
        !says(b"close") && (is_new || says(b"keep-alive"))
    });
    let mut out = Vec::with_capacity(64 + uri.len() + fields.len() + body.len());
    out.extend_from_slice(request.method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(&uri);
    out.push(b' ');
    out.extend_from_slice(request.version.as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&fields);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
    (out, persistent)
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// An absolute target names the host of the `Host` field.
fn set_authority(uri: &mut Vec<u8>, host: &[u8]) {
    let Some(start) = memchr::memmem::find(uri, b"://").map(|at| at + 3) else { return };
    if uri.first() == Some(&b'/') {
        return;
    }
    let end = uri[start..].iter().position(|byte| *byte == b'/').map_or(uri.len(), |at| start + at);
    uri.splice(start..end, host.iter().copied());
}

/// `UP 1/2; address=127.0.0.1; port=80; name=be/s1; node=n1; weight=1/7; scur=0/0; qcur=0` (manual,
/// `http-check send-state`).
fn server_state(subject: &Subject, context: &Context) -> String {
    let (proxy, server) = (&subject.backend().state, subject.server());
    let (word, level, of) = level(server);
    let address = match &**server.address.load() {
        ServerAddress::Ip(address) => format!("address={}; port={}", address.ip(), address.port()),
        _ => "address=unix; port=unix".to_owned(),
    };
    let all: u32 = proxy.servers.load().iter().map(|server| server.serving()).sum();
    format!(
        "{word} {level}/{of}; {address}; name={}/{}; node={}; weight={}/{}; scur={}/{all}; qcur={}",
        proxy.name,
        server.name,
        context.node,
        server.effective_weight(),
        proxy.total_weight(),
        server.serving(),
        server.queue.len()
    )
}

/// The word and the two numbers of a level: checks passed of those needed, or left of those that
/// bring it down.
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
