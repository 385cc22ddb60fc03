//! Stale objects: they are served while a fresh one is fetched, and if the server fails (`stale-while-revalidate`,
//! `stale-if-error`); they are validated by tag or date, and a 304 makes them fresh again (`revalidation`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use weir_tests::caching::{around, is_hit, ok};
use weir_tests::client::{Client, Response, exchange_with, get};
use weir_tests::multiplexed::{DATA, Frames};
use weir_tests::{Origin, eventually};

/// A server that a test can switch: it answers with a counter, or with 503.
struct Moody {
    origin: Origin,
    fails: Arc<AtomicBool>,
}

fn moody(control: &'static str) -> Moody {
    let (fails, count) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let failing = fails.clone();
    let origin = Origin::start(move |_, _| {
        if failing.load(Ordering::Relaxed) {
            return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfail".to_vec();
        }
        let body = format!("number {}", count.fetch_add(1, Ordering::Relaxed) + 1);
        format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    });
    Moody { origin, fails }
}

#[test]
fn stale_object_is_served_while_revalidating() {
    let moody = moody("max-age=1");
    let (_weir, port) = around(&moody.origin, " stale-while-revalidate 1000\n", "");
    assert_eq!(ok(get(port, "/")).text(), "number 1");
    // A stale object is served at once, and the server is queried in the background.
    let mut seen = Vec::new();
    assert!(eventually(|| {
        let response = ok(get(port, "/"));
        assert!(is_hit(&response), "{}", response.head);
        seen.push(response.text());
        seen.last().is_some_and(|text| text != "number 1")
    }));
    assert!(seen.iter().all(|text| text.starts_with("number ")));
    assert_eq!(moody.origin.requests(), 2);
}

#[test]
fn stale_object_is_refetched_for_http2_too() {
    let moody = moody("max-age=1");
    let (_weir, port) = around(&moody.origin, " stale-while-revalidate 1000\n", "");
    let mut frames = Frames::connect(port);
    let mut stream = 1;
    assert!(eventually(|| {
        frames.get(stream, "/");
        stream += 2;
        let (fields, _) = frames.next_head();
        assert!(fields.iter().any(|field| field == ":status: 200"), "{fields:?}");
        frames.next_of(DATA).payload == b"number 2"
    }));
}

#[test]
fn stale_object_is_served_if_the_server_fails() {
    let moody = moody("max-age=1");
    let (_weir, port) = around(&moody.origin, " stale-if-error 1000\n", " retries 0\n");
    assert_eq!(ok(get(port, "/")).text(), "number 1");
    moody.fails.store(true, Ordering::Relaxed);
    // Clients do not see the error, except for other resources.
    assert!(eventually(|| {
        let response = ok(get(port, "/"));
        assert_eq!(response.text(), "number 1");
        moody.origin.requests() > 1
    }));
    assert_eq!(get(port, "/other").map(|response| response.status), Some(503));
    moody.fails.store(false, Ordering::Relaxed);
    assert_eq!(ok(get(port, "/")).text(), "number 2");
    // The same happens if the server is gone.
    let port_of_origin = moody.origin.port();
    drop(moody);
    assert!(eventually(|| std::net::TcpStream::connect(("127.0.0.1", port_of_origin)).is_err()));
    for _ in 0..3 {
        assert_eq!(ok(get(port, "/")).text(), "number 2");
    }
}

#[test]
fn background_fetches_are_limited() {
    const KEPT: usize = 100;
    let (let_go, gate) = mpsc::channel::<()>();
    let (gate, count) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let counter = count.clone();
    let origin = Origin::start(move |_, _| {
        if counter.fetch_add(1, Ordering::SeqCst) >= KEPT {
            let _ = gate.lock().expect("a gate").recv();
        }
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nContent-Length: 1\r\n\r\nx".to_vec()
    });
    let (_weir, port) = around(&origin, " stale-while-revalidate 1000\n", "");
    let mut client = Client::connect(port);
    let mut ask = |at: usize| {
        client.send(format!("GET /{at} HTTP/1.1\r\nHost: h\r\n\r\n"));
        ok(client.response())
    };
    (0..KEPT).for_each(|at| assert!(!is_hit(&ask(at))));
    // Once the last one is stale, all are.
    assert!(eventually(|| is_hit(&ask(KEPT - 1)) && count.load(Ordering::SeqCst) > KEPT));
    (0..KEPT).for_each(|at| assert!(is_hit(&ask(at))));
    assert!(eventually(|| count.load(Ordering::SeqCst) == KEPT + 64), "{}", count.load(Ordering::SeqCst));
    (0..64).for_each(|_| let_go.send(()).expect("the server waits"));
    // The others are fetched later.
    assert!(eventually(|| {
        assert!(is_hit(&ask(KEPT - 2)));
        count.load(Ordering::SeqCst) > KEPT + 64
    }));
    (0..KEPT).for_each(|_| _ = let_go.send(()));
}

