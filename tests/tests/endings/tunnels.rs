//! TCP streams, CONNECT and upgrades, whose two directions end one after the other.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use weir_tests::listen::{listen, local};
use weir_tests::log_scene::{says, scene};
use weir_tests::{Origin, eventually};

#[test]
fn refused_tunnel_ends_with_its_response() {
    let origin = Origin::text("ok");
    let scene = scene("", "http-request return status 200", "", &origin, "");
    assert!(scene.talk("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn timeout_of_one_side_ends_only_its_direction() {
    // The server sees the end of the client's side, and still sends data.
    let origin = Origin::raw(|mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = stream.write_all(b"late");
    });
    let scene = scene("mode tcp\n  timeout client 500ms", "log-format \"%s %ts %U\"", "", &origin, "");
    assert_eq!(scene.talk("hi"), "late");
    assert_eq!(scene.line_with_times(), "s cD 2");
}

#[test]
fn server_that_closed_its_side_may_stop_reading() {
    let origin = says("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nend", true);
    let scene = scene("", "log-format \"%s %tsc\"", "", &origin, "");
    let mut client = TcpStream::connect(("127.0.0.1", scene.port)).expect("the port listens");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    client.write_all(request.as_bytes()).expect("the connection stands");
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the end comes");
    // The reset caused by the first write makes a later one fail.
    while client.write_all(b"more").is_ok() {}
    assert!(all.ends_with(b"end"));
    assert_eq!(scene.line_with_times(), "s ----");
}

#[test]
fn independent_streams_ignore_sent_bytes_for_timeouts() {
    // The server is silent; the client sends more often than the server's timeout.
    let origin = Origin::raw(|mut stream| while matches!(stream.read(&mut [0; 64]), Ok(n) if n > 0) {});
    let lines = "  mode tcp\n  timeout server 300ms\n  option independent-streams\n";
    let (_weir, port) = listen("", lines, &local(&origin));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("the timeout is not zero");
    let ended = eventually(|| {
        let _ = stream.write_all(b"x");
        !matches!(stream.read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(ended, "bytes sent to a silent server kept the stream alive");
}
