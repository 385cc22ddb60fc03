//! Compression of bodies: every keyword, each coding as a decoder of its own sees it, bodies in
//! pieces and slow ones, both directions, both versions of HTTP on both sides; what is not
//! compressed; counters and limits. What is expected was seen at HAProxy 3.5.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};

use weir_tests::chunks::{chunked, unchunked};
use weir_tests::client::{Client, Response};
use weir_tests::multiplexed::{DATA, Frames};
use weir_tests::{Origin, Weir, eventually, free_port, workspace};

const TEXT: &str = "text of which much comes again, and again, and again\n";

/// A body that is worth it.
fn content(length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for line in 0.. {
        if all.len() >= length {
            break;
        }
        all.extend_from_slice(format!("{line}: {TEXT}").as_bytes());
    }
    all.truncate(length);
    all
}

/// What a decoder makes of it.
fn decoded(coding: &str, coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "gzip" => _ = flate2::read::GzDecoder::new(coded).read_to_end(&mut plain).expect("gzip"),
        "deflate" => _ = flate2::read::ZlibDecoder::new(coded).read_to_end(&mut plain).expect("deflate"),
        "raw-deflate" => {
            _ = flate2::read::DeflateDecoder::new(coded).read_to_end(&mut plain).expect("raw deflate")
        }
        "br" => _ = brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain).expect("br"),
        "zstd" => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(coded);
            let mut scratch = vec![0; 64 * 1024];
            loop {
                let mut output = zstd_safe::OutBuffer::around(&mut scratch[..]);
                let left = context.decompress_stream(&mut output, &mut input).expect("zstd");
                plain.extend_from_slice(output.as_slice());
                if left == 0 {
                    break;
                }
                assert!(input.pos() < coded.len() || output.pos() > 0, "the frame has an end");
            }
        }
        _ => plain.extend_from_slice(coded),
    }
    plain
}

/// The payload of a response, its chunks taken off.
fn payload(response: &Response) -> Vec<u8> {
    match response.header("transfer-encoding") {
        Some(_) => unchunked(&response.body).0,
        None => response.body.clone(),
    }
}

fn start(proxies: &str) -> (Weir, u16) {
    start_with("", proxies)
}

/// `PORT` stands for the address of the first listener.
fn start_with(global: &str, proxies: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n{global}\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n{}",
        proxies.replace("PORT", &format!("127.0.0.1:{port}"))
    );
    (Weir::start(&text, &[port]), port)
}

/// Answers with the fields that the path names, percent signs for spaces, and `content`.
fn origin(length: usize) -> Origin {
    Origin::start(move |head, _| {
        let body = content(length);
        let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let fields: String = path
            .split('&')
            .filter(|field| field.contains(':'))
            .map(|f| format!("{}\r\n", f.replace('%', " ")))
            .collect();
        let status = path.split('&').find_map(|word| word.strip_prefix("status=")).unwrap_or("200");
        let version = if path.contains("old") { "1.0" } else { "1.1" };
        let kind = if path.contains("untyped") { "" } else { "Content-Type: text/plain\r\n" };
        let mut answer = format!("HTTP/{version} {status} OK\r\n{kind}{fields}").into_bytes();
        if path.contains("chunked") {
            answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            let trailers = if path.contains("trailers") { "X-Behind: it\r\n" } else { "" };
            answer.extend_from_slice(&chunked(&body, 777, trailers));
        } else if path.contains("bodiless") {
            answer.extend_from_slice(b"\r\n");
        } else {
            answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            if !head.starts_with("HEAD") {
                answer.extend_from_slice(&body);
            }
        }
        answer
    })
}

