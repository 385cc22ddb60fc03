//! Responses and trailers as HTTP/1 clients receive them, and HTTP/1 heads as field sections.
//!
//! Every row was compared with HAProxy 3.5 over HTTP/2, which refuses the same messages or fewer.

#![allow(clippy::type_complexity, reason = "tables of cases")]

mod common;

use std::convert::Infallible;

use Cause::*;
use common::{Section, Written, written};
use fields::{
    Cause, Refusal, Rules, Scheme, is_extended_connect, read_request, read_response, read_trailers,
    write_request, write_response, write_trailers,
};
use http::{BodyLength, Head, Method, ParseOptions, ParseStatus};

const RULES: Rules = Rules { max_bytes: 15_360, max_fields: 100, relaxed: false, connect_protocol: true };

fn cause<T>(outcome: Result<T, Refusal<Infallible>>) -> Result<T, Cause> {
    outcome.map_err(|Refusal::Message(cause)| cause)
}

fn response(fields: &[(&str, &str)], end: bool) -> Result<Head, Cause> {
    let mut head = Head::new();
    cause(read_response(Section(fields), end, &RULES, &mut head)).map(|()| head)
}

#[test]
#[rustfmt::skip]
fn responses_are_converted_to_http_1() {
    let rows: &[(&[(&str, &str)], Result<&str, Cause>)] = &[
        (&[(":status", "200")],                     Ok("HTTP/1.1 200 OK")),
        (&[(":status", "404"), ("x", "y")],         Ok("HTTP/1.1 404 Not Found|x: y")),
        (&[(":status", "599")],                     Ok("HTTP/1.1 599 Server Error")),
        (&[(":status", "999")],                     Ok("HTTP/1.1 999 Other")),
        (&[(":status", "100")],                     Ok("HTTP/1.1 100 Continue")),
        (&[(":status", "103"), ("link", "x")],      Ok("HTTP/1.1 103 Early Hints|link: x")),
        (&[(":status", "200"), ("set-cookie", "a"), ("set-cookie", "b")], Ok("HTTP/1.1 200 OK|set-cookie: a|set-cookie: b")),
        (&[(":status", "200"), ("x", " a ")],       Ok("HTTP/1.1 200 OK|x: a")),
        (&[(":status", "200"), ("content-length", "1,1")], Ok("HTTP/1.1 200 OK|content-length: 1")),
        (&[(":status", "200"), ("te", "trailers")], Ok("HTTP/1.1 200 OK|te: trailers")),
        (&[(":status", "200"), ("trailer", "x")],   Ok("HTTP/1.1 200 OK|trailer: x")),
        (&[(":status", "200"), ("cookie", "a"), ("host", "h")], Ok("HTTP/1.1 200 OK|cookie: a|host: h")),
        (&[],                                       Err(PseudoSet)),
        (&[("x", "y")],                             Err(PseudoSet)),
        (&[("x", "y"), (":status", "200")],         Err(PseudoSet)),
        (&[(":status", "200"), ("x", "y"), (":status", "200")], Err(PseudoLate)),
        (&[(":status", "200"), (":status", "200")], Err(PseudoTwice)),
        (&[(":status", "200"), (":path", "/")],     Err(PseudoUnknown)),
        (&[(":status", "200"), (":foo", "/")],      Err(PseudoUnknown)),
        (&[(":status", "")],                        Err(Status)),
        (&[(":status", "99")],                      Err(Status)),
        (&[(":status", "20")],                      Err(Status)),
        (&[(":status", "2000")],                    Err(Status)),
        (&[(":status", "+20")],                     Err(Status)),
        (&[(":status", "2 0")],                     Err(Status)),
        (&[(":status", "abc")],                     Err(Status)),
        // HAProxy sends the client a status of zeros.
        (&[(":status", "000")],                     Err(Status)),
        (&[(":status", "099")],                     Err(Status)),
        (&[(":status", "101")],                     Err(Switching)),
        (&[(":status", "200"), ("connection", "close")], Err(ConnectionSpecific)),
        (&[(":status", "200"), ("keep-alive", "1")], Err(ConnectionSpecific)),
        (&[(":status", "200"), ("proxy-connection", "1")], Err(ConnectionSpecific)),
        (&[(":status", "200"), ("transfer-encoding", "chunked")], Err(ConnectionSpecific)),
        (&[(":status", "200"), ("upgrade", "websocket")], Err(ConnectionSpecific)),
        (&[(":status", "200"), ("Upper", "x")],     Err(Name)),
        (&[(":status", "200"), ("x y", "x")],       Err(Name)),
        (&[(":status", "200"), ("x:y", "x")],       Err(Name)),
        (&[(":status", "200"), ("", "x")],          Err(Name)),
        (&[(":status", "200"), ("x", "a\r\nb")],    Err(Value)),
        (&[(":status", "200"), ("x", "a\0b")],      Err(Value)),
        (&[(":status", "200"), ("content-length", "x")], Err(ContentLength)),
        (&[(":status", "200"), ("content-length", "1"), ("content-length", "2")], Err(ContentLength)),
    ];
    for (fields, outcome) in rows {
        let head = response(fields, false).map(|head| written(&head));
        assert_eq!(head, outcome.map(str::to_string), "{fields:?}");
    }
    assert_eq!(response(&[(":status", "103")], true).err(), Some(InterimEnd));
}

