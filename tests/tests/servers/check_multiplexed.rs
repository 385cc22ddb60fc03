//! Health checks over HTTP/2: requests, evaluation of responses, selection of the protocol, and gRPC's health checking protocol.

use std::sync::mpsc;

use weir_tests::multiplexed::{
    DATA, END_STREAM, Frames, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use weir_tests::tls::shown;
use weir_tests::{Authority, Origin, Weir, check, free_port, scratch};

const DEFAULTS: &str = "global\n log stderr format raw local0\n\
                        defaults\n mode http\n log global\n option log-health-checks\n timeout connect 20s\n \
                        timeout server 20s\n timeout check 20s\n default-server inter 20s rise 1 fall 1\n";

/// A received request: the fields of the head, and the body.
type Asked = (Vec<String>, Vec<u8>);

/// Starts a server that answers each check with frames, and reports the requests.
fn server(answer: impl Fn(&mut Frames) + Send + Sync + 'static) -> (Origin, mpsc::Receiver<Asked>) {
    let (asked, told) = mpsc::channel();
    let origin = Origin::raw(move |stream| {
        let mut frames = Frames::take(stream);
        let Some(head) = frames.find(|frame| frame.kind == HEADERS) else { return };
        let fields = frames.fields(&head);
        let (mut body, mut ended) = (Vec::new(), head.flags & END_STREAM != 0);
        while !ended {
            let Some(data) = frames.find(|frame| frame.kind == DATA) else { return };
            body.extend_from_slice(&data.payload);
            ended = data.flags & END_STREAM != 0;
        }
        let _ = asked.send((fields, body));
        answer(&mut frames);
        // Until the check has received it and closes.
        frames.rest();
    });
    (origin, told)
}

/// Starts a backend `b` with these lines and server parameters.
fn checked(lines: &str, port: u16, parameters: &str) -> Weir {
    // The program needs a listener to start.
    let own = free_port();
    let text = format!(
        "{DEFAULTS}frontend f\n timeout client 20s\n bind 127.0.0.1:{own}\n\
         backend b\n {lines}\n server s 127.0.0.1:{port} check {parameters}\n"
    );
    Weir::start(&text, &[own])
}

/// Waits for the message about the first check, and compares it.
fn expect(weir: &Weir, said: &str, case: &str) {
    assert!(weir.says(said), "{case}: no `{said}` in:\n{}", weir.messages());
}

fn fine(frames: &mut Frames) {
    frames.head(1, 0, &[(":status", "200"), ("x-a", "b")]).send(DATA, END_STREAM, 1, b"hello world");
}

const PASSED: &str = "Health check for server b/s succeeded, reason: Layer7 check passed, code: 200";

#[test]
fn server_check_or_step_may_select_http2() {
    let options = |path: &str| vec![":method: OPTIONS".to_owned(), ":scheme: https".into(), path.to_owned()];
    for (lines, parameters, head) in [
        ("option httpchk", "proto h2", options(":path: /")),
        ("option httpchk", "check-proto h2", options(":path: /")),
        ("option httpchk OPTIONS * HTTP/1.1", "proto h1 check-proto h2", options(":path: *")),
        (
            "option httpchk\n http-check connect default\n http-check send uri /a",
            "proto h2",
            options(":path: /a"),
        ),
        (
            "option httpchk\n http-check connect proto h2\n http-check send uri /b",
            "check-proto h1",
            options(":path: /b"),
        ),
        (
            "option httpchk GET /c HTTP/1.1 a.test",
            "proto h2",
            vec![
                ":method: GET".into(),
                ":scheme: https".into(),
                ":authority: a.test".into(),
                ":path: /c".into(),
            ],
        ),
    ] {
        let (origin, asked) = server(fine);
        let weir = checked(lines, origin.port(), parameters);
        expect(&weir, PASSED, &format!("{lines} {parameters}"));
        assert_eq!(asked.recv().expect("a check"), (head, Vec::new()), "{lines} {parameters}");
    }
}

#[test]
fn http2_checks_send_and_expect_as_configured() {
    let send = "option httpchk\n http-check send meth POST uri /d ver HTTP/1.1 hdr host a.test hdr connection close hdr X-T v body";
    for (expected, said) in [
        ("status 200", "succeeded, reason: Layer7 check passed, code: 200"),
        ("string \"lo wor\"", "succeeded, reason: Layer7 check passed, code: 200"),
        ("rstring ^hello", "succeeded, reason: Layer7 check passed, code: 200"),
        ("hdr name x-a value b", "succeeded, reason: Layer7 check passed, code: 200"),
        (
            "status 500",
            "failed, reason: Layer7 wrong status, code: 200, info: \"TCPCHK did not match content(status codes) at step 2\"",
        ),
        (
            "! string world",
            "failed, reason: Layer7 invalid response, info: \"HTTP check matched unwanted content\"",
        ),
    ] {
        let (origin, asked) = server(fine);
        let weir = checked(&format!("{send} abc\n http-check expect {expected}"), origin.port(), "proto h2");
        expect(&weir, said, expected);
        let (head, body) = asked.recv().expect("a check");
        assert_eq!(body, b"abc");
        assert!(
            head.contains(&"x-t: v".to_owned()) && head.contains(&"content-length: 3".to_owned()),
            "{head:?}"
        );
        assert!(!head.iter().any(|line| line.starts_with("connection")), "{head:?}");
    }
}

#[test]
fn check_body_waits_for_flow_control() {
    let (asked, told) = mpsc::channel();
    let origin = Origin::raw(move |stream| {
        let mut frames = Frames::take(stream);
        // INITIAL_WINDOW_SIZE: two bytes per stream.
        frames.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 2]);
        let mut body = Vec::new();
        while body.len() < 6 {
            let Some(data) = frames.find(|frame| frame.kind == DATA) else { return };
            body.extend_from_slice(&data.payload);
            frames.send(WINDOW_UPDATE, 0, 1, &2u32.to_be_bytes());
        }
        let _ = asked.send(body);
        fine(&mut frames);
        frames.rest();
    });
    let send = "option httpchk\n http-check send meth POST uri /d ver HTTP/1.1 body abcdef";
    let weir = checked(send, origin.port(), "proto h2");
    expect(&weir, PASSED, "a small window");
    assert_eq!(told.recv().expect("a body"), b"abcdef");
}

