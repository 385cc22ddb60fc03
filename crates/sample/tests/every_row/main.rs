//! A case for every fetch and converter. The tests iterate over the tables and report rows without a case. A case is an expression
//! and its value; `sint:*` stands for any number if the value depends on the time.

#[path = "../common/mod.rs"]
mod common;
mod converters;
mod fetches;
#[path = "../common/secured.rs"]
mod secured;
mod tracked;

use std::collections::HashSet;

use common::World;
use common::rows::{eval_anywhere, usual};
use converters::{CERTIFICATE, CONVERTERS, RSA_PUBLIC};
use fetches::{DISTCC, RAW, RDP, TLS, USUAL};
use sample::{convert, fetch};
use secured::{SECURED, secured};
use tracked::TRACKED;

/// The name of the fetch at the start of an expression.
fn fetch_of(expression: &str) -> &str {
    expression.split(['(', ',']).next().unwrap_or_default()
}

fn fits(found: &str, expected: &str) -> bool {
    match expected.strip_suffix('*') {
        Some(start) => found.starts_with(start),
        None => found == expected,
    }
}

fn check(world: &mut World, cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = eval_anywhere(world, text);
        if !fits(&found, expected) {
            wrong.push(format!("{text}\n   gives {found}\n  wanted {expected}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn raw(request: &[u8], response: &[u8]) -> World {
    let mut world = World::new();
    world.transaction.is_http = false;
    world.request_bytes = request.to_vec();
    world.response_bytes = response.to_vec();
    world
}

/// A ClientHello with every extension used by fetches, and a ServerHello.
fn hellos() -> World {
    let extension = |kind: u8, body: &[u8]| [&[0, kind, 0, body.len() as u8], body].concat();
    let name = b"sni.example";
    let extensions = [
        extension(0, &[&[0, name.len() as u8 + 3, 0, 0, name.len() as u8], &name[..]].concat()),
        extension(16, b"\x00\x0c\x02h2\x08http/1.1"),
        extension(10, &[0, 4, 0, 0x1d, 0, 0x17]),
        extension(13, &[0, 4, 4, 3, 8, 4]),
        extension(35, b"ticket"),
        extension(51, &[0, 11, 0, 0x1d, 0, 1, 9, 0, 0x17, 0, 2, 9, 9]),
    ]
    .concat();
    let random = [7; 32];
    let body =
        [&[3, 3][..], &random, &[0, 0, 4, 0x13, 1, 0xc0, 0x2b, 1, 0, 0, extensions.len() as u8], &extensions]
            .concat();
    let record = |kind: u8, body: &[u8]| {
        [&[0x16, 3, 1, 0, body.len() as u8 + 4, kind, 0, 0, body.len() as u8], body].concat()
    };
    raw(&record(1, &body), &record(2, &[&[3, 3][..], &random, &[0, 0x13, 1, 0]].concat()))
}

#[test]
fn every_fetch_matches_its_cases() {
    check(&mut secured(), SECURED);
    check(&mut usual(), USUAL);
    check(&mut usual(), TRACKED);
    check(&mut hellos(), TLS);
    check(&mut raw(b"\x03abcde", b"\x00\x02xy"), RAW);
    check(&mut raw(b"\x03\x00\x00\x2a\x25\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\r\n\x01\x00\x08\x00\x03\x00\x00\x00", b""), RDP);
    check(&mut raw(b"DIST00000001ARGC00000001ARGV00000002ccDOTI00000100int", b""), DISTCC);
    let cases = [USUAL, TRACKED, SECURED, TLS, RAW, RDP, DISTCC].concat();
    let covered: HashSet<&str> = cases.iter().map(|(text, _)| fetch_of(text)).collect();
    let missing: Vec<&str> =
        fetch::all().map(|row| row.name).filter(|name| !covered.contains(name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn every_converter_matches_its_case() {
    let mut world = usual();
    for (file, text) in [
        ("txt.words", "b one\n"),
        ("txt.numbers", "b 7\n"),
        ("txt.addresses", "b 1.2.3.4\n"),
        ("num.words", "5 one\n"),
        ("num.numbers", "5 7\n"),
        ("num.addresses", "5 1.2.3.4\n"),
        ("net.words", "10.0.0.0/8 one\n"),
        ("net.numbers", "10.0.0.0/8 7\n"),
        ("net.addresses", "10.0.0.0/8 1.2.3.4\n"),
        ("m", "/static dir\n/static/img deep\nwww.example.com host\n# x\n10 ten\n"),
        ("ip", "192.0.2.0/24 net\n192.0.2.7 host\n"),
        ("re", "^/static/(.*)\\.png$ img:\\1\n"),
        ("cert.pem", CERTIFICATE),
        ("rsa.pem", RSA_PUBLIC),
    ] {
        world.files.insert(file, text);
    }
    let cases: Vec<(&str, &str)> = CONVERTERS.iter().map(|(_, text, expected)| (*text, *expected)).collect();
    check(&mut world, &cases);
    for (name, text, _) in CONVERTERS {
        assert!(text.contains(&format!(",{name}")), "`{text}` does not use `{name}`");
    }
    let covered: HashSet<&str> = CONVERTERS.iter().map(|(name, ..)| *name).collect();
    let missing: Vec<&str> =
        convert::all().map(|row| row.name).filter(|name| !covered.contains(name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}