#[test]
fn body_length_follows_the_fields_or_the_stream() {
    let ok = (":status", "200");
    for (fields, end, request, body) in [
        (vec![ok], true, Method::Get, BodyLength::None),
        (vec![ok], false, Method::Get, BodyLength::UntilClose),
        (vec![ok], false, Method::Head, BodyLength::None),
        (vec![ok, ("content-length", "5")], false, Method::Get, BodyLength::Length(5)),
        (vec![ok, ("content-length", "5")], true, Method::Head, BodyLength::None),
        (vec![ok, ("content-length", "0")], true, Method::Get, BodyLength::Length(0)),
        (vec![(":status", "304")], true, Method::Get, BodyLength::None),
    ] {
        let head = response(&fields, end).unwrap();
        assert_eq!(head.response_body(request), body, "{fields:?}");
        assert_eq!(head.version().numbers(), (2, 0));
    }
}

#[test]
#[rustfmt::skip]
fn trailers_do_not_change_the_message() {
    let rows: &[(&str, &str, Result<(), Cause>)] = &[
        ("x", "y", Ok(())), ("x", " y ", Ok(())), ("cookie", "a", Ok(())), ("set-cookie", "a", Ok(())), ("authorization", "a", Ok(())),
        ("trailer", "x", Ok(())), ("grpc-status", "0", Ok(())),
        ("content-length", "3", Err(Trailer)), ("host", "x", Err(Trailer)), ("te", "trailers", Err(Trailer)),
        ("connection", "close", Err(Trailer)), ("keep-alive", "1", Err(Trailer)), ("proxy-connection", "1", Err(Trailer)),
        ("transfer-encoding", "chunked", Err(Trailer)), ("upgrade", "x", Err(Trailer)),
        (":status", "200", Err(PseudoUnknown)), (":path", "/", Err(PseudoUnknown)), (":x", "/", Err(PseudoUnknown)),
        ("Upper", "x", Err(Name)), ("x y", "z", Err(Name)), ("", "", Err(Name)), ("x", "a\r\nb", Err(Value)),
    ];
    for (name, value, outcome) in rows {
        let mut head = Head::new();
        let read = cause(read_trailers(Section(&[(*name, *value)]), &RULES, &mut head));
        assert_eq!(read, *outcome, "{name}: {value}");
        if read.is_ok() {
            let fields: Vec<_> = head.fields().collect();
            assert_eq!(fields, [(name.as_bytes(), value.trim().as_bytes())]);
        }
    }
    let mut head = Head::new();
    let late = Section(&[("x", "y"), (":status", "200")]);
    assert_eq!(cause(read_trailers(late, &RULES, &mut head)), Err(PseudoLate));
}

fn parsed(text: &str, response: bool) -> Head {
    let mut head = Head::new();
    let text = text.replace('|', "\r\n") + "\r\n\r\n";
    let parse = if response { http::parse_response } else { http::parse_request };
    let status = parse(text.as_bytes(), &mut head, &ParseOptions::default());
    assert!(matches!(status, Ok(ParseStatus::Complete { .. })), "{text}: {status:?}");
    head
}

