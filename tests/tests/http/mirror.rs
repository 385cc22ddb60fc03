//! Copies of requests for another backend (`http-request mirror`): their contents, and their independence from the request itself.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::chunks::{chunked, unchunked};
use weir_tests::client::{Client, exchange, get};
use weir_tests::versions::{TIMEOUTS, curl};
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, recipe, scratch};

/// Heads and bodies received by the second backend's server.
type Got = Arc<Mutex<Vec<(String, String)>>>;

fn second(answer: &'static str) -> (Origin, Got) {
    let got = Got::default();
    let own = got.clone();
    let origin = Origin::start(move |head, body| {
        let text = String::from_utf8_lossy(body).into_owned();
        own.lock().expect("no test failed in it").push((head.to_owned(), text));
        answer.as_bytes().to_vec()
    });
    (origin, got)
}

fn taken(got: &Got, count: usize) -> Vec<(String, String)> {
    let here = || got.lock().expect("no test failed in it").len() >= count;
    assert!(eventually(here), "{count} copies: {:?}", got.lock());
    std::mem::take(&mut *got.lock().expect("no test failed in it"))
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond";

fn start(front: &str, back: &str, origin: u16, second: u16) -> (Weir, u16, u16) {
    let [port, h2] = [0; 2].map(|_| free_port());
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n bind 127.0.0.1:{h2} proto h2\n \
         {front}\n default_backend b\nbackend b\n server s 127.0.0.1:{origin}\nbackend next\n {back}\n server n 127.0.0.1:{second}\n"
    );
    (Weir::start(&text, &[port, h2]), port, h2)
}

/// Returns a value of `show mirror next`.
fn count(weir: &Weir, column: &str) -> u64 {
    let table = weir.ask("show mirror next");
    let mut lines = table.lines();
    let titles = lines.next().unwrap_or_default().trim_start_matches("# ");
    let at = titles.split(' ').position(|title| title == column).expect("a column");
    let row = lines.next().expect("a row");
    row.split(' ').nth(at).expect("a value").parse().expect("a number")
}

