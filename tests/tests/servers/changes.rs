//! Server changes under load: weights, maintenance, no server left; and the order in which queued requests are served.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use weir_tests::client::Client;
use weir_tests::{Origin, Scratch, Weir, ask, eventually, free_port, scratch, statistics};

/// Starts the program with these servers in one `listen`; returns the runtime socket and the port.
fn start(balance: &str, rules: &str, servers: &str) -> (Weir, Scratch, u16) {
    let (socket, port) = (scratch("changes").file("weir.sock"), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket {} level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n timeout queue 20s\n\
         listen l\n bind 127.0.0.1:{port}\n {balance}\n{rules}{servers}",
        socket.display()
    );
    (Weir::start(&text, &[port]), socket, port)
}

fn status(client: &mut Client, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(request).response().expect("an answer").status
}

const ALGORITHMS: &[&str] = &[
    "balance roundrobin",
    "balance static-rr",
    "balance leastconn",
    "balance first",
    "balance random",
    "balance sticky",
    "balance peak-ewma decay 1s",
    "balance uri",
    "balance uri\n hash-type consistent",
];

#[test]
fn no_request_is_lost_while_weights_and_states_change() {
    for balance in ALGORITHMS {
        let origins = [Origin::text("a"), Origin::text("b"), Origin::text("c")];
        let servers: String = origins
            .iter()
            .enumerate()
            .map(|(at, origin)| format!(" server s{at} 127.0.0.1:{} weight 10\n", origin.port()))
            .collect();
        let (_weir, socket, port) = start(balance, "", &servers);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load: Vec<_> = (0..3)
                .map(|client| {
                    let stop = &stop;
                    scope.spawn(move || {
                        let mut connection = Client::connect(port);
                        let mut number = 0;
                        while !stop.load(Relaxed) || number < 50 {
                            number += 1;
                            assert_eq!(
                                status(&mut connection, &format!("/{client}/{number}")),
                                200,
                                "{balance}"
                            );
                        }
                        number
                    })
                })
                .collect();
            for round in 0..30 {
                // Static algorithms only accept 0% and 100%.
                let weight = if round % 2 == 0 { "0%" } else { "100%" };
                assert_eq!(ask(&socket, &format!("set server l/s1 weight {weight}")).trim(), "", "{balance}");
                let state = ["maint", "ready", "drain", "ready"][round % 4];
                assert_eq!(ask(&socket, &format!("set server l/s2 state {state}")).trim(), "");
            }
            stop.store(true, Relaxed);
            for one in load {
                one.join().expect("every request was answered");
            }
        });
        // Weight 0: no new requests, however many arrive.
        ask(&socket, "set server l/s1 weight 0%");
        let before = origins[1].requests();
        let mut connection = Client::connect(port);
        (0..40).for_each(|number| assert_eq!(status(&mut connection, &format!("/w/{number}")), 200));
        assert_eq!(origins[1].requests(), before, "{balance}");
        // No server left, and back again.
        for at in 0..3 {
            ask(&socket, &format!("disable server l/s{at}"));
        }
        assert_eq!(status(&mut Client::connect(port), "/"), 503, "{balance}");
        ask(&socket, "enable server l/s0");
        assert_eq!(status(&mut Client::connect(port), "/"), 200, "{balance}");
    }
}

/// A server that answers only after it is opened, and records the order of requests.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    seen: Mutex<Vec<String>>,
}

impl Gate {
    fn pass(&self, head: &str) {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.seen.lock().expect("no panic").push(path);
        let open = self.open.lock().expect("no panic");
        drop(self.opened.wait_while(open, |open| !*open).expect("no panic"));
    }

    fn open(&self) {
        *self.open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

/// Returns how many requests are queued at the backend and at its server.
fn waiting(socket: &Path) -> u64 {
    let shown = statistics(socket);
    shown.rows().iter().filter(|row| row.starts_with("l,")).map(|row| shown.number(row, "qcur")).sum()
}

#[test]
fn queue_is_ordered_by_class_and_then_by_date() {
    // In the queue of the backend, and in that of the server selected by a hash.
    for balance in ["balance roundrobin", "balance leastconn", "balance random", "balance hdr(host)"] {
        let gate = Arc::new(Gate::default());
        let held = gate.clone();
        let origin = Origin::start(move |head, _| {
            held.pass(head);
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
        });
        let rules = " http-request set-priority-class int(-5) if { path /urgent }\n \
                     http-request set-priority-class int(5) if { path /patient }\n \
                     http-request set-priority-offset int(-100000) if { path /early }\n \
                     http-request set-priority-offset int(100000) if { path /late }\n";
        let servers =
            format!(" server s0 127.0.0.1:{0} maxconn 1\n server s1 127.0.0.1:{0} disabled\n", origin.port());
        let (_weir, socket, port) = start(balance, rules, &servers);
        std::thread::scope(|scope| {
            let paths = ["/first", "/patient", "/late", "/plain", "/early", "/urgent"];
            for (at, path) in paths.into_iter().enumerate() {
                scope.spawn(move || assert_eq!(status(&mut Client::connect(port), path), 200, "{balance}"));
                // The next request is sent only when this one is served or queued, because the order of arrival is part of the
                // test.
                let there = || gate.seen.lock().expect("no panic").len() as u64 + waiting(&socket);
                assert!(eventually(|| there() == at as u64 + 1), "{balance} {path}: {}", there());
            }
            gate.open();
        });
        let seen = gate.seen.lock().expect("no panic");
        assert_eq!(*seen, ["/first", "/urgent", "/early", "/plain", "/late", "/patient"], "{balance}");
    }
}

#[test]
fn peak_ewma_avoids_a_fast_failing_server() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = broken.clone();
    let bad = Origin::start(move |_, _| {
        let status = if state.load(Relaxed) { "500 No" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let good = Origin::text("a");
    let servers = format!(
        " server s0 127.0.0.1:{}\n server s1 127.0.0.1:{}\n server s2 127.0.0.1:{0}\n",
        good.port(),
        bad.port()
    );
    let (_weir, socket, port) = start("balance peak-ewma", "", &servers);
    let mut connection = Client::connect(port);
    let failed = (0..300).filter(|number| status(&mut connection, &format!("/{number}")) == 500).count();
    assert!(failed < 30, "{failed} of 300 requests went to the server that fails");
    // A server that comes up again starts without history.
    broken.store(false, Relaxed);
    ask(&socket, "disable server l/s1");
    ask(&socket, "enable server l/s1");
    let before = bad.requests();
    (0..100).for_each(|number| assert_eq!(status(&mut connection, &format!("/again/{number}")), 200));
    assert!(bad.requests() > before);
}

#[test]
fn sticky_backend_keeps_a_server_until_it_is_down() {
    let (first, second) = (Origin::text("first"), Origin::text("second"));
    let servers = format!(" server a 127.0.0.1:{}\n server b 127.0.0.1:{}\n", first.port(), second.port());
    let (_weir, socket, port) = start("balance sticky", "", &servers);
    let asked = || {
        let mut client = Client::connect(port);
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
        answer.expect("an answer").text()
    };
    let set = |server: &str, state: &str| {
        assert_eq!(ask(&socket, &format!("set server l/{server} state {state}")).trim(), "");
    };
    for (change, wanted) in [
        (None, "first"),
        (Some(("a", "maint")), "second"),
        (Some(("a", "ready")), "second"),
        (Some(("b", "maint")), "first"),
    ] {
        if let Some((server, state)) = change {
            set(server, state);
        }
        for _ in 0..3 {
            assert_eq!(asked(), wanted, "{change:?}");
        }
    }
}
