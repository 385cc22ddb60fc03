//! Repeated evaluation allocates nothing once warm: common fetches, converters, matches and formats.

mod common;

use std::alloc::System;

use common::everyday;
use diag::Span;
use sample::{Condition, Expression, Format, FormatFor, Place, Words};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Less common expressions.
const EXPRESSIONS: &[&str] = &[
    "int(42),add(1),mul(2)",
    "req.hdr(host),crc32",
    "req.hdr(host),xxh64",
    "req.hdr(host),sha1,hex",
    "req.hdr(host),base64",
    "bool(true),iif(yes,no)",
];

const CONDITIONS: &[&str] = &["{ path -m str -f paths.lst }"];

const FORMATS: &[&str] = &[
    "https://%[req.hdr(host),lower]%[pathq]",
    "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r",
];

/// The bytes and calls allocated by a second run of `run`; the first run warms caches.
fn allocated(mut run: impl FnMut()) -> usize {
    run();
    run();
    let region = Region::new(ALLOCATOR);
    run();
    let change = region.change();
    change.allocations + change.reallocations
}

// There is only one test, because the counter is process-wide.
#[test]
fn warm_evaluation_does_not_allocate() {
    let mut world = everyday::world();
    let mut greedy = Vec::new();
    for text in [everyday::FETCHES, everyday::CONVERTERS, EXPRESSIONS].concat() {
        let expression = Expression::compile_str(text, Span::default(), &world.scope());
        let expression = expression.unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let env = world.env();
        let count =
            allocated(|| assert!(expression.eval(&env).is_some() || text.starts_with("var"), "{text}"));
        if count > 0 {
            greedy.push(format!("{text}: {count}"));
        }
    }
    for text in [everyday::CONDITIONS, CONDITIONS].concat() {
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
