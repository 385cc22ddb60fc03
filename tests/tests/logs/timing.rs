//! When a request is logged, and limits of line lengths.

use std::io::{Read, Write};

use weir_tests::client::Client;
use weir_tests::listen::{ask, collector, listen, local, logged};
use weir_tests::{Origin, client};

#[test]
fn logasap_logs_before_the_body_is_over() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        // The rest never arrives.
        let _ = stream.read(&mut [0; 1]);
    });
    let (socket, log) = collector();
    let (_weir, port) = listen("", &format!("{log}  option httplog\n  option logasap\n"), &local(&origin));
    let mut client = Client::connect(port);
    client.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n");
    let line = logged(&socket, "/endless");
    assert!(line.contains("/+") && line.contains(" 200 +") && line.contains(" ---- "), "{line}");
}

#[test]
fn format_without_late_values_is_logged_before_the_end() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        // The rest never arrives.
        let _ = stream.read(&mut [0; 1]);
    });
    let (early, to_early) = collector();
    let (late, to_late) = collector();
    let settings =
        |log: &str, format: &str| format!("{log}  option dontlognull\n  log-format \"{format}\"\n");
    let (_first, port) = listen("", &settings(&to_early, "early %ST %tsc %HU %[src]"), &local(&origin));
    let (_second, other) = listen(
        "",
        &settings(&to_late, "late %ST %tsc %HU %[bytes_in] %[req.bytes_in] %[req.bytes_out]"),
        &local(&origin),
    );
    let mut clients = [Client::connect(port), Client::connect(other)];
    for client in &mut clients {
        client.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    let line = logged(&early, "early");
    assert!(line.trim_end().ends_with("early 200 ---- /endless 127.0.0.1"), "{line}");
    // The other line waits for the end, which the client causes.
    for client in &mut clients {
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
    }
    drop(clients);
    let line = logged(&late, "late");
    assert!(line.trim_end().ends_with("late 200 CD-- /endless 34 34 34"), "{line}");
    // The early log has no second line, so the next line belongs to the next request.
    let mut next = Client::connect(port);
    next.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    let line = logged(&early, "early");
    assert!(line.contains("/next"), "{line}");
}

#[test]
fn empty_lines_are_not_sent() {
    let origin = Origin::start(|_, _| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let (socket, log) = collector();
    let (_weir, port) =
        listen("", &format!("{log}  option dontlognull\n  log-format %HQ\n"), &local(&origin));
    for path in ["/silent", "/heard?loud"] {
        assert_eq!(client::get(port, path).expect("a response").status, 204);
    }
    let line = logged(&socket, "");
    assert!(line.trim_end().ends_with("?loud"), "{line}");
}

#[test]
fn captured_cookies_are_cut_to_cookielen() {
    let origin = Origin::text("hello");
    let (socket, log) = collector();
    let lines = format!("{log}  option httplog\n  capture cookie sid= len 100\n");
    let (_weir, port) = listen("  tune.http.cookielen 10\n", &lines, &local(&origin));
    ask(port, "GET /c HTTP/1.1\r\nHost: h\r\nCookie: sid=0123456789\r\nConnection: close\r\n\r\n");
    let line = logged(&socket, "/c ");
    assert!(line.contains(" sid=012345 "), "{line}");
}
