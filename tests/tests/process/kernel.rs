//! Settings that only affect system calls or waiting: tested by tracing the program, stopping it for a moment, and reading /proc.
//! Tests that trace report that they are skipped, and pass, if tracing is refused.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};

use weir_tests::client::Client;
use weir_tests::listen::{listen, local};
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, program, scratch};

const DEFAULTS: &str = "defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n  balance roundrobin\n";

/// The program under `strace`, which writes a line for each of the selected calls. Both are stopped when the value is dropped.
struct Traced {
    child: Child,
    trace: Scratch,
}

impl Traced {
    /// Returns `None` if tracing is not possible.
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

    /// Returns the id of the program itself, not of its tracer.
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
fn smart_options_delay_acknowledgements() {
    let origin = Origin::text("ok");
    // Options of the frontend and the backend, and whether acknowledgements are delayed on either side.
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
        // Three client connections, including the one that checked the port, and one to the server.
        assert!(get(port).starts_with("HTTP/1.1 200 ") && get(port).starts_with("HTTP/1.1 200 "));
        let put_off = || traced.calls().lines().filter(|line| line.contains("TCP_QUICKACK, [0]")).count();
        let expected = 3 * of_client + of_server;
        assert!(eventually(|| put_off() >= expected), "{frontend}, {backend}: {}", traced.calls());
        assert_eq!(put_off(), expected, "{frontend}, {backend}: {}", traced.calls());
    }
}

#[test]
fn maxaccept_limits_accepts_in_a_row() {
    let row = |maxaccept: &str| {
        let port = free_port();
        let configuration = format!(
            "global\n  nbthread 1\n  {maxaccept}\n{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
        );
        let traced = Traced::start(&configuration, "accept4,epoll_wait", port)?;
        assert!(get(port).starts_with("HTTP/1.1 200 "));
        // While the program is stopped, all connections arrive, so it finds them waiting at once.
        traced.signal("STOP");
        let clients: Vec<TcpStream> =
            (0..12).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection")).collect();
        traced.signal("CONT");
        // The one that checked the port, the one with the request, and these.
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
fn multi_queue_distributes_connections() {
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
fn maxpipes_limits_pipes() {
    // Bodies that are never read to the end: each keeps its pipe.
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
fn prealloc_fd_grows_the_descriptor_table_at_once() {
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

#[test]
fn process_takes_the_configured_priority() {
    let origin = Origin::text("hello");
    let (weir, _) = listen("  tune.renice.startup 3\n  tune.renice.runtime 7\n", "", &local(&origin));
    let threads = || std::fs::read_dir(format!("/proc/{}/task", weir.pid())).expect("it runs");
    assert!(eventually(|| threads().count() >= 2), "two workers are threads");
    for thread in threads().filter_map(Result::ok) {
        let stat = std::fs::read_to_string(thread.path().join("stat")).expect("it runs");
        // After the name in parentheses, the state is the third field; the nice value is the nineteenth (proc(5)).
        let nice = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16));
        assert_eq!(nice, Some("7"), "{stat}");
    }
}
