//! `collapsed-forwarding`: concurrent requests for one resource become a single one. Waiting clients get the response as it
//! arrives, and see an error if it is cut off. Responses that must not be shared are requested separately. Slow readers do not
//! block others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use weir_tests::caching::{around, start};
use weir_tests::chunks::{chunked, unchunked};
use weir_tests::client::Client;
use weir_tests::multiplexed::{DATA, Frames, RST_STREAM};
use weir_tests::{Origin, Weir, eventually};

/// Starts a proxy in front of `origin` with a cache for long responses and collapsed forwarding.
fn flowing(origin: &Origin, section: &str, lines: &str) -> (Weir, u16) {
    around(origin, &format!(" max-object-size 2000000\n collapsed-forwarding 20s\n{section}"), lines)
}

/// The next step of a server's response.
enum Step {
    Send(Vec<u8>),
    Close,
}

/// Returns a server that answers requests one after the other in steps sent by the test, and its request counter.
fn led() -> (Origin, mpsc::Sender<Step>, Arc<AtomicUsize>) {
    let (say, said) = mpsc::channel::<Step>();
    let (said, count) = (Mutex::new(said), Arc::new(AtomicUsize::new(0)));
    let counter = count.clone();
    let origin = Origin::raw(move |mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        counter.fetch_add(1, Ordering::SeqCst);
        // The lock is held to the end, so that no other connection gets a step meant for this one.
        let said = said.lock().expect("the steps");
        while let Ok(Step::Send(bytes)) = said.recv() {
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    (origin, say, count)
}

fn ask(port: u16) -> Client {
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    client
}

/// Opens clients that request the same resource, and waits until all have been looked up, in addition to `before` earlier lookups;
/// the first client is the first to request it.
fn crowd(weir: &Weir, port: u16, count: usize, before: usize) -> Vec<Client> {
    let looked_up = |count: usize| {
        assert!(eventually(|| weir.stat("p,FRONTEND", "cache_lookups") == (count + before).to_string()));
    };
    let mut all = vec![ask(port)];
    looked_up(1);
    all.extend((1..count).map(|_| ask(port)));
    looked_up(count);
    all
}

fn head(fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\n{fields}\r\n").into_bytes()
}

fn send(say: &mpsc::Sender<Step>, bytes: impl Into<Vec<u8>>) {
    say.send(Step::Send(bytes.into())).expect("the server listens");
}

#[test]
fn waiting_clients_get_the_response_as_it_arrives() {
    for chunked in [false, true] {
        let (origin, say, count) = led();
        let (weir, port) = flowing(&origin, "", "");
        let mut all = crowd(&weir, port, 20, 0);
        let piece = |text: &str| match chunked {
            true => format!("{:x}\r\n{text}\r\n", text.len()),
            false => text.to_owned(),
        };
        let fields = if chunked { "Transfer-Encoding: chunked\r\n" } else { "Content-Length: 10\r\n" };
        send(&say, [head(fields), piece("first").into_bytes()].concat());
        let first = piece("first");
        for client in &mut all {
            let head = client.read_head();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            // The first part has arrived although the server has not sent the rest.
            assert_eq!(client.read_bytes(first.len()), first.as_bytes());
        }
        // A client that connects at this point also gets the first part.
        let mut late = ask(port);
        assert!(late.read_head().starts_with("HTTP/1.1 200"));
        assert_eq!(late.read_bytes(first.len()), first.as_bytes());
        all.push(late);
        let rest = piece("other") + if chunked { "0\r\n\r\n" } else { "" };
        send(&say, rest.clone());
        for client in &mut all {
            assert_eq!(client.read_bytes(rest.len()), rest.as_bytes());
            // Its connection can be used again.
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            let again = client.response().expect("a response");
            assert_eq!((again.status, again.text().as_str()), (200, "firstother"));
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn truncated_response_is_not_taken_for_complete() {
    for (fields, first) in
        [("Content-Length: 10\r\n", "first"), ("Transfer-Encoding: chunked\r\n", "5\r\nfirst\r\n")]
    {
        let (origin, say, _count) = led();
        let (weir, port) = flowing(&origin, "", " retries 0\n");
        let mut all = crowd(&weir, port, 10, 0);
        send(&say, [head(fields), first.into()].concat());
        for client in &mut all {
            assert!(client.read_head().starts_with("HTTP/1.1 200"));
            assert_eq!(client.read_bytes(first.len()), first.as_bytes());
        }
        say.send(Step::Close).expect("the server listens");
        for client in &mut all {
            // The connection ends; a chunked body has no last chunk.
            assert_eq!(client.read_bytes(100), b"");
        }
        let shown = weir.ask("show cache");
        assert!(!shown.contains("type:"), "{shown}");
    }
}

#[test]
fn truncated_response_resets_http2_streams() {
    let (origin, say, _count) = led();
    let (weir, port) = flowing(&origin, "", " retries 0\n");
    let mut first = Client::connect(port);
    first.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(eventually(|| weir.stat("p,FRONTEND", "cache_lookups") == "1"));
    let mut frames = Frames::connect(port);
    frames.get(1, "/");
    assert!(eventually(|| weir.stat("p,FRONTEND", "cache_lookups") == "2"));
    send(&say, [head("Content-Length: 10\r\n"), b"first".into()].concat());
    assert_eq!(frames.next_of(DATA).payload, b"first");
    say.send(Step::Close).expect("the server listens");
    let end = frames.find(|frame| frame.kind == RST_STREAM || frame.kind == DATA && frame.flags & 1 != 0);
    assert!(end.is_some_and(|frame| frame.kind == RST_STREAM));
}

#[test]
fn clients_without_a_head_fetch_it_themselves() {
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, "", " retries 0\n");
    let mut all = crowd(&weir, port, 3, 0);
    // Only the head arrives, and then the end. Only the first client sees any of it.
    send(&say, head("Content-Length: 10\r\n"));
    assert!(all[0].read_head().starts_with("HTTP/1.1 200"));
    say.send(Step::Close).expect("the server listens");
    assert!(eventually(|| count.load(Ordering::SeqCst) == 2));
    send(&say, [head("Content-Length: 5\r\n"), b"whole".into()].concat());
    for client in &mut all[1..] {
        assert_eq!(client.response().expect("a response").text(), "whole");
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn first_client_leaving_does_not_truncate_others() {
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, "", " option abortonclose\n");
    let mut others = crowd(&weir, port, 6, 0);
    let mut first = others.remove(0);
    send(&say, [head("Content-Length: 10\r\n"), b"first".into()].concat());
    for client in others.iter_mut().chain([&mut first]) {
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.read_bytes(5), b"first");
    }
    drop(first);
    send(&say, "other");
    for client in &mut others {
        assert_eq!(client.read_bytes(5), b"other");
    }
    let shown = weir.ask("show cache");
    assert_eq!(shown.matches("type:full").count(), 1, "{shown}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn slow_reader_does_not_block_others() {
    let body: Vec<u8> = (0..1_500_000u32).map(|at| (at ^ (at >> 8)) as u8).collect();
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, "", "");
    let mut all = crowd(&weir, port, 6, 0);
    // The last client reads nothing until all others have everything.
    let mut slow = all.pop().expect("six of them");
    send(&say, [head(&format!("Content-Length: {}\r\n", body.len())), body.clone()].concat());
    for client in &mut all {
        assert!(client.response().expect("a response").body == body);
    }
    let shown = weir.ask("show cache");
    assert_eq!(shown.matches("type:full").count(), 1, "{shown}");
    assert!(slow.response().expect("a response").body == body);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn current_readers_get_all_of_an_oversized_response() {
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, " max-object-size 100000\n", "");
    let mut all = crowd(&weir, port, 5, 0);
    let chunk = |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
    send(&say, [head("Transfer-Encoding: chunked\r\n"), chunk(b"first")].concat());
    for client in &mut all {
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.read_bytes(10), chunk(b"first"));
    }
    // All clients are fast enough: each piece is read before the next one is sent.
    for _ in 0..10 {
        send(&say, chunk(&[b'x'; 30_000]));
        for client in &mut all {
            skip_payload(client, 30_000);
        }
    }
    send(&say, "0\r\n\r\n");
    for client in &mut all {
        assert_eq!(client.read_bytes(5), b"0\r\n\r\n");
    }
    let shown = weir.ask("show cache");
    assert!(!shown.contains("type:"), "{shown}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Returns the readers of a response that outgrew the cache, each of which has received everything so far, after the client for
/// which it was fetched has left.
fn readers_of_a_long_one(weir: &Weir, port: u16, say: &mpsc::Sender<Step>, number: usize) -> Vec<Client> {
    let mut others = crowd(weir, port, number + 1, 0);
    let mut first = others.remove(0);
    send(say, [head("Transfer-Encoding: chunked\r\n"), b"5\r\nfirst\r\n".to_vec()].concat());
    for client in others.iter_mut().chain([&mut first]) {
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.read_bytes(10), b"5\r\nfirst\r\n");
    }
    send(say, [b"249f0\r\n", &[b'x'; 150_000][..], b"\r\n"].concat());
    for client in others.iter_mut().chain([&mut first]) {
        skip_payload(client, 150_000);
    }
    others
}

#[test]
fn uncached_response_ends_with_its_last_reader() {
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, " max-object-size 100000\n", " option abortonclose\n");
    let others = readers_of_a_long_one(&weir, port, &say, 2);
    send(&say, [b"2faf080\r\n", &vec![b'x'; 50_000_000][..]].concat());
    let mut before = String::new();
    assert!(eventually(|| {
        let now = weir.stat("p,BACKEND", "bout");
        std::mem::replace(&mut before, now.clone()) == now
    }));
    assert_eq!(weir.stat("p,BACKEND", "scur"), "1");
    drop(others);
    assert!(eventually(|| weir.stat("p,BACKEND", "scur") == "0"), "{}", weir.ask("show sess all"));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn uncached_response_is_paced_by_its_last_reader() {
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, " max-object-size 100000\n", " option abortonclose\n");
    let mut last = readers_of_a_long_one(&weir, port, &say, 1).remove(0);
    send(&say, [b"1312d00\r\n", &vec![b'y'; 20_000_000][..], b"\r\n0\r\n\r\n"].concat());
    skip_payload(&mut last, 20_000_000);
    assert_eq!(last.read_bytes(5), b"0\r\n\r\n");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Reads chunks until their payload has the given length.
fn skip_payload(client: &mut Client, payload: usize) {
    let mut left = payload;
    while left > 0 {
        let line = String::from_utf8(read_line(client)).expect("a length");
        let length = usize::from_str_radix(line.trim(), 16).expect("a length");
        assert_eq!(client.read_bytes(length + 2).len(), length + 2);
        left = left.checked_sub(length).expect("no more than that");
    }
}

fn read_line(client: &mut Client) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let byte = client.read_bytes(1);
        assert_eq!(byte.len(), 1, "the connection ended");
        line.extend(byte);
    }
    line
}

#[test]
fn ranges_and_conditions_apply_to_arriving_responses() {
    let (origin, say, _count) = led();
    let (weir, port) = flowing(&origin, " process-range on\n", "");
    let _first = crowd(&weir, port, 1, 0);
    send(&say, [head("Content-Length: 10\r\n"), b"01234".into()].concat());
    assert!(eventually(|| {
        let mut same = Client::connect(port);
        same.send("GET / HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"x\"\r\n\r\n");
        same.response().is_some_and(|response| response.status == 304)
    }));
    let mut part = Client::connect(port);
    part.send("GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=2-6\r\n\r\n");
    let head = part.read_head();
    assert!(head.starts_with("HTTP/1.1 206") && head.to_ascii_lowercase().contains("bytes 2-6/10"), "{head}");
    assert_eq!(part.read_bytes(3), b"234");
    send(&say, "56789");
    assert_eq!(part.read_bytes(2), b"56");
    part.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(part.response().expect("a response").text(), "0123456789");
}

#[test]
fn response_purged_while_arriving_is_not_shared() {
    let (origin, say, count) = led();
    let (weir, port) = flowing(&origin, "", "");
    let mut all = crowd(&weir, port, 2, 0);
    send(&say, [head("Content-Length: 6\r\n"), b"old".into()].concat());
    for client in &mut all {
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.read_bytes(3), b"old");
    }
    weir.ask("clear cache c");
    let mut new = ask(port);
    assert!(eventually(|| count.load(Ordering::SeqCst) == 2));
    send(&say, "old");
    for client in &mut all {
        assert_eq!(client.read_bytes(3), b"old");
    }
    say.send(Step::Close).expect("the server listens");
    send(&say, [head("Content-Length: 3\r\n"), b"new".into()].concat());
    assert_eq!(new.response().expect("a response").text(), "new");
    assert_eq!(ask(port).response().expect("a response").text(), "new");
}

/// Returns a server that answers when it is released, and its request counter.
fn gated(fields: &'static str) -> (Origin, mpsc::Sender<()>, Arc<AtomicUsize>) {
    gated_with(move |path| format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{path}", path.len()))
}

fn gated_with(
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (Origin, mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (let_go, gate) = mpsc::channel::<()>();
    let (gate, count) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let counter = count.clone();
    let origin = Origin::start(move |head, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        let _ = gate.lock().expect("a gate").recv();
        answer(head.split(' ').nth(1).unwrap_or_default()).into_bytes()
    });
    (origin, let_go, count)
}

#[test]
fn concurrent_clients_make_one_request() {
    let (origin, let_go, count) = gated("Cache-Control: max-age=60\r\n");
    let (weir, port) = around(&origin, " collapsed-forwarding 20s\n", "");
    let mut all = crowd(&weir, port, 200, 0);
    let_go.send(()).expect("the server waits");
    for client in &mut all {
        assert_eq!(client.response().expect("a response").text(), "/");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Twenty requests are made and the first one is answered. After that, the others must not wait for each other.
fn all_go_alone(weir: &Weir, port: u16, let_go: &mpsc::Sender<()>, count: &AtomicUsize) {
    let mut all = crowd(weir, port, 20, 0);
    let_go.send(()).expect("the server waits");
    assert!(eventually(|| count.load(Ordering::SeqCst) == 20));
    (0..19).for_each(|_| let_go.send(()).expect("the server waits"));
    for client in &mut all {
        assert_eq!(client.response().expect("a response").status, 200);
    }
}

#[test]
fn unshareable_response_is_requested_by_each_client() {
    let (origin, let_go, count) = gated("Cache-Control: private\r\n");
    let (weir, port) = around(&origin, " collapsed-forwarding 200s\n", "");
    all_go_alone(&weir, port, &let_go, &count);
}

#[test]
fn waiting_client_gets_all_of_an_oversized_response() {
    let body = String::from_utf8_lossy(&chunked(&[b'x'; 100_000], 5000, "")).into_owned();
    let sent = body.clone();
    let (origin, let_go, count) = gated_with(move |_| {
        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    });
    let (weir, port) = around(&origin, " collapsed-forwarding 200s\n", "");
    let mut all = crowd(&weir, port, 20, 0);
    // Some of them share the first one's response, and the others send their own requests.
    (0..20).for_each(|_| let_go.send(()).expect("the server waits"));
    for client in &mut all {
        let response = client.response().expect("a response");
        assert_eq!(response.status, 200);
        assert_eq!(unchunked(&response.body).0, unchunked(sent.as_bytes()).0);
    }
    assert!(count.load(Ordering::SeqCst) <= 20);
}

#[test]
fn response_stored_in_another_cache_is_not_shared() {
    let (origin, let_go, count) = gated("Cache-Control: max-age=60\r\n");
    let proxy = format!(
        "listen p\n bind PORT\n http-request cache-use c\n http-response cache-store other\n\
         server s 127.0.0.1:{}\ncache other\n total-max-size 1\n",
        origin.port()
    );
    let (weir, port) = start(" collapsed-forwarding 200s\n", &proxy);
    all_go_alone(&weir, port, &let_go, &count);
}

#[test]
fn turn_passes_on_if_the_first_client_leaves() {
    let (origin, let_go, count) = gated("Cache-Control: max-age=60\r\n");
    let (weir, port) = around(&origin, " collapsed-forwarding 200s\n", " option abortonclose\n");
    let mut first = Client::connect(port);
    first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(eventually(|| count.load(Ordering::SeqCst) == 1));
    let mut all = crowd(&weir, port, 20, 1);
    drop(first);
    assert!(eventually(|| count.load(Ordering::SeqCst) == 2));
    weir.ask("shutdown sessions server p/s");
    assert!(eventually(|| count.load(Ordering::SeqCst) == 3));
    (0..3).for_each(|_| let_go.send(()).expect("the server waits"));
    let answers = all.iter_mut().filter_map(Client::response).filter(|response| response.status == 200);
    let texts: Vec<String> = answers.map(|response| response.text()).collect();
    assert_eq!(texts, ["/"; 19]);
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn waiting_time_is_limited() {
    let (origin, let_go, count) = gated("Cache-Control: max-age=60\r\n");
    let (weir, port) = around(&origin, " collapsed-forwarding 50ms\n", "");
    let mut all = crowd(&weir, port, 3, 0);
    assert!(eventually(|| count.load(Ordering::SeqCst) == 3));
    (0..3).for_each(|_| let_go.send(()).expect("the server waits"));
    for client in &mut all {
        assert_eq!(client.response().expect("a response").status, 200);
    }
}

/// Returns incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Starts a proxy with a cache for responses that exceed all socket buffers on the way.
fn roomy(origin: &Origin, lines: &str) -> (Weir, u16) {
    around(
        origin,
        " total-max-size 100\n max-object-size 40000000\n process-vary on\n collapsed-forwarding 20s\n",
        lines,
    )
}

#[test]
fn client_that_does_not_read_does_not_block_others() {
    let body = noise(16 << 20);
    for length in [Some(body.len()), None] {
        let (origin, say, count) = led();
        let (weir, port) = roomy(&origin, "");
        let mut all = crowd(&weir, port, 3, 0);
        let (fields, sent) = match length {
            Some(length) => (format!("Content-Length: {length}\r\n"), body.clone()),
            None => ("Transfer-Encoding: chunked\r\n".into(), chunked(&body, 1 << 20, "")),
        };
        send(&say, [head(&fields), sent].concat());
        let mut first = all.remove(0);
        // Once it reads, the first client gets the whole response as well.
        for client in all.iter_mut().chain([&mut first]) {
            assert!(client.read_head().starts_with("HTTP/1.1 200"));
            let got = match length {
                Some(length) => client.read_bytes(length),
                None => read_chunks(client),
            };
            assert!(got == body, "{} bytes", got.len());
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

/// Returns the payload of a chunked body.
fn read_chunks(client: &mut Client) -> Vec<u8> {
    let mut payload = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(client.read_bytes(1));
        }
        let size = std::str::from_utf8(&line[..line.len() - 2]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let chunk = client.read_bytes(size + 2);
        if size == 0 {
            return payload;
        }
        payload.extend_from_slice(&chunk[..size]);
    }
}

#[test]
fn others_get_everything_when_the_first_client_leaves() {
    let body = noise(16 << 20);
    for coded in [false, true] {
        let (origin, say, count) = led();
        let lines = if coded { " filter comp-res\n compression algo gzip\n" } else { "" };
        let (weir, port) = roomy(&origin, lines);
        let mut first = Client::connect(port);
        let coding = if coded { "Accept-Encoding: gzip\r\n" } else { "" };
        first.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{coding}\r\n"));
        assert!(eventually(|| weir.stat("p,FRONTEND", "cache_lookups") == "1"));
        let mut other = ask(port);
        assert!(eventually(|| weir.stat("p,FRONTEND", "cache_lookups") == "2"));
        let (begun, rest) = body.split_at(1 << 20);
        send(
            &say,
            [&head(&format!("Content-Length: {}\r\nContent-Type: text/plain\r\n", body.len())), begun]
                .concat(),
        );
        assert!(other.read_head().starts_with("HTTP/1.1 200"));
        assert!(other.read_bytes(begun.len()) == begun);
        drop(first);
        send(&say, rest);
        assert!(other.read_bytes(rest.len()) == rest, "coded: {coded}");
        // The response is in the cache.
        let mut later = ask(port);
        assert!(later.read_head().contains("age: "), "coded: {coded}");
        assert!(later.read_bytes(body.len()) == body);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}
