//! No byte of a message is ever read as part of another: bodies, pipelined requests and responses carry identities that both ends
//! verify, while server connections break at every point and requests are retried (`retry-on`, `option redispatch`).

use std::collections::HashSet;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::request::{Request, more};
use weir_tests::{Origin, Weir, free_port};

/// Starts the program with one listener and the lines of a backend; `retry-on` includes everything that can be retried.
fn start(lines: &str, servers: &str) -> (Weir, u16) {
    let port = free_port();
    let configuration = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n  \
         retry-on all-retryable-errors\n  option redispatch 1\n  {lines}\n\
         listen l\n  bind 127.0.0.1:{port}\n  {servers}\n"
    );
    (Weir::start(&configuration, &[port]), port)
}

/// Starts a server that answers each request with the request's body.
fn echo_bodies() -> Origin {
    Origin::start(|_, body| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(body);
        answer
    })
}

#[test]
fn body_is_sent_once_after_refused_connections() {
    let hidden = "GET /?s=7 HTTP/1.1\r\nHost: smuggled\r\n\r\n";
    for dead in 1..=3 {
        let good = echo_bodies();
        let mut servers = String::new();
        for number in 0..dead {
            servers.push_str(&format!("server dead{number} 127.0.0.1:{}\n  ", free_port()));
        }
        servers.push_str(&format!("server good 127.0.0.1:{}", good.port()));
        // With several dead servers, `first` would alternate between them.
        for balance in if dead == 1 { &["first", "roundrobin"][..] } else { &["roundrobin"][..] } {
            let (_weir, port) = start(&format!("retries 5\n  balance {balance}"), &servers);
            let mut client = Client::connect(port);
            for _ in 0..dead + 1 {
                let length = hidden.len();
                client
                    .send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{hidden}"));
                let answer = client.response().expect("an answer");
                assert_eq!((answer.status, answer.text()), (200, hidden.to_owned()), "{dead} {balance}");
            }
            // The next response belongs to this request and no other.
            client
                .send("POST /last HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlast");
            assert_eq!(client.response().expect("an answer").text(), "last", "{dead} {balance}");
            assert!(client.read_to_end().is_empty(), "{dead} {balance}: more answers than requests");
        }
        let rounds = if dead == 1 { 2 } else { 1 };
        assert_eq!(good.requests(), rounds * (dead + 2), "{dead}: more requests than were sent");
    }
}

