//! The program survives any input: randomly edited valid messages, from both sides at once.

use std::io::{Read, Write};

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, free_port};

/// Returns the message with a few bytes changed, removed, inserted or repeated.
fn changed(rng: &mut fastrand::Rng, message: &[u8]) -> Vec<u8> {
    const TELLING: &[u8] = b"\r\n\0\x7f\xff :,;=%[]{}()\"\\'$09aF/*?#.-+\t";
    let mut bytes = message.to_vec();
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(0..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match rng.u8(0..5) {
            0 if !bytes.is_empty() => bytes[at] = TELLING[rng.usize(0..TELLING.len())],
            1 => bytes.insert(at, TELLING[rng.usize(0..TELLING.len())]),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => bytes.truncate(rng.usize(0..=bytes.len())),
            _ => {
                let end = (at + rng.usize(0..40)).min(bytes.len());
                let part = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

#[test]
fn mutated_requests_and_responses_are_survived() {
    const ROUNDS: usize = 4000;
    let requests: [&[u8]; 5] = [
        b"GET /a?b=c#d HTTP/1.1\r\nHost: a\r\nCookie: s=1; t=\"2\"\r\nAccept: */*\r\n\r\n",
        b"POST http://a:80/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
        b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nt: u\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\nbytes",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ];
    let responses: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: s=1; path=/\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nt: u\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.0 204 No Content\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nbytes",
        b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 9\r\n\r\n",
    ];
    let served = std::sync::atomic::AtomicU64::new(0);
    let origin = Origin::raw(move |mut stream| {
        let mut rng = fastrand::Rng::with_seed(served.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let _ = stream.read(&mut [0; 4096]);
        let message = responses[rng.usize(0..responses.len())];
        let _ = stream.write_all(&changed(&mut rng, message));
    });
    let port = free_port();
    let mut weir = Weir::start(
        &format!(
            "global\n  nbthread 2\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n  \
             option accept-unsafe-violations-in-http-response\n  option http-drop-request-trailers\n\
             listen l\n  bind 127.0.0.1:{port}\n  http-request set-header x %[req.cook(s)]%[url_param(b)]%[req.body]\n  \
             http-request del-header content- -m beg if {{ req.hdr(accept) -m found }}\n  cookie s insert indirect\n  \
             http-response replace-header set-cookie (.*) \\1;x\n  server s 127.0.0.1:{} cookie v\n",
            origin.port()
        ),
        &[port],
    );
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..ROUNDS {
        let message = requests[rng.usize(0..requests.len())];
        let _ = Client::connect(port).send(changed(&mut rng, message)).shut().read_to_end();
    }
    assert!(weir.is_running() && !weir.messages().contains("panicked"), "{}", weir.messages());
}
