//! Servers that do not answer, are not trusted, or end their connections.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use weir_tests::{Authority, Origin, Weir, client, free_port};

use super::{Lines, chain, paths};
use crate::DEFAULTS;

/// Starts the program with these servers in backend `b`; the status and the log line's fields of a request follow.
fn backend(back: &str, servers: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind 127.0.0.1:{port}\n \
         http-after-response set-header x-end \"%[txn.sess_term_state] %[bc_err_name] %[ssl_bc_err_str]\"\n default_backend b\n\
         backend b\n{back}\n{servers}\n"
    );
    (Weir::start(&text, &[port]), port)
}

#[test]
fn a_closed_port_refuses_the_connection_at_once() {
    let closed = free_port();
    let (weir, port) = backend(" retries 0", &format!(" server s quic4@127.0.0.1:{closed} ssl verify none"));
    let start = Instant::now();
    let answer = client::get(port, "/").expect("a response");
    assert_eq!((answer.status, answer.header("x-end")), (503, Some("SC EREFUSED")));
    assert!(start.elapsed() < Duration::from_secs(3), "the kernel answers: {:?}", start.elapsed());
    assert_eq!(weir.stat("b,s", "econ"), "1");
}

#[test]
fn a_silent_server_ends_the_connect_timeout() {
    let silent = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let to = silent.local_addr().expect("a bound socket").port();
    let (weir, port) = backend(
        " retries 0\n timeout connect 1s",
        &format!(" server s quic4@127.0.0.1:{to} ssl verify none"),
    );
    let start = Instant::now();
    let answer = client::get(port, "/").expect("a response");
    assert_eq!((answer.status, answer.header("x-end")), (503, Some("sC")));
    let passed = start.elapsed();
    assert!((900..3000).contains(&passed.as_millis()), "{passed:?}");
    assert_eq!(weir.stat("b,s", "econ"), "1");
}

#[test]
fn a_failed_connection_is_repeated_with_another_server() {
    let origin = paths();
    let closed = free_port();
    let back = format!(
        " retries 2\n option redispatch 1\n balance roundrobin\n server t quic4@127.0.0.1:{closed} ssl verify none"
    );
    let chain = chain(&origin, Lines { back: &back, ..Lines::default() });
    for _ in 0..4 {
        assert_eq!(chain.get("/").0, 200);
    }
    assert!(chain.weir.stat("b,t", "wredis").parse::<u32>().expect("a number") > 0);
}

#[test]
fn certificates_are_verified_as_over_tcp() {
    let origin = paths();
    let stranger = Authority::new();
    let other = stranger.own();
    let other = other.display();
    let cases = [
        ("ssl verify none".to_owned(), 200),
        ("ssl verify required ca-file CA sni str(localhost)".to_owned(), 200),
        (format!("ssl verify required ca-file {other} sni str(localhost)"), 503),
        ("ssl verify required ca-file CA sni str(elsewhere)".to_owned(), 503),
        ("ssl verify required ca-file CA no-sni-auto verifyhost localhost".to_owned(), 200),
        ("ssl verify required ca-file CA no-sni-auto verifyhost elsewhere".to_owned(), 503),
        ("verify none".to_owned(), 200),
        ("ssl verify none alpn hq-interop".to_owned(), 503),
        ("ssl verify none ciphersuites TLS_CHACHA20_POLY1305_SHA256 curves P-256".to_owned(), 200),
    ];
    for (server, status) in cases {
        let chain = chain(&origin, Lines { server: Some(&server), back: " retries 0", ..Lines::default() });
        assert_eq!(chain.get("/").0, status, "{server}");
    }
}

#[test]
fn failed_handshakes_have_the_reasons_of_tls() {
    let origin = paths();
    let front =
        " http-after-response set-header x-end \"%[txn.sess_term_state] %[bc_err_name] %[ssl_bc_err_str]\"";
    let cases = [
        (
            "ssl verify required ca-file OWN",
            "",
            "SC SSL_HANDSHAKE error:0A000086:SSL routines::certificate verify failed",
        ),
        (
            "ssl verify none",
            "alpn hq-interop",
            "SC SSL_HANDSHAKE error:0A000460:SSL routines::tlsv1 alert no application protocol",
        ),
    ];
    for (server, more, expected) in cases {
        let lines = Lines { server: Some(server), more, front, back: " retries 0", ..Lines::default() };
        let answer = client::get(chain(&origin, lines).port, "/").expect("a response");
        assert_eq!((answer.status, answer.header("x-end")), (503, Some(expected)), "{server} {more}");
    }
}

#[test]
fn client_certificates_are_presented_and_verified() {
    let origin = paths();
    let stranger = Authority::new();
    let unknown = format!("crt {}", stranger.issue(&["client"]).display());
    let behind = " http-response set-header x-client \"%[ssl_c_used] %[ssl_c_verify]\"";
    let bind = "verify optional ca-file CA ca-ignore-err all crt-ignore-err all";
    let lines = Lines { bind, behind, ..Lines::default() };
    for (more, expected) in [("crt OWN", "1 0"), ("", "0 0"), (&*unknown, "1 21")] {
        let chain = chain(&origin, Lines { more, ..lines });
        let answer = client::get(chain.port, "/").expect("a response");
        assert_eq!((answer.status, answer.header("x-client")), (200, Some(expected)), "{more}");
    }
}

#[test]
fn a_server_that_resets_a_stream_or_is_gone_is_a_failed_response() {
    // The origin closes without an answer: the listener answers 502, unless it resets.
    let origin = Origin::raw(drop);
    let chain = chain(&origin, Lines::default());
    assert_eq!(chain.get("/").0, 502);
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "1");
}

#[test]
fn responses_that_are_too_slow_are_cancelled() {
    let origin = Origin::start(|_, _| {
        std::thread::sleep(Duration::from_secs(3));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let chain = chain(&origin, Lines { back: " timeout server 500ms", ..Lines::default() });
    assert_eq!(chain.get("/").0, 504);
    assert!(weir_tests::eventually(|| chain.weir.stat("behind,FRONTEND", "scur") == "0" || {
        chain.weir.stat("o,o", "scur") == "0"
    }));
}
