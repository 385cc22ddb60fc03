//! How often a warm request writes to what other workers write too, for each way of balancing: counted by debug builds.
//!
//! Each such write may cost the transfer of a cache line from another core, and those of one line follow one another; so
//! their number, and not the number of threads, is what a request costs. Reference counts are not among them. A process counts them as a
//! whole: one test.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use runtime::shared;

const WARM_UP: usize = 100;
const COUNTED: usize = 500;

/// What a request may write at most: taking and leaving a place at the server, and what the algorithm itself keeps.
const LIMITS: &[(&str, u64)] = &[
    ("source", 2),
    ("uri", 2),
    ("roundrobin", 3),
    ("static-rr", 3),
    ("leastconn", 3),
    ("first", 2),
    ("random", 3),
    ("peak-ewma", 4),
];

#[test]
fn a_warm_request_writes_what_is_shared_a_fixed_few_times_whatever_the_number_of_threads() {
    if !cfg!(debug_assertions) {
        return; // only debug builds count
    }
    let origin = common::origin(Arc::new(AtomicUsize::new(0)));
    let mut text =
        "global\n nbthread 8\n max-threads-per-group 4\ndefaults\n mode http\n timeout client 20s\n \
                    timeout connect 20s\n timeout server 20s\n"
            .to_owned();
    for (name, _) in LIMITS {
        text += &format!(
            "listen {name}\n bind 127.0.0.1:1\n balance {name}\n server a {origin}\n server b {origin}\n"
        );
    }
    let addresses = common::serve(common::plan(&text));
    for ((name, limit), address) in LIMITS.iter().zip(addresses) {
        let mut client = common::connect(address);
        common::exchange(&mut client, WARM_UP);
        let before = shared::writes();
        common::exchange(&mut client, COUNTED);
        let each = (shared::writes() - before) as f64 / COUNTED as f64;
        println!("{name}: {each:.2} shared writes a request");
        // Once a second something is noted anew, and idle connections of workers are looked after.
        assert!(each <= *limit as f64 + 0.1, "{name}: {each} shared writes a request, {limit} are allowed");
    }
}