/// A server with one resource, whose version the test changes, and the conditions it received.
struct Versioned {
    origin: Origin,
    version: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Starts such a server; `told` are fields of its 304 responses in addition to `ETag`.
fn versioned(told: &'static str) -> Versioned {
    let (version, asked) = (Arc::new(AtomicUsize::new(1)), Arc::new(Mutex::new(Vec::new())));
    let (now, heads) = (version.clone(), asked.clone());
    let origin = Origin::start(move |head, _| {
        heads.lock().expect("a list").push(head.to_owned());
        let tag = format!("\"v{}\"", now.load(Ordering::SeqCst));
        if head.to_ascii_lowercase().contains(&format!("if-none-match: {tag}")) {
            return format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n{told}\r\n").into_bytes();
        }
        let body = format!("body of {tag}");
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nETag: {tag}\r\nX-Version: first\r\n\
             Last-Modified: Thu, 22 Oct 2020 16:51:12 GMT\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    Versioned { origin, version, asked }
}

impl Versioned {
    fn asked_with(&self, condition: &str) -> usize {
        let asked = self.asked.lock().expect("a list");
        asked.iter().filter(|head| head.to_ascii_lowercase().contains(condition)).count()
    }
}

/// Sends requests until the server has received more than `before`.
fn asked_again(own: &Versioned, port: u16, before: usize) -> Response {
    let mut last = None;
    assert!(eventually(|| {
        last = Some(ok(get(port, "/")));
        own.origin.requests() > before
    }));
    last.expect("a response")
}

#[test]
fn unchanged_body_is_not_sent_again() {
    let own = versioned("Cache-Control: max-age=60\r\nX-Version: second\r\n");
    let (weir, port) = around(&own.origin, " revalidation on\n", "");
    assert_eq!(ok(get(port, "/")).text(), "body of \"v1\"");
    let again = asked_again(&own, port, 1);
    assert_eq!(again.text(), "body of \"v1\"");
    // The head has been updated from the 304, and the object is fresh again.
    assert_eq!((again.header("x-version"), again.header("x-hit")), (Some("second"), Some("1")));
    assert_eq!(again.header("cache-control"), Some("max-age=60"));
    assert_eq!(again.header("content-length"), Some("12"));
    assert_eq!(own.asked_with("if-none-match: \"v1\""), 1);
    assert_eq!(own.asked_with("if-modified-since: thu, 22 oct 2020 16:51:12 gmt"), 1);
    for _ in 0..5 {
        assert_eq!(ok(get(port, "/")).header("x-version"), Some("second"));
    }
    assert_eq!(own.origin.requests(), 2);
    let shown = weir.ask("show cache");
    assert_eq!(shown.matches("type:full").count(), 1, "{shown}");
}

#[test]
fn connection_of_a_304_is_reused() {
    let own = versioned("Cache-Control: max-age=60\r\n");
    let (_weir, port) = around(&own.origin, " revalidation on\n", "");
    let mut client = Client::connect(port);
    let mut ask = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        ok(client.response())
    };
    ask("/");
    assert!(eventually(|| {
        ask("/");
        own.origin.requests() > 1
    }));
    ask("/other");
    assert_eq!((own.origin.requests(), own.origin.connections()), (3, 1));
}

#[test]
fn changed_response_replaces_the_object() {
    let own = versioned("");
    let (_weir, port) = around(&own.origin, " revalidation on\n", "");
    assert_eq!(ok(get(port, "/")).text(), "body of \"v1\"");
    own.version.store(2, Ordering::SeqCst);
    let again = asked_again(&own, port, 1);
    assert_eq!((again.text().as_str(), again.header("x-hit")), ("body of \"v2\"", Some("0")));
    assert_eq!(own.asked_with("if-none-match: \"v1\""), 1);
}

#[test]
fn revalidation_is_off_by_default() {
    let own = versioned("");
    let (_weir, port) = around(&own.origin, "", "");
    ok(get(port, "/"));
    asked_again(&own, port, 1);
    assert_eq!(own.asked_with("if-none-match"), 0);
}

#[test]
fn client_condition_is_answered_from_validated_object() {
    let own = versioned("Cache-Control: max-age=60\r\n");
    let (_weir, port) = around(&own.origin, " revalidation on\n", "");
    ok(get(port, "/"));
    let mut last = None;
    assert!(eventually(|| {
        last = exchange_with(port, "/", "If-None-Match: \"v0\", \"v1\"\r\n");
        own.origin.requests() > 1
    }));
    let response = last.expect("a response");
    assert_eq!((response.status, response.header("etag")), (304, Some("\"v1\"")), "{}", response.head);
    assert_eq!(own.asked_with("if-none-match: \"v1\""), 1);
    // Another client's version is not the stored one.
    let other = ok(exchange_with(port, "/", "If-None-Match: \"v0\"\r\n"));
    assert_eq!(other.text(), "body of \"v1\"");
}

#[test]
fn mismatched_304_causes_a_full_request() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |head, _| {
        count.fetch_add(1, Ordering::SeqCst);
        if head.to_ascii_lowercase().contains("if-none-match") {
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"another\"\r\n\r\n".to_vec();
        }
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nETag: \"one\"\r\nContent-Length: 4\r\n\r\nbody"
            .to_vec()
    });
    let (_weir, port) = around(&origin, " revalidation on\n", "");
    ok(get(port, "/"));
    assert!(eventually(|| {
        assert_eq!(ok(get(port, "/")).text(), "body");
        origin.requests() >= 3
    }));
}

