//! The program with one `listen` section in front of one server.

use std::net::UdpSocket;

use crate::client::{self, Response};
pub use crate::logs::DEFAULTS;
use crate::{Origin, PATIENCE, Weir, free_port};

/// The beginning of a configuration: a runtime socket, two workers, HTTP defaults.
pub const TOP: &str = "global\n  nbthread 2\n  stats socket runtime level admin\n\
                       defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// Starts the program with a runtime socket, `listen l` on a free port with these lines, and a server with this address and these
/// parameters.
pub fn listen(global: &str, lines: &str, server: &str) -> (Weir, u16) {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  stats socket runtime level admin\n  nbthread 2\n{global}{DEFAULTS}listen l\n  bind 127.0.0.1:{port}\n\
             {lines}  server s {server}\n"
        ),
        &[port],
    );
    (weir, port)
}

/// Returns the address of an origin.
pub fn local(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port())
}

/// Sends a request on a new connection.
pub fn ask(port: u16, request: &str) -> Response {
    client::exchange(port, request).expect("a response")
}

/// Returns a collector of log lines, and the configuration line that logs to it.
pub fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let line = format!("  log {} local0\n", socket.local_addr().expect("a bound socket has an address"));
    (socket, line)
}

/// Returns the next log line that contains `text`.
pub fn logged(socket: &UdpSocket, text: &str) -> String {
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).expect("a log line");
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if line.contains(text) {
            return line;
        }
    }
}
