//! Number of socket calls for a warm request, counted by `strace` around the whole program.
//!
//! If tracing is refused, as in some containers, the test reports that and passes. Waiting (`epoll_wait`) is not counted: under
//! load one wait serves many requests.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use weir_tests::client::Client;
use weir_tests::multiplexed::{END_HEADERS, END_STREAM, Frames, HEADERS, block, frame};
use weir_tests::{Origin, eventually, free_port, program, scratch};

/// All socket calls, including options and addresses, and calls that transfer bytes through any descriptor.
const CALLS: &str = "%network,read,write,readv,writev,splice,sendfile";

/// The traced program; both are stopped when the value is dropped.
struct Traced(Child);

impl Traced {
    /// Traces with `options`, into `report`.
    fn start(configuration: &Path, options: &[&str], report: &Path) -> Traced {
        let child = Command::new("strace")
            .args(options)
            .args(["-f", "-e"])
            .arg(format!("trace={CALLS}"))
            .arg("-o")
            .arg(report)
            .arg(program())
            .arg("-db")
            .arg("-f")
            .arg(configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace runs");
        Traced(child)
    }

    /// Terminates the program itself: the tracer then writes its summary and exits.
    fn end(&mut self) {
        let tracer = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children"));
        for pid in children.unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").args(["-TERM", pid]).status();
        }
        eventually(|| !matches!(self.0.try_wait(), Ok(None)));
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.end();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the reason if tracing is refused on this machine.
fn refusal() -> Option<String> {
    match Command::new("strace").args(["-o", "/dev/null", "true"]).output() {
        Err(error) => panic!("strace is missing ({error}): `make tools` installs it"),
        Ok(output) if !output.status.success() => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Ok(_) => None,
    }
}

/// Returns the report of `strace` with `options` for a program that serves the requests made by `talk`, with its server at the port
/// `origin` and these words on its `bind` and `server` lines.
fn report(options: &[&str], origin: u16, (bind, server): (&str, &str), talk: impl FnOnce(u16)) -> String {
    let port = free_port();
    let directory = scratch("calls");
    let (configuration, report) = (directory.join("haproxy.cfg"), directory.join("report"));
    let text = format!(
        "global\n  nbthread 1\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port} {bind}\n  http-request return status 201 if {{ path /own }}\n\
         default_backend b\nbackend b\n  server s 127.0.0.1:{origin} {server}\n",
    );
    std::fs::write(&configuration, text).expect("the temporary directory takes files");
    let mut traced = Traced::start(&configuration, options, &report);
    let listens = eventually(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(listens, "port {port} takes no connection");
    talk(port);
    traced.end();
    std::fs::read_to_string(&report).expect("strace wrote its report")
}

fn ask(client: &mut Client, path: &str, connection: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: {connection}\r\n\r\n");
    client.send(&request).response().expect("a response").status
}

/// Returns the number of calls during the life of a program that served `requests` on one connection.
fn calls(requests: usize) -> usize {
    let origin = Origin::text("hello");
    let summary = report(&["-c"], origin.port(), ("", ""), |port| {
        let mut client = Client::connect(port);
        for _ in 0..requests {
            assert_eq!(ask(&mut client, "/", "keep-alive"), 200);
        }
    });
    assert_eq!((origin.requests(), origin.connections()), (requests, 1));
    total(&summary)
}

/// Returns the sum of a summary's rows: % time, seconds, usecs/call, calls, [errors,] syscall.
fn total(summary: &str) -> usize {
    let rows = summary.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.last().is_some_and(|name| *name != "total"))
        .filter_map(|row| row.get(3).and_then(|number| number.parse::<usize>().ok()))
        .sum()
}

#[test]
fn a_warm_keep_alive_request_costs_four_socket_calls() {
    if let Some(reason) = refusal() {
        eprintln!("skipped, nothing can be traced here: {reason}");
        return;
    }
    let requests = 500;
    let measured = || {
        let (once, twice) = (calls(requests), calls(2 * requests));
        (twice as f64 - once as f64) / requests as f64
    };
    // Startup reads files, with a few calls more or less each time; on a busy machine a socket may be reported as ready when it is
    // not.
    let costs: Vec<f64> = (0..3).map(|_| measured()).take_while(|each| (each - 4.0).abs() >= 0.05).collect();
    assert!(costs.len() < 3, "{costs:?} calls a request");
}

/// Number of concurrent HTTP/2 requests.
const STREAMS: usize = 10;

#[test]
fn warm_streams_to_http1_servers_need_few_extra_calls() {
    if let Some(reason) = refusal() {
        eprintln!("skipped, nothing can be traced here: {reason}");
        return;
    }
    let origin = Origin::text("hello");
    let get = block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")]);
    let batch = STREAMS * frame(HEADERS, 0, 1, &get).len();
    let report = report(&[], origin.port(), ("proto h2", ""), |port| {
        let mut client = Frames::connect(port);
        let mut ids = (1..).step_by(2);
        for _ in 0..100 {
            let requests = ids.by_ref().take(STREAMS);
            let frames = requests.map(|id| frame(HEADERS, END_HEADERS | END_STREAM, id, &get));
            client.raw(&frames.collect::<Vec<_>>().concat());
            for _ in 0..STREAMS {
                client
                    .find(|frame| frame.kind <= HEADERS && frame.flags & END_STREAM != 0)
                    .expect("a response");
            }
        }
    });
    // Each read of all the requests begins a round. Responses that arrive one by one are forwarded separately; in the best round
    // they arrived together.
    let calls: Vec<&str> = report.lines().filter(|line| !line.contains("resumed>")).collect();
    let begins = format!("= {batch}");
    let starts: Vec<usize> = (0..calls.len())
        .filter(|at| calls[*at].contains("recvfrom(") && calls[*at].ends_with(&begins))
        .collect();
    assert!(starts.len() > 50, "{report}");
    let best = starts.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(best.is_some_and(|calls| calls * 10 <= STREAMS * 24), "{best:?} calls for {STREAMS}: {report}");
}

#[test]
fn last_bytes_and_end_of_connection_are_sent_together() {
    if let Some(reason) = refusal() {
        eprintln!("skipped, nothing can be traced here: {reason}");
        return;
    }
    let origin = Origin::text("hello");
    let report = report(&[], origin.port(), ("", ""), |port| {
        let mut client = Client::connect(port);
        assert_eq!(ask(&mut client, "/", "keep-alive"), 200);
        assert_eq!(ask(&mut client, "/", "close"), 200);
        assert_eq!(ask(&mut Client::connect(port), "/own", "close"), 201);
    });
    let lines: Vec<&str> =
        report.lines().filter(|line| line.contains("sendto(") || line.contains("shutdown(")).collect();
    let answers: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains("\"HTTP/1.1 20")).collect();
    let [kept, forwarded, own] = answers[..] else { panic!("{report}") };
    assert!(!lines[kept].contains("MSG_MORE"), "{report}");
    for last in [forwarded, own] {
        assert!(lines[last].contains("MSG_MORE") && lines[last + 1].contains("SHUT_WR"), "{report}");
    }
}

#[test]
fn long_bodies_cause_no_extra_segments() {
    if let Some(reason) = refusal() {
        eprintln!("skipped, nothing can be traced here: {reason}");
        return;
    }
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 4 << 20, "x".repeat(4 << 20));
    let origin = Origin::start(move |_, _| answer.clone().into_bytes());
    let report = report(&[], origin.port(), ("", ""), |port| {
        assert_eq!(ask(&mut Client::connect(port), "/", "keep-alive"), 200)
    });
    let pieces: Vec<&str> =
        report.lines().filter(|line| line.contains("sendto(") && line.contains("\"xxx")).collect();
    // A piece is sent at once if the origin has not sent more yet.
    assert!(pieces.iter().any(|line| line.contains("MSG_MORE")), "{report}");
    assert!(pieces.last().is_some_and(|line| !line.contains("MSG_MORE")), "{report}");
}

