//! Options that only show in what the program asks of the kernel, or in how it waits: seen by
//! tracing it, stopping it for a moment, and asking it. Those that trace say so and pass where
//! tracing is refused.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use weir_tests::client::Client;
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, program, scratch};

const DEFAULTS: &str = "defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n  balance roundrobin\n";

/// The program under `strace`, whose file has a line for each call of these. Both end with the
/// value.
struct Traced {
    child: Child,
    trace: Scratch,
}

impl Traced {
    /// `None` where nothing can be traced.
    fn start(configuration: &str, calls: &str, port: u16) -> Option<Traced> {
        let tried = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
        if !tried.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: nothing can be traced here");
            return None;
        }
        let trace = scratch("options").file("trace");
        let file = trace.with_file_name("haproxy.cfg");
        std::fs::write(&file, configuration).expect("the temporary directory takes files");
        let child = Command::new("strace")
            .args(["-f", "-q", "-e", &format!("trace={calls}"), "-o"])
            .args([&*trace, program()])
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace runs");
        let traced = Traced { child, trace };
        assert!(
            eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()),
            "port {port} is closed"
        );
        Some(traced)
    }

    /// The program itself, without its tracer.
    fn program(&self) -> String {
        let tracer = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children"));
        children.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.program()).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} was not sent");
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(&self.trace).unwrap_or_default()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.program()]).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(port: u16) -> String {
    let answer =
        Client::connect(port).send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").read_to_end();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn acknowledgements_are_left_to_what_follows_where_the_options_say_so() {
    let origin = Origin::text("ok");
    // What the frontend and the backend say, and whether acknowledgements of either side are put
    // off.
    let cases = [
        ("no option tcp-smart-accept", "no option tcp-smart-connect", 0, 0),
        ("option tcp-smart-accept", "no option tcp-smart-connect", 1, 0),
        ("no option tcp-smart-accept", "option tcp-smart-connect", 0, 1),
        ("option tcp-smart-accept", "", 1, 1),
    ];
    for (frontend, backend, of_client, of_server) in cases {
        let port = free_port();
        let configuration = format!(
            "global\n  nbthread 1\n{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  {frontend}\n  default_backend b\n\
             backend b\n  http-reuse always\n  {backend}\n  server s 127.0.0.1:{}\n",
            origin.port()
        );
        let Some(traced) = Traced::start(&configuration, "setsockopt", port) else { return };
        // Three connections of clients, the one that found the port open among them, and one to the
        // server.
        assert!(get(port).starts_with("HTTP/1.1 200 ") && get(port).starts_with("HTTP/1.1 200 "));
        let put_off = || traced.calls().lines().filter(|line| line.contains("TCP_QUICKACK, [0]")).count();
        let expected = 3 * of_client + of_server;
        assert!(eventually(|| put_off() >= expected), "{frontend}, {backend}: {}", traced.calls());
        assert_eq!(put_off(), expected, "{frontend}, {backend}: {}", traced.calls());
    }
}

#[test]
fn no_more_connections_are_accepted_in_a_row_than_maxaccept_allows() {
    let row = |maxaccept: &str| {
        let port = free_port();
        let configuration = format!(
            "global\n  nbthread 1\n  {maxaccept}\n{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
        );
        let traced = Traced::start(&configuration, "accept4,epoll_wait", port)?;
        assert!(get(port).starts_with("HTTP/1.1 200 "));
        // They wait for the program, all at once.
        traced.signal("STOP");
        let clients: Vec<TcpStream> =
            (0..12).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection")).collect();
        traced.signal("CONT");
        // The one that found the port, the one that asked, and these.
        let accepted = |line: &str| line.contains("accept4(") && !line.contains("= -1");
        assert!(eventually(|| traced.calls().lines().filter(|line| accepted(line)).count() >= 14));
        drop(clients);
        let (mut longest, mut now) = (0, 0);
        for line in traced.calls().lines() {
            now = if accepted(line) {
                now + 1
            } else if line.contains("epoll_wait(") {
                0
            } else {
                now
            };
            longest = longest.max(now);
        }
        Some(longest)
    };
    let (Some(two), Some(all)) = (row("tune.maxaccept 2"), row("tune.maxaccept -1")) else { return };
    assert!(two <= 2, "{two} in a row");
    assert!(all > 2, "without a limit {all} in a row");
}

