//! Bytes of a configuration that are not UTF-8: in messages to clients and servers, in checks, logs and file names.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weir_tests::client::Client;
use weir_tests::logs::{Collector, DEFAULTS, GLOBAL};
use weir_tests::{Origin, Weir, eventually, free_port, scratch};

/// Returns the response to a GET request with these header lines, and fails unless it contains `wanted`.
#[track_caller]
fn expect(port: u16, path: &str, lines: &[u8], wanted: &[&[u8]]) -> Vec<u8> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
    let answer = Client::connect(port).send([head.as_bytes(), lines, b"\r\n"].concat()).read_to_end();
    for part in wanted {
        let is_there = answer.windows(part.len()).any(|bytes| bytes == *part);
        assert!(is_there, "{}: {} is not in {}", path, part.escape_ascii(), answer.escape_ascii());
    }
    answer
}

fn credentials(pair: &[u8]) -> Vec<u8> {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(pair)).into_bytes()
}

#[test]
fn users_cookies_and_replies_have_the_configured_bytes() {
    let origin = Origin::text("ok");
    let (port, to) = (free_port(), origin.port());
    let logs = Collector::new();
    let configuration = format!(
        r#"{GLOBAL}  setenv RAW "e\xe9"
  log 127.0.0.1:{log} local0
  description "d\xe9"
userlist u
  user "u\xe9" insecure-password "p\xe9"
{DEFAULTS}  log global
  option httplog
  log-tag "t\xe9"
frontend f
  bind 127.0.0.1:{port}
  stats enable
  stats uri "/stats"
  stats auth "s\xe9:p\xe9"
  http-request return status 200 content-type "text/\xe9" hdr x-env "%[env(RAW)]" hdr x-word "${{RAW}}" string ok if {{ path /reply }}
  http-request deny status 403 content-type "text/\xe8" string "\xe7" if {{ path /deny }}
  http-request redirect location / set-cookie "c\xe9=1" if {{ path /cookie }}
  http-request auth realm "r\xe9" unless {{ http_auth(u) }} or {{ path_beg /stats }}
  http-response set-status 200 reason "o\xe9"
  default_backend b
backend b
  cookie "k\xe9" insert
  server s 127.0.0.1:{to} cookie "v\xe9"
"#,
        log = logs.port(),
    );
    let weir = Weir::start(&configuration, &[port]);
    expect(port, "/", b"", &[b"401", b"realm=\"r\xe9\"\r\n"]);
    let own = credentials(b"u\xe9:p\xe9");
    expect(port, "/", &own, &[b"HTTP/1.1 200 o\xe9\r\n", b"\r\nset-cookie: k\xe9=v\xe9; path=/\r\n"]);
    let with_cookie = [&own[..], b"Cookie: k\xe9=v\xe9\r\n"].concat();
    let answer = expect(port, "/", &with_cookie, &[b"HTTP/1.1 200 "]);
    assert!(!answer.windows(10).any(|bytes| bytes == b"set-cookie"), "{}", answer.escape_ascii());
    expect(port, "/", &credentials("u\u{10ffe9}:p\u{10ffe9}".as_bytes()), &[b"HTTP/1.1 401 "]);
    expect(port, "/reply", b"", &[b"content-type: text/\xe9\r\n", b"x-env: e\xe9\r\n", b"x-word: e\xe9\r\n"]);
    expect(port, "/deny", b"", &[b"content-type: text/\xe8\r\n", b"\r\n\r\n\xe7"]);
    expect(port, "/cookie", b"", &[b"set-cookie: c\xe9=1; path=/;\r\n"]);
    expect(port, "/stats", &credentials(b"s\xe9:p\xe9"), &[b"HTTP/1.1 200 "]);
    expect(port, "/stats", &credentials("s\u{10ffe9}:p\u{10ffe9}".as_bytes()), &[b"HTTP/1.1 401 "]);
    let info = weir.ask_bytes(b"show info");
    assert!(info.windows(16).any(|bytes| bytes == b"description: d\xe9\n"), "{}", info.escape_ascii());
    let mut buffer = [0; 4096];
    let line = loop {
        let length = logs.0.recv(&mut buffer).expect("a log line");
        if buffer[..length].windows(7).any(|bytes| bytes == b" /reply") {
            break &buffer[..length];
        }
    };
    assert!(line.windows(4).any(|bytes| bytes == b" t\xe9["), "{}", line.escape_ascii());
}

