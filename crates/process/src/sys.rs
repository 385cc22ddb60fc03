//! System calls without a safe interface. Each `unsafe` block states why it is sound.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::time::Duration;

use mimalloc::MiMalloc;

/// Takes ownership of an inherited descriptor.
///
/// Inherited descriptors are recognised by the missing close-on-exec flag: everything that this process opens has the flag, and no
/// inherited descriptor can have it. This function sets the flag, so that no descriptor is taken twice.
///
/// # Errors
/// The descriptor is not open, is a standard stream, or was not inherited.
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
    // SAFETY: the descriptor is open and was inherited, as the missing flag showed, so nothing in this process owns it; the flag is
    // now set, so it cannot be taken again.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Switches all threads to user `uid` and group `gid` (`user` and `group` in the configuration). Supplementary groups are dropped
/// if permitted.
pub fn drop_privileges(uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    if let Some(gid) = gid {
        // SAFETY: the list is empty, so the pointer is not read.
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

/// Moves the process into a new user namespace, where it may call chroot(2).
pub fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: a new user namespace does not affect resources shared between threads; CLONE_FILES is not given.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?)
}

/// Returns the CPU time that a thread of this process has used, given its system id; `None` if the thread has ended.
pub fn thread_cpu_time(thread: i32) -> Option<Duration> {
    // The CPU clock of a thread: its inverted id, shifted above three bits that identify the clock (clock_getcpuclockid(3)).
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to `time`, which outlives the call; an invalid clock is refused.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Fails unless the calling thread is the only one in the process.
fn require_one_thread() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() == 1 {
        return Ok(());
    }
    Err(io::Error::other("a process with several threads cannot be split"))
}

/// Continues in a new background process (`-D`, `daemon`). The calling process exits with status 0 once a byte is written to the
/// returned socket, and with 1 if the socket is dropped before that.
///
/// # Errors
/// There is more than one thread (the child would have only the calling one), or fork(2) fails.
pub fn daemonize() -> io::Result<UnixStream> {
    require_one_thread()?;
    let (mut parent, child) = UnixStream::pair()?;
    // SAFETY: there is only one thread, so no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes no arguments; it fails only for a group leader, which a new child is not.
            unsafe { libc::setsid() };
            Ok(child)
        }
        _ => {
            drop(child);
            // The waiting foreground process may be interrupted.
            hold_signals(false);
            let started = parent.read_exact(&mut [0]).is_ok();
            // SAFETY: exits without running handlers that the child will run when it exits.
            unsafe { libc::_exit(i32::from(!started)) }
        }
    }
}

/// The result of [`fork`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// In the child process.
    Child,
    /// In the parent process: the child's pid.
    Parent(i32),
}

