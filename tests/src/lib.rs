//! Tests of the whole program, from outside: what they share.
//!
//! [`Weir`] starts the program on ports that the kernel chose, [`Origin`] is a server for it to
//! talk to, [`client`] a client that shows every byte, [`targets`] what the fuzzers call. Nothing
//! here sleeps for a fixed time and asserts afterwards: whatever is waited for is asked for again
//! until a deadline. Used by the tests in `tests/tests` and by `fuzz`.

#![forbid(unsafe_code)]

pub mod acme;
pub mod agent;
mod authority;
pub mod caching;
pub mod certificates;
pub mod chunks;
pub mod client;
pub mod compression;
pub mod fastcgi;
pub mod go_tools;
mod haproxy;
pub mod listen;
pub mod load;
pub mod log_scene;
pub mod logs;
pub mod multiplexed;
mod nameserver;
pub mod openssl;
mod origin;
pub mod pebble;
pub mod peers;
mod program;
pub mod reloading;
pub mod request;
pub mod spoe;
mod statistics;
pub mod targets;
pub mod tls;
pub mod verdicts;
pub mod versions;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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

/// How long anything may take before a test gives up: far more than it takes, so that a busy
/// machine does not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_path_buf()
}

/// The text of a recipe (`docs/recipes`) that listens on this port of 127.0.0.1, with these of its
/// addresses in place of its own.
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

/// A port of 127.0.0.1 that nothing listens on, and that stays the caller's for as long as its thread
/// runs: each test has one.
///
/// The kernel hands a port to whoever asks for any, so one that was merely free a moment ago may be
/// another test's origin by the time the program binds it. A socket that has the port without
/// listening keeps it from them, and from nobody who names the port: the program and the standard
/// library set `SO_REUSEADDR`, as this does.
pub fn free_port() -> u16 {
    thread_local! {
        /// Programs that tests start do not inherit these.
        static HELD: RefCell<Vec<Socket>> = const { RefCell::new(Vec::new()) };
    }
    let bound = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket.local_addr()?;
        HELD.with_borrow_mut(|held| held.push(socket));
        Ok::<_, std::io::Error>(address.as_socket())
    };
    bound().ok().flatten().expect("a port of the loopback interface").port()
}

/// A port of 127.0.0.1 that takes no connection and refuses none: its backlog is full. The
/// connections keep it so.
pub fn full_port() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let address = listener.local_addr().expect("a bound socket has an address");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    (listener, waiting)
}

/// The lines of a backend's servers at these ports of 127.0.0.1: `s0`, `s1` …
pub fn server_lines(ports: &[u16]) -> String {
    (0..).zip(ports).map(|(at, port): (usize, _)| format!("  server s{at} 127.0.0.1:{port}\n")).collect()
}

/// Asks until the answer is yes; false when it was not within [`PATIENCE`].
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

/// A new directory of its own for a test, under the system's temporary directory, which goes when
/// the value is dropped.
pub fn scratch(name: &str) -> Scratch {
    Scratch::new(name)
}
