//! Streams ended from outside: by runtime socket commands, and because a server is marked down.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use weir_tests::client::Client;
use weir_tests::log_scene::{GET, Scene};
use weir_tests::{Origin, PATIENCE, eventually};

/// A session ended from outside is closed at once, without a response to the client.
#[test]
fn sessions_ended_from_outside_close_at_once() {
    let stalling = |answer: &'static str| {
        Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
        })
    };
    let part = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
    for (command, cause) in [("shutdown sessions server b/s", "K"), ("set server b/s health down", "D")] {
        for (answer, status) in [("", 500), (part, 200)] {
            let origin = stalling(answer);
            let server = format!("server s 127.0.0.1:{} on-marked-down shutdown-sessions", origin.port());
            let scene = Scene::start("", "", &server);
            let mut client = Client::connect(scene.port);
            client.send(GET);
            let head = if answer.is_empty() { String::new() } else { client.read_head() };
            assert!(eventually(|| scene.weir.ask("show sess").contains(" srv=s ")));
            scene.weir.ask(command);
            let rest = client.read_to_end();
            assert_eq!(
                (head.is_empty(), rest.len()),
                (answer.is_empty(), if answer.is_empty() { 0 } else { 3 })
            );
            let line = std::iter::repeat_with(|| scene.line())
                .find(|line| line.starts_with("b/s "))
                .unwrap_or_default();
            assert!(line.contains(&format!(" {status} {cause}C-- ")), "{command}: {line}");
        }
    }
    let origin = stalling("abc");
    let server = format!("server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("mode tcp", "", &server);
    let mut client = Client::connect(scene.port);
    client.send("hello");
    assert!(eventually(|| scene.weir.ask("show sess").contains(" srv=s ")));
    scene.weir.ask("shutdown sessions server b/s");
    client.read_to_end();
    let line = scene.line();
    assert!(line.contains(" KC"), "{line}");
}

#[test]
fn client_without_a_request_is_shut_down_too() {
    let scene = Scene::start("", "", "");
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("the port takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(b"GET /x HT").expect("it takes bytes");
    let mut session = None;
    assert!(eventually(|| {
        let shown = scene.weir.ask("show sess");
        let line = shown.lines().find(|line| line.contains(" fe=f ") && line.contains("act=request"));
        session = line.and_then(|line| line.split(':').next()).map(str::to_owned);
        session.is_some()
    }));
    scene.weir.ask(&format!("shutdown session {}", session.expect("the session")));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("it ends");
    let line = scene.line();
    assert!(line.contains(" KR-- "), "{line}");
}
