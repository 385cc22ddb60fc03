//! Log lines on their way out (configuration manual, 4.2 `log`): headers of each format, sampling, levels,
//! and sending without ever waiting. What cannot be sent is counted.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;

use base::clock::{DateCache, WallTime};
use config::plan::Proxy;
use config::plan::log::{LogFormat, LogTarget, Logger};
use sample::Env;
use state::Process;

use crate::worker::Shared;

/// Where lines of one kind of target leave.
enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    File(OwnedFd),
}

/// One worker's way out for log lines. Also used by the process itself for its own messages.
pub struct Outbox {
    process: Arc<Process>,
    hostname: String,
    pid: u32,
    sockets: HashMap<LogTarget, Option<Socket>>,
    /// How many lines each sampled logger has seen, by its target and sample.
    seen: HashMap<(usize, usize), u32>,
    dates: DateCache,
    line: Vec<u8>,
    framed: Vec<u8>,
}

impl Outbox {
    /// One for the calling worker.
    pub fn new(shared: &Shared) -> Self {
        let global = &shared.plan.global;
        let own = || {
            let name = rustix::system::uname();
            name.nodename().to_string_lossy().into_owned()
        };
        let hostname = match global.log_send_hostname.as_deref() {
            Some("") | None => own(),
            Some(name) => name.to_owned(),
        };
        Self {
            process: shared.process.clone(),
            hostname,
            pid: std::process::id(),
            sockets: HashMap::new(),
            seen: HashMap::new(),
            dates: DateCache::default(),
            line: Vec::with_capacity(1024),
            framed: Vec::with_capacity(1024),
        }
    }

    /// Renders a line once and sends it to each of the proxy's loggers that takes this level.
    pub fn write(
        &mut self,
        proxy: &Proxy,
        level: u8,
        env: &Env<'_>,
        render: impl FnOnce(&Env<'_>, &mut Vec<u8>),
    ) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        render(env, &mut line);
        let mut structured = Vec::new();
        if let Some(format) = &proxy.log_format_sd {
            format.render(env, &mut structured);
        }
        self.send_all(proxy.index, &proxy.loggers, &proxy.log_tag, level, &structured, &line);
        self.line = line;
    }

    /// Sends a finished line to `loggers`. `owner` tells samples of different proxies apart.
    pub fn send_all(
        &mut self,
        owner: usize,
        loggers: &[Logger],
        tag: &str,
        level: u8,
        structured: &[u8],
        line: &[u8],
    ) {
        for (index, logger) in loggers.iter().enumerate() {
            if level > logger.max_level || !self.is_sampled(owner, index, logger) {
                continue;
            }
            let mut framed = std::mem::take(&mut self.framed);
            framed.clear();
            self.header(logger, level.max(logger.min_level), tag, structured, &mut framed);
            framed.extend_from_slice(line);
            while framed.last() == Some(&b'\n') {
                framed.pop();
            }
            framed.truncate(logger.max_length.saturating_sub(1));
            framed.push(b'\n');
            if !self.send(&logger.target, &framed) {
                self.process.counters.mine().dropped_logs.add(1);
            }
            self.framed = framed;
        }
    }

    /// `sample`: counts the line and says whether it is one of those sent.
    fn is_sampled(&mut self, owner: usize, index: usize, logger: &Logger) -> bool {
        let Some((ranges, size)) = &logger.sample else { return true };
        let seen = self.seen.entry((owner, index)).or_insert(0);
        *seen = *seen % size + 1;
        ranges.iter().any(|(low, high)| (*low..=*high).contains(seen))
    }

    /// What stands before the line in each format.
    fn header(&mut self, logger: &Logger, level: u8, tag: &str, structured: &[u8], out: &mut Vec<u8>) {
        let priority = u32::from(logger.facility) * 8 + u32::from(level);
        let now = WallTime::now();
        let mut text = String::with_capacity(96);
        let pid = self.pid;
        let with_host = logger.format == LogFormat::Rfc3164;
        // Writing to a String cannot fail.
        let _ = match logger.format {
            LogFormat::Raw => Ok(()),
            LogFormat::Short => write!(text, "<{level}>"),
            LogFormat::Priority => write!(text, "<{priority}>"),
            LogFormat::Timed => self.iso(now, &mut text).and_then(|()| text.write_char(' ')),
            LogFormat::Iso => {
                self.iso(now, &mut text).and_then(|()| write!(text, " {} {tag}[{pid}]: ", self.hostname))
            }
            LogFormat::Local | LogFormat::Rfc3164 => {
                let _ = write!(text, "<{priority}>");
                let _ = self.dates.local(now.seconds).write_rfc3164(&mut text);
                if with_host {
                    let _ = write!(text, " {}", self.hostname);
                }
                write!(text, " {tag}[{pid}]: ")
            }
            LogFormat::Rfc5424 => {
                let _ = write!(text, "<{priority}>1 ");
                let _ = self.iso(now, &mut text);
                let _ = write!(text, " {} {tag} {pid} - ", self.hostname);
                match std::str::from_utf8(structured) {
                    Ok(data) if !data.is_empty() => write!(text, "{data} "),
                    _ => write!(text, "- "),
                }
            }
        };
        out.extend_from_slice(text.as_bytes());
    }

    fn iso(&mut self, now: WallTime, text: &mut String) -> std::fmt::Result {
        self.dates.local(now.seconds).write_iso(Some(now.micros()), text)
    }

    fn send(&mut self, target: &LogTarget, bytes: &[u8]) -> bool {
        if !self.sockets.contains_key(target) {
            let socket = open(target).ok();
            self.sockets.insert(target.clone(), socket);
        }
        let Some(Some(socket)) = self.sockets.get(target) else {
            // Tried again with the next line: the collector may come up.
            self.sockets.remove(target);
            return false;
        };
        let sent = match socket {
            Socket::Udp(socket) => socket.send(bytes).map(|_| ()),
            Socket::Unix(socket) => socket.send(bytes).map(|_| ()),
            Socket::File(file) => write_whole(file, bytes),
        };
        match sent {
            Ok(()) => true,
            Err(error) => {
                let gone = matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected | io::ErrorKind::NotFound
                );
                if gone && matches!(socket, Socket::Unix(_)) {
                    // The daemon behind a UNIX socket was restarted: connect anew and try once more.
                    self.sockets.remove(target);
                    if let Ok(Socket::Unix(socket)) = open(target) {
                        let sent = socket.send(bytes).is_ok();
                        self.sockets.insert(target.clone(), Some(Socket::Unix(socket)));
                        return sent;
                    }
                }
                // A refused datagram tells of an earlier one; this one may have gone.
                error.kind() == io::ErrorKind::ConnectionRefused && matches!(target, LogTarget::Udp(_))
            }
        }
    }
}

fn open(target: &LogTarget) -> io::Result<Socket> {
    Ok(match target {
        LogTarget::Udp(address) => {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            Socket::Udp(socket)
        }
        LogTarget::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Socket::Unix(socket)
        }
        LogTarget::Abstract(name) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&UnixAddress::from_abstract_name(name)?)?;
            socket.set_nonblocking(true)?;
            Socket::Unix(socket)
        }
        LogTarget::Descriptor(number) => Socket::File(net::sys::duplicate_inherited(*number)?),
    })
}

/// A line to a file, pipe or terminal: in one write, so that lines of several workers do not mix.
fn write_whole(file: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let written = rustix::io::write(file, bytes)?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
