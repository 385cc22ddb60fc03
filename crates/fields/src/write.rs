//! Writes heads as field sections (RFC 9113 section 8.3, RFC 9114 section 4.3).
//!
//! Connection-specific fields (RFC 9113, section 8.2.2) are omitted, and names are written in lower case. Heads that cannot be expressed as a section
//! were refused earlier.

use http::{Head, KnownName, Method, list_values, uri};

use crate::coding::FieldSink;
use crate::name::{FieldName, Pseudo};
use crate::read::is_connection_specific;
use crate::response::may_trail;

/// The scheme of a connection, for targets without a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    fn text(self) -> &'static [u8] {
        match self {
            Scheme::Http => b"http",
            Scheme::Https => b"https",
        }
    }
}

/// Whether a request is written as an extended CONNECT (RFC 8441, RFC 9220). This is the case for upgrades. The peer must have
/// enabled it with SETTINGS_ENABLE_CONNECT_PROTOCOL.
#[must_use]
pub fn is_extended_connect(head: &Head) -> bool {
    head.has_upgrade()
}

/// Writes a request.
///
/// `:authority` is `Host`, or the authority of the target if there is no `Host`. A target in absolute
/// form is split; one in origin form gets `scheme`. CONNECT has only `:authority`. An upgrade becomes
/// an extended CONNECT ([`is_extended_connect`]) for the first protocol in `Upgrade`.
pub fn write_request(sink: &mut impl FieldSink, head: &Head, scheme: Scheme) {
    let mut pseudo = |name, value: &[u8]| sink.field(FieldName::Pseudo(name), value);
    let host = head.get_known(KnownName::Host);
    if head.method_id() == Method::Connect {
        pseudo(Pseudo::Method, b"CONNECT");
        pseudo(Pseudo::Authority, head.target());
        return write_fields(sink, head);
    }
    let upgrade = if is_extended_connect(head) { head.get_known(KnownName::Upgrade) } else { None };
    let protocol = upgrade.and_then(|upgrade| list_values(upgrade).find(|protocol| !protocol.is_empty()));
    pseudo(Pseudo::Method, if protocol.is_some() { b"CONNECT" } else { head.method() });
    let target = Target::of(head, scheme);
    pseudo(Pseudo::Scheme, target.scheme);
    if let Some(authority) = host.filter(|host| !host.is_empty()).or(target.authority) {
        pseudo(Pseudo::Authority, authority);
    }
    match target.query {
        // `http://host?query`: the path is the root.
        true => pseudo(Pseudo::Path, &[b"/", target.path].concat()),
        false => pseudo(Pseudo::Path, target.path),
    }
    if let Some(protocol) = protocol {
        pseudo(Pseudo::Protocol, protocol);
    }
    write_fields(sink, head);
}

/// The parts of a target.
struct Target<'a> {
    scheme: &'a [u8],
    authority: Option<&'a [u8]>,
    path: &'a [u8],
    /// The path is empty and followed by a query.
    query: bool,
}

impl<'a> Target<'a> {
    fn of(head: &'a Head, scheme: Scheme) -> Target<'a> {
        let target = head.target();
        if matches!(target.first(), Some(b'/' | b'*')) {
            return Target { scheme: scheme.text(), authority: None, path: target, query: false };
        }
        let split = uri::split(target);
        if split.form != uri::TargetForm::Absolute {
            // This form is only allowed for CONNECT.
            return Target { scheme: scheme.text(), authority: None, path: b"/", query: false };
        }
        let authority = Some(split.host_port()).filter(|authority| !authority.is_empty());
        let path = &target[split.path_start()..];
        let root: &[u8] = if head.method_id() == Method::Options { b"*" } else { b"/" };
        let query = path.first() == Some(&b'?');
        Target { scheme: split.scheme(), authority, path: if path.is_empty() { root } else { path }, query }
    }
}

/// Writes the fields of a request except `Host`, which was written as `:authority`.
fn write_fields(sink: &mut impl FieldSink, head: &Head) {
    let upgrades = head.has_upgrade();
    for line in head.lines() {
        match line.known {
            KnownName::Host | KnownName::Http2Settings => continue,
            // The field only exists in HTTP/1 (RFC 8441 section 5).
            KnownName::SecWebsocketKey if upgrades => continue,
            KnownName::Te if line.value != b"trailers" => continue,
            known if is_connection_specific(known) => continue,
            _ => write_line(sink, &line),
        }
    }
}

#[inline(always)]
fn write_line(sink: &mut impl FieldSink, line: &http::HeaderLine<'_>) {
    let name = match line.known {
        KnownName::Other => FieldName::Other(line.name),
        known => FieldName::Known(known),
    };
    if line.secret {
        sink.secret(name, line.value);
    } else {
        sink.field(name, line.value);
    }
}

/// Writes an interim or final response.
///
/// A 101 is the answer to an upgrade, which was an extended CONNECT, and is written as 200 without `Sec-WebSocket-Accept`. The
/// caller must not pass a 101 for any other request.
pub fn write_response(sink: &mut impl FieldSink, head: &Head) {
    let switched = head.status() == 101;
    let status = if switched { 200 } else { head.status().min(999) };
    let digit = |n: u16| b'0' + (n % 10) as u8;
    let digits = [digit(status / 100), digit(status / 10), digit(status)];
    sink.field(FieldName::Pseudo(Pseudo::Status), &digits);
    for line in head.lines() {
        match line.known {
            KnownName::SecWebsocketAccept if switched => continue,
            known if is_connection_specific(known) => continue,
            _ => write_line(sink, &line),
        }
    }
}

/// Writes trailers, without the fields that are not allowed in them.
pub fn write_trailers(sink: &mut impl FieldSink, trailers: &Head) {
    for line in trailers.lines().filter(|line| may_trail(line.known)) {
        write_line(sink, &line);
    }
}