#[test]
fn frames_on_shared_connections_do_not_wait_for_acknowledgements() {
    if let Some(reason) = refusal() {
        eprintln!("skipped, nothing can be traced here: {reason}");
        return;
    }
    // The setup of the connection is visible even if nothing answers.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port of the loopback interface");
    let origin = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let directory = scratch("calls-engine");
    let engine = directory.join("engine.conf");
    std::fs::write(
        &engine,
        "[e]\nspoe-agent a\n  messages m\n  use-backend agents\n  timeout processing 10s\n\
         spoe-message m\n  args p=path\n  event on-frontend-http-request\n",
    )
    .expect("the temporary directory takes files");
    let filter = format!("\n  filter spoe engine e config {}", engine.display());
    let agents = format!("\nbackend agents\n  mode spop\n  server a 127.0.0.1:{origin}");
    for (bind, server) in [
        ("", "proto h2"),
        ("", "proto fcgi\n  use-fcgi-app a\nfcgi-app a\n  docroot /"),
        (&*filter, &*agents),
    ] {
        let report = report(&[], origin, (bind, server), |port| {
            ask(&mut Client::connect(port), "/", "close");
        });
        let mut calls =
            report.lines().skip_while(|line| !(line.contains("connect(") && line.contains("INPROGRESS")));
        let connects = calls.next().unwrap_or_else(|| panic!("no connection: {report}"));
        let descriptor = connects.split(['(', ',']).nth(1).expect("a descriptor");
        let wanted = format!("setsockopt({descriptor}, SOL_TCP, TCP_NODELAY, [1], 4)");
        let sends = format!("({descriptor}, ");
        let mut before = calls.take_while(|line| !(line.contains("send") && line.contains(&sends)));
        assert!(before.any(|line| line.contains(&wanted)), "{server}: {report}");
    }
}