#[test]
fn object_with_no_store_304_is_served_once() {
    let own = versioned("Cache-Control: no-store\r\n");
    let (weir, port) = around(&own.origin, " revalidation on\n", "");
    ok(get(port, "/"));
    assert_eq!(asked_again(&own, port, 1).text(), "body of \"v1\"");
    let shown = weir.ask("show cache");
    assert!(!shown.contains("type:"), "{shown}");
}

#[test]
fn stale_object_is_validated_in_the_background() {
    let own = versioned("Cache-Control: max-age=60\r\nX-Version: second\r\n");
    let (_weir, port) = around(&own.origin, " revalidation on\n stale-while-revalidate 1000\n", "");
    ok(get(port, "/"));
    // This also holds if the client's own request is conditional.
    let ask = || exchange_with(port, "/", "If-None-Match: \"v0\"\r\n");
    assert!(eventually(|| ok(ask()).header("x-version") == Some("second")));
    assert_eq!(own.origin.requests(), 2);
    assert_eq!(own.asked_with("if-none-match: \"v1\""), 1);
    assert_eq!(own.asked_with("v0"), 0);
}

#[test]
fn waiting_clients_get_the_validated_object() {
    let own = versioned("Cache-Control: max-age=60\r\nX-Version: second\r\n");
    let (_weir, port) = around(&own.origin, " revalidation on\n collapsed-forwarding 20s\n", "");
    ok(get(port, "/"));
    let mut all: Vec<Client> = Vec::new();
    assert!(eventually(|| {
        all = (0..10).map(|_| Client::connect(port)).collect();
        for client in &mut all {
            client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        }
        all.iter_mut().for_each(|client| _ = ok(client.response()));
        own.origin.requests() > 1
    }));
    assert_eq!(own.origin.requests(), 2);
    assert_eq!(ok(get(port, "/")).header("x-version"), Some("second"));
}

#[test]
fn validation_errors_are_covered_by_stale_object() {
    let fails = Arc::new(AtomicUsize::new(0));
    let failing = fails.clone();
    let origin = Origin::start(move |_, _| match failing.load(Ordering::SeqCst) {
        0 => b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nETag: \"one\"\r\nContent-Length: 4\r\n\r\nbody"
            .to_vec(),
        _ => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let (_weir, port) = around(&origin, " revalidation on\n stale-if-error 1000\n", " retries 0\n");
    ok(get(port, "/"));
    fails.store(1, Ordering::SeqCst);
    assert!(eventually(|| {
        assert_eq!(ok(get(port, "/")).text(), "body");
        origin.requests() > 1
    }));
}
