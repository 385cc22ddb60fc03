//! A proxy under test: started with a configuration, observed through /proc, queried through its runtime socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to start or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Outcome<T> = Result<T, String>;

pub(crate) fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// One of the two programs.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

/// A running proxy; dropping the value stops it and the processes that it started.
pub(crate) struct Subject {
    pub(crate) program: Program,
    child: Child,
    pub(crate) directory: PathBuf,
    pub(crate) address: SocketAddr,
}

/// Returns an unused address, which outgoing connections do not use.
pub(crate) fn free_address() -> Outcome<SocketAddr> {
    TcpListener::bind(("127.0.3.1", 0)).and_then(|socket| socket.local_addr()).map_err(shown)
}

/// Waits until `done`; returns false if that takes too long.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Returns the process's children, from the kernel's list.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Returns the private memory of a process in KiB.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

pub(crate) fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
}

impl Subject {
    /// Starts the program with `configuration`, in which `BIND` and `DIRECTORY` are filled in, with additional arguments and a
    /// limit on descriptors.
    pub(crate) fn start(
        program: &Program,
        configuration: &str,
        arguments: &[&str],
        descriptors: Option<u32>,
    ) -> Outcome<Self> {
        let unique = format!("weir-trials-{}-{}", std::process::id(), program.name);
        let directory = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&directory).map_err(shown)?;
        let address = free_address()?;
        let text = configuration
            .replace("BIND", &address.to_string())
            .replace("DIRECTORY", &directory.display().to_string());
        std::fs::write(directory.join("trial.cfg"), text).map_err(shown)?;
        let child = launch(program, &directory, arguments, descriptors)?;
        let mut subject = Self { program: program.clone(), child, directory, address };
        let is_there = || TcpStream::connect(address).is_ok();
        let mut ended = false;
        eventually(|| {
            ended = subject.child.try_wait().is_ok_and(|status| status.is_some());
            ended || is_there()
        });
        if ended {
            let said = std::fs::read_to_string(subject.directory.join("stderr")).unwrap_or_default();
            return Err(format!("{} does not start: {said}", program.name));
        }
        Ok(subject)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Starts another process with the same configuration, which replaces the current one.
    pub(crate) fn replace(&mut self, arguments: &[&str]) -> Outcome<Child> {
        let next = launch(&self.program, &self.directory, arguments, None)?;
        Ok(std::mem::replace(&mut self.child, next))
    }

    /// Sends a command to the runtime socket.
    pub(crate) fn ask(&self, command: &str) -> Outcome<String> {
        let mut socket = UnixStream::connect(self.directory.join("socket")).map_err(shown)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(shown)?;
        socket.write_all(format!("{command}\n").as_bytes()).map_err(shown)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map_err(shown)?;
        Ok(answer)
    }

    /// Returns the private memory of the process in KiB.
    pub(crate) fn memory(&self) -> u64 {
        memory_of(self.child.id())
    }

    /// Returns the process and those that it started.
    fn all(&self) -> Vec<u32> {
        let own = self.child.id();
        std::iter::once(own).chain(children(own)).collect()
    }

    /// Returns the number of processes.
    pub(crate) fn processes(&self) -> usize {
        self.all().len()
    }

    /// Returns the private memory of all its processes in KiB.
    pub(crate) fn memory_of_all(&self) -> u64 {
        self.all().into_iter().map(memory_of).sum()
    }

    /// Returns the number of open descriptors of all its processes.
    pub(crate) fn descriptors_of_all(&self) -> usize {
        let open = |pid| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        self.all().into_iter().map(open).sum()
    }

    /// Returns the CPU time used so far in milliseconds.
    pub(crate) fn cpu(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = |place| rest.split_whitespace().nth(place).and_then(|word| word.parse::<u64>().ok());
        // Ticks are 10 ms on Linux.
        (ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)) * 10
    }

    /// Returns the number of open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }
}

fn launch(
    program: &Program,
    directory: &Path,
    arguments: &[&str],
    descriptors: Option<u32>,
) -> Outcome<Child> {
    let said =
        std::fs::File::options().create(true).append(true).open(directory.join("stderr")).map_err(shown)?;
    let mut command = match descriptors {
        Some(most) => {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={most}:{most}")).arg(&program.path);
            command
        }
        None => Command::new(&program.path),
    };
    command.args(arguments).arg("-f").arg(directory.join("trial.cfg"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().map_err(shown)
}

impl Drop for Subject {
    fn drop(&mut self) {
        let own = children(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        own.into_iter().for_each(|pid| signal(pid, "KILL"));
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
