//! Rules on the content of TCP streams: which bytes they see, and how long they wait for them.

use std::io::{Read, Write};
use std::net::Shutdown;

use weir_tests::client::Client;
use weir_tests::log_scene::{GET_ROOT, Scene, says, scene, slowly, timers};
use weir_tests::{Origin, eventually};

#[test]
fn without_a_delay_a_response_of_tcp_is_not_waited_for() {
    let origin = Origin::raw(|mut stream| {
        let mut byte = [0];
        let _ = stream.read(&mut byte);
        let _ = stream.write_all(b"hello");
    });
    for (delay, received) in [("", "hello"), ("tcp-response inspect-delay 20s\n  ", "")] {
        let rules = format!("{delay}tcp-response content reject if {{ res.len gt 0 }}");
        let scene = scene("mode tcp", "", &rules, &origin, "");
        assert_eq!(scene.talk("x"), received, "{rules}");
    }
}

/// A variable takes the bytes that have arrived; a condition that waits has all rules evaluated again.
#[test]
fn a_variable_is_not_waited_for_but_by_conditions() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.write_all(b"first");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let start = |rules: &str| {
        let frontend = format!(
            "log-format \"<%[var(txn.a)]> %ts\"\n  tcp-request inspect-delay 600s\n  \
             tcp-request content set-var(txn.a) req.payload(0,2)\n  {rules}"
        );
        scene("mode tcp", &frontend, "", &origin, "")
    };
    // The server speaks first.
    let scene = start("");
    assert_eq!(scene.talk(""), "first");
    assert_eq!(scene.line_with_times(), "<-> --");
    let scene = start("tcp-request content reject unless { req.payload(0,2) -m found }");
    assert_eq!(scene.talk("hi"), "first");
    assert_eq!(scene.line_with_times(), "<hi> --");
}

/// Rules on content see the bytes that came with the connection, and a denial counts for the listener alone.
#[test]
fn rules_on_content_see_the_first_bytes() {
    let origin = says("ok", true);
    let rules = "tcp-request content reject unless { req.len gt 3 }";
    for (frontend, backend) in [(rules, ""), ("", rules)] {
        let scene = scene("mode tcp", frontend, backend, &origin, "");
        // Without a delay only the first bytes count: on a busy machine they may be late.
        assert!(eventually(|| scene.talk("hi\r\n\r\n") == "ok"), "{frontend} {backend}");
        assert_eq!(scene.counts("b,BACKEND", &["dreq"]), ["dreq=0"]);
    }
}

/// A rule that ends a stream by its server's answer comes behind what the client had sent.
#[test]
fn what_a_client_has_sent_goes_out_before_rules_on_the_answer() {
    let (sender, seen) = std::sync::mpsc::channel();
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let rules = "tcp-request inspect-delay 20s\n  tcp-request content accept if { req.len gt 0 }";
    let scene = scene("mode tcp", rules, "tcp-response content reject", &origin, "send-proxy");
    assert_eq!(scene.talk("hello"), "");
    let bytes = seen.recv_timeout(weir_tests::PATIENCE).expect("a connection");
    assert!(bytes.starts_with(b"PROXY ") && bytes.ends_with(b"hello"), "{bytes:?}");
}

#[test]
fn what_is_not_looked_for_in_http_is_not_waited_for() {
    let origin = Origin::text("ok");
    for fetch in ["req.ssl_hello_type 1", "req.ssl_sni a", "req.payload(0,100) -m found", "req.body -m sub x"]
    {
        let frontend =
            format!("tcp-request inspect-delay 20s\n  tcp-request content accept if {{ {fetch} }}");
        let scene = Scene::start("", &frontend, &format!("server s 127.0.0.1:{}", origin.port()));
        Client::connect(scene.port).send(GET_ROOT).response().expect("an answer");
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
