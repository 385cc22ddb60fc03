//! Places that take each log line at once or lose it: datagram sockets and descriptors. Called by
//! [`super::Outbox`].

use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use plan::log::LogAddress;

/// Where lines of one kind of target leave.
enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    File(OwnedFd),
}

/// Those of one worker that were used before.
pub(super) struct Sockets {
    open: HashMap<LogAddress, Socket>,
    /// `tune.sndbuf.backend`, 0 for the kernel's choice.
    send_buffer: usize,
}

impl Sockets {
    pub(super) fn new(send_buffer: usize) -> Self {
        Self { open: HashMap::new(), send_buffer }
    }

    /// Sends a line; says whether it left.
    pub(super) fn send(&mut self, address: &LogAddress, bytes: &[u8]) -> bool {
        if !self.open.contains_key(address) {
            // Tried again with the next line: the collector may come up.
            let Ok(socket) = open(address, self.send_buffer) else { return false };
            self.open.insert(address.clone(), socket);
        }
        let Some(socket) = self.open.get(address) else { return false };
        let sent = match socket {
            Socket::Udp(socket) => socket.send(bytes).map(|_| ()),
            Socket::Unix(socket) => socket.send(bytes).map(|_| ()),
            Socket::File(file) => write_whole(file, bytes),
        };
        let Err(error) = sent else { return true };
        let gone = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected | io::ErrorKind::NotFound
        );
        if gone && matches!(socket, Socket::Unix(_)) {
            // The daemon behind a UNIX socket was restarted: connect anew and try once more.
            self.open.remove(address);
            let Ok(Socket::Unix(socket)) = open(address, self.send_buffer) else { return false };
            let sent = socket.send(bytes).is_ok();
            self.open.insert(address.clone(), Socket::Unix(socket));
            return sent;
        }
        // A refused datagram tells of an earlier one; this one may have gone.
        error.kind() == io::ErrorKind::ConnectionRefused && matches!(address, LogAddress::Udp(_))
    }
}

fn open(address: &LogAddress, send_buffer: usize) -> io::Result<Socket> {
    Ok(match address {
        LogAddress::Udp(address) => {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            if send_buffer > 0 {
                rustix::net::sockopt::set_socket_send_buffer_size(&socket, send_buffer)?;
            }
            Socket::Udp(socket)
        }
        LogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Socket::Unix(socket)
        }
        LogAddress::Abstract(name) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&UnixAddress::from_abstract_name(name)?)?;
            socket.set_nonblocking(true)?;
            Socket::Unix(socket)
        }
        LogAddress::Descriptor(number) => Socket::File(net::sys::duplicate_inherited(*number)?),
    })
}

/// A line to a file, pipe or terminal: in one write, so that lines of several workers do not mix.
fn write_whole(file: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let written = rustix::io::write(file, bytes)?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
