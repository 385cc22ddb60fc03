//! System resources of the process: descriptors, threads, user and group, pid file, and the processes that it replaces.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use diag::Severity;
use plan::Global;
use plan::Plan;
use rustix::process::{Pid, Signal, kill_process};

use crate::args::CommandLineArgs;
use crate::messages::{MessageFormat, output};
use crate::sockets::Inherited;

/// Sent by a worker to its master when it no longer listens.
pub(crate) const STOPPED: &[u8; 1] = b"S";

/// The number of descriptors that a connection uses: its own and its server's.
const PER_CONNECTION: u64 = 2;
/// The number of descriptors that every process uses, and the additional number for each worker.
const FIXED: u64 = 9;
const PER_WORKER: u64 = 5;
/// The number of descriptors reserved for everything else, if there are enough.
const RESERVE: u64 = 100;
/// The default upper bound of the connection limit, as in HAProxy's packages.
const DEFAULT_HARD_LIMIT: u64 = 1_048_576;

/// Limits in force.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessLimits {
    /// Concurrent connections.
    pub(crate) max_connections: u32,
    /// Open files.
    pub(crate) open_files: u64,
    /// Memory in bytes, 0 for no limit.
    pub(crate) memory: u64,
}

/// Computes `maxconn` and raises the limit on descriptors accordingly. If an explicit setting cannot be met, that is an error, or a
/// warning under `no strict-limits`.
pub(crate) fn limits(plan: &Plan, messages: MessageFormat) -> Result<ProcessLimits, String> {
    let global = &plan.global;
    let binds: usize = plan.proxies.iter().map(|proxy| proxy.binds.len()).sum();
    let listeners = (binds + global.stats_sockets.len()) as u64;
    let fixed = FIXED + PER_WORKER * global.workers() as u64 + listeners;
    let most = global.fd_hard_limit.unwrap_or(DEFAULT_HARD_LIMIT);
    let wanted = match (global.ulimit_n, global.maxconn) {
        (Some(files), _) => Some(files),
        (None, Some(connections)) => Some(u64::from(connections) * PER_CONNECTION + fixed + RESERVE),
        // Without an explicit setting, the current limit is used and not raised.
        (None, None) => None,
    };
    let open_files = match wanted {
        Some(wanted) => process::raise_descriptor_limit(wanted),
        None => process::descriptor_limit(most),
    }
    .unwrap_or(1024);
    if let Some(wanted) = wanted.filter(|wanted| *wanted > open_files) {
        let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let fits = hard.saturating_sub(fixed + RESERVE) / PER_CONNECTION;
        let text = format!(
            "[haproxy.main()] Cannot raise FD limit to {wanted}, current limit is {open_files} and hard limit is {hard}. You \
             may prefer to let HAProxy adjust the limit by itself; for this, please just drop any 'maxconn' and 'ulimit-n' \
             from the global section, and possibly add 'fd-hard-limit' lower than this hard limit. You may also force a \
             new 'maxconn' value that is a bit lower than half of the hard limit minus listeners and checks. This results \
             in roughly {fits} here."
        );
        if global.strict_limits {
            return Err(text);
        }
        messages.say(Severity::Warning, &text);
    }
    // If descriptors are scarce, fewer are reserved for logs, checks and operators.
    let free = open_files.saturating_sub(fixed);
    let room = free.saturating_sub((free / 8).clamp(2, RESERVE)) / PER_CONNECTION;
    let automatic = u32::try_from(room).unwrap_or(u32::MAX).max(1);
    if global.maxconn.is_none() {
        messages.say(Severity::Notice, &format!("Automatically setting global.maxconn to {automatic}."));
    }
    let max_connections = global.maxconn.unwrap_or(automatic).max(1);
    Ok(ProcessLimits { max_connections, open_files, memory: 0 })
}

/// `prealloc-fd`: opens the highest descriptor once, so that the kernel's table of descriptors need not grow while threads use it.
pub(crate) fn preallocate_descriptors(open_files: u64) {
    let highest = i32::try_from(open_files.saturating_sub(1)).unwrap_or(i32::MAX);
    // If this fails, the table grows as needed.
    drop(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), highest));
}