/// Forks the process (`-W`).
///
/// # Errors
/// There is more than one thread (the child would have only the calling one), or fork(2) fails.
pub fn fork() -> io::Result<Forked> {
    require_one_thread()?;
    // SAFETY: as in `daemonize`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Blocks (or unblocks) the control signals in the calling thread and in threads that it starts, so that none is lost across an
/// exec or before a handler is installed.
pub fn hold_signals(hold: bool) {
    let set = steering_signals();
    let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is initialised, and the old mask is not requested.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Waits for one of the signals blocked by [`hold_signals`] and consumes it. The other signals stay pending, even across an exec.
/// All threads must block these signals.
pub fn next_signal() -> i32 {
    let set = steering_signals();
    loop {
        // SAFETY: the set is initialised; no information about the signal is requested.
        let number = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
        // A signal that is not blocked interrupts the call.
        if number > 0 {
            return number;
        }
    }
}

/// Returns the control signals, and SIGALRM, which HAProxy survives.
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
        // SAFETY: as above, and the number is that of a signal.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    set
}

/// Raises the soft limit on descriptors towards the hard one, up to `most`. Returns the resulting limit.
pub fn descriptor_limit(most: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit that the kernel fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    raise_descriptor_limit(limit.rlim_max.min(most).max(limit.rlim_cur.min(most)))
}

/// Sets the limit on descriptors of the process to `wanted`, and raises the hard limit if permitted. Returns the resulting limit.
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

/// The global allocator: mimalloc, with a memory reserve ([`reserve_memory`]) that is used when a limit is reached. Without a
/// reserve, an allocation that fails aborts the process, as usual in Rust.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: mimalloc does all allocations and upholds the trait's contract. Releasing the reserve allocates nothing and does not
// unwind.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the same method.
        let memory = unsafe { MiMalloc.alloc(layout) };
        if memory.is_null() && release_reserve() {
            // SAFETY: as above.
            return unsafe { MiMalloc.alloc(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the same method.
        let memory = unsafe { MiMalloc.alloc_zeroed(layout) };
        if memory.is_null() && release_reserve() {
            // SAFETY: as above.
            return unsafe { MiMalloc.alloc_zeroed(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the same method.
        let moved = unsafe { MiMalloc.realloc(memory, layout, size) };
        if moved.is_null() && release_reserve() {
            // SAFETY: as above; a failed call leaves the memory unchanged.
            return unsafe { MiMalloc.realloc(memory, layout, size) };
        }
        moved
    }
}

// Part of mimalloc's C interface, which the crate binds only together with much else.
unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Returns free memory to the system. mimalloc does this by itself only while a thread allocates, so after a configuration was
/// read, it would keep the memory that reading it took.
pub fn return_memory() {
    // In a thread that has allocated nothing, the function does nothing.
    drop(std::hint::black_box(Box::new(0_u8)));
    // SAFETY: any thread may call the function at any time. It touches only memory that is free.
    unsafe { mi_collect(true) }
}

/// The address of the reserve, which is null after its release, and its length in bytes.
static RESERVE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Reserves `bytes` of address space for the [`Allocator`]. When an allocation first fails, the allocator releases them and calls
/// [`base::memory::set_short`]. Has no effect if there is a reserve already. Must not be called by several threads at once.
///
/// # Errors
/// The error of mmap(2): a limit is reached.
pub fn reserve_memory(bytes: usize) -> io::Result<()> {
    if !RESERVE.load(Acquire).is_null() {
        return Ok(());
    }
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel picks the address of the new mapping; no existing memory is touched.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind | libc::MAP_NORESERVE, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    RESERVED.store(bytes, Release);
    RESERVE.store(memory, Release);
    Ok(())
}

/// Releases the reserve. Returns whether the allocation should be retried, because another thread may have released it just before.
#[cold]
fn release_reserve() -> bool {
    let memory = RESERVE.swap(std::ptr::null_mut(), AcqRel);
    if memory.is_null() {
        return base::memory::is_short();
    }
    base::memory::set_short(true);
    // SAFETY: the swap gave this mapping to this thread alone, and nothing was ever stored in it.
    unsafe { libc::munmap(memory, RESERVED.load(Acquire)) };
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_inherited_descriptors_are_taken_and_only_once() {
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        assert!(take_inherited(file.as_raw_fd()).is_err(), "it was opened here");
        assert!(take_inherited(2).is_err(), "it belongs to the standard library");
        assert!(take_inherited(i32::MAX).is_err(), "it is not open");
        // Imitates a descriptor after an exec, which has no flag and no owner.
        let number = rustix::io::fcntl_dupfd_cloexec(&file, 100).map(std::os::fd::IntoRawFd::into_raw_fd);
        let number = number.expect("there is room for one more");
        // SAFETY: F_SETFD changes a flag of an open descriptor; it touches no memory.
        assert!(unsafe { libc::fcntl(number, libc::F_SETFD, 0) } == 0);
        let taken = take_inherited(number).expect("it looks inherited");
        assert!(take_inherited(number).is_err(), "it is taken");
        drop(taken);
    }

    #[test]
    fn reserve_is_released_once_and_can_be_renewed() {
        reserve_memory(1 << 20).expect("there is memory");
        assert!(release_reserve() && base::memory::is_short());
        base::memory::set_short(false);
        assert!(!release_reserve(), "there is no reserve any more");
        reserve_memory(1 << 20).expect("there is memory");
        assert!(release_reserve());
        base::memory::set_short(false);
    }

    #[test]
    fn fork_is_refused_with_several_threads() {
        let (started, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(fork().is_err() && daemonize().is_err());
        drop(started);
        assert!(other.join().expect("it does not panic").is_err());
    }
}
