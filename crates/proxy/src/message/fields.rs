//! Header fields that the proxy itself adds, changes or removes: the connection fields, `option forwardfor|originalto|forwarded`,
//! and the unique ID.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use http::{BodyLength, KnownName, Name};
use plan::Proxy;
use plan::proxy::{ForwardFor, Forwarded, ForwardedHost, ForwardedNode, excepted};

use crate::client::{Client, Framed};
use crate::exchange::cache::{keep, validation};
use crate::exchange::{Exchange, Stop};
use crate::exchange::{unique_id, view};
use crate::fault::Fault;
use crate::flow::{Coding, Filter, Filters, Path, Rank};
use crate::message::framing::{frame_request, frame_response, is_bodiless};
use crate::message::{compression, lua};

/// Returns how `h1-case-adjust` spells `name`.
pub(crate) fn adjusted<'a>(table: &'a [(Box<str>, Box<str>)], name: &[u8]) -> Option<&'a [u8]> {
    let found = table.iter().find(|(lower, _)| lower.as_bytes().eq_ignore_ascii_case(name));
    found.map(|(_, written)| written.as_bytes())
}

/// Changes the request's head for the server.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
pub(crate) fn of_request(client: &mut Client, x: &mut Exchange, backend: &Proxy) -> Result<(), Stop> {
    unique_id_header(client, x);
    let both = [&client.frontend, backend];
    let (source, destination) = (x.source(client).ip(), x.destination(client).ip());
    forward_for(x, both.map(|proxy| proxy.forward_for.as_deref()), source);
    forward_for(x, both.map(|proxy| proxy.original_to.as_deref()), destination);
    if let Some(option) = both[1].forwarded.as_deref() {
        forwarded(client, x, option);
    }
    if client.side.is_early() && x.txn.request.get_known(KnownName::EarlyData).is_none() {
        // RFC 8470, 5.1.
        x.txn.request.append(b"early-data", b"1");
        x.choice.said_early = true;
    }
    if x.filtering.is_some() {
        frame_filtered(client, x, backend)?;
    } else {
        frame_request(x)?;
        if x.caching.is_some() {
            validation::ask(x);
        }
        compression::of_request(client, x, backend);
    }
    let pretend = backend.options.http_pretend_keepalive;
    if x.txn.request.has_upgrade() {
        return Ok(());
    }
    let old = !x.txn.request.version().is_11_or_above();
    // The client's own connection fields were removed, so a rule set this one. With HTTP/1.0, servers may interpret chunks
    // differently (RFC 9112, section 6.1), so the connection is not used for other requests.
    x.closes_server = x.txn.request.take_close() || old && x.txn.request.must_close();
    if !client.keeps_server(backend) || x.closes_server {
        // HTTP/1.0 connections close by default.
        if !pretend && !old {
            x.txn.request.append(b"connection", b"close");
        }
    } else if old {
        x.txn.request.append(b"connection", b"keep-alive");
    }
    Ok(())
}

/// Sets the framing of the body in the head of a request that script filters see. If compression has already decided between two
/// of the filters, its decision stays.
#[cold]
fn frame_filtered(client: &Client, x: &mut Exchange, backend: &Proxy) -> Result<(), Fault> {
    let is_coded = |x: &Exchange| x.coded.as_ref().is_some_and(|coded| coded.request.is_some());
    if is_coded(x) {
        x.txn.request.settle_framing(BodyLength::Chunked).map_err(|_| Fault::Internal)?;
    } else if !x.request_body.is_dropped {
        frame_request(x)?;
    }
    if x.caching.is_some() {
        validation::ask(x);
    }
    compression::of_request(client, x, backend);
    if lua::body::sees(x, false) && x.request_body.length != BodyLength::None {
        lua::body::frame(x, false, x.request_body.length, is_coded(x));
    }
    Ok(())
}

/// `unique-id-format` and `unique-id-header`.
fn unique_id_header(client: &Client, x: &mut Exchange) {
    unique_id::make(client, x);
    let Some(name) = &client.frontend.unique_id_header else { return };
    if let Some(id) = x.txn.kept(x.txn.unique_id) {
        let id = id.to_vec();
        x.txn.request.append(name, &id);
    }
}

/// Applies `option forwardfor` or `originalto` of the frontend and the backend. The exceptions of both apply, the backend's
/// header name takes precedence, and `if-none` applies only if neither proxy adds the header unconditionally.
fn forward_for(x: &mut Exchange, options: [Option<&ForwardFor>; 2], ip: Option<IpAddr>) {
    let [frontend, backend] = options;
    let Some(option) = backend.or(frontend) else { return };
    let Some(ip) = ip else { return };
    if options.iter().flatten().any(|option| excepted(&option.except, ip)) {
        return;
    }
    let head = &mut x.txn.request;
    let if_none = options.iter().flatten().all(|option| option.if_none);
    if if_none && head.get(&Name::new(&option.header)).is_some() {
        return;
    }
    let mut text = [0u8; 48];
    let mut cursor = std::io::Cursor::new(&mut text[..]);
    // Forty-eight bytes are enough for any address.
    let _ = write!(cursor, "{ip}");
    let length = cursor.position() as usize;
    head.append(&option.header, &text[..length]);
}

