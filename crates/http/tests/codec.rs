//! Tests the HTTP/1 codec as a whole: which messages are accepted, refused, relaxed and normalised, and that splitting the input or
//! writing the message back changes nothing.

#![allow(clippy::type_complexity, reason = "tables of cases")]

use http::{
    BodyLength, ErrorKind, Head, KnownName, Method, Name, ParseOptions, ParseStatus, RestrictNames, Version,
    parse_request, parse_response,
};
use proptest::prelude::*;

fn relaxed() -> ParseOptions {
    ParseOptions { relaxed: true, ..ParseOptions::default() }
}

fn request(text: &[u8], options: &ParseOptions) -> Result<Head, ErrorKind> {
    let mut head = Head::new();
    match parse_request(text, &mut head, options) {
        Ok(ParseStatus::Complete { len }) => {
            assert_eq!(len, text.len(), "all of {:?}", String::from_utf8_lossy(text));
            Ok(head)
        }
        Ok(ParseStatus::Partial) => panic!("partial: {:?}", String::from_utf8_lossy(text)),
        Err(error) => Err(error.kind),
    }
}

fn response(text: &[u8], options: &ParseOptions) -> Result<Head, ErrorKind> {
    let mut head = Head::new();
    match parse_response(text, &mut head, options) {
        Ok(ParseStatus::Complete { .. }) => Ok(head),
        Ok(ParseStatus::Partial) => panic!("partial: {:?}", String::from_utf8_lossy(text)),
        Err(error) => Err(error.kind),
    }
}

