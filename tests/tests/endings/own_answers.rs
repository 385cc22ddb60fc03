//! Requests and streams that the program itself answers or ends, by rules, options, services and error pages: the response, the log
//! line (manual, 8.5), and the statistics.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use weir_tests::client::Client;
use weir_tests::log_scene::{GET, LAST, Scene};
use weir_tests::{Origin, PATIENCE, eventually, free_port};

#[test]
fn response_rules_end_responses_as_documented() {
    let origin = Origin::text("ok");
    // Rule, response, log line, frontend columns, backend columns.
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
fn unanswered_request_counts_as_hrsp_other() {
    let scene = Scene::start("", "http-request reject", "");
    assert_eq!(scene.talk(LAST), "");
    let counts = scene.counts("f,FRONTEND", &["hrsp_other", "dreq", "req_tot"]);
    assert_eq!(counts, ["hrsp_other=1", "dreq=1", "req_tot=1"]);
}

#[test]
fn backend_denials_and_missing_servers_are_counted() {
    let scene = Scene::start("", "", "http-request deny if { path /x }");
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 403 "));
    assert!(scene.talk(&LAST.replace("/x", "/y")).starts_with("HTTP/1.1 503 "));
    let counts = scene.counts("b,BACKEND", &["dreq", "econ", "req_tot"]);
    assert_eq!(counts, ["dreq=1", "econ=1", "req_tot=2"]);
}

#[test]
fn redirecting_server_is_not_contacted() {
    let scene = Scene::start("", "", "server s 192.0.2.1:80 redir http://other");
    let answer = scene.talk(LAST);
    assert!(answer.contains("location: http://other/x\r\n"), "{answer}");
    assert_eq!(scene.line(), "b/s 0/0/-1/-1 302 LC-- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("b,s", &["stot", "connect"]), ["stot=1", "connect=0"]);
    assert_eq!(scene.counts("f,FRONTEND", &["intercepted"]), ["intercepted=0"]);
}

#[test]
fn tarpitted_client_may_send_another_request() {
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
    // Timers have a resolution of a millisecond, and the log's clock may have been read later.
    assert!((999..20_000).contains(&waited) && line.ends_with(" 500 PT-- 0 GET /x HTTP/1.1"), "{line}");
    assert_eq!(client.send(GET.replace("/x", "/y")).response().map(|answer| answer.status), Some(200));
}

#[test]
fn rejected_stream_is_closed_without_reset() {
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
        // Without a rule that waits for them, the bytes may arrive after the end.
        if !frontend.is_empty() || !backend.is_empty() {
            assert_eq!(ended, Ok(0), "{frontend}{backend}");
            assert_eq!(scene.counts("f,FRONTEND", &["bin"]), ["bin=5"], "{frontend}{backend}");
        }
        let line = scene.line();
        assert!(line.contains(&format!(" {expected}-- ")), "{line}");
    }
}

#[test]
fn silent_drop_does_not_close_for_the_client() {
    // Without the privilege for TCP_REPAIR a reset with a TTL of 1 is sent instead, which reaches this client.
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
        // The connection may have ended already.
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
            // The kernel answers bytes sent after the end with a reset.
            assert_ne!(seen, Ok(0), "{rule}");
        } else {
            assert_eq!(seen, Err(std::io::ErrorKind::WouldBlock), "{rule}");
        }
    }
}

#[test]
fn errors_keep_their_status_whatever_the_page_says() {
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
fn services_replace_the_server_in_logs() {
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
fn status_set_by_a_rule_is_logged_and_counted() {
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
        // The server's own status is counted for the server.
        assert_eq!(scene.counts("b,s", &["hrsp_2xx"]), ["hrsp_2xx=1"], "{rule}");
    }
}

#[test]
fn errorfile_is_sent_verbatim_and_logged_as_rule_status() {
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
