//! Listening sockets: creating them, and accepting connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::unix::AsyncFd;

use crate::dial::{abstract_path, in_namespace};
use crate::sys;

/// Options of a listening socket (configuration manual, 5.1).
#[derive(Debug, Clone, Default)]
pub struct ListenOptions<'a> {
    /// The length of the kernel's queue.
    pub backlog: i32,
    /// `v6only`, `v4v6`.
    pub v6only: Option<bool>,
    /// `interface`.
    pub interface: Option<&'a str>,
    /// `transparent`.
    pub transparent: bool,
    /// `mss`.
    pub mss: Option<i32>,
    /// `defer-accept`.
    pub defer_accept: bool,
    /// `tfo`: the length of the fast-open queue.
    pub fast_open: Option<i32>,
    /// `tcp-ut`.
    pub user_timeout: Option<Duration>,
    /// `tcp-ss`: whether to save the SYN of connections, starting at the IP header (1) or at the Ethernet header (2).
    pub save_syn: Option<u8>,
    /// `tcp-md5sig`.
    pub md5_key: Option<&'a [u8]>,
    /// `cc`.
    pub congestion: Option<&'a str>,
    /// `namespace`.
    pub namespace: Option<&'a str>,
    /// Whether other sockets may bind the same address (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// The buffer sizes of accepted sockets, 0 for the kernel's default: receive, send.
    pub buffers: (usize, usize),
    /// The limit of unsent bytes on accepted sockets, 0 for none (`TCP_NOTSENT_LOWAT`).
    pub notsent: usize,
}

/// Creates a TCP socket and listens on `address`.
pub fn tcp(address: SocketAddr, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    match options.namespace {
        Some(namespace) => in_namespace(namespace, || tcp_here(address, options)),
        None => tcp_here(address, options),
    }
}

fn tcp_here(address: SocketAddr, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if let Some(only) = options.v6only {
        socket.set_only_v6(only)?;
    } else if address.is_ipv6() {
        // HAProxy binds `:::80` to IPv6 only unless `v4v6` is set.
        socket.set_only_v6(true)?;
    }
    if let Some(interface) = options.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if options.transparent {
        sys::set_transparent(socket.as_fd(), address.ip())?;
    }
    configure(&socket, address, options)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    welcome(socket.as_fd());
    Ok(socket.into())
}

/// Makes the kernel deliver new connections to the sockets that a successor bound to the same address, after the `own` sockets of
/// this process. Without such sockets, nothing changes.
pub fn turn_away(socket: BorrowedFd<'_>, own: u32) {
    // If the address is not shared or the kernel lacks support, the connections that are queued at the end are lost, as usual.
    let _ = sys::steer(socket, own);
}

/// Reverts the effect of a predecessor's [`turn_away`] on sockets that this process took over.
fn welcome(socket: BorrowedFd<'_>) {
    let _ = sys::set_int_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0);
}

/// Binds a datagram socket.
pub fn udp(address: SocketAddr, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    match options.namespace {
        Some(namespace) => in_namespace(namespace, || udp_here(address, options)),
        None => udp_here(address, options),
    }
}

fn udp_here(address: SocketAddr, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if let Some(interface) = options.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if options.transparent {
        sys::set_transparent(socket.as_fd(), address.ip())?;
    }
    if options.buffers.0 > 0 {
        socket.set_recv_buffer_size(options.buffers.0)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets the options that are valid both before and after binding.
fn configure(socket: &Socket, address: SocketAddr, options: &ListenOptions<'_>) -> io::Result<()> {
    if let Some(mss) = options.mss {
        set_mss(socket, mss)?;
    }
    if options.defer_accept {
        // One second, so at the latest with the first retransmission (manual, 5.1).
        sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1)?;
    }
    if let Some(queue) = options.fast_open {
        let _ = sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue);
    }
    if let Some(timeout) = options.user_timeout {
        socket.set_tcp_user_timeout(Some(timeout))?;
    }
    if let Some(congestion) = options.congestion {
        socket.set_tcp_congestion(congestion.as_bytes())?;
    }
    if let Some(from) = options.save_syn {
        sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, i32::from(from))?;
    }
    if let Some(key) = options.md5_key {
        let any = SocketAddr::new(crate::dial::unspecified(address), 0);
        sys::set_md5_key(socket.as_fd(), any, key, true)?;
    }
    // Accepted sockets inherit the option, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    if options.buffers.0 > 0 {
        socket.set_recv_buffer_size(options.buffers.0)?;
    }
    if options.buffers.1 > 0 {
        socket.set_send_buffer_size(options.buffers.1)?;
    }
    if options.notsent > 0 {
        socket.set_tcp_notsent_lowat(options.notsent as u32)?;
    }
    Ok(())
}

