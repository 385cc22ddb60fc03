//! End-to-end tests of fetches, converters and ACLs: the program's results in rules, compared with those of HAProxy 3.5 for the
//! same expressions and messages.

mod converters;
mod requests;
mod responses;
mod streams;

use std::io::{Read, Write};
use std::net::TcpListener;

use converters::{CONVERTERS, maps, quoted};
use requests::{CONDITIONS_OF_REQUESTS, OF_REQUESTS, request};
use responses::{CONDITIONS_OF_RESPONSES, OF_RESPONSES, RESPONSE};
use weir_tests::{Weir, client, free_port};

/// Starts a server that answers every request of [`request`] with [`RESPONSE`].
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut received = Vec::new();
            let mut piece = [0; 4096];
            while !received.ends_with(b"body%20text") {
                match stream.read(&mut piece) {
                    Ok(length @ 1..) => received.extend_from_slice(&piece[..length]),
                    _ => break,
                }
            }
            let _ = stream.write_all(RESPONSE);
        }
    });
    port
}

const BEFORE: &str = "global\n  setenv TEST_NAME value\n  nbthread 1\n\
    defaults\n  mode http\n  timeout client 20s\n  timeout server 21s\n  timeout connect 5s\n  timeout queue 6s\n  \
    timeout tarpit 7s\n  timeout tunnel 8s\n  option http-buffer-request\n";

/// Starts a frontend that answers each request with the rule of its row, and forwards others to a server.
fn start(rules: &str, of_responses: &str) -> (Weir, u16) {
    let (port, origin) = (free_port(), origin());
    let weir = Weir::start(
        &format!(
            "{BEFORE}frontend fe\n  bind 127.0.0.1:{port} name sock id 3\n  id 33\n  declare capture request len 16\n  \
             declare capture response len 16\n  http-request set-var(txn.text) str(text)\n  \
             http-request set-var(txn.te) str(1)\n{rules}  default_backend be\n\
             backend be\n  id 44\n  server s 127.0.0.1:{origin} id 5 weight 9 maxconn 50\n{of_responses}"
        ),
        &[port],
    );
    (weir, port)
}

