//! Connecting to servers: socket options, source addresses, and waiting until the connection is established.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;

use crate::stream::Stream;
use crate::sys;

/// The address to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// TCP.
    Ip(SocketAddr),
    /// A UNIX socket.
    Unix(PathBuf),
    /// A name in Linux's abstract namespace, without the leading NUL; padded to full length (`abns`) or not.
    Abstract {
        /// The name.
        name: Vec<u8>,
        /// Whether the name is padded.
        padded: bool,
    },
}

/// Connection settings. The default suits most servers.
#[derive(Debug, Clone, Default)]
pub struct Dial<'a> {
    /// The address to bind before connecting. If `transparent` is set, it may be an address of another machine.
    pub source: Option<SocketAddr>,
    /// The ports to try with `source`, one after the other, starting at a random one.
    pub source_ports: Option<(u16, u16)>,
    /// Whether the source address may be an address of another machine (`usesrc`).
    pub transparent: bool,
    /// Binds to this interface.
    pub interface: Option<&'a str>,
    /// `tcp-ut`.
    pub user_timeout: Option<Duration>,
    /// Connects with data (`tfo`).
    pub fast_open: bool,
    /// `tcp-md5sig`.
    pub md5_key: Option<&'a [u8]>,
    /// `cc`.
    pub congestion: Option<&'a str>,
    /// Type of service.
    pub tos: Option<u32>,
    /// Firewall mark; needs a privilege and has no effect without it.
    pub mark: Option<u32>,
    /// The size of the receive buffer; 0 for the kernel's default.
    pub receive_buffer: usize,
    /// The size of the send buffer; 0 for the kernel's default.
    pub send_buffer: usize,
    /// The limit of unsent bytes accepted by the kernel, 0 for none (`TCP_NOTSENT_LOWAT`).
    pub notsent: usize,
    /// Delays the last acknowledgement of the handshake until the first data (`option tcp-smart-connect`).
    pub late_ack: bool,
    /// Whether the caller disables Nagle's algorithm ([`Stream::set_nodelay`]) before its second small write. The first write does
    /// not need this, because no data is unacknowledged.
    pub late_nodelay: bool,
    /// Opens the socket in this network namespace.
    pub namespace: Option<&'a str>,
}

/// The reason why a source address could not be bound. Errors of [`Dial::connect`] wrap it, so that callers can distinguish it from
/// errors of the connection itself.
#[derive(Debug)]
pub enum SourceError {
    /// The address is not available.
    Address(io::Error),
    /// All tried ports of the range are in use.
    PortRange,
}

impl SourceError {
    fn of(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self::Address(error))
    }

    /// The source error inside `error`, if there is one.
    pub fn inside(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::PortRange => f.write_str("all ports of the source range are in use"),
        }
    }
}

impl std::error::Error for SourceError {}

/// The maximum number of ports of a source range tried per connection.
const PORT_TRIES: u32 = 32;

