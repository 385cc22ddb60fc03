//! Requests: the reason for refusal, or the HTTP/1 head that a server receives.
//!
//! Every row was compared with HAProxy 3.5 over HTTP/2. A comment marks the rows that HAProxy accepts and this crate refuses.

#![allow(clippy::type_complexity, reason = "tables of cases")]

mod common;

use std::convert::Infallible;

use Cause::*;
use common::{Section, written};
use fields::{Cause, Field, FieldSource, Priority, Refusal, Request, Rules, read_request};
use http::{BodyLength, Head, KnownName, Method, Version};

const RULES: Rules = Rules { max_bytes: 15_360, max_fields: 100, relaxed: false, connect_protocol: true };

type Fields<'a> = Vec<(&'a [u8], &'a [u8])>;

fn read(fields: &Fields<'_>, end: bool, rules: &Rules) -> Result<(Head, Request), Cause> {
    let mut head = Head::new();
    match read_request(Section(fields), end, rules, &mut head) {
        Ok(request) => Ok((head, request)),
        Err(Refusal::Message(cause)) => Err(cause),
    }
}

fn downgraded(fields: &Fields<'_>, end: bool, rules: &Rules) -> Result<String, Cause> {
    read(fields, end, rules).map(|(head, _)| written(&head))
}

/// Returns pseudo-fields without those whose value is `-`.
fn pseudo<'a>(values: [&'a [u8]; 4]) -> Fields<'a> {
    let names: [&[u8]; 4] = [b":method", b":scheme", b":authority", b":path"];
    names.into_iter().zip(values).filter(|(_, value)| *value != b"-").collect()
}

fn usual() -> Fields<'static> {
    pseudo([b"GET", b"https", b"h", b"/"])
}

fn lines(fields: &Fields<'_>) -> String {
    let line =
        |(name, value): &(&[u8], &[u8])| format!("{}: {}\n", name.escape_ascii(), value.escape_ascii());
    fields.iter().map(line).collect()
}

