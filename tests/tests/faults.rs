//! How requests and streams end when something goes wrong: what the client gets, what the log says
//! of it (state at disconnection and timers, manual 8.4 and 8.5), and what the statistics count.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::scene::Scene;
use weir_tests::{Origin, PATIENCE, eventually, free_port};

/// An origin that answers the first bytes of each connection with these and closes.
fn says(bytes: &'static [u8]) -> Origin {
    Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(bytes);
    })
}

#[test]
fn what_goes_wrong_after_the_whole_response_was_received_is_told_as_the_last_data() {
    // The response is there, the request is not.
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
        ("timeout client 100ms", |_| {}, "cL--"),
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

/// A port that takes no connection and refuses none: its backlog is full. The connections keep it
/// so.
fn full_port() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let address = listener.local_addr().expect("a bound socket has an address");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    (listener, waiting)
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
/// The same, and the connection is to be closed afterwards.
const LAST: &str = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn half_a_request_has_its_time_wherever_it_comes() {
    let scene = Scene::start("timeout http-request 100ms", "http-request return status 200", "");
    let half = "GET /y HTTP/1.1\r\nHo";
    assert!(scene.talk(half).starts_with("HTTP/1.1 408 "));
    let answers = scene.talk(&format!("{GET}{half}"));
    assert!(answers.starts_with("HTTP/1.1 200 ") && answers.contains("\r\n\r\nHTTP/1.1 408 "), "{answers}");
}

#[test]
fn a_client_that_ends_its_side_within_a_head_is_told_so() {
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
    let scene =
        Scene::start("option dontlognull\n  timeout http-request 50ms", "http-request return status 200", "");
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)));
    // This one expires.
    assert!(scene.talk("").starts_with("HTTP/1.1 408 "));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 200 "));
    assert_eq!(scene.line(), "f/<NOSRV> 0/-1/-1/-1 200 LR-- 0 GET /x HTTP/1.1");
    let counts = scene.counts("f,FRONTEND", &["ereq", "hrsp_4xx", "req_tot"]);
    assert_eq!(counts, ["ereq=2", "hrsp_4xx=2", "req_tot=3"]);
}

