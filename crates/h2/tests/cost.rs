//! A warm connection reads and writes heads without allocation.
//!
//! This is the only test of its program, because the counters are process-wide.

mod common;

use std::alloc::System;

use common::literal;
use fields::{Rules, Scheme, read_request, read_response, write_request, write_response};
use h2::hpack::{Decoder, Encoder};
use http::Head;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RULES: Rules = Rules { max_bytes: 15_360, max_fields: 100, relaxed: false, connect_protocol: true };

/// A request with fields that enter the table, some of them new each time, so that the table is always full and its ring wraps
/// around.
fn request(turn: usize, indexed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let path = format!("/path/{turn}");
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "www.example.com"),
        (":path", &path),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("accept", "text/html,application/xhtml+xml"),
        ("x-own-name", &path),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-own-name", "x"),
        ("cookie", "c=3"),
    ] {
        literal(if indexed { 0x40 } else { 0 }, name.as_bytes(), value.as_bytes(), &mut out);
    }
    // `x-y: www.example.com`, Huffman-coded.
    out.extend(common::hex("00 03 782d79 8c f1e3c2e5f23a6ba0ab90f4ff"));
    out
}

#[test]
fn heads_are_read_and_written_without_allocation() {
    let blocks: Vec<Vec<u8>> = (0..200).map(|turn| request(turn, turn % 3 > 0)).collect();
    let answer = common::block(&[
        (":status", "203"),
        ("server", "weir"),
        ("content-type", "text/html"),
        ("x-own", "1"),
    ]);
    let (mut decoder, mut encoder, mut from_server) =
        (Decoder::new(4096), Encoder::new(), Decoder::new(4096));
    let (mut head, mut response, mut out) = (Head::new(), Head::new(), Vec::new());
    let mut round = |blocks: &[Vec<u8>]| {
        for block in blocks {
            assert!(read_request(decoder.block(block), true, &RULES, &mut head).is_ok());
            out.clear();
            write_request(&mut encoder.writer(&mut out), &head, Scheme::Https);
            assert!(read_response(from_server.block(&answer), false, &RULES, &mut response).is_ok());
            out.clear();
            write_response(&mut encoder.writer(&mut out), &response);
        }
    };
    round(&blocks);
    round(&blocks);
    let region = Region::new(GLOBAL);
    round(&blocks);
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0));
    // The size in an idle connection.
    assert!(size_of::<Decoder>() + size_of::<Encoder>() <= 320, "{}", size_of::<(Decoder, Encoder)>());
}
