//! One of the two programs: starts it with a configuration of many cases, runs them, and collects the messages received by clients
//! and servers, the log lines and the counters of each case.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::exchanges::act::{self, Listening, Received};
use crate::exchanges::case::Case;

/// How long a program may take to listen, or to finish its streams.
const PATIENCE: Duration = Duration::from_secs(20);

/// One program's result for one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) received: Received,
    pub(crate) logs: Vec<Log>,
    /// Counters by row (`fe`, `be`, `s0`) and name.
    pub(crate) counters: BTreeMap<(String, String), String>,
}

/// A log line: its fields by name, and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) times: Vec<i64>,
    pub(crate) fields: Vec<String>,
}

/// The names of [`Log::times`] and [`Log::fields`].
pub(crate) const TIMES: &[&str] = &["TR", "Tw", "Tc", "Tr", "Ta"];
pub(crate) const FIELDS: &[&str] =
    &["backend", "server", "ST", "tsc", "rc", "queues", "CC", "CS", "hr", "hs", "r"];
const LOG_FORMAT: &str = "%f|%TR/%Tw/%Tc/%Tr/%Ta|%b|%s|%ST|%tsc|%rc|%sq/%bq|%CC|%CS|%hr|%hs|%{+Q}r";

/// The compared counters. Bytes are not compared: HAProxy counts those of its internal form of a message, and none of its own
/// responses, Weir those on the wire (`docs/differences.md`).
const COUNTERS: &[&str] = &[
    "stot",
    "dreq",
    "dresp",
    "ereq",
    "econ",
    "eresp",
    "wretr",
    "wredis",
    "lbtot",
    "hrsp_1xx",
    "hrsp_2xx",
    "hrsp_3xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "hrsp_other",
    "req_tot",
    "cli_abrt",
    "srv_abrt",
    "conn_tot",
    "connect",
    "reuse",
    "qmax",
    "qtime_max",
    "intercepted",
    "wrew",
    "eint",
    "dcon",
    "dses",
];

/// Maxima of times are compared with this tolerance.
pub(crate) const TOLERANCE: i64 = 120;

pub(crate) struct Program {
    path: PathBuf,
    directory: PathBuf,
    /// The next configuration's number.
    next: AtomicUsize,
}

/// Why a configuration is refused.
pub(crate) struct Said {
    pub(crate) text: String,
    /// The cases that the message names.
    pub(crate) named: BTreeSet<usize>,
}

/// Held from the search for free addresses until a program has bound them.
static STARTING: Mutex<()> = Mutex::new(());

/// A running program; it stops when the value is dropped.
struct Running {
    child: Child,
    logs: UdpSocket,
    control: PathBuf,
    marker: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns addresses that are free at this time. Outgoing connections use other addresses, so they do not take these in the
/// meantime.
fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    let bound: std::io::Result<Vec<TcpListener>> =
        (0..count).map(|_| TcpListener::bind(("127.0.1.1", 0))).collect();
    bound?.iter().map(TcpListener::local_addr).collect()
}

fn configuration(
    directory: &Path,
    cases: &[&Case],
    binds: &[SocketAddr],
    servers: &[Vec<SocketAddr>],
    log: SocketAddr,
) -> String {
    let directory = directory.display();
    let mut text = format!(
        "global\n    nbthread 1\n    log {log} len 16000 format raw local0\n    stats socket {directory}/socket level admin\n\
         defaults\n    mode http\n    balance roundrobin\n    log global\n    log-format \"{LOG_FORMAT}\"\n    error-log-format \"{LOG_FORMAT}\"\n    \
         timeout client 2025ms\n    timeout server 1125ms\n    timeout connect 580ms\n    timeout queue 625ms\n"
    );
    for (number, case) in cases.iter().enumerate() {
        let addresses: Vec<String> = servers[number].iter().map(SocketAddr::to_string).collect();
        text.push_str(&case.sections(number, &binds[number].to_string(), &addresses));
    }
    // Bound last: when this one listens, all of them do.
    let last = binds[cases.len()];
    text.push_str(&format!("frontend marker\n    bind {last}\n    http-request return status 200\n"));
    text
}