/// `option forwarded` (RFC 7239).
fn forwarded(client: &Client, x: &mut Exchange, option: &Forwarded) {
    let mut value = Vec::new();
    if option.proto {
        push(&mut value, "proto", b"http", false);
    }
    match &option.host {
        None => {}
        Some(ForwardedHost::Default) => {
            let host = x.txn.request.get_known(KnownName::Host).unwrap_or_default();
            push(&mut value, "host", if is_host(host) { host } else { b"" }, true);
        }
        Some(ForwardedHost::Expression(expression)) => {
            let mut host = Vec::new();
            if !view::with(client, x, |env| expression.eval_into(env, &mut host)) || !is_host(&host) {
                host.clear();
            }
            push(&mut value, "host", &host, true);
        }
    }
    let (source, destination) = (x.source(client), x.destination(client));
    for (name, option, end) in [("by", &option.by, destination), ("for", &option.for_, source)] {
        if let Some(node) = option {
            let text = self::node(client, x, node, end.ip(), end.port());
            push(&mut value, name, &text, node.port.is_some());
        }
    }
    if value.is_empty() {
        return;
    }
    let head = &mut x.txn.request;
    let last = head.indices(&KnownName::Forwarded.into()).last();
    match last.and_then(|index| Some((index, head.value_at(index).filter(|own| !own.is_empty())?.to_vec()))) {
        // All hops are in one line, as in HAProxy, because some servers read only the first line.
        Some((index, mut hops)) => {
            hops.push(b',');
            hops.extend_from_slice(&value);
            head.replace_value_at(index, &hops);
        }
        None => {
            head.append(b"forwarded", &value);
        }
    }
}

fn node(
    client: &Client,
    x: &Exchange,
    option: &ForwardedNode,
    ip: Option<IpAddr>,
    port: Option<u16>,
) -> Vec<u8> {
    let mut text = Vec::new();
    match &option.name {
        Some(expression) => {
            let mut name = Vec::new();
            if !view::with(client, x, |env| expression.eval_into(env, &mut name)) {
                name.extend_from_slice(b"unknown");
            }
            let bare = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(&name);
            match std::str::from_utf8(bare).ok().and_then(|name| name.parse::<IpAddr>().ok()) {
                Some(ip) => push_ip(&mut text, Some(ip)),
                None if name == b"unknown" || !is_obfuscated(&name) => push_ip(&mut text, None),
                None => push_obfuscated(&mut text, &name),
            }
        }
        None => push_ip(&mut text, ip),
    }
    match &option.port {
        None => {}
        Some(None) => {
            if let Some(port) = port {
                // Writing to a Vec cannot fail.
                let _ = write!(text, ":{port}");
            }
        }
        Some(Some(expression)) => {
            let mut port = Vec::new();
            if view::with(client, x, |env| expression.eval_into(env, &mut port)) && is_obfuscated(&port) {
                text.push(b':');
                match is_number(&port) {
                    true => text.append(&mut port),
                    false => push_obfuscated(&mut text, &port),
                }
            }
        }
    }
    text
}

fn push_ip(text: &mut Vec<u8>, ip: Option<IpAddr>) {
    // Writing to a Vec cannot fail.
    let _ = match ip {
        Some(IpAddr::V4(ip)) => write!(text, "{ip}"),
        Some(IpAddr::V6(ip)) => write!(text, "[{ip}]"),
        None => write!(text, "unknown"),
    };
}

/// Whether the text of an expression is valid as a node or a port. Other text could terminate the parameter (RFC 7239, 6.3).
fn is_obfuscated(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Appends an obfuscated name: an underscore followed by at least one character.
fn push_obfuscated(text: &mut Vec<u8>, name: &[u8]) {
    if !name.starts_with(b"_") || name == b"_" {
        text.push(b'_');
    }
    text.extend_from_slice(name);
}

/// Whether the text is a host, with or without a port. A host is an address, or a name that consists of letters, digits, hyphens
/// and dots.
fn is_host(text: &[u8]) -> bool {
    if let Some(rest) = text.strip_prefix(b"[") {
        let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
        let is_address = std::str::from_utf8(&rest[..end]).is_ok_and(|name| name.parse::<Ipv6Addr>().is_ok());
        return is_address && is_port(&rest[end + 1..]);
    }
    let end = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
    let name = &text[..end];
    !name.starts_with(b"-")
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        && is_port(&text[end..])
}

/// Whether the text is empty, or a colon and a number.
fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((b':', digits)) => is_number(digits),
        Some(_) => false,
    }
}

