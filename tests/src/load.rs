//! Clients that continuously send requests through a proxy to an echoing origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::client::Client;
use crate::eventually;

/// Clients that send requests without a pause and record errors.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts the clients: `keep_alive` clients use their connection until the server announces its end; others open one for each
    /// request.
    pub fn start(port: u16, keep_alive: bool) -> Load {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = |number| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            std::thread::spawn(move || converse(port, number, keep_alive, &stop, &served))
        };
        Load { threads: (0..4).map(thread).collect(), stop: Arc::clone(&stop), served: Arc::clone(&served) }
    }

    /// Waits until `requests` more requests have been answered.
    pub fn go_on(&self, requests: usize) {
        let wanted = self.served.load(Ordering::Relaxed) + requests;
        assert!(eventually(|| self.served.load(Ordering::Relaxed) >= wanted), "the clients wait");
    }

    /// Stops the clients and returns the errors.
    pub fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client")).collect()
    }
}

fn converse(
    port: u16,
    number: usize,
    keep_alive: bool,
    stop: &AtomicBool,
    served: &AtomicUsize,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut client = Client::connect(port);
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) && failures.len() < 10 {
        turn += 1;
        let wanted = format!("/{number}/{turn}");
        let close = if keep_alive { "" } else { "Connection: close\r\n" };
        let answer = client.send(format!("GET {wanted} HTTP/1.1\r\nHost: h\r\n{close}\r\n")).response();
        let closes = match &answer {
            Some(response)
                if response.status == 200 && response.text().contains(&format!("GET {wanted} ")) =>
            {
                served.fetch_add(1, Ordering::Relaxed);
                response.header("connection") == Some("close")
            }
            other => {
                failures.push(format!("{wanted}: {other:?}"));
                true
            }
        };
        if closes {
            client = Client::connect(port);
        }
    }
    failures
}
