//! The program with log lines and statistics that a test checks.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use crate::client::{Client, Response};
use crate::{Origin, PATIENCE, Weir, free_port};

/// The program with one frontend `f`, one backend `b`, and a collector of its log lines.
pub struct Scene {
    /// The program.
    pub weir: Weir,
    /// Receives its log lines.
    pub log: UdpSocket,
    /// The frontend's port.
    pub port: u16,
}

/// The log format used here: backend and server, timers, status, termination state, retries, request.
pub const FORMAT: &str = "%b/%s %TR/%Tw/%Tc/%Tr %ST %tsc %rc %r";

/// A matching request.
pub const GET: &str = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
/// The same request, with `Connection: close`.
pub const LAST: &str = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// A request for the root.
pub const GET_ROOT: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// A request for the root with the first half of its body.
pub const POST_HALF: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc";
/// Milliseconds between two pieces sent by [`slowly`].
pub const PAUSE: u64 = 250;

/// Starts a server that reads a head and sends these bytes; then it closes if it `leaves`, or reads on until the peer closes.
pub fn says<T: AsRef<[u8]> + Sync + ?Sized>(bytes: &'static T, leaves: bool) -> Origin {
    Origin::raw(move |mut stream| {
        let mut seen = Vec::new();
        let mut part = [0; 1024];
        while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(count @ 1..) => seen.extend_from_slice(&part[..count]),
                _ => return,
            }
        }
        let _ = stream.write_all(bytes.as_ref());
        while !leaves && matches!(stream.read(&mut part), Ok(1..)) {}
    })
}

/// Starts the program with one server that has these parameters.
pub fn scene(defaults: &str, frontend: &str, backend: &str, origin: &Origin, parameters: &str) -> Scene {
    let server = format!("{backend}\n  server s 127.0.0.1:{} {parameters}", origin.port());
    Scene::start(defaults, frontend, &server)
}

/// Sends `pieces` with [`PAUSE`] in between, and receives one response.
pub fn slowly(port: u16, pieces: &[&str]) -> Option<Response> {
    let mut client = Client::connect(port);
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            // These tests are about slow clients, so time must pass.
            let until = Instant::now() + Duration::from_millis(PAUSE);
            while Instant::now() < until {
                std::thread::park_timeout(until - Instant::now());
            }
        }
        client.send(piece);
    }
    client.response()
}

/// Returns the timers of the next line: TR, Tw, Tc, Tr.
pub fn timers(scene: &Scene) -> [i64; 4] {
    let line = scene.line_with_times();
    let word = line.split(' ').nth(1).expect("times are the second word");
    let times: Vec<i64> = word.split('/').map(|time| time.parse().expect("a number")).collect();
    times.try_into().expect("four times")
}

impl Scene {
    /// Starts the program; `frontend` and `backend` are additional lines, without logging settings.
    pub fn start(defaults: &str, frontend: &str, backend: &str) -> Scene {
        let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
        log.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let port = free_port();
        let collector = log.local_addr().expect("a bound socket has an address").port();
        let mode = if defaults.contains("mode tcp") { "" } else { "mode http" };
        let configuration = format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             defaults\n  {mode}\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n  retries 1\n  \
             balance roundrobin\n  log 127.0.0.1:{collector} local0\n  {defaults}\n\
             frontend f\n  bind 127.0.0.1:{port}\n  log-format \"{FORMAT}\"\n  {frontend}\n  default_backend b\n\
             backend b\n  {backend}\n"
        );
        // A connection to the port would be counted and logged, so the runtime socket is used to detect the start.
        let weir = Weir::start(&configuration, &[]);
        assert!(!weir.ask("show info").is_empty(), "{configuration}: {}", weir.messages());
        Scene { weir, log, port }
    }

    /// Returns the next line with its times set to 0, except those that are -1: the real values depend on the machine.
    pub fn line(&self) -> String {
        let line = self.line_with_times();
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if let Some(times) = words.get_mut(1) {
            let same = times.split('/').map(|time| if time == "-1" { "-1" } else { "0" });
            *times = same.collect::<Vec<_>>().join("/");
        }
        words.join(" ")
    }

    /// Returns the next line without the syslog header.
    pub fn line_with_times(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.log.recv(&mut buffer).unwrap_or_else(|error| {
            panic!("no line came: {error}: {}", self.weir.messages());
        });
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        text.split_once("]: ").map_or(text.clone(), |(_, text)| text.trim_end().to_owned())
    }

    /// Returns columns of a statistics row.
    pub fn counts(&self, line: &str, columns: &[&str]) -> Vec<String> {
        let value = |column: &&str| format!("{column}={}", self.weir.stat(line, column));
        columns.iter().map(value).collect()
    }

    /// Sends bytes and returns everything until the peer closes.
    pub fn talk(&self, bytes: &str) -> String {
        String::from_utf8_lossy(&Client::connect(self.port).send(bytes).read_to_end()).into_owned()
    }
}
