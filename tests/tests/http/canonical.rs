//! Framing is forwarded in canonical form, however the sender spelled it: lenient and strict receivers then see the same message.
//! Canonical framing is forwarded unchanged.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, eventually, free_port};

fn start(lines: &str, server: u16) -> (Weir, u16) {
    let port = free_port();
    let configuration = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         listen l\n  bind 127.0.0.1:{port}\n  {lines}\n  server s 127.0.0.1:{server}\n"
    );
    (Weir::start(&configuration, &[port]), port)
}

/// Returns the bytes received by a server for these bytes, sent in pieces of `step` after a request line.
fn seen_by_server(bytes: &str, step: usize, wanted: &str) -> String {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let origin = Origin::raw(move |mut stream| {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut part) {
            noted.lock().expect("no panic").extend_from_slice(&part[..count]);
        }
    });
    let (_weir, port) = start("", origin.port());
    let mut client = Client::connect(port);
    for piece in bytes.as_bytes().chunks(step) {
        client.send(piece);
    }
    let text = || String::from_utf8_lossy(&seen.lock().expect("no panic")).into_owned();
    // All of the text, or more than that.
    eventually(|| text().len() >= wanted.len());
    text()
}

#[test]
fn request_framing_is_forwarded_in_canonical_form() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (sent, wanted) in [
        ("Content-Length: 0005\r\n\r\nhello", "Content-Length: 5\r\n\r\nhello"),
        ("Content-Length: 05, 5\r\n\r\nhello", "Content-Length: 5\r\n\r\nhello"),
        ("Content-Length:\t5 \r\n\r\nhello", "Content-Length: 5\r\n\r\nhello"),
        ("Content-Length:5\r\n\r\nhello", "Content-Length: 5\r\n\r\nhello"),
        ("x:  y\t \r\nContent-Length: 0\r\nz:\r\n\r\n", "x: y\r\nContent-Length: 0\r\nz: \r\n\r\n"),
        ("Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        let wanted = format!("{post}{wanted}");
        assert_eq!(seen_by_server(&format!("{post}{sent}"), 1000, &wanted), wanted, "{sent:?}");
    }
    for (sent, wanted) in [
        ("5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("0005\r\nhello\r\n000\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("5 \t\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("5;a=b\r\nhello\r\n0;c\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("A\r\nhellohello\r\n0\r\n\r\n", "a\r\nhellohello\r\n0\r\n\r\n"),
        (
            "5\r\nhello\r\n0\r\nx: y\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nHost: b\r\nConnection: close\r\n\r\n",
            "5\r\nhello\r\n0\r\nx: y\r\n\r\n",
        ),
    ] {
        let wanted = format!("{chunked}{wanted}");
        for step in [1, 3, 7, 1000] {
            assert_eq!(
                seen_by_server(&format!("{chunked}{sent}"), step, &wanted),
                wanted,
                "{sent:?} by {step}"
            );
        }
    }
}

#[test]
fn response_framing_is_forwarded_in_canonical_form() {
    for (sent, wanted) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0005\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        ),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        ("HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 299 Success\r\nContent-Length: 0\r\n\r\n"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n05;a\r\nhello\r\n00\r\nhost: a\r\nx: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
        ),
    ] {
        let origin = Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            for byte in sent.as_bytes() {
                let _ = stream.write_all(&[*byte]);
            }
        });
        let (_weir, port) = start("", origin.port());
        let mut client = Client::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let wanted = wanted.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
        assert_eq!(String::from_utf8_lossy(&client.read_to_end()), wanted, "{sent:?}");
    }
}

/// A chunked body that is respelled is the same when it is sent again.
#[test]
fn canonicalised_body_is_complete_when_retried() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while !bytes.ends_with(b"0\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(count @ 1..) => bytes.extend_from_slice(&part[..count]),
                _ => return,
            }
        }
        let mut all = noted.lock().expect("no panic");
        all.push(String::from_utf8_lossy(&bytes).into_owned());
        if all.len() > 2 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let (_weir, port) = start("retries 3\n  retry-on all-retryable-errors", origin.port());
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0003;x\r\nabc\r\n00\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().expect("an answer").text(), "ok");
    let seen = seen.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|one| one.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n")), "{seen:?}");
}
