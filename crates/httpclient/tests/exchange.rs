//! Requests to well-behaved and to misbehaving servers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use httpclient::{ClientSettings, Error, ErrorKind, Request, Response, Url, send};
use runtime::timer;

/// Runs a future as on a worker.
fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.expect("a runtime"), async {
        tokio::task::spawn_local(timer::drive(timer::Alarm::new().expect("a timer")));
        future.await
    })
}

/// Starts a server that passes each connection to `serve`, with the number of earlier ones; returns its port and the connection
/// count.
fn server(serve: impl Fn(TcpStream, usize) + Send + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, counter.fetch_add(1, Relaxed));
        }
    });
    (port, count)
}

/// Reads a head; the requests in these tests have no body.
fn hear(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Starts a server that answers every connection with these bytes and closes it.
fn answering(bytes: impl Into<Vec<u8>>) -> u16 {
    let bytes = bytes.into();
    let (port, _) = server(move |mut stream, _| {
        hear(&mut stream);
        // The client may have closed already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
    });
    port
}

fn settings() -> ClientSettings {
    ClientSettings { retries: 0, max_head: 1024, max_body: 4096, ..ClientSettings::default() }
}

fn get(method: &str, port: u16, settings: &ClientSettings) -> Result<Response, Error> {
    let url = Url::parse(&format!("http://127.0.0.1:{port}/x")).expect("it is a URL");
    run(send(settings, &Request::new(method, url)))
}

#[test]
fn body_length_follows_the_head() {
    for (method, bytes, body) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", "he"),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nx: y\r\n\r\n",
            "hello",
        ),
        ("GET", "HTTP/1.0 200 OK\r\n\r\nhello", "hello"),
        ("GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", ""),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", ""),
    ] {
        let response = get(method, answering(bytes), &settings()).expect("there is a response");
        assert_eq!(String::from_utf8_lossy(&response.body), body, "{bytes}");
    }
}

#[test]
fn response_has_status_reason_headers_and_body() {
    let bytes = "HTTP/1.1 404 Nothing Here\r\nX-A: 1\r\nContent-Length: 0\r\nx-a: 2\r\n\r\n";
    let response = get("GET", answering(bytes), &settings()).expect("there is a response");
    assert_eq!((response.status, &*response.reason, response.is_success()), (404, "Nothing Here", false));
    assert_eq!(response.headers_of("X-a").collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn invalid_responses_are_errors_of_their_kind() {
    let long = |n: usize| "x".repeat(n);
    for (bytes, kind) in [
        (String::new(), ErrorKind::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Le".to_owned(), ErrorKind::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell".to_owned(), ErrorKind::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n".to_owned(), ErrorKind::Broken),
        ("SSH-2.0-x\r\n\r\n".to_owned(), ErrorKind::Protocol),
        ("HTTP/1.1 101 Switching\r\n\r\n".to_owned(), ErrorKind::Protocol),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(), ErrorKind::Protocol),
        ("HTTP/1.1 100 Continue\r\n\r\n".repeat(100), ErrorKind::Protocol),
        (format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", long(2000)), ErrorKind::TooLarge),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4097\r\n\r\n".to_owned(), ErrorKind::TooLarge),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(), ErrorKind::Protocol),
        (format!("HTTP/1.1 200 OK\r\n\r\n{}", long(5000)), ErrorKind::TooLarge),
        (
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n{}", long(5000)),
            ErrorKind::TooLarge,
        ),
    ] {
        let error = get("GET", answering(bytes.clone()), &settings()).expect_err(&bytes);
        assert_eq!(error.kind, kind, "{error} of {}", &bytes[..bytes.len().min(60)]);
    }
}

#[test]
fn silent_servers_time_out() {
    let (port, _) = server(|stream, _| std::mem::forget(stream));
    for short in [
        ClientSettings { idle_timeout: Duration::from_millis(20), ..settings() },
        ClientSettings { total_timeout: Duration::from_millis(20), ..settings() },
    ] {
        let error = get("GET", port, &short).expect_err("nobody answers");
        assert_eq!(error.kind, ErrorKind::Timeout);
    }
    // An exchange continues while single bytes arrive, but not forever.
    let (port, _) = server(|mut stream, _| {
        std::thread::spawn(move || while stream.write_all(b"H").is_ok() {});
    });
    assert!(
        get("GET", port, &ClientSettings { total_timeout: Duration::from_secs(5), ..settings() }).is_err()
    );
}

#[test]
fn repeatable_requests_are_retried_if_the_server_closes() {
    let flaky = || {
        server(|mut stream, before| {
            hear(&mut stream);
            if before > 0 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        })
    };
    let patient = ClientSettings { retries: 3, ..settings() };
    let (port, count) = flaky();
    assert_eq!(get("GET", port, &patient).map(|response| response.status), Ok(200));
    assert_eq!(count.load(Relaxed), 2);
    let (port, count) = flaky();
    assert_eq!(get("POST", port, &patient).map_err(|error| error.kind), Err(ErrorKind::Broken));
    assert_eq!(count.load(Relaxed), 1);
}

#[test]
fn refused_connections_are_retried_up_to_the_limit() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    drop(listener);
    // The pause between attempts is limited by the connect timeout.
    let hasty = ClientSettings { retries: 2, connect_timeout: Duration::from_millis(10), ..settings() };
    let error = get("GET", port, &hasty).expect_err("nobody listens");
    assert!(matches!(error.kind, ErrorKind::Connect | ErrorKind::Timeout), "{error}");
}

#[test]
fn names_and_tls_need_a_resolver_and_trust_anchors() {
    let ask = |url: &str| {
        let request = Request::new("GET", Url::parse(url).expect("it is a URL"));
        run(send(&settings(), &request)).map_err(|error| error.kind)
    };
    assert_eq!(ask("http://a.test/"), Err(ErrorKind::Name));
    let port = answering("");
    assert_eq!(ask(&format!("https://127.0.0.1:{port}/")), Err(ErrorKind::Tls));
}