fn set_mss(socket: &Socket, mss: i32) -> io::Result<()> {
    let wanted = if mss > 0 {
        mss
    } else {
        // A negative value is subtracted from the kernel's default.
        let default = socket.tcp_mss().unwrap_or(536) as i32;
        (default + mss).max(88)
    };
    socket.set_tcp_mss(wanted as u32)
}

/// Access rights of a UNIX socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rights {
    /// `mode`.
    pub mode: Option<u32>,
    /// `uid`.
    pub uid: Option<u32>,
    /// `gid`.
    pub gid: Option<u32>,
}

/// Creates a UNIX socket and listens on `path`. The socket is bound under a temporary name, gets its access rights, and is then
/// renamed, so that clients of an earlier process are never refused.
pub fn unix(path: &Path, backlog: i32, rights: Rights) -> io::Result<OwnedFd> {
    use std::os::unix::fs::PermissionsExt;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let _ = std::fs::remove_file(&temporary);
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&socket2::SockAddr::unix(&temporary)?)?;
    let place = || -> io::Result<()> {
        if rights.uid.is_some() || rights.gid.is_some() {
            std::os::unix::fs::chown(&temporary, rights.uid, rights.gid)?;
        }
        if let Some(mode) = rights.mode {
            std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(mode))?;
        }
        socket.listen(backlog)?;
        std::fs::rename(&temporary, path)
    };
    if let Err(error) = place() {
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(socket.into())
}

/// Creates a socket and listens on a name in Linux's abstract namespace.
pub fn abstract_unix(name: &[u8], padded: bool, backlog: i32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&socket2::SockAddr::unix(abstract_path(name, padded))?)?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Takes a listening socket inherited from the parent process. The descriptor is duplicated, so that several `bind` lines can use
/// the same number. For TCP sockets, the options that can still be changed are set.
pub fn inherited(number: i32, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    let socket = Socket::from(sys::duplicate_inherited(number)?);
    if !socket.is_listener()? {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the inherited descriptor is not a listening socket",
        ));
    }
    if let Some(address) = socket.local_addr()?.as_socket() {
        configure(&socket, address, options)?;
    }
    Ok(socket.into())
}

/// Takes over a listening socket of an earlier process, and sets the new queue length and the options that can still be changed.
pub fn adopt(socket: OwnedFd, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    let socket = Socket::from(socket);
    if let Some(address) = socket.local_addr()?.as_socket() {
        configure(&socket, address, options)?;
    }
    socket.listen(options.backlog)?;
    Ok(socket.into())
}

/// A listening socket in the calling worker's reactor.
#[derive(Debug)]
pub struct Listener {
    place: SocketPlacement,
    /// The queue length of a paused listener before the pause.
    backlog: i32,
}

/// The reactor in which the socket is registered.
#[derive(Debug)]
enum SocketPlacement {
    /// Not in the reactor: not registered yet, or the kernel had no room. `None` only during a move.
    Apart(Option<OwnedFd>),
    Watched(AsyncFd<OwnedFd>),
}

/// A connection that was just accepted. It is not in any reactor yet, so any worker may take it.
#[derive(Debug)]
pub struct AcceptedSocket {
    /// The connected socket, non-blocking.
    pub socket: OwnedFd,
    /// The client's address, or `None` for sockets without one.
    pub peer: Option<SocketAddr>,
}