#[test]
#[rustfmt::skip]
fn http_1_requests_are_written_with_pseudo_fields() {
    const WEBSOCKET: &str = "|Connection: Upgrade, x|Upgrade: websocket, foo|Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==|Sec-WebSocket-Version: 13";
    let rows: &[(&str, &str)] = &[
        ("GET /a?b HTTP/1.1|Host: h", ":method: GET|:scheme: https|:authority: h|:path: /a?b"),
        ("GET / HTTP/1.0", ":method: GET|:scheme: https|:path: /"),
        ("GET / HTTP/1.1|Host:", ":method: GET|:scheme: https|:path: /"),
        ("GET http://h:81/a HTTP/1.1|Host: h:81", ":method: GET|:scheme: http|:authority: h:81|:path: /a"),
        ("GET https://h HTTP/1.1|Host: h", ":method: GET|:scheme: https|:authority: h|:path: /"),
        ("GET http://u:p@h/ HTTP/1.0", ":method: GET|:scheme: http|:authority: h|:path: /"),
        ("GET http://h?q HTTP/1.1|Host: h", ":method: GET|:scheme: http|:authority: h|:path: /?q"),
        ("GET ftp://h/a HTTP/1.1|Host: h", ":method: GET|:scheme: ftp|:authority: h|:path: /a"),
        ("OPTIONS * HTTP/1.1|Host: h", ":method: OPTIONS|:scheme: https|:authority: h|:path: *"),
        ("OPTIONS http://h HTTP/1.1|Host: h", ":method: OPTIONS|:scheme: http|:authority: h|:path: *"),
        ("CONNECT h:443 HTTP/1.1|Host: h", ":method: CONNECT|:authority: h:443"),
        ("CONNECT h:8443 HTTP/1.1|Host: h:8443|X: y", ":method: CONNECT|:authority: h:8443|x: y"),
        ("GET / HTTP/1.1|Host: h|Connection: close, X-Foo|X-Foo: 1|Keep-Alive: 3|Proxy-Connection: x|TE: trailers, gzip|Upgrade: foo\
          |X-UPPER: MiXed|Cookie: a=1; b=2|HTTP2-Settings: AAA|X-Empty:|Expect: 100-continue",
         ":method: GET|:scheme: https|:authority: h|:path: /|x-foo: 1|te: trailers|x-upper: MiXed|cookie: a=1; b=2|x-empty: |expect: 100-continue"),
        ("POST / HTTP/1.1|Host: h|Content-Length: 5", ":method: POST|:scheme: https|:authority: h|:path: /|content-length: 5"),
        ("POST / HTTP/1.1|Host: h|Transfer-Encoding: chunked", ":method: POST|:scheme: https|:authority: h|:path: /"),
        (&format!("GET /chat HTTP/1.1|Host: h{WEBSOCKET}"),
         ":method: CONNECT|:scheme: https|:authority: h|:path: /chat|:protocol: websocket|sec-websocket-version: 13"),
        ("GET / HTTP/1.1|Host: h|Connection: upgrade|Upgrade: foo", ":method: CONNECT|:scheme: https|:authority: h|:path: /|:protocol: foo"),
    ];
    for (text, fields) in rows {
        let head = parsed(text, false);
        let mut out = Written::default();
        write_request(&mut out, &head, Scheme::Https);
        assert_eq!(out.0, format!("{fields}|"), "{text}");
        assert_eq!(is_extended_connect(&head), fields.contains(":protocol"));
        let mut again = Head::new();
        let read = read_request(Section(&out.pairs()), !text.starts_with("POST"), &RULES, &mut again);
        assert!(read.is_ok(), "{text} is read as it was written: {read:?}");
    }
    let mut out = Written::default();
    write_request(&mut out, &parsed("GET / HTTP/1.1|Host: h", false), Scheme::Http);
    assert_eq!(out.0, ":method: GET|:scheme: http|:authority: h|:path: /|");
}

#[test]
#[rustfmt::skip]
fn http_1_responses_are_written_without_connection_fields() {
    let rows: &[(&str, &str)] = &[
        ("HTTP/1.1 200 Fine|Content-Length: 2|Connection: close, x-foo|X-Foo: 1|Keep-Alive: 2|Proxy-Connection: x|Upgrade: h2c|Server: S\
          |Set-Cookie: a=b|Set-Cookie: c=d|X-UPPER: UPPER|Trailer: x|Date: d",
         ":status: 200|content-length: 2|x-foo: 1|server: S|set-cookie: a=b|set-cookie: c=d|x-upper: UPPER|trailer: x|date: d"),
        ("HTTP/1.1 200 OK|Transfer-Encoding: chunked", ":status: 200"),
        ("HTTP/1.1 103 Early Hints|Link: x", ":status: 103|link: x"),
        ("HTTP/1.1 502 x", ":status: 502"),
        ("HTTP/1.1 101 x|Connection: upgrade|Upgrade: websocket|Sec-WebSocket-Accept: x|Sec-WebSocket-Protocol: p",
         ":status: 200|sec-websocket-protocol: p"),
    ];
    for (text, fields) in rows {
        let mut out = Written::default();
        write_response(&mut out, &parsed(text, true));
        assert_eq!(out.0, format!("{fields}|"), "{text}");
    }
    let (mut trailers, mut out) = (Head::new(), Written::default());
    for (name, value) in [("X-T", "1"), ("Content-Length", "1"), ("Connection", "x"), ("TE", "z"), ("Host", "z")] {
        assert!(trailers.append(name.as_bytes(), value.as_bytes()));
    }
    write_trailers(&mut out, &trailers);
    assert_eq!(out.0, "x-t: 1|");
}

#[test]
fn a_multiplexed_request_is_written_unchanged() {
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "h:8443"),
        (":path", "/a?b"),
        ("x", "y"),
        ("te", "trailers"),
        ("cookie", "a cookie that is long enough"),
    ];
    let mut head = Head::new();
    read_request(Section(&fields), true, &RULES, &mut head).unwrap();
    let mut out = Written::default();
    write_request(&mut out, &head, Scheme::Http);
    assert_eq!(out.pairs(), fields);
    // If rules change `Host`, the authority changes as well.
    head.set(&http::Name::new(b"host"), b"other");
    let mut out = Written::default();
    write_request(&mut out, &head, Scheme::Http);
    assert_eq!(out.pairs()[2], (":authority", "other"));
}