#[test]
fn copy_reflects_rules_and_follows_its_backends_rules() {
    let ((origin, first), (second, got)) = (second(OK.replace("second", "first!").leak()), second(OK));
    let front = "option http-buffer-request\n http-request set-header x-rule set\n http-request mirror next\n http-request set-path /changed%[path]";
    let back = "http-request set-header x-next yes\n option forwardfor";
    let (weir, port, h2) = start(front, back, origin.port(), second.port());
    let before: u64 = weir.stat("f,FRONTEND", "req_tot").parse().expect("a number");
    let text =
        exchange(port, "POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
    assert_eq!(text.expect("a response").text(), "first!");
    let copies = taken(&got, 1);
    let (head, body) = &copies[0];
    assert!(head.starts_with("POST /changed/a"), "{head}");
    let lower = head.to_ascii_lowercase();
    for field in ["x-rule: set", "x-next: yes", "x-forwarded-for: 127.0.0.1", "content-length: 4", "host: h"]
    {
        assert!(lower.lines().any(|line| line == field), "{field}: {head}");
    }
    assert_eq!(body, "body");
    assert!(!first.lock().expect("no test failed in it")[0].0.contains("x-next"), "the request is another");
    // Chunked, and over HTTP/2.
    exchange(
        port,
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    assert_eq!(taken(&got, 1)[0].1, "abc");
    curl(&["--http2-prior-knowledge", "-d", "h2 body", &format!("http://127.0.0.1:{h2}/")]);
    assert_eq!(taken(&got, 1)[0].1, "h2 body");
    curl(&["--http2-prior-knowledge", &format!("http://127.0.0.1:{h2}/get")]);
    assert!(taken(&got, 1)[0].0.starts_with("GET /changed/get "));
    assert!(eventually(|| count(&weir, "answered") == 4), "{}", weir.ask("show mirror"));
    assert_eq!((count(&weir, "begun"), count(&weir, "failed")), (4, 0));
    // The request is counted once at the frontend, the copy at its backend.
    assert_eq!(
        (weir.stat("f,FRONTEND", "req_tot"), weir.stat("b,BACKEND", "req_tot")),
        ((before + 4).to_string(), "4".into())
    );
    assert_eq!(
        (weir.stat("next,BACKEND", "req_tot"), weir.stat("next,n", "hrsp_2xx")),
        ("4".into(), "4".into())
    );
    assert!(eventually(|| weir.stat("next,BACKEND", "scur") == "0"));
}

#[test]
fn connections_of_copies_are_reused() {
    let (origin, (second, got)) = (Origin::text("ok"), second(OK));
    let (weir, port, _) =
        start("http-request mirror next", "http-reuse always", origin.port(), second.port());
    for number in 1..=5 {
        assert_eq!(get(port, "/").expect("a response").text(), "ok");
        taken(&got, 1);
        assert!(
            eventually(|| count(&weir, "answered") == number && weir.stat("next,BACKEND", "scur") == "0")
        );
    }
    assert_eq!(second.connections(), 1);
}

#[test]
fn rejected_requests_are_not_copied_and_samples_are_shares() {
    let (origin, (second, got)) = (Origin::text("ok"), second(OK));
    let front = "http-request mirror next if { path_beg /all }\n http-request mirror next sample 50% if { path_beg /half }\n http-request deny if { path_end no }";
    let (weir, port, _) = start(front, "", origin.port(), second.port());
    assert_eq!(get(port, "/all/no").expect("a response").status, 403);
    assert_eq!(get(port, "/other").expect("a response").status, 200);
    assert_eq!(get(port, "/all").expect("a response").status, 200);
    assert!(taken(&got, 1)[0].0.starts_with("GET /all "));
    let mut client = Client::connect(port);
    for _ in 0..200 {
        client.send("GET /half HTTP/1.1\r\nHost: h\r\n\r\n");
        client.response().expect("a response");
    }
    let begun = count(&weir, "begun") + count(&weir, "dropped") - 1;
    assert!((50..150).contains(&begun), "{begun} of 200");
}

#[test]
fn failing_mirror_backend_does_not_affect_requests() {
    let silent = Origin::raw(|stream| {
        let mut stream = stream;
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let origin = Origin::text("ok");
    let (weir, port, _) = start("http-request mirror next", "", origin.port(), silent.port());
    let mut client = Client::connect(port);
    let begun = Instant::now();
    for _ in 0..200 {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().expect("a response").text(), "ok");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "nobody waited for what takes 20 seconds");
    assert_eq!((count(&weir, "begun"), count(&weir, "dropped")), (128, 72), "{}", weir.ask("show mirror"));
    drop(weir);
    let (weir, port, _) = start("http-request mirror next", "retries 0", origin.port(), free_port());
    assert_eq!(get(port, "/").expect("a response").text(), "ok");
    assert!(eventually(|| count(&weir, "failed") == 1));
    let metrics = weir.ask("show mirror");
    assert!(metrics.contains("next 1 0 1 0 0"), "{metrics}");
}

/// Returns bytes that depend on their position.
fn long_body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251 + at / 65_521 % 5) as u8).collect()
}

/// Starts a server that answers with the length of the body, and records whether it was this one.
fn judge(body: Arc<Vec<u8>>) -> (Origin, Arc<Mutex<Vec<bool>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let own = seen.clone();
    let origin = Origin::start(move |_, got| {
        own.lock().expect("no test failed in it").push(got == &body[..]);
        OK.as_bytes().to_vec()
    });
    (origin, seen)
}

/// Starts a server that accepts connections and reads nothing.
fn stuck() -> Origin {
    Origin::raw(|stream| {
        let _kept = stream;
        std::thread::park();
    })
}

