//! Requests on a connection that is kept.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use httpclient::{ClientSettings, ErrorKind, KeptConnection, Request, Url};
use runtime::timer;

/// Starts a server that answers the requests of each connection with these bytes, and then closes it. Returns its port and the number
/// of connections.
fn server(answers: &'static [&'static str]) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counter.fetch_add(1, SeqCst);
            let mut lines = BufReader::new(stream.try_clone().expect("a copy of the descriptor")).lines();
            for answer in answers {
                let is_end = |line: std::io::Result<String>| line.is_ok_and(|line| line.is_empty());
                if !lines.by_ref().any(is_end) || (&stream).write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    (port, count)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
const MORE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy";

/// Sends requests one after the other on a kept connection; returns their bodies or errors.
fn requests(port: u16, number: usize) -> Vec<Result<Vec<u8>, ErrorKind>> {
    let url = Url::parse(&format!("http://127.0.0.1:{port}/x")).expect("it is a URL");
    let request = Request::new("GET", url).header("Connection", "keep-alive");
    let settings = ClientSettings { retries: 0, ..ClientSettings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.expect("a runtime"), async {
        tokio::task::spawn_local(timer::drive(timer::Alarm::new().expect("a timer")));
        let mut kept = KeptConnection::default();
        let mut outcomes = Vec::new();
        for _ in 0..number {
            let sent = kept.send(&settings, &request).await;
            outcomes.push(sent.map(|response| response.body).map_err(|error| error.kind));
        }
        outcomes
    })
}

#[test]
fn a_connection_serves_several_requests() {
    let (port, count) = server(&[OK, CHUNKED, OK, OK]);
    assert_eq!(requests(port, 4), vec![Ok(b"x".to_vec()); 4]);
    assert_eq!(count.load(SeqCst), 1);
}

#[test]
fn a_connection_that_cannot_be_used_again_is_replaced() {
    for answers in [&[LAST][..], &[MORE], &[OK, LAST], &["HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"]] {
        let (port, count) = server(answers);
        assert_eq!(requests(port, 4), vec![Ok(b"x".to_vec()); 4], "{answers:?}");
        assert_eq!(count.load(SeqCst), 4 / answers.len(), "{answers:?}");
    }
}

#[test]
fn a_connection_that_was_closed_between_requests_is_replaced() {
    // The end may arrive before or after the next request.
    let (port, count) = server(&[OK]);
    assert_eq!(requests(port, 3), vec![Ok(b"x".to_vec()); 3]);
    assert_eq!(count.load(SeqCst), 3);
}

#[test]
fn a_new_connection_without_a_response_is_an_error() {
    let (port, count) = server(&[]);
    assert_eq!(requests(port, 2), vec![Err(ErrorKind::Broken); 2]);
    assert_eq!(count.load(SeqCst), 2);
    let (port, count) = server(&[OK, "HTTP/1.1 200"]);
    assert_eq!(requests(port, 2), [Ok(b"x".to_vec()), Err(ErrorKind::Broken)], "the server sent something");
    assert_eq!(count.load(SeqCst), 1);
}
