//! Sending a request again (manual, 4.2 `retries`, `retry-on`, `option redispatch`): each attempt has its own time, and what
//! the client gets is the last server's word.

use std::io::Read;

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, free_port};

/// Starts the program with a listener that has these lines of `defaults` and these servers.
fn start(lines: &str, servers: &[u16]) -> (Weir, u16) {
    let port = free_port();
    let servers: String = servers
        .iter()
        .enumerate()
        .map(|(at, server)| format!("  server s{at} 127.0.0.1:{server}\n"))
        .collect();
    let configuration = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n  \
         {lines}\nlisten l\n  bind 127.0.0.1:{port}\n{servers}"
    );
    (Weir::start(&configuration, &[port]), port)
}

/// Reads requests and never answers.
fn stalling() -> Origin {
    Origin::raw(|mut stream| {
        let mut bytes = [0; 1024];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    })
}

/// Reads a request and closes.
fn closing() -> Origin {
    Origin::raw(|mut stream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
    })
}

#[test]
fn a_retry_on_an_idle_connection_has_the_whole_server_timeout() {
    for bad in [stalling(), closing()] {
        let good = Origin::text("good");
        let (_weir, port) = start(
            "timeout server 300ms\n  retries 1\n  option redispatch\n  retry-on all-retryable-errors\n  \
             balance roundrobin\n  http-reuse always",
            &[bad.port(), good.port()],
        );
        let mut client = Client::connect(port);
        for round in 0..6 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = client.response().expect("an answer");
            assert_eq!((answer.status, answer.text().as_str()), (200, "good"), "round {round}");
        }
    }
}
