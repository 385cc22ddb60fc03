//! Clients that leave, are late or send half a message: the response, the log line (termination state and timers, manual 8.4 and
//! 8.5), and the statistics.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::log_scene::{GET, GET_ROOT, LAST, Scene, scene};
use weir_tests::{Origin, PATIENCE, eventually, free_port, full_port};

#[test]
fn errors_after_the_complete_response_have_state_l() {
    // The response has arrived, the request has not.
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let begun = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
    type Way = fn(&mut Client);
    let ways: [(&str, Way, &str); 3] = [
        (
            "",
            |client| {
                client.shut();
            },
            "CL--",
        ),
        (
            "",
            |client| {
                client.send("ZZ\r\n");
            },
            "PL--",
        ),
        ("timeout client 500ms", |_| {}, "cL--"),
    ];
    for (defaults, way, letters) in ways {
        let scene = Scene::start(defaults, "", &format!("server s 127.0.0.1:{}", origin.port()));
        let mut client = Client::connect(scene.port);
        assert_eq!(client.send(begun).response().map(|answer| answer.status), Some(200));
        way(&mut client);
        client.read_to_end();
        assert_eq!(scene.line(), format!("b/s 0/0/0/0 200 {letters} 0 POST /x HTTP/1.1"));
    }
}

#[test]
fn half_a_request_times_out_at_any_position() {
    let scene = Scene::start("timeout http-request 100ms", "http-request return status 200", "");
    let half = "GET /y HTTP/1.1\r\nHo";
    assert!(scene.talk(half).starts_with("HTTP/1.1 408 "));
    let answers = scene.talk(&format!("{GET}{half}"));
    assert!(answers.starts_with("HTTP/1.1 200 ") && answers.contains("\r\n\r\nHTTP/1.1 408 "), "{answers}");
}

#[test]
fn half_close_within_a_head_gets_400() {
    let scene = Scene::start("", "", "");
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("the port takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(b"GET /x HT").and_then(|()| stream.shutdown(Shutdown::Write)).expect("it takes bytes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    assert_eq!(scene.line(), "f/<NOSRV> -1/-1/-1/-1 400 CR-- 0 <BADREQ>");
    let counts = scene.counts("f,FRONTEND", &["ereq", "hrsp_4xx", "req_tot"]);
    assert_eq!(counts, ["ereq=1", "hrsp_4xx=1", "req_tot=1"]);
}

#[test]
fn connections_without_a_byte_are_counted_but_not_logged_with_dontlognull() {
    let scene = Scene::start(
        "option dontlognull\n  timeout http-request 500ms",
        "http-request return status 200",
        "",
    );
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)));
    // This client's timeout expires.
    assert!(scene.talk("").starts_with("HTTP/1.1 408 "));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 200 "));
    assert_eq!(scene.line(), "f/<NOSRV> 0/-1/-1/-1 200 LR-- 0 GET /x HTTP/1.1");
    let counts = scene.counts("f,FRONTEND", &["ereq", "hrsp_4xx", "req_tot"]);
    assert_eq!(counts, ["ereq=2", "hrsp_4xx=2", "req_tot=3"]);
}

#[test]
fn client_leaving_a_tarpit_frees_its_slot() {
    let scene = Scene::start("timeout tarpit 60s", "http-request tarpit", "");
    Client::connect(scene.port).send(GET);
    let line = scene.line_with_times();
    assert!(line.starts_with("f/<NOSRV> -1/") && line.ends_with(" -1 CT-- 0 GET /x HTTP/1.1"), "{line}");
}

#[test]
fn half_closed_stream_ends_by_the_fin_timeout_of_its_side() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        // The server does not react to the end of the client's side.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        std::thread::park_timeout(PATIENCE);
    });
    let scene = Scene::start(
        "mode tcp\n  timeout server-fin 100ms\n  timeout client-fin 50s",
        "",
        &format!("server s 127.0.0.1:{}", origin.port()),
    );
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("the port takes connections");
    stream.write_all(b"hello").and_then(|()| stream.shutdown(Shutdown::Write)).expect("it takes bytes");
    let line = scene.line();
    assert!(line.contains(" sD-- "), "{line}");
    assert_eq!(scene.counts("b,s", &["srv_abrt"]), ["srv_abrt=1"]);
}

