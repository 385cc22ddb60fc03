//! A server that the program connects to: one thread per connection, and a function that answers requests.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::client::{field, read_head};
use crate::request::{more, read_chunked};

/// A listening server. It stops when the value is dropped.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// Answers a request: gets its head (without the empty line) and its body, returns the bytes of the response.
type Answer = dyn Fn(&str, &[u8]) -> Vec<u8> + Send + Sync;

impl Origin {
    /// Answers every request with the result of `answer`; keeps connections alive unless the client closes them.
    pub fn start(answer: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Origin {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let answer: Arc<Answer> = Arc::new(answer);
        let mut origin = Origin::raw(move |stream| converse(stream, &*answer, &counter));
        origin.requests = requests;
        origin
    }

    /// Responds with `200` and `text`.
    pub fn text(text: &'static str) -> Origin {
        Origin::start(move |_, _| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
        })
    }

    /// Answers with `200` and the request's head as the body.
    pub fn echo() -> Origin {
        Origin::start(|head, _| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()).into_bytes()
        })
    }

    /// Passes every connection to a function, each on its own thread.
    pub fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
        let address = listener.local_addr().expect("a bound socket has an address");
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (stopped, counter, serve) = (Arc::clone(&stop), Arc::clone(&connections), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                counter.fetch_add(1, Ordering::Relaxed);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Origin { address, stop, connections, requests: Arc::default() }
    }

    /// Returns the server's port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of answered requests; 0 with [`Origin::raw`].
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread waits in `accept`, and a last connection wakes it.
        let _ = TcpStream::connect(self.address);
    }
}

fn converse(mut stream: TcpStream, answer: &Answer, requests: &AtomicUsize) {
    let _ = stream.set_nodelay(true);
    let mut bytes = Vec::new();
    while let Ok(Some(end)) = read_head(&mut stream, &mut bytes) {
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..end + 4);
        let length: usize = field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let body = if field(&head, "transfer-encoding").is_some() {
            let Some(Ok(body)) = read_chunked(&mut stream, &mut bytes, usize::MAX) else { return };
            body
        } else {
            while bytes.len() < length {
                if more(&mut stream, &mut bytes).is_none() {
                    return;
                }
            }
            bytes.drain(..length).collect()
        };
        requests.fetch_add(1, Ordering::Relaxed);
        if stream.write_all(&answer(&head, &body)).is_err() {
            return;
        }
        if field(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}
