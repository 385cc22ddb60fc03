//! QUIC servers that vanish, restart, move, refuse the version or stop reading, and networks that lose datagrams.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weir_tests::http3_server::Http3Server;
use weir_tests::quic::relay::{Faults, Relay};
use weir_tests::{Authority, Weir, client, eventually};

use super::peer::front_of;

/// A server behind a relay, and the program in front of both.
struct RelayedServer {
    weir: Weir,
    /// The port for HTTP/1 clients.
    port: u16,
    relay: Relay,
    certificate: std::path::PathBuf,
    _server: Http3Server,
    _authority: Authority,
}

/// Starts them with more lines of the backend after the server's.
fn relayed(faults: Faults, lines: &str) -> RelayedServer {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let server = Http3Server::start(&certificate);
    let relay = Relay::start(server.port, faults);
    let end = " http-after-response set-header x-end %[txn.sess_term_state]";
    let (weir, port) =
        front_of(relay.port(), &authority.own().display().to_string(), &format!("\n{end}\n{lines}"));
    RelayedServer { weir, port, relay, certificate, _server: server, _authority: authority }
}

impl RelayedServer {
    /// Sends a GET request; returns the status and the termination state.
    fn get(&self, path: &str) -> (u16, String) {
        let answer = client::get(self.port, path).expect("a response");
        (answer.status, answer.header("x-end").unwrap_or_default().to_owned())
    }

    fn stat(&self, name: &str) -> String {
        self.weir.stat("b,s", name)
    }
}

fn ok() -> (u16, String) {
    (200, "--".to_owned())
}

#[test]
fn a_server_that_vanishes_is_a_timeout_and_then_a_failed_connection() {
    let scene = relayed(Faults::default(), " timeout server 1s\n timeout connect 1s\n retries 0");
    assert_eq!(scene.get("/"), ok());
    scene.relay.cut();
    assert_eq!(scene.get("/"), (504, "sH".to_owned()));
    // The connection is idle, and in use again until the server's silence has ended it.
    let state = |expected: &str| eventually(|| scene.get("/").1 == expected);
    assert!(state("sC"), "{}", scene.weir.ask("show quic be full"));
    assert!(scene.stat("econ").parse::<u32>().expect("a number") > 0);
}

#[test]
fn a_restarted_server_resets_its_connections_and_gets_the_request_again() {
    let mut scene = relayed(Faults::default(), " retry-on all-retryable-errors\n retries 3");
    assert_eq!(scene.get("/"), ok());
    let restarted = Http3Server::start(&scene.certificate);
    scene.relay.replace_server(restarted.port);
    let start = Instant::now();
    assert_eq!(scene.get("/"), ok());
    assert!(start.elapsed() < Duration::from_secs(15), "no timeout ended the first attempt");
    assert_eq!(scene.stat("connect"), "2");
    scene._server = restarted;
    assert_eq!(scene.get("/"), ok());
    assert_eq!(scene.stat("connect"), "2");
}

#[test]
fn answers_from_another_port_are_ignored() {
    let scene = relayed(Faults::default(), " timeout connect 500ms\n retries 0");
    scene.relay.answer_from_another_port();
    assert_eq!(scene.get("/"), (503, "sC".to_owned()));
    assert_eq!(scene.stat("econ"), "1");
}

#[test]
fn a_server_that_refuses_the_version_is_a_failed_connection() {
    let refusing = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let to = refusing.local_addr().expect("a bound socket").port();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((length, client)) = refusing.recv_from(&mut bytes) {
            // The IDs of a long header, swapped, and a version that no client knows (RFC 8999, 6).
            let [destination, source] = ids(&bytes[..length]);
            let mut answer = vec![0xc0, 0, 0, 0, 0];
            for id in [source, destination] {
                answer.push(id.len() as u8);
                answer.extend_from_slice(id);
            }
            answer.extend_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
            let _ = refusing.send_to(&answer, client);
        }
    });
    let authority = Authority::new();
    let ca = authority.own().display().to_string();
    let end = " http-after-response set-header x-end %[txn.sess_term_state]";
    let (weir, port) = front_of(to, &ca, &format!("\n{end}\n timeout connect 15s\n retries 0"));
    let start = Instant::now();
    let answer = client::get(port, "/").expect("a response");
    assert_eq!((answer.status, answer.header("x-end")), (503, Some("SC")));
    assert!(start.elapsed() < Duration::from_secs(15), "the answer ended the attempt, not the timeout");
    assert_eq!(weir.stat("b,s", "econ"), "1");
}

/// Returns the destination and source connection ID of a datagram that starts with a long header.
fn ids(datagram: &[u8]) -> [&[u8]; 2] {
    let destination_end = 6 + usize::from(datagram[5]);
    let source_end = destination_end + 1 + usize::from(datagram[destination_end]);
    [&datagram[6..destination_end], &datagram[destination_end + 1..source_end]]
}

#[test]
fn a_server_that_stops_reading_ends_the_upload_by_the_server_timeout() {
    let scene = relayed(Faults::default(), " timeout server 1s\n retries 0");
    let mut reader = TcpStream::connect(("127.0.0.1", scene.port)).expect("the port takes connections");
    let mut writer = reader.try_clone().expect("a second handle");
    // More than all buffers. Writing fails when the program closes.
    let upload = std::thread::spawn(move || {
        let head = "POST /silent HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n";
        let _ = writer.write_all(head.as_bytes());
        let _ = writer.write_all(&vec![b'x'; 100_000_000]);
    });
    let mut answer = String::new();
    // The answer only: the program reads on, for the answer not to be lost.
    while !answer.contains("</html>") {
        let mut bytes = [0; 1024];
        let length = reader.read(&mut bytes).expect("the rest of the answer");
        assert!(length > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("x-end: sH\r\n"), "{answer}");
    drop(reader.shutdown(std::net::Shutdown::Both));
    upload.join().expect("no panic");
    // Other requests of the connection go on.
    assert_eq!(scene.get("/"), ok());
    assert_eq!(scene.stat("connect"), "1");
}

#[test]
fn application_errors_fail_the_request_and_the_next_one_connects_again() {
    let scene = relayed(Faults::default(), " retries 0");
    assert_eq!(scene.get("/"), ok());
    assert_eq!(scene.get("/close"), (502, "SH".to_owned()));
    assert_eq!(scene.get("/"), ok());
    // Once on a new connection, because a reused one may have been closed.
    assert_eq!((scene.stat("connect"), scene.stat("eresp")), ("3".to_owned(), "1".to_owned()));
}

#[test]
fn bodies_are_complete_in_spite_of_losses_and_disorder() {
    let faults = Faults { loss: 10, reordering: 10, duplication: 10, corruption: 5, ..Faults::default() };
    let scene = relayed(faults, "");
    let body: String = (0..200_000).map(|number| format!("{number:09}\n")).collect();
    for _ in 0..3 {
        let length = body.len();
        let request = format!("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = client::exchange(scene.port, &request).expect("a response");
        assert_eq!(answer.status, 200);
        assert!(answer.text() == body, "every byte is right");
    }
    assert!(scene.relay.faulty() > 0);
}