#[test]
fn client_abort_ends_connecting_with_abortonclose() {
    let (full, _waiting) = full_port();
    let backend = format!("server s 127.0.0.1:{}", full.local_addr().expect("an address").port());
    for defaults in ["mode tcp\n  option abortonclose", ""] {
        let scene = Scene::start(defaults, "", &backend);
        Client::connect(scene.port).send(GET);
        let line = scene.line();
        assert!(line.starts_with("b/s ") && line.contains(" CC-- "), "{line}");
    }
}

#[test]
fn slow_request_body_is_blamed_while_connecting() {
    let (full, _waiting) = full_port();
    let backend = format!("server s 127.0.0.1:{}", full.local_addr().expect("an address").port());
    let part = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";
    let chunks = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let ended = format!("{chunks}0\r\n\r\n");
    let (patient, hasty) =
        ("timeout client 300ms\n  timeout connect 1h", "timeout client 300ms\n  timeout connect 1s");
    let cases = [
        (patient, part, " 400 cC-- "),
        (patient, chunks, " 400 cC-- "),
        (hasty, LAST, " 503 sC-- "),
        (hasty, &format!("{part} more"), " 503 sC-- "),
        (hasty, &ended, " 503 sC-- "),
        ("mode tcp\n  timeout client 300ms\n  timeout connect 1s", "", " cC-- "),
        ("mode tcp\n  timeout client 300ms\n  timeout connect 1s", "hello", " sC-- "),
    ];
    for (timeouts, bytes, logged) in cases {
        let scene = Scene::start(&format!("retries 0\n  {timeouts}"), "", &backend);
        let mut client = Client::connect(scene.port);
        client.send(bytes);
        let line = scene.line();
        assert!(line.contains(logged), "{timeouts} {bytes}: {line}");
    }
}

#[test]
fn client_silence_while_rules_wait_is_a_timeout() {
    let part = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";
    let (accept, reject) =
        ("tcp-request content accept if WAIT_END", "tcp-request content reject if WAIT_END");
    let cases = [
        ("tcp", accept, "", "b/<NOSRV> ", " cR-- ", ""),
        ("tcp", accept, "hello", "b/<NOSRV> ", " cR-- ", ""),
        ("tcp", reject, "hello", "f/<NOSRV> ", " PR-- ", ""),
        ("http", accept, part, "b/<NOSRV> ", " 400 cR-- ", "HTTP/1.1 400 "),
        ("http", reject, part, "f/<NOSRV> ", " PR-- ", ""),
    ];
    for (mode, rule, bytes, place, logged, answer) in cases {
        let scene = Scene::start(
            &format!("mode {mode}\n  timeout client 300ms"),
            &format!("tcp-request inspect-delay 1h\n  {rule}"),
            "server s 127.0.0.1:1",
        );
        let mut client = Client::connect(scene.port);
        client.send(bytes);
        let got = String::from_utf8(client.read_to_end()).expect("text");
        assert!(
            got.starts_with(answer) && got.is_empty() == answer.is_empty(),
            "{mode} {rule} {bytes}: {got}"
        );
        let line = scene.line();
        assert!(line.starts_with(place) && line.contains(logged), "{mode} {rule} {bytes}: {line}");
    }
}

#[test]
fn half_closed_tcp_client_is_served_after_slow_connect() {
    let port = free_port();
    let scene = Scene::start(
        "mode tcp\n  timeout connect 200ms\n  retries 1",
        "",
        &format!("server s 127.0.0.1:{port}"),
    );
    let mut client = Client::connect(scene.port);
    client.send("hello").shut();
    assert!(client.read_to_end().is_empty());
    let line = scene.line();
    assert!(line.contains(" SC-- 1 "), "{line}");
    // A client that requested a tunnel over HTTP and closed its sending side is not waited for until the tunnel exists.
    let scene = Scene::start("timeout connect 1h", "", &format!("server s 127.0.0.1:{port}"));
    let mut client = Client::connect(scene.port);
    client.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").shut();
    assert!(client.read_to_end().is_empty());
    let line = scene.line();
    assert!(line.contains(" CC-- "), "{line}");
}