#[test]
#[rustfmt::skip]
fn pseudo_fields_become_the_request_line_and_host() {
    type Row<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8], Result<&'a str, Cause>);
    let rows: &[Row<'_>] = &[
        // method scheme authority path
        (b"GET",     b"https", b"h",        b"/a?b",  Ok("GET /a?b HTTP/1.1|host: h")),
        (b"GET",     b"http",  b"h:80",     b"/",     Ok("GET / HTTP/1.1|host: h")),
        (b"GET",     b"http",  b"h:443",    b"/",     Ok("GET / HTTP/1.1|host: h:443")),
        (b"GET",     b"https", b"h:443",    b"/",     Ok("GET / HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h:80",     b"/",     Ok("GET / HTTP/1.1|host: h:80")),
        (b"GET",     b"https", b"h:",       b"/",     Ok("GET / HTTP/1.1|host: h")),
        (b"GET",     b"HTTPS", b"h:443",    b"/",     Ok("GET / HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h:0443",   b"/",     Ok("GET / HTTP/1.1|host: h:0443")),
        (b"GET",     b"https", b"H.Example",b"/",     Ok("GET / HTTP/1.1|host: H.Example")),
        (b"GET",     b"https", b"[::1]",    b"/",     Ok("GET / HTTP/1.1|host: [::1]")),
        (b"GET",     b"http",  b"[::1]:80", b"/",     Ok("GET / HTTP/1.1|host: [::1]")),
        (b"GET",     b"https", b"h%41",     b"/",     Ok("GET / HTTP/1.1|host: h%41")),
        (b"GET",     b"ftp",   b"h:21",     b"/",     Ok("GET ftp://h:21/ HTTP/1.1|host: h:21")),
        (b"GET",     b"ftp",   b"h:",       b"/",     Ok("GET ftp://h/ HTTP/1.1|host: h")),
        (b"GET",     b"x+y-1.z", b"h",      b"/",     Ok("GET x+y-1.z://h/ HTTP/1.1|host: h")),
        (b"GET",     b"https", b"-",        b"/",     Ok("GET / HTTP/1.1")),
        (b"GET",     b"ftp",   b"-",        b"/",     Ok("GET / HTTP/1.1")),
        (b"FOO",     b"https", b"h",        b"/",     Ok("FOO / HTTP/1.1|host: h")),
        (b"get",     b"https", b"h",        b"/",     Ok("get / HTTP/1.1|host: h")),
        (b"OPTIONS", b"https", b"h",        b"*",     Ok("OPTIONS * HTTP/1.1|host: h")),
        (b"OPTIONS", b"http",  b"h:80",     b"*",     Ok("OPTIONS * HTTP/1.1|host: h")),
        (b"OPTIONS", b"https", b"-",        b"*",     Ok("OPTIONS * HTTP/1.1")),
        (b"OPTIONS", b"https", b"h",        b"/x",    Ok("OPTIONS /x HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h",        b"//x",   Ok("GET //x HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h",        b"/?",    Ok("GET /? HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h",        b"/http://x/", Ok("GET /http://x/ HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h",        b"/\"<>^`{|}", Ok("GET /\\\"<>^`{|} HTTP/1.1|host: h")),
        (b"GET",     b"https", b"h",        b"/a\xe9", Ok("GET /a\\xe9 HTTP/1.1|host: h")),
        // Missing pseudo-fields.
        (b"-",       b"https", b"h",        b"/",     Err(PseudoSet)),
        (b"GET",     b"-",     b"h",        b"/",     Err(PseudoSet)),
        (b"GET",     b"https", b"h",        b"-",     Err(PseudoSet)),
        (b"-",       b"-",     b"-",        b"-",     Err(PseudoSet)),
        // Methods.
        (b"",        b"https", b"h",        b"/",     Err(Method)),
        (b"G T",     b"https", b"h",        b"/",     Err(Method)),
        (b"GET?",    b"https", b"h",        b"/",     Err(Method)),
        (b"\"GET\"", b"https", b"h",        b"/",     Err(Method)),
        (b"GE\x01T", b"https", b"h",        b"/",     Err(Method)),
        (b"GET / HTTP/1.1\r\nx: ", b"https", b"h", b"/", Err(Method)),
        (b"PRI",     b"https", b"h",        b"/",     Err(Method)),
        // Schemes.
        (b"GET",     b"",      b"h",        b"/",     Err(Scheme)),
        (b"GET",     b"1x",    b"h",        b"/",     Err(Scheme)),
        (b"GET",     b"ht tp", b"h",        b"/",     Err(Scheme)),
        (b"GET",     b"h:p",   b"h",        b"/",     Err(Scheme)),
        (b"GET",     b"http://localhost/?", b"h", b"/", Err(Scheme)),
        (b"GET",     b"http\r\nx", b"h",    b"/",     Err(Scheme)),
        // HAProxy checks the scheme only if there is an authority.
        (b"GET",     b"h/",    b"-",        b"/",     Err(Scheme)),
        // Authorities.
        (b"GET",     b"https", b"u@h",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"u:p@h:1",  b"/",     Err(Authority)),
        (b"GET",     b"https", b"a b",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"a/b",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"a?b",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"a#b",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"a\\b",     b"/",     Err(Authority)),
        (b"GET",     b"https", b"a,b",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"a\r\nx: y", b"/",    Err(Authority)),
        (b"GET",     b"https", b"h\0",      b"/",     Err(Authority)),
        (b"GET",     b"https", b"h\xe9",    b"/",     Err(Authority)),
        (b"GET",     b"https", b"[h",       b"/",     Err(Authority)),
        (b"GET",     b"https", b"h]",       b"/",     Err(Authority)),
        // HAProxy accepts an empty port, two ports, and an empty `Host`.
        (b"GET",     b"https", b"h:x",      b"/",     Err(Authority)),
        (b"GET",     b"http",  b"h:80:80",  b"/",     Err(Authority)),
        (b"GET",     b"http",  b"::80",     b"/",     Err(Authority)),
        (b"GET",     b"https", b"",         b"/",     Err(Authority)),
        (b"GET",     b"http",  b"",         b"/",     Err(Authority)),
        (b"GET",     b"ftp",   b"",         b"/",     Err(Authority)),
        (b"GET",     b"https", b":",        b"/",     Err(Authority)),
        (b"GET",     b"https", b":443",     b"/",     Err(Authority)),
        // Paths.
        (b"GET",     b"https", b"h",        b"",      Err(Path)),
        (b"GET",     b"https", b"h",        b"a",     Err(Path)),
        (b"GET",     b"https", b"h",        b"?x",    Err(Path)),
        (b"GET",     b"https", b"h",        b"http://x/", Err(Path)),
        (b"OPTIONS", b"https", b"h",        b"*x",    Err(Path)),
        (b"GET",     b"https", b"h",        b"/a b",  Err(Path)),
        (b"GET",     b"https", b"h",        b"/a\tb", Err(Path)),
        (b"GET",     b"https", b"h",        b"/\0",   Err(Path)),
        (b"GET",     b"https", b"h",        b"/\x01", Err(Path)),
        (b"GET",     b"https", b"h",        b"/\x7f", Err(Path)),
        (b"GET",     b"https", b"h",        b"/ HTTP/1.1\r\nx: y", Err(Path)),
        (b"GET",     b"https", b"h",        b"/\xe9\n", Err(Path)),
        (b"GET",     b"https", b"h",        b"/a#b",  Err(Fragment)),
        // HAProxy converts it to a slash.
        (b"GET",     b"https", b"h",        b"*",     Err(Path)),
        // CONNECT, which only has an authority.
        (b"CONNECT", b"-",     b"h:443",    b"-",     Ok("CONNECT h:443 HTTP/1.1|host: h:443")),
        (b"CONNECT", b"-",     b"[::1]:1",  b"-",     Ok("CONNECT [::1]:1 HTTP/1.1|host: [::1]:1")),
        (b"CONNECT", b"-",     b"-",        b"-",     Err(PseudoSet)),
        (b"CONNECT", b"https", b"h:443",    b"-",     Err(PseudoSet)),
        (b"CONNECT", b"-",     b"h:443",    b"/",     Err(PseudoSet)),
        (b"CONNECT", b"https", b"h:443",    b"/",     Err(PseudoSet)),
        (b"CONNECT", b"-",     b"",         b"-",     Err(Authority)),
        (b"CONNECT", b"-",     b"u@h:1",    b"-",     Err(Authority)),
        (b"CONNECT", b"-",     b"h:1/",     b"-",     Err(Authority)),
        (b"CONNECT", b"-",     b"h,i:1",    b"-",     Err(Authority)),
        // HAProxy accepts these in HTTP/2, though not in HTTP/1.
        (b"CONNECT", b"-",     b"h",        b"-",     Err(Authority)),
        (b"CONNECT", b"-",     b"h:",       b"-",     Err(Authority)),
        (b"CONNECT", b"-",     b"h:99999",  b"-",     Err(Authority)),
        (b"CONNECT", b"-",     b":1",       b"-",     Err(Authority)),
    ];
    for (method, scheme, authority, path, outcome) in rows {
        let fields = pseudo([method, scheme, authority, path]);
        let end = *method != b"CONNECT";
        assert_eq!(downgraded(&fields, end, &RULES), outcome.map(str::to_string), "{}", lines(&fields));
    }
}

#[test]
#[rustfmt::skip]
fn fields_pass_or_are_refused() {
    let rows: &[(&[u8], &[u8], Result<&str, Cause>)] = &[
        (b"x",                 b"y",              Ok("x: y")),
        (b"x_y!#$%&'*+.^`|~",  b"y",              Ok("x_y!#$%&\\'*+.^`|~: y")),
        (b"x",                 b"",               Ok("x:")),
        (b"x",                 b" a ",            Ok("x: a")),
        (b"x",                 b"\ta b\t \t",     Ok("x: a b")),
        (b"x",                 b" ",              Ok("x:")),
        (b"x",                 b"\x01\x7f\xe9",   Ok("x: \\x01\\x7f\\xe9")),
        (b"host",              b"other",          Ok("")),
        (b"host",              b"a b",            Ok("")),
        (b"te",                b"trailers",       Ok("te: trailers")),
        (b"te",                b" trailers ",     Ok("te: trailers")),
        (b"trailer",           b"x",              Ok("trailer: x")),
        (b"expect",            b"100-continue",   Ok("expect: 100-continue")),
        (b"expect",            b"something",      Ok("expect: something")),
        (b"content-length",    b"0",              Ok("content-length: 0")),
        (b"content-length",    b"00",             Ok("content-length: 0")),
        (b"content-length",    b"0, 0",           Ok("content-length: 0")),
        (b"authorization",     b"Basic x",        Ok("authorization: Basic x")),
        (b"proxy-authorization", b"Basic x",      Ok("proxy-authorization: Basic x")),
        (b"cookie",            b"a=1; b=2",       Ok("cookie: a=1; b=2")),
        (b"http2-settings",    b"AAMAAABk",       Ok("http2-settings: AAMAAABk")),
        (b"sec-websocket-key", b"x",              Ok("sec-websocket-key: x")),
        (b"priority",          b"u=1",            Ok("priority: u=1")),
        // Names.
        (b"",                  b"y",              Err(Name)),
        (b"Upper",             b"y",              Err(Name)),
        (b"Host",              b"h",              Err(Name)),
        (b"Content-Length",    b"0",              Err(Name)),
        (b"Transfer-Encoding", b"chunked",        Err(Name)),
        (b"x y",               b"y",              Err(Name)),
        (b" x",                b"y",              Err(Name)),
        (b"x ",                b"y",              Err(Name)),
        (b"transfer-encoding ", b"chunked",       Err(Name)),
        (b"x:y",               b"y",              Err(Name)),
        (b"x\"",               b"y",              Err(Name)),
        (b"x(",                b"y",              Err(Name)),
        (b"x\0",               b"y",              Err(Name)),
        (b"x\r\ny",            b"y",              Err(Name)),
        (b"x: y\r\nz",         b"y",              Err(Name)),
        (b"x\x7f",             b"y",              Err(Name)),
        (b"x\xe9",             b"y",              Err(Name)),
        (b":x",                b"y",              Err(PseudoUnknown)),
        (b":",                 b"y",              Err(PseudoUnknown)),
        (b":Method",           b"GET",            Err(PseudoUnknown)),
        // Values.
        (b"x",                 b"a\rb",           Err(Value)),
        (b"x",                 b"a\nb",           Err(Value)),
        (b"x",                 b"a\0b",           Err(Value)),
        (b"x",                 b"\r\n",           Err(Value)),
        (b"x",                 b"a\r\n\r\nGET / HTTP/1.1", Err(Value)),
        (b"accept",            b"a\nb",           Err(Value)),
        (b"cookie",            b"a\nb",           Err(Value)),
        (b"host",              b"a\nb",           Err(Value)),
        // Fields that concern an HTTP/1 connection, or the framing of messages.
        (b"connection",        b"close",          Err(ConnectionSpecific)),
        (b"connection",        b"x",              Err(ConnectionSpecific)),
        (b"keep-alive",        b"1",              Err(ConnectionSpecific)),
        (b"proxy-connection",  b"x",              Err(ConnectionSpecific)),
        (b"transfer-encoding", b"chunked",        Err(ConnectionSpecific)),
        (b"transfer-encoding", b"identity",       Err(ConnectionSpecific)),
        (b"upgrade",           b"websocket",      Err(ConnectionSpecific)),
        (b"te",                b"gzip",           Err(Te)),
        (b"te",                b"trailers, gzip", Err(Te)),
        (b"te",                b"Trailers",       Err(Te)),
        (b"te",                b"",               Err(Te)),
        (b"content-length",    b"",               Err(ContentLength)),
        (b"content-length",    b"+1",             Err(ContentLength)),
        (b"content-length",    b"-1",             Err(ContentLength)),
        (b"content-length",    b"0x1",            Err(ContentLength)),
        (b"content-length",    b"0, 1",           Err(ContentLength)),
        (b"content-length",    b"0,",             Err(ContentLength)),
        (b"content-length",    b"1",              Err(ContentLength)),
        (b"content-length",    b"99999999999999999999", Err(ContentLength)),
        // Pseudo-fields in the wrong place.
        (b":method",           b"GET",            Err(PseudoTwice)),
        (b":path",             b"/",              Err(PseudoTwice)),
        (b":status",           b"200",            Err(PseudoUnknown)),
        (b":protocol",         b"websocket",      Err(PseudoSet)),
    ];
    for (name, value, outcome) in rows {
        let mut fields = usual();
        fields.push((name, value));
        let line = |line: &str| format!("GET / HTTP/1.1|host: h{}{line}", if line.is_empty() { "" } else { "|" });
        let expected = outcome.map(line);
        assert_eq!(downgraded(&fields, true, &RULES), expected, "{}: {}", name.escape_ascii(), value.escape_ascii());
    }
}

#[test]
#[rustfmt::skip]
fn repeated_fields_are_merged_or_refused() {
    let rows: &[(&[(&str, &str)], Result<&str, Cause>)] = &[
        (&[("cookie", "a=1"), ("cookie", "b=2")],             Ok("cookie: a=1; b=2")),
        (&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2; c"), ("z", "1")], Ok("x: y|z: 1|cookie: a=1; b=2; c")),
        (&[("cookie", ""), ("cookie", "b=2"), ("cookie", "")], Ok("cookie: b=2")),
        (&[("cookie", ""), ("x", "y"), ("cookie", "")],       Ok("x: y|cookie:")),
        (&[("x", "1"), ("x", "2")],                           Ok("x: 1|x: 2")),
        (&[("content-length", "5"), ("content-length", "5")], Ok("content-length: 5")),
        (&[("content-length", "5"), ("content-length", "5, 5")], Ok("content-length: 5")),
        (&[("content-length", "5,5")],                        Ok("content-length: 5")),
        (&[("content-length", "05")],                         Ok("content-length: 5")),
        (&[("content-length", " 5 ")],                        Ok("content-length: 5")),
        (&[("content-length", "5"), ("content-length", "6")], Err(ContentLength)),
        (&[("content-length", "5, 6")],                       Err(ContentLength)),
        (&[("content-length", "5"), ("content-length", "")],  Err(ContentLength)),
        (&[("host", "a"), ("host", "b")],                     Ok("")),
        (&[("x", "y"), (":path", "/other")],                  Err(PseudoLate)),
        (&[("x", "y"), (":protocol", "websocket")],           Err(PseudoLate)),
    ];
    for (extra, outcome) in rows {
        let mut fields = pseudo([b"POST", b"https", b"h", b"/"]);
        fields.extend(extra.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        let line = |line: &str| format!("POST / HTTP/1.1|host: h{}{line}", if line.is_empty() { "" } else { "|" });
        assert_eq!(downgraded(&fields, false, &RULES), outcome.map(line), "{extra:?}");
    }
}

/// The same section in HTTP/3.
struct Http3<'a>(&'a Fields<'a>);

impl FieldSource for Http3<'_> {
    type Error = Infallible;

    const VERSION: Version = Version::Other(3, 0);

    fn decode(self, each: &mut impl FnMut(Field<'_>) -> bool) -> Result<(), Infallible> {
        Section(self.0).decode(each)
    }
}

/// RFC 9114 section 4.3.1. HTTP/2 has no such rules.
#[test]
#[rustfmt::skip]
fn http3_requests_have_one_host() {
    let rows: &[(&[u8], &[u8], &[u8], Result<(), Cause>)] = &[
        // scheme   authority  host
        (b"https",  b"h",      b"-",      Ok(())),
        (b"https",  b"-",      b"h",      Ok(())),
        (b"https",  b"h",      b"H",      Ok(())),
        (b"https",  b"h:443",  b"h",      Ok(())),
        (b"https",  b"h",      b"h:443",  Ok(())),
        (b"urn",    b"-",      b"-",      Ok(())),
        (b"https",  b"-",      b"-",      Err(Authority)),
        (b"http",   b"-",      b"-",      Err(Authority)),
        (b"https",  b"-",      b"",       Err(Authority)),
        (b"https",  b"h",      b"g",      Err(Host)),
        (b"https",  b"h",      b"h:80",   Err(Host)),
        (b"https",  b"h",      b"",       Err(Host)),
    ];
    for (scheme, authority, host, outcome) in rows {
        let mut fields = pseudo([b"GET", scheme, authority, b"/"]);
        fields.extend((*host != b"-").then_some((&b"host"[..], *host)));
        let read = |outcome: Result<Request, Refusal<Infallible>>| match outcome {
            Ok(_) => Ok(()),
            Err(Refusal::Message(cause)) => Err(cause),
        };
        let mut head = Head::new();
        assert_eq!(read(read_request(Http3(&fields), true, &RULES, &mut head)), *outcome, "{}", lines(&fields));
        assert_eq!(read(read_request(Section(&fields), true, &RULES, &mut head)), Ok(()), "{}", lines(&fields));
    }
}

#[test]
#[rustfmt::skip]
fn host_is_used_without_authority() {
    let rows: &[(&[&str], Result<&str, Cause>)] = &[
        (&["a"],       Ok("|host: a")),
        (&["a:443"],   Ok("|host: a:443")),
        (&["a", "A"],  Ok("|host: a")),
        (&[""],        Ok("|host:")),
        (&[],          Ok("")),
        (&["a b"],     Err(Host)),
        (&["a/b"],     Err(Host)),
        (&["u@a"],     Err(Host)),
        (&["a\r\nx"],  Err(Host)),
        // Values that would not be valid in `:authority` either.
        (&["a:b"],     Err(Host)),
        (&["a:1:2"],   Err(Host)),
        (&[":1"],      Err(Host)),
        // HAProxy uses the first.
        (&["a", "b"],  Err(Host)),
    ];
    for (hosts, outcome) in rows {
        let mut fields = pseudo([b"GET", b"https", b"-", b"/p"]);
        fields.extend(hosts.iter().map(|host| (&b"host"[..], host.as_bytes())));
        let expected = outcome.map(|line| format!("GET /p HTTP/1.1{line}"));
        assert_eq!(downgraded(&fields, true, &RULES), expected, "{hosts:?}");
    }
}

#[test]
#[rustfmt::skip]
fn an_extended_connect_becomes_an_upgrade() {
    let connect = |scheme, authority, path| pseudo([b"CONNECT", scheme, authority, path]);
    let rows: Vec<(Fields<'_>, &[u8], Result<&str, Cause>)> = vec![
        (connect(b"https", b"h", b"/chat"), b"websocket", Ok("GET /chat HTTP/1.1|host: h|upgrade: websocket|connection: upgrade")),
        (connect(b"https", b"h", b"/"),     b"foo/1.0",   Ok("GET / HTTP/1.1|host: h|upgrade: foo/1.0|connection: upgrade")),
        (connect(b"http", b"h:80", b"/"),   b"WebSocket", Ok("GET / HTTP/1.1|host: h|upgrade: WebSocket|connection: upgrade")),
        (connect(b"-", b"h", b"/"),         b"websocket", Err(PseudoSet)),
        (connect(b"https", b"h", b"-"),     b"websocket", Err(PseudoSet)),
        (connect(b"https", b"-", b"/"),     b"websocket", Err(PseudoSet)),
        (usual(),                           b"websocket", Err(PseudoSet)),
        // HAProxy writes the value unchanged, or nothing if it is empty.
        (connect(b"https", b"h", b"/"),     b"",          Err(Protocol)),
        (connect(b"https", b"h", b"/"),     b"a, b",      Err(Protocol)),
        (connect(b"http", b"h", b"/"),      b"h2c",       Err(Protocol)),
        (connect(b"https", b"h", b"/"),     b"H2",        Err(Protocol)),
        (connect(b"https", b"h", b"/"),     b"a\r\nb",    Err(Protocol)),
    ];
    for (mut fields, protocol, outcome) in rows {
        fields.push((b":protocol", protocol));
        assert_eq!(downgraded(&fields, false, &RULES), outcome.map(str::to_string), "{}", protocol.escape_ascii());
        let refused = downgraded(&fields, false, &Rules { connect_protocol: false, ..RULES });
        assert_eq!(refused, Err(PseudoUnknown), "not offered");
        fields.push((b"content-length", b"5"));
        assert!(downgraded(&fields, false, &RULES).is_err(), "a tunnel has no length");
    }
    let mut fields = connect(b"https", b"h", b"/");
    fields.push((b":protocol", b"websocket"));
    let (head, request) = read(&fields, false, &RULES).unwrap();
    assert!(request.protocol && head.is_websocket() && head.has_upgrade());
    assert_eq!((head.method_id(), head.request_body()), (Method::Get, BodyLength::None));
}

#[test]
fn relaxed_mode_accepts_only_a_fragment() {
    let relaxed = Rules { relaxed: true, ..RULES };
    for (path, outcome) in [
        (&b"/a#b"[..], Ok("GET /a#b HTTP/1.1|host: h".to_string())),
        (b"/a b", Err(Path)),
        (b"/a#b c", Err(Path)),
        (b"/\x7f", Err(Path)),
        (b"a", Err(Path)),
        (b"#", Err(Path)),
    ] {
        assert_eq!(downgraded(&pseudo([b"GET", b"https", b"h", path]), true, &relaxed), outcome);
    }
    for (name, value) in
        [(&b"X"[..], &b"y"[..]), (b"x", b"\0"), (b"connection", b"x"), (b"content-length", b"")]
    {
        let mut fields = usual();
        fields.push((name, value));
        assert!(downgraded(&fields, true, &relaxed).is_err());
    }
    let connect = pseudo([b"CONNECT", b"-", b"h", b"-"]);
    assert_eq!(downgraded(&connect, false, &relaxed), Err(Authority));
}

#[test]
fn head_has_the_values_that_fetches_return() {
    let (head, request) = read(&pseudo([b"GET", b"https", b"h:8443", b"/a?b"]), true, &RULES).unwrap();
    assert_eq!(head.target(), b"https://h:8443/a?b");
    assert_eq!((head.plain_target(), head.version().numbers()), (&b"/a?b"[..], (2, 0)));
    assert_eq!((head.get_known(KnownName::Host), head.method_id()), (Some(&b"h:8443"[..]), Method::Get));
    assert!(head.keep_alive() && request == Request::default());
    let (head, _) = read(&pseudo([b"GET", b"http", b"h:80", b"/"]), true, &RULES).unwrap();
    assert_eq!(head.target(), b"http://h/");
    let (head, _) = read(&pseudo([b"OPTIONS", b"https", b"h", b"*"]), true, &RULES).unwrap();
    assert_eq!(head.target(), b"https://h");
    let (head, _) = read(&pseudo([b"GET", b"https", b"-", b"/p"]), true, &RULES).unwrap();
    assert_eq!(head.target(), b"/p");
    let (head, _) = read(&pseudo([b"CONNECT", b"-", b"h:1", b"-"]), true, &RULES).unwrap();
    assert_eq!(head.target(), b"h:1");
}

#[test]
fn rules_change_the_target_as_haproxy_does() {
    let fresh = || read(&pseudo([b"GET", b"https", b"h", b"/a?b"]), true, &RULES).unwrap().0;
    let line = |head: &Head| written(head).split('|').next().unwrap_or_default().to_string();
    let mut head = fresh();
    assert!(head.set_path(b"/new"));
    assert_eq!((head.target(), line(&head)), (&b"https://h/new?b"[..], "GET /new?b HTTP/1.1".into()));
    assert!(head.set_query(b"q"));
    assert_eq!((head.target(), line(&head)), (&b"https://h/new?q"[..], "GET /new?q HTTP/1.1".into()));
    assert!(head.set_pathq(b"/p") && head.set_method(b"PUT"));
    assert_eq!((head.target(), line(&head)), (&b"https://h/p"[..], "PUT /p HTTP/1.1".into()));
    let mut head = fresh();
    assert!(head.set_target(b"http://n/x"));
    assert_eq!(line(&head), "GET http://n/x HTTP/1.1");
    let mut head = fresh();
    assert!(head.set_target(b"/x"));
    assert_eq!(line(&head), "GET /x HTTP/1.1");
}

#[test]
fn body_length_follows_the_fields_or_the_stream() {
    let post = || pseudo([b"POST", b"https", b"h", b"/"]);
    let with = |value| {
        let mut fields = post();
        fields.push((&b"content-length"[..], value));
        fields
    };
    for (fields, end, body) in [
        (post(), true, BodyLength::None),
        (post(), false, BodyLength::UntilClose),
        (with(b"5"), false, BodyLength::Length(5)),
        (with(b"0"), true, BodyLength::None),
        (with(b"0"), false, BodyLength::None),
        (pseudo([b"CONNECT", b"-", b"h:1", b"-"]), false, BodyLength::None),
    ] {
        let (mut head, _) = read(&fields, end, &RULES).unwrap();
        assert_eq!(head.request_body(), body);
        assert_eq!(head.settle_framing(body), Ok(true), "nothing was changed");
    }
    let (mut head, _) = read(&post(), false, &RULES).unwrap();
    head.set_chunked();
    assert_eq!(head.request_body(), BodyLength::Chunked);
    let mut fields = with(b"5");
    fields.push((b"expect", b"100-continue"));
    assert!(read(&fields, false, &RULES).unwrap().0.expects_continue());
}

#[test]
fn limits_are_checked_before_anything_is_stored() {
    let with = |count: usize, name: &'static [u8], value: &'static [u8]| {
        let mut fields = usual();
        fields.extend(std::iter::repeat_n((name, value), count));
        fields
    };
    for name in [&b"x"[..], b"cookie", b"host", b"accept"] {
        assert!(downgraded(&with(100, name, b"y"), true, &RULES).is_ok());
        assert_eq!(downgraded(&with(101, name, b"y"), true, &RULES), Err(TooMany));
    }
    let value: &'static [u8] = &[b'y'; 1000];
    assert!(downgraded(&with(15, b"x", value), true, &RULES).is_ok());
    assert_eq!(downgraded(&with(16, b"x", value), true, &RULES), Err(TooLarge));
    let path = [b"/", &[b'x'; 15_400][..]].concat();
    assert_eq!(downgraded(&pseudo([b"GET", b"https", b"h", &path]), true, &RULES), Err(TooLarge));
}

#[test]
fn the_priority_field_is_read() {
    let mut fields = usual();
    fields.push((b"priority", b"u=1, i"));
    let (_, request) = read(&fields, true, &RULES).unwrap();
    assert_eq!(request.priority, Some(Priority { urgency: 1, incremental: true }));
}

#[test]
fn start_lines_that_haproxy_answers_have_a_status() {
    assert_eq!([Method, Scheme, Path, Name].map(Cause::answer), [Some(400), Some(400), None, None]);
}
