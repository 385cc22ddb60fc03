//! Retries (manual, 4.2 `retries`, `retry-on`, `option redispatch`): each attempt has its own timeouts, the client gets the last
//! server's response, and logs and statistics show how often and where the request was sent.

use std::io::{Read, Write};

use weir_tests::client::Client;
use weir_tests::listen::DEFAULTS;
use weir_tests::log_scene::{GET_ROOT, LAST, Scene, says, scene};
use weir_tests::{Origin, Weir, client, eventually, free_port, full_port, server_lines};

/// Starts the program with a listener that has these lines in `defaults` and these servers.
fn start(lines: &str, servers: &[u16]) -> (Weir, u16) {
    let port = free_port();
    let servers = server_lines(servers);
    let configuration = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n  \
         {lines}\nlisten l\n  bind 127.0.0.1:{port}\n{servers}"
    );
    (Weir::start(&configuration, &[port]), port)
}

/// Starts a server that reads requests and never answers.
fn stalling() -> Origin {
    Origin::raw(|mut stream| {
        let mut bytes = [0; 1024];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    })
}

/// Starts a server that reads a request and closes.
fn closing() -> Origin {
    Origin::raw(|mut stream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
    })
}

#[test]
fn retry_of_an_idle_connection_gets_the_full_timeout() {
    for bad in [stalling(), closing()] {
        let good = Origin::text("good");
        let (_weir, port) = start(
            "timeout server 300ms\n  retries 1\n  option redispatch\n  retry-on all-retryable-errors\n  \
             balance roundrobin\n  http-reuse always",
            &[bad.port(), good.port()],
        );
        let mut client = Client::connect(port);
        for round in 0..6 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = client.response().expect("an answer");
            assert_eq!((answer.status, answer.text().as_str()), (200, "good"), "round {round}");
        }
    }
}

/// A response that could be retried, but is not for some reason, goes to the client.
#[test]
fn response_that_cannot_be_retried_is_forwarded() {
    let origin =
        || Origin::start(|_, _| b"HTTP/1.1 503 Mine\r\nContent-Length: 4\r\nx-own: yes\r\n\r\nmine".to_vec());
    let long = "x".repeat(100_000);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}", long.len());
    for (lines, request, tries) in [
        ("retries 2\n  retry-on 503", &get, 3),
        ("retries 2\n  retry-on 503\n  http-request set-retries 1", &get, 2),
        ("retries 2\n  retry-on 503\n  http-request set-retries 0", &get, 1),
        ("retries 2\n  retry-on 503\n  http-request disable-l7-retry", &get, 1),
        ("retries 2\n  retry-on 503", &post, 1),
    ] {
        let origin = origin();
        let port = free_port();
        let _weir = Weir::start(
            &format!(
                "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n\
                 listen l\n  bind 127.0.0.1:{port}\n  {lines}\n  server s 127.0.0.1:{}\n",
                origin.port()
            ),
            &[port],
        );
        let answer = Client::connect(port).send(request).response().expect("an answer");
        assert_eq!((answer.status, answer.header("x-own")), (503, Some("yes")), "{lines}");
        assert_eq!(origin.requests(), tries, "{lines}");
    }
}

#[test]
fn refused_request_counts_one_connection_error() {
    let server = free_port();
    let scene =
        Scene::start("timeout connect 20ms\n  retries 2", "", &format!("server s 127.0.0.1:{server}"));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 503 "));
    let line = scene.line();
    assert!(line.ends_with("/-1/-1 503 SC-- 2 GET /x HTTP/1.1"), "{line}");
    for of in ["b,s", "b,BACKEND"] {
        let counts = scene.counts(of, &["econ", "wretr", "wredis", "lbtot", "connect"]);
        assert_eq!(counts, ["econ=1", "wretr=2", "wredis=0", "lbtot=1", "connect=3"], "{of}");
    }
    assert_eq!(scene.counts("b,s", &["stot"]), ["stot=3"]);
    assert_eq!(
        scene.counts("b,BACKEND", &["stot", "req_tot", "hrsp_5xx"]),
        ["stot=1", "req_tot=1", "hrsp_5xx=1"]
    );
}