/// Returns the numbers of the cases that messages name: by a configuration line, or by a frontend or backend.
fn named(said: &str, path: &Path, text: &str) -> BTreeSet<usize> {
    let number = |word: &str| word.strip_prefix(['f', 'b']).and_then(|rest| rest.parse::<usize>().ok());
    let section =
        |line: &str| line.strip_prefix("frontend ").or(line.strip_prefix("backend ")).and_then(number);
    let mut owners: Vec<Option<usize>> = Vec::new();
    for line in text.lines() {
        owners.push(section(line).or(owners.last().copied().flatten()));
    }
    let place = format!("{}:", path.display());
    let mut all = BTreeSet::new();
    for line in said.lines().filter(|line| line.contains("ALERT")) {
        let at = line.split(&place).nth(1).unwrap_or_default();
        let digits = at.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        if let Ok(row) = digits.parse::<usize>() {
            all.extend(owners.get(row.wrapping_sub(1)).copied().flatten());
        } else {
            all.extend(line.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(number));
        }
    }
    all
}

impl Program {
    pub(crate) fn new(path: &Path, name: &str) -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("weir-exchanges-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(shown)?;
        Ok(Self { path: path.into(), directory, next: AtomicUsize::new(0) })
    }

    /// Creates a separate directory for each configuration, so that several may run at once.
    fn fresh_directory(&self) -> Result<PathBuf, String> {
        let path = self.directory.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir_all(&path).map_err(shown)?;
        Ok(path)
    }

    /// Returns the message with which the program refuses the cases; `None` if it accepts them.
    pub(crate) fn refusal(&self, cases: &[&Case]) -> Result<Option<Said>, String> {
        let bind: Vec<SocketAddr> = vec![SocketAddr::from(([127, 0, 0, 1], 1)); cases.len() + 1];
        let servers: Vec<Vec<SocketAddr>> =
            cases.iter().map(|case| vec![bind[0]; case.servers.len()]).collect();
        let directory = self.fresh_directory()?;
        let text = configuration(&directory, cases, &bind, &servers, bind[0]);
        let path = directory.join("cfg");
        std::fs::write(&path, &text).map_err(shown)?;
        let output = Command::new(&self.path).arg("-c").arg("-f").arg(&path).output().map_err(shown)?;
        let _ = std::fs::remove_dir_all(&directory);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((!output.status.success()).then(|| Said { named: named(&said, &path, &text), text: said }))
    }

    /// Starts the program, and once more if an address was taken in the meantime.
    fn start(
        &self,
        cases: &[&Case],
        servers: &[Vec<Listening>],
    ) -> Result<(Running, Vec<SocketAddr>), String> {
        let one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let started = (0..3).map(|_| self.try_start(cases, servers)).find(Result::is_ok);
        let started = started.unwrap_or_else(|| self.try_start(cases, servers));
        drop(one_at_a_time);
        started
    }