/// The bodies received by a server.
type Bodies = Arc<Mutex<Vec<Vec<u8>>>>;

/// Starts a server that counts bytes as they arrive, and keeps the bodies.
fn counting() -> (Origin, Arc<AtomicUsize>, Bodies) {
    let (count, bodies) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (own_count, own_bodies) = (count.clone(), bodies.clone());
    let origin = Origin::raw(move |mut stream| {
        let (mut all, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            all.extend_from_slice(&piece[..read]);
            own_count.fetch_add(read, Relaxed);
            let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let body = &all[end + 4..];
            let body = match length {
                Some(length) if length.parse() == Ok(body.len()) => body.to_vec(),
                None if body.ends_with(b"\r\n0\r\n\r\n") => unchunked(body).0,
                _ => continue,
            };
            own_bodies.lock().expect("no test failed in it").push(body);
            all.clear();
            let _ = stream.write_all(OK.as_bytes());
        }
    });
    (origin, count, bodies)
}

#[test]
fn long_body_is_copied_completely() {
    let body = long_body(10 << 20);
    let ((origin, first), (second, count_of, got)) = (judge(Arc::new(body.clone())), counting());
    let (weir, port, h2) = start("http-request mirror next", "", origin.port(), second.port());
    let mut client = Client::connect(port);
    let bodies = [
        (format!("Content-Length: {}", body.len()), body.clone()),
        ("Transfer-Encoding: chunked".to_owned(), chunked(&body, 100_000, "")),
    ];
    for (copies, (framing, coded)) in (1..).zip(bodies) {
        client.send(format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n"));
        let before = count_of.load(Relaxed);
        let mut sent = 0;
        for piece in coded.chunks(128 * 1024) {
            client.send(piece);
            sent += piece.len();
            // This takes as long as the second server takes to read, however busy the machine is. Chunk framing may differ a
            // little.
            let is_there = || count_of.load(Relaxed) - before + 8 * 1024 >= sent;
            assert!(eventually(is_there), "{framing}: {sent} sent: {}", weir.ask("show mirror"));
        }
        assert_eq!(client.response().expect("a response").status, 200);
        // A copy ends before the next one begins, so that bodies arrive in the order of the requests.
        assert!(eventually(|| count(&weir, "answered") == copies), "{}", weir.ask("show mirror"));
    }
    // Over HTTP/2, as much as fits.
    let short = &body[..200_000];
    let file = Scratch::holding("body", short);
    curl(&[
        "--http2-prior-knowledge",
        "--data-binary",
        &format!("@{file}"),
        &format!("http://127.0.0.1:{h2}/"),
    ]);
    assert!(eventually(|| count(&weir, "answered") == 3), "{}", weir.ask("show mirror"));
    assert_eq!((count(&weir, "failed"), count(&weir, "cut")), (0, 0));
    let got = got.lock().expect("no test failed in it");
    assert!(got.len() == 3 && got[0] == body && got[1] == body && got[2] == short);
    assert_eq!(*first.lock().expect("no test failed in it"), [true, true, false]);
}

#[test]
fn blocked_mirror_loses_the_copy_after_the_bound() {
    const CLIENTS: u64 = 12;
    let body = Arc::new(long_body(16 << 20));
    let ((origin, first), second) = (judge(body.clone()), stuck());
    let (weir, port, _) = start("http-request mirror next", "", origin.port(), second.port());
    let before = weir.memory();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (body, mut client) = (body.clone(), Client::connect(port));
            client.send(format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()));
            // Less than all of it: the copies are in progress, and waiting for the end must not cancel any.
            let most = body.len() - 1;
            client.send(&body[..most]);
            client
        })
        .collect();
    assert!(eventually(|| count(&weir, "cut") == CLIENTS), "{}", weir.ask("show mirror"));
    let after = weir.memory();
    assert!(after < before + CLIENTS * 1024, "{before} KiB became {after}");
    for mut client in clients {
        client.send(&body[body.len() - 1..]);
        assert_eq!(client.response().expect("a response").status, 200);
    }
    let first = first.lock().expect("no test failed in it");
    assert!(first.len() as u64 == CLIENTS && first.iter().all(|whole| *whole), "{first:?}");
    assert!(eventually(|| weir.stat("next,BACKEND", "scur") == "0"));
    assert_eq!((count(&weir, "begun"), count(&weir, "answered"), count(&weir, "failed")), (CLIENTS, 0, 0));
}

