//! Tests of the whole program, from outside: what they share.
//!
//! [`Weir`] starts the program on ports that the kernel chose, [`Origin`] is a server for it to talk to, [`client`] a
//! client that shows every byte, [`targets`] what the fuzzers call. Nothing here sleeps for a fixed time and asserts
//! afterwards: whatever is waited for is asked for again until a deadline. Used by the files in `tests/tests` and by `fuzz`.

#![forbid(unsafe_code)]

pub mod client;
mod haproxy;
mod nameserver;
mod origin;
pub mod peers;
mod program;
pub mod targets;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use haproxy::Haproxy;
pub use nameserver::{NameServer, Zone};
pub use origin::Origin;
pub use program::{Verdict, Weir, ask, check, program};

/// How long anything may take before a test gives up: far more than it takes, so that a busy machine does not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_path_buf()
}

/// A port of 127.0.0.1 that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    listener.local_addr().expect("a bound socket has an address").port()
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

/// A new directory of its own for a test, under the system's temporary directory.
pub fn scratch(name: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("weir-{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).expect("the temporary directory takes directories");
    path
}
