//! Request bodies that rules wait for, that the response does not depend on, or that reach a slow server.

use std::time::Duration;

use weir_tests::Origin;
use weir_tests::client::Client;
use weir_tests::log_scene::{GET_ROOT, Scene, scene};

#[test]
fn unwanted_body_is_discarded_and_the_connection_kept() {
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
            client.send(rest).send(GET_ROOT);
            assert_eq!(client.response().expect("the next one's answer").text(), "ok", "{rule}");
            assert_eq!(origin.requests(), 1, "the body is no request: {rule}");
        }
    }
}

#[test]
fn connection_closes_if_the_body_may_never_be_sent() {
    // A client that waits for 100 and gets another response may send the body or the next request (RFC 9110, 10.1.1).
    let scene = Scene::start("", "http-request deny", "server s 127.0.0.1:1");
    let mut client = Client::connect(scene.port);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let answer = client.response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (403, Some("close")));
    assert!(client.read_to_end().is_empty());
}

#[test]
fn body_needed_by_rules_is_requested_with_100() {
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
fn spliced_body_reaches_a_slow_server() {
    use std::io::{Read, Write};
    let origin = Origin::raw(|mut stream| {
        let (mut total, mut room) = (0, vec![0; 64 * 1024]);
        while total < (8 << 20) {
            // Time for the pipe to fill up.
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

#[test]
fn body_that_has_arrived_causes_no_wait_time() {
    let origin = Origin::text("ok");
    let scene = scene("", "http-request deny if { path /no }", "", &origin, "");
    let mut client = Client::connect(scene.port);
    let head = "POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let answer = client.send(format!("{head}bo")).response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (403, None));
    let next = client.send(format!("dy{GET_ROOT}")).response().expect("an answer");
    assert_eq!(next.status, 200);
    // A client that waits may never send the body.
    let answer = Client::connect(scene.port).send(head).response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (403, Some("close")));
}