/// `-x`: takes over the listening sockets of a running process. A failure is an error, because connections would be lost. Under a
/// master, it is not an error, because a master is always started with the same arguments, even if no process ran before.
pub(crate) fn take_over(
    socket: Option<&Path>,
    has_master: bool,
    messages: MessageFormat,
) -> Result<Inherited, String> {
    let Some(socket) = socket else { return Ok(Vec::new()) };
    crate::hand_over::receive(socket).or_else(|error| {
        let shown = socket.display();
        let text = format!("Failed to get the sockets from the old process at {shown}: {error}");
        if !has_master {
            return Err(text);
        }
        messages.say(Severity::Warning, &text);
        Ok(Vec::new())
    })
}

/// Checks whether all stick tables fit in memory when they are full. If they do not, this is an error (with `no strict-limits`, a
/// warning), because a flood from many addresses could make the kernel kill the process.
pub(crate) fn try_tables(plan: &Plan, limit: u64, messages: MessageFormat) -> Result<(), String> {
    let Some(largest) = plan.tables.iter().max_by_key(|table| table.full_bytes()) else { return Ok(()) };
    let wanted: u64 = plan.tables.iter().map(|table| table.full_bytes()).fold(0, u64::saturating_add);
    let (most, whose) = memory(limit);
    if wanted <= most {
        return Ok(());
    }
    let text = format!(
        "[haproxy.main()] Stick tables take {} of memory when they are full, {whose} {}: the largest is \
         '{}' with {} entries of {} bytes. Lower its 'size', or use 'no strict-limits' in 'global' to \
         start anyway.",
        shown(wanted),
        shown(most),
        largest.name(),
        largest.settings.size,
        largest.entry_bytes(),
    );
    if plan.global.strict_limits {
        return Err(text);
    }
    messages.say(Severity::Warning, &text);
    Ok(())
}

/// Returns the memory limit of the process in bytes and its source: `limit` (`-m`, 0 for none), the control group (the kernel's
/// cgroup-v2.rst, "memory.max"), or the machine.
fn memory(limit: u64) -> (u64, &'static str) {
    let machine = rustix::system::sysinfo();
    let machine = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| {
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(own).join("memory.max")).ok()
    });
    let group = group.and_then(|text| text.trim().parse().ok());
    let limits = [
        (Some(machine), "more than the machine's"),
        (group, "more than its control group's"),
        (Some(limit).filter(|limit| *limit > 0), "more than the limit (-m) of"),
    ];
    let least =
        limits.into_iter().filter_map(|(limit, whose)| Some((limit?, whose))).min_by_key(|(limit, _)| *limit);
    least.unwrap_or((u64::MAX, ""))
}

