//! A warm request tracked in stick tables, with persistence by one of them, makes no heap allocation either.
//!
//! As in `warm_path`, allocations are counted for the whole process, and this file contains a single test.

mod common;
#[path = "common/warm.rs"]
mod warm;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_warm_request_that_is_tracked_allocates_nothing() {
    warm::allocate_nothing(ALLOCATOR, |origin| {
        format!(
            "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:1\n default_backend b\n\
         stick-table type ip size 1k expire 1m store gpc0,conn_rate(10s),http_req_rate(10s),bytes_out_rate(10s)\n \
         tcp-request connection track-sc0 src\n http-request track-sc1 path table paths\n \
         http-request sc-inc-gpc0(0)\n http-request deny if {{ sc0_http_req_rate gt 1000000 }} or {{ sc1_get_gpc0 gt 1 }}\n\
         backend paths\n stick-table type string len 64 size 1k expire 1m store gpc0,http_req_cnt,conn_cur\n\
         backend b\n balance roundrobin\n stick-table type string size 1k expire 1m\n stick on path\n \
         server s {origin}\n server t {origin} backup\n"
        )
    });
}