#[test]
fn invalid_responses_fail_the_check() {
    const BROKEN: &str = "Health check for server b/s failed, reason: Socket error, check duration";
    type Answer = fn(&mut Frames);
    let cases: [(&str, Answer, &str); 7] = [
        (
            "a reset",
            |frames| {
                frames.send(RST_STREAM, 0, 1, &2u32.to_be_bytes());
            },
            BROKEN,
        ),
        (
            "a refusal",
            |frames| {
                frames.send(RST_STREAM, 0, 1, &7u32.to_be_bytes());
            },
            BROKEN,
        ),
        // HAProxy would wait until its timeout.
        (
            "a goaway",
            |frames| {
                frames.send(GOAWAY, 0, 0, &[0; 8]);
            },
            BROKEN,
        ),
        (
            "another protocol",
            |frames| {
                frames.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            },
            BROKEN,
        ),
        (
            "two frames too many",
            |frames| {
                frames.send(DATA, 0, 1, b"x").send(DATA, 0, 3, b"x");
            },
            BROKEN,
        ),
        (
            "interim responses first",
            |frames| {
                frames.head(1, 0, &[(":status", "103"), ("link", "x")]);
                frames.head(1, END_STREAM, &[(":status", "204")]);
            },
            "succeeded, reason: Layer7 check passed, code: 204",
        ),
        (
            "a failure",
            |frames| {
                frames.head(1, END_STREAM, &[(":status", "500")]);
            },
            "failed, reason: Layer7 wrong status, code: 500, info: \"TCPCHK did not match content(status codes) at step 2\"",
        ),
    ];
    for (case, answer, said) in cases {
        let (origin, _asked) = server(answer);
        let weir = checked("option httpchk", origin.port(), "check-proto h2");
        expect(&weir, said, case);
    }
}

#[test]
fn alpn_selects_the_protocol_over_tls() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["a.test"]));
    for (offered, lines, parameters, version) in [
        ("h2,http/1.1", "option httpchk", "ssl alpn h2,http/1.1", "2.0"),
        ("h2,http/1.1", "option httpchk", "ssl alpn h2,http/1.1 check-alpn http/1.1", "1.0"),
        ("h2,http/1.1", "option httpchk", "check-ssl check-alpn h2", "2.0"),
        ("http/1.1", "option httpchk", "check-ssl check-alpn h2,http/1.1", "1.0"),
        ("h2,http/1.1", "option httpchk", "ssl", "1.0"),
        (
            "h2,http/1.1",
            "option httpchk\n http-check connect ssl alpn h2 proto h2\n http-check send meth GET",
            "",
            "2.0",
        ),
        (
            "h2,http/1.1",
            "option httpchk\n http-check connect ssl alpn h2\n http-check send meth GET",
            "",
            "2.0",
        ),
    ] {
        let socket = scratch("check").file("tls.sock");
        let text = format!(
            "{DEFAULTS}backend b\n {lines}\n http-check expect hdr name x-ver value {version}\n \
             server s {} check verify none {parameters}\nfrontend f\n timeout client 20s\n bind {} ssl crt {certificate} \
             alpn {offered}\n http-request return status 200 hdr x-ver %[req.ver]\n",
            socket.display(),
            socket.display()
        );
        let weir = Weir::start(&text, &[]);
        expect(&weir, PASSED, &format!("{offered} {lines} {parameters}"));
    }
}

#[test]
fn non_http_checks_do_not_use_http2() {
    let (origin, _asked) = server(fine);
    let weir = checked("option tcp-check", origin.port(), "proto h2");
    expect(&weir, "Health check for server b/s succeeded, reason: Layer4 check passed", "proto h2");
}

