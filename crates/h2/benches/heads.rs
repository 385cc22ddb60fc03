//! Measures the cost of heads: ns per request or response decoded and encoded, compared with two third-party decoders. `cargo bench
//! -p weir-h2 --profile quick`.

#![allow(missing_docs, reason = "criterion makes a public function without any")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::literal;
use criterion::{Criterion, criterion_group, criterion_main};
use fields::{Rules, Scheme, read_request, read_response, write_request, write_response};
use h2::hpack::{Decoder, Encoder};
use http::Head;

const RULES: Rules = Rules { max_bytes: 15_360, max_fields: 100, relaxed: false, connect_protocol: true };

/// The request of a browser.
const BROWSER: &[(&str, &str)] = &[
    (":method", "GET"),
    (":authority", "www.example.com"),
    (":scheme", "https"),
    (":path", "/assets/2026/app-3f9c2a7d.js?v=17"),
    ("sec-ch-ua", "\"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    ),
    ("accept", "*/*"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "no-cors"),
    ("sec-fetch-dest", "script"),
    ("referer", "https://www.example.com/"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-US,en;q=0.9"),
    ("cookie", "session=1f0c9e8d7b6a5f4e3d2c1b0a; theme=dark"),
    ("priority", "u=1"),
];

/// The request of a load generator.
const SMALL: &[(&str, &str)] = &[
    (":path", "/"),
    (":scheme", "http"),
    (":authority", "127.0.0.1:8080"),
    (":method", "GET"),
    ("user-agent", "h2load nghttp2/1.52.0"),
];

const RESPONSE: &[(&str, &str)] = &[
    (":status", "200"),
    ("server", "nginx"),
    ("date", "Tue, 24 Nov 2026 12:31:45 GMT"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-length", "1532"),
    ("last-modified", "Mon, 23 Nov 2026 08:00:00 GMT"),
    ("etag", "\"5fbb6c40-5fc\""),
    ("accept-ranges", "bytes"),
];

/// All fields as literals, in the Huffman code or plain.
fn literals(fields: &[(&str, &str)], coded: bool) -> Vec<u8> {
    use httlib_hpack::Encoder as Http;
    let (mut encoder, mut out) = (Http::with_dynamic_size(0), Vec::new());
    for (name, value) in fields {
        if coded {
            let flags = Http::HUFFMAN_NAME | Http::HUFFMAN_VALUE | Http::BEST_FORMAT;
            encoder
                .encode((name.as_bytes().to_vec(), value.as_bytes().to_vec(), flags), &mut out)
                .expect("fields");
        } else {
            literal(0, name.as_bytes(), value.as_bytes(), &mut out);
        }
    }
    out
}

/// Fills the table with every field except the path, and a block that refers to them by index.
fn indexed(fields: &[(&str, &str)]) -> (Vec<u8>, Vec<u8>) {
    let mut fill = Vec::new();
    let kept: Vec<_> = fields.iter().filter(|field| field.0 != ":path").collect();
    for (name, value) in &kept {
        literal(0x40, name.as_bytes(), value.as_bytes(), &mut fill);
    }
    let mut block = Vec::new();
    for (name, value) in fields {
        if *name == ":path" {
            block.extend(literals(&[(name, value)], true));
        } else {
            let age = kept.iter().rev().position(|field| field.0 == *name).unwrap_or_default();
            block.push(0x80 | (62 + age) as u8);
        }
    }
    (fill, block)
}

fn requests(bench: &mut Criterion) {
    for (name, fields) in [("browser", BROWSER), ("small", SMALL)] {
        let (fill, block) = indexed(fields);
        let cases = [
            ("indexed", fill, block),
            ("huffman", Vec::new(), literals(fields, true)),
            ("plain", Vec::new(), literals(fields, false)),
        ];
        for (kind, fill, block) in cases {
            let (mut decoder, mut head) = (Decoder::new(4096), Head::new());
            decoder.decode(&fill, &mut |_| true).expect("fields");
            bench.bench_function(&format!("read {name} {kind}"), |bench| {
                bench
                    .iter(|| read_request(decoder.block(black_box(&block)), true, &RULES, &mut head).is_ok());
            });
            bench.bench_function(&format!("decode {name} {kind}"), |bench| {
                bench.iter(|| {
                    let mut sum = 0;
                    let each = &mut |field: fields::Field<'_>| {
                        sum += field.value.len();
                        true
                    };
                    decoder.decode(black_box(&block), each).expect("fields");
                    sum
                });
            });
            let mut fluke = fluke_hpack::Decoder::new();
            fluke.decode(&fill).expect("fields");
            bench.bench_function(&format!("decode {name} {kind} by fluke"), |bench| {
                bench.iter(|| {
                    let mut sum = 0;
                    fluke.decode_with_cb(black_box(&block), |_, value| sum += value.len()).expect("fields");
                    sum
                });
            });
            let mut httlib = httlib_hpack::Decoder::with_dynamic_size(4096);
            httlib.decode(&mut fill.clone(), &mut Vec::new()).expect("fields");
            let mut out = Vec::new();
            bench.bench_function(&format!("decode {name} {kind} by httlib"), |bench| {
                bench.iter(|| {
                    out.clear();
                    httlib.decode(&mut black_box(&block).clone(), &mut out).expect("fields");
                    out.len()
                });
            });
        }
        let (mut head, mut encoder, mut out) = (Head::new(), Encoder::new(), Vec::new());
        let block = literals(fields, false);
        read_request(Decoder::new(4096).block(&block), true, &RULES, &mut head).expect("a request");
        bench.bench_function(&format!("write {name} to HTTP/2"), |bench| {
            bench.iter(|| {
                out.clear();
                write_request(&mut encoder.writer(&mut out), black_box(&head), Scheme::Https);
                out.len()
            });
        });
        bench.bench_function(&format!("write {name} to HTTP/1"), |bench| {
            bench.iter(|| {
                out.clear();
                black_box(&head).write_to(&mut out);
                out.len()
            });
        });
    }
}

fn responses(bench: &mut Criterion) {
    let (mut head, mut decoder) = (Head::new(), Decoder::new(4096));
    let block = literals(RESPONSE, false);
    bench.bench_function("read response plain", |bench| {
        bench.iter(|| read_response(decoder.block(black_box(&block)), false, &RULES, &mut head).is_ok());
    });
    for (kind, limit) in [("indexed", 4096), ("without table", 0)] {
        let (mut encoder, mut out) = (Encoder::new(), Vec::new());
        encoder.set_limit(4096, limit);
        bench.bench_function(&format!("write response {kind}"), |bench| {
            bench.iter(|| {
                out.clear();
                write_response(&mut encoder.writer(&mut out), black_box(&head));
                out.len()
            });
        });
        println!("{} bytes", out.len());
    }
    let mut encoder = fluke_hpack::Encoder::new();
    let mut out = Vec::new();
    bench.bench_function("write response by fluke", |bench| {
        bench.iter(|| {
            out.clear();
            let fields = RESPONSE.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            encoder.encode_into(black_box(fields), &mut out).expect("memory");
            out.len()
        });
    });
}

criterion_group!(benches, requests, responses);
criterion_main!(benches);