    fn try_start(
        &self,
        cases: &[&Case],
        servers: &[Vec<Listening>],
    ) -> Result<(Running, Vec<SocketAddr>), String> {
        let logs = UdpSocket::bind(("127.0.0.1", 0)).map_err(shown)?;
        let _ = socket2::SockRef::from(&logs).set_recv_buffer_size(4 << 20);
        let binds = free_addresses(cases.len() + 1).map_err(shown)?;
        let directory = self.fresh_directory()?;
        let addresses: Vec<Vec<SocketAddr>> =
            servers.iter().map(|all| all.iter().map(|server| server.address).collect()).collect();
        let log = logs.local_addr().map_err(shown)?;
        let text = configuration(&directory, cases, &binds, &addresses, log);
        let path = directory.join("cfg");
        std::fs::write(&path, text).map_err(shown)?;
        let said = std::fs::File::create(directory.join("stderr")).map_err(shown)?;
        let child = Command::new(&self.path)
            .args(["-db", "-f"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(shown)?;
        let marker = binds[cases.len()];
        let mut running = Running { child, logs, control: directory.join("socket"), marker };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(marker).is_err() {
            if Instant::now() > end || running.child.try_wait().is_ok_and(|status| status.is_some()) {
                let said = std::fs::read_to_string(directory.join("stderr")).unwrap_or_default();
                return Err(format!("{} does not start on {}: {said}", self.path.display(), path.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok((running, binds))
    }

    /// Runs all cases, some at a time.
    pub(crate) fn run(&self, cases: &[&Case], at_once: usize) -> Result<Vec<Outcome>, String> {
        let listening = |case: &&Case| case.servers.iter().map(Listening::new).collect();
        let servers: std::io::Result<Vec<Vec<Listening>>> = cases.iter().map(listening).collect();
        let servers = servers.map_err(shown)?;
        let (mut running, binds) = self.start(cases, &servers)?;
        let servers = Mutex::new(servers.into_iter().map(Some).collect::<Vec<_>>());
        let outcomes = Mutex::new(vec![Outcome::default(); cases.len()]);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..at_once.min(cases.len()) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.get(number) else { break };
                        let own = servers.lock().unwrap_or_else(PoisonError::into_inner)[number].take();
                        let received = act::run(case, binds[number], own.unwrap_or_default());
                        outcomes.lock().unwrap_or_else(PoisonError::into_inner)[number].received = received;
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut collected = running.settle();
        collected = collected.and_then(|()| running.read_logs(&mut outcomes));
        collected = collected.and_then(|()| running.read_counters(&mut outcomes));
        let path = self.path.display();
        match (running.child.try_wait(), collected) {
            (Ok(None), collected) => collected.map(|()| outcomes).map_err(|error| format!("{path}: {error}")),
            (Ok(Some(status)), _) => Err(format!("{path} ended by itself, {status}: {}", running.said())),
            (Err(error), _) => Err(shown(error)),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Running {
    /// Returns the program's standard error.
    fn said(&self) -> String {
        std::fs::read_to_string(self.control.with_file_name("stderr")).unwrap_or_default()
    }

    fn ask(&self, command: &str) -> Result<String, String> {
        let mut socket = UnixStream::connect(&self.control).map_err(shown)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(shown)?;
        socket.write_all(format!("{command}\n").as_bytes()).map_err(shown)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map_err(shown)?;
        Ok(answer)
    }

    /// Waits until no stream is left.
    fn settle(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let rows = rows(&self.ask("show stat -1 7 -1")?);
            if rows.iter().all(|row| row.get("scur").is_none_or(|count| count.is_empty() || count == "0")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("streams are left after all clients have gone".into())
    }

    /// Reads the log up to the line of a marker request.
    fn read_logs(&mut self, outcomes: &mut [Outcome]) -> Result<(), String> {
        let mut socket = TcpStream::connect(self.marker).map_err(shown)?;
        socket.write_all(b"GET / HTTP/1.1\r\nHost: marker\r\nConnection: close\r\n\r\n").map_err(shown)?;
        self.logs.set_read_timeout(Some(PATIENCE)).map_err(shown)?;
        let mut buffer = vec![0; 65536];
        loop {
            let count = self.logs.recv(&mut buffer).map_err(|error| format!("no log line: {error}"))?;
            let line = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let mut words = line.trim_end().splitn(2 + FIELDS.len(), '|');
            let name = words.next().unwrap_or_default().to_owned();
            if name == "marker" {
                if line.contains("GET /") {
                    return Ok(());
                }
                continue;
            }
            let times = words.next().unwrap_or_default().split('/');
            let log = Log {
                times: times.map(|time| time.parse().unwrap_or(i64::MIN)).collect(),
                fields: words.map(without_number).collect(),
            };
            let number = name.strip_prefix('f').and_then(|number| number.parse::<usize>().ok());
            if let Some(outcome) = number.and_then(|number| outcomes.get_mut(number)) {
                outcome.logs.push(log);
                // Lines of the same request differ in the other fields.
                outcome.logs.sort_by(|one, other| {
                    one.fields.iter().rev().cmp(other.fields.iter().rev()).then(one.times.cmp(&other.times))
                });
            }
        }
    }

    fn read_counters(&self, outcomes: &mut [Outcome]) -> Result<(), String> {
        for row in rows(&self.ask("show stat -1 7 -1")?) {
            let (Some(proxy), Some(service)) = (row.get("pxname"), row.get("svname")) else { continue };
            let Some(number) = proxy.get(1..).and_then(|number| number.parse::<usize>().ok()) else {
                continue;
            };
            let Some(outcome) = outcomes.get_mut(number) else { continue };
            let service = match service.as_str() {
                "FRONTEND" => "fe",
                "BACKEND" => "be",
                name => name,
            };
            for name in COUNTERS {
                let value = row.get(*name).cloned().unwrap_or_default();
                outcome.counters.insert((service.to_owned(), (*name).to_owned()), value);
            }
        }
        Ok(())
    }
}

/// Removes the number from names of proxies, which differs between runs of a case.
fn without_number(word: &str) -> String {
    match word.strip_prefix('b').or(word.strip_prefix('f')) {
        Some(rest) if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) => {
            word[..1].to_owned()
        }
        _ => word.to_owned(),
    }
}

/// Returns the rows of `show stat` by column.
fn rows(answer: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = answer.lines().filter(|line| !line.is_empty());
    let names: Vec<&str> = lines.next().unwrap_or_default().trim_start_matches("# ").split(',').collect();
    let row = |line: &str| {
        let pairs = names.iter().zip(line.split(','));
        pairs.map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect()
    };
    lines.map(row).collect()
}