fn ask(port: u16, path: &str, fields: &str) -> Response {
    Client::connect(port)
        .send(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
        .response()
        .expect("an answer")
}

fn accepting(port: u16, path: &str, codings: &str) -> Response {
    ask(port, path, &format!("Accept-Encoding: {codings}\r\n"))
}

#[test]
fn each_coding_is_what_its_decoders_expect() {
    let length = 200_000;
    let origin = origin(length);
    for (algorithm, token) in
        [("gzip", "gzip"), ("deflate", "deflate"), ("raw-deflate", "deflate"), ("zstd", "zstd"), ("br", "br")]
    {
        for level in [1, 2, 9] {
            let (_weir, port) = start_with(
                &format!(" tune.comp.maxlevel {level}\n tune.zlib.memlevel 7\n tune.zlib.windowsize 14\n"),
                &format!(
                    "listen l\n bind PORT\n compression algo {algorithm}\n server s 127.0.0.1:{}\n",
                    origin.port()
                ),
            );
            for path in ["known", "chunked"] {
                let response = accepting(port, path, token);
                assert_eq!(response.header("content-encoding"), Some(token), "{algorithm} {level} {path}");
                assert_eq!(response.header("transfer-encoding"), Some("chunked"));
                assert_eq!(response.header("content-length"), None);
                assert_eq!(response.header("vary"), Some("Accept-Encoding"));
                let coded = payload(&response);
                assert!(coded.len() < length / 4, "{algorithm} {level}: {}", coded.len());
                assert!(decoded(algorithm, &coded) == content(length), "{algorithm} {level} {path}");
            }
        }
    }
}

#[test]
fn trailers_follow_a_compressed_body() {
    let origin = origin(3000);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo-res gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let mut client = Client::connect(port);
    client.send(
        "GET /chunked-trailers HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n",
    );
    assert!(client.read_head().to_ascii_lowercase().contains("content-encoding: gzip"));
    let (coded, behind) = unchunked(&client.read_to_end());
    assert!(decoded("gzip", &coded) == content(3000));
    assert_eq!(String::from_utf8_lossy(&behind).to_ascii_lowercase(), "x-behind: it\r\n\r\n");
}

#[test]
fn the_client_chooses_among_what_is_offered() {
    let origin = origin(500);
    let be = |algorithms: &str| {
        start(&format!(
            "listen l\n bind PORT\n compression algo {algorithms}\n compression type text/plain\n server s 127.0.0.1:{}\n",
            origin.port()
        ))
    };
    let (_weir, port) = be("gzip deflate");
    for (accepted, expected) in [
        ("gzip, deflate", Some("gzip")),
        ("deflate, gzip", Some("deflate")),
        ("gzip;q=0.5, deflate", Some("deflate")),
        ("deflate;q=0.5,gzip;q=0.5", Some("deflate")),
        ("*;q=0, gzip;q=0.750, deflate;q=0.500", Some("gzip")),
        ("*;q=0, gzip;q=0.500, deflate;q=0.750", Some("deflate")),
        ("*", Some("deflate")),
        ("gzip;q=0", None),
        ("gzip;q=0.0", None),
        ("gzip; q=0.001", Some("gzip")),
        ("gzip ;q=1", Some("gzip")),
        ("gzip;q=abc", Some("gzip")),
        ("gzip;x=1;q=0", None),
        ("GZIP", Some("gzip")),
        ("x-gzip", None),
        ("br, zstd", None),
        ("identity", None),
    ] {
        assert_eq!(accepting(port, "", accepted).header("content-encoding"), expected, "{accepted}");
    }
    assert_eq!(ask(port, "", "").header("content-encoding"), None);
    assert_eq!(ask(port, "", "").header("vary"), None);
    let twice = ask(port, "", "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n");
    assert_eq!(twice.header("content-encoding"), Some("gzip"));
    // Where the configuration names codings that HAProxy has not, its order counts among equals.
    let (_weir, port) = be("zstd br gzip");
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("gzip, br;q=0.9, zstd;q=0.8", Some("gzip")),
        ("*", Some("zstd")),
    ] {
        assert_eq!(accepting(port, "", accepted).header("content-encoding"), expected, "{accepted}");
    }
}

