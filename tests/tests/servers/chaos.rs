//! Servers that die and return under load, and descriptors that run out: the effects on clients.
//!
//! A client may get an error that reports a failed server, but never a wrong or truncated body that looks complete, and some result
//! always arrives before a deadline.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, eventually, free_port, program, scratch};

const REQUESTS: usize = 20_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a body that shows whether it is complete and belongs to the request: the path, repeated.
fn body_of(path: &str) -> String {
    format!("{path} ").repeat(200)
}

/// A server that can be killed, with all its connections, and restarted on the same port.
struct Mortal {
    port: u16,
    stop: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Mortal {
    fn start(port: u16) -> Mortal {
        let mut bound = None;
        assert!(eventually(|| {
            bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
            bound.is_some()
        }));
        let listener = bound.expect("the port was free before");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let (stop, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let mortal = Mortal { port, stop: Arc::clone(&stop), open: Arc::clone(&open) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                open.lock().expect("no panic").extend(stream.try_clone());
                std::thread::spawn(move || answer(stream));
            }
        });
        mortal
    }

    fn kill(&self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        for stream in self.open.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Answers requests without bodies on one connection.
fn answer(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = bytes.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head);
            let body = body_of(head.split(' ').nth(1).unwrap_or("?"));
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// Results of the requests.
#[derive(Debug, Default)]
struct Tally {
    good: AtomicUsize,
    refused: AtomicUsize,
    cut: AtomicUsize,
}

/// Sends requests until `left` is used up. Returns the first violation.
fn load(port: u16, left: &AtomicUsize, tally: &Tally, deadline: Instant) -> Result<(), String> {
    let mut client = Client::connect(port);
    while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
    {
        if Instant::now() > deadline {
            return Err(format!("{number} requests were left at the deadline"));
        }
        let path = format!("/{number}");
        let begun = Instant::now();
        let response = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        if begun.elapsed() > Duration::from_secs(15) {
            return Err(format!("{path} hung"));
        }
        let Some(response) = response else {
            // Closed between two requests, or before any response.
            tally.cut.fetch_add(1, Ordering::Relaxed);
            client = Client::connect(port);
            continue;
        };
        let length: usize = response.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        match response.status {
            // Truncated, and the client can detect it.
            200 if response.body.len() < length => {
                tally.cut.fetch_add(1, Ordering::Relaxed);
                client = Client::connect(port);
                continue;
            }
            200 if response.text() == body_of(&path) => tally.good.fetch_add(1, Ordering::Relaxed),
            502..=504 => tally.refused.fetch_add(1, Ordering::Relaxed),
            _ => return Err(format!("{path}: {response:?}")),
        };
        let closes = response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if closes || response.header("content-length").is_none() {
            client = Client::connect(port);
        }
    }
    Ok(())
}

#[test]
fn dying_servers_cause_errors_but_no_wrong_responses() {
    let deadline = Instant::now() + DEADLINE;
    let port = free_port();
    let mut servers = [Mortal::start(0), Mortal::start(0)];
    let ports = [servers[0].port, servers[1].port];
    let mut weir = Weir::start(
        &format!(
            "defaults\n  mode http\n  timeout client 10s\n  timeout connect 200ms\n  timeout server 5s\n  retries 2\n  \
             option redispatch 1\nlisten l\n  bind 127.0.0.1:{port}\n  server a 127.0.0.1:{}\n  server b 127.0.0.1:{}\n",
            ports[0], ports[1]
        ),
        &[port],
    );
    let left = AtomicUsize::new(REQUESTS);
    let tally = Tally::default();
    let mut deaths = 0;
    let faults: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| load(port, &left, &tally, deadline))).collect();
        // One server dies after each twentieth of the requests, and returns at the next.
        let mut mark = REQUESTS;
        while clients.iter().any(|client| !client.is_finished()) && Instant::now() < deadline {
            let now = left.load(Ordering::Relaxed);
            if now < mark {
                mark = now.saturating_sub(REQUESTS / 20);
                let one = deaths % 2;
                servers[one].kill();
                servers[one] = Mortal::start(ports[one]);
                deaths += 1;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        clients.into_iter().filter_map(|client| client.join().expect("no panic").err()).collect()
    });
    assert!(faults.is_empty(), "{faults:?} {}", weir.messages());
    assert!(deaths >= 5, "servers died {deaths} times only");
    let good = tally.good.load(Ordering::Relaxed);
    assert!(good > REQUESTS * 9 / 10, "{tally:?}");
    assert!(weir.is_running() && !weir.messages().contains("panicked"), "{}", weir.messages());
    wrk(port, &mut servers, ports);
    assert!(weir.is_running() && !weir.messages().contains("panicked"), "{}", weir.messages());
}

