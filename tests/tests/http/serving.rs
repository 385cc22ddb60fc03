//! Basic service: a request is forwarded and its response returned, over HTTP and over TCP.

use weir_tests::client::{self, Client};
use weir_tests::{Origin, Weir, free_port};

#[test]
fn request_and_response_are_forwarded() {
    let origin = Origin::echo();
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "defaults\n  mode http\n  timeout client 10s\n  timeout connect 10s\n  timeout server 10s\n  option forwardfor\n\
             frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let response = client::get(port, "/path?query").expect("a response");
    assert_eq!(response.status, 200, "{response:?} {}", weir.messages());
    let seen = response.text();
    assert!(seen.starts_with("GET /path?query HTTP/1.1\r\n"), "{seen}");
    assert!(seen.to_ascii_lowercase().contains("\r\nx-forwarded-for: 127.0.0.1"), "{seen}");
}

#[test]
fn requests_on_one_connection_share_a_server_connection() {
    let origin = Origin::text("hello");
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "defaults\n  mode http\n  timeout client 10s\n  timeout connect 10s\n  timeout server 10s\n\
             listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let mut client = Client::connect(port);
    for _ in 0..2 {
        let response = client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").response().expect("a response");
        assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    }
    assert_eq!((origin.requests(), origin.connections()), (2, 1));
}

#[test]
fn tcp_is_forwarded_in_both_directions() {
    use std::io::{Read, Write};
    let origin = Origin::raw(|mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes.reverse();
        let _ = stream.write_all(&bytes);
    });
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "defaults\n  mode tcp\n  timeout client 10s\n  timeout connect 10s\n  timeout server 10s\n\
             listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    assert_eq!(Client::connect(port).send("stressed").shut().read_to_end(), b"desserts");
}
