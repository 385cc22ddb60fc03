//! Shared code of the end-to-end tests.
//!
//! [`Weir`] starts the program on ports that the kernel chose, [`Origin`] is a server that it connects to, [`client`] a client that
//! shows every byte, and [`targets`] are the fuzz targets. No test sleeps for a fixed time before an assertion: conditions are
//! polled until a deadline. Used by the tests in `tests/tests` and by `fuzz`.

#![forbid(unsafe_code)]

pub mod acme;
pub mod agent;
mod authority;
pub mod browser;
pub mod caching;
pub mod certificates;
pub mod chunks;
pub mod client;
pub mod compression;
pub mod datagrams;
pub mod fastcgi;
pub mod go_tools;
mod haproxy;
pub mod http3;
pub mod http3_server;
pub mod listen;
pub mod load;
pub mod log_scene;
pub mod logs;
pub mod multiplexed;
mod nameserver;
pub mod openssl;
mod origin;
pub mod otlp;
pub mod pebble;
pub mod peers;
mod program;
pub mod prometheus;
pub mod qmux;
pub mod quic;
pub mod relay;
pub mod reloading;
pub mod request;
pub mod sources;
pub mod spoe;
mod statistics;
pub mod targets;
pub mod tls;
pub mod tool;
pub mod verdicts;
pub mod versions;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

pub use authority::Authority;
pub use haproxy::Haproxy;
pub use nameserver::{NameServer, Zone};
pub use origin::Origin;
pub use pebble::Pebble;
pub use program::{Verdict, Weir, ask, check, program, statistics};
pub use scratch::Scratch;
pub use statistics::Statistics;

/// How long an operation may take before a test fails. This is far more than operations usually take, so that a busy machine does
/// not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_path_buf()
}

/// Returns the text of a recipe (`docs/recipes`) with this listening port on 127.0.0.1 and with the given addresses replaced.
pub fn recipe(name: &str, port: u16, addresses: &[(&str, u16)]) -> String {
    let path = workspace().join("docs/recipes").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = text.replace("bind :8080", &format!("bind 127.0.0.1:{port}"));
    let text = text.replace("bind :80", &format!("bind 127.0.0.1:{port}"));
    assert!(text.contains(&format!("bind 127.0.0.1:{port}\n")), "{text}");
    addresses.iter().fold(text, |text, (address, port)| {
        assert!(text.contains(address), "{name} has no {address}");
        text.replace(address, &format!("127.0.0.1:{port}"))
    })
}

/// The ports that [`free_port`] returns. The kernel assigns none of them to a socket that is bound to port 0, as those of clients are.
const PORTS: Range<u16> = 12_000..32_000;

/// Returns a port of 127.0.0.1 on which nothing listens, neither TCP nor UDP. It is reserved for the calling thread, and each test has
/// its own thread.
///
/// If a port were only free, another test might get it before the program binds it. A socket that is bound to the port without
/// listening prevents that, and still permits that the port is bound explicitly, because the program and the standard library set
/// `SO_REUSEADDR`, as this function does.
pub fn free_port() -> u16 {
    thread_local! {
        /// Programs that tests start do not inherit these sockets.
        static HELD: RefCell<Vec<Socket>> = const { RefCell::new(Vec::new()) };
    }
    static CHOOSING: Mutex<()> = Mutex::new(());
    let _choosing = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
    let bind = |kind: Type, port: u16, is_shared: bool| {
        let socket = Socket::new(Domain::IPV4, kind, None)?;
        socket.set_reuse_address(is_shared)?;
        socket.set_reuse_port(is_shared)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        Ok::<_, std::io::Error>(socket)
    };
    for _ in 0..10_000 {
        let port = fastrand::u16(PORTS);
        // Neither of these can be bound to a port that another test has reserved.
        if bind(Type::STREAM, port, false).is_ok()
            && bind(Type::DGRAM, port, false).is_ok()
            && let Ok(socket) = bind(Type::STREAM, port, true)
        {
            HELD.with_borrow_mut(|held| held.push(socket));
            return port;
        }
    }
    panic!("no port of the loopback interface is free");
}

/// Returns a port of 127.0.0.1 that neither accepts nor refuses connections, because its backlog is full. The returned connections
/// keep it full.
pub fn full_port() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let address = listener.local_addr().expect("a bound socket has an address");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    (listener, waiting)
}

/// Returns server lines for these ports of 127.0.0.1: `s0`, `s1` …
pub fn server_lines(ports: &[u16]) -> String {
    (0..).zip(ports).map(|(at, port): (usize, _)| format!("  server s{at} 127.0.0.1:{port}\n")).collect()
}

/// Polls `ask` until it returns true; returns false after [`PATIENCE`].
pub fn eventually(mut ask: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if ask() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Creates a temporary directory for a test, which is removed when the value is dropped.
pub fn scratch(name: &str) -> Scratch {
    Scratch::new(name)
}