#[test]
fn copy_ends_with_its_aborted_request() {
    let ((origin, _), (second, got)) = (second(OK), second(OK));
    let (weir, port, _) = start("http-request mirror next", "", origin.port(), second.port());
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
    assert!(eventually(|| count(&weir, "begun") == 1));
    client.send("dy");
    assert_eq!(client.response().expect("a response").status, 200);
    assert_eq!(taken(&got, 1)[0].1, "body");
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
    assert!(eventually(|| count(&weir, "begun") == 2));
    drop(client);
    assert!(eventually(|| count(&weir, "cut") == 1), "{}", weir.ask("show mirror"));
    assert_eq!((count(&weir, "answered"), got.lock().expect("no test failed in it").len()), (1, 0));
}

#[test]
fn retried_request_is_copied_once() {
    let (closing, (second, got)) = (Origin::raw(drop), second(OK));
    let origin = Origin::text("ok");
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n http-request mirror next\n \
         default_backend b\nbackend b\n balance first\n retries 2\n option redispatch 1\n retry-on all-retryable-errors\n \
         server s 127.0.0.1:{}\n server t 127.0.0.1:{}\nbackend next\n server n 127.0.0.1:{}\n",
        closing.port(),
        origin.port(),
        second.port()
    );
    let weir = Weir::start(&text, &[port]);
    let request = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(exchange(port, request).expect("a response").text(), "ok");
    assert_eq!(weir.stat("b,BACKEND", "wredis"), "1");
    assert_eq!(taken(&got, 1)[0].1, "body");
    assert!(eventually(|| count(&weir, "answered") == 1));
    assert_eq!(count(&weir, "begun"), 1);
}

#[test]
fn mirror_rule_needs_an_http_backend_and_a_share() {
    let (port, file) = (free_port(), scratch("mirror").file("haproxy.cfg"));
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n http-request mirror\n http-request mirror nexd\n http-request mirror raw\n \
         http-request mirror next sample 0\n http-request mirror next sample 101%\n http-request mirror next sample 100 if {{ path / }}\n \
         default_backend next\nbackend next\n server n 127.0.0.1:1\nbackend raw\n mode tcp\n server n 127.0.0.1:1\n"
    );
    std::fs::write(&file, text).expect("the temporary directory takes files");
    let verdict = weir_tests::check(&file, file.parent().expect("it stands somewhere"));
    let alerts = verdict.alerts();
    assert_eq!(alerts.len(), 5, "{alerts:#?}");
}

#[test]
fn recipe_copies_only_safe_requests() {
    let ((origin, first), (second, got)) = (second(OK.replace("second", "first!").leak()), second(OK));
    let port = free_port();
    let servers = [("192.0.2.10:8080", origin.port()), ("192.0.2.31:8080", second.port())];
    let _weir = Weir::start(&recipe("mirroring.cfg", port, &servers), &[port]);
    let post = "POST /change HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(exchange(port, post).expect("an answer").text(), "first!");
    assert_eq!(get(port, "/page").expect("an answer").text(), "first!");
    let copies = taken(&got, 1);
    assert!(copies[0].0.starts_with("GET /page ") && copies[0].0.contains("x-copy: yes"), "{copies:?}");
    assert!(taken(&first, 2).iter().all(|(head, _)| !head.contains("x-copy")));
}