#[test]
fn a_refused_request_is_one_error_of_connecting_however_often_it_was_tried() {
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
fn a_retry_without_redispatch_stays_with_its_server_whatever_failed() {
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
fn a_redispatch_is_no_retry_and_its_cookie_named_a_server_that_was_down() {
    let origin = Origin::text("ok");
    let backend = format!(
        "option redispatch\n  cookie C insert\n  server up 127.0.0.1:{} cookie U\n  server gone 127.0.0.1:{} cookie G",
        origin.port(),
        free_port()
    );
    let scene = Scene::start("timeout connect 20ms", "", &backend);
    let answer = scene.talk(&LAST.replace("\r\n\r\n", "\r\nCookie: C=G\r\n\r\n"));
    assert!(answer.contains("set-cookie: C=U;"), "{answer}");
    let line = scene.line();
    assert!(line.starts_with("b/up ") && line.contains(" 200 --DI +1 "), "{line}");
    let counts = scene.counts("b,gone", &["econ", "wretr", "wredis", "lbtot"]);
    assert_eq!(counts, ["econ=0", "wretr=0", "wredis=1", "lbtot=0"]);
    assert_eq!(scene.counts("b,up", &["lbtot"]), ["lbtot=1"]);
}

#[test]
fn states_of_cookies_are_the_manuals() {
    let origin = Origin::text("ok");
    let backend =
        |more: &str| format!("cookie C insert {more}\n  server s 127.0.0.1:{} cookie B", origin.port());
    let cases = [
        ("\n  use-server s if TRUE", "B", "--UN"),
        // The last server's cookie is for nobody, the first that names one counts.
        ("", "Z; C=B", "--VN"),
        ("\n  option persist\n  server down 127.0.0.1:1 cookie D disabled\n  retries 0", "D", "--D"),
        ("maxidle 10m", "B", "--VU"),
        // A date of zero is none.
        ("maxidle 10m", "B|AAAAA", "--VU"),
        ("maxidle 10m", "B|AAAAB", "--EI"),
        ("maxlife 10m", "B|AAAAB|AAAAB", "--OI"),
        ("\n  ignore-persist if TRUE", "B", "--UN"),
        ("", "Z", "--II"),
        ("", "B", "--VN"),
    ];
    for (settings, value, expected) in cases {
        let scene = Scene::start("", "", &backend(settings));
        scene.talk(&LAST.replace("\r\n\r\n", &format!("\r\nCookie: C={value}\r\n\r\n")));
        let line = scene.line();
        if expected.len() < 4 {
            // Sent to the server that is down, as asked for.
            assert!(line.starts_with("b/down ") && line.contains(" 503 SC"), "{line}");
            assert!(line.contains(&format!(" 503 SC{}", &expected[2..])), "{line}");
            continue;
        }
        assert!(line.contains(&format!(" 200 {expected} ")), "{settings}, {value}: {line}");
    }
}

#[test]
fn a_server_that_talks_nonsense_is_answered_with_502() {
    const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes";
    const WAITING: &str =
        "GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 9\r\n\r\nbody";
    let cases: [(&str, &[u8], &str); 3] = [
        (LAST, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "chunks"),
        (LAST, SWITCHING, "nobody asked"),
        (WAITING, SWITCHING, "the body is not over"),
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
fn rules_on_responses_end_them_as_the_manual_says() {
    let origin = Origin::text("ok");
    // Rule, what the client gets, the line, columns of the frontend and of the backend.
    let cases = [
        (
            "http-response return status 404",
            "HTTP/1.1 404 ",
            "0/0/0/0 404 LH--",
            "intercepted=0",
            "hrsp_4xx=1",
        ),
        ("http-response deny", "HTTP/1.1 502 ", "0/0/0/0 502 PH--", "dresp=1", "dresp=1"),
        ("tcp-response content reject", "", "0/0/0/-1 -1 PD--", "dresp=1", "hrsp_other=1"),
        ("tcp-response content close", "HTTP/1.1 502 ", "0/0/0/-1 502 SH--", "hrsp_5xx=1", "eresp=1"),
    ];
    for (rule, answered, logged, of_frontend, of_backend) in cases {
        let scene = Scene::start("", "", &format!("{rule}\n  server s 127.0.0.1:{}", origin.port()));
        let answer = scene.talk(LAST);
        assert!(
            answer.starts_with(answered) && answer.is_empty() == answered.is_empty(),
            "{rule}: {answer:?}"
        );
        assert_eq!(scene.line(), format!("b/s {logged} 0 GET /x HTTP/1.1"), "{rule}");
        for (line, expected) in [("f,FRONTEND", of_frontend), ("b,BACKEND", of_backend)] {
            let column = expected.split('=').next().expect("a name");
            assert_eq!(scene.counts(line, &[column]), [expected], "{rule}");
        }
        let counts = scene.counts("b,BACKEND", &["hrsp_2xx"]);
        assert_eq!(counts, ["hrsp_2xx=0"], "{rule}: the client did not get what the server said");
    }
}

#[test]
fn a_request_that_nobody_answers_counts_among_the_other_codes() {
    let scene = Scene::start("", "http-request reject", "");
    assert_eq!(scene.talk(LAST), "");
    let counts = scene.counts("f,FRONTEND", &["hrsp_other", "dreq", "req_tot"]);
    assert_eq!(counts, ["hrsp_other=1", "dreq=1", "req_tot=1"]);
}

#[test]
fn what_a_backend_denies_counts_there_too_and_no_server_is_an_error_of_the_backend() {
    let scene = Scene::start("", "", "http-request deny if { path /x }");
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 403 "));
    assert!(scene.talk(&LAST.replace("/x", "/y")).starts_with("HTTP/1.1 503 "));
    let counts = scene.counts("b,BACKEND", &["dreq", "econ", "req_tot"]);
    assert_eq!(counts, ["dreq=1", "econ=1", "req_tot=2"]);
}

#[test]
fn a_server_that_redirects_is_not_reached() {
    let scene = Scene::start("", "", "server s 192.0.2.1:80 redir http://other");
    let answer = scene.talk(LAST);
    assert!(answer.contains("location: http://other/x\r\n"), "{answer}");
    assert_eq!(scene.line(), "b/s 0/0/-1/-1 302 LC-- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("b,s", &["stot", "connect"]), ["stot=1", "connect=0"]);
    assert_eq!(scene.counts("f,FRONTEND", &["intercepted"]), ["intercepted=0"]);
}

#[test]
fn a_client_that_leaves_a_tarpit_frees_its_place() {
    let scene = Scene::start("timeout tarpit 60s", "http-request tarpit", "");
    Client::connect(scene.port).send(GET);
    let line = scene.line_with_times();
    assert!(line.starts_with("f/<NOSRV> -1/") && line.ends_with(" -1 CT-- 0 GET /x HTTP/1.1"), "{line}");
}

#[test]
fn a_tarpitted_client_may_go_on() {
    let scene = Scene::start(
        "timeout tarpit 1s",
        "http-request tarpit if { path /x }\n  http-request return status 200",
        "",
    );
    let mut client = Client::connect(scene.port);
    assert_eq!(client.send(GET).response().map(|answer| answer.status), Some(500));
    let line = scene.line_with_times();
    assert!(line.starts_with("f/<NOSRV> -1/"), "{line}");
    let waited: u32 =
        line.split('/').nth(2).and_then(|text| text.parse().ok()).expect("the time in the tarpit");
    // Timers have a grain of a millisecond: the last one may have begun before the clock of the log
    // said so.
    assert!((999..20_000).contains(&waited) && line.ends_with(" 500 PT-- 0 GET /x HTTP/1.1"), "{line}");
    assert_eq!(client.send(GET.replace("/x", "/y")).response().map(|answer| answer.status), Some(200));
}

#[test]
fn a_rejected_stream_ends_and_is_not_reset() {
    let refused = format!("server s 127.0.0.1:{}", free_port());
    let cases = [
        ("", "", "SC"),
        ("tcp-request inspect-delay 20s\n  tcp-request content reject if { req.len gt 0 }", "", "PR"),
        ("", refused.as_str(), "SC"),
    ];
    for (frontend, backend, expected) in cases {
        let scene = Scene::start("mode tcp\n  timeout connect 20ms", frontend, backend);
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("the port takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.write_all(b"hello").expect("it takes bytes");
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        // Without a rule to wait for them the bytes may come after the end.
        if !frontend.is_empty() || !backend.is_empty() {
            assert_eq!(ended, Ok(0), "{frontend}{backend}");
            assert_eq!(scene.counts("f,FRONTEND", &["bin"]), ["bin=5"], "{frontend}{backend}");
        }
        let line = scene.line();
        assert!(line.contains(&format!(" {expected}-- ")), "{line}");
    }
}

#[test]
fn a_half_closed_stream_has_the_time_of_its_own_timeout() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        // Its end is not answered.
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
fn a_client_that_leaves_ends_the_attempt_to_connect_with_abortonclose() {
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
fn a_client_that_owes_the_rest_is_blamed_while_a_server_is_being_reached() {
    let (full, _waiting) = full_port();
    let backend = format!("server s 127.0.0.1:{}", full.local_addr().expect("an address").port());
    let part = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";
    let chunks = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let ended = format!("{chunks}0\r\n\r\n");
    let (patient, hasty) =
        ("timeout client 50ms\n  timeout connect 1h", "timeout client 50ms\n  timeout connect 200ms");
    let cases = [
        (patient, part, " 400 cC-- "),
        (patient, chunks, " 400 cC-- "),
        (hasty, LAST, " 503 sC-- "),
        (hasty, &format!("{part} more"), " 503 sC-- "),
        (hasty, &ended, " 503 sC-- "),
        ("mode tcp\n  timeout client 50ms\n  timeout connect 200ms", "", " cC-- "),
        ("mode tcp\n  timeout client 50ms\n  timeout connect 200ms", "hello", " sC-- "),
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
        let times = format!("mode {mode}\n  timeout server 100ms\n  timeout client-fin 100ms");
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
fn a_client_that_keeps_silent_while_rules_wait_for_it_is_late() {
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
            &format!("mode {mode}\n  timeout client 50ms"),
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
fn a_client_that_has_sent_a_long_body_is_not_blamed_for_a_silent_server() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let scene = Scene::start(
        "timeout client 50ms\n  timeout server 300ms",
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
fn who_has_said_all_in_tcp_is_served_whatever_it_takes_to_reach_a_server() {
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
    // Who asked for a tunnel in HTTP is not waited for, until there is one.
    let scene = Scene::start("timeout connect 1h", "", &format!("server s 127.0.0.1:{port}"));
    let mut client = Client::connect(scene.port);
    client.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").shut();
    assert!(client.read_to_end().is_empty());
    let line = scene.line();
    assert!(line.contains(" CC-- "), "{line}");
}

#[test]
fn who_asked_for_a_tunnel_and_ended_its_side_gets_all_of_a_refusal() {
    let origin = Origin::raw(|mut stream| {
        let mut head = [0; 1000];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.1 401 Who\r\nContent-Length: 4\r\n\r\nab");
        // A client that left would be noticed meanwhile.
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
    /// It closes its side, and reads on.
    Half,
    /// It resets its connection: what it was sent is unread.
    Reset,
}

#[test]
fn a_client_that_leaves_a_server_at_work_ends_the_request_and_the_server_is_reset() {
    use Leaving::{Half, Reset};
    // What the client has seen before it leaves: an interim response, or half a final one.
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
            // A closed side may be told before the reset.
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
fn a_half_closed_client_gets_its_response_where_its_leaving_is_no_abort() {
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
fn a_connection_dropped_silently_is_not_ended_for_its_client() {
    // Without the privilege to repair sockets a reset leaves instead, whose one hop is enough here.
    let quiet = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask >> 12 & 1 == 1)
    });
    let rules = [
        ("mode tcp", "tcp-request connection silent-drop"),
        ("mode tcp", "tcp-request inspect-delay 20s\n  tcp-request content silent-drop if { req.len gt 0 }"),
        ("", "http-request silent-drop"),
        ("", "http-request silent-drop rst-ttl 2"),
    ];
    for (defaults, rule) in rules {
        let scene = Scene::start(defaults, rule, "");
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, scene.port)).expect("the port takes connections");
        // The connection may be gone already.
        let _ = stream.write_all(GET.as_bytes());
        assert!(eventually(|| scene.counts("f,FRONTEND", &["conn_tot", "scur"]) == ["conn_tot=1", "scur=0"]));
        stream.set_nonblocking(true).expect("a socket");
        let quietly = quiet && !rule.contains("rst-ttl");
        let mut seen = stream.read(&mut [0; 64]).map_err(|error| error.kind());
        if !quietly {
            assert!(eventually(|| {
                if seen == Err(std::io::ErrorKind::WouldBlock) {
                    seen = stream.read(&mut [0; 64]).map_err(|error| error.kind());
                }
                seen != Err(std::io::ErrorKind::WouldBlock)
            }));
            assert_eq!(seen, Err(std::io::ErrorKind::ConnectionReset), "{rule}");
        } else if rule.contains("tcp-request connection") {
            // What it sent after the end is answered with a reset by the kernel.
            assert_ne!(seen, Ok(0), "{rule}");
        } else {
            assert_eq!(seen, Err(std::io::ErrorKind::WouldBlock), "{rule}");
        }
    }
}

#[test]
fn an_error_is_logged_and_counted_as_such_whatever_its_page_says() {
    for page in ["errorloc 503 http://other/", "errorfile 503 /dev/null"] {
        let scene = Scene::start(page, "", "");
        let answer = scene.talk(LAST);
        let redirected = answer.starts_with("HTTP/1.1 302 ");
        assert!(
            redirected == page.starts_with("errorloc") && redirected != answer.is_empty(),
            "{page}: {answer:?}"
        );
        assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 503 SC-- 0 GET /x HTTP/1.1", "{page}");
        for line in ["f,FRONTEND", "b,BACKEND"] {
            let counts = scene.counts(line, &["hrsp_3xx", "hrsp_5xx", "hrsp_other"]);
            assert_eq!(counts, ["hrsp_3xx=0", "hrsp_5xx=1", "hrsp_other=0"], "{page}: {line}");
        }
    }
}

#[test]
fn services_stand_in_the_servers_place() {
    let cases = [
        ("stats enable\n  stats uri /x", "f/<STATS>"),
        ("http-request use-service prometheus-exporter", "f/<PROMEX>"),
    ];
    for (lines, named) in cases {
        let scene = Scene::start("", lines, "");
        assert!(scene.talk(LAST).starts_with("HTTP/1.1 200 "), "{lines}");
        assert_eq!(scene.line(), format!("{named} 0/0/0/0 200 LR-- 0 GET /x HTTP/1.1"));
    }
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
fn a_rule_chooses_the_server_before_cookies_do_and_no_cookie_tells_of_it() {
    let (first, second) = (Origin::text("first"), Origin::text("second"));
    let servers = format!(
        "cookie C insert\n  server first 127.0.0.1:{} cookie F\n  server second 127.0.0.1:{} cookie S",
        first.port(),
        second.port()
    );
    let scene = Scene::start(
        "",
        "",
        &format!(
            "use-server %[req.hdr(x-server)] if {{ req.hdr(x-server) -m found }}\n  use-server second if {{ path /x }}\n  {servers}"
        ),
    );
    let with = |fields: &str| scene.talk(&LAST.replace("\r\n\r\n", &format!("\r\n{fields}\r\n")));
    let answer = with("Cookie: C=F\r\n");
    assert!(answer.ends_with("second") && !answer.contains("set-cookie"), "{answer}");
    assert!(scene.line().contains(" 200 --UN "));
    let answer = with("");
    assert!(answer.ends_with("second") && !answer.contains("set-cookie"), "{answer}");
    assert!(scene.line().contains(" 200 --NN "));
    // A name that is no server's ends the search: the cookie chooses.
    let answer = with("X-Server: none\r\nCookie: C=F\r\n");
    assert!(answer.ends_with("first"), "{answer}");
    assert!(scene.line().contains(" 200 --VN "));
}

#[test]
fn a_request_that_may_not_be_sent_again_is_not() {
    let origin = says(b"");
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

#[test]
fn a_status_that_a_rule_sets_is_the_one_that_is_logged_and_counted() {
    let origin = Origin::text("ok");
    for rule in ["http-response set-status 418", "http-after-response set-status 418"] {
        let scene = Scene::start("", "", &format!("{rule}\n  server s 127.0.0.1:{}", origin.port()));
        assert!(scene.talk(LAST).starts_with("HTTP/1.1 418 "));
        assert_eq!(scene.line(), "b/s 0/0/0/0 418 ---- 0 GET /x HTTP/1.1", "{rule}");
        for line in ["f,FRONTEND", "b,BACKEND"] {
            assert_eq!(
                scene.counts(line, &["hrsp_2xx", "hrsp_4xx"]),
                ["hrsp_2xx=0", "hrsp_4xx=1"],
                "{rule}: {line}"
            );
        }
        // What the server said counts for the server.
        assert_eq!(scene.counts("b,s", &["hrsp_2xx"]), ["hrsp_2xx=1"], "{rule}");
    }
}

#[test]
fn a_client_that_leaves_while_its_body_is_waited_for_sent_half_a_request() {
    let scene = Scene::start("option http-buffer-request", "", "server s 127.0.0.1:1");
    Client::connect(scene.port).send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 400 CR-- 0 POST /x HTTP/1.1");
    let scene =
        Scene::start("option http-buffer-request\n  timeout http-request 50ms", "", "server s 127.0.0.1:1");
    let mut client = Client::connect(scene.port);
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(client.response().map(|answer| answer.status), Some(408));
    assert_eq!(scene.line(), "f/<NOSRV> -1/-1/-1/-1 408 cR-- 0 POST /x HTTP/1.1");
}

#[test]
fn a_connection_that_is_reset_is_told_by_the_side_that_it_is_of() {
    // A socket closed with something unread resets its connection.
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

/// `option redispatch …`, the request's cookie, attempts, the line, counts.
type Redispatch = (&'static str, &'static str, [u32; 3], &'static str, [u32; 3]);

/// `option redispatch …`, the request's cookie, and what HAProxy makes of five retries among three
/// servers that are gone: how many attempts each saw, what the line says, and of the backend
/// `wretr`, `wredis` and `lbtot`.
#[rustfmt::skip]
const REDISPATCHES: &[Redispatch] = &[
    ("",                                    "",  [6, 0, 0], "b/a SCNN 5",  [5, 0, 1]),
    ("option redispatch 0",                 "",  [6, 0, 0], "b/a SCNN 5",  [5, 0, 1]),
    // Nothing binds it: another at once.
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
fn retries_go_from_server_to_server_as_redispatch_says() {
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

#[test]
fn odd_names_of_fields_are_refused_where_the_option_stands() {
    let odd = "GET /x HTTP/1.1\r\nHost: h\r\nX_Y: 1\r\nConnection: close\r\n\r\n";
    let reject = "option http-restrict-req-hdr-names reject";
    let scene = Scene::start("", reject, "server s 127.0.0.1:1");
    assert!(scene.talk(odd).starts_with("HTTP/1.1 403 "));
    assert_eq!(scene.line(), "f/<NOSRV> 0/-1/-1/-1 403 PR-- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("f,FRONTEND", &["dreq"]), ["dreq=1"]);
    assert_eq!(scene.counts("b,BACKEND", &["stot"]), ["stot=0"]);
    let scene = Scene::start("", "", &format!("{reject}\n  server s 127.0.0.1:1"));
    assert!(scene.talk(odd).starts_with("HTTP/1.1 403 "));
    assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 403 PR-- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("b,BACKEND", &["dreq"]), ["dreq=1"]);
    let delete = "option http-restrict-req-hdr-names delete\n  http-request return status 418 if { req.hdr(x_y) -m found }\n  \
                  http-request return status 200";
    let scene = Scene::start("", delete, "");
    assert!(scene.talk(odd).starts_with("HTTP/1.1 200 "), "rules do not see it either");
}

#[test]
fn an_error_file_is_sent_as_it_is_and_logged_as_the_status_of_its_rule() {
    let file = weir_tests::scratch("errorfile").file("gone.http");
    std::fs::write(&file, "HTTP/1.1 503 Gone away\r\nContent-Length: 3\r\n\r\nbye").expect("a file");
    for (rule, logged) in [
        ("return status 429 errorfile", "429 LR"),
        ("return errorfile", "200 LR"),
        ("deny status 404 errorfile", "404 PR"),
        ("deny errorfile", "403 PR"),
    ] {
        let scene = Scene::start("", &format!("http-request {rule} {}", file.display()), "");
        assert!(scene.talk(LAST).starts_with("HTTP/1.1 503 Gone away\r\n"), "{rule}");
        assert_eq!(scene.line(), format!("f/<NOSRV> 0/-1/-1/-1 {logged}-- 0 GET /x HTTP/1.1"), "{rule}");
    }
}
