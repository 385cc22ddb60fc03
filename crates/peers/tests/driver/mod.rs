//! A peers section over real sockets, and the installed HAProxy as a peer, for `tests/haproxy.rs`.
//!
//! There are no background tasks: [`Driver::until`] runs the section until a condition holds.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use peers::{Group, GroupCommand, LinkId, PeersSection, SectionSettings};
use scratch::Scratch;

use crate::memory::Memory;

/// Timeout for expected events.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
struct Socket {
    stream: TcpStream,
    /// Bytes that could not be written yet.
    out: Vec<u8>,
    /// Whether to close the connection once these bytes are written.
    ends: bool,
}

/// A running section.
pub(crate) struct Driver {
    pub(crate) group: Group,
    pub(crate) memory: Memory,
    listener: TcpListener,
    /// The addresses of peers; `None` for those that connect to this side.
    places: Vec<Option<SocketAddr>>,
    sockets: HashMap<LinkId, Socket>,
    start: Instant,
}

/// Returns different addresses without a listener.
pub(crate) fn free<const COUNT: usize>() -> [SocketAddr; COUNT] {
    // All are bound before the first is released.
    let listeners = [(); COUNT].map(|()| listener());
    listeners.map(|(_, address)| address)
}

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
    listener.set_nonblocking(true).expect("sockets can be told not to wait");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

impl Driver {
    pub(crate) fn new(
        section: &Arc<PeersSection>,
        listener: TcpListener,
        places: Vec<Option<SocketAddr>>,
        process: u32,
    ) -> Driver {
        let settings = SectionSettings {
            section: section.clone(),
            shards: 0,
            parts: Box::default(),
            process,
            successor: false,
            seed: process.into(),
        };
        let memory = Memory::new(&section.tables);
        let group = Group::new(settings, 0);
        Driver { group, memory, listener, places, sockets: HashMap::new(), start: Instant::now() }
    }

