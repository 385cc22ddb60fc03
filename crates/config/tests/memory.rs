//! The memory needed while a configuration is read.

mod common;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

// A single test, because the counter is process-wide.
#[test]
fn pattern_files_are_held_in_memory_once() {
    const LINES: usize = 1_000;
    let line = |number: usize| format!("{number:0>999} {number:0>999}\n");
    let text: String = (0..LINES).map(line).collect();
    let length = text.len();
    let path = scratch::Scratch::holding("patterns", text);

    let configuration = |path: &str| {
        format!(
            "{}frontend f\n mode http\n http-request deny if {{ path,map({path}) -m found }}\n",
            common::QUIET
        )
    };
    let region = Region::new(ALLOCATOR);
    let loaded = common::load(&configuration(&path.display().to_string()));
    let change = region.change();
    assert!(loaded.plan.is_some(), "{:?}", loaded.diagnostics);
    // The total of all allocations, including freed ones: a second copy of the text would increase it.
    let asked = change.bytes_allocated;
    assert!(asked > length && asked < length + length / 2, "{asked} bytes for a file of {length}");
}
