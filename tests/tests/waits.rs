//! Time that is spent waiting: which of the log's timers has it (manual, 8.4), who is blamed when
//! it runs out, and what becomes of a body that nobody waits for.

use std::time::{Duration, Instant};

use weir_tests::Origin;
use weir_tests::client::Client;
use weir_tests::scene::Scene;

/// The timers of the next line: TR, Tw, Tc, Tr.
fn timers(scene: &Scene) -> [i64; 4] {
    let line = scene.line_with_times();
    let word = line.split(' ').nth(1).expect("times are the second word");
    let times: Vec<i64> = word.split('/').map(|time| time.parse().expect("a number")).collect();
    times.try_into().expect("four times")
}

/// Sends `pieces` with a pause between each two, and receives one response.
fn slowly(port: u16, pieces: &[&str]) -> Option<weir_tests::client::Response> {
    let mut client = Client::connect(port);
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            // A slow client is what is tested: time has to pass.
            let until = Instant::now() + Duration::from_millis(PAUSE);
            while Instant::now() < until {
                std::thread::park_timeout(until - Instant::now());
            }
        }
        client.send(piece);
    }
    client.response()
}

const PAUSE: u64 = 250;
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn what_rules_and_bodies_are_waited_for_is_part_of_the_request() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("http-request pause 250ms", "", &[GET]),
        ("", "http-request pause 250ms", &[GET]),
        ("http-request wait-for-body time 20s", "", &[POST, "def"]),
        ("option http-buffer-request", "", &[POST, "def"]),
        ("", "option http-buffer-request", &[POST, "def"]),
        ("tcp-request inspect-delay 250ms\n  tcp-request content accept if WAIT_END", "", &[GET]),
        (
            "tcp-request inspect-delay 250ms\n  tcp-request content accept if { req.len gt 100000 }",
            "",
            &[GET],
        ),
        ("http-request pause 250ms\n  http-request return status 200", "", &[GET]),
    ];
    for (frontend, backend, pieces) in cases {
        let origin = Origin::text("ok");
        let server = format!("{backend}\n  server s 127.0.0.1:{}", origin.port());
        let scene = Scene::start("", frontend, &server);
        assert_eq!(slowly(scene.port, pieces).expect("an answer").status, 200, "{frontend} {backend}");
        let times = timers(&scene);
        assert!(times[0] >= PAUSE as i64 - 5, "{frontend} {backend}: {times:?}");
        assert_eq!(times.iter().max(), Some(&times[0]), "{frontend} {backend}: {times:?}");
    }
}

#[test]
fn what_is_not_looked_for_in_http_is_not_waited_for() {
    let origin = Origin::text("ok");
    for fetch in ["req.ssl_hello_type 1", "req.ssl_sni a", "req.payload(0,100) -m found", "req.body -m sub x"]
    {
        let frontend =
            format!("tcp-request inspect-delay 20s\n  tcp-request content accept if {{ {fetch} }}");
        let scene = Scene::start("", &frontend, &format!("server s 127.0.0.1:{}", origin.port()));
        Client::connect(scene.port).send(GET).response().expect("an answer");
        assert!(timers(&scene)[0] < 15_000, "{fetch}");
    }
}

#[test]
fn a_capture_waits_for_the_bytes_that_it_is_of() {
    let origin = Origin::raw(|mut stream| {
        weir_tests::request::more(&mut stream, &mut Vec::new());
    });
    let frontend = "tcp-request inspect-delay 20s\n  tcp-request content capture req.payload(0,8) len 20\n  log-format %hr";
    let scene = Scene::start("mode tcp", frontend, &format!("server s 127.0.0.1:{}", origin.port()));
    slowly(scene.port, &["abcd", "efgh"]);
    assert_eq!(scene.line_with_times(), "{abcdefgh}");
}

#[test]
fn a_stream_of_tcp_has_no_times_of_a_request_and_a_column_for_each_capture() {
    let origin = Origin::raw(|mut stream| {
        weir_tests::request::more(&mut stream, &mut Vec::new());
    });
    let frontend = "tcp-request inspect-delay 10ms\n  tcp-request content capture req.rdp_cookie(a) len 20\n  \
                    declare capture response len 9\n  log-format \"%Tq %TR [%hr] [%hs] [%hrl]\"";
    let scene = Scene::start("mode tcp", frontend, &format!("server s 127.0.0.1:{}", origin.port()));
    slowly(scene.port, &["abcd"]);
    assert_eq!(scene.line_with_times(), "-1 -1 [{}] [{}] [-]");
}