impl Listener {
    /// Registers a listening socket with the calling worker's reactor.
    pub fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let mut listener = Self { place: SocketPlacement::Apart(Some(socket)), backlog: i32::MAX };
        listener.watched()?;
        Ok(listener)
    }

    /// Stops listening without closing the socket: clients are refused, and another process may listen on the same address.
    ///
    /// # Errors
    /// `Unsupported` for non-TCP sockets, which cannot listen again.
    pub fn pause(&mut self) -> io::Result<()> {
        if SockRef::from(&*self).local_addr()?.as_socket().is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.backlog = sys::backlog(self.as_fd()).unwrap_or(i32::MAX);
        Ok(rustix::net::shutdown(self, rustix::net::Shutdown::Read)?)
    }

    /// Listens again after [`pause`](Self::pause).
    ///
    /// # Errors
    /// `AddrInUse` if another process now uses the address.
    pub fn resume(&self) -> io::Result<()> {
        Ok(rustix::net::listen(self, self.backlog)?)
    }

    /// Accepts one connection.
    ///
    /// # Errors
    /// The errors of accept(2): the client has already aborted the connection (`ConnectionAborted`), no file descriptors (`EMFILE`,
    /// `ENFILE`), no memory.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<AcceptedSocket>> {
        loop {
            let mut guard = ready!(self.watched()?.poll_read_ready(context))?;
            let is_closed = guard.ready().is_read_closed();
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            if let Ok(result) = guard.try_io(|socket| Ok(acceptfrom_with(socket, flags)?)) {
                let (socket, peer) = result?;
                let peer = peer.and_then(|address| SocketAddr::try_from(address).ok());
                return Poll::Ready(Ok(AcceptedSocket { socket, peer }));
            }
            // The reactor treats a socket that was shut down as closed forever, and would always report it as readable. This socket
            // is listening again: this process, or one that shares the socket, has resumed it.
            if is_closed {
                self.leave_reactor();
            }
        }
    }

    /// Removes the socket from the reactor; the next [`watched`](Self::watched) registers it again.
    fn leave_reactor(&mut self) {
        if let SocketPlacement::Watched(watched) =
            std::mem::replace(&mut self.place, SocketPlacement::Apart(None))
        {
            self.place = SocketPlacement::Apart(Some(watched.into_inner()));
        }
    }

    /// The registered socket; registers it if necessary.
    fn watched(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        if let SocketPlacement::Apart(apart) = &mut self.place
            && let Some(socket) = apart.take()
        {
            match sys::watch_readable(socket) {
                Ok(watched) => self.place = SocketPlacement::Watched(watched),
                Err((socket, error)) => {
                    self.place = SocketPlacement::Apart(Some(socket));
                    return Err(error);
                }
            }
        }
        match &self.place {
            SocketPlacement::Watched(watched) => Ok(watched),
            SocketPlacement::Apart(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.place {
            SocketPlacement::Watched(watched) => watched.get_ref().as_fd(),
            SocketPlacement::Apart(Some(socket)) => socket.as_fd(),
            SocketPlacement::Apart(None) => unreachable!("whoever takes it puts it back"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn resuming_restores_the_queue_length() {
        let options = ListenOptions { backlog: 7, ..ListenOptions::default() };
        let socket = tcp(SocketAddr::from(([127, 0, 0, 1], 0)), &options).expect("a socket that listens");
        let mut listener = Listener { place: SocketPlacement::Apart(Some(socket)), backlog: 0 };
        listener.pause().expect("it listens");
        listener.resume().expect("nobody else has the address");
        assert_eq!(sys::backlog(listener.as_fd()).expect("it listens"), 7);
    }

    #[test]
    fn accepted_sockets_inherit_the_unsent_limit() {
        for (notsent, wanted) in [(0, 0), (20_000, 20_000)] {
            let options = ListenOptions { backlog: 8, notsent, ..ListenOptions::default() };
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listener = TcpListener::from(tcp(any, &options).expect("a socket that listens"));
            listener.set_nonblocking(false).expect("a socket of ours");
            let address = listener.local_addr().expect("it has an address");
            let client = TcpStream::connect(address).expect("a connection");
            let (accepted, _) = listener.accept().expect("a connection");
            let default = SockRef::from(&client).tcp_notsent_lowat().expect("it is TCP");
            let own = SockRef::from(&accepted).tcp_notsent_lowat().expect("it is TCP");
            assert_eq!(own, if wanted == 0 { default } else { wanted });
        }
    }
}