/// Formats a number of bytes for people.
fn shown(bytes: u64) -> String {
    match bytes {
        ..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// An object file loaded by the process.
#[derive(Debug)]
pub(crate) struct LoadedObject {
    pub(crate) path: String,
    /// The start address of the first mapping of the file, and the end address of its last mapping.
    start: u64,
    end: u64,
}

/// Returns the program and its libraries, in the order of their mappings.
pub(crate) fn objects() -> Vec<LoadedObject> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut objects: Vec<LoadedObject> = Vec::new();
    for line in maps.lines() {
        let path = line.find('/').map_or("", |at| &line[at..]);
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let Some((start, end)) = range else { continue };
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        match objects.iter_mut().find(|known| known.path == path) {
            Some(known) => known.end = number(end),
            None if !path.is_empty() => {
                objects.push(LoadedObject { path: path.to_owned(), start: number(start), end: number(end) });
            }
            None => {}
        }
    }
    objects
}

/// `-dL`: lists the object files; `with_addresses` adds their addresses.
pub(crate) fn list_objects(with_addresses: bool) {
    let mut text = String::from("List of loaded object files:\n");
    for LoadedObject { path, start, end } in objects() {
        if with_addresses {
            text.push_str(&format!("0x{start:012x}-0x{:012x} (0x{:07x}) ", end - 1, end - start));
        }
        text.push_str(&path);
        text.push('\n');
    }
    output(&text);
}

/// A process that moves to the background (`-D`), and the foreground process that waits until it has started. Dropping this value
/// before [`Launch::succeed`] reports a failure.
#[derive(Debug)]
pub(crate) struct Launch {
    waiting: Option<UnixStream>,
    /// `/dev/null`, which may be inaccessible after chroot.
    nowhere: File,
}

impl Launch {
    /// Continues in the background. Must be called while there is one thread.
    pub(crate) fn begin() -> Result<Self, String> {
        let mut launch = Self::of_worker()?;
        let forked = process::daemonize().map_err(|error| format!("[haproxy.main()] Cannot fork: {error}."));
        launch.waiting = Some(forked?);
        Ok(launch)
    }

    /// Returns the value for the worker of a running master, for which no foreground process waits.
    pub(crate) fn of_worker() -> Result<Self, String> {
        let nowhere = File::options().read(true).write(true).open("/dev/null");
        let nowhere = nowhere.map_err(|error| format!("[haproxy.main()] Cannot open /dev/null: {error}."))?;
        Ok(Self { waiting: None, nowhere })
    }

    /// Reports success and releases the terminal. Readers of standard output wait until it is closed.
    pub(crate) fn succeed(self) {
        // A failure has no consequences.
        let _ = rustix::stdio::dup2_stdin(&self.nowhere);
        let _ = rustix::stdio::dup2_stdout(&self.nowhere);
        let _ = rustix::stdio::dup2_stderr(&self.nowhere);
        base::output::reopen_standard();
        if let Some(mut waiting) = self.waiting {
            // The foreground process may have ended.
            let _ = waiting.write_all(b"R");
        }
    }
}

/// Writes the `pidfile`.
pub(crate) fn write_pidfile(global: &Global) -> Result<(), String> {
    let Some(path) = &global.pidfile else { return Ok(()) };
    if !global.daemon && !global.master_worker {
        return Ok(());
    }
    std::fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|error| format!("[haproxy.main()] Cannot create pidfile {}: {error}", path.display()))
}

/// Sets the priority of this process (setpriority(2)), -20 to 19. Existing threads keep their priority.
pub(crate) fn set_priority(priority: i32) -> std::io::Result<()> {
    Ok(rustix::process::setpriority_process(None, priority)?)
}

/// Returns the priority of this process.
pub(crate) fn priority() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Applies `tune.renice.runtime`, before there are threads.
pub(crate) fn renice(global: &Global, messages: MessageFormat) {
    if let Some(priority) = global.tune.renice_runtime
        && let Err(error) = set_priority(priority)
    {
        let text =
            format!("[haproxy.main()] cannot set the priority {priority} of 'tune.renice.runtime': {error}.");
        messages.say(Severity::Warning, &text);
    }
}

/// `-sf` and `-st`: asks the old processes to finish, or terminates them.
pub(crate) fn finish_old(args: &CommandLineArgs) {
    signal(args.finish.iter().copied(), Signal::USR1);
    signal(args.terminate.iter().copied(), Signal::TERM);
}

/// Sends a signal to processes.
pub(crate) fn signal(pids: impl Iterator<Item = i32>, signal: Signal) {
    for pid in pids.filter_map(Pid::from_raw) {
        // The process may have ended already.
        let _ = kill_process(pid, signal);
    }
}

/// Notifies the service manager, if there is one, that the process is ready (sd_notify).
pub(crate) fn announce(messages: MessageFormat) {
    notify(&format!("READY=1\nMAINPID={}\n", std::process::id()), messages);
}

/// Notifies the service manager that a reload begins.
pub(crate) fn notify_reloading(messages: MessageFormat) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=Reloading Configuration.\n"), messages);
}

/// Notifies the service manager that the process ends.
pub(crate) fn notify_stopping(messages: MessageFormat) {
    notify("STOPPING=1\n", messages);
}

/// Sends `state` to the service manager.
pub(crate) fn notify(state: &str, messages: MessageFormat) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let send = || -> std::io::Result<()> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let socket = UnixDatagram::unbound()?;
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(Path::new(&path))?,
        };
        socket.send_to_addr(state.as_bytes(), &address).map(|_| ())
    };
    if let Err(error) = send() {
        messages.say(Severity::Warning, &format!("cannot notify the service manager: {error}"));
    }
}
