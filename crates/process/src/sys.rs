//! System calls that no safe interface offers. Each `unsafe` block says why it is sound.

#![allow(unsafe_code)]

use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
    fn a_process_of_several_threads_is_not_split() {
        let (started, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(fork().is_err() && daemonize().is_err());
        drop(started);
        assert!(other.join().expect("it does not panic").is_err());
    }
}