#[test]
fn half_closed_connect_client_gets_the_whole_refusal() {
    let origin = Origin::raw(|mut stream| {
        let mut head = [0; 1000];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.1 401 Who\r\nContent-Length: 4\r\n\r\nab");
        // The time in which an abort of the client would be noticed.
        std::thread::sleep(Duration::from_millis(200));
        let _ = stream.write_all(b"cd");
    });
    let scene = Scene::start("", "", &format!("server s 127.0.0.1:{}", origin.port()));
    let mut client = Client::connect(scene.port);
    client.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").shut();
    assert!(client.read_to_end().ends_with(b"\r\n\r\nabcd"));
    let line = scene.line();
    assert!(line.contains(" 401 ---- "), "{line}");
}

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leaving {
    /// The client closes its sending side, and continues to read.
    Half,
    /// The client resets its connection, by leaving received bytes unread.
    Reset,
}

#[test]
fn client_abort_resets_the_working_server() {
    use Leaving::{Half, Reset};
    // What the client has received before it leaves: an interim response, or half a final one.
    let (thinks, speaks) =
        ("HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    let never = "no option abortonclose";
    let cases = [
        ("", thinks, Half, "0/0/0/-1 400 CH-- 0 GET", "HTTP/1.1 400 "),
        ("", thinks, Reset, "0/0/0/-1 400 CD-- 0 GET", ""),
        ("", speaks, Half, "0/0/0/0 200 CD-- 0 GET", "half"),
        ("", speaks, Reset, "0/0/0/0 200 CD-- 0 GET", ""),
        (never, thinks, Reset, "0/0/0/-1 400 CD-- 0 GET", ""),
        (never, speaks, Reset, "0/0/0/0 200 CD-- 0 GET", ""),
    ];
    for (lines, said, leaving, logged, last) in cases {
        let (report, ended) = std::sync::mpsc::channel();
        let origin = Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(said.as_bytes());
            let end = stream.read(&mut [0; 64]).map_err(|error| error.kind());
            // The end of the stream may be seen before the reset.
            let reset = end == Err(std::io::ErrorKind::ConnectionReset)
                || eventually(|| stream.write_all(b"x").is_err());
            let _ = report.send(reset);
        });
        let scene = Scene::start("", "", &format!("{lines}\n  server s 127.0.0.1:{}", origin.port()));
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("the port takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.write_all(GET.as_bytes()).expect("it takes bytes");
        assert!(stream.peek(&mut [0; 1]).is_ok(), "{lines} {leaving:?}");
        let mut rest = String::new();
        if leaving == Half {
            stream.shutdown(Shutdown::Write).expect("a socket");
            let _ = stream.read_to_string(&mut rest);
        }
        drop(stream);
        let line = scene.line();
        assert_eq!(line, format!("b/s {logged} /x HTTP/1.1"), "{lines} {said} {leaving:?}");
        assert!(rest.contains(last), "{lines}: {rest}");
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(true), "{lines} {said} {leaving:?}");
        for line in ["b,s", "b,BACKEND"] {
            let counts = scene.counts(line, &["cli_abrt", "srv_abrt", "eresp"]);
            assert_eq!(counts, ["cli_abrt=1", "srv_abrt=0", "eresp=0"], "{lines} {said} {leaving:?}");
        }
    }
}

#[test]
fn half_closed_client_gets_a_response_without_abortonclose() {
    let gate = std::sync::Arc::new(std::sync::Barrier::new(2));
    let opened = gate.clone();
    let origin = Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        opened.wait();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let scene =
        Scene::start("", "", &format!("no option abortonclose\n  server s 127.0.0.1:{}", origin.port()));
    let mut client = Client::connect(scene.port);
    client.send(GET).shut();
    gate.wait();
    assert!(String::from_utf8_lossy(&client.read_to_end()).ends_with("\r\n\r\nok"));
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 ---- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("b,s", &["cli_abrt"]), ["cli_abrt=0"]);
}

#[test]
fn client_abort_while_waiting_for_body_is_a_bad_request() {
    let scene = Scene::start("option http-buffer-request", "", "server s 127.0.0.1:1");
    Client::connect(scene.port).send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 400 CR-- 0 POST /x HTTP/1.1");
    let scene =
        Scene::start("option http-buffer-request\n  timeout http-request 500ms", "", "server s 127.0.0.1:1");
    let mut client = Client::connect(scene.port);
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(client.response().map(|answer| answer.status), Some(408));
    assert_eq!(scene.line(), "f/<NOSRV> -1/-1/-1/-1 408 cR-- 0 POST /x HTTP/1.1");
}

