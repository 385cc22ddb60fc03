//! What requests evaluate over and over allocates nothing once it is warm: common fetches, converters, matches and formats.

mod common;

use std::alloc::System;

use common::World;
use diag::Span;
use sample::{Condition, Expression, Format, FormatFor, Place, Words};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const EXPRESSIONS: &[&str] = &[
    "src",
    "dst_port",
    "method",
    "path",
    "pathq",
    "query",
    "url",
    "base",
    "url_param(b)",
    "req.hdr(host)",
    "req.hdr(x-forwarded-for,-1)",
    "req.fhdr(user-agent)",
    "req.hdr_cnt(x-forwarded-for)",
    "req.cook(sid)",
    "hdr_ip(x-forwarded-for,1)",
    "var(txn.x)",
    "fe_name",
    "unique-id",
    "str(constant)",
    "int(42),add(1),mul(2)",
    "path,lower",
    "path,field(2,/)",
    "path,word(2,/)",
    "path,bytes(1,6)",
    "path,length",
    "path,regsub(static,dynamic)",
    "path,url_dec",
    "src,ipmask(24)",
    "req.hdr(host),host_only",
    "req.hdr(host),crc32",
    "req.hdr(host),xxh64",
    "req.hdr(host),sha1,hex",
    "req.hdr(host),base64",
    "path,map_beg(paths)",
    "req.hdr(host),lower,map(hosts,none)",
    "src,map_ip(networks)",
    "path,set-var(txn.x)",
    "bool(true),iif(yes,no)",
];

const CONDITIONS: &[&str] = &[
    "{ path /static/img/logo.png }",
    "{ path_beg /static }",
    "{ path_end .png .jpg .gif }",
    "{ path -i -m sub LOGO }",
    "{ path -m reg ^/static/.*[.]png$ }",
    "{ path_dir img }",
    "{ hdr_dom(host) example }",
    "{ src 192.0.2.0/24 10.0.0.0/8 }",
    "{ method GET HEAD }",
    "{ req.hdr_cnt(cookie) gt 0 }",
    "{ req.hdr(x-none) -m found }",
    "{ path -m str -f paths.lst }",
    "METH_GET { path_beg /static } or HTTP_URL_STAR",
];

const FORMATS: &[&str] = &[
    "https://%[req.hdr(host),lower]%[pathq]",
    "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r",
];

fn world() -> World {
    let mut world = World::new();
    world.files.insert("paths", "/static dir\n/static/img deep\n");
    world.files.insert("paths.lst", "/a\n/b\n/static/img/logo.png\n");
    world.files.insert("hosts", "www.example.com:8080 host\n");
    world.files.insert("networks", "192.0.2.0/24 net\n192.0.2.7 host\n");
    world
}

/// Bytes and calls that a second run of `run` allocates: the first makes what is kept.
fn allocated(mut run: impl FnMut()) -> usize {
    run();
    run();
    let region = Region::new(ALLOCATOR);
    run();
    let change = region.change();
    change.allocations + change.reallocations
}

// One test: the count is the process's.
#[test]
fn nothing_is_allocated_by_what_requests_evaluate() {
    let mut world = world();
    let mut greedy = Vec::new();
    for text in EXPRESSIONS {
        let expression = Expression::compile_str(text, Span::default(), &world.scope());
        let expression = expression.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        let count =
            allocated(|| assert!(expression.eval(&env).is_some() || text.starts_with("var"), "{text}"));
        if count > 0 {
            greedy.push(format!("{text}: {count}"));
        }
    }
    for text in CONDITIONS {
        let list = common::words(text);
        let condition = Condition::compile(&mut Words::new(&list, Span::default()), &world.scope());
        let condition = condition.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        let count = allocated(|| {
            condition.eval(&env);
        });
        if count > 0 {
            greedy.push(format!("{text}: {count}"));
        }
    }
    for text in FORMATS {
        world.place = Place::Log;
        let used_for = if text.starts_with("http") { FormatFor::Uri } else { FormatFor::Log };
        if used_for == FormatFor::Uri {
            world.place = Place::HttpRequest;
        }
        let format = Format::compile(text, Span::default(), &world.scope(), used_for);
        let format = format.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        let mut out = Vec::with_capacity(4096);
        let count = allocated(|| {
            out.clear();
            format.render(&env, &mut out);
        });
        if count > 0 {
            greedy.push(format!("{text}: {count}"));
        }
    }
    assert!(greedy.is_empty(), "{greedy:#?}");
}
