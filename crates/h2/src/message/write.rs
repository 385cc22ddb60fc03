//! Heads to header blocks (RFC 9113 section 8.3).
//!
//! What a head has of a connection of HTTP/1 is left out; names are written in lower case. What
//! cannot be said in HTTP/2 has been turned away before.

use http::{Head, KnownName, Method, list_values, uri};

use super::read::is_connection_specific;
use super::response::may_trail;
use crate::hpack::{Encoder, FieldName, Pseudo};

/// The scheme of a connection, for requests whose target does not tell one.
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

/// Whether a request is written as an extended CONNECT (RFC 8441): it asks for an upgrade. The peer
/// must have allowed that with SETTINGS_ENABLE_CONNECT_PROTOCOL.
#[must_use]
pub fn is_extended_connect(head: &Head) -> bool {
    head.has_upgrade()
}

/// Appends a request's header block.
///
/// `:authority` is `Host`, or where there is none what the target has. A target in absolute form is
/// split; one in origin form gets the `scheme` given. CONNECT has `:authority` alone. A request that
/// asks for an upgrade becomes an extended CONNECT ([`is_extended_connect`]) for the first protocol
/// that it names.
pub fn write_request(encoder: &mut Encoder, head: &Head, scheme: Scheme, out: &mut Vec<u8>) {
    let mut pseudo = |name, value: &[u8]| encoder.field(FieldName::Pseudo(name), value, out);
    let host = head.get_known(KnownName::Host);
    if head.method_id() == Method::Connect {
        pseudo(Pseudo::Method, b"CONNECT");
        pseudo(Pseudo::Authority, head.target());
        return write_fields(encoder, head, out);
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
        // A target such as `http://host?query`: the path is the root.
        true => pseudo(Pseudo::Path, &[b"/", target.path].concat()),
        false => pseudo(Pseudo::Path, target.path),
    }
    if let Some(protocol) = protocol {
        pseudo(Pseudo::Protocol, protocol);
    }
    write_fields(encoder, head, out);
}

/// A target taken apart.
struct Target<'a> {
    scheme: &'a [u8],
    authority: Option<&'a [u8]>,
    path: &'a [u8],
    /// The path begins with the query.
    query: bool,
}

impl<'a> Target<'a> {
    fn of(head: &'a Head, scheme: Scheme) -> Target<'a> {
        let target = head.target();
        if matches!(target.first(), Some(b'/' | b'*')) {
            return Target { scheme: scheme.text(), authority: None, path: target, query: false };
        }
        let split = uri::split(target);
        if split.form != uri::Form::Absolute {
            // Of no form that a request without CONNECT may have.
            return Target { scheme: scheme.text(), authority: None, path: b"/", query: false };
        }
        let authority = Some(split.host_port()).filter(|authority| !authority.is_empty());
        let path = &target[split.path_start()..];
        let root: &[u8] = if head.method_id() == Method::Options { b"*" } else { b"/" };
        let query = path.first() == Some(&b'?');
        Target { scheme: split.scheme(), authority, path: if path.is_empty() { root } else { path }, query }
    }
}

/// The fields of a request, but `Host`, which `:authority` is.
fn write_fields(encoder: &mut Encoder, head: &Head, out: &mut Vec<u8>) {
    let upgrades = head.has_upgrade();
    for line in head.lines() {
        match line.known {
            KnownName::Host | KnownName::Http2Settings => continue,
            // It is of HTTP/1 alone (RFC 8441, 5).
            KnownName::SecWebsocketKey if upgrades => continue,
            KnownName::Te if line.value != b"trailers" => continue,
            known if is_connection_specific(known) => continue,
            _ => write_line(encoder, &line, out),
        }
    }
}

#[inline(always)]
fn write_line(encoder: &mut Encoder, line: &http::Line<'_>, out: &mut Vec<u8>) {
    let name = match line.known {
        KnownName::Other => FieldName::Other(line.name),
        known => FieldName::Known(known),
    };
    if line.secret {
        encoder.secret(name, line.value, out);
    } else {
        encoder.field(name, line.value, out);
    }
}

/// Appends the header block of a response, interim or final.
///
/// 101 is the answer to an upgrade, which in HTTP/2 was an extended CONNECT: it is written as 200,
/// without `Sec-WebSocket-Accept`. The caller sees to it that 101 answers nothing else.
pub fn write_response(encoder: &mut Encoder, head: &Head, out: &mut Vec<u8>) {
    let switched = head.status() == 101;
    let status = if switched { 200 } else { head.status().min(999) };
    let digit = |n: u16| b'0' + (n % 10) as u8;
    let digits = [digit(status / 100), digit(status / 10), digit(status)];
    encoder.field(FieldName::Pseudo(Pseudo::Status), &digits, out);
    for line in head.lines() {
        match line.known {
            KnownName::SecWebsocketAccept if switched => continue,
            known if is_connection_specific(known) => continue,
            _ => write_line(encoder, &line, out),
        }
    }
}

/// Appends the header block of trailers; what these may not have is left out.
pub fn write_trailers(encoder: &mut Encoder, trailers: &Head, out: &mut Vec<u8>) {
    for line in trailers.lines().filter(|line| may_trail(line.known)) {
        write_line(encoder, &line, out);
    }
}
