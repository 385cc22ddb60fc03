//! Transfer of compressed bodies: each coding checked by an independent decoder; bodies in pieces, slow, empty and truncated ones;
//! both HTTP versions on both sides; and common command-line decoders.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use weir_tests::chunks::unchunked;
use weir_tests::client::Client;
use weir_tests::compression::{accepting, content, decoded, origin, payload, so_far, start, start_with};
use weir_tests::multiplexed::{DATA, Frames};
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn independent_decoders_accept_each_coding() {
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
fn slow_body_is_not_delayed() {
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
                // The client receives each part before the next one is sent.
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

/// Reads a response's chunks as they arrive.
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

    /// Returns the next chunk, or `None` after the last one.
    fn next(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("a size");
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }
}

#[test]
fn truncated_body_stays_truncated() {
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
fn http2_on_either_side_yields_the_same_bodies() {
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
fn bandwidth_limits_count_compressed_bytes() {
    let origin = origin(50_000);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n filter comp-res\n filter bwlim-out slow default-limit 5000 default-period 50ms\n \
         compression algo gzip\n http-response set-bandwidth-limit slow\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    assert!(decoded("gzip", &payload(&accepting(port, "", "gzip"))) == content(50_000));
}

#[test]
fn common_tools_decode_the_codings() {
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
fn clients_leaving_midway_leave_no_state() {
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