#[test]
fn browsers_that_say_what_they_cannot_do_get_bodies_as_they_are() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (agent, expected) in [
        ("Mozilla/4", None),
        ("Mozilla/4.0 (compatible; MSIE 5.0)", None),
        ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", None),
        ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)", Some("gzip")),
        ("Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 6.0)", Some("gzip")),
        ("Mozilla/5.0", Some("gzip")),
    ] {
        let response = ask(port, "", &format!("Accept-Encoding: gzip\r\nUser-Agent: {agent}\r\n"));
        assert_eq!(response.header("content-encoding"), expected, "{agent}");
    }
}

#[test]
fn identity_changes_the_framing_and_not_the_bytes() {
    let origin = origin(500);
    let (weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend b\nbackend b\n compression algo identity\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = ask(port, "ETag:%\"x\"", "");
    assert_eq!(response.header("content-encoding"), None);
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    assert_eq!(response.header("etag"), Some("W/\"x\""));
    assert!(payload(&response) == content(500));
    assert!(eventually(|| weir.stat("b,BACKEND", "comp_byp") == "500"));
    assert_eq!(weir.stat("b,BACKEND", "comp_in"), "0");
    assert_eq!(weir.stat("b,BACKEND", "comp_rsp"), "1");
}

#[test]
fn what_must_not_be_changed_is_not() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n compression type text/plain text/css\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (path, expected) in [
        ("status=201", Some("gzip")),
        ("status=203", Some("gzip")),
        ("status=206", None),
        ("status=400", None),
        ("status=500", None),
        ("old", None),
        ("untyped", None),
        ("untyped&Content-Type:%text/html", None),
        ("untyped&Content-Type:%TEXT/CSS;%charset=x", Some("gzip")),
        ("untyped&Content-Type:%multipart/mixed", None),
        ("Content-Encoding:%identity", Some("identity")),
        ("Cache-Control:%no-transform", None),
        ("Cache-Control:%max-age=1,%No-Transform", None),
        ("Cache-Control:%max-age=1&Cache-Control:%no-transform", None),
        ("ETag:%\"invalid", None),
        ("ETag:%W/invalid", None),
        ("ETag:%\"one\"&ETag:%\"two\"", None),
        ("ETag:%\"one\"", Some("gzip")),
    ] {
        let response = accepting(port, path, "gzip");
        assert_eq!(response.header("content-encoding"), expected, "{path}");
        if expected != Some("gzip") {
            assert_eq!(response.header("content-length"), Some("500"), "{path}");
            assert!(response.body == content(500), "{path}");
        }
    }
    for status in ["204", "304"] {
        let response = accepting(port, &format!("status={status}&bodiless&ETag:%\"a\""), "gzip");
        assert_eq!((response.header("content-encoding"), response.header("etag")), (None, Some("\"a\"")));
    }
    let head =
        Client::connect(port).send("HEAD / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").read_head();
    assert!(head.to_ascii_lowercase().contains("content-length: 500"), "{head}");
    let old =
        Client::connect(port).send("GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").response().unwrap();
    assert!(old.header("content-encoding").is_none() && old.body == content(500));
}

#[test]
fn empty_bodies_stay_empty() {
    let origin = origin(0);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = accepting(port, "", "gzip");
    assert_eq!((response.header("content-length"), response.header("vary")), (Some("0"), None));
}

#[test]
fn caches_learn_that_the_coding_depends_on_the_request() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (path, expected) in [
        ("Vary:%Other", "Other,Accept-Encoding"),
        ("Vary:%accept-encoding", "accept-encoding"),
        ("Vary:%Other,Accept-Encoding", "Other,Accept-Encoding"),
        ("Vary:%*", "*,Accept-Encoding"),
        ("Vary:%", "Accept-Encoding"),
    ] {
        assert_eq!(accepting(port, path, "gzip").header("vary"), Some(expected), "{path}");
    }
    let two = Client::connect(port)
        .send("GET /Vary:%A&Vary:%B HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
        .read_head()
        .to_ascii_lowercase();
    assert!(two.contains("vary: a\r\n") && two.contains("vary: b,accept-encoding\r\n"), "{two}");
    assert_eq!(accepting(port, "ETag:%W/\"w\"", "gzip").header("etag"), Some("W/\"w\""));
}

