//! Idle connections to servers: their number, and the limits that include them.

use weir_tests::client::Client;
use weir_tests::listen::{ask, listen, local};
use weir_tests::{Origin, Weir};

#[test]
fn strict_maxconn_counts_idle_connections_too() {
    let origin = Origin::text("hello");
    // Connections of different names are not shared, so idle ones would accumulate.
    let server = format!(
        "{} maxconn 2 strict-maxconn pool-low-conn 10 pool-conn-name req.hdr(x-name)",
        local(&origin)
    );
    let (weir, port) = listen("", "  http-reuse always\n", &server);
    for number in 0..6 {
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Name: n{number}\r\nConnection: close\r\n\r\n");
        assert_eq!(ask(port, &request).status, 200);
        let idle = idle_connections(&weir);
        assert!(idle <= 2, "{idle} idle connections");
    }
    assert_eq!(origin.connections(), 6);
}

/// Returns `idle_conn_cur` of the only server, from `show servers conn`.
fn idle_connections(weir: &Weir) -> u32 {
    let answer = weir.ask("show servers conn l");
    let line = answer.lines().find(|line| line.starts_with("l/s ")).expect("the server's line");
    line.split(' ').nth(11).and_then(|field| field.parse().ok()).expect("a number")
}

#[test]
fn idle_connections_are_closed_if_descriptors_are_scarce() {
    for (ratio, wanted) in [(100, 1), (1, 3)] {
        let origin = Origin::text("hello");
        // One per cent of a hundred descriptors: the client's own connection is one.
        let global = format!("  ulimit-n 180\n  tune.pool-low-fd-ratio {ratio}\n");
        let (_weir, port) = listen(&global, "  http-reuse always\n", &local(&origin));
        let mut client = Client::connect(port);
        for _ in 0..3 {
            let response = client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a response");
            assert_eq!(response.status, 200);
        }
        assert_eq!(origin.connections(), wanted, "ratio {ratio}");
    }
}
