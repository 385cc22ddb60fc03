//! Measures the cost of expressions in ns per fetch, converter, condition and format, evaluated on one request already in memory.
//! `make bench BENCH=expressions`; any other word in `BENCH` selects the expressions that contain it.

#![allow(missing_docs, reason = "criterion makes a public function without any")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::{World, everyday};
use criterion::{Criterion, criterion_group, criterion_main};
use diag::Span;
use sample::{Condition, Expression, Format, FormatFor, Place, Words};

/// Less common fetches.
const FETCHES: &[&str] = &[
    "base32",
    "req.hdrs",
    "req.hdrs_bin",
    "req.body",
    "req.body_param(v)",
    "res.hdr(server)",
    "fe_conn",
    "be_conn(be)",
    "srv_is_up(be/s1)",
    "nbsrv(be)",
    "rand",
    "uuid",
    "date",
    "capture.req.uri",
];

/// Each converter follows the fetch that produces its input. The cost of the fetch itself is measured above.
const CONVERTERS: &[&str] = &[
    "int(42),add(1)",
    "int(42),div(7)",
    "path,concat(-,txn.x)",
    "path,url_enc",
    "path,hex",
    "path,base64",
    "path,json",
    "path,crc32",
    "path,djb2",
    "path,xxh32",
    "path,xxh64",
    "path,xxh3",
    "path,sha1",
    "path,sha2(256)",
    "path,digest(md5)",
    "path,hmac(sha256,a2V5)",
    "accept_date,http_date",
    "accept_date,utime(%Y)",
    "str({}),json_query('$.a')",
];

const CONDITIONS: &[&str] = &["{ path -m reg ^(?!/admin)/ }"];

const FORMATS: &[(&str, FormatFor)] = &[
    ("https://%[req.hdr(host),lower]%[pathq]", FormatFor::Uri),
    (sample::format::HTTP_LOG, FormatFor::Log),
    (sample::format::TCP_LOG, FormatFor::Log),
];

/// Compiles the expression for the first place that allows it.
fn compile(world: &mut World, text: &str) -> Expression {
    let mut last = String::new();
    for place in [Place::HttpRequest, Place::HttpResponse, Place::Log] {
        world.place = place;
        match Expression::compile_str(text, Span::default(), &world.scope()) {
            Ok(expression) => return expression,
            Err(error) => last = error.message,
        }
    }
    panic!("{text}: {last}")
}

fn expressions(criterion: &mut Criterion) {
    let families =
        [("fetch", [everyday::FETCHES, FETCHES]), ("converter", [everyday::CONVERTERS, CONVERTERS])];
    for (family, texts) in families {
        let mut group = criterion.benchmark_group(family);
        for text in texts.concat() {
            let mut world = everyday::world();
            let expression = compile(&mut world, text);
            let env = world.env();
            group
                .bench_function(text, |bencher| bencher.iter(|| black_box(expression.eval(black_box(&env)))));
        }
        group.finish();
    }
}

fn conditions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acl");
    for text in [everyday::CONDITIONS, CONDITIONS].concat() {
        let world = everyday::world();
        let list = common::words(text);
        let condition = Condition::compile(&mut Words::new(&list, Span::default()), &world.scope());
        let condition = condition.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        group.bench_function(text, |bencher| bencher.iter(|| black_box(condition.eval(black_box(&env)))));
    }
    group.finish();
}

fn formats(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("format");
    for (text, used_for) in FORMATS {
        let mut world = everyday::world();
        world.place = if *used_for == FormatFor::Log { Place::Log } else { Place::HttpRequest };
        let format = Format::compile(text, Span::default(), &world.scope(), *used_for);
        let format = format.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        let mut out = Vec::with_capacity(4096);
        group.bench_function(&text[..text.len().min(40)], |bencher| {
            bencher.iter(|| {
                out.clear();
                format.render(black_box(&env), &mut out);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, expressions, conditions, formats);
criterion_main!(benches);
