//! The name of the cause of an abnormal end: `%[fault]` and `weir_faults_total`.

use std::io::{Read, Write};

use weir_tests::client::{Client, get};
use weir_tests::log_scene::{GET_ROOT, LAST, POST_HALF, Scene, says};
use weir_tests::multiplexed::Frames;
use weir_tests::{Authority, Origin, eventually, free_port, full_port};

const FORMAT: &str = "log-format \"<%[fault]>\"\n  error-log-format \"<%[fault]>\"";

/// The client's next step after it has sent its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Reads until the connection is closed.
    Read,
    /// Closes its side.
    Shut,
}

use Then::{Read as Stay, Shut};

/// Starts a scene with another log format, sends the bytes, and returns the logged cause.
fn fault(defaults: &str, frontend: &str, backend: &str, sent: &str, then: Then) -> String {
    let scene = Scene::start(defaults, &format!("{FORMAT}\n  {frontend}"), backend);
    let mut client = Client::connect(scene.port);
    client.send(sent);
    if then == Shut {
        client.shut();
    }
    client.read_to_end();
    scene.line_with_times()
}

#[test]
fn faults_of_clients_and_rules_have_names() {
    let origin = Origin::text("x");
    let server = format!("server s 127.0.0.1:{}", origin.port());
    let tarpit = "timeout tarpit 10ms\n  http-request tarpit";
    for (frontend, sent, then, name) in [
        // Log formats show an empty value as `-`.
        ("", LAST, Stay, "-"),
        ("http-request return status 200", LAST, Stay, "-"),
        ("http-request redirect location /", LAST, Stay, "-"),
        ("", "GET\r\n\r\n", Stay, "bad_request"),
        ("timeout http-request 20ms", "GET / HTTP/1.1\r\n", Stay, "request_timeout"),
        ("", "GET / HT", Shut, "request_aborted"),
        ("http-request deny", LAST, Stay, "denied_by_rule"),
        ("http-request reject", LAST, Stay, "denied_by_rule"),
        ("tcp-request content reject", LAST, Stay, "denied_by_rule"),
        ("http-request deny deny_status 429", LAST, Stay, "rate_limited"),
        (tarpit, LAST, Stay, "tarpitted"),
        ("http-response deny", LAST, Stay, "response_denied"),
    ] {
        assert_eq!(fault("", frontend, &server, sent, then), format!("<{name}>"), "{frontend} {sent:?}");
    }
}

#[test]
fn faults_of_servers_have_names() {
    let (silent, closing) = (says("", false), says("", true));
    let cases: [(&Origin, &str, &str); 9] = [
        (&closing, "", "server_empty_response"),
        (&says("HTTP/1.1 20", true), "", "response_head_cut"),
        (&says("nonsense\r\n\r\n", false), "", "bad_response"),
        (&silent, "timeout server 20ms", "response_timeout"),
        (&says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", true), "", "response_truncated"),
        (
            &says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", false),
            "timeout server 20ms",
            "server_timeout",
        ),
        (&says("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", true), "retry-on 503", "-"),
        (&closing, "http-request disable-l7-retry", "server_empty_response"),
        (&silent, "timeout server 20ms\n  retry-on response-timeout", "response_timeout"),
    ];
    let server = format!("server s 127.0.0.1:{}", silent.port());
    assert_eq!(fault("", "timeout client 20ms", &server, POST_HALF, Stay), "<client_timeout>");
    for (origin, backend, name) in cases {
        let backend = format!("{backend}\n  server s 127.0.0.1:{}", origin.port());
        assert_eq!(fault("", "", &backend, LAST, Stay), format!("<{name}>"), "{backend}");
    }
}

#[test]
fn failures_to_reach_a_server_have_names() {
    let origin = Origin::text("x");
    let (full, _waiting) = full_port();
    let full = full.local_addr().expect("a bound socket has an address").port();
    let plain = Origin::raw(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.0 400 Bad request\r\n\r\n");
        let _ = stream.read(&mut [0; 1024]);
    });
    for (server, name) in [
        (format!("127.0.0.1:{} disabled", origin.port()), "no_server"),
        ("127.0.0.1:1".to_owned(), "connect_refused"),
        (format!("127.0.0.1:{full}\n  timeout connect 20ms"), "connect_timeout"),
        (format!("127.0.0.1:{} ssl verify none", plain.port()), "connect_tls"),
    ] {
        let backend = format!("retries 0\n  server s {server}");
        assert_eq!(fault("", "", &backend, LAST, Stay), format!("<{name}>"), "{server}");
    }
    // A TCP stream.
    let backend = "retries 0\n  server s 127.0.0.1:1";
    assert_eq!(fault("mode tcp", "", backend, "x", Stay), "<connect_refused>");
}

