//! A program with one `listen` section before one server.

use std::net::UdpSocket;

use crate::client::{self, Response};
pub use crate::logs::DEFAULTS;
use crate::{Origin, PATIENCE, Weir, free_port};

/// The beginning of a configuration: a runtime socket, two workers, defaults of HTTP.
pub const TOP: &str = "global\n  nbthread 2\n  stats socket runtime level admin\n\
                       defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// A program with a runtime socket, `listen l` on a free port with these lines, and a server
/// with this address and these parameters.
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

/// The address of an origin.
pub fn local(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port())
}

/// The response to a request on a new connection.
pub fn ask(port: u16, request: &str) -> Response {
    client::exchange(port, request).expect("a response")
}

/// A collector of log lines, and the line of a configuration that sends it some.
pub fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let line = format!("  log {} local0\n", socket.local_addr().expect("a bound socket has an address"));
    (socket, line)
}

/// The next line of `socket` with `text` in it.
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