#[test]
fn retry_without_redispatch_stays_with_its_server() {
    let (full, _waiting) = full_port();
    let other = Origin::text("no");
    let servers = format!(
        "server full 127.0.0.1:{}\n  server other 127.0.0.1:{}",
        full.local_addr().expect("an address").port(),
        other.port()
    );
    let scene = Scene::start("timeout connect 50ms\n  retries 1\n  no option redispatch", "", &servers);
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 503 "));
    let line = scene.line();
    assert!(line.starts_with("b/full ") && line.ends_with(" 503 sC-- 1 GET /x HTTP/1.1"), "{line}");
    assert_eq!(scene.counts("b,other", &["stot"]), ["stot=0"]);
}

#[test]
fn redispatch_is_not_counted_as_retry() {
    let origin = Origin::text("ok");
    let backend = format!(
        "option redispatch\n  cookie C insert\n  server up 127.0.0.1:{} cookie U\n  server gone 127.0.0.1:{} cookie G",
        origin.port(),
        free_port()
    );
    let scene = Scene::start("timeout connect 1s", "", &backend);
    let answer = scene.talk(&LAST.replace("\r\n\r\n", "\r\nCookie: C=G\r\n\r\n"));
    assert!(answer.contains("set-cookie: C=U;"), "{answer}");
    let line = scene.line();
    assert!(line.starts_with("b/up ") && line.contains(" 200 --DI +1 "), "{line}");
    let counts = scene.counts("b,gone", &["econ", "wretr", "wredis", "lbtot"]);
    assert_eq!(counts, ["econ=0", "wretr=0", "wredis=1", "lbtot=0"]);
    assert_eq!(scene.counts("b,up", &["lbtot"]), ["lbtot=1"]);
}

#[test]
fn unrepeatable_request_is_not_retried() {
    let origin = closing();
    let retries = |rule: &str| {
        let backend = format!(
            "{rule}\n  retry-on all-retryable-errors\n  retries 2\n  server s 127.0.0.1:{}",
            origin.port()
        );
        let scene = Scene::start("", "", &backend);
        assert!(scene.talk(LAST).starts_with("HTTP/1.1 502 "));
        let line = scene.line();
        line.split(' ').nth(4).map(str::to_owned)
    };
    assert_eq!(retries("").as_deref(), Some("2"));
    assert_eq!(retries("http-request disable-l7-retry").as_deref(), Some("0"));
}

