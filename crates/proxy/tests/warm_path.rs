//! The warm path of HTTP/1 makes no heap allocation: requests on one connection that go to one idle server connection.
//!
//! One worker runs here as in the program, with neither log nor rules. Allocations are counted in the whole process, so
//! client and origin use only buffers on their stacks while it counts; that is also why this file holds a single test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use config::{Boot, Plan};
use proxy::worker::ServiceReply;
use proxy::{Services, Shared, Worker};
use state::Process;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: usize = 200;
const COUNTED: usize = 1_000;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: example.test\r\nUser-Agent: warm/1.0\r\nAccept: */*\r\n\
    Accept-Language: en\r\nCookie: session=0123456789abcdef\r\n\r\n";
const BODY: usize = 100;

/// A head and [`BODY`] bytes.
fn response() -> Vec<u8> {
    let mut response =
        b"HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n"
            .to_vec();
    response.extend_from_slice(&[b'x'; BODY]);
    response
}

/// Where in `bytes` the first head ends.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads until a head and `body` bytes are there. False when the other side ended before. Allocates nothing.
fn read_message(stream: &mut TcpStream, body: usize) -> bool {
    let mut buffer = [0; 4096];
    let mut filled = 0;
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => return false,
            Ok(count) => filled += count,
        }
        if head_end(&buffer[..filled]).is_some_and(|end| filled >= end + body) {
            return true;
        }
    }
}

/// Answers every request alike, on as many connections as come; counts the connections.
fn origin(connections: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            connections.fetch_add(1, Relaxed);
            std::thread::spawn(move || answer(&mut stream, &response()));
        }
    });
    address
}

fn answer(stream: &mut TcpStream, response: &[u8]) {
    while read_message(stream, 0) && stream.write_all(response).is_ok() {}
}

fn plan(origin: SocketAddr) -> Plan {
    let text = format!(
        "global\n  nbthread 1\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:1\n  default_backend b\n\
         backend b\n  server s {origin}\n"
    );
    let loaded = config::load_text("warm.cfg", &text, &Boot::default());
    loaded.plan.unwrap_or_else(|| panic!("the configuration has errors: {:?}", loaded.diagnostics))
}

/// Starts the only worker, on a port that the kernel chose.
fn serve(plan: Plan) -> SocketAddr {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = net::listen::Options { backlog: 16, ..Default::default() };
    let socket = net::listen::tcp(any, &options).expect("a port of the loopback interface");
    let watched = TcpListener::from(socket);
    let address = watched.local_addr().expect("a bound socket has an address");
    let plan = Arc::new(plan);
    let frontend = plan.proxies.iter().position(|proxy| !proxy.binds.is_empty()).expect("a frontend");
    let reply = || ServiceReply { status: 200, headers: Vec::new(), body: Box::new(std::iter::empty()) };
    let services =
        Services { statistics: Box::new(move |_, _, _| reply()), metrics: Box::new(move |_| reply()) };
    let mut inboxes = runtime::worker::prepare(1).expect("workers are prepared once");
    let shared = Arc::new(Shared::new(plan, Arc::new(Process::default()), services));
    let main = move || async move {
        let worker = Worker::new(shared, 0..1);
        proxy::accept::install(&worker);
        tokio::task::spawn_local(proxy::worker::background(worker.clone()));
        let listener = net::Listener::from_fd(watched.into()).expect("a listening socket can be watched");
        proxy::accept::serve(worker, listener, frontend, 0, Arc::new([0])).await;
    };
    inboxes.spawn(0, Default::default(), main).expect("a thread starts");
    address
}

fn exchange(client: &mut TcpStream, requests: usize) {
    for number in 0..requests {
        assert!(client.write_all(REQUEST).is_ok() && read_message(client, BODY), "request {number} failed");
    }
}

fn count(client: &mut TcpStream) -> Stats {
    let region = Region::new(ALLOCATOR);
    exchange(client, COUNTED);
    region.change()
}

#[test]
fn a_warm_keep_alive_request_allocates_nothing() {
    let connections = Arc::new(AtomicUsize::new(0));
    let address = serve(plan(origin(connections.clone())));
    let mut client = TcpStream::connect(address).expect("the frontend listens");
    client.set_nodelay(true).expect("a connected socket");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a connected socket");
    exchange(&mut client, WARM_UP);
    let stats = count(&mut client);
    assert_eq!(connections.load(Relaxed), 1, "the server connection is used again");
    assert_eq!((stats.allocations, stats.reallocations), (0, 0), "in {COUNTED} requests: {stats:?}");
}