#[test]
fn workers_share_connections_as_multi_queue_says() {
    let port = free_port();
    let served = |setting: &str| {
        let weir = Weir::start(
            &format!(
                "global\n  nbthread 4\n  stats socket runtime level admin\n  tune.listener.multi-queue {setting}\n{DEFAULTS}\
                 frontend f\n  bind 127.0.0.1:{port} shards 1\n  http-request return status 200 hdr x-thread %[thread]\n"
            ),
            &[],
        );
        assert!(!weir.ask("show info").is_empty());
        let threads = (0..8).map(|_| {
            let answer = get(port).to_ascii_lowercase();
            let thread = answer.lines().find_map(|line| line.strip_prefix("x-thread: "));
            thread.map(str::to_owned).expect("the thread that answered")
        });
        threads.collect::<Vec<_>>()
    };
    let off = served("off");
    assert!(off.iter().all(|thread| *thread == off[0]), "off: {off:?}");
    let fair = served("fair");
    let count = |thread: &str| fair.iter().filter(|one| *one == thread).count();
    assert!(fair.iter().all(|thread| count(thread) == 2), "fair: {fair:?}");
}

#[test]
fn there_are_no_more_pipes_than_maxpipes_allows() {
    // Bodies that are never read to their end: each holds what moves it.
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 500000000\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let used = |limit: &str| {
        let port = free_port();
        let weir = Weir::start(
            &format!(
                "global\n  nbthread 1\n  stats socket runtime level admin\n  {limit}\n{DEFAULTS}\
                 listen l\n  bind 127.0.0.1:{port}\n  option splice-response\n  server s 127.0.0.1:{}\n",
                origin.port()
            ),
            &[port],
        );
        let clients: Vec<Client> = (0..3)
            .map(|_| {
                let mut client = Client::connect(port);
                client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
                assert!(client.read_head().starts_with("HTTP/1.1 200 "));
                client
            })
            .collect();
        let info = weir.ask("show info");
        drop(clients);
        let value = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("a line of that name");
            line.trim_start_matches(": ").parse::<usize>().expect("a number")
        };
        (value("Maxpipes"), value("PipesUsed"))
    };
    assert_eq!(used("maxpipes 2"), (2, 2));
    assert_eq!(used("maxpipes 100"), (100, 3));
}

