//! Time and memory of workers: `show profiling`, `show pools`, and the watchdog's warnings.

use crate::running::{expect, start};
use weir_tests::{Origin, Weir, client, eventually, free_port};

#[test]
fn worker_memory_and_activity_are_shown() {
    let (origin, port) = (Origin::text("hello"), free_port());
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        port,
    );
    expect(&weir, "show profiling status", "Per-task CPU profiling              : off");
    expect(&weir, "set profiling tasks zz", "Expects a combination of either 'on'");
    expect(&weir, "set profiling zz", "Expects either 'tasks' or 'memory'.");
    expect(&weir, "set profiling memory on", "Memory profiling not compiled in.");
    assert_eq!(weir.ask("set profiling tasks on").trim(), "");
    let mut held = client::Client::connect(port);
    held.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(held.response().map(|response| response.status), Some(200));
    let told = weir.ask("show profiling");
    let line = told.lines().find(|line| line.starts_with("  exchange ")).unwrap_or_default();
    let calls = line.split_whitespace().nth(1).and_then(|calls| calls.parse::<u64>().ok());
    assert!(calls.is_some_and(|calls| calls > 0), "{told}");
    assert_eq!(weir.ask("set profiling tasks off").trim(), "");
    expect(&weir, "show profiling status", ": off");
    let pools = weir.ask("show pools");
    assert!(
        pools
            .starts_with("Dumping pools usage. Use SIGQUIT to flush them.\n  - Pool buffer (16384 bytes) : "),
        "{pools}"
    );
    assert!(pools.contains("  - Pool connection ("), "{pools}");
    let exchange = pools.lines().find(|line| line.contains("Pool exchange (")).unwrap_or_default();
    // The connection that checked the port may have been on another thread.
    assert!(exchange.contains(" : 1 allocated (") || exchange.contains(" : 2 allocated ("), "{pools}");
    assert!(weir.ask("show pools match exch").contains("Total: 1 pools, "));
    expect(&weir, "show pools zz", "Expects either 'byname', 'bysize', 'byusage'");
    let kept = || {
        let pools = weir.ask("show pools match buffer");
        pools.lines().any(|line| line.contains("Pool buffer (") && !line.contains("(~0 by thread caches)"))
    };
    assert!(kept(), "{}", weir.ask("show pools"));
    weir.signal("QUIT");
    assert!(eventually(|| !kept()), "{}", weir.ask("show pools"));
}

#[test]
fn blocked_thread_is_reported_with_its_task() {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 1\n  warn-blocked-traffic-after 10ms\n\
         defaults\n  mode http\n  timeout client 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
    );
    let weir = Weir::start(&text, &[port]);
    expect(&weir, "show info", "BlockedTrafficWarnings: 0\n");
    expect(&weir, "debug dev loop 2500", "restricted to expert mode");
    for wrong in ["loop", "loop x", "loop -1", "delay 60001", "delay 1 2"] {
        expect(&weir, &format!("expert-mode on; debug dev {wrong}"), "Expects a number of milliseconds");
    }
    // Longer than the watchdog ignores an idle process.
    weir.ask("expert-mode on; debug dev loop 2500");
    let said = weir.messages();
    assert!(said.contains("thread 1 has been blocked for "), "{said}");
    assert!(said.contains(" milliseconds by a command on the runtime socket"), "{said}");
    let told = weir.ask("show info");
    assert!(
        told.contains("BlockedTrafficWarnings: ") && !told.contains("BlockedTrafficWarnings: 0"),
        "{told}"
    );
}
