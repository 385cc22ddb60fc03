//! One of the two programs: determines the lines that it refuses, starts it with a configuration, sends requests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::diff::expression::Case;

/// How long a program may take to listen or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Peer {
    program: PathBuf,
    directory: PathBuf,
    running: Option<Child>,
    port: u16,
}

/// The configuration before the lines of the cases; `{port}` is filled in.
const HEAD: &str = "global
    nbthread 1
    tune.bufsize 262144
    tune.http.maxhdr 2000
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
    option http-buffer-request
userlist people
    group all users user
    user user insecure-password pass
frontend fe
    bind 127.0.0.1:{port} name here
    capture request header x-a len 20
    capture request header x-b len 200
    http-request set-var(txn.text) str(abc)
    http-request set-var(txn.number) int(7)
";

/// Decodes a result.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len()).step_by(2).filter_map(byte).collect()
}

/// Formats a result for people.
pub(crate) fn readable(hex: &str) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes(hex)))
}

/// Returns the configuration with some lines, which set the variables with these numbers, and the number of the first line.
fn config(lines: &[String], numbers: &[usize], port: u16) -> (String, usize) {
    let mut text = HEAD.replace("{port}", &port.to_string());
    let first = text.lines().count() + 1;
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    for number in numbers {
        let _ = writeln!(
            text,
            "    http-after-response set-header x-{number} \"<%[var(txn.v{number}),hex]>\" if {{ var(txn.v{number}) -m found }}"
        );
    }
    text.push_str("    http-request return status 200\n");
    (text, first)
}

impl Peer {
    pub(crate) fn new(program: &Path) -> Self {
        let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let directory = std::env::temp_dir().join(format!("weir-diff-{}-{name}", std::process::id()));
        Self { program: program.into(), directory, running: None, port: 0 }
    }

    fn write(&self, text: &str) -> Result<PathBuf, String> {
        std::fs::create_dir_all(&self.directory).map_err(|error| error.to_string())?;
        let path = self.directory.join("diff.cfg");
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// Returns the numbers of the cases that the program refuses, with its message. haproxy stops reading after some errors, so it
    /// is run again.
    pub(crate) fn refused(&self, cases: &[Case]) -> Result<HashMap<usize, String>, String> {
        let mut refused = HashMap::new();
        loop {
            let left: Vec<usize> = (0..cases.len()).filter(|number| !refused.contains_key(number)).collect();
            let more = self.refused_of(cases, &left)?;
            if more.is_empty() {
                return Ok(refused);
            }
            refused.extend(more);
        }
    }

    fn refused_of(&self, cases: &[Case], left: &[usize]) -> Result<HashMap<usize, String>, String> {
        let lines: Vec<String> = left.iter().map(|number| cases[*number].line(*number)).collect();
        let (text, first) = config(&lines, left, 1);
        let path = self.write(&text)?;
        let output = Command::new(&self.program).arg("-c").arg("-f").arg(&path).output();
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let mut refused = HashMap::new();
        for line in said.lines().filter(|line| line.contains("[ALERT]")) {
            let Some(at) = line.find("diff.cfg:") else { continue };
            let rest = &line[at + "diff.cfg:".len()..];
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let place = digits.parse::<usize>().ok().and_then(|line| line.checked_sub(first));
            if let Some(number) = place.and_then(|place| left.get(place)) {
                refused.entry(*number).or_insert_with(|| rest.to_owned());
            }
        }
        if refused.is_empty() && !output.status.success() {
            return Err(format!("{} refuses the configuration: {said}", self.program.display()));
        }
        Ok(refused)
    }

    /// Starts the program, after stopping a previous run.
    pub(crate) fn start(&mut self, cases: &[Case]) -> Result<(), String> {
        self.stop();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        self.port = free.map_err(|error| error.to_string())?.port();
        let numbers: Vec<usize> = (0..cases.len()).collect();
        let lines: Vec<String> = numbers.iter().map(|number| cases[*number].line(*number)).collect();
        let path = self.write(&config(&lines, &numbers, self.port).0)?;
        let child = Command::new(&self.program)
            .arg("-f")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        self.running = Some(child);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            let ended = self.running.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() {
                break;
            }
            std::thread::yield_now();
        }
        let kept = std::env::temp_dir().join("weir-diff.cfg");
        let _ = std::fs::copy(&path, &kept);
        Err(format!("{} does not listen; see {}", self.program.display(), kept.display()))
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a request; returns the results by the number of their case, in hexadecimal digits.
    pub(crate) fn ask(&self, request: &[u8]) -> Result<HashMap<usize, String>, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.program.display());
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        socket.write_all(request).map_err(failed)?;
        let mut answer = Vec::new();
        // The response has no body.
        while !answer.ends_with(b"\r\n\r\n") {
            let mut part = [0; 65536];
            match socket.read(&mut part).map_err(failed)? {
                0 => break,
                length => answer.extend_from_slice(&part[..length]),
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        if !answer.starts_with("HTTP/1.1 200") {
            let line = answer.lines().next().unwrap_or("nothing").to_owned();
            return Err(format!(
                "{} answers {line} to {:?}",
                self.program.display(),
                String::from_utf8_lossy(request)
            ));
        }
        let result = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            let number = name.strip_prefix("x-")?.parse().ok()?;
            Some((number, value.trim().trim_start_matches('<').trim_end_matches('>').to_owned()))
        };
        Ok(answer.lines().filter_map(result).collect())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