/// `option redispatch …`, the request's cookie, attempts, the line, counts.
type Redispatch = (&'static str, &'static str, [u32; 3], &'static str, [u32; 3]);

/// The setting of `option redispatch`, the request's cookie, and HAProxy's results for five retries among three dead servers:
/// attempts per server, the log line, and the backend's `wretr`, `wredis` and `lbtot`.
#[rustfmt::skip]
const REDISPATCHES: &[Redispatch] = &[
    ("",                                    "",  [6, 0, 0], "b/a SCNN 5",  [5, 0, 1]),
    ("option redispatch 0",                 "",  [6, 0, 0], "b/a SCNN 5",  [5, 0, 1]),
    // Without a cookie, another server is tried at once.
    ("option redispatch",                   "",  [2, 2, 2], "b/c SCNN +5", [0, 5, 6]),
    ("option redispatch 3",                 "",  [2, 2, 2], "b/c SCNN +5", [0, 5, 6]),
    ("",                                    "a", [6, 0, 0], "b/a SCVN 5",  [5, 0, 0]),
    ("option redispatch",                   "a", [5, 1, 0], "b/b SCDN +5", [4, 1, 1]),
    ("option redispatch -2",                "a", [4, 1, 1], "b/c SCDN +5", [3, 2, 2]),
    ("option redispatch -3",                "a", [4, 1, 1], "b/a SCDN +5", [2, 3, 3]),
    ("option redispatch 1",                 "a", [2, 2, 2], "b/c SCDN +5", [0, 5, 5]),
    ("option redispatch 2",                 "a", [3, 2, 1], "b/b SCDN +5", [1, 4, 4]),
    ("option redispatch 3",                 "a", [4, 1, 1], "b/a SCDN +5", [2, 3, 3]),
    ("option redispatch\n  force-persist if TRUE", "a", [6, 0, 0], "b/a SCVN 5", [5, 0, 0]),
];

#[test]
fn redispatch_setting_controls_retry_servers() {
    for (option, cookie, attempts, line, counts) in REDISPATCHES {
        let servers: String = ["a", "b", "c"]
            .map(|name| format!("\n  server {name} 127.0.0.1:{} cookie {name}", free_port()))
            .concat();
        let scene = Scene::start(
            "timeout connect 10ms\n  retries 5",
            "",
            &format!("{option}\n  cookie C insert{servers}"),
        );
        let cookie = if cookie.is_empty() { String::new() } else { format!("Cookie: C={cookie}\r\n") };
        assert!(
            scene.talk(&LAST.replace("\r\n\r\n", &format!("\r\n{cookie}\r\n"))).starts_with("HTTP/1.1 503 ")
        );
        let logged = scene.line();
        let words: Vec<&str> = logged.split(' ').collect();
        assert_eq!(format!("{} {} {}", words[0], words[3], words[4]), *line, "{option}: {logged}");
        let of = |server: &str| scene.counts(&format!("b,{server}"), &["stot"]).concat();
        let seen = ["a", "b", "c"].map(of);
        assert_eq!(seen, attempts.map(|count| format!("stot={count}")), "{option} {cookie}");
        let [retries, redispatches, chosen] = counts;
        assert_eq!(
            scene.counts("b,BACKEND", &["wretr", "wredis", "lbtot"]),
            [format!("wretr={retries}"), format!("wredis={redispatches}"), format!("lbtot={chosen}")],
            "{option} {cookie}"
        );
    }
}

/// A body that had not arrived when the request was sent cannot be sent again, and is not waited for.
#[test]
fn request_is_retried_only_if_complete() {
    let busy = || says("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", false);
    let half = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi";
    let whole = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let connect = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    for (request, tries) in [(half, 1), (whole, 2), (GET_ROOT, 2), (connect, 1)] {
        let origin = busy();
        let scene = scene("", "", "retry-on 503", &origin, "");
        let answer = Client::connect(scene.port).send(request).response().expect("an answer");
        assert_eq!((answer.status, origin.connections()), (503, tries), "{request:?}");
    }
}

#[test]
fn failure_after_a_retry_has_no_response_time() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
        if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let scene = scene("", "", "retry-on 503", &origin, "");
    let answer = Client::connect(scene.port).send(GET_ROOT).response().expect("an answer");
    assert_eq!((answer.status, scene.line().as_str()), (502, "b/s 0/0/0/-1 502 SH-- 1 GET / HTTP/1.1"));
}

/// A retry at the same server keeps its place in the queue and in the log.
#[test]
fn retry_at_the_same_server_is_not_queued_again() {
    let refused = free_port();
    let server = format!("use-server s if TRUE\n  server s 127.0.0.1:{refused} maxconn 1");
    let scene = Scene::start("timeout connect 300ms\n  retries 2", "", &server);
    let mut first = Client::connect(scene.port);
    first.send(GET_ROOT);
    // The second waits for the first until its queue timeout.
    assert!(eventually(|| scene.counts("b,s", &["connect"]) != ["connect=0"]));
    let mut second = Client::connect(scene.port);
    second.send(GET_ROOT);
    let answers = [&mut first, &mut second].map(|client| client.response().map(|answer| answer.status));
    assert_eq!(answers, [Some(503), Some(503)]);
    let mut lines = [scene.line(), scene.line()];
    lines.sort();
    assert_eq!(lines, ["b/s 0/0/-1/-1 503 SC-- 2 GET / HTTP/1.1", "b/s 0/0/-1/-1 503 sQ-- 0 GET / HTTP/1.1"]);
    assert_eq!(scene.counts("b,s", &["qmax", "econ"]), ["qmax=1", "econ=2"]);
}

#[test]
fn backend_rules_may_set_retries() {
    let origin = Origin::text("ok");
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  \
             tcp-request content set-retries int(9)\n  http-response set-header x-retries %[cur_max_retries]\n  \
             server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    assert_eq!(client::get(port, "/").expect("a response").header("x-retries"), Some("9"));
}
