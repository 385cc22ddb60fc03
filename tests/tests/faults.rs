//! How requests end whose server is late, lies or leaves, that wait for a server, and that are ended
//! from outside: what the client gets, what the log says of it (state at disconnection and timers,
//! manual 8.4 and 8.5), and what the statistics count.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use weir_tests::client::Client;
use weir_tests::scene::{GET, LAST, Scene};
use weir_tests::{Origin, PATIENCE, eventually};

/// An origin that answers the first bytes of each connection with these and closes.
fn says(bytes: &'static [u8]) -> Origin {
    Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(bytes);
    })
}

#[test]
fn half_a_head_is_an_invalid_response_and_none_is_a_server_that_left() {
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
fn who_gives_up_waiting_is_in_nobodys_way() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let server = format!("timeout queue 300ms\n  server s 127.0.0.1:{} maxconn 1", origin.port());
    let scene = Scene::start("", "log-format \"%ST %tsc %bq\"", &server);
    let mut first = Client::connect(scene.port);
    first.send(GET);
    assert!(eventually(|| scene.counts("b,s", &["scur"]) == ["scur=1"]));
    let mut others = [Client::connect(scene.port), Client::connect(scene.port)];
    for client in &mut others {
        client.send(LAST);
    }
    for client in &mut others {
        client.read_to_end();
    }
    let line = || scene.line_with_times();
    assert_eq!([line(), line()], ["503 sQ-- 1", "503 sQ-- 1"]);
}

#[test]
fn a_server_that_talks_nonsense_is_answered_with_502() {
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
        let origin = says(response);
        let scene = Scene::start("", "", &format!("server s 127.0.0.1:{}", origin.port()));
        // Who still owes a body need not send it.
        let answer = Client::connect(scene.port).send(request).response();
        assert_eq!(answer.map(|answer| answer.status), Some(502), "{why}");
        assert_eq!(scene.line(), "b/s 0/0/0/-1 502 PH-- 0 GET /x HTTP/1.1", "{why}");
        let counts = scene.counts("b,BACKEND", &["eresp", "hrsp_1xx", "hrsp_2xx", "hrsp_5xx"]);
        assert_eq!(counts, ["eresp=1", "hrsp_1xx=0", "hrsp_2xx=0", "hrsp_5xx=1"], "{why}");
    }
}

#[test]
fn a_server_that_keeps_silent_while_rules_look_at_its_answer_is_late() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let (part, whole) = (format!("{head}he"), format!("{head}hello"));
    let accept = "tcp-response content accept if WAIT_END";
    // The mode, how long is looked, the rule, what the server says, what comes of it.
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
fn a_client_that_has_sent_a_long_body_is_not_blamed_for_a_silent_server() {
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

#[test]
fn show_errors_names_the_server_and_finds_a_response_by_either_proxy() {
    let origin = says(b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n");
    let scene = Scene::start("", "", &format!("server s 127.0.0.1:{}", origin.port()));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 502 "));
    for proxy in ["f", "b", "f response"] {
        let shown = scene.weir.ask(&format!("show errors {proxy}"));
        assert!(shown.contains("backend b (#3): invalid response\n"), "{proxy}: {shown}");
        assert!(shown.contains("  frontend f (#2), server s (#1), "), "{proxy}: {shown}");
    }
    assert!(!scene.weir.ask("show errors f request").contains("invalid response"));
}

/// Whoever ends sessions from outside closes them at once: no answer is made up for the client.
#[test]
fn sessions_that_are_ended_from_outside_close_at_once() {
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
fn a_client_that_has_not_asked_yet_is_shut_down_too() {
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

#[test]
fn a_server_counts_as_chosen_when_the_balancer_named_it_whether_it_was_reached_or_not() {
    for (algorithm, chosen) in [("roundrobin", "lbtot=1"), ("uri", "lbtot=3")] {
        let origin = Origin::raw(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            // Nothing is said until the other side leaves.
            let _ = stream.read(&mut [0; 4096]);
        });
        let backend = format!("balance {algorithm}\n  server s 127.0.0.1:{} maxconn 1", origin.port());
        let scene = Scene::start("", "", &backend);
        let clients = [(); 3].map(|()| {
            let mut client = Client::connect(scene.port);
            client.send(GET);
            client
        });
        let waiting =
            || scene.counts("b,s", &["qcur"]).concat() + &scene.counts("b,BACKEND", &["qcur"]).concat();
        assert!(eventually(|| waiting().contains('2')), "{}", waiting());
        assert_eq!(
            scene.counts("b,s", &["lbtot"]),
            [chosen],
            "{algorithm}: those in the backend's queue wait for any"
        );
        drop(clients);
    }
}
