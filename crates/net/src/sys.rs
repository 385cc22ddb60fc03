//! System calls without a safe interface. Each `unsafe` block explains why it is sound.

#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use socket2::SockAddr;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdRegisterError};

/// Duplicates a descriptor that was inherited at startup (`fd@N` of logs, standard output). The original stays open.
pub fn duplicate_inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC only asks the kernel for a new descriptor.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Sets a socket option that the libraries do not cover.
pub fn set_int_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives across the call; the kernel only
    // reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the kernel supports TLS (`TCP_ULP`). The kernel looks up the name before it checks the socket's state.
pub fn kernel_has_tls() -> bool {
    let Ok(socket) = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None) else {
        return false;
    };
    let name = b"tls";
    // SAFETY: pointer and length describe `name`, which lives across the call; the kernel only reads
    // it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    // If TLS is supported, the call fails because the socket is not connected.
    result == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ENOTCONN)
}

/// Makes the kernel deliver new connections to the socket at index `place` among those that share this address (`SO_REUSEPORT`),
/// counted from 0 in the order in which they were bound. If that socket does not exist, the kernel chooses as before.
pub fn steer(fd: BorrowedFd<'_>, place: u32) -> io::Result<()> {
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    choose_by(fd, &[libc::sock_filter { code, jt: 0, jf: 0, k: place }])
}

/// Attaches a classic BPF program to all sockets that share this socket's address (`SO_REUSEPORT`). The program reads the payload
/// of a packet and returns the index of the socket that gets it, counted from 0 in the order in which the sockets were bound. If
/// that socket does not exist, the kernel chooses one.
pub(crate) fn choose_by(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the pointer and length describe `program`, which describes the instructions; both live
    // across the call, and the kernel only copies them.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of datagrams that the kernel discarded because the socket's receive buffer was full.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    /// The fields of `SO_MEMINFO`, and the position of the number in them (linux/sock_diag.h).
    const FIELDS: usize = 9;
    const DROPS: usize = 8;
    let mut fields = [0u32; FIELDS];
    let mut length = size_of_val(&fields) as libc::socklen_t;
    // SAFETY: pointer and length describe `fields`, which lives across the call; the kernel writes
    // no more than that.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            fields.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(fields[DROPS]) }
}

/// The kernel's metrics of a TCP connection; fails for other sockets and invalid descriptors.
pub fn tcp_info(fd: RawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: every field is an integer, for which all-zero bytes are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: pointer and length describe `info`, which lives across the call; the kernel writes no more than that. An invalid
    // descriptor causes an error.
    let result = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// The queue length of a listening TCP socket.
pub(crate) fn backlog(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // For a listening socket, this field is the queue limit (tcp_get_info in the kernel).
    Ok(i32::try_from(tcp_info(fd.as_raw_fd())?.tcpi_sacked).unwrap_or(i32::MAX))
}

/// The SYN of a connection, starting at the header selected by the listener's `TCP_SAVE_SYN`. The kernel discards its copy. Empty
/// if no SYN was saved.
pub fn saved_syn(fd: RawFd) -> io::Result<Vec<u8>> {
    // The longest possible headers are far smaller: 14 + 40 + 60 bytes, plus IPv6 options.
    let mut packet = vec![0u8; 1024];
    let mut length = packet.len() as libc::socklen_t;
    // SAFETY: pointer and length describe `packet`, which lives across the call; the kernel writes
    // no more than that.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            packet.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    packet.truncate(length as usize);
    Ok(packet)
}

/// The maximum length of a TCP MD5 key in bytes.
pub const MD5_KEY_MAX: usize = 80;

#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix: u8,
    key_length: u16,
    interface: i32,
    key: [u8; MD5_KEY_MAX],
}

