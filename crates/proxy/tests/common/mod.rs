//! The client, the origin and the workers for the proxy's tests, in one process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use config::Boot;
use plan::Plan;
use proxy::shared::ServiceReply;
use proxy::{Services, Shared, Worker};
use state::Process;

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

/// Returns the end of the first head in `bytes`.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a head and `body` bytes; returns false if the other side ended first. Allocates nothing.
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

/// Sends the same response to every request, on any number of connections; counts the connections.
pub(crate) fn origin(connections: Arc<AtomicUsize>) -> SocketAddr {
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

/// A plan of this text; panics with its errors.
pub(crate) fn plan(text: &str) -> Plan {
    let loaded = config::load_text("test.cfg", text, &Boot::default());
    loaded.plan.unwrap_or_else(|| panic!("the configuration has errors: {:?}", loaded.diagnostics))
}

/// Starts the workers of the plan, with a listener for each frontend on a port that the kernel chose; returns the addresses, in the
/// order of the plan. To be called once per process.
pub(crate) fn serve(plan: impl Into<Arc<Plan>>) -> Vec<SocketAddr> {
    let plan = plan.into();
    let threads = plan.global.workers();
    let mut inboxes = runtime::worker::prepare(threads).expect("workers are prepared once");
    let reply = || ServiceReply { status: 200, headers: Vec::new(), body: Box::new(std::iter::empty()) };
    let services = Services {
        perform: Box::new(|_| Box::pin(async { lua::WaitAnswer::Nothing })),
        statistics: Box::new(move |_, _, _| reply()),
        metrics: Box::new(move |request| {
            assert!(request.target != b"/panic", "as it was asked to");
            reply()
        }),
        resolve: Box::new(|_, _, _| Box::pin(std::future::ready(None))),
        serve_peer: Box::new(|_, _, _| Box::pin(std::future::ready(()))),
        alert: Box::new(|text| panic!("{text}")),
    };
    let shared = Arc::new(Shared::new(plan.clone(), Arc::new(Process::default()), services, None));
    let mut addresses = Vec::new();
    let mut watched = Vec::new();
    for (index, _) in plan.proxies.iter().enumerate().filter(|(_, proxy)| !proxy.binds.is_empty()) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = net::listen::ListenOptions { backlog: 16, ..Default::default() };
        let socket = net::listen::tcp(any, &options).expect("a port of the loopback interface");
        let socket = TcpListener::from(socket);
        addresses.push(socket.local_addr().expect("a bound socket has an address"));
        watched.push((index, socket));
    }
    let workers: Arc<[usize]> = (0..threads).collect();
    let mut watched = Some(watched);
    for index in 0..threads {
        let (shared, workers, watched) = (shared.clone(), workers.clone(), watched.take());
        let main = move || async move {
            let worker = Worker::new(shared, 0..workers.len());
            proxy::serve::accept::install();
            tokio::task::spawn_local(proxy::worker::background(worker.clone()));
            for (frontend, socket) in watched.into_iter().flatten() {
                let listener =
                    net::Listener::from_fd(socket.into()).expect("a listening socket can be watched");
                let task =
                    proxy::serve::accept::serve(worker.clone(), listener, frontend, 0, workers.clone());
                tokio::task::spawn_local(task);
            }
            std::future::pending::<()>().await;
        };
        inboxes.spawn(index, Default::default(), main).expect("a thread starts");
    }
    addresses
}

/// Connects a client to that frontend.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("the frontend listens");
    client.set_nodelay(true).expect("a connected socket");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a connected socket");
    client
}

/// Makes `requests` requests, one after the other. Allocates nothing.
pub(crate) fn exchange(client: &mut TcpStream, requests: usize) {
    for number in 0..requests {
        assert!(client.write_all(REQUEST).is_ok() && read_message(client, BODY), "request {number} failed");
    }
}