#[test]
fn short_bodies_may_be_left_alone() {
    let origin = origin(900);
    let (_weir, port) = start(&format!(
        "frontend f\n bind PORT\n compression minsize-res 10\n default_backend b\n\
         backend b\n compression algo gzip\n compression minsize-res 901\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    assert_eq!(accepting(port, "", "gzip").header("content-encoding"), None);
    // What nobody knows the length of is not short.
    assert_eq!(accepting(port, "chunked", "gzip").header("content-encoding"), Some("gzip"));
}

#[test]
fn settings_of_the_backend_come_before_those_of_the_frontend_and_defaults_are_added_to() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        " compression algo deflate\n compression type text/html\n\
         frontend f\n bind PORT\n compression algo br\n default_backend b\n\
         backend b\n compression algo gzip\n compression type text/plain\n compression offload\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    assert_eq!(accepting(port, "", "gzip").header("content-encoding"), Some("gzip"));
    assert_eq!(accepting(port, "", "deflate").header("content-encoding"), Some("deflate"));
    assert_eq!(accepting(port, "", "br").header("content-encoding"), None);
    let html = accepting(port, "untyped&Content-Type:%text/html", "gzip");
    assert_eq!(html.header("content-encoding"), Some("gzip"));
}

/// A head and a body.
type Message = (String, Vec<u8>);

/// Says in the answer what the request said of encodings.
fn mirror(fields: &'static [&'static str]) -> (Origin, Arc<Mutex<Vec<Message>>>) {
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let kept = seen.clone();
    let origin = Origin::start(move |head, body| {
        let lines: Vec<&str> = head
            .lines()
            .filter(|line| fields.iter().any(|field| line.to_ascii_lowercase().starts_with(field)))
            .collect();
        kept.lock().expect("the list").push((lines.join("|").to_ascii_lowercase(), body.to_vec()));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    (origin, seen)
}

#[test]
fn servers_are_not_asked_for_what_is_done_here() {
    let (origin, seen) = mirror(&["accept-encoding"]);
    let (_weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend plain if {{ path /plain }}\n use_backend plain if {{ path /plain }}\n default_backend b\n\
         backend b\n compression algo gzip\n compression offload\n server s 127.0.0.1:{0}\n\
         backend plain\n compression algo gzip\n server s 127.0.0.1:{0}\n",
        origin.port()
    ).replace(" default_backend plain if { path /plain }\n", ""));
    for (path, accepted, expected) in
        [("", "gzip, br", ""), ("", "br", "accept-encoding: br"), ("plain", "gzip", "accept-encoding: gzip")]
    {
        accepting(port, path, accepted);
        let (told, _) = seen.lock().unwrap().pop().expect("a request");
        assert_eq!(told, expected, "{path} {accepted}");
    }
}

#[test]
fn requests_are_compressed_where_that_is_asked_for() {
    let (origin, seen) = mirror(&["content-", "transfer-encoding", "vary"]);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression direction request\n compression algo-req gzip\n compression minsize-req 50\n compression type-req text/plain\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let body = content(70_000);
    let send = |fields: &str, body: &[u8]| {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
        Client::connect(port).send([head.as_bytes(), body].concat()).response().expect("an answer");
        seen.lock().unwrap().pop().expect("a request")
    };
    let (told, got) = send("Content-Type: text/plain\r\n", &body);
    assert!(told.contains("content-encoding: gzip") && told.contains("transfer-encoding: chunked"), "{told}");
    assert!(!told.contains("content-length") && !told.contains("vary"), "{told}");
    assert!(decoded("gzip", &got) == body);
    for (fields, length) in [
        ("Content-Type: text/plain\r\n", 49),
        ("Content-Type: text/html\r\n", 100),
        ("", 100),
        ("Content-Type: multipart/form-data\r\n", 100),
        ("Content-Type: text/plain\r\nContent-Encoding: foo\r\n", 100),
        ("Content-Type: text/plain\r\nCache-Control: no-transform\r\n", 100),
    ] {
        let (told, got) = send(fields, &body[..length]);
        assert!(told.contains(&format!("content-length: {length}")), "{fields:?}: {told}");
        assert!(got == body[..length], "{fields:?}");
    }
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    Client::connect(port).send(chunked).response().expect("an answer");
    let (told, got) = seen.lock().unwrap().pop().expect("a request");
    assert!(told.contains("content-encoding: gzip"), "{told}");
    assert_eq!(decoded("gzip", &got), b"hello world");
}

#[test]
fn a_request_that_is_tried_again_is_compressed_again() {
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let kept = seen.clone();
    let origin = Origin::start(move |_, body| {
        let mut seen = kept.lock().expect("the list");
        seen.push(body.to_vec());
        let status = if seen.len() == 1 { 503 } else { 200 };
        format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n filter comp-req\n compression algo-req gzip\n retry-on 503\n retries 2\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = Client::connect(port)
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
        .response()
        .expect("an answer");
    assert_eq!(response.status, 200);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|body| decoded("gzip", body) == b"hello"));
}

#[test]
fn a_slow_body_arrives_as_it_comes() {
    for algorithm in ["gzip", "deflate", "zstd", "br"] {
        let (next, more) = mpsc::channel::<()>();
        let more = Mutex::new(more);
        let origin = Origin::raw(move |mut stream| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if !matches!(stream.read(&mut byte), Ok(1)) {
                    return;
                }
                head.push(byte[0]);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for _ in 0..3 {
                let _ = stream.write_all(b"6\r\npiece \r\n");
                // The client has what there is before there is more.
                if more.lock().expect("the channel").recv().is_err() {
                    return;
                }
            }
            let _ = stream.write_all(b"0\r\n\r\n");
        });
        let (_weir, port) = start(&format!(
            "listen l\n bind PORT\n compression algo {algorithm}\n server s 127.0.0.1:{}\n",
            origin.port()
        ));
        let mut client = Chunks::ask(port, algorithm);
        let mut chunks = Vec::new();
        for pieces in 1..=3 {
            let wanted = "piece ".repeat(pieces);
            while so_far(algorithm, &chunks) != wanted.as_bytes() {
                chunks.extend_from_slice(&client.next().expect("a chunk"));
            }
            next.send(()).expect("an origin that waits");
        }
        while let Some(chunk) = client.next() {
            chunks.extend_from_slice(&chunk);
        }
        assert_eq!(decoded(algorithm, &chunks), b"piece piece piece ");
    }
}