/// Whether this is a valid port number.
fn is_number(digits: &[u8]) -> bool {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Appends one parameter, quoted if it is not a token. As in HAProxy, hosts and values that can include a port are always quoted.
fn push(value: &mut Vec<u8>, name: &str, text: &[u8], quoted: bool) {
    if !value.is_empty() {
        value.push(b';');
    }
    value.extend_from_slice(name.as_bytes());
    value.push(b'=');
    if !quoted && http::is_token(text) {
        value.extend_from_slice(text);
    } else {
        value.push(b'"');
        for &byte in text {
            if byte == b'"' || byte == b'\\' {
                value.push(b'\\');
            }
            value.push(byte);
        }
        value.push(b'"');
    }
}

/// Changes the response's head for the client, stages it, and decides how its body is forwarded.
///
/// # Errors
/// Rules changed the response in a way that is incompatible with its body.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
pub(crate) fn of_response(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    // The client receives the status set by rules.
    x.txn.status = x.txn.response.status();
    let length = x.response_body.length;
    x.server_closes = !x.txn.response.keep_alive() || length == BodyLength::UntilClose;
    let (is_framed, coding) = match x.coded {
        None => (frame_response(x)?, None),
        Some(_) => frame_coded(client, x)?,
    };
    let mut shown = if coding.is_some() { BodyLength::Chunked } else { length };
    let is_scripted = x.filtering.is_some() && is_framed && lua::body::sees_response(x);
    if is_scripted {
        shown = lua::body::frame(x, true, length, coding.is_some());
    } else if x.filtering.is_some() && x.head_only && !x.is_tunnel {
        // The framing set by a filter also applies to a response without a body.
        lua::body::frame(x, true, length, false);
    }
    let mut path = frame_for_client(client, x, shown, is_framed);
    if is_bodiless(x) && !x.is_tunnel && length != BodyLength::None {
        path = Path::Payload(Coding::Nothing);
    }
    if is_scripted {
        path = lua::body::path(shown, path);
    }
    let (framing, path) = match (x.response_body.is_bare, length, path) {
        // The body ends with its stream, so it needs another framing for the client.
        (true, BodyLength::Chunked, Path::Verbatim) => {
            (BodyLength::UntilClose, Path::Payload(Coding::Chunked))
        }
        (true, BodyLength::Chunked, path) => (BodyLength::UntilClose, path),
        (_, length, path) => (length, path),
    };
    if is_scripted || coding.is_some() || x.caching.is_some() {
        start_filtered(x, framing, path, coding, is_scripted.then_some(shown));
    } else {
        x.download.start(framing, path);
    }
    x.download.drops_trailers = client.frontend.options.http_drop_response_trailers;
    if !client.side.stages_heads() {
        return Ok(());
    }
    let adjust = &client.worker.shared.plan.global.h1_case_adjust;
    let bogus = client.frontend.options.h1_case_adjust_bogus_client && !adjust.is_empty();
    let staged = &mut x.download.staged;
    if bogus {
        x.txn.response.write_adjusted(staged, |name| adjusted(adjust, name));
    } else {
        x.txn.response.write_to(staged);
    }
    Ok(())
}

/// Sets the framing of a response that may be compressed, unless this was already done between two script filters. Returns
/// whether the head has framing fields, and the compression filter.
#[cold]
fn frame_coded(client: &Client, x: &mut Exchange) -> Result<(bool, Option<(Rank, Filter)>), Fault> {
    match x.coded.as_mut().and_then(|coded| coded.decided.take()) {
        Some((_, Some(coding))) => {
            let settled = x.txn.response.settle_framing(BodyLength::Chunked);
            Ok((settled.map_err(|_| Fault::Internal)?, Some(coding)))
        }
        Some((_, None)) => Ok((frame_response(x)?, None)),
        None => {
            let is_framed = frame_response(x)?;
            Ok((is_framed, if is_framed { compression::of_response(client, x) } else { None }))
        }
    }
}

/// Starts a response that passes through compression, script filters (with the length that `lua::body` returns) or a cache, or
/// several of these.
#[cold]
fn start_filtered(
    x: &mut Exchange,
    framing: BodyLength,
    mut path: Path,
    coding: Option<(Rank, Filter)>,
    scripted: Option<BodyLength>,
) {
    let is_coded = coding.is_some() || x.response_body.length == BodyLength::Chunked;
    let kept = if x.caching.is_some() { keep::filter(x, path) } else { None };
    if kept.is_some() && path == Path::Verbatim && !is_coded {
        // A cache reads the payload without changing it.
        path = Path::Payload(Coding::Bare);
    }
    let own = kept.into_iter().chain(coding);
    let filters = match scripted {
        None => Filters::of(own),
        Some(shown) => lua::body::filters(x, true, shown, own),
    };
    match filters {
        None => x.download.start(framing, path),
        Some(filters) => x.download.start_filtered(framing, path, filters),
    }
}

/// Sets the response's fields for the client's connection and for the end of the body. Returns how the body is sent.
#[inline(always)]
pub(crate) fn frame_for_client(
    client: &Client,
    x: &mut Exchange,
    length: BodyLength,
    is_framed: bool,
) -> Path {
    let framed = Framed {
        length,
        is_framed,
        is_tunnel: x.is_tunnel,
        is_modern: x.txn.request.version().is_11_or_above(),
        drops_trailers: client.frontend.options.http_drop_response_trailers,
    };
    let may = || client.may_stay();
    let (path, kept) = client.side.frame_response(&mut x.txn.response, framed, x.keep_alive, may);
    x.keep_alive = kept;
    path
}
