//! System calls that no safe interface offers. Each `unsafe` block says why it is sound.

#![allow(unsafe_code)]

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdRegisterError};

/// Takes ownership of a descriptor that the process was started with (`fd@N`).
///
/// Each number may be taken once: the caller (boot) keeps the list of those taken. The descriptor must be open.
pub fn take_inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks the kernel about a number; it touches no memory.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, as just asked, and by this function's contract nobody else in the process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A duplicate of a descriptor that the process was started with, which stays open (`fd@N` of logs, standard output).
pub fn duplicate_inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC only asks the kernel for a new number.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Sets one socket option that the libraries do not name.
pub fn set_int_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives across the call; the kernel only reads it.
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

/// What the kernel measured of a TCP connection; fails for other sockets, and for numbers that are none.
pub fn tcp_info(fd: RawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: every field is an integer, for which all-zero bytes are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: pointer and length describe `info`, which lives across the call; the kernel writes no more than that. A number
    // that is no socket is refused with an error.
    let result = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// How long a queue a listening TCP socket has.
pub(crate) fn backlog(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // Of a socket that listens this field tells the limit of its queue (tcp_get_info in the kernel).
    Ok(i32::try_from(tcp_info(fd.as_raw_fd())?.tcpi_sacked).unwrap_or(i32::MAX))
}

/// The SYN that a connection began with, from whichever header the listener's `TCP_SAVE_SYN` asked for; the kernel forgets it
/// with this. Empty where none was saved.
pub fn saved_syn(fd: RawFd) -> io::Result<Vec<u8>> {
    // The longest headers are far below: 14 + 40 + 60 bytes, and options of IPv6.
    let mut packet = vec![0u8; 1024];
    let mut length = packet.len() as libc::socklen_t;
    // SAFETY: pointer and length describe `packet`, which lives across the call; the kernel writes no more than that.
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

/// The longest TCP MD5 key the kernel takes, in bytes.
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

/// Signs segments to and from `peer` with `key` (RFC 2385). On a listener an unspecified address with `any`
/// set means all peers of that family.
pub fn set_md5_key(fd: BorrowedFd<'_>, peer: SocketAddr, key: &[u8], any: bool) -> io::Result<()> {
    const TCP_MD5SIG: i32 = 14;
    const TCP_MD5SIG_EXT: i32 = 32;
    const FLAG_PREFIX: u8 = 1;
    if key.len() > MD5_KEY_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the key is longer than 80 bytes"));
    }
    // SAFETY: every field is an integer or an array of integers, for which all-zero bytes are valid.
    let mut signature: TcpMd5Sig = unsafe { std::mem::zeroed() };
    let address = socket2::SockAddr::from(peer);
    // SAFETY: a socket2 address never claims more bytes than a sockaddr_storage has, which is what it is kept in.
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
    // SAFETY: the pointer and length describe `signature`, which lives across the call; the kernel only reads it.
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

/// Allows binding to an address that is not the machine's (`transparent`, `usesrc`).
pub fn set_transparent(fd: BorrowedFd<'_>, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => set_int_option(fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1)
            .or_else(|_| set_int_option(fd, libc::SOL_IP, libc::IP_FREEBIND, 1)),
        IpAddr::V6(_) => set_int_option(fd, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1),
    }
}

/// Becomes user `uid` and group `gid` in all threads, as `user` and `group` of the configuration ask.
/// Supplementary groups are dropped when the process may do so.
pub fn drop_privileges(uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    if let Some(gid) = gid {
        // SAFETY: an empty list: the pointer is not read.
        let _ = unsafe { libc::setgroups(0, std::ptr::null()) };
        // SAFETY: takes a number only.
        check(unsafe { libc::setgid(gid) })?;
    }
    if let Some(uid) = uid {
        // SAFETY: takes a number only.
        check(unsafe { libc::setuid(uid) })?;
    }
    Ok(())
}

/// The CPU time that a thread of this process has used, by the system's number; `None` when it is gone.
pub fn thread_cpu_time(thread: i32) -> Option<Duration> {
    // The kernel's clock of one thread: its number inverted, above the three bits that say so (clock_getcpuclockid(3)).
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to `time`, which lives across the call; a clock that does not exist is refused.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Moves the process into a user namespace of its own, where it has the right to chroot(2).
pub fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: what threads share is not touched by a new user namespace: the flag that parts descriptors is not given.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?)
}

