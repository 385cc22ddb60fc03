//! System calls that no safe interface offers. Each `unsafe` block says why it is sound.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::time::Duration;

use mimalloc::MiMalloc;

/// Takes ownership of a descriptor that the process was started with.
///
/// What was inherited is told from what this process opened by the flag that closes descriptors
/// when another program is executed: everything that is opened here has it, and nothing inherited
/// can. A descriptor that is taken gets it, so that none is taken twice.
///
/// # Errors
/// A descriptor that is not open, of the standard streams, or not inherited.
pub fn take_inherited(number: i32) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the standard streams are not taken"));
    }
    // SAFETY: F_GETFD only asks the kernel about a number; it touches no memory.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor was not inherited"));
    }
    // SAFETY: F_SETFD changes a flag of an open descriptor; it touches no memory.
    if unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and was inherited, as its flag said, so that nothing in this
    // process owns it; the flag is set now, so that it is not taken again.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Becomes user `uid` and group `gid` in all threads, as `user` and `group` of the configuration
/// ask. Supplementary groups are dropped when the process may do so.
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

/// Moves the process into a user namespace of its own, where it has the right to chroot(2).
pub fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: what threads share is not touched by a new user namespace: the flag that parts
    // descriptors is not given.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?)
}

/// The CPU time that a thread of this process has used, by the system's number; `None` when it is
/// gone.
pub fn thread_cpu_time(thread: i32) -> Option<Duration> {
    // The kernel's clock of one thread: its number inverted, above the three bits that say so
    // (clock_getcpuclockid(3)).
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to `time`, which lives across the call; a clock that does not exist is
    // refused.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Fails unless the calling thread is the only one of the process.
fn require_one_thread() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() == 1 {
        return Ok(());
    }
    Err(io::Error::other("a process with several threads cannot be split"))
}

/// Goes on in a new process in the background (`-D`, `daemon`). The calling process ends with
/// status 0 once a byte has been written to what is returned, and with 1 when that is dropped
/// before.
///
/// # Errors
/// More than one thread, as the child gets only the calling one; what fork(2) says.
pub fn daemonize() -> io::Result<UnixStream> {
    require_one_thread()?;
    let (mut parent, child) = UnixStream::pair()?;
    // SAFETY: there is one thread, so no lock can be held by a thread that the child lacks.
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

/// What [`fork`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// In the new process.
    Child,
    /// In the old one: the child's number.
    Parent(i32),
}

/// Splits in two (`-W`).
///
/// # Errors
/// More than one thread, as the child gets only the calling one; what fork(2) says.
pub fn fork() -> io::Result<Forked> {
    require_one_thread()?;
    // SAFETY: as in `daemonize`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Holds back (or lets through again) the signals that a process is steered with, in the calling
/// thread and those it starts: none is lost between two programs, or before anybody listens.
pub fn hold_signals(hold: bool) {
    let set = steering_signals();
    let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is initialised, and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Waits for one of the signals that [`hold_signals`] holds back and takes it: the others stay with
/// the kernel, also when another program is executed in this process. All threads must hold them
/// back.
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

/// Raises the soft limit of descriptors towards the hard one, up to `most`. Returns the limit then
/// in force.
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

/// The allocator of the process: mimalloc, with memory in reserve ([`reserve_memory`]) for when a
/// limit is reached. Without a reserve an allocation that fails ends the process, as Rust has it.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: mimalloc allocates all memory and keeps the contract of the trait. Releasing the reserve
// allocates nothing and does not unwind.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the same method.
        let memory = unsafe { MiMalloc.alloc(layout) };
        if memory.is_null() && release_reserve() {
            // SAFETY: as above.
            return unsafe { MiMalloc.alloc(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the same method.
        let memory = unsafe { MiMalloc.alloc_zeroed(layout) };
        if memory.is_null() && release_reserve() {
            // SAFETY: as above.
            return unsafe { MiMalloc.alloc_zeroed(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the same method.
        let moved = unsafe { MiMalloc.realloc(memory, layout, size) };
        if moved.is_null() && release_reserve() {
            // SAFETY: as above; a failed call leaves the memory unchanged.
            return unsafe { MiMalloc.realloc(memory, layout, size) };
        }
        moved
    }
}

/// The address and the length in bytes of the reserve; the address is null while it is released.
static RESERVE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Keeps `bytes` of address space in reserve for the [`Allocator`], which releases them with the
/// first allocation that fails and sets [`base::memory::set_short`]. Without effect while there is a
/// reserve. For one thread at a time.
///
/// # Errors
/// The error of mmap(2): a limit is reached.
pub fn reserve_memory(bytes: usize) -> io::Result<()> {
    if !RESERVE.load(Acquire).is_null() {
        return Ok(());
    }
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory where the kernel likes; nothing that exists is touched.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind | libc::MAP_NORESERVE, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    RESERVED.store(bytes, Release);
    RESERVE.store(memory, Release);
    Ok(())
}

/// Gives the reserve back to the system; whether it is worth trying again to allocate: another thread may have
/// given it back just before.
#[cold]
fn release_reserve() -> bool {
    let memory = RESERVE.swap(std::ptr::null_mut(), AcqRel);
    if memory.is_null() {
        return base::memory::is_short();
    }
    base::memory::set_short(true);
    // SAFETY: the swap gave this mapping to this thread alone, and nothing was ever put there.
    unsafe { libc::munmap(memory, RESERVED.load(Acquire)) };
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_descriptors_that_were_inherited_are_taken_and_once() {
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        assert!(take_inherited(file.as_raw_fd()).is_err(), "it was opened here");
        assert!(take_inherited(2).is_err(), "it belongs to the standard library");
        assert!(take_inherited(i32::MAX).is_err(), "it is not open");
        // As a descriptor is after another program was executed: without the flag and without an
        // owner.
        let number = rustix::io::fcntl_dupfd_cloexec(&file, 100).map(std::os::fd::IntoRawFd::into_raw_fd);
        let number = number.expect("there is room for one more");
        // SAFETY: F_SETFD changes a flag of an open descriptor; it touches no memory.
        assert!(unsafe { libc::fcntl(number, libc::F_SETFD, 0) } == 0);
        let taken = take_inherited(number).expect("it looks inherited");
        assert!(take_inherited(number).is_err(), "it is taken");
        drop(taken);
    }

    #[test]
    fn the_reserve_is_released_once_and_kept_again() {
        reserve_memory(1 << 20).expect("there is memory");
        assert!(release_reserve() && base::memory::is_short());
        base::memory::set_short(false);
        assert!(!release_reserve(), "there is no reserve any more");
        reserve_memory(1 << 20).expect("there is memory");
        assert!(release_reserve());
        base::memory::set_short(false);
    }

    #[test]
    fn a_process_of_several_threads_is_not_split() {
        let (started, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(fork().is_err() && daemonize().is_err());
        drop(started);
        assert!(other.join().expect("it does not panic").is_err());
    }
}
