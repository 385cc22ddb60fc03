//! Sending a request again (manual, 4.2 `retries`, `retry-on`, `option redispatch`): each attempt
//! has its own time, and what the client gets is the last server's word.

use std::io::Read;

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, free_port, server_lines};

/// Starts the program with a listener that has these lines of `defaults` and these servers.
fn start(lines: &str, servers: &[u16]) -> (Weir, u16) {
    let port = free_port();
    let servers = server_lines(servers);
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

/// An answer that may be retried and is not, for whatever reason, is the client's.
#[test]
fn an_answer_that_cannot_be_retried_is_passed_on() {
    let origin =
        || Origin::start(|_, _| b"HTTP/1.1 503 Mine\r\nContent-Length: 4\r\nx-own: yes\r\n\r\nmine".to_vec());
    let long = "x".repeat(100_000);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}", long.len());
    for (lines, request, tries) in [
        ("retries 2\n  retry-on 503", &get, 3),
        ("retries 2\n  retry-on 503\n  http-request set-retries 1", &get, 2),
        ("retries 2\n  retry-on 503\n  http-request set-retries 0", &get, 1),
        ("retries 2\n  retry-on 503\n  http-request disable-l7-retry", &get, 1),
        ("retries 2\n  retry-on 503", &post, 1),
    ] {
        let origin = origin();
        let port = free_port();
        let _weir = Weir::start(
            &format!(
                "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n\
                 listen l\n  bind 127.0.0.1:{port}\n  {lines}\n  server s 127.0.0.1:{}\n",
                origin.port()
            ),
            &[port],
        );
        let answer = Client::connect(port).send(request).response().expect("an answer");
        assert_eq!((answer.status, answer.header("x-own")), (503, Some("yes")), "{lines}");
        assert_eq!(origin.requests(), tries, "{lines}");
    }
}
