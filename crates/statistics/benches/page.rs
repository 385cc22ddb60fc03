//! Measures the CPU time of the statistics page of fifteen proxies and sixty servers, of one of its updates, and of a round of the
//! sampler. `cargo bench -p weir-statistics --profile quick`.

#![allow(missing_docs, reason = "criterion makes a public function without any")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::farm::farm;
use criterion::{Criterion, criterion_group, criterion_main};
use statistics::page::{PageRequest, PageSettings, show};
use statistics::sampling;

fn page(criterion: &mut Criterion) {
    let statistics = farm(60);
    let settings = PageSettings { uri: "/stats".into(), ..PageSettings::default() };
    for (name, uri) in [
        ("page", "/stats"),
        ("update", "/stats;live"),
        ("wall", "/stats;wall;live"),
        ("all counters", "/stats;detail=all"),
    ] {
        let request = PageRequest { method: http::Method::Get, uri, body: Some(b""), admin: false };
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| show(&statistics, &settings, &request).body.map(black_box).count());
        });
    }
    criterion.bench_function("sampler", |bencher| {
        bencher.iter(|| sampling::round(&statistics, true).count());
    });
}

criterion_group!(benches, page);
criterion_main!(benches);
