//! Counts the allocations of warm requests. They are counted for the whole process, so each test needs its own file.

use std::alloc::System;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use stats_alloc::{Region, StatsAlloc};

const WARM_UP: usize = 200;
const COUNTED: usize = 1_000;

/// Checks that requests from one connection to one idle server connection allocate nothing, with the configuration generated for
/// the origin's address.
pub(crate) fn allocate_nothing(allocator: &StatsAlloc<System>, text: impl FnOnce(SocketAddr) -> String) {
    let connections = Arc::new(AtomicUsize::new(0));
    let origin = crate::common::origin(connections.clone());
    let addresses = crate::common::serve(crate::common::plan(&text(origin)));
    let mut client = crate::common::connect(addresses[0]);
    crate::common::exchange(&mut client, WARM_UP);
    let region = Region::new(allocator);
    crate::common::exchange(&mut client, COUNTED);
    let stats = region.change();
    assert_eq!(connections.load(Relaxed), 1, "the server connection is used again");
    assert_eq!((stats.allocations, stats.reallocations), (0, 0), "in {COUNTED} requests: {stats:?}");
}