#[test]
fn a_server_is_preferred_while_its_queue_is_not_longer_than_max_keep_alive_queue() {
    let held: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let keep = Arc::clone(&held);
    let first = Origin::raw(move |mut stream| {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            if bytes[..length].starts_with(b"GET /slow") {
                // Answered by the test.
                keep.lock().expect("nobody panicked").push(stream);
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Server: first\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let second =
        Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nX-Server: second\r\nContent-Length: 0\r\n\r\n".to_vec());
    let server = |setting: &str| {
        let port = free_port();
        let weir = Weir::start(
            &format!(
                "global\n  nbthread 1\n  stats socket runtime level admin\n{DEFAULTS}\
                 listen l\n  bind 127.0.0.1:{port}\n  option prefer-last-server\n  {setting}\n  use-server first if {{ path_beg /slow /one }}\n  \
                 server first 127.0.0.1:{} maxconn 1\n  server second 127.0.0.1:{} maxconn 1\n",
                first.port(),
                second.port()
            ),
            &[port],
        );
        let ask = |client: &mut Client, path: &str| {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        };
        let mut client = Client::connect(port);
        ask(&mut client, "/one");
        assert_eq!(client.response().expect("a response").header("x-server"), Some("first"));
        let mut slow = Client::connect(port);
        ask(&mut slow, "/slow");
        assert!(eventually(|| !held.lock().expect("nobody panicked").is_empty()));
        ask(&mut client, "/two");
        let queued = || weir.ask("show stat").lines().any(|line| line.starts_with("l,first,1,"));
        let waits = !setting.ends_with(" 0");
        if waits {
            assert!(eventually(queued), "{setting}: {}", weir.ask("show stat"));
        }
        let free = || {
            for mut stream in held.lock().expect("nobody panicked").drain(..) {
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        };
        if waits {
            free();
        }
        let answer = client.response().expect("a response");
        free();
        answer.header("x-server").map(str::to_owned)
    };
    assert_eq!(server("max-keep-alive-queue 0").as_deref(), Some("second"));
    assert_eq!(server("max-keep-alive-queue 3").as_deref(), Some("first"));
    assert_eq!(server("max-keep-alive-queue -1").as_deref(), Some("first"));
}

#[test]
fn a_forwarded_header_holds_only_names_and_addresses_whatever_an_expression_gives() {
    let (origin, port) = (Origin::echo(), free_port());
    let cases = [
        ("for-expr str(abc)", "for=_abc"),
        ("for-expr str(_)", "for=__"),
        ("for-expr str([::1])", "for=\"[::1]\""),
        ("for-expr str(\"a b\")", "for=unknown"),
        ("for-expr str(1.2.3.4:80)", "for=unknown"),
        ("by-expr src by_port-expr str(123456)", "by=\"127.0.0.1:_123456\""),
        ("by-expr src by_port-expr str(unknown)", "by=\"127.0.0.1:_unknown\""),
        ("by-expr str(\"a b\") by_port-expr str(x/y)", "by=\"unknown\""),
        ("host-expr str(a.b:81)", "host=\"a.b:81\""),
        ("host-expr str(_a)", "host=\"\""),
        ("host-expr req.hdr(none)", "host=\"\""),
        ("host", "host=\"\""),
    ];
    let backends: String = (0..cases.len())
        .map(|number| {
            let (option, _) = cases[number];
            format!(
                "backend b{number}\n  option forwarded {option}\n  server s 127.0.0.1:{}\n",
                origin.port()
            )
        })
        .collect();
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  use_backend b%[path,field(2,/)]\n{backends}"
    );
    let _weir = Weir::start(&text, &[port]);
    for (number, (option, expected)) in cases.iter().enumerate() {
        let answer =
            weir_tests::client::exchange(port, &format!("GET /{number} HTTP/1.1\r\nHost: x_y\r\n\r\n"));
        let seen = answer.expect("a response").text();
        let wanted = format!("forwarded: {expected}");
        assert!(seen.lines().any(|line| line == wanted), "{option}: {seen}");
    }
}

#[test]
fn option_forwarded_adds_its_hop_to_the_line_that_is_there() {
    let (origin, port) = (Origin::echo(), free_port());
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         listen l\n  bind 127.0.0.1:{port}\n  option forwarded for\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    for (sent, expected) in [
        ("", &["for=127.0.0.1"][..]),
        ("Forwarded: for=a\r\n", &["for=a,for=127.0.0.1"]),
        ("Forwarded: for=a, for=b\r\n", &["for=a, for=b,for=127.0.0.1"]),
        ("Forwarded: for=a\r\nX: y\r\nForwarded: for=b\r\n", &["for=a", "for=b,for=127.0.0.1"]),
        ("Forwarded:\r\n", &["", "for=127.0.0.1"]),
    ] {
        let answer = weir_tests::client::exchange(port, &format!("GET / HTTP/1.1\r\nHost: h\r\n{sent}\r\n"));
        let seen = answer.expect("a response").text();
        let fields = seen.lines().filter_map(|line| line.split_once(':'));
        let hops: Vec<&str> = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case("forwarded"))
            .map(|(_, value)| value.trim())
            .collect();
        assert_eq!(hops, expected, "{sent}: {seen}");
    }
}

#[test]
fn a_client_that_tells_both_lengths_keeps_its_connection_where_that_is_meant() {
    let ports = [free_port(), free_port()];
    let run = |port: u16, global: &str| {
        let text = format!(
            "global\n  {global}\ndefaults\n  mode http\n  timeout client 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             http-request wait-for-body time 5s\n  http-request return status 200 content-type text/plain lf-string %[req.body]\n"
        );
        Weir::start(&text, &[port])
    };
    let _runs = [run(ports[0], ""), run(ports[1], "h1-do-not-close-on-insecure-transfer-encoding")];
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for (port, stays) in ports.into_iter().zip([false, true]) {
        let mut client = Client::connect(port);
        let first = client.send(request).response().expect("an answer");
        assert_eq!(
            (first.text().as_str(), first.header("connection")),
            ("hello", (!stays).then_some("close"))
        );
        let second = if stays { client.send(request).response() } else { None };
        assert_eq!(second.map(|answer| answer.text()), stays.then(|| "hello".to_owned()));
        assert!(stays || client.read_to_end().is_empty());
    }
}

#[test]
fn room_for_all_descriptors_is_made_at_once() {
    let size = |global: &str| -> u64 {
        let port = free_port();
        let weir = Weir::start(
            &format!(
                "global\n  ulimit-n 1000\n  {global}\nfrontend f\n  mode http\n  timeout client 20s\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
            ),
            &[port],
        );
        Client::connect(port).send("GET / HTTP/1.0\r\n\r\n").read_to_end();
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", weir.pid())).expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        line.and_then(|number| number.trim().parse().ok()).expect("the kernel tells it")
    };
    assert!(size("") < 1000);
    assert!(size("prealloc-fd") >= 1000);
}
