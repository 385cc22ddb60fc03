//! UDP sockets of QUIC: groups of sockets at one address, datagrams received and sent in batches.
//!
//! One call receives several datagrams from several senders, and the kernel joins datagrams from the same sender (GRO). One call
//! also sends several datagrams to one receiver (GSO). The sockets report the address to which a datagram was sent and its ECN
//! bits, and never fragment.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IoSliceMut, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::dial::in_namespace;
use crate::listen::ListenOptions;
use crate::sys;

/// Binds `count` sockets to one address, in the order that [`steering`](crate::steering) counts them. With port 0 all get the port
/// that the kernel chooses for the first.
pub fn bind_group(
    address: SocketAddr,
    options: &ListenOptions<'_>,
    count: usize,
) -> io::Result<Vec<OwnedFd>> {
    match options.namespace {
        Some(namespace) => in_namespace(namespace, || bind_group_here(address, options, count)),
        None => bind_group_here(address, options, count),
    }
}

fn bind_group_here(
    mut address: SocketAddr,
    options: &ListenOptions<'_>,
    count: usize,
) -> io::Result<Vec<OwnedFd>> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = bind(address, options)?;
        if address.port() == 0 {
            address = socket.local_addr()?.as_socket().unwrap_or(address);
        }
        all.push(socket.into());
    }
    Ok(all)
}

fn bind(address: SocketAddr, options: &ListenOptions<'_>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    // Not SO_REUSEADDR: another program that sets it too could take over the address.
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.v6only.unwrap_or(true))?;
    }
    if let Some(interface) = options.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if options.transparent {
        sys::set_transparent(socket.as_fd(), address.ip())?;
    }
    set_buffers(&socket, options)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The number of errors in a row after which other tasks run.
const ERRORS_MAX: usize = 16;

/// The maximum number of times that the table of sockets is read, and the number of reads without another socket that are enough.
const READS: (usize, usize) = (20, 3);

/// The number of sockets that other processes have bound to this address, before any of this process. They precede its own in the
/// kernel's order.
pub fn bound_elsewhere(address: SocketAddr, namespace: Option<&str>) -> usize {
    let table = if address.is_ipv4() { "/proc/thread-self/net/udp" } else { "/proc/thread-self/net/udp6" };
    let read = || {
        // The kernel walks the table again for each read: a large buffer takes most tables with one.
        let mut text = String::with_capacity(64 * 1024);
        std::fs::File::open(table)?.read_to_string(&mut text).map(|_| text)
    };
    let mut found = BTreeSet::new();
    let mut unchanged = 0;
    for _ in 0..READS.0 {
        let text = match namespace {
            Some(namespace) => in_namespace(namespace, read),
            None => read(),
        };
        // A read omits sockets if others are closed at the same time.
        let before = found.len();
        found.extend(text.iter().flat_map(|text| bound_in(text, address)));
        unchanged = if found.len() == before { unchanged + 1 } else { 1 };
        if unchanged == READS.1 {
            break;
        }
    }
    found.len()
}

/// Returns the inodes of the unconnected sockets at `address` in the kernel's table.
fn bound_in(table: &str, address: SocketAddr) -> Vec<u64> {
    let words = |bytes: &[u8]| -> String {
        let words =
            bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        words.map(|word| format!("{word:08X}")).collect()
    };
    let (shown, any) = match address.ip() {
        IpAddr::V4(ip) => (words(&ip.octets()), "00000000"),
        IpAddr::V6(ip) => (words(&ip.octets()), "00000000000000000000000000000000"),
    };
    let (local, remote) = (format!("{shown}:{:04X}", address.port()), format!("{any}:0000"));
    let inode = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_there = fields.next() == Some(&*local) && fields.next() == Some(&*remote);
        // The state, queues, timers, retransmissions, user and timeouts precede it.
        is_there.then(|| fields.nth(6)?.parse().ok()).flatten()
    };
    table.lines().filter_map(inode).collect()
}