/// An abstract name in the kernel's form: with the leading NUL, and padded to the whole `sun_path` if `padded`.
pub fn abstract_path(name: &[u8], padded: bool) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    const SUN_PATH: usize = 108;
    let mut bytes = Vec::with_capacity(SUN_PATH);
    bytes.push(0);
    bytes.extend_from_slice(name);
    if padded {
        bytes.resize(SUN_PATH, 0);
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

impl Dial<'_> {
    /// Connects. The caller sets the time limit.
    ///
    /// # Errors
    /// The kernel's error: refused, unreachable, no free port in `source_ports` (`AddrInUse`) and so on.
    pub async fn connect(&self, target: &Target) -> io::Result<Stream> {
        let address = match target {
            Target::Ip(address) => *address,
            Target::Unix(path) => return unix(path),
            Target::Abstract { name, padded } => return unix(&abstract_path(name, *padded)),
        };
        let socket = match self.namespace {
            Some(namespace) => in_namespace(namespace, || tcp_socket(address))?,
            None => tcp_socket(address)?,
        };
        self.prepare(&socket, address)?;
        let peer = socket2::SockAddr::from(address);
        let mut made = socket.connect(&peer);
        if address.ip().is_loopback() && is_on_its_way(&made) {
            // A connection to the local machine is already established; a second connect(2) confirms this.
            made = socket.connect(&peer);
        }
        if is_on_its_way(&made) {
            return connected(socket).await;
        }
        made.map(|()| Stream::from_fd(socket.into(), true))
    }

    /// Opens a UDP socket that receives only datagrams of the server at `address`. The TCP settings have no effect on it.
    ///
    /// # Errors
    /// The kernel's error: unreachable, no free port in `source_ports` (`AddrInUse`) and so on.
    pub fn connect_datagrams(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        let open = || {
            let kind = Type::DGRAM.nonblocking().cloexec();
            Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))
        };
        let socket = match self.namespace {
            Some(namespace) => in_namespace(namespace, open)?,
            None => open()?,
        };
        self.prepare_any(&socket, address)?;
        socket.connect(&address.into())?;
        Ok(socket.into())
    }

    fn prepare(&self, options: &Socket, address: SocketAddr) -> io::Result<()> {
        if !self.late_nodelay {
            options.set_tcp_nodelay(true)?;
        }
        if let Some(timeout) = self.user_timeout {
            options.set_tcp_user_timeout(Some(timeout))?;
        }
        if let Some(congestion) = self.congestion {
            options.set_tcp_congestion(congestion.as_bytes())?;
        }
        if self.notsent > 0 {
            options.set_tcp_notsent_lowat(self.notsent as u32)?;
        }
        if let Some(key) = self.md5_key {
            sys::set_md5_key(options.as_fd(), address, key, false)?;
        }
        if self.fast_open {
            // A kernel without support connects normally.
            let _ = sys::set_int_option(options.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
        }
        if self.late_ack {
            // Only a hint: a kernel without support connects normally.
            let _ = options.set_tcp_quickack(false);
        }
        self.prepare_any(options, address)
    }

    /// Sets the options that TCP and UDP have in common, and binds the socket.
    fn prepare_any(&self, options: &Socket, address: SocketAddr) -> io::Result<()> {
        if let Some(interface) = self.interface {
            options.bind_device(Some(interface.as_bytes()))?;
        }
        if let Some(mark) = self.mark {
            let _ = options.set_mark(mark);
        }
        if let Some(tos) = self.tos {
            match address {
                SocketAddr::V4(_) => options.set_tos_v4(tos)?,
                SocketAddr::V6(_) => options.set_tclass_v6(tos)?,
            }
        }
        if self.receive_buffer > 0 {
            options.set_recv_buffer_size(self.receive_buffer)?;
        }
        if self.send_buffer > 0 {
            options.set_send_buffer_size(self.send_buffer)?;
        }
        if let Some(source) = self.source {
            self.bind(options, source)?;
        }
        Ok(())
    }

    fn bind(&self, socket: &Socket, source: SocketAddr) -> io::Result<()> {
        if self.transparent {
            sys::set_transparent(socket.as_fd(), source.ip()).map_err(SourceError::of)?;
        }
        // Two UDP sockets with the same address would receive each other's datagrams.
        if socket.r#type()? == Type::STREAM {
            socket.set_reuse_address(true)?;
        }
        let Some((first, last)) = self.source_ports else {
            if source.port() == 0 {
                // connect(2) then chooses the port, which can be shared between destinations.
                let _ = sys::set_int_option(socket.as_fd(), libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
            }
            return socket.bind(&source.into()).map_err(SourceError::of);
        };
        let span = u32::from(last - first) + 1;
        let start = fastrand::u32(..span);
        for step in 0..span.min(PORT_TRIES) {
            let port = first + ((start + step) % span) as u16;
            match socket.bind(&SocketAddr::new(source.ip(), port).into()) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound.map_err(SourceError::of),
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, SourceError::PortRange))
    }
}

/// Whether connect(2) is still waiting for the peer.
fn is_on_its_way(made: &io::Result<()>) -> bool {
    let error = made.as_ref().err().and_then(io::Error::raw_os_error);
    matches!(error, Some(libc::EINPROGRESS | libc::EALREADY))
}

/// Waits until the connection is established.
async fn connected(socket: Socket) -> io::Result<Stream> {
    let mut stream = Stream::from_fd(socket.into(), true);
    poll_fn(|context| stream.poll_write_ready(context)).await?;
    // Readiness also reports errors; only in that case is the error queried.
    if stream.try_io(Interest::ERROR, || Ok(())).is_ok()
        && let Some(error) = SockRef::from(&stream).take_error()?
    {
        return Err(error);
    }
    Ok(stream)
}

/// Connects to a UNIX socket, which succeeds or fails immediately.
fn unix(path: &Path) -> io::Result<Stream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    Ok(Stream::from_fd(socket.into(), false))
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))
}

/// Runs `open` in the network namespace `name` of /var/run/netns and returns to the original one. A socket stays in the namespace
/// where it was created.
pub fn in_namespace<R>(name: &str, open: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    if name.contains('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a namespace name cannot contain a slash"));
    }
    let own = std::fs::File::open("/proc/thread-self/ns/net")?;
    let other = std::fs::File::open(format!("/var/run/netns/{name}"))?;
    move_into_link_name_space(other.as_fd(), Some(LinkNameSpaceType::Network))?;
    let result = open();
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Network))?;
    result
}

/// The unspecified address in the family of `address`, for a source that only sets an interface or ports.
pub fn unspecified(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
