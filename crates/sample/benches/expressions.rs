//! What expressions cost: ns a fetch, a converter, a condition, a format, over one request that is at hand. `make bench-expressions`; a word
//! behind `--` chooses those whose text has it.

#![allow(missing_docs, reason = "criterion makes a public function without any")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::World;
use criterion::{Criterion, criterion_group, criterion_main};
use diag::Span;
use sample::{Condition, Expression, Format, FormatFor, Place, Words};

const FETCHES: &[&str] = &[
    "str(constant)",
    "src",
    "dst_port",
    "method",
    "path",
    "pathq",
    "query",
    "url",
    "base",
    "base32",
    "url_param(b)",
    "req.hdr(host)",
    "req.hdr(x-forwarded-for,-1)",
    "req.fhdr(user-agent)",
    "req.hdr_cnt(x-forwarded-for)",
    "req.cook(sid)",
    "hdr_ip(x-forwarded-for,1)",
    "req.hdrs",
    "req.hdrs_bin",
    "req.body",
    "req.body_param(v)",
    "res.hdr(server)",
    "var(txn.x)",
    "fe_name",
    "fe_conn",
    "be_conn(be)",
    "srv_is_up(be/s1)",
    "nbsrv(be)",
    "unique-id",
    "rand",
    "uuid",
    "date",
    "capture.req.uri",
];

/// Behind the fetch that gives what it takes: the fetch's own cost is among those above.
const CONVERTERS: &[&str] = &[
    "int(42),add(1)",
    "int(42),div(7)",
    "path,lower",
    "path,length",
    "path,field(2,/)",
    "path,word(2,/)",
    "path,bytes(1,6)",
    "path,concat(-,txn.x)",
    "path,regsub(static,dynamic)",
    "path,url_dec",
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
    "src,ipmask(24)",
    "req.hdr(host),host_only",
    "accept_date,http_date",
    "accept_date,utime(%Y)",
    "path,map_beg(paths)",
    "req.hdr(host),lower,map(hosts,none)",
    "src,map_ip(networks)",
    "path,set-var(txn.x)",
    "str({}),json_query('$.a')",
];

const CONDITIONS: &[&str] = &[
    "{ path /static/img/logo.png }",
    "{ path_beg /static }",
    "{ path_end .png .jpg .gif }",
    "{ path -i -m sub LOGO }",
    "{ path -m reg ^/static/.*[.]png$ }",
    "{ path -m reg ^(?!/admin)/ }",
    "{ path_dir img }",
    "{ hdr_dom(host) example }",
    "{ src 192.0.2.0/24 10.0.0.0/8 }",
    "{ method GET HEAD }",
    "{ req.hdr_cnt(cookie) gt 0 }",
    "{ req.hdr(x-none) -m found }",
    "METH_GET { path_beg /static } or HTTP_URL_STAR",
];

const FORMATS: &[(&str, FormatFor)] = &[
    ("https://%[req.hdr(host),lower]%[pathq]", FormatFor::Uri),
    (sample::format::HTTP_LOG, FormatFor::Log),
    (sample::format::TCP_LOG, FormatFor::Log),
];

fn world() -> World {
    let mut world = World::new();
    world.files.insert("paths", "/static dir\n/static/img deep\n");
    world.files.insert("hosts", "www.example.com:8080 host\n");
    world.files.insert("networks", "192.0.2.0/24 net\n192.0.2.7 host\n");
    world
}

/// The expression at the first of the places where it may stand.
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
    for (family, texts) in [("fetch", FETCHES), ("converter", CONVERTERS)] {
        let mut group = criterion.benchmark_group(family);
        for text in texts {
            let mut world = world();
            let expression = compile(&mut world, text);
            let env = world.env();
            group.bench_function(*text, |bencher| {
                bencher.iter(|| black_box(expression.eval(black_box(&env))))
            });
        }
        group.finish();
    }
}

fn conditions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acl");
    for text in CONDITIONS {
        let world = world();
        let list = common::words(text);
        let condition = Condition::compile(&mut Words::new(&list, Span::default()), &world.scope());
        let condition = condition.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        group.bench_function(*text, |bencher| bencher.iter(|| black_box(condition.eval(black_box(&env)))));
    }
    group.finish();
}

fn formats(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("format");
    for (text, used_for) in FORMATS {
        let mut world = world();
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
