//! The warm HTTP/1 path makes no heap allocation: requests from one connection to one idle server connection.
//!
//! One worker runs as in the program, with neither log nor rules. Allocations are counted for the whole process, so client and
//! origin use only stack buffers during the count, and this file contains a single test.

mod common;
#[path = "common/warm.rs"]
mod warm;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_warm_keep_alive_request_allocates_nothing() {
    warm::allocate_nothing(ALLOCATOR, |origin| {
        format!(
            "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:1\n default_backend b\n\
         backend b\n balance roundrobin\n server s {origin}\n"
        )
    });
}
