//! `maxconn … fleet`: limits of servers that hold for several processes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use weir_tests::client::get;
use weir_tests::{Scratch, Weir, ask, eventually, free_port, scratch};

/// A server that answers each request when it is allowed to.
struct Gate {
    port: u16,
    state: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Default)]
struct GateState {
    /// The requests that wait, the most that have waited at once, and the number of all requests.
    inside: usize,
    most: usize,
    all: usize,
    /// How many may be answered.
    allowed: usize,
}

impl Gate {
    fn start() -> Gate {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::<(Mutex<GateState>, Condvar)>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Gate { port, state }
    }

    /// Returns the number of requests that wait, the most that have waited at once, and the number of all requests.
    fn counts(&self) -> (usize, usize, usize) {
        let state = self.state.0.lock().expect("no panic");
        (state.inside, state.most, state.all)
    }

    fn allow(&self, count: usize) {
        self.state.0.lock().expect("no panic").allowed += count;
        self.state.1.notify_all();
    }
}

fn answer(mut stream: TcpStream, (state, changed): &(Mutex<GateState>, Condvar)) {
    let mut bytes = [0; 4096];
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut bytes) {
            Ok(length @ 1..) => request.extend_from_slice(&bytes[..length]),
            _ => return,
        }
    }
    {
        let mut own = state.lock().expect("no panic");
        own.inside += 1;
        own.all += 1;
        own.most = own.most.max(own.inside);
        let mut own = changed.wait_while(own, |own| own.allowed == 0).expect("no panic");
        own.allowed -= 1;
        own.inside -= 1;
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

struct Member {
    weir: Weir,
    text: String,
    port: u16,
    socket: std::path::PathBuf,
}

fn members(directory: &Scratch, server: u16) -> Vec<Member> {
    let peers = [free_port(), free_port()];
    let start = |place: usize| {
        let (port, socket) = (free_port(), directory.join(format!("n{place}")));
        let text = format!(
            "global\n  stats socket {} level admin\n\
             defaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n\
             peers P\n  peer n0 127.0.0.1:{}\n  peer n1 127.0.0.1:{}\n\
             backend limits\n  stick-table type string len 32 size 100 expire 1m store conn_cur peers P \
             aggregate every 5ms\n\
             frontend f\n  bind 127.0.0.1:{port}\n  http-request use-service prometheus-exporter if {{ path /metrics }}\n  default_backend app\n\
             backend app\n  server s1 127.0.0.1:{server} maxconn 4 fleet limits\n",
            socket.display(),
            peers[0],
            peers[1],
        );
        let name = format!("n{place}");
        let weir = Weir::start_with(&text, &["-db", "-L", &name], &[peers[place], port]);
        Member { weir, text, port, socket }
    };
    (0..2).map(start).collect()
}

impl Member {
    /// Returns a number in the line of the backend in `show stat`.
    fn waiting(&self) -> String {
        let text = ask(&self.socket, "show stat");
        let line = text.lines().find(|line| line.starts_with("app,BACKEND,")).unwrap_or_default();
        line.split(',').nth(2).unwrap_or_default().to_owned()
    }

    fn shows(&self, count: usize) -> bool {
        ask(&self.socket, "show table limits key s1").contains(&format!("conn_cur={count}\n"))
    }

    /// Sends requests, each on another thread.
    fn send(&self, count: usize) -> Vec<std::thread::JoinHandle<u16>> {
        let port = self.port;
        (0..count)
            .map(|_| std::thread::spawn(move || get(port, "/").map_or(0, |response| response.status)))
            .collect()
    }
}

#[test]
fn a_limit_holds_for_two_processes() {
    let directory = scratch("limit");
    let gate = Gate::start();
    let members = members(&directory, gate.port);
    let [first, second] = &members[..] else { panic!("two members") };
    let mut all = first.send(4);
    assert!(eventually(|| gate.counts().0 == 4), "{:?}", gate.counts());
    let table = || ask(&second.socket, "show table limits");
    // The server follows the table a moment later.
    let metric = "weir_server_fleet_requests{proxy=\"app\",server=\"s1\"} 4\n";
    let counts_four = || get(second.port, "/metrics").is_some_and(|metrics| metrics.text().contains(metric));
    assert!(eventually(counts_four), "{}\n{}", table(), ask(&second.socket, "show peers"));
    assert!(second.shows(4), "{}", table());
    all.extend(second.send(2));
    assert!(eventually(|| second.waiting() == "2"), "{}", second.waiting());
    assert_eq!(gate.counts(), (4, 4, 4));
    let explained = ask(&second.socket, "explain frontend f GET http://h/");
    assert!(explained.contains("0 and 4 at other members of the fleet, of 4 requests"), "{explained}");
    // Each request that ends at the first process makes room at the second one.
    for done in 1..=2 {
        gate.allow(1);
        assert!(eventually(|| gate.counts().2 == 4 + done), "{:?} {}", gate.counts(), second.waiting());
        assert_eq!(gate.counts().1, 4);
    }
    gate.allow(4);
    for request in all {
        assert_eq!(request.join().expect("no panic"), 200);
    }
    assert_eq!(gate.counts(), (0, 4, 6));
    assert!(eventually(|| first.shows(0) && second.shows(0)), "{}", table());
}

#[test]
fn a_reload_without_the_limit_withdraws_its_count() {
    let directory = scratch("limit");
    let gate = Gate::start();
    let members = members(&directory, gate.port);
    let [first, second] = &members[..] else { panic!("two members") };
    let requests = first.send(3);
    assert!(eventually(|| second.shows(3)), "{}", ask(&second.socket, "show table limits"));
    for (text, count) in
        [(first.text.clone() + " timeout queue 9s\n", 3), (first.text.replace(" fleet limits", ""), 0)]
    {
        std::fs::write(first.weir.directory().join("haproxy.cfg"), text).expect("it is writable");
        let changes = ask(&first.socket, "reload");
        assert!(!changes.contains("error"), "{changes}");
        assert!(eventually(|| second.shows(count)), "{count}: {}", ask(&second.socket, "show table limits"));
        assert_eq!(gate.counts().0, 3, "the requests continue");
    }
    gate.allow(3);
    for request in requests {
        assert_eq!(request.join().expect("no panic"), 200);
    }
}

#[test]
fn unusable_limits_are_refused() {
    let directory = scratch("limit");
    let file = directory.join("haproxy.cfg");
    let verdict = |parameters: &str, more: &str| {
        let text = format!(
            "global\n  localpeer n0\npeers P\n  peer n0 127.0.0.1:1\n  peer n1 127.0.0.1:2\n\
             backend limits\n  stick-table type string len 8 size 1k expire 1m store conn_cur peers P aggregate\n\
             backend ip\n  stick-table type ip size 1k expire 1m store conn_cur peers P aggregate\n\
             backend count\n  stick-table type string size 1k expire 1m store gpc0 peers P aggregate\n\
             backend plain\n  stick-table type string size 1k expire 1m store conn_cur peers P\n\
             backend app\n  mode http\n  server s1 127.0.0.1:3 {parameters}\n{more}"
        );
        std::fs::write(&file, text).expect("it is writable");
        weir_tests::check(&file, &directory)
    };
    let usual = "maxconn 4 fleet limits";
    for (parameters, more) in [
        (usual, ""),
        (usual, "  server s2 127.0.0.1:3 maxconn 4 fleet limits\n"),
        ("maxconn 4", "  default-server maxconn 4 fleet limits\n  server-template t 2 127.0.0.1:3\n"),
    ] {
        assert!(
            verdict(parameters, more).accepted(),
            "{parameters}: {:?}",
            verdict(parameters, more).alerts()
        );
    }
    for (parameters, more, message) in [
        ("maxconn 0 fleet limits", "", "`fleet` needs a limit"),
        ("maxconn 4 fleet none", "", "there is no stick table `none`"),
        ("maxconn 4 fleet plain", "", "table `plain` is not an `aggregate`"),
        ("maxconn 4 fleet ip", "", "table `ip` has keys of type ip instead of string"),
        ("maxconn 4 fleet count", "", "table `count` does not store `conn_cur`"),
        ("minconn 2 maxconn 4 fleet limits", "", "cannot be combined with `minconn`"),
        ("maxconn 4 fleet limits strict-maxconn", "", "cannot be combined with `strict-maxconn`"),
        (usual, "  server long-name 127.0.0.1:3 maxconn 4 fleet limits\n", "is longer than the keys"),
        (
            usual,
            "backend other\n  mode http\n  server s1 127.0.0.1:3 maxconn 4 fleet limits\n",
            "two servers named `s1` use table `limits`",
        ),
    ] {
        let verdict = verdict(parameters, more);
        let alerts = verdict.alerts().join("\n");
        assert!(!verdict.accepted() && alerts.contains(&message.replace('`', "'")), "{parameters}: {alerts}");
    }
}
