//! Servers that request another handshake on an established connection (`renegotiate`), tested with OpenSSL's server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_tests::client::{Client, Response};
use weir_tests::openssl::OpensslServer;
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, eventually, free_port};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n \
                        log stderr format raw local0\n";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Starts a TLS 1.2 server that prints handshake messages and always does full handshakes.
fn server(port: u16, certificate: &Path) -> OpensslServer {
    OpensslServer::start(port, certificate, &["-msg", "-tls1_2", "-no_resumption_on_reneg"])
}

/// Returns a configuration with that server.
fn configuration(port: u16, server: u16, global: &str, words: &str) -> String {
    format!(
        "global\n{global}{DEFAULTS}listen l\n bind 127.0.0.1:{port}\n retries 0\n server s 127.0.0.1:{server} ssl {words}\n"
    )
}

/// Starts Weir in front of it.
fn before(server: u16, global: &str, words: &str) -> (Weir, u16) {
    let port = free_port();
    (Weir::start(&configuration(port, server, global, words), &[port]), port)
}

/// Makes the server request another handshake; returns whether it took place.
fn renegotiates(server: &mut OpensslServer) -> bool {
    server.send(b"r\n");
    assert!(server.says(|line| line.starts_with("SSL_do_handshake -> 1")));
    // Waits for the end of the handshake, or for Weir's alert.
    let is_over =
        |line: &String| line.starts_with("<<< ") && (line.contains("Alert") || line.ends_with(" Finished"));
    server.said.find(is_over).is_some_and(|line| line.ends_with(" Finished"))
}

/// Returns the response to a client whose server requests another handshake before it answers.
fn answer(global: &str, words: &str) -> Option<Response> {
    let (port, authority) = (free_port(), Authority::new());
    let mut openssl = server(port, &authority.issue(&["one.test"]));
    let (_weir, frontend) = before(port, global, &format!("verify none {words}"));
    let mut client = Client::connect(frontend);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(openssl.says(|line| line.starts_with("GET / ")));
    if renegotiates(&mut openssl) {
        openssl.send(ANSWER);
    }
    client.response()
}

#[test]
fn server_may_renegotiate_if_its_line_allows_it() {
    let everywhere = " ssl-default-server-options renegotiate\n";
    for (global, words, wanted) in [
        ("", "renegotiate", 200),
        (everywhere, "", 200),
        (everywhere, "no-renegotiate", 502),
        ("", "no-renegotiate", 502),
        ("", "", 502),
    ] {
        let status = answer(global, words).map(|response| response.status);
        assert_eq!(status, Some(wanted), "{global:?} {words:?}");
    }
}

/// Also for an existing connection, if only the global section has the setting.
#[test]
fn reload_may_allow_renegotiation_for_the_next_request() {
    let runtime = " stats socket runtime level admin\n";
    for (global, words) in [("", "renegotiate"), (" ssl-default-server-options renegotiate\n", "")] {
        let (port, authority) = (free_port(), Authority::new());
        let mut openssl = server(port, &authority.issue(&["one.test"]));
        let (weir, frontend) = before(port, runtime, "verify none");
        let mut client = Client::connect(frontend);
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send(request);
        assert!(openssl.says(|line| line.starts_with("GET / ")));
        openssl.send(ANSWER);
        assert_eq!(client.response().map(|response| response.status), Some(200));
        let text =
            configuration(frontend, port, &format!("{runtime}{global}"), &format!("verify none {words}"));
        std::fs::write(weir.directory().join("haproxy.cfg"), text).expect("the directory takes files");
        let told =
            if global.is_empty() { "listen l: server s " } else { "global: ssl-default-server-options" };
        assert!(weir.ask("reload dry-run").starts_with(told));
        assert!(weir.ask("reload").starts_with(told));
        client.send(request);
        assert!(openssl.says(|line| line.starts_with("GET / ")));
        assert!(renegotiates(&mut openssl), "{global}{words}");
        openssl.send(ANSWER);
        assert_eq!(client.response().map(|response| response.status), Some(200));
    }
}

#[test]
fn certificates_are_verified_in_each_handshake() {
    let (port, authority) = (free_port(), Authority::new());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let end = now() + 4;
    let mut openssl = server(port, &authority.issue_until(&["one.test"], end));
    let own = shown(&authority.own());
    let (_weir, frontend) =
        before(port, "", &format!("verify required ca-file {own} verifyhost one.test renegotiate"));
    let mut client = Client::connect(frontend);
    client.send("GET / HTTP/1.1\r\nHost: one.test\r\n\r\n");
    assert!(openssl.says(|line| line.starts_with("GET / ")), "it is valid for four seconds");
    assert!(eventually(|| now() > end));
    assert!(!renegotiates(&mut openssl), "it is not valid any more");
    assert_eq!(client.response().map(|response| response.status), Some(502));
}

#[test]
fn data_sent_during_renegotiation_arrives_after_it() {
    let (port, authority) = (free_port(), Authority::new());
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut openssl = server(port, &authority.issue(&["one.test"]));
    let (_weir, frontend) =
        before(between.local_addr().expect("bound").port(), "", "verify none renegotiate");
    let mut client = Client::connect(frontend);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nbefore\n");
    let (mut from_weir, _) = between.accept().expect("Weir connects");
    let peeked = from_weir.try_clone().expect("a socket");
    let mut to_server = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let mut backward = (to_server.try_clone().expect("a socket"), from_weir.try_clone().expect("a socket"));
    std::thread::spawn(move || std::io::copy(&mut backward.0, &mut backward.1));
    let lines = std::mem::replace(&mut openssl.said, Box::new(std::iter::empty()));
    let (told, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map(|line| told.send(line)).all(|sent| sent.is_ok()));
    // Weir's data passes through here piece by piece until the server prints something.
    let mut piece = [0; 65536];
    from_weir.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
    let mut is_told_of = |what: &str| {
        eventually(|| {
            if let Ok(n) = from_weir.read(&mut piece) {
                to_server.write_all(&piece[..n]).expect("it listens");
            }
            said.try_iter().any(|line| line.contains(what))
        })
    };
    assert!(is_told_of("before"));
    openssl.send(b"r\n");
    // Weir has begun the handshake, and the server sees nothing of it until more of the body has arrived.
    assert!(eventually(|| peeked.peek(&mut [0]).is_ok_and(|n| n > 0)));
    client.send("late\n");
    assert!(is_told_of(" Finished") && is_told_of("late"));
    openssl.send(ANSWER);
    assert_eq!(client.response().map(|response| response.status), Some(200));
}
