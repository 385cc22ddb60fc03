//! The warm path of HTTP/1 makes no heap allocation: requests on one connection that go to one idle
//! server connection.
//!
//! One worker runs here as in the program, with neither log nor rules. Allocations are counted in
//! the whole process, so client and origin use only buffers on their stacks while it counts; that
//! is also why this file holds a single test.

mod common;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: usize = 200;
const COUNTED: usize = 1_000;

fn count(client: &mut TcpStream) -> Stats {
    let region = Region::new(ALLOCATOR);
    common::exchange(client, COUNTED);
    region.change()
}

#[test]
fn a_warm_keep_alive_request_allocates_nothing() {
    let connections = Arc::new(AtomicUsize::new(0));
    let origin = common::origin(connections.clone());
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:1\n default_backend b\n\
         backend b\n balance roundrobin\n server s {origin}\n"
    );
    let addresses = common::serve(common::plan(&text));
    let mut client = common::connect(addresses[0]);
    common::exchange(&mut client, WARM_UP);
    let stats = count(&mut client);
    assert_eq!(connections.load(Relaxed), 1, "the server connection is used again");
    assert_eq!((stats.allocations, stats.reallocations), (0, 0), "in {COUNTED} requests: {stats:?}");
}