/// Generates more load than these threads do, with `wrk`. This shows only whether requests time out.
fn wrk(port: u16, servers: &mut [Mortal; 2], ports: [u16; 2]) {
    let url = format!("http://127.0.0.1:{port}/w");
    let mut running = Command::new("wrk")
        .args(["-t1", "-c32", "-d5s", "--timeout", "5s", &url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("wrk is missing: `make tools` installs it");
    let mut turn = 0;
    while matches!(running.try_wait(), Ok(None)) {
        servers[turn % 2].kill();
        servers[turn % 2] = Mortal::start(ports[turn % 2]);
        turn += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut report = String::new();
    if let Some(mut output) = running.stdout.take() {
        let _ = output.read_to_string(&mut report);
    }
    println!("{report}");
    assert!(report.contains("requests in"), "{report}");
    let timeouts = report.split("timeout ").nth(1).and_then(|rest| rest.lines().next()?.parse::<u64>().ok());
    assert_eq!(timeouts.unwrap_or(0), 0, "{report}");
}

/// A process that is stopped when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn exhausted_descriptors_cause_responses_not_hangs() {
    let origin = Origin::text("served");
    let port = free_port();
    let directory = scratch("descriptors");
    let file = directory.join("haproxy.cfg");
    std::fs::write(
        &file,
        format!(
            "global\n  maxconn 1000\n  no strict-limits\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  \
             timeout server 20s\n  option httpclose\nlisten l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
    )
    .expect("the temporary directory takes files");
    let script = format!("ulimit -n 64; exec {} -db -f {}", program().display(), file.display());
    let messages = std::fs::File::create(directory.join("messages")).expect("the directory takes files");
    let child = Command::new("sh").arg("-c").arg(script).stderr(messages).spawn().expect("sh runs");
    let mut running = Running(child);
    let told = || std::fs::read_to_string(directory.join("messages")).unwrap_or_default();
    assert!(eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()), "{}", told());
    // All connect before any sends a request, so that connections are held open beyond the limit.
    let mut clients: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the backlog takes connections"))
        .collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes a request");
    }
    let mut served = 0;
    for mut client in clients {
        client.set_read_timeout(Some(DEADLINE / 3)).expect("the timeout is not zero");
        let mut answer = String::new();
        match client.read_to_string(&mut answer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("a connection hangs after {served}: {}", told())
            }
            _ => {}
        }
        // Connections accepted while no descriptor was left for a server may get a 503 response.
        assert!(
            answer.ends_with("served")
                || answer.starts_with("HTTP/1.1 503")
                || answer.starts_with("HTTP/1.0 503"),
            "{answer:?} {}",
            told()
        );
        served += usize::from(answer.ends_with("served"));
    }
    assert!(matches!(running.0.try_wait(), Ok(None)), "{}", told());
    assert!(!told().contains("panicked"), "{}", told());
    println!("{served} of 100 served");
    // With descriptors available again, everything works as before.
    let later = weir_tests::client::get(port, "/").map(|response| response.text());
    assert_eq!(later.as_deref(), Some("served"));
}
