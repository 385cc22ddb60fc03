//! Soft stop: a process that stops once its connections have ended: `grace`, `close-spread-time`, idle connections.

use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::listen::{listen, local};
use weir_tests::{Origin, PATIENCE, client, eventually};

/// Returns an origin that answers `/slow` once the sender is used.
fn slow_origin() -> (Origin, std::sync::mpsc::Sender<()>) {
    let (send, receive) = std::sync::mpsc::channel();
    let receive = std::sync::Mutex::new(receive);
    let origin = Origin::start(move |head, _| {
        if head.contains("/slow") {
            let _ = receive.lock().expect("no panic before").recv_timeout(PATIENCE);
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()
    });
    (origin, send)
}

#[test]
fn soft_stop_closes_clients_unless_the_spread_is_infinite() {
    for (spread, wanted) in [("", Some("close")), ("  close-spread-time infinite\n", None)] {
        let (origin, release) = slow_origin();
        let (weir, port) = listen(spread, "", &local(&origin));
        let mut client = Client::connect(port);
        client.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(eventually(|| weir.ask("show sess").contains("requests") || origin.connections() > 0));
        weir.signal("USR1");
        assert!(weir.says("Proxy l stopped"), "{}", weir.messages());
        release.send(()).expect("the origin waits");
        let response = client.response().expect("a response");
        assert_eq!(response.header("connection"), wanted, "{spread}");
    }
}

#[test]
fn grace_keeps_listeners_open_and_reports_stopping() {
    let origin = Origin::text("hello");
    let lines = "  monitor-uri /check\n  monitor fail if { stopping }\n";
    let (mut weir, port) = listen("  grace 2s\n", lines, &local(&origin));
    assert_eq!(client::get(port, "/check").expect("a response").status, 200);
    let started = Instant::now();
    weir.signal("USR1");
    assert!(eventually(|| client::get(port, "/check").is_some_and(|response| response.status == 503)));
    assert_eq!(client::get(port, "/").expect("still served").status, 200);
    assert_eq!(weir.await_end(), Some(0));
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn idle_connections_may_wait_for_a_last_request_during_a_soft_stop() {
    for (option, waits) in [("", false), ("  option idle-close-on-response\n", true)] {
        let origin = Origin::text("hello");
        let (mut weir, port) = listen("", option, &local(&origin));
        let mut client = Client::connect(port);
        assert_eq!(
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a response").status,
            200
        );
        weir.signal("USR1");
        if waits {
            assert!(weir.says("Proxy l stopped"));
            // Longer than idle connections are always left open.
            let until = Instant::now() + Duration::from_millis(1000);
            eventually(|| Instant::now() >= until);
            let last = client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a last response");
            assert_eq!((last.status, last.header("connection")), (200, Some("close")));
        } else {
            assert!(client.read_to_end().is_empty());
        }
        assert_eq!(weir.await_end(), Some(0));
    }
}
