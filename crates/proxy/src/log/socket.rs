//! Targets that either accept a log line immediately or lose it: datagram sockets and descriptors. Called by [`super::Outbox`].

use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;

use base::output::{self, Output};
use plan::Plan;
use plan::log::{LogAddress, LogTarget};

/// The socket for a target.
enum LogSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Inherited(Arc<Output>),
}

/// The open sockets of one worker.
pub(super) struct LogSockets {
    open: HashMap<LogAddress, LogSocket>,
    /// The value of `tune.sndbuf.backend`. 0 stands for the kernel's default.
    send_buffer: usize,
}

impl LogSockets {
    pub(super) fn new(send_buffer: usize) -> Self {
        Self { open: HashMap::new(), send_buffer }
    }

    /// Sends a line without blocking.
    ///
    /// # Errors
    /// An error from opening the target or from sending to it. `WouldBlock` means that its reader has fallen behind.
    pub(super) fn send(&mut self, address: &LogAddress, bytes: &[u8]) -> io::Result<()> {
        if !self.open.contains_key(address) {
            // The next line tries again, because the target may be up by then.
            self.open.insert(address.clone(), open(address, self.send_buffer)?);
        }
        let Some(socket) = self.open.get(address) else { return Ok(()) };
        let Err(error) = socket.send(bytes) else { return Ok(()) };
        let gone = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected | io::ErrorKind::NotFound
        );
        if gone && matches!(socket, LogSocket::Unix(_)) {
            // The daemon behind the UNIX socket was restarted. Reconnects and tries once more.
            self.open.remove(address);
            let socket = open(address, self.send_buffer)?;
            let sent = socket.send(bytes);
            self.open.insert(address.clone(), socket);
            return sent;
        }
        // A refusal is about an earlier datagram; the current one may have been sent.
        match (error.kind(), address) {
            (io::ErrorKind::ConnectionRefused, LogAddress::Udp(_)) => Ok(()),
            _ => Err(error),
        }
    }
}

impl LogSocket {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(bytes).map(|_| ()),
            Self::Unix(socket) => socket.send(bytes).map(|_| ()),
            Self::Inherited(output) => output.write(bytes),
        }
    }
}

/// Opens the inherited descriptors that are used for log lines, while the process still has its initial privileges. The standard
/// streams of a background process are replaced later, so they are opened when their first line is sent.
pub fn open_inherited(plan: &Plan) {
    let mut numbers = Vec::new();
    let of_proxies = plan.proxies.iter().flat_map(|proxy| &proxy.loggers);
    for logger in plan.global.loggers.iter().chain(of_proxies) {
        if let LogTarget::Address(LogAddress::Descriptor(number)) = &logger.target
            && !numbers.contains(number)
            && !(plan.global.daemon && *number <= 2)
        {
            numbers.push(*number);
            // If the descriptor is not open, this is reported with the first line sent to it.
            let _ = inherited(*number);
        }
    }
}

fn inherited(number: i32) -> io::Result<Arc<Output>> {
    output::shared(number, || net::sys::duplicate_inherited(number))
}

fn open(address: &LogAddress, send_buffer: usize) -> io::Result<LogSocket> {
    Ok(match address {
        LogAddress::Udp(address) => {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            if send_buffer > 0 {
                rustix::net::sockopt::set_socket_send_buffer_size(&socket, send_buffer)?;
            }
            LogSocket::Udp(socket)
        }
        LogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            LogSocket::Unix(socket)
        }
        LogAddress::Abstract(name) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&UnixAddress::from_abstract_name(name)?)?;
            socket.set_nonblocking(true)?;
            LogSocket::Unix(socket)
        }
        LogAddress::Descriptor(number) => LogSocket::Inherited(inherited(*number)?),
    })
}