/// Takes over a UDP socket inherited from the parent process (`quic+fd@N`). It is duplicated, so that the same number can be used by
/// several binds.
///
/// # Errors
/// The descriptor is not a UDP socket.
pub fn inherited(number: i32, options: &ListenOptions<'_>) -> io::Result<OwnedFd> {
    let socket = Socket::from(sys::duplicate_inherited(number)?);
    if socket.r#type()? != Type::DGRAM || socket.local_addr()?.as_socket().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the inherited descriptor is not a UDP socket",
        ));
    }
    set_buffers(&socket, options)?;
    Ok(socket.into())
}

fn set_buffers(socket: &Socket, options: &ListenOptions<'_>) -> io::Result<()> {
    if options.buffers.0 > 0 {
        socket.set_recv_buffer_size(options.buffers.0)?;
    }
    if options.buffers.1 > 0 {
        socket.set_send_buffer_size(options.buffers.1)?;
    }
    Ok(())
}

/// A UDP socket in the calling worker's reactor.
pub struct UdpSocket {
    socket: AsyncFd<OwnedFd>,
    local: SocketAddr,
    /// Replaced when the library disables more than is needed.
    state: RefCell<UdpSocketState>,
    /// The maximum number of segments in a [`Transmit`].
    most_segments: Cell<usize>,
    /// `socket`, watched for writability. Absent until a send would block: each datagram that the kernel has sent
    /// makes the socket writable, and would wake the worker.
    blocked: OnceCell<AsyncFd<OwnedFd>>,
    /// Whether `socket` is watched for writability itself.
    watches_writes: bool,
    /// Tasks that wait until the socket can send. The reactor remembers only one.
    senders: Arc<Senders>,
    waker: Waker,
}

/// Datagrams to send to one receiver.
#[derive(Debug, Clone, Copy)]
pub struct Transmit<'a> {
    /// The receiver.
    pub destination: SocketAddr,
    /// The address to send from, or `None` for the kernel's choice.
    pub source: Option<IpAddr>,
    /// The ECN bits of the IP header.
    pub ecn: u8,
    /// The size of each datagram in `bytes`, except that the last may be shorter, or `None` for a single datagram.
    pub segment_size: Option<usize>,
    /// The datagrams.
    pub bytes: &'a [u8],
}

impl UdpSocket {
    /// Registers a bound socket with the calling worker's reactor. Unless `receives` is set, only for sending: if workers share a
    /// socket, only one of them is woken for datagrams.
    pub fn new(socket: OwnedFd, receives: bool) -> io::Result<Self> {
        Self::register(socket, if receives { Interest::READABLE } else { Interest::WRITABLE })
    }

    /// Registers a connected socket with the calling worker's reactor, also for the errors that the kernel reports.
    pub fn connected(socket: OwnedFd) -> io::Result<Self> {
        Self::register(socket, Interest::READABLE | Interest::WRITABLE)
    }

    fn register(socket: OwnedFd, interest: Interest) -> io::Result<Self> {
        let local = SockRef::from(&socket).local_addr()?;
        let local = local.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        let state = prepare(&socket)?;
        let senders = Arc::<Senders>::default();
        Ok(Self {
            local,
            most_segments: Cell::new(state.max_gso_segments()),
            state: RefCell::new(state),
            waker: senders.clone().into(),
            senders,
            socket: sys::watch_datagrams(socket, interest)?,
            blocked: OnceCell::new(),
            watches_writes: interest.is_writable(),
        })
    }

    /// Removes the socket from the worker's reactor.
    pub fn detach(self) -> OwnedFd {
        self.socket.into_inner()
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receives datagrams into `batch`, with one system call. Ready only with at least one datagram.
    ///
    /// # Errors
    /// The errors of recvmmsg(2). An error may be about one datagram; the next call can succeed.
    pub fn poll_recv(&self, context: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            let Ok(received) = guard.try_io(|_| self.try_recv(batch)) else { continue };
            if received.is_ok() && !batch.is_full() {
                // Nothing is left: another call would only learn that from the kernel.
                guard.clear_ready();
            }
            return Poll::Ready(received);
        }
    }