fn written(head: &Head) -> String {
    let mut out = Vec::new();
    head.write_to(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn request_syntax_is_as_strict_and_relaxed_as_haproxys() {
    use ErrorKind as E;
    #[rustfmt::skip]
    let cases: &[(&[u8], Option<E>, Option<E>)] = &[
        // request                                             strict               relaxed
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",                 None,                None),
        (b"\r\n\nGET / HTTP/1.1\r\n\r\n",                      None,                None),
        (b"GET  /\t HTTP/1.1\r\n\r\n",                         None,                None),
        (b"get / HTTP/1.1\r\n\r\n",                            None,                None),
        (b"GET / HTTP/1.1\nHost: a\n\n",                       None,                None),
        (b"GET /<>\"\\^`{|} HTTP/1.1\r\n\r\n",                 None,                None),
        (b"GET / HTTP/1.2\r\n\r\n",                            None,                None),
        (b"GET / HTTP/1.1\r\nX:\t a \t\r\nY:\r\n\r\n",         None,                None),
        (b"GET / HTTP/1.1\r\nX: a\x01\x7f\xff\r\n\r\n",        None,                None),
        (b" GET / HTTP/1.1\r\n\r\n",                           Some(E::Method),     Some(E::Method)),
        (b"G(T / HTTP/1.1\r\n\r\n",                            Some(E::Method),     Some(E::Method)),
        (b"GET HTTP/1.1\r\n\r\n",                              Some(E::Version),    Some(E::Target)),
        (b"\x16\x03\x01\x02",                                  Some(E::Method),     Some(E::Method)),
        (b"GET /\xe9 HTTP/1.1\r\n\r\n",                        Some(E::Target),     None),
        (b"GET /a#b HTTP/1.1\r\n\r\n",                         Some(E::Fragment),   None),
        (b"GET /a\x7f HTTP/1.1\r\n\r\n",                       Some(E::Target),     Some(E::Target)),
        (b"GET /a\x01 HTTP/1.1\r\n\r\n",                       Some(E::Target),     Some(E::Target)),
        (b"GET /\r\n",                                         Some(E::Version),    None),
        (b"POST /\r\n\r\n",                                    Some(E::Version),    Some(E::Version)),
        (b"GET / HTTP/1.1 \r\n\r\n",                           Some(E::Version),    Some(E::Version)),
        (b"GET / HTTP/1\r\n\r\n",                              Some(E::Version),    None),
        (b"GET / HTTP/\r\n\r\n",                               Some(E::Version),    Some(E::Version)),
        (b"GET / HTTP/1.10\r\n\r\n",                           Some(E::Version),    None),
        (b"GET / http/1.1\r\n\r\n",                            Some(E::Version),    Some(E::Version)),
        (b"GET / RTSP/1.0\r\n\r\n",                            Some(E::Version),    None),
        (b"GET / HTTP/1.1\rX",                                 Some(E::BareCr),     Some(E::BareCr)),
        (b"GET / HTTP/1.1\r\n\rX",                             Some(E::BareCr),     Some(E::BareCr)),
        (b"GET / HTTP/1.1\r\nX: a\rb\r\n\r\n",                 Some(E::BareCr),     Some(E::BareCr)),
        (b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",                 Some(E::Nul),        None),
        (b"GET / HTTP/1.1\r\n X: a\r\n\r\n",                   Some(E::Folding),    Some(E::Folding)),
        (b"GET / HTTP/1.1\r\nX : a\r\n\r\n",                   Some(E::Name),       None),
        (b"GET / HTTP/1.1\r\nX\0y: a\r\n\r\n",                 Some(E::Name),       None),
        (b"GET / HTTP/1.1\r\n: a\r\n\r\n",                     Some(E::Name),       Some(E::Name)),
        (b"GET / HTTP/1.1\r\nX\r\n\r\n",                       Some(E::Name),       Some(E::Name)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: A\r\n\r\n",      None,                None),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",      Some(E::Host),       Some(E::Host)),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a\tb\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: u@b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: \x7f\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: \xe4\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: a[b]\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: [::1]:8]\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: [a,b]\r\n\r\n", Some(E::HostCharacter), Some(E::HostCharacter)),
        (b"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", None, None),
        (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", None, None),
        (b"GET / HTTP/1.1\r\nHost: []\r\n\r\n", None, None),
        (b"GET / HTTP/1.1\r\nHost: a!$&'()*+-.:;<=>^_`{|}~\"%\r\n\r\n", None, None),
        (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", None, None),
        // The target's authority would replace the `Host`.
        (b"GET http://a,b:80/ HTTP/1.1\r\nHost: a\r\n\r\n",    Some(E::Host),       Some(E::HostCharacter)),
        (b"GET http://b:80/ HTTP/1.1\r\nHost: a\r\n\r\n",      Some(E::Host),       None),
        (b"OPTIONS * HTTP/1.1\r\n\r\n",                        None,                None),
        (b"OPTIONS */x HTTP/1.1\r\n\r\n",                      Some(E::Target),     Some(E::Target)),
        (b"GET * HTTP/1.1\r\n\r\n",                            Some(E::Target),     Some(E::Target)),
        (b"GET admin/a HTTP/1.1\r\n\r\n",                      Some(E::Target),     Some(E::Target)),
        (b"GET h.org:80 HTTP/1.1\r\nHost: h.org\r\n\r\n",      Some(E::Target),     Some(E::Target)),
        (b"CONNECT / HTTP/1.1\r\n\r\n",                        Some(E::Target),     Some(E::Target)),
        (b"CONNECT *x HTTP/1.1\r\n\r\n",                       Some(E::Target),     Some(E::Target)),
        (b"PRI / HTTP/1.1\r\nHost: h\r\n\r\n",           Some(E::Method),     Some(E::Method)),
        (b"CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n",             Some(E::Target),     None),
        (b"CONNECT h: HTTP/1.1\r\nHost: h\r\n\r\n",            Some(E::Target),     None),
        (b"CONNECT h:99999 HTTP/1.1\r\nHost: h:99999\r\n\r\n", Some(E::Target),     None),
        (b"CONNECT http://h:80 HTTP/1.1\r\nHost: h\r\n\r\n",   Some(E::Target),     Some(E::Target)),
        (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Some(E::WebSocket), None),
        (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", None, None),
    ];
    for (text, strict, loose) in cases {
        let name = String::from_utf8_lossy(text);
        let found = request(text, &ParseOptions::default());
        assert_eq!(found.as_ref().err(), strict.as_ref(), "strict: {name:?}");
        assert!(found.is_err() || found.is_ok_and(|head| head.violation().is_none()));
        let found = request(text, &relaxed());
        assert_eq!(found.as_ref().err(), loose.as_ref(), "relaxed: {name:?}");
        if let (Ok(head), true) = (found, strict.is_some()) {
            let quiet = matches!(strict, Some(E::Target)) && text.starts_with(b"CONNECT");
            assert!(quiet || head.violation().is_some(), "captured: {name:?}");
        }
    }
    // The bytes after an HTTP/0.9 request are not a part of it.
    let mut head = Head::new();
    let outcome = parse_request(b"GET /\r\nHost: a\r\n\r\n", &mut head, &relaxed());
    assert_eq!(outcome, Ok(ParseStatus::Complete { len: 7 }));
    assert_eq!((head.version(), head.keep_alive(), head.fields().count()), (Version::Http10, false, 0));
    let strict_lf = ParseOptions { lone_lf: false, ..ParseOptions::default() };
    assert_eq!(request(b"GET / HTTP/1.1\n\n", &strict_lf).err(), Some(E::BareLf));
    let unfolded = ParseOptions { folding: false, ..ParseOptions::default() };
    assert_eq!(request(b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", &unfolded).err(), Some(E::Folding));
}

#[test]
fn host_and_authority_must_agree_and_default_ports_vanish() {
    // The outcome: target and Host after parsing, or None for a 400.
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str, Option<(&str, &str)>)] = &[
        ("GET",     "http://u:p@h:80/1",  "h:80",   Some(("http://u:p@h/1",    "h"))),
        ("GET",     "http://h:8080/2",    "h:8080", Some(("http://h:8080/2",   "h:8080"))),
        ("GET",     "https://h:443/3",    "h:443",  Some(("https://h/3",       "h"))),
        ("GET",     "https://h:80/4",     "h:80",   Some(("https://h:80/4",    "h:80"))),
        ("CONNECT", "h:80",               "h:80",   Some(("h:80",              "h"))),
        ("CONNECT", "h:80",               "h",      Some(("h:80",              "h"))),
        ("CONNECT", "h:80",               "h:",     Some(("h:80",              "h:"))),
        ("CONNECT", "h:443",              "h:443",  Some(("h:443",             "h"))),
        ("CONNECT", "h:8443",             "h:8443", Some(("h:8443",            "h:8443"))),
        ("GET",     "http://h1/",         "h2",     None),
        ("GET",     "http://h:80/",       "h:81",   None),
        ("GET",     "http://h:8080/",     "h",      None),
        ("GET",     "http://h/",          "h:81",   None),
        ("CONNECT", "h1:80",              "h2:80",  None),
        ("CONNECT", "h:80",               "h:443",  None),
        ("CONNECT", "h:8080",             "h",      None),
        ("GET",     "http://h:80/20",     "h",      Some(("http://h/20",       "h"))),
        ("GET",     "http://h/22",        "h:80",   Some(("http://h/22",       "h:80"))),
        ("GET",     "http://h:/24",       "h",      Some(("http://h/24",       "h"))),
        ("GET",     "https://h/27",       "h:",     Some(("https://h/27",      "h:"))),
        ("GET",     "http://h:80/28",     "h:",     Some(("http://h/28",       "h"))),
        ("GET",     "http://h:/29",       "h:80",   Some(("http://h/29",       "h"))),
        ("GET",     "http://:",           ":80",    Some(("http:///",          ""))),
        ("GET",     "https://:",          ":",      Some(("https:///",         ""))),
        ("GET",     "http://h",           "h",      Some(("http://h/",         "h"))),
        ("GET",     "https://h:",         "h",      Some(("https://h/",        "h"))),
        ("GET",     "https://h:444",      "h:444",  Some(("https://h:444/",    "h:444"))),
        ("GET",     "http://h?a=b",       "h",      Some(("http://h?a=b",      "h"))),
        ("GET",     "http://h:80?c=d",    "h:80",   Some(("http://h?c=d",      "h"))),
        ("GET",     "HTTP://H:80/",       "h",      Some(("HTTP://H/",         "H"))),
        ("GET",     "ftp://h:21",         "h:21",   Some(("ftp://h:21",        "h:21"))),
        ("OPTIONS", "http://h",           "h",      Some(("http://h",          "h"))),
        ("OPTIONS", "http://h:80",        "h:80",   Some(("http://h",          "h"))),
        ("OPTIONS", "http://h:80/",       "h:80",   Some(("http://h/",         "h"))),
        ("GET",     "http://[::1]:80/",   "[::1]",  Some(("http://[::1]/",     "[::1]"))),
    ];
    for (method, target, host, outcome) in cases {
        let text = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let found = request(text.as_bytes(), &ParseOptions::default());
        match outcome {
            None => assert!(found.is_err_and(|e| e.status() == 400), "{text}"),
            Some((target, host)) => {
                let head = found.unwrap_or_else(|e| panic!("{text}: {e:?}"));
                assert_eq!(String::from_utf8_lossy(head.target()), *target, "{text}");
                assert_eq!(head.get_known(KnownName::Host), Some(host.as_bytes()), "{text}");
                assert!(written(&head).starts_with(&format!("{method} {target} HTTP/1.1\r\n")));
            }
        }
    }
    let text = b"GET http://h#f HTTP/1.1\r\nhost: other\r\n\r\n";
    assert_eq!(request(text, &relaxed()).unwrap().target(), b"http://h#f");
}

#[test]
fn request_framing_follows_rfc_9112() {
    use BodyLength as B;
    use ErrorKind as E;
    #[rustfmt::skip]
    let cases: &[(&str, &str, Result<(B, bool), E>)] = &[
        // start line headers body, keep-alive
        ("POST / HTTP/1.1", "",                                                         Ok((B::None, true))),
        ("POST / HTTP/1.1", "Content-Length: 5\r\n",                                    Ok((B::Length(5), true))),
        ("POST / HTTP/1.1", "Content-Length: 05\r\n",                                   Ok((B::Length(5), true))),
        ("POST / HTTP/1.1", "Content-Length: 5, 5\r\n",                                 Ok((B::Length(5), true))),
        ("POST / HTTP/1.1", "Content-Length: 5\r\ncontent-length: 5\r\n",               Ok((B::Length(5), true))),
        ("POST / HTTP/1.1", "Content-Length: 0\r\n",                                    Ok((B::None, true))),
        ("POST / HTTP/1.1", "Content-Length: 5\r\nContent-Length: 6\r\n",               Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length: 5, 6\r\n",                                 Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length: 0,\r\n",                                   Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length:\r\n",                                      Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length: +5\r\n",                                   Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length: 5 5\r\n",                                  Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length: 99999999999999999999\r\n",                 Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Content-Length: 9223372036854775808\r\n",                  Err(E::ContentLength)),
        ("POST / HTTP/1.1", "Transfer-Encoding: ChunkeD\r\n",                           Ok((B::Chunked, true))),
        ("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",      Ok((B::Chunked, false))),
        ("POST / HTTP/1.1", "Content-Length: x\r\nTransfer-Encoding: chunked\r\n",      Err(E::ContentLength)),
        ("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n",                           Ok((B::Chunked, false))),
        ("POST / HTTP/1.1", "Transfer-Encoding: chunked, chunked\r\n",                  Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding: chunked, gzip\r\n",                     Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding: gzip\r\n",                              Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding: identity\r\n",                          Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding:\r\n",                                   Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding: chunked,\r\n",                          Err(E::TransferEncoding)),
        ("POST / HTTP/1.1", "Transfer-Encoding: gzip, chunked\r\n",                     Err(E::TransferCoding)),
        ("GET / HTTP/1.1",  "Content-Length: 5\r\n",                                    Ok((B::Length(5), true))),
        ("GET / HTTP/1.0",  "Content-Length: 5\r\n",                                    Err(E::Payload)),
        ("DELETE / HTTP/1.0", "Transfer-Encoding: chunked\r\n",                         Err(E::Payload)),
        ("GET / HTTP/1.0",  "Content-Length: 0\r\n",                                    Ok((B::None, false))),
        ("GET / HTTP/1.0",  "Connection: x, Keep-Alive\r\n",                            Ok((B::None, true))),
        ("GET / HTTP/1.1",  "Connection: Close\r\n",                                    Ok((B::None, false))),
    ];
    for (line, headers, outcome) in cases {
        let text = format!("{line}\r\n{headers}\r\n");
        let found = request(text.as_bytes(), &ParseOptions::default())
            .map(|head| (head.request_body(), head.keep_alive()));
        assert_eq!(found, *outcome, "{text}");
    }
    let options = ParseOptions { any_method_payload: true, keep_insecure: true, ..ParseOptions::default() };
    let head = request(b"GET / HTTP/1.0\r\nContent-Length: 5\r\n\r\n", &options).unwrap();
    assert_eq!(head.request_body(), B::Length(5));
    let text = b"PUT / HTTP/1.1\r\nContent-Length: 5\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n";
    let head = request(text, &options).unwrap();
    assert!(head.keep_alive());
    assert_eq!(written(&head), "PUT / HTTP/1.1\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(
        request(b"POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", &options).map(|h| written(&h)),
        Ok("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n".into())
    );
}

#[test]
fn response_framing_depends_on_method_and_status() {
    use BodyLength as B;
    use ErrorKind as E;
    #[rustfmt::skip]
    let cases: &[(&str, Method, Result<B, E>)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",                        Method::Get,     Ok(B::Length(5))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",                        Method::Get,     Ok(B::Length(0))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",                        Method::Head,    Ok(B::None)),
        ("HTTP/1.1 200 OK\r\n\r\n",                                             Method::Get,     Ok(B::UntilClose)),
        ("HTTP/1.1 200\r\n\r\n",                                                Method::Get,     Ok(B::UntilClose)),
        ("HTTP/1.1 200 OK\r\n\r\n",                                             Method::Connect, Ok(B::UntilClose)),
        ("HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\n",                        Method::Connect, Ok(B::Length(3))),
        ("HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n",                        Method::Get,     Ok(B::None)),
        ("HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n",               Method::Get,     Ok(B::None)),
        ("HTTP/1.1 100 Continue\r\n\r\n",                                       Method::Get,     Ok(B::None)),
        ("HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n",                           Method::Get,     Ok(B::UntilClose)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", Method::Get, Ok(B::Chunked)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",         Method::Get,     Err(E::TransferCoding)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",                  Method::Get,     Err(E::TransferEncoding)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",      Method::Get,     Err(E::TransferEncoding)),
        ("HTTP/1.1 2000 OK\r\n\r\n",                                            Method::Get,     Err(E::StatusCode)),
        ("HTTP/1.1 20 OK\r\n\r\n",                                              Method::Get,     Err(E::StatusCode)),
        ("HTTP/1.1 099 OK\r\n\r\n",                                             Method::Get,     Err(E::StatusCode)),
        ("HTTP/1.1 2x0 OK\r\n\r\n",                                             Method::Get,     Err(E::StatusCode)),
        ("HTTP/11 200 OK\r\n\r\n",                                              Method::Get,     Err(E::Version)),
        ("ICY 200 OK\r\n\r\n",                                                  Method::Get,     Err(E::Version)),
        ("HTTP/1.1 200 O\0K\r\n\r\n",                                           Method::Get,     Err(E::Nul)),
        ("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Method::Get,     Err(E::WebSocket)),
    ];
    for (text, method, outcome) in cases {
        let found = response(text.as_bytes(), &ParseOptions::default()).map(|h| h.response_body(*method));
        assert_eq!(found, *outcome, "{text}");
    }
    let head =
        response(b"HTTP/1.1 2000 Fine\r\nTransfer-Encoding: chunked, , chunked\r\n\r\n", &relaxed()).unwrap();
    assert_eq!((head.status(), head.response_body(Method::Get)), (2000, B::Chunked));
    assert!(response(b"HTTP/1.1 70000 X\r\n\r\n", &relaxed()).is_err());
    let head = response(b"HTTP/1.0 200 Very fine \r\n\r\n", &relaxed()).unwrap();
    assert_eq!((head.version(), head.reason()), (Version::Http10, &b"Very fine "[..]));
}

#[test]
fn folded_values_are_joined_with_spaces() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\nX: a,b\r\n c,d\r\n\t e \r\nY:\r\n  z\r\nZ: q\r\n \r\n\r\n";
    let head = request(text, &ParseOptions::default()).unwrap();
    assert_eq!(head.get(&Name::new(b"x")), Some(&b"a,b   c,d  \t e"[..]));
    assert_eq!(head.get(&Name::new(b"y")), Some(&b"z"[..]));
    assert_eq!(head.get(&Name::new(b"z")), Some(&b"q"[..]));
    assert_eq!(written(&head).matches("\r\n").count(), 6, "no fold is sent on: {:?}", written(&head));
}

#[test]
fn lines_dropped_in_relaxed_mode_are_invisible() {
    let text = b"GET / HTTP/1.1\r\nA: 1\r\nB x: 2\r\n folded\r\nC: 3\n\r\n";
    let head = request(text, &relaxed()).unwrap();
    assert_eq!(head.len(), 2);
    assert_eq!(written(&head), "GET / HTTP/1.1\r\nA: 1\r\nC: 3\r\n\r\n");
    assert_eq!(head.violation().map(|v| (v.kind, v.offset)), Some((ErrorKind::Name, 23)));
}

#[test]
fn limits_cause_the_statuses_of_the_manual() {
    let lines = |n: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(n));
    assert!(request(lines(100).as_bytes(), &ParseOptions::default()).is_ok());
    let error = request(lines(101).as_bytes(), &ParseOptions::default()).err();
    assert_eq!(error.map(|e| (e, e.status())), Some((ErrorKind::TooManyFields, 400)));
    let options = ParseOptions { max_bytes: 64, ..ParseOptions::default() };
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(64));
    assert_eq!(request(long.as_bytes(), &options).err().map(ErrorKind::status), Some(414));
    let long = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "a".repeat(64));
    assert_eq!(request(long.as_bytes(), &options).err().map(ErrorKind::status), Some(431));
}

#[test]
fn edits_affect_lookups_and_output() {
    let text = b"GET /p?q HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nAccept: */*\r\nx-a: 2\r\nCookie: c=1\r\n\r\n";
    let mut head = request(text, &ParseOptions::default()).unwrap();
    assert_eq!(written(&head).as_bytes(), text, "an untouched head is written as it came");
    let (x_a, new) = (Name::new(b"X-a"), Name::new(b"X-New"));
    assert_eq!(head.get_all(&x_a).collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(head.remove_all(&x_a), 2);
    assert_eq!((head.get(&x_a), head.len()), (None, 3));
    head.append(b"X-New", b"v\r\nInjected: 1");
    head.set(&new, b"w");
    head.prepend(b"First", b"0");
    let cookie = head.indices(&Name::new(b"cookie")).next().unwrap();
    assert!(head.replace_value_at(cookie, b"c=2"));
    assert!(!head.append(b"bad name", b""));
    assert!(!head.append(b"bad\r\nname", b""));
    assert!(head.set_path(b"/r") && head.set_method(b"POST"));
    assert!(!head.set_path(b"/a b") && !head.set_target(b"/\r\n"));
    head.set_version(Version::Http10);
    assert_eq!(
        written(&head),
        "POST /r?q HTTP/1.0\r\nFirst: 0\r\nHost: h\r\nAccept: */*\r\nCookie: c=2\r\nx-new: w\r\n\r\n"
    );
    head.append(b"Evil", b"a\r\nb\0");
    assert_eq!(head.get(&Name::new(b"evil")), Some(&b"a  b "[..]));
    assert!(head.set_query(b"") && head.target() == b"/r?");
    assert!(head.set_pathq(b"/z") && head.target() == b"/z");
    assert!(head.set_query(b"a=b") && head.target() == b"/z?a=b");
    head.set_target(b"http://h:8/x?y");
    assert!(head.set_path(b"/w") && head.target() == b"http://h:8/w?y");
    head.start_response(404, None);
    assert_eq!(written(&head), "HTTP/1.1 404 Not Found\r\n\r\n");
}

#[test]
fn upgrades_to_http_2_are_removed() {
    for (fields, rest) in [
        ("Connection: Upgrade\r\nUpgrade: h2c\r\n", ""),
        ("Connection: upgrade\r\nUpgrade: H2\r\n", ""),
        ("Upgrade: h2c\r\n", ""),
        ("Connection: Upgrade\r\n", ""),
        (
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n",
            "Connection: HTTP2-Settings\r\nHTTP2-Settings: AAM\r\n",
        ),
        ("Connection: Upgrade\r\nUpgrade: h2c, foo\r\n", "Connection: Upgrade\r\nUpgrade: foo\r\n"),
        ("Connection: Upgrade\r\nUpgrade: foo\r\n", "Connection: Upgrade\r\nUpgrade: foo\r\n"),
        ("Upgrade: foo\r\n", ""),
    ] {
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        let mut head = request(text.as_bytes(), &ParseOptions::default()).unwrap();
        head.clean_connection();
        head.clean_upgrade();
        head.clean_vain_upgrade();
        assert_eq!(written(&head), format!("GET / HTTP/1.1\r\n{rest}\r\n"), "{fields}");
        assert_eq!(head.has_upgrade(), rest.contains("Upgrade: "), "{fields}");
    }
    // In a response the token stays.
    let mut head = Head::new();
    let bytes = b"HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    parse_response(bytes, &mut head, &ParseOptions::default()).unwrap();
    head.clean_upgrade();
    assert_eq!(written(&head), "HTTP/1.1 200 OK\r\nConnection: Upgrade\r\n\r\n");
}

#[test]
fn connection_headers_lose_hop_by_hop_tokens() {
    for (connection, rest, flags) in [
        ("close", "", (true, false)),
        ("Keep-Alive", "", (false, true)),
        ("Upgrade, close, foo", "Connection: Upgrade,foo\r\n", (true, false)),
        ("foo", "Connection: foo\r\n", (false, false)),
    ] {
        let text = format!("GET / HTTP/1.1\r\nA: b\r\nConnection: {connection}\r\nC: d\r\n\r\n");
        let mut head = request(text.as_bytes(), &ParseOptions::default()).unwrap();
        assert_eq!((head.has_close(), head.has_keep_alive()), flags);
        head.clean_connection();
        assert_eq!(written(&head), format!("GET / HTTP/1.1\r\nA: b\r\n{rest}C: d\r\n\r\n"));
    }
    for (te, left) in [
        ("trailers", Some("trailers")),
        ("trailers, gzip", Some("trailers")),
        ("gzip", None),
        ("trailers;q=0.5", None),
    ] {
        let text = format!("GET / HTTP/1.1\r\nTE: {te}\r\nExpect: 100-Continue\r\n\r\n");
        let head = request(text.as_bytes(), &ParseOptions::default()).unwrap();
        assert_eq!(head.get_known(KnownName::Te), left.map(str::as_bytes), "{te}");
        assert!(head.expects_continue());
    }
}

#[test]
fn names_outside_letters_digits_and_hyphen_can_be_restricted() {
    let text = b"GET / HTTP/1.1\r\nX_F: 1\r\nX-F: 2\r\n\r\n";
    for (policy, allowed, left) in [
        (RestrictNames::Preserve, true, 2),
        (RestrictNames::Delete, true, 1),
        (RestrictNames::Reject, false, 2),
    ] {
        let mut head = request(text, &ParseOptions::default()).unwrap();
        assert_eq!((head.restrict_names(policy), head.len()), (allowed, left));
    }
}

/// The result of a parse in a comparable form.
fn outcome(pieces: &[usize], text: &[u8], options: &ParseOptions, response: bool) -> String {
    let parse = if response { parse_response } else { parse_request };
    let mut head = Head::new();
    for &end in pieces {
        match parse(&text[..end], &mut head, options) {
            Ok(ParseStatus::Partial) => {}
            Ok(ParseStatus::Complete { len }) => {
                return format!("{len} {:?} {}", head.violation(), written(&head));
            }
            Err(error) => return format!("{error:?}"),
        }
    }
    "partial".into()
}

#[test]
fn split_input_parses_like_the_whole() {
    let texts: &[&[u8]] = &[
        b"\r\n\r\nPOST  /a?b HTTP/1.1\r\nHost: a\r\nX: b\r\n\tfold\r\nContent-Length: 3, 3\r\n\r\nabc",
        b"GET http://h:80 HTTP/1.1\r\nHost: h\r\nTE: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nX y: a\r\nZ: \0\r\n\r\n",
        b"GET /\xff#a\r\nA: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 2\r\n\r\n",
    ];
    for text in texts {
        for options in [ParseOptions::default(), relaxed()] {
            let response = text.starts_with(b"HTTP");
            let whole = outcome(&[text.len()], text, &options, response);
            for at in 0..text.len() {
                assert_eq!(outcome(&[at, text.len()], text, &options, response), whole, "cut at {at}");
            }
            let bytewise: Vec<usize> = (0..=text.len()).collect();
            assert_eq!(outcome(&bytewise, text, &options, response), whole, "byte by byte");
        }
    }
}

/// A long line is not rescanned for each new byte, but errors in it are still found at the same position.
#[test]
fn long_lines_parse_the_same_byte_by_byte() {
    let long = "v".repeat(2000);
    for text in [
        format!("GET /{long} HTTP/1.1\r\nHost: a\r\nx: {long}\r\ny: z\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nx: {long}\x01{long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{long} : {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nx: {long}\u{e9}{long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", long.repeat(8)),
    ] {
        let options = ParseOptions::default();
        let pieces: Vec<usize> = (1..=text.len()).collect();
        let whole = outcome(&[text.len()], text.as_bytes(), &options, false);
        assert_eq!(outcome(&pieces, text.as_bytes(), &options, false), whole, "{}", &text[..40]);
    }
}

fn line_soup() -> impl Strategy<Value = Vec<u8>> {
    let atom = prop::sample::select(vec![
        &b"GET / HTTP/1.1\r\n"[..],
        b"HTTP/1.1 200 OK\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close, upgrade\r\n",
        b"Upgrade: websocket\r\n",
        b"\r\n",
        b"\n",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"\r",
        b"X: y\r\n",
        b"X y: z\r\n",
        b"GET http://h:80",
        b" HTTP/1.1",
        b"CONNECT h:80",
        b"#",
        b"TE: gzip\r\n",
        b"\xff",
    ]);
    prop::collection::vec(atom, 0..12).prop_map(|atoms| atoms.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic_however_split(
        text in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), line_soup()],
        cut in any::<prop::sample::Index>(),
        loose in any::<bool>(),
        response in any::<bool>(),
    ) {
        let options = ParseOptions { relaxed: loose, max_fields: 4, ..ParseOptions::default() };
        let whole = outcome(&[text.len()], &text, &options, response);
        let cut = cut.index(text.len() + 1);
        prop_assert_eq!(outcome(&[cut, text.len()], &text, &options, response), whole);
    }

    #[test]
    fn written_heads_parse_back_to_the_same_fields(
        fields in prop::collection::vec(("[!-~&&[^:\"(),/;<=>?@\\[\\\\\\]{}]]{1,12}", "[ -~]{0,40}"), 0..20),
        remove in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        path in "/[a-z0-9?&=]{0,20}",
    ) {
        let mut text = format!("GET {path} HTTP/1.1\r\n");
        for (name, value) in &fields {
            // The parser may change fields with a meaning, such as TE; these names have none.
            text.push_str(&format!("x-{name}:{value}\r\n"));
        }
        text.push_str("\r\n");
        let mut head = request(text.as_bytes(), &ParseOptions::default()).unwrap();
        prop_assert_eq!(head.len(), fields.len());
        if !fields.is_empty() {
            for index in remove {
                head.remove_at(index.index(fields.len()));
            }
            head.append(b"added", b"x");
            head.replace_value_at(0, b"replaced");
        }
        let again = request(written(&head).as_bytes(), &ParseOptions::default()).unwrap();
        prop_assert_eq!(head.fields().collect::<Vec<_>>(), again.fields().collect::<Vec<_>>());
        prop_assert_eq!(head.target(), again.target());
    }
}

#[test]
fn invalid_versions_are_refused_before_the_line_ends() {
    let strict = ParseOptions::default();
    for text in [&b"yyyy"[..], b"HTTX", b"HTTP/1.x", b"HTTP/1.10", b"http/1.1"] {
        let mut head = Head::new();
        let error = parse_response(text, &mut head, &strict).map(|_| ()).map_err(|error| error.kind);
        assert_eq!(error, Err(ErrorKind::Version), "{}", text.escape_ascii());
        let request = [b"GET / ", text].concat();
        let mut head = Head::new();
        let error = parse_request(&request, &mut head, &strict).map(|_| ()).map_err(|error| error.kind);
        assert_eq!(error, Err(ErrorKind::Version), "{}", request.escape_ascii());
    }
    for text in
        [&b"H"[..], b"HTTP", b"HTTP/", b"HTTP/1", b"HTTP/1.", b"HTTP/1.1", b"HTTP/1.1 ", b"HTTP/1.1 20"]
    {
        let mut head = Head::new();
        let status = parse_response(text, &mut head, &strict);
        assert!(matches!(status, Ok(ParseStatus::Partial)), "{}", text.escape_ascii());
    }
}