/// A chunked body whose trailers are dropped is staged outside the buffer, and must be restored from there as well.
#[test]
fn chunked_body_is_complete_when_retried_without_trailers() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let connections = AtomicUsize::new(0);
    let origin = Origin::raw(move |mut stream| {
        // The first connection closes after receiving the request, so that it is sent again.
        let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        let mut unread = Vec::new();
        while let Some(request) = Request::read_head(&mut stream, &mut unread) {
            let Some(body) = request.read_body(&mut stream, &mut unread, usize::MAX) else { return };
            noted.lock().expect("no panic").push(body);
            if first {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let servers = format!("option http-drop-request-trailers\n  server s 127.0.0.1:{}", origin.port());
    let (_weir, port) = start("retries 3", &servers);
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nx: y\r\n\r\n");
    assert_eq!(client.response().expect("an answer").text(), "ok");
    let whole = || Ok(b"abcdefg".to_vec());
    assert_eq!(*seen.lock().expect("no panic"), [whole(), whole()]);
}

/// A server's fault in handling a request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// No fault.
    None,
    /// Closes before reading.
    AtOnce,
    /// Closes or resets after the head.
    BehindHead,
    /// Closes after reading part of the body.
    InBody,
    /// Closes after receiving the request.
    BehindRequest,
    /// Sends part of a head.
    HalfHead,
    /// Sends an invalid response.
    Junk,
    /// Answers with an error that may be retried.
    Unavailable,
    /// Answers and closes without announcing it.
    CloseBehindAnswer,
    /// Answers before reading the body, and closes.
    EarlyAnswer,
    /// Sends part of the response's body.
    CutAnswer,
}

const FAULTS: [Fault; 16] = [
    Fault::None,
    Fault::None,
    Fault::None,
    Fault::None,
    Fault::None,
    Fault::None,
    Fault::AtOnce,
    Fault::BehindHead,
    Fault::InBody,
    Fault::BehindRequest,
    Fault::HalfHead,
    Fault::Junk,
    Fault::Unavailable,
    Fault::CloseBehindAnswer,
    Fault::EarlyAnswer,
    Fault::CutAnswer,
];

/// Returns the body of request `number`: it begins with its own name, and is full of text that would be requests if parsed as such.
fn body_of(number: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number as u64);
    let lures = rng.usize(0..60);
    let mut body = format!("<{number}>").into_bytes();
    for _ in 0..lures {
        body.extend_from_slice(
            format!("\r\n0\r\n\r\nPOST /stolen-{number} HTTP/1.1\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
    }
    body.extend_from_slice(format!("</{number}>").as_bytes());
    body
}

/// Returns request `number`, with a length, in chunks, or without a body.
fn request_of(number: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number as u64 ^ 0x5eed);
    let mut out = Vec::new();
    let body = body_of(number);
    match rng.u8(0..4) {
        0 => out.extend_from_slice(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()),
        1 => {
            out.extend_from_slice(
                format!("PUT /{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes(),
            );
            let mut rest = &body[..];
            while !rest.is_empty() {
                let (chunk, left) = rest.split_at(rng.usize(1..=rest.len()));
                out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
                rest = left;
            }
            out.extend_from_slice(b"0\r\n\r\n");
        }
        _ => {
            let length = body.len();
            out.extend_from_slice(
                format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
            );
            out.extend_from_slice(&body);
        }
    }
    out
}

/// Serves one connection with faults drawn from `seed`, and records in `wrong` every request that was not sent.
fn serve(mut stream: TcpStream, seed: u64, wrong: &Mutex<Vec<String>>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut unread = Vec::new();
    loop {
        let fault = FAULTS[rng.usize(0..FAULTS.len())];
        if matches!(fault, Fault::AtOnce) {
            return;
        }
        let note = |what: String| wrong.lock().expect("no panic").push(what);
        let Some(request) = Request::read_head(&mut stream, &mut unread) else { return };
        let number = request.path.strip_prefix('/').and_then(|number| number.parse().ok());
        let Some(number) = number.filter(|_| matches!(&*request.method, "GET" | "PUT" | "POST")) else {
            return note(format!("no request of ours: {}", request.head));
        };
        let body = body_of(number);
        let answer =
            format!("HTTP/1.1 200 OK\r\nx-number: {number}\r\nContent-Length: {}\r\n\r\n", body.len());
        match fault {
            Fault::BehindHead => return,
            Fault::InBody => {
                let _ = request.read_body(&mut stream, &mut unread, rng.usize(1..200));
                return;
            }
            Fault::EarlyAnswer => {
                let _ = stream.write_all(&[answer.as_bytes(), &body].concat());
                let _ = stream.shutdown(Shutdown::Write);
                while more(&mut stream, &mut unread).is_some() {}
                return;
            }
            _ => {}
        }
        match request.read_body(&mut stream, &mut unread, usize::MAX) {
            None => return,
            Some(Err(line)) => return note(format!("broken chunks of /{number}: {line}")),
            Some(Ok(sent)) if request.method != "GET" && sent != body => {
                return note(format!("/{number} has the body {}", String::from_utf8_lossy(&sent)));
            }
            Some(Ok(_)) => {}
        }
        let sent = match fault {
            Fault::BehindRequest => return,
            Fault::HalfHead => {
                let _ = stream.write_all(&answer.as_bytes()[..rng.usize(1..answer.len() - 4)]);
                return;
            }
            Fault::Junk => {
                let _ = stream.write_all(b"SSH-2.0-none of HTTP\r\n\r\n");
                return;
            }
            Fault::CutAnswer => {
                let _ = stream.write_all(answer.as_bytes());
                let _ = stream.write_all(&body[..rng.usize(0..body.len())]);
                return;
            }
            Fault::Unavailable => {
                stream.write_all(b"HTTP/1.1 503 Not now\r\nx-number: none\r\nContent-Length: 0\r\n\r\n")
            }
            _ => stream.write_all(&[answer.as_bytes(), &body].concat()),
        };
        if sent.is_err() || matches!(fault, Fault::CloseBehindAnswer) {
            return;
        }
    }
}

/// Sends requests on separate connections, some of them pipelined, and checks that each response belongs to its request. Returns
/// the errors.
fn ask(port: u16, numbers: std::ops::Range<usize>, answered: &AtomicUsize) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rng = fastrand::Rng::with_seed(numbers.start as u64);
    let mut waiting = numbers.clone().peekable();
    let mut client = Client::connect(port);
    while waiting.peek().is_some() {
        let batch: Vec<usize> = waiting.by_ref().take(rng.usize(1..5)).collect();
        let bytes: Vec<u8> = batch.iter().flat_map(|number| request_of(*number)).collect();
        // Sent in pieces, because retries must not depend on how the request arrived.
        let (front, back) = bytes.split_at(rng.usize(0..=bytes.len()));
        client.send(front).send(back);
        for number in batch {
            let Some(answer) = client.response() else {
                client = Client::connect(port);
                break;
            };
            let body = body_of(number);
            match answer.status {
                200 if answer.header("x-number") != Some(&number.to_string()) => {
                    wrong.push(format!("/{number} was answered {}", answer.head));
                }
                200 if answer.body == body => {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                // Truncated: the connection ends here.
                200 if body.starts_with(&answer.body) && client.read_to_end().is_empty() => {}
                200 => wrong.push(format!("/{number} got the body {}", answer.text())),
                500 | 502 | 503 | 504 => {}
                _ => wrong.push(format!("/{number} was answered {}", answer.head)),
            }
            let closes = answer.header("connection").is_some_and(|value| value == "close");
            if closes || answer.body.len() < body.len() && answer.status == 200 {
                client = Client::connect(port);
                break;
            }
        }
    }
    wrong
}

#[test]
fn messages_never_mix_whatever_breaks() {
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 400;
    let ways = [
        "retries 3\n  balance roundrobin\n  http-reuse always",
        "retries 3\n  balance first\n  http-reuse safe",
        "retries 2\n  balance random\n  http-reuse never\n  option http-drop-request-trailers",
        "retries 3\n  balance roundrobin\n  http-reuse aggressive\n  option http-buffer-request",
    ];
    for (way, lines) in ways.into_iter().enumerate() {
        let wrong = Arc::new(Mutex::new(Vec::new()));
        let origins: Vec<Origin> = (0..3)
            .map(|number| {
                let wrong = Arc::clone(&wrong);
                let connections = AtomicUsize::new(0);
                Origin::raw(move |stream| {
                    let connection = connections.fetch_add(1, Ordering::Relaxed) as u64;
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
                    serve(stream, connection << 8 | number << 4 | way as u64, &wrong);
                })
            })
            .collect();
        let mut servers = format!("server dead 127.0.0.1:{}\n", free_port());
        for (number, origin) in origins.iter().enumerate() {
            servers.push_str(&format!("  server s{number} 127.0.0.1:{}\n", origin.port()));
        }
        let (_weir, port) = start(lines, &servers);
        let answered = AtomicUsize::new(0);
        let faults: Vec<String> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (first, answered) = (1 + client * REQUESTS, &answered);
                    scope.spawn(move || ask(port, first..first + REQUESTS, answered))
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
        });
        let seen: HashSet<String> = wrong.lock().expect("no panic").drain(..).chain(faults).collect();
        assert!(seen.is_empty(), "{lines}: {} wrong, among them {:?}", seen.len(), seen.iter().next());
        let answered = answered.load(Ordering::Relaxed);
        assert!(answered > CLIENTS * REQUESTS / 4, "{lines}: only {answered} were answered");
    }
}