    /// Receives datagrams into `batch` like [`poll_recv`](Self::poll_recv), for a socket with many peers: an error is about an earlier
    /// datagram, such as an ICMP message, and is skipped. After several errors in a row, other tasks run before the next attempt.
    pub fn poll_recv_any(&self, context: &mut Context<'_>, batch: &mut Batch) -> Poll<()> {
        for _ in 0..ERRORS_MAX {
            if let Ok(()) = ready!(self.poll_recv(context, batch)) {
                return Poll::Ready(());
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives datagrams into `batch`, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived, or an error of recvmmsg(2).
    pub fn try_recv(&self, batch: &mut Batch) -> io::Result<()> {
        batch.filled = 0;
        let mut buffers = batch.buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        batch.filled = self.state.borrow().recv((&self.socket).into(), &mut buffers, &mut batch.received)?;
        Ok(())
    }

    /// Ready when the kernel reports an error of a [`connected`](Self::connected) socket, such as a rejected datagram. Only one task
    /// may receive and send on the socket.
    pub fn poll_error(&self, context: &mut Context<'_>) -> Poll<io::Error> {
        debug_assert!(
            self.watches_writes,
            "errors make a socket writable, which only connected ones are watched for"
        );
        loop {
            // An error without data only makes the socket writable, and it nearly always is.
            let mut guard = match ready!(self.socket.poll_write_ready(context)) {
                Ok(guard) => guard,
                Err(error) => return Poll::Ready(error),
            };
            if guard.ready().is_write_closed() {
                let error = SockRef::from(self.socket.get_ref()).take_error();
                return error.map_or_else(Poll::Ready, |error| error.map_or(Poll::Pending, Poll::Ready));
            }
            guard.clear_ready();
        }
    }

    /// Sends datagrams. If the network device cannot segment, they are sent one by one, and [`most_segments`](Self::most_segments)
    /// is 1 from then on.
    ///
    /// # Errors
    /// The errors of sendmsg(2). The datagrams are lost; later ones may be sent.
    pub fn poll_send(&self, context: &mut Context<'_>, transmit: &Transmit<'_>) -> Poll<io::Result<()>> {
        match self.try_send(transmit) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return Poll::Ready(sent),
        }
        self.senders.add(context.waker());
        // Several tasks send, so all of them are woken.
        let mut context = Context::from_waker(&self.waker);
        let socket = self.watched_for_writes()?;
        loop {
            let mut guard = ready!(socket.poll_write_ready(&mut context))?;
            if let Ok(sent) = guard.try_io(|_| self.try_send(transmit)) {
                return Poll::Ready(sent);
            }
            // The reactor does not forget an error of a connected socket.
            if guard.ready().is_write_closed() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
    }

    fn watched_for_writes(&self) -> io::Result<&AsyncFd<OwnedFd>> {
        if self.watches_writes {
            return Ok(&self.socket);
        }
        if let Some(blocked) = self.blocked.get() {
            return Ok(blocked);
        }
        let duplicate = self.socket.get_ref().try_clone()?;
        let blocked = sys::watch_datagrams(duplicate, Interest::WRITABLE)?;
        Ok(self.blocked.get_or_init(|| blocked))
    }

    /// Sends datagrams without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if the socket's buffer is full, or an error of sendmsg(2).
    pub fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segments = transmit.segment_size.map_or(1, |size| transmit.bytes.len().div_ceil(size.max(1)));
        if segments <= 1 || segments <= self.most_segments.get() {
            match self.send_at_once(transmit) {
                Err(error) if segments > 1 && is_of_segmentation(&error) => {}
                sent => return sent,
            }
        }
        self.send_singly(transmit, segments > self.most_segments.get())
    }

    fn send_at_once(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: EcnCodepoint::from_bits(transmit.ecn),
            contents: transmit.bytes,
            segment_size: transmit.segment_size,
            src_ip: transmit.source,
        };
        self.state.borrow().try_send((&self.socket).into(), &transmit)
    }

    /// Sends each datagram by itself. If the socket's buffer is full after the first one, the rest is lost.
    fn send_singly(&self, transmit: &Transmit<'_>, is_expected: bool) -> io::Result<()> {
        if !is_expected {
            // After such an error the library also omits the ECN bits.
            *self.state.borrow_mut() = prepare(self.socket.get_ref())?;
        }
        let size = transmit.segment_size.unwrap_or(transmit.bytes.len()).max(1);
        let mut first_error = None;
        let mut sent = 0;
        for bytes in transmit.bytes.chunks(size) {
            match self.send_at_once(&Transmit { bytes, segment_size: None, ..*transmit }) {
                Ok(()) => sent += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if sent == 0 {
                        return Err(error);
                    }
                    break;
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match first_error {
            // Segmentation was not the cause, such as for datagrams that are too large for the path.
            Some(error) if sent == 0 => Err(error),
            _ => {
                self.most_segments.set(1);
                Ok(())
            }
        }
    }

    /// The maximum number of datagrams in a [`Transmit`]; 1 if the kernel or a network device cannot segment.
    pub fn most_segments(&self) -> usize {
        self.most_segments.get()
    }

    /// Sends every datagram by itself from now on (`tune.quic.fe.tx.udp-gso off`).
    pub fn disable_segmentation(&self) {
        self.most_segments.set(1);
    }

    /// The number of datagrams that the kernel discarded because the socket's receive buffer was full. It wraps.
    pub fn drops(&self) -> io::Result<u32> {
        sys::drops(self.as_fd())
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("local", &self.local).finish_non_exhaustive()
    }
}

/// Enables GRO, packet information and ECN bits, and disables fragmentation and path MTU discovery by the kernel.
fn prepare(socket: &OwnedFd) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    // The library enables timestamps, which nothing reads.
    let _ = sys::set_int_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0);
    Ok(state)
}

/// Whether an error can mean that the network device does not segment.
fn is_of_segmentation(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

/// Tasks that wait until a socket can send.
#[derive(Debug, Default)]
struct Senders(Mutex<Vec<Waker>>);

impl Senders {
    fn add(&self, waker: &Waker) {
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !all.iter().any(|other| other.will_wake(waker)) {
            all.push(waker.clone());
        }
    }
}

impl Wake for Senders {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        all.into_iter().for_each(Waker::wake);
    }
}

/// The number of buffers of a [`Batch`].
const BUFFERS: usize = 8;

/// The size of each: the largest datagram, and the largest number of bytes that the kernel joins.
const BUFFER: usize = 65_536;

/// Received datagrams, in buffers that are reused. Memory that was never filled is not used.
pub struct Batch {
    buffers: [Box<[u8]>; BUFFERS],
    received: [RecvMeta; BUFFERS],
    filled: usize,
}

/// Datagrams that one sender sent to one address, received together.
#[derive(Debug)]
pub struct Received<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The address that they were sent to, if the kernel reports it.
    pub destination: Option<IpAddr>,
    /// The ECN bits of the IP header.
    pub ecn: u8,
    /// The size of each datagram in `bytes`, except that the last may be shorter.
    pub segment_size: usize,
    /// The datagrams.
    pub bytes: &'a mut [u8],
}