#[test]
fn queues_have_names_and_counters() {
    let origin = Origin::raw(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    let metrics = free_port();
    let backend = format!(
        "timeout queue 50ms\n  server s 127.0.0.1:{} maxconn 1 maxqueue 1\n\
         frontend metrics\n  bind 127.0.0.1:{metrics}\n  no log\n  http-request use-service prometheus-exporter",
        origin.port()
    );
    let scene = Scene::start("", FORMAT, &backend);
    let mut served = Client::connect(scene.port);
    served.send(GET_ROOT);
    assert!(eventually(|| scene.weir.stat("b,s", "scur") == "1"));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 503 "));
    assert_eq!(scene.line_with_times(), "<queue_timeout>");
    drop(served);
    assert_eq!(scene.line_with_times(), "<client_aborted>");
    let scrape = |query: &str| get(metrics, &format!("/metrics{query}")).expect("a response").text();
    for name in ["queue_timeout", "client_aborted"] {
        let series = format!("weir_faults_total{{proxy=\"b\",fault=\"{name}\"}} 1\n");
        assert!(scrape("?scope=backend").contains(&series), "{series}");
    }
    assert!(!scrape("?scope=server").contains("weir_faults_total"));
    scene.weir.ask("clear counters all");
    assert!(!scrape("").contains("weir_faults_total{proxy=\"b\""));
}

#[test]
fn full_queues_have_a_name() {
    let origin = Origin::raw(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    // Only requests that are bound to a server wait in its own queue.
    let backend = format!(
        "timeout queue 20s\n  use-server s if TRUE\n  server s 127.0.0.1:{} maxconn 1 maxqueue 1",
        origin.port()
    );
    let scene = Scene::start("", FORMAT, &backend);
    let (mut served, mut queued) = (Client::connect(scene.port), Client::connect(scene.port));
    served.send(GET_ROOT);
    assert!(eventually(|| scene.weir.stat("b,s", "scur") == "1"));
    queued.send(GET_ROOT);
    assert!(eventually(|| scene.weir.stat("b,s", "qcur") == "1"));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 503 "));
    assert_eq!(scene.line_with_times(), "<queue_full>");
}

#[test]
fn rewrites_without_room_are_internal_errors() {
    let origin = Origin::text("x");
    let server = format!("server s 127.0.0.1:{}", origin.port());
    let rule = format!("http-request set-header x {}", "%[req.hdr(y)]".repeat(8));
    let request =
        format!("GET / HTTP/1.1\r\nHost: a\r\nY: {}\r\nConnection: close\r\n\r\n", "y".repeat(3000));
    assert_eq!(fault("", &rule, &server, &request, Stay), "<internal_error>");
}

#[test]
fn a_missing_backend_is_named() {
    let (named, other, h2) = (free_port(), free_port(), free_port());
    let backend = format!(
        "server s 127.0.0.1:1\n\
         frontend named\n  bind 127.0.0.1:{named}\n  {FORMAT}\n  use_backend %[path,field(2,/)]\n\
         frontend other\n  bind 127.0.0.1:{other}\n  {FORMAT}\n  use_backend b if {{ path /b }}\n\
         frontend h2\n  bind 127.0.0.1:{h2} proto h2\n  {FORMAT}\n  http-request deny"
    );
    let scene = Scene::start("", FORMAT, &backend);
    for (port, name) in [(named, "backend_unknown:x"), (other, "no_backend")] {
        Client::connect(port).send(LAST).read_to_end();
        assert_eq!(scene.line_with_times(), format!("<{name}>"));
    }
    let mut frames = Frames::connect(h2);
    // HEADERS of stream 1: `GET /` with `http` and the authority `a`.
    frames.send(1, 5, 1, &[0x82, 0x84, 0x86, 0x41, 1, b'a']);
    assert_eq!(scene.line_with_times(), "<denied_by_rule>");
}

#[test]
fn connections_without_a_request_have_names() {
    let authority = Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let (secure, proxied) = (free_port(), free_port());
    let backend = format!(
        "server s 127.0.0.1:1\n\
         frontend secure\n  bind 127.0.0.1:{secure} ssl crt {}\n  {FORMAT}\n\
         frontend proxied\n  bind 127.0.0.1:{proxied} accept-proxy\n  {FORMAT}",
        certificate.display()
    );
    let scene = Scene::start("", FORMAT, &backend);
    for (port, name) in [(secure, "client_tls"), (proxied, "proxy_header")] {
        Client::connect(port).send(LAST).read_to_end();
        assert_eq!(scene.line_with_times(), format!("<{name}>"));
    }
}

#[test]
fn streams_that_an_operator_ends_have_a_name() {
    let origin = says("", false);
    let scene = Scene::start("", FORMAT, &format!("server s 127.0.0.1:{}", origin.port()));
    let mut client = Client::connect(scene.port);
    client.send(GET_ROOT);
    assert!(eventually(|| scene.weir.stat("b,s", "scur") == "1"));
    scene.weir.ask("shutdown sessions server b/s");
    client.read_to_end();
    assert_eq!(scene.line_with_times(), "<killed_by_operator>");
}