/// Signs segments to and from `peer` with `key` (RFC 2385). On a listener, an unspecified address with `any` stands for all peers
/// of that family.
pub fn set_md5_key(fd: BorrowedFd<'_>, peer: SocketAddr, key: &[u8], any: bool) -> io::Result<()> {
    const TCP_MD5SIG: i32 = 14;
    const TCP_MD5SIG_EXT: i32 = 32;
    const FLAG_PREFIX: u8 = 1;
    if key.len() > MD5_KEY_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the key is longer than 80 bytes"));
    }
    // SAFETY: every field is an integer or an array of integers, for which all-zero bytes are
    // valid.
    let mut signature: TcpMd5Sig = unsafe { std::mem::zeroed() };
    let address = SockAddr::from(peer);
    // SAFETY: a socket2 address never claims more bytes than the sockaddr_storage that contains it.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut signature.address).cast::<u8>(),
            address.len() as usize,
        );
    }
    signature.key_length = key.len() as u16;
    signature.key[..key.len()].copy_from_slice(key);
    let name = if any {
        signature.flags = FLAG_PREFIX;
        TCP_MD5SIG_EXT
    } else {
        TCP_MD5SIG
    };
    // SAFETY: the pointer and length describe `signature`, which lives across the call; the kernel
    // only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            (&raw const signature).cast(),
            size_of::<TcpMd5Sig>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Allows binding to an address of another machine (`transparent`, `usesrc`).
pub fn set_transparent(fd: BorrowedFd<'_>, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => set_int_option(fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1)
            .or_else(|_| set_int_option(fd, libc::SOL_IP, libc::IP_FREEBIND, 1)),
        IpAddr::V6(_) => set_int_option(fd, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1),
    }
}

/// A control message with one integer of up to four bytes, as the kernel lays it out.
#[repr(C, align(8))]
struct IntControl([u8; CONTROL]);

/// The space of a control message with four bytes.
// SAFETY: the macro only computes a number.
const CONTROL: usize = unsafe { libc::CMSG_SPACE(4) } as usize;

/// Sends `bytes` on a connected UDP socket as datagrams of `segment` bytes, of which the last may be shorter.
pub(crate) fn send_segments(fd: BorrowedFd<'_>, bytes: &[u8], segment: u16) -> io::Result<usize> {
    let mut control = IntControl([0; CONTROL]);
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: every field is an integer or a pointer, for which all-zero bytes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: the macro only computes a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
    // SAFETY: `message` describes `control`, which is aligned for a header and has room for it and two bytes; the header that is
    // returned lies in it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(2) as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment);
    }
    // SAFETY: `message` describes `bytes` and `control`, which live across the call; the kernel only reads them.
    let sent =
        unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// A datagram for [`send_each`].
pub(crate) struct Addressed<'a> {
    pub(crate) destination: SocketAddr,
    /// The address to send from, or `None` for the kernel's choice.
    pub(crate) source: Option<IpAddr>,
    pub(crate) bytes: &'a [u8],
}

/// A control message with the source address of a datagram, as the kernel lays it out.
#[repr(C, align(8))]
struct SourceControl([u8; SOURCE_CONTROL]);

/// The space of a control message with an IPv6 address, which is larger than one with an IPv4 address.
// SAFETY: the macro only computes a number.
const SOURCE_CONTROL: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) } as usize;

/// Sends datagrams to different receivers with one call. Returns how many were sent: fewer if the kernel refuses one of them.
///
/// # Errors
/// The errors of sendmmsg(2) about the first datagram.
pub(crate) fn send_each(fd: BorrowedFd<'_>, datagrams: &[Addressed<'_>]) -> io::Result<usize> {
    let addresses: Vec<SockAddr> = datagrams.iter().map(|one| one.destination.into()).collect();
    let vector = |one: &Addressed<'_>| libc::iovec {
        iov_base: one.bytes.as_ptr().cast_mut().cast(),
        iov_len: one.bytes.len(),
    };
    let mut vectors: Vec<_> = datagrams.iter().map(vector).collect();
    let mut controls: Vec<_> = datagrams.iter().map(|_| SourceControl([0; SOURCE_CONTROL])).collect();
    let parts = datagrams.iter().zip(&addresses).zip(&mut vectors).zip(&mut controls);
    let message =
        |(((one, address), vector), control): (((&Addressed<'_>, &SockAddr), &mut libc::iovec), _)| {
            // SAFETY: every field is an integer or a pointer, for which all-zero bytes are valid.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_namelen = address.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            if let Some(source) = one.source {
                set_source(&mut message.msg_hdr, control, source);
            }
            message
        };
    let mut messages: Vec<_> = parts.map(message).collect();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: each message describes an address, bytes and a control message that live across the call; the kernel only reads them.
    // It writes into `messages`, which have the given number.
    let sent =
        unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, flags as _) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Adds the address to send from to a message.