#[test]
fn unsupported_check_protocols_are_refused() {
    let directory = scratch("check");
    for (lines, parameters, alert) in [
        (
            "",
            "check-proto h2",
            "backend 'b': server 's' uses an incompatible MUX protocol for the selected check type",
        ),
        ("option httpchk", "check-proto none", "server 's' uses an incompatible MUX protocol"),
        ("option tcp-check", "check-proto spop", "server 's' uses an incompatible MUX protocol"),
        ("option httpchk", "check-proto spop", "server 's' uses an incompatible MUX protocol"),
        ("option spop-check", "check-proto h1", "server 's' uses an incompatible MUX protocol"),
        (
            "option tcp-check\n tcp-check connect proto spop",
            "",
            "'tcp-check connect' : 'proto' : invalid MUX protocol 'spop' for tcp-check.",
        ),
        ("option redis-check", "check-proto h2", "server 's' uses an incompatible MUX protocol"),
        ("option grpc-chk", "check-proto h1", "server 's' uses an incompatible MUX protocol"),
        ("option httpchk", "check-proto h4", "'check-proto' :  unknown MUX protocol 'h4'."),
        (
            "option httpchk\n http-check connect proto none",
            "",
            "'http-check connect' : 'proto' : invalid MUX protocol 'none' for http-check.",
        ),
        (
            "option tcp-check\n tcp-check connect proto h2",
            "",
            "'tcp-check connect' : 'proto' : invalid MUX protocol 'h2' for tcp-check.",
        ),
        ("option httpchk\n http-check connect proto h4", "", "'proto' : unknown MUX protocol 'h4'."),
        ("option grpc-chk name", "", "'option grpc-chk' only supports optional values: 'service'."),
    ] {
        let file = directory.join("wrong.cfg");
        let text = format!("{DEFAULTS}backend b\n {lines}\n server s 127.0.0.1:1 check {parameters}\n");
        std::fs::write(&file, text).expect("a file");
        let verdict = check(&file, &directory);
        assert!(
            verdict.alerts().iter().any(|one| one.contains(alert)),
            "{lines} {parameters}: {:?}",
            verdict.alerts()
        );
    }
}

/// Sends a complete response to a gRPC health check.
fn grpc(frames: &mut Frames, message: &[u8], trailers: &[(&str, &str)]) {
    frames.head(1, 0, &[(":status", "200"), ("content-type", "application/grpc")]);
    frames.send(DATA, 0, 1, message).head(1, END_STREAM, trailers);
}

#[test]
fn grpc_server_is_up_while_it_reports_serving() {
    type Answer = fn(&mut Frames);
    let cases: [(&str, Answer, &str); 5] = [
        (
            "serving",
            |frames| grpc(frames, b"\0\0\0\0\x02\x08\x01", &[("grpc-status", "0")]),
            "succeeded, reason: Layer7 check passed, code: 200, info: \"SERVING\"",
        ),
        (
            "not serving",
            |frames| grpc(frames, b"\0\0\0\0\x02\x08\x02", &[("grpc-status", "0")]),
            "failed, reason: Layer7 wrong status, code: 0, info: \"NOT_SERVING\"",
        ),
        (
            "no such service",
            |frames| {
                let fields = [(":status", "200"), ("grpc-status", "5"), ("grpc-message", "unknown service")];
                frames.head(1, END_STREAM, &fields);
            },
            "failed, reason: Layer7 wrong status, code: 5, info: \"unknown service\"",
        ),
        (
            "no gRPC",
            |frames| {
                frames.head(1, END_STREAM, &[(":status", "404")]);
            },
            "failed, reason: Layer7 wrong status, code: 404",
        ),
        ("no status", fine, "failed, reason: Layer7 invalid response"),
    ];
    for (case, answer, said) in cases {
        let (origin, asked) = server(answer);
        let weir = checked("option grpc-chk service a.B", origin.port(), "");
        expect(&weir, said, case);
        let (head, body) = asked.recv().expect("a check");
        assert_eq!(body, b"\0\0\0\0\x05\x0a\x03a.B", "{case}");
        for line in [
            ":method: POST",
            ":path: /grpc.health.v1.Health/Check",
            "te: trailers",
            "content-type: application/grpc",
        ] {
            assert!(head.contains(&line.to_owned()), "{case}: {head:?}");
        }
    }
}

#[test]
fn healthcheck_section_may_use_grpc_and_offers_h2() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["a.test"]));
    let socket = scratch("check").file("tls.sock");
    let text = format!(
        "{DEFAULTS}healthcheck h\n type grpc-chk\n\
         backend b\n server s {} check healthcheck h ssl verify none\n\
         frontend f\n timeout client 20s\n bind {} ssl crt {certificate} alpn h2\n \
         http-request return status 200 hdr grpc-status 12 unless {{ req.ver 2.0 }} {{ ssl_fc_alpn h2 }} {{ path /a }}\n",
        socket.display(),
        socket.display()
    );
    let weir = Weir::start(&text, &[]);
    expect(&weir, "failed, reason: Layer7 wrong status, code: 12, info: \"UNIMPLEMENTED\"", "TLS");
}