#[test]
fn a_response_made_by_a_rule_has_the_time_of_the_one_it_replaces() {
    for (rule, status) in [("return status 201", 201), ("deny", 502), ("redirect location /x", 302)] {
        let origin = Origin::text("ok");
        let server = format!("http-response {rule}\n  server s 127.0.0.1:{}", origin.port());
        let scene = Scene::start("", "", &server);
        let mut client = Client::connect(scene.port);
        assert_eq!(client.send(GET).response().expect("an answer").status, status);
        assert!(timers(&scene).iter().all(|time| *time >= 0), "{rule}");
        assert_eq!(client.send(GET).response().expect("the connection stays").status, status);
        if rule == "deny" {
            assert_eq!(scene.counts("b,BACKEND", &["dresp"]), ["dresp=2"]);
        }
    }
}

#[test]
fn a_rejected_request_has_no_times() {
    for rule in ["reject", "silent-drop"] {
        let scene = Scene::start("", &format!("http-request {rule}"), "server s 127.0.0.1:1");
        let mut client = Client::connect(scene.port);
        client.send(GET);
        assert!(scene.line_with_times().starts_with("f/<NOSRV> -1/-1/-1/-1 "), "{rule}");
    }
}

#[test]
fn a_server_is_not_blamed_for_a_client_that_is_slow_to_send() {
    let origin = Origin::echo();
    let server = format!("server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("timeout client 600ms\n  timeout server 200ms", "", &server);
    let answer = Client::connect(scene.port).send(POST).response().expect("an answer");
    assert_eq!(answer.status, 400);
    let line = scene.line();
    assert!(line.contains("b/s 0/0/0/-1 400 cH-- "), "{line}");
    assert_eq!(scene.counts("b,s", &["cli_abrt", "eresp"]), ["cli_abrt=1", "eresp=0"]);
    // Once it has the request, it is.
    let silent =
        Origin::raw(|mut stream| while weir_tests::request::more(&mut stream, &mut Vec::new()).is_some() {});
    let server = format!("server s 127.0.0.1:{}", silent.port());
    let scene = Scene::start("timeout client 20s\n  timeout server 200ms", "", &server);
    assert_eq!(slowly(scene.port, &[POST, "def"]).expect("an answer").status, 504);
    let line = scene.line();
    assert!(line.contains("b/s 0/0/0/-1 504 sH-- "), "{line}");
}

#[test]
fn a_body_that_nobody_wants_is_read_and_the_connection_goes_on() {
    let put = "PUT /no HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let length = "PUT /no HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc";
    for (rule, status) in [("deny status 401", 401), ("return status 200", 200), ("redirect location /", 302)]
    {
        for (first, rest) in [(put, "2\r\nde\r\n0\r\n\r\n"), (length, "de")] {
            let origin = Origin::text("ok");
            let server = format!("server s 127.0.0.1:{}", origin.port());
            let scene = Scene::start("", &format!("http-request {rule} if {{ path /no }}"), &server);
            let mut client = Client::connect(scene.port);
            let answer = client.send(first).response().expect("an answer");
            assert_eq!((answer.status, answer.header("connection")), (status, None), "{rule}");
            client.send(rest).send(GET);
            assert_eq!(client.response().expect("the next one's answer").text(), "ok", "{rule}");
            assert_eq!(origin.requests(), 1, "the body is no request: {rule}");
        }
    }
}

#[test]
fn a_client_that_may_not_send_its_body_is_closed() {
    // Whoever waits for 100 and gets another answer may send the body or the next request (RFC
    // 9110, 10.1.1).
    let scene = Scene::start("", "http-request deny", "server s 127.0.0.1:1");
    let mut client = Client::connect(scene.port);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let answer = client.response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (403, Some("close")));
    assert!(client.read_to_end().is_empty());
}

#[test]
fn a_body_that_rules_look_at_is_asked_for() {
    let origin = Origin::echo();
    let server = format!("server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("", "http-request wait-for-body time 20s", &server);
    let mut client = Client::connect(scene.port);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.response().map(|interim| interim.status), Some(100));
    let head = client.response().expect("an answer").text();
    assert!(!head.to_ascii_lowercase().contains("expect:"), "{head}");
}

#[test]
fn a_spliced_body_reaches_a_server_that_takes_it_slowly() {
    use std::io::{Read, Write};
    let origin = Origin::raw(|mut stream| {
        let (mut total, mut room) = (0, vec![0; 64 * 1024]);
        while total < (8 << 20) {
            // The pipe fills up meanwhile.
            std::thread::park_timeout(Duration::from_millis(1));
            match stream.read(&mut room) {
                Ok(n) if n > 0 => total += n,
                _ => return,
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let server = format!("option splice-request\n  server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("", "", &server);
    let mut client = Client::connect(scene.port);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 8 << 20));
    client.send(vec![b'x'; 8 << 20]);
    assert_eq!(client.response().expect("an answer").status, 200);
}
