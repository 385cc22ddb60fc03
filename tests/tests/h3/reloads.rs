//! Reloads under load: no request fails, no connection is reset, and no byte is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::reloading::reload;
use weir_tests::{Authority, Origin, Scratch, Weir, ask, eventually, free_port, scratch};

/// Number of reloads of each kind.
const RELOADS: usize = 10;

/// The number of connections: `WEIR_TEST_CONNECTIONS`, or few enough for a busy machine.
fn connections() -> usize {
    std::env::var("WEIR_TEST_CONNECTIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(50)
}

/// Clients that send requests without a pause, each over its own connection.
struct Clients {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

/// The number of bytes of the largest bodies: more than the windows.
const LARGE: usize = 1 << 20;

impl Clients {
    fn start(port: u16) -> Self {
        let [served, opened] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..connections()).map(|number| {
            let (stop, served, opened) = (stop.clone(), served.clone(), opened.clone());
            std::thread::spawn(move || converse(port, number, &stop, &served, &opened))
        });
        let threads = threads.collect();
        Self { stop, served, opened, threads }
    }

    /// Waits until as many requests as there are clients have been answered.
    fn go_on(&self) {
        let wanted = self.served.load(Ordering::Relaxed) + connections();
        assert!(eventually(|| self.served.load(Ordering::Relaxed) >= wanted), "the clients wait");
    }

    /// Stops the clients, and checks that there were no errors. Returns the number of connections.
    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let failures: Vec<_> =
            self.threads.into_iter().flat_map(|thread| thread.join().expect("a client")).collect();
        assert_eq!(failures, Vec::<String>::new());
        let [served, opened] = [self.served, self.opened].map(|count| count.load(Ordering::Relaxed));
        println!("{served} requests on {opened} connections");
        opened
    }
}

/// Returns a body whose bytes depend on the client and the request.
fn body(number: usize, turn: usize, length: usize) -> Vec<u8> {
    let seed = number * 31 + turn * 7;
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16) ^ seed) as u8).collect()
}

fn converse(
    port: u16,
    number: usize,
    stop: &AtomicBool,
    served: &AtomicUsize,
    opened: &AtomicUsize,
) -> Vec<String> {
    let (mut failures, mut turn) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) && failures.len() < 5 {
        let mut client = match Http3Client::try_connect(port) {
            Ok(client) => client,
            Err(error) => {
                failures.push(format!("client {number}: no connection: {error}"));
                continue;
            }
        };
        opened.fetch_add(1, Ordering::Relaxed);
        while !stop.load(Ordering::Relaxed) {
            turn += 1;
            let length = match (turn + number) % 50 {
                0 => LARGE,
                at if at % 5 == 0 => 20_000,
                _ => 0,
            };
            let sent = body(number, turn, length);
            let request = Http3Request::post(&format!("/{number}/{turn}"), &sent);
            match client.try_exchange(&request) {
                Ok(response) if response.status == 200 && response.body == sent => {
                    served.fetch_add(1, Ordering::Relaxed);
                }
                // After GOAWAY no request is sent on the connection.
                Err(error) if client.is_closing(&error) => break,
                Ok(response) => failures.push(format!(
                    "client {number}, request {turn}: {} with {} of {length} bytes",
                    response.status,
                    response.body.len()
                )),
                Err(error) => failures.push(format!("client {number}, request {turn}: {error}")),
            }
            if failures.len() >= 5 {
                break;
            }
        }
        client.close();
    }
    failures
}

struct Scene {
    text: String,
    port: u16,
    /// The runtime socket, the same for every process.
    socket: String,
    _origin: Origin,
    _authority: Authority,
    _directory: Scratch,
}

fn scene(bind: &str) -> Scene {
    let origin = Origin::start(|_, body| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    });
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]).display().to_string();
    let (port, directory) = (free_port(), scratch("h3-reloads"));
    let socket = directory.join("runtime").display().to_string();
    let text = format!(
        "global\n nbthread 2\n stats socket {socket} level admin expose-fd listeners\n stats socket runtime level admin\n\
         {}frontend f\n bind quic4@127.0.0.1:{port} ssl crt {certificate} {bind}\n \
         bind 127.0.0.1:{port} ssl crt {certificate} alpn h2\n http-request return status 200 content-type text/plain lf-string %[thread] if {{ path /thread }}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        super::DEFAULTS,
        origin.port()
    );
    Scene { text, port, socket, _origin: origin, _authority: authority, _directory: directory }
}