fn set_source(message: &mut libc::msghdr, control: &mut SourceControl, source: IpAddr) {
    match source {
        IpAddr::V4(ip) => {
            let ipi_spec_dst = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            let info =
                libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr: libc::in_addr { s_addr: 0 } };
            set_control(message, control, (libc::IPPROTO_IP, libc::IP_PKTINFO), info);
        }
        IpAddr::V6(ip) => {
            let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
            let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
            set_control(message, control, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
        }
    }
}

/// Writes a control message of a level and type, and adds it to a message.
fn set_control<T>(message: &mut libc::msghdr, control: &mut SourceControl, kind: (i32, i32), value: T) {
    const { assert!(size_of::<T>() <= size_of::<libc::in6_pktinfo>()) };
    let size = size_of::<T>() as u32;
    message.msg_control = std::ptr::from_mut(control).cast();
    // SAFETY: the macro only computes a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: `message` describes `control`, which is aligned for a header and has room for it and a `T`, as checked above; the header
    // that is returned lies in it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(std::ptr::from_ref(message));
        ((*header).cmsg_level, (*header).cmsg_type) = kind;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    }
}

/// Receives a datagram, or several that the kernel has joined (`UDP_GRO`). Returns their length in total, and the size of each
/// but the last.
pub(crate) fn receive_joined(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<(usize, usize)> {
    let mut control = IntControl([0; CONTROL]);
    let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: every field is an integer or a pointer, for which all-zero bytes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: `message` describes `room` and `control`, which live across the call; the kernel writes no more than that.
    let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled `control` up to the length in `message`; the macro returns a header in it, or null.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let joined = header.filter(|own| {
        own.cmsg_level == libc::SOL_UDP
            && own.cmsg_type == libc::UDP_GRO
            // SAFETY: the macro only computes a number.
            && own.cmsg_len >= unsafe { libc::CMSG_LEN(4) } as usize
    });
    let segment = joined.map(|own| {
        // SAFETY: the length shows that four bytes follow the header in `control`.
        unsafe { libc::CMSG_DATA(std::ptr::from_ref(own)).cast::<i32>().read_unaligned() }
    });
    let segment = segment.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    Ok((length, segment.unwrap_or(length)))
}

/// Registers a socket with the calling worker's reactor for readability. Returns the socket if the kernel cannot register it.
pub fn watch_readable(socket: OwnedFd) -> Result<AsyncFd<OwnedFd>, (OwnedFd, io::Error)> {
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and closes it only
    // when dropped.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }
        .map_err(AsyncFdRegisterError::into_parts)
}

/// A stream socket of any family.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) socket: OwnedFd,
    pub(crate) is_tcp: bool,
    /// Whether to register the socket for writability as well.
    pub(crate) blocks: bool,
}

impl AsRawFd for Plain {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Registers a datagram socket with the calling worker's reactor.
pub(crate) fn watch_datagrams(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and closes it only
    // when dropped.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(|error| error.into_parts().1)
}

/// Registers a stream socket with the calling worker's reactor for readability, and for writability if `blocks` is set. Returns
/// the socket if the kernel has no room for it.
pub(crate) fn watch(socket: Plain) -> Result<AsyncFd<Plain>, (Plain, io::Error)> {
    let interest = if socket.blocks { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and closes it only
    // when dropped.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(AsyncFdRegisterError::into_parts)
}