    pub(crate) fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Runs until a condition holds.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Driver) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: never; {:?}", self.group.view(1));
            if !self.turn() {
                std::thread::yield_now();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Breaks all connections, like a network failure.
    pub(crate) fn cut(&mut self) {
        let now = self.now();
        for (link, socket) in self.sockets.drain() {
            let _ = socket.stream.shutdown(Shutdown::Both);
            self.group.closed(link, now);
        }
    }

    fn turn(&mut self) -> bool {
        let now = self.now();
        let mut busy = false;
        while let Ok((stream, _)) = self.listener.accept() {
            busy = true;
            if let Some(link) = self.group.accept(now) {
                self.enter(link, stream);
            }
        }
        self.group.tick(now);
        let links: Vec<LinkId> = self.sockets.keys().copied().collect();
        for link in links {
            busy |= self.read(link, now);
        }
        while let Some(command) = self.group.command() {
            match command {
                GroupCommand::Connect { peer, link } => {
                    let place = self.places[peer];
                    match place.map(|place| TcpStream::connect_timeout(&place, Duration::from_secs(5))) {
                        Some(Ok(stream)) => {
                            self.enter(link, stream);
                            self.group.connected(link, now);
                        }
                        _ => self.group.closed(link, now),
                    }
                }
                GroupCommand::Close(link) => {
                    if let Some(socket) = self.sockets.get_mut(&link) {
                        socket.ends = true;
                    }
                }
                GroupCommand::Done => {}
            }
        }
        let links: Vec<LinkId> = self.sockets.keys().copied().collect();
        for link in links {
            busy |= self.write(link, now);
        }
        busy
    }

    fn enter(&mut self, link: LinkId, stream: TcpStream) {
        stream.set_nonblocking(true).expect("sockets can be told not to wait");
        self.sockets.insert(link, Socket { stream, out: Vec::new(), ends: false });
    }

    fn read(&mut self, link: LinkId, now: u64) -> bool {
        let Some(socket) = self.sockets.get_mut(&link) else { return false };
        let mut bytes = [0; 16_384];
        match socket.stream.read(&mut bytes) {
            Ok(0) => self.gone(link, now),
            Ok(length) => self.group.receive(link, &bytes[..length], now, &mut self.memory),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => self.gone(link, now),
        }
        true
    }

    fn write(&mut self, link: LinkId, now: u64) -> bool {
        let Some(socket) = self.sockets.get_mut(&link) else { return false };
        if socket.out.len() < 65_536 {
            self.group.output(link, &mut socket.out, 65_536, now, &mut self.memory);
        }
        if socket.out.is_empty() {
            if socket.ends {
                self.gone(link, now);
            }
            return false;
        }
        match socket.stream.write(&socket.out) {
            Ok(length) => drop(socket.out.drain(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => self.gone(link, now),
        }
        true
    }

    fn gone(&mut self, link: LinkId, now: u64) {
        self.sockets.remove(&link);
        self.group.closed(link, now);
    }
}

/// A HAProxy process with a runtime socket, killed when dropped.
pub(crate) struct Haproxy {
    child: Option<Child>,
    directory: Scratch,
}

/// Returns the path of the installed HAProxy; prints a reason if there is none.
pub(crate) fn haproxy() -> Option<PathBuf> {
    let path = std::env::var_os("HAPROXY").map_or_else(|| "/usr/sbin/haproxy".into(), PathBuf::from);
    if !path.exists() {
        println!("skipped: {} is missing", path.display());
        return None;
    }
    Some(path)
}

impl Haproxy {
    /// Starts HAProxy with a configuration, after a global section with the runtime socket; returns `None` if that fails, for
    /// example because a port is taken. `noreuseport` is needed for that: otherwise two addresses may have one port, and connections
    /// reach either.
    pub(crate) fn start(path: &Path, configuration: &str) -> Option<Haproxy> {
        let directory = Scratch::new("peers");
        let socket = directory.join("socket");
        let global = format!(
            "global\n  stats socket {} level admin\n  localpeer theirs\n  noreuseport\n\
             defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 10s\n",
            socket.display()
        );
        std::fs::write(directory.join("haproxy.cfg"), global + configuration).expect("it takes files");
        let mut haproxy = Haproxy { child: None, directory };
        haproxy.runs(path).then_some(haproxy)
    }

    /// Starts HAProxy again after it was killed.
    pub(crate) fn begin(&mut self, path: &Path) {
        let begun = Instant::now();
        while !self.runs(path) {
            assert!(begun.elapsed() < PATIENCE, "haproxy does not start again");
        }
    }

    /// Starts the program and waits until it listens or has ended.
    fn runs(&mut self, path: &Path) -> bool {
        let socket = self.directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let file = self.directory.join("haproxy.cfg");
        let child = Program::new(path).args(["-db", "-q", "-f"]).arg(&file).stdin(Stdio::null()).spawn();
        let child = self.child.insert(child.expect("haproxy runs"));
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < PATIENCE, "haproxy neither starts nor ends");
            if matches!(child.try_wait(), Ok(Some(_))) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the runtime socket's response.
    pub(crate) fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.directory.join("socket")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("there are limits");
        stream.write_all(format!("{command}\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Returns the entries of a table: for each key, its fields.
    pub(crate) fn table(&self, name: &str) -> HashMap<String, HashMap<String, String>> {
        let answer = self.ask(&format!("show table {name}"));
        let mut entries = HashMap::new();
        for line in answer.lines().filter(|line| line.starts_with("0x")) {
            let fields = line.split(' ').filter_map(|field| field.split_once('='));
            let fields: HashMap<String, String> = fields
                .map(|(name, value)| (name.split('(').next().unwrap_or(name).into(), value.into()))
                .collect();
            entries.insert(fields["key"].clone(), fields);
        }
        entries
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.kill();
    }
}