#[test]
fn connection_resets_are_logged_with_their_side() {
    // Closing a socket with unread bytes resets its connection.
    let origin = Origin::raw(|mut stream| {
        let mut buffer = [0; 4096];
        let length = stream.peek(&mut buffer).unwrap_or(0);
        if buffer[..length].starts_with(b"GET /more ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
            while stream.write_all(&[b'x'; 65_536]).is_ok() {}
        }
    });
    let frontend = "log-format \"%HU %[fc_err_name] %[bc_err_name] %ts\"";
    let scene = Scene::start("", frontend, &format!("retries 0\n  server s 127.0.0.1:{}", origin.port()));
    assert!(
        scene.talk("GET /head HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 502 ")
    );
    assert_eq!(scene.line_with_times(), "/head - ERESET SH");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("a connection");
    stream.write_all(b"GET /more HTTP/1.1\r\nHost: h\r\n\r\n").expect("a request");
    let _ = stream.peek(&mut [0; 4096]);
    drop(stream);
    assert_eq!(scene.line_with_times(), "/more ERESET - CD");
}

#[test]
fn leaving_within_a_body_is_a_client_abort() {
    let origin = Origin::text("ok");
    let scene = scene("option http-buffer-request", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi").shut().read_to_end();
    assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 400 CR-- 0 POST / HTTP/1.1");
    assert_eq!(scene.counts("b,BACKEND", &["cli_abrt"]), ["cli_abrt=1"]);
    assert_eq!(scene.counts("f,FRONTEND", &["ereq"]), ["ereq=0"]);
}

/// A connection that breaks while rules wait for bytes is not forwarded.
#[test]
fn connection_broken_while_rules_wait_reaches_no_server() {
    let origin = Origin::text("ok");
    let rules = "log-format \"%s %ts\"\n  tcp-request inspect-delay 600s\n  \
        tcp-request content accept if { req.len gt 100 }";
    let scene = scene("mode tcp", rules, "", &origin, "");
    let mut client = TcpStream::connect(("127.0.0.1", scene.port)).expect("the port listens");
    client.write_all(b"x").expect("the connection stands");
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(client);
    assert_eq!((scene.line_with_times().as_str(), origin.connections()), ("<NOSRV> CR", 0));
}

#[test]
fn silent_client_that_leaves_is_not_waited_for() {
    let refused = free_port();
    let scene = Scene::start(
        "mode tcp\n  retries 50",
        "log-format \"%s %ts\"",
        &format!("server s 127.0.0.1:{refused}"),
    );
    drop(Client::connect(scene.port));
    assert_eq!(scene.line_with_times(), "s CC");
}

/// A client that half-closed still receives a body that ends with the connection, and a tunnel.
#[test]
fn half_closed_client_still_receives() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhead ");
        // The client's end of stream is not forwarded, so this read times out.
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("not zero");
        let _ = stream.read(&mut bytes);
        let _ = stream.write_all(b"and tail");
    });
    let scene = scene("", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    assert!(client.send(GET_ROOT).read_head().contains(" 200 "));
    let rest = client.shut().read_to_end();
    assert!(rest.ends_with(b"and tail"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 ---- 0 GET / HTTP/1.1");
}

/// While rules wait for more of the server's bytes, the client's end of the stream reaches the server, which answers only then.
#[test]
fn half_closed_client_is_answered_while_rules_inspect_the_answer() {
    let origin = Origin::raw(|mut stream| {
        let mut request = Vec::new();
        let _ = stream.read_to_end(&mut request);
        let _ = stream.write_all(&request);
    });
    let rules = "tcp-response inspect-delay 1h\n  tcp-response content reject if { res.len gt 50 }";
    let backend = format!("{rules}\n  server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("mode tcp", "log-format \"%s %ts\"", &backend);
    assert_eq!(Client::connect(scene.port).send("echo").shut().read_to_end(), b"echo");
    assert_eq!(scene.line_with_times(), "s --");
}

#[test]
fn silent_client_times_out_while_rules_inspect_the_answer() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let rules = "tcp-response inspect-delay 1h\n  tcp-response content reject if { res.len gt 50 }";
    let backend = format!("{rules}\n  server s 127.0.0.1:{}", origin.port());
    let scene = Scene::start("mode tcp\n  timeout client 300ms", "log-format \"%s %ts\"", &backend);
    let mut client = Client::connect(scene.port);
    assert_eq!(client.send("x").read_to_end(), b"");
    assert_eq!(scene.line_with_times(), "s cD");
}
