//! Counts, in debug builds, how often a warm request writes to state shared between workers, for each balancing algorithm.
//!
//! Each such write may transfer a cache line from another core, and writes to one line are serialized. So the cost of a request
//! depends on the number of writes rather than on the number of threads. Reference counts of shared objects are included
//! (`runtime::Local`). The count is per process, so this file contains a single test.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use runtime::shared;

/// Enough requests that the following ones rarely write the per-second rates.
const WARM_UP: usize = 2_000;
const COUNTED: usize = 1_000;

/// The writes allowed for a balancer.
struct Limit {
    balance: &'static str,
    /// Additional settings of the backend.
    more: &'static str,
    servers: usize,
    /// Per request.
    each: u64,
    /// Additionally per server and second, independent of the number of requests.
    a_second: u64,
}

const fn limit(balance: &'static str, each: u64) -> Limit {
    Limit { balance, more: "", servers: 2, each, a_second: 0 }
}

/// If servers are compared, two writes take and release a slot. Otherwise, or if there is no key, one write advances the turn.
const LIMITS: &[Limit] = &[
    limit("source", 0),
    limit("uri", 0),
    Limit { more: "hash-type consistent", ..limit("uri", 0) },
    limit("random(1)", 0),
    limit("roundrobin", 1),
    limit("static-rr", 1),
    limit("leastconn", 2),
    limit("first", 2),
    Limit { more: "hash-type consistent\n hash-balance-factor 150", ..limit("uri", 2) },
    Limit { a_second: 256, ..limit("random", 2) },
    Limit { a_second: 2_000, ..limit("peak-ewma", 2) },
    // A worker keeps a slot of the shared limit for its next request.
    Limit { more: "default-server maxconn 100", ..limit("roundrobin", 1) },
    Limit { more: "default-server maxconn 100", ..limit("static-rr", 1) },
    Limit { more: "default-server maxconn 100", ..limit("source", 0) },
    Limit { more: "default-server maxconn 100", ..limit("leastconn", 2) },
    Limit { more: "default-server maxconn 100", ..limit("first", 2) },
    // Counted only when many servers are ordered.
    Limit { servers: 20, ..limit("leastconn", 2) },
    Limit { servers: 20, more: "default-server maxconn 100", ..limit("leastconn", 2) },
    Limit { servers: 20, ..limit("first", 2) },
    Limit { servers: 20, more: "default-server maxconn 100", ..limit("first", 2) },
];

/// The writes allowed for a client connection with one request, for which a server connection is opened and closed. These are: a
/// slot of the process, the frontend and the listener, and the worker's load, each when it begins and when it ends; a message to
/// the worker; and the server connection, counted by process and server when it is opened and when it is closed.
const EACH_CONNECTION: u64 = 4 * 2 + 1 + 2 * 2;
const CONNECTIONS: usize = 400;

#[test]
fn shared_writes_per_warm_request_are_few_and_independent_of_threads() {
    if !cfg!(debug_assertions) {
        return; // only debug builds count
    }
    let origin = common::origin(Arc::new(AtomicUsize::new(0)));
    let mut text =
        "global\n nbthread 8\n max-threads-per-group 4\ndefaults\n mode http\n timeout client 20s\n \
                    timeout connect 20s\n timeout server 20s\n"
            .to_owned();
    for (at, Limit { balance, more, servers, .. }) in LIMITS.iter().enumerate() {
        text += &format!("listen l{at}\n bind 127.0.0.1:1\n balance {balance}\n {more}\n");
        (0..*servers).for_each(|server| text += &format!(" server s{server} {origin}\n"));
    }
    text += &format!(
        "listen closing\n bind 127.0.0.1:1\n balance source\n http-reuse never\n option httpclose\n server s {origin}\n"
    );
    let addresses = common::serve(common::plan(&text));
    for (limit, address) in LIMITS.iter().zip(&addresses) {
        let address = *address;
        let mut client = common::connect(address);
        common::exchange(&mut client, WARM_UP);
        let (before, began) = (shared::writes(), Instant::now());
        common::exchange(&mut client, COUNTED);
        let writes = shared::writes() - before;
        let seconds = began.elapsed().as_secs_f64();
        let Limit { balance, more, servers, each, a_second } = limit;
        println!(
            "{balance} {more:?}, {servers} servers: {:.2} a request, in {seconds:.2} s",
            writes as f64 / COUNTED as f64
        );
        // When a new second begins during the test, its first requests at each server are written individually.
        let first = if *a_second > 0 { 100 } else { 0 };
        let by_time = (*a_second as f64 * seconds + f64::from(first)) * *servers as f64;
        // Once per second, rates are recorded and the idle connections of workers are checked.
        let allowed = (*each as f64 + 0.1) * COUNTED as f64 + by_time;
        assert!(
            writes as f64 <= allowed,
            "{balance} {more:?}: {writes} writes of {COUNTED} requests in {seconds} s, {allowed:.0} are allowed"
        );
    }
    let closing = addresses[LIMITS.len()];
    let one = || common::exchange(&mut common::connect(closing), 1);
    (0..CONNECTIONS).for_each(|_| one());
    let before = shared::writes();
    (0..CONNECTIONS).for_each(|_| one());
    // Work that begins or ends at the edges averages out.
    let writes = (shared::writes() - before) as f64 / CONNECTIONS as f64;
    println!("a connection with one request: {writes:.2}");
    assert!(writes <= EACH_CONNECTION as f64, "{writes:.2} writes for each connection");
}
