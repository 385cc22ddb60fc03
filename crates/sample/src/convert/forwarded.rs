//! The `Forwarded` header (RFC 7239): validation, and extraction of its parts.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::is_token;

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value, parse_int, write_int};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name                 arguments          takes       gives       description
    row("rfc7239_is_valid",  &[],               Type::Str,  Type::Bool, "checks whether a Forwarded header is valid",   rfc7239_is_valid),
    row("rfc7239_field",     &[arg(ArgKind::Str)], Type::Str,  Type::Str,  "extracts a parameter of a Forwarded header",   rfc7239_field).prepared(prepare_field),
    row("rfc7239_n2nn",      &[],               Type::Str,  Type::Any,  "extracts the name of a node: an address or a string", rfc7239_n2nn),
    row("rfc7239_n2np",      &[],               Type::Str,  Type::Any,  "extracts the port of a node: a number or a string", rfc7239_n2np),
    row("rfc7239_nn",        &[],               Type::Any,  Type::Str,  "formats the name of a node",                   rfc7239_nn),
    row("rfc7239_np",        &[],               Type::Any,  Type::Str,  "formats the port of a node",                   rfc7239_np),
];

const FIELDS: [&[u8]; 4] = [b"proto", b"host", b"for", b"by"];

/// The ranges of the values of `proto`, `host`, `for` and `by`, or `None` if the header is invalid.
fn parse(header: &[u8]) -> Option<[Option<(usize, usize)>; 4]> {
    let mut found = [None; 4];
    let mut at = 0;
    loop {
        let equals = at + header[at..].iter().position(|byte| *byte == b'=')?;
        let name = header[at..equals].trim_ascii_start();
        let field = FIELDS.iter().position(|field| field.eq_ignore_ascii_case(name))?;
        let start = equals + 1;
        let (value, end) = match header.get(start)? {
            b'"' => {
                let length = header[start + 1..].iter().position(|byte| *byte == b'"')?;
                ((start + 1, start + 1 + length), start + length + 2)
            }
            _ => {
                let length =
                    header[start..].iter().position(|byte| *byte == b';').unwrap_or(header.len() - start);
                // Values with a colon or a bracket must be quoted.
                if !is_token(&header[start..start + length]) {
                    return None;
                }
                ((start, start + length), start + length)
            }
        };
        if found[field].replace(value).is_some() || !is_valid(field, &header[value.0..value.1]) {
            return None;
        }
        match header.get(end) {
            None => return Some(found),
            Some(b';') => at = end + 1,
            Some(_) => return None,
        }
    }
}

fn is_valid(field: usize, value: &[u8]) -> bool {
    match field {
        0 => matches!(value, b"http" | b"https"),
        1 => {
            let (host, port) = http::uri::split_port(value);
            !host.is_empty() && http::uri::is_host(host) && port.is_none_or(|port| !port.is_empty())
        }
        _ => node(value).is_some(),
    }
}

/// A node: its name and optional port.
enum NodeName<'a> {
    Ip4(Ipv4Addr),
    Ip6(Ipv6Addr),
    Text(&'a [u8]),
}

fn is_obfuscated(text: &[u8]) -> bool {
    let rest = text.strip_prefix(b"_");
    rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(|byte| is_obfuscating(*byte)))
}

fn is_obfuscating(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn node(text: &[u8]) -> Option<(NodeName<'_>, Option<&[u8]>)> {
    let (name, port) = match text.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let address = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
            (NodeName::Ip6(address), &rest[end + 1..])
        }
        None => {
            let end = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
            let name = &text[..end];
            let address = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            match address {
                Some(address) => (NodeName::Ip4(address), &text[end..]),
                None if name == b"unknown" || is_obfuscated(name) => (NodeName::Text(name), &text[end..]),
                None => return None,
            }
        }
    };
    let Some(port) = port.strip_prefix(b":") else { return port.is_empty().then_some((name, None)) };
    let is_number = parse_int(port).is_some_and(|port| (0..=65535).contains(&port));
    (is_number || is_obfuscated(port)).then_some((name, Some(port)))
}

fn rfc7239_is_valid<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(parse(value.bytes()?).is_some()))
}

fn prepare_field(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let field = FIELDS.iter().position(|field| *field == text_of(&args[0]));
    args[0] = Arg::Int(field.ok_or("the field must be proto, host, for or by")? as i64);
    Ok(())
}

fn rfc7239_field<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let (start, end) = parse(&bytes)?[args.int(0)? as usize]?;
    Some(Value::Str(bytes.slice(start, end)))
}

fn rfc7239_n2nn<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let (name, _) = node(value.bytes()?)?;
    Some(match name {
        NodeName::Ip4(address) => Value::Ip4(address),
        NodeName::Ip6(address) => Value::Ip6(address),
        NodeName::Text(text) => Value::made(Scratch::copy(text)),
    })
}

fn rfc7239_n2np<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let port = node(value.bytes()?)?.1?;
    Some(parse_int(port).map_or_else(|| Value::made(Scratch::copy(port)), Value::Int))
}

/// An obfuscated name: text after an underscore.
fn obfuscated<'a>(text: &Bytes<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::copy(b"_");
    out.extend_from_slice(text);
    text.iter().all(|byte| is_obfuscating(*byte)).then(|| Value::made(out))
}

fn rfc7239_nn<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    match value {
        Value::Ip6(address) => Some(Value::made(Scratch::copy(format!("[{address}]").as_bytes()))),
        Value::Ip4(_) => value.into_str().map(Value::Str),
        other => match other.into_str()? {
            text if text.is_empty() => Some(Value::str(b"unknown")),
            text => obfuscated(&text),
        },
    }
}

fn rfc7239_np<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    match value {
        Value::Int(port @ 0..=65535) => {
            let mut out = Scratch::new();
            write_int(&mut out, port);
            Some(Value::made(out))
        }
        Value::Int(_) => None,
        other => other.into_str().filter(|text| !text.is_empty()).as_ref().and_then(obfuscated),
    }
}
