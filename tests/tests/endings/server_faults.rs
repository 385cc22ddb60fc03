//! Servers that are late, close, or send invalid responses: the response to the client, the log line (termination state and timers,
//! manual 8.4 and 8.5), and the statistics.

use std::io::{Read, Write};

use weir_tests::Origin;
use weir_tests::client::Client;
use weir_tests::log_scene::{GET_ROOT, LAST, POST_HALF, Scene, says, scene, slowly};

#[test]
fn partial_head_is_invalid_and_no_head_is_a_closed_server() {
    for (sent, letters, retried) in [("", "SH--", "empty-response"), ("HTTP/1.1 20", "PH--", "junk-response")]
    {
        let origin = Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(sent.as_bytes());
        });
        for (retry, count) in [("none", 0), (retried, 1)] {
            let server = format!("retry-on {retry}\n  server s 127.0.0.1:{}", origin.port());
            let scene = Scene::start("", "", &server);
            assert!(scene.talk(LAST).starts_with("HTTP/1.1 502 "));
            assert_eq!(scene.line(), format!("b/s 0/0/0/-1 502 {letters} {count} GET /x HTTP/1.1"));
        }
    }
}

#[test]
fn nonsense_from_a_server_gives_502() {
    const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes";
    const WAITING: &str =
        "GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 9\r\n\r\nbody";
    const ASKING: &str = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let cases: [(&str, &[u8], &str); 7] = [
        (LAST, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "chunks"),
        (LAST, SWITCHING, "nobody asked"),
        (WAITING, SWITCHING, "the body is not over"),
        (ASKING, b"HTTP/1.1 101 Switching\r\n\r\nbytes", "no protocol"),
        (ASKING, b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nbytes", "not for this connection"),
        (ASKING, b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: y\r\n\r\n", "another protocol"),
        (ASKING, b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x, y\r\n\r\n", "one more"),
    ];
    for (request, response, why) in cases {
        let origin = says(response, true);
        let scene = Scene::start("", "", &format!("server s 127.0.0.1:{}", origin.port()));
        // The client need not send the rest of its body.
        let answer = Client::connect(scene.port).send(request).response();
        assert_eq!(answer.map(|answer| answer.status), Some(502), "{why}");
        assert_eq!(scene.line(), "b/s 0/0/0/-1 502 PH-- 0 GET /x HTTP/1.1", "{why}");
        let counts = scene.counts("b,BACKEND", &["eresp", "hrsp_1xx", "hrsp_2xx", "hrsp_5xx"]);
        assert_eq!(counts, ["eresp=1", "hrsp_1xx=0", "hrsp_2xx=0", "hrsp_5xx=1"], "{why}");
    }
}

#[test]
fn server_silence_while_rules_wait_is_a_timeout() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let (part, whole) = (format!("{head}he"), format!("{head}hello"));
    let accept = "tcp-response content accept if WAIT_END";
    // Mode, inspect-delay, rule, server bytes, client bytes, log line.
    let cases = [
        ("http", "1h", accept, part.as_str(), part.as_str(), " 200 sD-- "),
        ("http", "200ms", accept, &whole, &whole, " 200 ---- "),
        ("tcp", "1h", accept, "abc", "abc", " sD-- "),
        ("tcp", "1h", accept, "", "", " sD-- "),
        ("tcp", "1h", "tcp-response content close if WAIT_END", "abc", "", " sD-- "),
        ("tcp", "1h", "tcp-response content reject if WAIT_END", "abc", "", " PD-- "),
    ];
    for (mode, delay, rule, said, expected, logged) in cases {
        let said = said.to_owned();
        let origin = Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(said.as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let backend =
            format!("tcp-response inspect-delay {delay}\n  {rule}\n  server s 127.0.0.1:{}", origin.port());
        let times = format!("mode {mode}\n  timeout server 400ms\n  timeout client-fin 400ms");
        let scene = Scene::start(&times, "", &backend);
        let mut client = Client::connect(scene.port);
        client.send("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let got = String::from_utf8(client.read_to_end()).expect("text");
        let begins = expected.split("\r\n").next().expect("a line");
        let ends = expected.rsplit("\r\n").next().expect("a line");
        assert!(got.starts_with(begins) && got.ends_with(ends), "{mode} {rule} {expected}: {got}");
        assert_eq!(got.is_empty(), expected.is_empty(), "{mode} {rule}: {got}");
        drop(client);
        let line = scene.line();
        assert!(line.contains(logged), "{mode} {rule} {expected}: {line}");
    }
}

#[test]
fn client_with_a_long_body_is_not_blamed_for_the_server() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let scene = Scene::start(
        "timeout client 300ms\n  timeout server 1s",
        "",
        &format!("server s 127.0.0.1:{}", origin.port()),
    );
    let request =
        format!("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n{}", "x".repeat(20_000));
    let answer = Client::connect(scene.port).send(&request).response();
    assert_eq!(answer.map(|answer| answer.status), Some(504));
    let line = scene.line();
    assert!(line.contains(" 504 sH-- "), "{line}");
}

/// A response whose first chunks are invalid is replaced by a 502, and the client's connection stays open.
#[test]
fn chunks_received_with_the_head_are_checked() {
    let origin = says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n", false);
    let scene = scene("", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    let request = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    let answer = client.send(request).response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (502, Some("keep-alive")));
    assert_eq!(scene.line(), "b/s 0/0/0/-1 502 PH-- 0 GET / HTTP/1.0");
    assert_eq!(
        scene.counts("b,s", &["hrsp_2xx", "req_tot", "eresp"]),
        ["hrsp_2xx=0", "req_tot=0", "eresp=1"]
    );
}

#[test]
fn server_timeout_stops_once_the_response_is_complete() {
    let origin = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false);
    let scene = scene("timeout client 1s\n  timeout server 400ms", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi").read_to_end();
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 cL-- 0 POST / HTTP/1.1");
}

#[test]
fn stalled_response_is_not_an_invalid_response() {
    let origin = says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", false);
    let scene = scene("timeout server 500ms", "", "", &origin, "");
    scene.talk(GET_ROOT);
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 sD-- 0 GET / HTTP/1.1");
    assert_eq!(scene.counts("b,s", &["eresp", "srv_abrt"]), ["eresp=0", "srv_abrt=1"]);
}

#[test]
fn server_is_not_blamed_for_a_client_that_does_not_read() {
    // More than the kernel buffers of both connections hold: the server is blocked.
    let origin = Origin::raw(|mut stream| {
        let _ = stream.write_all(&vec![b'z'; 24 << 20]);
    });
    let scene =
        scene("mode tcp\n  timeout client 3s\n  timeout server 1s", "log-format \"%s %ts\"", "", &origin, "");
    let client = Client::connect(scene.port);
    assert_eq!(scene.line_with_times(), "s cD");
    drop(client);
}

#[test]
fn server_is_not_blamed_for_a_slow_upload() {
    let origin = Origin::echo();
    let server = format!("server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("timeout client 600ms\n  timeout server 200ms", "", &server);
    let answer = Client::connect(scene.port).send(POST_HALF).response().expect("an answer");
    assert_eq!(answer.status, 400);
    let line = scene.line();
    assert!(line.contains("b/s 0/0/0/-1 400 cH-- "), "{line}");
    assert_eq!(scene.counts("b,s", &["cli_abrt", "eresp"]), ["cli_abrt=1", "eresp=0"]);
    // After the server has received the request, the server is to blame.
    let silent =
        Origin::raw(|mut stream| while weir_tests::request::more(&mut stream, &mut Vec::new()).is_some() {});
    let server = format!("server s 127.0.0.1:{}", silent.port());
    let scene = Scene::start("timeout client 20s\n  timeout server 200ms", "", &server);
    assert_eq!(slowly(scene.port, &[POST_HALF, "def"]).expect("an answer").status, 504);
    let line = scene.line();
    assert!(line.contains("b/s 0/0/0/-1 504 sH-- "), "{line}");
}
