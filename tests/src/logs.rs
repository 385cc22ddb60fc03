//! Receiving log lines, and configurations that log.

use std::net::{Ipv4Addr, UdpSocket};

use crate::PATIENCE;
use crate::client::Client;

/// A socket that receives datagrams as text.
pub struct Collector(pub UdpSocket);

impl Default for Collector {
    /// Binds to a port that the kernel chooses.
    fn default() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
        socket.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        Self(socket)
    }
}

impl Collector {
    /// Binds to a port that the kernel chooses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the collector's port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.local_addr().expect("a bound socket has an address").port()
    }

    /// Returns the next datagram.
    pub fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).expect("a datagram comes");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }
}

/// The beginning of every configuration.
pub const GLOBAL: &str = "global\n  nbthread 2\n  stats socket runtime level admin\n";
/// The `defaults` section.
pub const DEFAULTS: &str =
    "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// Returns a frontend that answers by itself and logs the path.
pub fn frontend(port: u16, logs: &str) -> String {
    format!(
        "frontend f\n  bind 127.0.0.1:{port}\n  option dontlognull\n  log-format \"path=%HP\"\n  {logs}\n  http-request return status 200\n"
    )
}

/// Sends a GET on a new connection and checks that the status is 200.
pub fn get(port: u16, path: &str) {
    let answer = Client::connect(port)
        .send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
        .read_to_end();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}
