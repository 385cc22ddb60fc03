//! HTTP/1: requests, connections and statuses counted at the server.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_tests::request::Request;
use weir_tests::{Origin, free_port};

use super::{assert_all, load, number, run};

#[test]
fn the_server_gets_exactly_the_requested_number() {
    let origin = Origin::text("ok");
    let url = format!("http://127.0.0.1:{}/", origin.port());
    let summary = load(&["-n", "250", "-u", "7", "-t", "2", &url]);
    assert_all(&summary, 250);
    // The users of a thread that starts late may find no requests left.
    let connections = origin.connections() as u64;
    assert!((1..=7).contains(&connections), "{connections} connections");
    assert_eq!((origin.requests(), number(&summary, "statuses/2xx")), (250, 250));
    assert_eq!(number(&summary, "connections"), connections);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".len() as u64;
    assert_eq!(number(&summary, "bytes"), 250 * head);
    let latency = |name: &str| summary["latency_us"][name].as_f64().expect("a latency");
    assert!(0.0 < latency("min") && latency("min") <= latency("p50"), "{summary}");
    assert!(latency("p50") <= latency("p99.9") && latency("p99.9") <= latency("max"), "{summary}");
}

#[test]
fn a_connection_serves_as_many_requests_as_asked() {
    let origin = Origin::text("ok");
    let url = format!("http://127.0.0.1:{}/", origin.port());
    let summary = load(&["-n", "50", "-r", "5", &url]);
    assert_all(&summary, 50);
    assert_eq!((origin.requests(), origin.connections()), (50, 10));
    assert_eq!(number(&summary, "connections"), 10);
    load(&["-n", "6", "-r", "1", &url]);
    assert_eq!(origin.connections(), 16);
    load(&["-n", "6", "--server", "max-reuse 1", &url]);
    assert_eq!(origin.connections(), 19, "a connection is reused once");
}

#[test]
fn statuses_of_all_urls_are_counted_by_class() {
    let origin = Origin::start(|head, _| {
        let status = head.split(['/', ' ']).nth(2).unwrap_or_default();
        format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let urls = [200, 301, 404, 503].map(|status| format!("http://127.0.0.1:{}/{status}", origin.port()));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let summary = load(&[&["-n", "40"][..], &urls].concat());
    assert_all(&summary, 40);
    for class in ["2xx", "3xx", "4xx", "5xx"] {
        assert_eq!(number(&summary, &format!("statuses/{class}")), 10, "{summary}");
        assert_eq!(number(&summary, &format!("statuses_by_version/h1/{class}")), 10, "{summary}");
    }
    assert_eq!(origin.connections(), 1, "the URLs have one server");
    let output = run(&[&["-n", "4", "-hsv"][..], &urls].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        rows.last().is_some_and(|row| row.ends_with("   0   1   1   1   1         0   1   1   1   1")),
        "{text}"
    );
}

#[test]
fn every_framing_of_a_response_is_read_to_its_end() {
    let origin = Origin::start(|head, _| match head.split(' ').nth(1).unwrap_or_default() {
        "/chunks" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\na: b\r\n\r\n".to_vec()
        }
        "/interim" => {
            b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec()
        }
        "/none" => b"HTTP/1.1 204 No\r\n\r\n".to_vec(),
        _ => [&b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"[..], &[b'x'; 300_000]].concat(),
    });
    let urls = ["chunks", "interim", "none", "large"]
        .map(|path| format!("http://127.0.0.1:{}/{path}", origin.port()));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let summary = load(&[&["-n", "40"][..], &urls].concat());
    assert_all(&summary, 40);
    assert_eq!(origin.connections(), 1);
    assert!(number(&summary, "bytes") > 3_000_000);
    let summary = load(&["-n", "3", "-I", urls[3]]);
    // A server that sends a body in response to HEAD violates the protocol.
    assert_eq!(number(&summary, "errors_by_reason/protocol"), 0);
}

#[test]
fn a_response_may_end_with_the_connection() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = Vec::new();
        if Request::read_head(&mut stream, &mut bytes).is_some() {
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    let summary = load(&["-n", "5", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_all(&summary, 5);
    assert_eq!(origin.connections(), 5);
}

#[test]
fn a_request_that_meets_a_closed_idle_connection_is_sent_again() {
    let served = Arc::new(AtomicUsize::new(0));
    let counter = served.clone();
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = Vec::new();
        if Request::read_head(&mut stream, &mut bytes).is_some() {
            counter.fetch_add(1, Ordering::Relaxed);
            // The client learns of the end at any time: nothing announces it.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    let summary = load(&["-n", "100", "-u", "3", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_all(&summary, 100);
    assert_eq!(served.load(Ordering::Relaxed), 100);
}

#[test]
fn bodies_and_headers_arrive_whole() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let origin = Origin::start(move |head, body| {
        list.lock().expect("no panic").push((head.to_owned(), body.len()));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let url = format!("http://127.0.0.1:{}/up?x=1", origin.port());
    assert_all(&load(&["-n", "3", "--body", "300k", "-H", "x-a: b", "-H", "host: other", &url]), 3);
    assert_all(&load(&["-n", "1", "-I", &url]), 1);
    let seen = seen.lock().expect("no panic");
    assert_eq!(
        seen.iter().map(|(_, length)| *length).collect::<Vec<_>>(),
        [300 << 10, 300 << 10, 300 << 10, 0]
    );
    assert!(seen[0].0.starts_with("POST /up?x=1 HTTP/1.1\r\n"), "{}", seen[0].0);
    assert!(seen[0].0.contains("\r\nx-a: b") && seen[0].0.contains("host: other\r\n"), "{}", seen[0].0);
    assert!(seen[3].0.starts_with("HEAD /up?x=1 HTTP/1.1\r\n"), "{}", seen[3].0);
}

#[test]
fn the_addresses_of_a_proxy_header_are_those_of_the_connection() {
    let (port, origin) = (free_port(), Origin::echo());
    let text = format!(
        "defaults\n mode http\n timeout client 20s\n timeout server 20s\n timeout connect 10s\n\
         frontend f\n bind 127.0.0.1:{port} accept-proxy\n http-request deny unless {{ src 127.0.0.1 }}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = weir_tests::Weir::start(&text, &[port]);
    let url = format!("http://127.0.0.1:{port}/");
    for words in ["send-proxy", "send-proxy-v2"] {
        assert_all(&load(&["-n", "4", "-r", "2", "--server", words, &url]), 4);
    }
    assert_eq!(number(&load(&["-n", "2", &url]), "statuses/2xx"), 0, "the header is required");
}