#[test]
fn in_place_reloads_keep_all_connections() {
    let scene = scene("");
    let weir = Weir::start(&scene.text, &[scene.port]);
    let clients = Clients::start(scene.port);
    for number in 1..=RELOADS {
        clients.go_on();
        let said =
            reload(&weir, &scene.text.replace("backend b\n", &format!("backend b\n retries {number}\n")));
        assert!(said.contains("retries"), "{said}");
    }
    clients.go_on();
    let opened = clients.end();
    // Connections with a request in progress while the second plan after its own is in use may have to end.
    assert!(opened < connections() * RELOADS, "{opened} connections");
}

#[test]
fn successors_take_over_without_losses() {
    let scene = scene("");
    let mut weir = Weir::start(&scene.text, &[scene.port]);
    let clients = Clients::start(scene.port);
    for _ in 0..RELOADS {
        clients.go_on();
        let pid = weir.pid().to_string();
        let next = Weir::start_with(&scene.text, &["-db", "-x", &scene.socket, "-sf", &pid], &[scene.port]);
        assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
        weir = next;
    }
    clients.go_on();
    clients.end();
    assert!(ask(Path::new(&scene.socket), "show info").contains(&format!("Pid: {}\n", weir.pid())));
}

#[test]
fn successors_without_the_sockets_cause_no_losses() {
    // They do not know the indexes of a process that had a predecessor itself.
    for _ in 0..3 {
        let scene = scene("");
        let mut weir = Weir::start(&scene.text, &[scene.port]);
        let clients = Clients::start(scene.port);
        clients.go_on();
        let pid = weir.pid().to_string();
        let _next = Weir::start_with(&scene.text, &["-db", "-sf", &pid], &[scene.port]);
        assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
        clients.go_on();
        clients.end();
    }
}

#[test]
fn changes_of_the_threads_keep_all_connections() {
    let scene = scene("thread 1");
    let weir = Weir::start(&scene.text, &[scene.port]);
    let clients = Clients::start(scene.port);
    for threads in ["2", "1-2", "1", "1-2", "2"] {
        clients.go_on();
        let said = reload(&weir, &scene.text.replace("thread 1\n", &format!("thread {threads}\n")));
        assert!(said.contains("changed"), "{said}");
        // New connections are served by the new threads.
        let mut client = Http3Client::connect(scene.port);
        let response = client.exchange(&Http3Request::get("/thread"));
        // It counts from 0.
        let thread = String::from_utf8_lossy(&response.body).parse::<u32>().map(|thread| thread + 1);
        let thread = thread.expect("a number").to_string();
        assert!(threads == "1-2" || thread == threads, "thread {thread} instead of {threads}");
        client.close();
    }
    clients.go_on();
    let opened = clients.end();
    assert_eq!(opened, connections(), "all connections are kept");
}

#[test]
fn master_reloads_cause_no_losses() {
    let scene = scene("");
    let weir = Weir::start_with(&scene.text, &["-W", "-S", "./master"], &[scene.port]);
    let clients = Clients::start(scene.port);
    let master = |command: &str| ask(&weir.directory().join("master"), command);
    for _ in 0..RELOADS {
        clients.go_on();
        let answer = master("reload");
        assert!(answer.starts_with("Success=1"), "{answer}");
    }
    clients.go_on();
    clients.end();
    assert!(eventually(|| !master("show proc").contains("old workers")), "{}", master("show proc"));
}

#[test]
fn handshakes_survive_the_start_of_a_successor() {
    // A ClientHello has two datagrams, and one that follows a Retry is sent to the process that sent the Retry.
    for bind in ["", "quic-force-retry"] {
        let scene = scene(bind);
        let mut weir = Weir::start(&scene.text, &[scene.port]);
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (stop, count, port) = (stop.clone(), count.clone(), scene.port);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let mut client = Http3Client::try_connect(port)?;
                        let response = client.try_exchange(&Http3Request::post("/", b""));
                        response.map_err(|error| format!("{bind}: {error}"))?;
                        client.close();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, String>(())
                })
            })
            .collect();
        for _ in 0..RELOADS / 2 {
            let wanted = count.load(Ordering::Relaxed) + 20;
            assert!(eventually(|| count.load(Ordering::Relaxed) >= wanted), "{bind}: the clients wait");
            let pid = weir.pid().to_string();
            let arguments = ["-db", "-x", &scene.socket, "-sf", &pid];
            let next = Weir::start_with(&scene.text, &arguments, &[scene.port]);
            assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
            weir = next;
        }
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(()), "{bind}");
        }
    }
}