impl<'a> Received<'a> {
    /// Returns the datagrams one by one, without empty ones.
    pub fn datagrams(self) -> impl Iterator<Item = &'a mut [u8]> {
        self.bytes.chunks_mut(self.segment_size.max(1))
    }
}

impl Default for Batch {
    fn default() -> Self {
        let buffers = std::array::from_fn(|_| vec![0; BUFFER].into_boxed_slice());
        Self { buffers, received: [RecvMeta::default(); BUFFERS], filled: 0 }
    }
}

impl Batch {
    /// Returns the datagrams received by the last call. The kernel does not join empty ones: each has an entry without bytes.
    pub fn received(&mut self) -> impl Iterator<Item = Received<'_>> {
        let filled = self.buffers.iter_mut().zip(&self.received).take(self.filled);
        filled.map(|(buffer, meta)| Received {
            source: meta.addr,
            destination: meta.dst_ip,
            ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            segment_size: meta.stride,
            bytes: &mut buffer[..meta.len],
        })
    }

    /// Whether all buffers were used, so that more datagrams may be waiting.
    pub fn is_full(&self) -> bool {
        self.filled == BUFFERS
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("filled", &self.filled).finish_non_exhaustive()
    }
}

mod replies;

pub use replies::Replies;

#[cfg(test)]
mod tests;