/// A response's chunks as they come.
struct Chunks(BufReader<TcpStream>);

impl Chunks {
    fn ask(port: u16, coding: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request that is read");
        let mut own = Self(BufReader::new(stream));
        let mut is_coded = false;
        loop {
            let line = own.line().to_ascii_lowercase();
            is_coded |= line == format!("content-encoding: {coding}");
            if line.is_empty() {
                assert!(is_coded, "{coding}");
                return own;
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// The next, `None` behind the last.
    fn next(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("a size");
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }
}

/// What a decoder makes of a body that goes on.
fn so_far(coding: &str, coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut piece = [0; 4096];
    let mut read = |from: &mut dyn Read| {
        while let Ok(n @ 1..) = from.read(&mut piece) {
            plain.extend_from_slice(&piece[..n]);
        }
    };
    match coding {
        "gzip" => read(&mut flate2::read::GzDecoder::new(coded)),
        "deflate" => read(&mut flate2::read::ZlibDecoder::new(coded)),
        "br" => read(&mut brotli::Decompressor::new(coded, 4096)),
        _ => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(coded);
            let mut scratch = vec![0; 4096];
            let mut output = zstd_safe::OutBuffer::around(&mut scratch[..]);
            let _ = context.decompress_stream(&mut output, &mut input);
            plain.extend_from_slice(output.as_slice());
        }
    }
    plain
}

#[test]
fn a_body_that_is_cut_off_has_no_end_here_either() {
    let origin = Origin::raw(|mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this");
    });
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let all = client.read_to_end();
    assert!(!all.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&all));
}

