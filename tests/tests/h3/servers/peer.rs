//! Another implementation of QUIC and HTTP/3 as the server.

use weir_tests::http3_server::Http3Server;
use weir_tests::{Authority, Weir, client, free_port};

use crate::DEFAULTS;

fn front(server: &Http3Server, ca: &str, more: &str) -> (Weir, u16) {
    front_of(server.port, ca, more)
}

/// Starts the program with a server `b/s` at a port of 127.0.0.1; returns the port for clients.
pub(super) fn front_of(server: u16, ca: &str, more: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n http-reuse always\n server s quic+127.0.0.1:{server} ssl verify required ca-file {ca} sni str(localhost) {more}\n"
    );
    (Weir::start(&text, &[port]), port)
}

#[test]
fn another_implementation_serves_requests() {
    let authority = Authority::new();
    let server = Http3Server::start(&authority.issue(&["localhost"]));
    let (weir, port) = front(&server, &authority.own().display().to_string(), "");
    for length in [0, 1, 1000, 70_000, 2_000_000] {
        let body = "x".repeat(length);
        let request = format!("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = client::exchange(port, &request).expect("a response");
        assert_eq!((answer.status, answer.body.len()), (200, length));
        assert_eq!(answer.header("x-path"), Some("/echo"));
    }
    let chunked = "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(client::exchange(port, chunked).expect("a response").status, 200);
    assert_eq!(weir.stat("b,s", "connect"), "1");
}

#[test]
fn streams_that_the_server_resets_fail_alone() {
    let authority = Authority::new();
    let server = Http3Server::start(&authority.issue(&["localhost"]));
    let (weir, port) = front(&server, &authority.own().display().to_string(), "");
    assert_eq!(client::get(port, "/ok").expect("a response").status, 200);
    assert_eq!(client::get(port, "/reset").expect("a response").status, 502);
    assert_eq!(client::get(port, "/ok").expect("a response").status, 200);
    // Once on a new connection, because a reused one may have been closed.
    assert_eq!(weir.stat("b,s", "connect"), "2");
    assert_eq!(weir.stat("b,s", "eresp"), "1");
}