/// Reads a request with a `content-length`.
fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        let body = end.map(|end| bytes.len() - end - 4);
        if body.is_some_and(|length| length >= 3) {
            return bytes;
        }
        match stream.read(&mut part) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&part[..count]),
            _ => return bytes,
        }
    }
}

#[test]
fn checks_send_and_expect_the_configured_bytes() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = asked.clone();
    let origin = Origin::raw(move |mut stream| {
        let request = read_request(&mut stream);
        if !request.is_empty() {
            *kept.lock().expect("no other thread failed") = request;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\no\xe9k");
    });
    let (port, to) = (free_port(), origin.port());
    let configuration = format!(
        r#"{GLOBAL}{DEFAULTS}frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  option httpchk
  http-check send meth POST uri "/\xe9" ver HTTP/1.1 hdr Host h hdr X-Raw "\xe8" body "b\xe9\xff"
  http-check expect string "o\xe9k"
  server s 127.0.0.1:{to} check inter 100ms
"#
    );
    let weir = Weir::start(&configuration, &[port]);
    assert!(eventually(|| weir.stat("b,s", "check_status") == "L7OK"), "{:?}", weir.statistics());
    let request = asked.lock().expect("no other thread failed").clone();
    for part in [&b"POST /\xe9 HTTP/1.1\r\n"[..], b"X-Raw: \xe8\r\n", b"\r\n\r\nb\xe9\xff"] {
        let is_there = request.windows(part.len()).any(|bytes| bytes.eq_ignore_ascii_case(part));
        assert!(is_there, "{} is not in {}", part.escape_ascii(), request.escape_ascii());
    }
}

#[test]
fn file_names_may_have_other_bytes() {
    let directory = scratch("raw");
    let write = |name: &[u8], text: &[u8]| {
        std::fs::write(directory.join(OsStr::from_bytes(name)), text).expect("a file");
    };
    write(b"m\xe9.map", b"/k v\xe9\n");
    write(b"l\xe9.lst", b"/list\n");
    write(b"f\xe9", b"path %[path] \xe9");
    let port = free_port();
    let configuration = format!(
        r#"{GLOBAL}{DEFAULTS}frontend f
  bind 127.0.0.1:{port}
  acl listed path -f "{at}/l\xe9.lst"
  http-request return status 200 content-type text/plain lf-file "{at}/f\xe9" if {{ path /file }}
  http-request return status 204 if listed
  http-request return status 200 hdr x-map "%[path,map({at}/m\xe9.map,none)]"
"#,
        at = directory.display(),
    );
    let weir = Weir::start(&configuration, &[port]);
    expect(port, "/k", b"", &[b"x-map: v\xe9\r\n"]);
    expect(port, "/list", b"", &[b"HTTP/1.1 204 "]);
    expect(port, "/file", b"", &[b"\r\n\r\npath /file \xe9"]);
    let name = [directory.display().to_string().as_bytes(), b"/m\xe9.map"].concat();
    let command = [b"set map ", &name[..], b" /k w\xe8"].concat();
    assert_eq!(weir.ask_bytes(&command), b"\n");
    expect(port, "/k", b"", &[b"x-map: w\xe8\r\n"]);
    let found = weir.ask_bytes(&[b"get map ", &name[..], b" /k"].concat());
    assert!(found.windows(10).any(|bytes| bytes == b"value=\"w\xe8\""), "{}", found.escape_ascii());
}