/// Goes on in a new process in the background (`-D`, `daemon`). The calling process ends with status 0 once a byte has been
/// written to what is returned, and with 1 when that is dropped before.
///
/// Must be called while the process has one thread: the child gets only the calling one.
pub fn daemonize() -> io::Result<UnixStream> {
    let (mut parent, child) = UnixStream::pair()?;
    // SAFETY: by this function's contract there is one thread, so no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes nothing; it fails only for a group leader, which a new child is not.
            unsafe { libc::setsid() };
            Ok(child)
        }
        _ => {
            drop(child);
            // Whoever waits in the foreground may end that.
            hold_signals(false);
            let started = parent.read_exact(&mut [0]).is_ok();
            // SAFETY: ends this process without running what the child will run at its own end.
            unsafe { libc::_exit(i32::from(!started)) }
        }
    }
}

/// Puts a socket into the calling worker's reactor, to be told when it is readable; gives it back where the kernel has no
/// room for another.
pub fn watch_readable(socket: OwnedFd) -> Result<AsyncFd<OwnedFd>, (OwnedFd, io::Error)> {
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and closes it only when dropped.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }
        .map_err(AsyncFdRegisterError::into_parts)
}

/// A stream socket of whichever family.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) socket: OwnedFd,
    pub(crate) is_tcp: bool,
    /// Whether the reactor is asked for room to write too, once it has the socket.
    pub(crate) blocks: bool,
}

impl AsRawFd for Plain {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Puts a stream socket into the calling worker's reactor, to be told when it is readable, and when it has room for what is
/// written where that `blocks`; gives it back where the kernel has no room for another.
pub(crate) fn watch(socket: Plain) -> Result<AsyncFd<Plain>, (Plain, io::Error)> {
    let interest = if socket.blocks { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and closes it only when dropped.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(AsyncFdRegisterError::into_parts)
}

/// Holds back (or lets through again) the signals that a process is steered with, in the calling thread and those it
/// starts: none is lost between two programs, or before anybody listens.
pub fn hold_signals(hold: bool) {
    let set = steering_signals();
    let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is initialised, and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Waits for one of the signals that [`hold_signals`] holds back and takes it: the others stay with the kernel, also when another
/// program is executed in this process. All threads must hold them back.
pub fn next_signal() -> i32 {
    let set = steering_signals();
    loop {
        // SAFETY: the set is initialised; nothing is asked about the signal but its number.
        let number = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
        // Interrupted by one that is not held back.
        if number > 0 {
            return number;
        }
    }
}

/// What signals a process is steered with, and SIGALRM, which HAProxy survives.
fn steering_signals() -> libc::sigset_t {
    const NUMBERS: [i32; 10] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGALRM,
        libc::SIGTERM,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGCHLD,
    ];
    // SAFETY: all-zero bytes are a valid sigset_t, and sigemptyset overwrites them anyway.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live set that is written to.
    unsafe { libc::sigemptyset(&raw mut set) };
    for number in NUMBERS {
        // SAFETY: as above, and the number is one of a signal.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    set
}

/// What [`fork`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// In the new process.
    Child,
    /// In the old one: the child's number.
    Parent(i32),
}

/// Splits in two (`-W`). Must be called while the process has one thread.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: as in `daemonize`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Raises the soft limit of descriptors towards the hard one, up to `most`. Returns the limit then in force.
pub fn descriptor_limit(most: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit that the kernel fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    raise_descriptor_limit(limit.rlim_max.min(most).max(limit.rlim_cur.min(most)))
}

/// Limits the descriptors of the process to `wanted`, raising the hard limit where that is allowed.
/// Returns the limit then in force.
pub fn raise_descriptor_limit(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit that the kernel fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let try_set = |cur: u64, max: u64| {
        let new = libc::rlimit { rlim_cur: cur, rlim_max: max };
        // SAFETY: the pointer is to a live rlimit that the kernel only reads.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const new) == 0 }
    };
    if try_set(wanted, limit.rlim_max.max(wanted)) {
        return Ok(wanted);
    }
    let cur = wanted.min(limit.rlim_max);
    if try_set(cur, limit.rlim_max) { Ok(cur) } else { Ok(limit.rlim_cur) }
}
