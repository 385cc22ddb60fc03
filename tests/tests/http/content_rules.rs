//! Rules on the content of TCP streams: which bytes they see, and how long they wait for them.

use std::io::{Read, Write};
use std::net::Shutdown;

use weir_tests::client::Client;
use weir_tests::log_scene::{GET_ROOT, Scene, says, scene, slowly, timers};
use weir_tests::{Origin, eventually};

#[test]
fn tcp_response_is_not_awaited_without_a_delay() {
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

/// A variable is set from the bytes that have arrived; a condition that waits makes all rules run again.
#[test]
fn only_conditions_wait_for_more_bytes() {
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

/// Content rules see the bytes that came with the connection, and a denial counts only for the listener.
#[test]
fn rules_on_content_see_the_first_bytes() {
    let origin = says("ok", true);
    let rules = "tcp-request content reject unless { req.len gt 3 }";
    for (frontend, backend) in [(rules, ""), ("", rules)] {
        let scene = scene("mode tcp", frontend, backend, &origin, "");
        // Without a delay, only the first bytes are inspected, and on a busy machine they may be late.
        assert!(eventually(|| scene.talk("hi\r\n\r\n") == "ok"), "{frontend} {backend}");
        assert_eq!(scene.counts("b,BACKEND", &["dreq"]), ["dreq=0"]);
    }
}

/// When a rule ends a stream because of the server's answer, the client's data have been sent before.
#[test]
fn client_data_is_sent_before_response_rules_end_the_stream() {
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
fn http_is_not_awaited_for_other_samples() {
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
fn captures_wait_for_their_bytes() {
    let origin = Origin::raw(|mut stream| {
        weir_tests::request::more(&mut stream, &mut Vec::new());
    });
    let frontend = "tcp-request inspect-delay 20s\n  tcp-request content capture req.payload(0,8) len 20\n  log-format %hr";
    let scene = Scene::start("mode tcp", frontend, &format!("server s 127.0.0.1:{}", origin.port()));
    slowly(scene.port, &["abcd", "efgh"]);
    assert_eq!(scene.line_with_times(), "{abcdefgh}");
}
