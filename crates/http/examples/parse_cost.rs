//! Prints the cost of parsing and writing a typical request, compared with httparse. Run with `--profile quick`.

use std::hint::black_box;
use std::time::Instant;

use http::{Head, ParseOptions, parse_request};

const REQUEST: &[u8] = b"GET /static/app/main.css?v=20240501 HTTP/1.1\r\nHost: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0\r\n\
    Accept: text/css,*/*;q=0.1\r\nAccept-Encoding: gzip, deflate, br\r\n\
    Referer: https://www.example.com/index.html\r\nCookie: session=0123456789abcdef; theme=dark\r\n\r\n";

fn time(name: &str, mut run: impl FnMut()) {
    const ROUNDS: u32 = 500_000;
    let best = (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| run());
            start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
        })
        .fold(f64::MAX, f64::min);
    println!("{name:<28} {best:7.1} ns");
}

fn main() {
    println!("{} bytes", REQUEST.len());
    let options = ParseOptions::default();
    let mut head = Head::new();
    time("parse_request", || {
        black_box(parse_request(black_box(REQUEST), &mut head, &options)).expect("a sound request");
    });
    let mut out = Vec::new();
    time("write_to, untouched", || {
        out.clear();
        black_box(&head).write_to(&mut out);
    });
    head.remove_known(http::KnownName::Accept);
    head.append(b"x-forwarded-for", b"192.0.2.1");
    time("write_to, one out, one in", || {
        out.clear();
        black_box(&head).write_to(&mut out);
    });
    time("httparse", || {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut request = httparse::Request::new(&mut headers);
        black_box(request.parse(black_box(REQUEST))).expect("a sound request");
    });
    time("httparse, 16 headers", || {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        black_box(request.parse(black_box(REQUEST))).expect("a sound request");
    });
}
