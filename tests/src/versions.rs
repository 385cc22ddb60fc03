//! Setups for HTTP/2 tests: the program between clients and servers of either version.

use std::net::TcpListener;
use std::process::Command;

use crate::{Weir, free_port};

/// HTTP defaults with timeouts that no test reaches.
pub const TIMEOUTS: &str =
    "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n log global\n";

/// Returns curl's output for a request with prior knowledge of HTTP/2, or with other arguments.
pub fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("curl runs: `make tools` installs it");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts an HTTP/2 frontend with `global` and `front` lines in front of an HTTP/1 origin; returns its port.
pub fn frontend(global: &str, front: &str, origin: u16) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{global}\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port} proto h2\n\
         {front}\n default_backend b\nbackend b\n server s 127.0.0.1:{origin}\n"
    );
    (Weir::start(&text, &[port]), port)
}

/// Starts an HTTP/1 frontend in front of an HTTP/2 server, which is the listener, with `back` lines and `parameters` of the server;
/// returns the frontend's port.
pub fn backend(global: &str, back: &str, parameters: &str) -> (TcpListener, Weir, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (server, port) = (listener.local_addr().expect("a bound socket has an address").port(), free_port());
    let text = format!(
        "global\n log stderr format raw local0\n{global}\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n \
         default_backend b\nbackend b\n{back}\n server s 127.0.0.1:{server} proto h2 {parameters}\n"
    );
    (listener, Weir::start(&text, &[port]), port)
}