#[test]
fn request_expressions_match_haproxy() {
    let maps = maps();
    let folder = maps.to_string();
    let rows: Vec<_> = CONVERTERS.iter().chain(OF_REQUESTS).collect();
    let rules: String = (rows.iter().enumerate())
        .map(|(row, (expression, _))| {
            let text = quoted(expression, &folder);
            format!(
                "  http-request return status 200 content-type text/plain lf-string {text} if {{ req.hdr(x-row) {row} }}\n"
            )
        })
        .collect();
    let (weir, port) = start(&rules, "");
    let mut wrong = Vec::new();
    for (row, (expression, expected)) in rows.iter().enumerate() {
        let response = client::exchange(port, &request(row));
        let body = response.map(|response| String::from_utf8_lossy(&response.body).into_owned());
        if body.as_deref() != Some(*expected) {
            wrong.push(format!("{expression}: {body:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", weir.messages());
}

#[test]
fn response_expressions_match_haproxy() {
    let rules: String = (OF_RESPONSES.iter().enumerate())
        .map(|(row, (expression, _))| format!("  http-response set-header x-r{row} \"%[{expression}]\"\n"))
        .collect();
    let (weir, port) = start("", &rules);
    let response = client::exchange(port, &request(usize::MAX)).expect("a response");
    let mut wrong = Vec::new();
    for (row, (expression, expected)) in OF_RESPONSES.iter().enumerate() {
        let value = response.header(&format!("x-r{row}"));
        if value.unwrap_or_default() != *expected {
            wrong.push(format!("{expression}: {value:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", weir.messages());
}

#[test]
fn message_conditions_match_haproxy() {
    let answer = "http-request return status 200 content-type text/plain string";
    let rules: String = (CONDITIONS_OF_REQUESTS.iter().enumerate())
        .map(|(row, condition)| {
            let chosen = format!("{{ req.hdr(x-row) {row} }}");
            format!("  {answer} yes if {chosen} {{ {condition} }}\n  {answer} no if {chosen}\n")
        })
        .collect();
    let of_responses: String = (CONDITIONS_OF_RESPONSES.iter().enumerate())
        .map(|(row, condition)| format!("  http-response set-header x-a{row} yes if {{ {condition} }}\n"))
        .collect();
    let (weir, port) = start(&rules, &of_responses);
    let holds =
        |row: &usize| client::exchange(port, &request(*row)).is_some_and(|answer| answer.body == b"yes");
    let wrong =
        (0..CONDITIONS_OF_REQUESTS.len()).filter(|row| !holds(row)).map(|row| CONDITIONS_OF_REQUESTS[row]);
    let response = client::exchange(port, &request(usize::MAX)).expect("a response");
    let missing = |row: &usize| response.header(&format!("x-a{row}")).is_none();
    let of_responses =
        (0..CONDITIONS_OF_RESPONSES.len()).filter(missing).map(|row| CONDITIONS_OF_RESPONSES[row]);
    let wrong: Vec<&str> = wrong.chain(of_responses).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", weir.messages());
}

#[test]
fn rules_on_responses_match_nothing_of_the_request() {
    let conditions = [
        ("{ path -m found }", false),
        ("{ path_beg / }", false),
        ("{ url -m found }", false),
        ("{ base -m found }", false),
        ("{ query -m found }", false),
        ("{ req.hdr(host) -m found }", false),
        ("{ req.hdr_cnt -m found }", false),
        ("{ req.hdrs -m found }", false),
        ("{ hdr_cnt(host) ge 0 }", false),
        ("{ cook_cnt -m found }", false),
        ("{ req.body -m found }", false),
        ("{ req.body_len gt 0 }", false),
        ("{ http_auth_type -m found }", false),
        ("{ urlp(a) -m found }", false),
        ("{ req.payload(0,4) -m found }", false),
        ("{ acl(of_request) }", false),
        ("of_request", false),
        ("!of_request", true),
        ("!{ path -m found }", true),
        ("of_either", true),
        ("{ req.timer.hdr ge 0 }", true),
        ("{ method POST }", true),
    ];
    let mut lines =
        "  acl of_request path_beg /\n  acl of_either path_beg /\n  acl of_either status 200\n".to_owned();
    for rules in ["http-response", "http-after-response"] {
        for (row, (condition, _)) in conditions.iter().enumerate() {
            lines += &format!("  {rules} set-header {rules}-{row} yes if {condition}\n");
            lines += &format!("  {rules} set-header {rules}-{row} no unless {condition}\n");
        }
    }
    let (weir, port) = start("", &lines);
    let response = client::exchange(port, &request(usize::MAX)).expect("a response");
    for rules in ["http-response", "http-after-response"] {
        for (row, (condition, holds)) in conditions.iter().enumerate() {
            let expected = if *holds { "yes" } else { "no" };
            assert_eq!(response.header(&format!("{rules}-{row}")), Some(expected), "{rules} {condition}");
        }
    }
    assert!(weir.messages().contains("never match"), "{}", weir.messages());
}

#[test]
fn groups_match_in_conditions_and_display_the_user() {
    let port = free_port();
    let shown = "http-request return status 200 content-type text/plain lf-string \"%[http_auth_group(u)]|";
    let _weir = Weir::start(
        &format!(
            "{BEFORE}userlist u\n  group one users a\n  group two users a,b\n  user a insecure-password x\n  \
             user b insecure-password y\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             {shown}one\" if {{ http_auth_group(u) one }}\n  {shown}two\" if {{ http_auth_group(u) two }}\n  {shown}none\"\n"
        ),
        &[port],
    );
    // `a:x`, `b:y` and `a:y`.
    for (credentials, expected) in [("YTp4", "a|one"), ("Yjp5", "b|two"), ("YTp5", "|none")] {
        let fields = format!("authorization: Basic {credentials}\r\n");
        let response = client::exchange_with(port, "/", &fields).expect("a response");
        assert_eq!(response.text(), expected);
    }
}