#[test]
fn http2_on_either_side_gets_the_same_bodies() {
    let length = 100_000;
    let origin = origin(length);
    let (front, inner) = (free_port(), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{front}\n compression direction both\n compression algo-res gzip\n compression algo-req gzip\n server s 127.0.0.1:{inner} proto h2\n\
         listen inner\n bind 127.0.0.1:{inner} proto h2\n http-request set-var-fmt(txn.coded) %[req.hdr(content-encoding)],%[req.hdr(content-length)]\n http-after-response set-header x-coded %[var(txn.coded)]\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[front, inner]);
    for path in ["known", "chunked"] {
        let response = Client::connect(front)
            .send(format!(
                "POST /{path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"
            ))
            .response()
            .expect("an answer");
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        assert_eq!(response.header("x-coded"), Some("gzip,"));
        assert!(decoded("gzip", &payload(&response)) == content(length));
    }
    let origin = self::origin(20_000);
    let (_weir, port) = start(&format!(
        "frontend f\n bind PORT proto h2\n default_backend b\nbackend b\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let mut client = Frames::connect(port);
    client.head(
        1,
        0x5,
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/chunked"),
            (":authority", "a"),
            ("accept-encoding", "gzip"),
        ],
    );
    let (fields, ended) = client.next_head();
    assert!(
        !ended && fields.iter().any(|field| field.contains("content-encoding") && field.contains("gzip")),
        "{fields:?}"
    );
    assert!(
        !fields.iter().any(|field| field.contains("content-length") || field.contains("transfer-encoding")),
        "{fields:?}"
    );
    let mut coded = Vec::new();
    loop {
        let frame = client.next_of(DATA);
        coded.extend_from_slice(&frame.payload);
        if frame.flags & 1 == 1 {
            break;
        }
    }
    assert!(decoded("gzip", &coded) == content(20_000));
}

#[test]
fn filters_say_which_direction_and_sequences_leave_them_out() {
    let origin = origin(500);
    for (lines, expected) in [
        ("compression algo gzip", true),
        ("filter compression\n compression algo gzip", true),
        ("filter comp-res\n compression algo gzip", true),
        ("filter comp-req\n compression algo gzip", false),
        ("filter comp-req\n filter comp-res\n compression algo gzip", true),
        ("compression direction request\n compression algo gzip", false),
        ("compression direction response\n compression algo gzip", true),
        ("filter compression\n filter-sequence response comp-req\n compression algo gzip", false),
        ("filter-sequence response comp-res\n compression algo gzip", true),
        ("filter trace quiet\n filter comp-res\n compression algo gzip", true),
        ("filter comp-res", false),
    ] {
        let (_weir, port) =
            start(&format!("listen l\n bind PORT\n {lines}\n server s 127.0.0.1:{}\n", origin.port()));
        let is_coded = accepting(port, "", "gzip").header("content-encoding").is_some();
        assert_eq!(is_coded, expected, "{lines}");
    }
}

#[test]
fn limits_of_bandwidth_count_what_is_sent() {
    let origin = origin(50_000);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n filter comp-res\n filter bwlim-out slow default-limit 5000 default-period 50ms\n \
         compression algo gzip\n http-response set-bandwidth-limit slow\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    assert!(decoded("gzip", &payload(&accepting(port, "", "gzip"))) == content(50_000));
}

#[test]
fn rules_and_counters_tell_what_was_compressed() {
    let origin = origin(30_000);
    let (weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend b\nbackend b\n compression algo gzip\n compression type text/plain\n \
         http-response set-header x-comp %[res.comp],%[res.comp_algo]\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = accepting(port, "", "gzip");
    assert_eq!(response.header("x-comp"), Some("1,gzip"));
    assert_eq!(ask(port, "", "").header("x-comp"), Some("0,"));
    assert_eq!(accepting(port, "status=404", "gzip").header("content-encoding"), None);
    let given = payload(&response).len().to_string();
    for (proxy, side) in [("f", "FRONTEND"), ("b", "BACKEND")] {
        assert!(eventually(|| weir.stat(&format!("{proxy},{side}"), "comp_rsp") == "1"));
        assert_eq!(weir.stat(&format!("{proxy},{side}"), "comp_in"), "30000");
        assert_eq!(weir.stat(&format!("{proxy},{side}"), "comp_out"), given);
        assert_eq!(weir.stat(&format!("{proxy},{side}"), "comp_byp"), "0");
    }
    let info = weir.ask("show info");
    let used = info.lines().find_map(|line| line.strip_prefix("ZlibMemUsage: ")).expect("a line");
    assert!(used.parse::<u64>().expect("a number") > 0, "{info}");
}

#[test]
fn what_the_process_does_not_allow_is_sent_as_it_is() {
    let origin = origin(30_000);
    let listen =
        format!("listen l\n bind PORT\n compression algo br\n server s 127.0.0.1:{}\n", origin.port());
    // Less than one state of br takes.
    let (weir, port) = start_with(" maxzlibmem 0\n maxcompcpuusage 100\n", &listen);
    assert_eq!(accepting(port, "", "br").header("content-encoding"), Some("br"));
    drop(weir);
    let (weir, port) = start_with(" maxcomprate 1\n", &listen);
    let info = weir.ask("show info");
    assert!(info.contains("CompressBpsRateLim: 1024\n"), "{info}");
    // The first is too much for a second.
    let mut refused = false;
    for _ in 0..200 {
        let response = accepting(port, "", "br");
        let is_coded = response.header("content-encoding").is_some();
        let plain = if is_coded { decoded("br", &payload(&response)) } else { response.body };
        assert!(plain == content(30_000));
        refused |= !is_coded;
        if refused {
            break;
        }
    }
    assert!(refused);
    assert!(eventually(|| weir.stat("l,FRONTEND", "comp_byp") != "0"));
    weir.ask("set rate-limit http-compression global 0");
    assert_eq!(accepting(port, "", "br").header("content-encoding"), Some("br"));
    drop(weir);
    let (_weir, port) = start_with(" maxcompcpuusage 0\n", &listen);
    let response = accepting(port, "", "br");
    assert!(
        response.header("content-encoding").is_none()
            || decoded("br", &payload(&response)) == content(30_000)
    );
}

#[test]
fn the_tools_that_people_use_decode_it() {
    let origin = origin(100_000);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip deflate zstd br\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for coding in ["gzip", "deflate", "zstd", "br"] {
        let mut curl = std::process::Command::new("curl");
        let got = curl
            .args(["-s", "--compressed", "-H", &format!("Accept-Encoding: {coding}")])
            .arg(format!("http://127.0.0.1:{port}/"))
            .output()
            .expect("curl runs");
        assert!(got.stdout == content(100_000), "{coding}: {}", String::from_utf8_lossy(&got.stderr));
    }
}

#[test]
fn the_recipe_compresses_text_as_each_client_can_decode_it() {
    let origin = origin(5000);
    let path = workspace().join("docs/recipes/compression.cfg");
    let text = std::fs::read_to_string(&path).expect("the recipe is there");
    let port = free_port();
    let text = text
        .replace(":8080", &format!("127.0.0.1:{port}"))
        .replace("192.0.2.10:80", &format!("127.0.0.1:{}", origin.port()));
    let _weir = Weir::start(&text, &[port]);
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("deflate", None),
    ] {
        let response = accepting(port, "", accepted);
        assert_eq!(response.header("content-encoding"), expected, "{accepted}");
        assert!(decoded(expected.unwrap_or_default(), &payload(&response)) == content(5000), "{accepted}");
    }
    let picture = accepting(port, "untyped&Content-Type:%image/png", "zstd");
    assert_eq!(picture.header("content-encoding"), None);
}

#[test]
fn clients_that_leave_midway_leave_nothing_behind() {
    let origin = origin(4_000_000);
    let (weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo identity\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for _ in 0..5 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        let mut some = [0; 1000];
        let _ = stream.read(&mut some);
    }
    assert!(eventually(|| weir.stat("l,FRONTEND", "scur") == "0"));
}
