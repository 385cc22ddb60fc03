//! The program under test: built once, started with a configuration, or checked with `-c`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::statistics::Statistics;
use crate::{Scratch, eventually, scratch, workspace};

/// Returns the path of the program: `WEIR`, or the binary that cargo builds.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| std::env::var_os("WEIR").map_or_else(build, PathBuf::from))
}

/// Builds the program into the target directory of this test. If it is up to date, this takes a fraction of a second.
fn build() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    // …/target/<profile>/deps/<test>
    let target = own.ancestors().nth(3).expect("a test stands in a target directory");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--locked", "--package", "weir", "--target-dir"])
        .arg(target)
        .current_dir(workspace())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the program does not build");
    target.join("debug").join("weir")
}

/// The result of `-c` for a configuration.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard error.
    pub messages: String,
}

impl Verdict {
    /// Returns whether the configuration was accepted without errors; it need not have listeners.
    pub fn accepted(&self) -> bool {
        self.code == Some(0) && self.alerts().is_empty()
    }

    /// Returns the errors, without the lines that only report that errors were found.
    pub fn alerts(&self) -> Vec<&str> {
        self.of("[ALERT]")
            .into_iter()
            .filter(|text| {
                !text.starts_with("Error(s) found in") && !text.starts_with("Fatal errors found in")
            })
            .collect()
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> Vec<&str> {
        self.of("[WARNING]")
    }

    fn of(&self, severity: &str) -> Vec<&str> {
        let lines = self.messages.lines().filter(|line| line.starts_with(severity));
        let texts = lines.filter_map(|line| line.split_once(" : ").map(|(_, text)| text));
        // HAProxy omits the prefix in messages of the checks after parsing.
        texts.map(|text| text.strip_prefix("config : ").unwrap_or(text)).collect()
    }
}

/// Runs `weir -c -f file` in a directory.
pub fn check(file: &Path, directory: &Path) -> Verdict {
    let output = Command::new(program())
        .arg("-c")
        .arg("-f")
        .arg(file)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    Verdict { code: output.status.code(), messages: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// Returns the answer to a command on a runtime socket.
pub fn ask(socket: &Path, command: &str) -> String {
    let mut answer = None;
    // A master that re-executes itself drops the connections that it has just accepted.
    eventually(|| {
        answer = try_ask(socket, command).ok();
        answer.is_some()
    });
    answer.expect("the runtime socket takes a command")
}

/// Returns the statistics from a runtime socket.
pub fn statistics(socket: &Path) -> Statistics {
    Statistics::read(&ask(socket, "show stat"))
}

fn try_ask(socket: &Path, command: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    let mut answer = String::new();
    stream.set_read_timeout(Some(crate::PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let _ = stream.read_to_string(&mut answer);
    Ok(answer)
}

/// A running program. It stops when the value is dropped.
#[derive(Debug)]
pub struct Weir {
    child: Child,
    directory: Scratch,
}

impl Weir {
    /// Starts the program with a configuration and waits until each of `ports` of 127.0.0.1 accepts connections.
    pub fn start(configuration: &str, ports: &[u16]) -> Weir {
        Weir::start_with(configuration, &["-db"], ports)
    }

    /// Starts the program with arguments other than `-db` before the file.
    pub fn start_with(configuration: &str, arguments: &[&str], ports: &[u16]) -> Weir {
        Weir::start_by(Command::new(program()), configuration, arguments, ports)
    }

    /// Starts the program by a prepared command, for example one with another environment.
    pub fn start_by(mut command: Command, configuration: &str, arguments: &[&str], ports: &[u16]) -> Weir {
        let directory = scratch("run");
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, configuration).expect("the temporary directory takes files");
        command.args(arguments).arg("-f").arg(&file);
        Weir::spawn(command, directory, ports)
    }

    /// Starts the program with these arguments alone, without a configuration file.
    pub fn start_without_file(arguments: &[&str], ports: &[u16]) -> Weir {
        let mut command = Command::new(program());
        command.args(arguments);
        Weir::spawn(command, scratch("run"), ports)
    }

    fn spawn(mut command: Command, directory: Scratch, ports: &[u16]) -> Weir {
        let messages = File::create(directory.join("messages")).expect("the temporary directory takes files");
        let child = command
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
            .spawn()
            .expect("the program runs");
        let mut weir = Weir { child, directory };
        for port in ports {
            weir.await_port(*port);
        }
        weir
    }

    fn await_port(&mut self, port: u16) {
        let ready =
            eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() || !self.is_running());
        assert!(ready && self.is_running(), "port {port} takes no connection: {}", self.messages());
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the anonymous memory of the process in KiB; pages of files, such as its program code, are not included.
    pub fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process runs");
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line about memory");
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    }

    /// Returns the CPU time that the process has used, in ms.
    pub fn cpu(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the process runs");
        // The name of the program, in parentheses, may have spaces. User and system time are fields 14 and 15, in 1/100 s.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
            * 10
    }

    /// Returns whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the process ends on its own. Returns its exit code, or `None` if it did not end or a signal ended it.
    pub fn await_end(&mut self) -> Option<i32> {
        eventually(|| !self.is_running());
        self.child.try_wait().ok().flatten().and_then(|status| status.code())
    }

    /// Returns the directory of this run, which is removed when the value is dropped.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sends the process the signal of that name (`USR1`).
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} was not sent");
    }

    /// Returns the answer to a command on the runtime socket `runtime` in the directory of the run. The configuration must have
    /// that socket (`stats socket runtime level admin`).
    pub fn ask(&self, command: &str) -> String {
        ask(&self.directory.join("runtime"), command)
    }

    /// Returns the answer to a command like [`Self::ask`]; both may have any bytes.
    pub fn ask_bytes(&self, command: &[u8]) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.directory.join("runtime"))
            .expect("the runtime socket takes connections");
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("the timeout is not zero");
        stream.write_all(&[command, b"\n"].concat()).expect("the runtime socket takes a command");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// Returns one value of `show stat`: from the row `row` (`proxy,name`) and the named column.
    ///
    /// # Panics
    /// There is no such row or column.
    pub fn stat(&self, row: &str, column: &str) -> String {
        let statistics = self.statistics();
        statistics.get(row, column).unwrap_or_else(|| panic!("no row `{row}`: {statistics:?}")).to_owned()
    }

    /// Returns the current output of `show stat`.
    pub fn statistics(&self) -> Statistics {
        statistics(&self.directory.join("runtime"))
    }

    /// Waits until the process has written `text` to standard error; returns false after [`PATIENCE`].
    ///
    /// [`PATIENCE`]: crate::PATIENCE
    pub fn says(&self, text: impl AsRef<str>) -> bool {
        eventually(|| self.messages().contains(text.as_ref()))
    }

    /// Returns the standard error of the process so far.
    pub fn messages(&self) -> String {
        std::fs::read_to_string(self.directory.join("messages")).unwrap_or_default()
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
