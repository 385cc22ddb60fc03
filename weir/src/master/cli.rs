//! The master's command socket (`-S`; management manual, 9.4): the master's own commands, and commands forwarded to a worker (`@1
//! show info`, `@!4711 …`, `@@1`). There is one thread per connection, because only operators use this socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use base::raw;
use control::AccessLevel;
use control::socket::master::required_level;
use net::listen::{self, ListenOptions, Rights};

use crate::master::{Master, children};
use crate::{messages, version};

/// The maximum number of connections.
const MOST: usize = 32;

/// The time limit for idle connections and for the answer of a worker.
const PATIENCE: Duration = Duration::from_secs(600);

/// Returns the output of `help`.
fn help() -> String {
    let mut text = "The following commands are valid at this level:\n".to_owned();
    for row in control::socket::master::COMMANDS {
        text.push_str(&format!("  {:<28} : {}\n", format!("{} {}", row.words, row.usage), row.doc));
    }
    text
}

/// Binds the socket named by `-S`: an address, then options of `bind` lines, separated by commas.
pub(super) fn bind(text: &str) -> Result<OwnedFd, String> {
    let wrong = |what: &str| format!("-S {text}: {what}");
    let mut words = text.split(',');
    let address = words.next().unwrap_or_default();
    let mut rights = Rights::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| wrong(&format!("'{word}' expects a value")));
        let number =
            |text: &str, radix| u32::from_str_radix(text, radix).map_err(|_| wrong("invalid number"));
        match word {
            "mode" => rights.mode = Some(number(value()?, 8)?),
            "uid" => rights.uid = Some(number(value()?, 10)?),
            "gid" => rights.gid = Some(number(value()?, 10)?),
            // Parsed again when connections are served.
            "level" => level_of(value()?).map(|_| ()).ok_or_else(|| wrong("unknown level"))?,
            other => return Err(wrong(&format!("'{other}' is not supported yet"))),
        }
    }
    let bound = if let Some(number) = address.strip_prefix("fd@") {
        let number = number.parse().map_err(|_| wrong("invalid file descriptor number"))?;
        net::sys::duplicate_inherited(number)
    } else if address.starts_with(['/', '.']) || address.starts_with("unix@") {
        listen::unix(Path::new(address.strip_prefix("unix@").unwrap_or(address)), 16, rights)
    } else {
        let bare = ["ipv4@", "ipv6@"].iter().find_map(|prefix| address.strip_prefix(prefix));
        let bare = bare.unwrap_or(address);
        let address = if let Some(port) = bare.strip_prefix(':').or_else(|| bare.strip_prefix("*:")) {
            format!("0.0.0.0:{port}")
        } else {
            bare.to_owned()
        };
        let address = address.parse().map_err(|_| wrong("not an address"))?;
        listen::tcp(address, &ListenOptions { backlog: 16, ..ListenOptions::default() })
    };
    let socket = bound.map_err(|error| wrong(&format!("cannot bind socket ({error})")))?;
    rustix::io::ioctl_fionbio(&socket, false).map_err(|error| wrong(&error.to_string()))?;
    Ok(socket)
}

fn level_of(word: &str) -> Option<AccessLevel> {
    [AccessLevel::User, AccessLevel::Operator, AccessLevel::Admin]
        .into_iter()
        .find(|level| level.name() == word)
}

/// Serves the socket, if there is one, until the master re-executes itself.
pub(super) fn start(master: &Master) {
    let Some(Ok(listener)) = master.state().cli.as_ref().map(OwnedFd::try_clone) else { return };
    let options = master.args.master_socket.clone().unwrap_or_default();
    let level = options.split(',').skip_while(|word| *word != "level").nth(1).and_then(level_of);
    let level = level.unwrap_or(AccessLevel::Admin);
    let master = master.clone();
    std::thread::spawn(move || {
        let open = std::sync::Arc::new(());
        loop {
            let Ok(socket) = rustix::net::accept_with(&listener, rustix::net::SocketFlags::CLOEXEC) else {
                // The most likely cause is a shortage of descriptors: a later attempt may succeed.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if std::sync::Arc::strong_count(&open) > MOST {
                continue;
            }
            let (master, counted) = (master.clone(), open.clone());
            std::thread::spawn(move || {
                // The client may have closed the connection.
                let _ = MasterSession::new(master, level, socket).and_then(MasterSession::run);
                drop(counted);
            });
        }
    });
}

/// The arguments of `set severity-output`.
const SEVERITIES: [&str; 3] = ["none", "number", "string"];

/// The recipient of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CliTarget {
    Master,
    Worker(i32),
}

struct MasterSession {
    master: Master,
    level: AccessLevel,
    /// A stream of either family; it is only read and written.
    input: BufReader<UnixStream>,
    output: UnixStream,
    target: CliTarget,
    interactive: bool,
    prompt: bool,
    /// Commands that set a mode, sent before each forwarded command.
    modes: [(&'static str, bool); 2],
    /// The value of `set severity-output` for forwarded commands.
    severity: Option<&'static str>,
}

/// Returns whether a command is about the session itself, regardless of its target.
fn is_of_session(command: &str) -> bool {
    let mut words = command.split_whitespace();
    match words.next().unwrap_or_default() {
        "quit" | "prompt" | "expert-mode" | "experimental-mode" | "mcli-debug-mode" | "operator" | "user" => {
            true
        }
        "set" => words.next() == Some("severity-output"),
        _ => false,
    }
}

/// How to continue after a command.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Close,
}

impl MasterSession {
    fn new(master: Master, level: AccessLevel, socket: OwnedFd) -> io::Result<Self> {
        let output = UnixStream::from(socket);
        output.set_read_timeout(Some(PATIENCE))?;
        output.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            master,
            level,
            input: BufReader::new(output.try_clone()?),
            output,
            target: CliTarget::Master,
            interactive: false,
            prompt: false,
            modes: [("expert-mode", false), ("experimental-mode", false)],
            severity: None,
        })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            let mut line = Vec::new();
            let longest = 1 << 17;
            if Read::by_ref(&mut self.input).take(longest).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let line = raw::text_of(&line).trim_end_matches(['\r', '\n']).to_owned();
            let mut at = 0;
            for command in commands(&line) {
                if command.trim_start().starts_with("@@") {
                    return self.hand_over(line[at..].trim_start());
                }
                at += command.len() + 1;
                if self.command(command.trim())? == Then::Close {
                    return Ok(());
                }
                self.show_prompt()?;
            }
            if !self.interactive {
                return self.output.shutdown(std::net::Shutdown::Write);
            }
        }
    }

    fn say(&mut self, text: &str) -> io::Result<Then> {
        self.output.write_all(&raw::bytes_of(&format!("{text}\n")))?;
        Ok(Then::GoOn)
    }

    fn command(&mut self, text: &str) -> io::Result<Then> {
        if let Some(rest) = text.strip_prefix('@') {
            let (name, command) = rest.split_once(' ').unwrap_or((rest, ""));
            let Some(target) = self.find(name) else {
                return self.say(&format!("Can't find the target PID matching the prefix '@{name}'"));
            };
            return match (command.trim(), target) {
                ("", _) => {
                    self.target = target;
                    Ok(Then::GoOn)
                }
                (command, CliTarget::Worker(pid)) => self.pass_on(pid, command),
                (command, CliTarget::Master) => self.own(command),
            };
        }
        match self.target {
            CliTarget::Worker(pid) if !is_of_session(text) => self.pass_on(pid, text),
            _ => self.own(text),
        }
    }

    /// Parses a target: `1` is the worker in service, `!PID` any process, and no text the master.
    fn find(&self, name: &str) -> Option<CliTarget> {
        let state = self.master.state();
        let worker = match name.strip_prefix('!') {
            Some(pid) => {
                let pid: i32 = pid.parse().ok()?;
                state.children.iter().find(|child| child.pid == pid)
            }
            None if matches!(name, "" | "0" | "master") => return Some(CliTarget::Master),
            None => state.current().filter(|_| name == "1"),
        };
        worker.map(|child| CliTarget::Worker(child.pid))
    }

    fn connect(&self, pid: i32) -> io::Result<UnixStream> {
        let state = self.master.state();
        let child = state.children.iter().find(|child| child.pid == pid);
        let stream = child.ok_or(io::ErrorKind::NotFound)?.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Returns commands to send before the client's, so that the worker has the same access level as this session.
    fn preface(&self) -> Vec<String> {
        let modes = self.modes.iter().filter(|(_, on)| *on).map(|(name, _)| format!("{name} on"));
        let level = (self.level != AccessLevel::Admin).then(|| self.level.name().to_owned());
        modes.chain(level).collect()
    }

    /// Runs one command in a worker, with its payload lines, if any.
    fn pass_on(&mut self, pid: i32, command: &str) -> io::Result<Then> {
        let Ok(mut worker) = self.connect(pid) else {
            return self.say("Can't connect to the target process.\n");
        };
        let mut preface = self.preface();
        preface.extend(self.severity.map(|severity| format!("set severity-output {severity}")));
        let mut text: String = preface.iter().map(|command| format!("{command};")).collect();
        text.push_str(command);
        text.push('\n');
        if let Some((_, end)) = command.rsplit_once("<<") {
            loop {
                let mut line = Vec::new();
                if self.input.read_until(b'\n', &mut line)? == 0 {
                    return Ok(Then::Close);
                }
                let line = raw::text_of(&line);
                text.push_str(&line);
                if line.trim_end_matches(['\r', '\n']) == end.trim() {
                    break;
                }
            }
        }
        worker.write_all(&raw::bytes_of(&text))?;
        worker.shutdown(std::net::Shutdown::Write)?;
        // Each of the preceding commands has answered with an empty line.
        let mut skipped = vec![0; preface.len()];
        worker.read_exact(&mut skipped)?;
        io::copy(&mut worker, &mut self.output)?;
        Ok(Then::GoOn)
    }

    /// `@@1 …`: passes the connection to the worker, which serves it from here on.
    fn hand_over(mut self, line: &str) -> io::Result<()> {
        let rest = line.trim_start_matches('@');
        let (name, commands) = rest.split_once(' ').unwrap_or((rest, ""));
        let Some(CliTarget::Worker(pid)) = self.find(name) else {
            let wrong = format!("Can't find the target PID matching the prefix '@{name}'");
            return self.say(&wrong).map(|_| ());
        };
        let mut worker = self.connect(pid)?;
        let preface = self.preface();
        let mut text: String = preface.iter().map(|command| format!("{command};")).collect();
        text.push_str(if commands.is_empty() { "prompt i" } else { commands.trim() });
        text.push('\n');
        worker.write_all(&raw::bytes_of(&text))?;
        let mut skipped = vec![0; preface.len() + usize::from(commands.is_empty())];
        worker.read_exact(&mut skipped)?;
        let mut towards = worker.try_clone()?;
        let mut input = self.input;
        std::thread::spawn(move || {
            let _ = io::copy(&mut input, &mut towards);
            let _ = towards.shutdown(std::net::Shutdown::Write);
        });
        io::copy(&mut worker, &mut self.output)?;
        self.output.shutdown(std::net::Shutdown::Both)
    }

    fn own(&mut self, text: &str) -> io::Result<Then> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [] => Ok(Then::GoOn),
            ["quit"] => Ok(Then::Close),
            ["help", ..] => self.say(&help()),
            ["show", "proc"] => {
                let text = processes(&self.master);
                self.say(&text)
            }
            ["show", "proc", ..] => self.say("'show proc' takes no argument.\n"),
            ["show", "env", ref name @ ..] => {
                let text = environment(&self.master, name.first().copied());
                self.say(&text)
            }
            ["show", "cli", "sockets"] => {
                let address = self.master.args.master_socket.as_deref().unwrap_or_default();
                let address = address.split(',').next().unwrap_or_default();
                self.say(&format!("# socket lvl processes\n{address} {} master\n", self.level.name()))
            }
            ["echo", ..] => {
                let echoed = text.trim_start().strip_prefix("echo").unwrap_or_default().trim_start();
                self.say(&format!("{echoed}\n"))
            }
            ["show", "version"] => {
                self.say(&format!("{}-weir-{}\n", version::SPOKEN, env!("CARGO_PKG_VERSION")))
            }
            ["show", "startup-logs"] => self.say(&messages::log()),
            ["show", "cli", "level"] => self.say(&format!("{}\n", self.level.name())),
            [first, ..] if self.level < required_level(first) => self.say("Permission denied\n"),
            [way @ ("reload" | "hard-reload"), ..] => {
                let client = OwnedFd::from(self.output.try_clone()?);
                self.master.request(way == "hard-reload", client);
                Ok(Then::Close)
            }
            ["operator"] => self.lower(AccessLevel::Operator),
            ["user"] => self.lower(AccessLevel::User),
            ["prompt", ref mode @ ..] => {
                let mode = mode.first().copied();
                self.interactive = match mode {
                    Some("n") => false,
                    Some("i" | "p") => true,
                    _ => !self.interactive,
                };
                self.prompt = self.interactive && mode != Some("i");
                Ok(Then::GoOn)
            }
            ["set", "severity-output", ref words @ ..] => {
                let known = SEVERITIES.into_iter().find(|known| words.first() == Some(known));
                let Some(severity) = known else {
                    return self.say("one of 'none', 'number', 'string' is a required argument");
                };
                self.severity = Some(severity);
                Ok(Then::GoOn)
            }
            [mode @ ("expert-mode" | "experimental-mode" | "mcli-debug-mode")] => {
                let on = self.modes.iter().any(|(name, on)| *name == mode && *on);
                self.say(&format!("{mode} is {}\n", if on { "ON" } else { "OFF" }))
            }
            [mode @ ("expert-mode" | "experimental-mode"), word @ ("on" | "off")] => {
                for (_, on) in self.modes.iter_mut().filter(|(name, _)| *name == mode) {
                    *on = word == "on";
                }
                Ok(Then::GoOn)
            }
            ["mcli-debug-mode", ..] => {
                self.say("'mcli-debug-mode' is not supported: the master has no worker state to inspect.\n")
            }
            _ => self.say(&format!("Unknown command: '{text}'.\n{}", help())),
        }
    }

    fn lower(&mut self, level: AccessLevel) -> io::Result<Then> {
        if self.level < level {
            return self.say("Permission denied\n");
        }
        self.level = level;
        self.modes.iter_mut().for_each(|(_, on)| *on = false);
        Ok(Then::GoOn)
    }

    fn show_prompt(&mut self) -> io::Result<()> {
        if !self.prompt {
            return Ok(());
        }
        let who = match self.target {
            CliTarget::Worker(pid) => pid.to_string(),
            CliTarget::Master if self.master.state().failed > 0 => "master[ReloadFailed]".to_owned(),
            CliTarget::Master => "master".to_owned(),
        };
        let flags: String = self
            .modes
            .iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| if *name == "expert-mode" { 'e' } else { 'x' })
            .collect();
        let flags = if flags.is_empty() { flags } else { format!("({flags})") };
        self.output.write_all(format!("{who}{flags}> ").as_bytes())
    }
}

/// Splits a line at semicolons that are not preceded by a backslash.
fn commands(line: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, character) in line.char_indices() {
        if character == ';' && !escaped {
            all.push(&line[start..at]);
            start = at + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    all.push(&line[start..]);
    all
}

/// `show env`: the environment in which the master was started and which a reload sees, together with the variables of HAProxy's
/// masters (configuration manual, 2.3).
fn environment(master: &Master, name: Option<&str>) -> String {
    let mut environment = crate::check::boot(&master.args).environment;
    environment.unset(children::VARIABLE);
    environment.set("HAPROXY_MWORKER", "1");
    if let Some(words) = &master.args.master_socket {
        let address = words.split(',').next().unwrap_or_default();
        let family = if address.contains('@') {
            ""
        } else if address.starts_with(['/', '.']) {
            "unix@"
        } else {
            "ipv4@"
        };
        environment.set("HAPROXY_MASTER_CLI", &format!("{family}{address}"));
    }
    let wanted = environment.iter().filter(|(key, _)| name.is_none_or(|name| *key == name));
    let out: String = wanted.map(|(key, value)| format!("{key}={value}\n")).collect();
    if out.is_empty() && name.is_some() { "Variable not found\n".to_owned() } else { out }
}

/// `show proc`.
fn processes(master: &Master) -> String {
    let state = master.state();
    let now = children::now();
    let version = format!("{}-weir-{}", version::SPOKEN, env!("CARGO_PKG_VERSION"));
    let row = |pid: String, kind: &str, reloads: String, since: u64| {
        let up = now.saturating_sub(since);
        let up = format!("{}d{:02}h{:02}m{:02}s", up / 86_400, up / 3600 % 24, up / 60 % 60, up % 60);
        format!("{pid:<15} {kind:<15} {reloads:<15} {up:<15} {version:<15}\n")
    };
    let mut out = format!(
        "{:<15} {:<15} {:<15} {:<15} {:<15}\n",
        "#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"
    );
    let reloads = format!("{} [failed: {}]", state.reloads, state.failed);
    out.push_str(&row(std::process::id().to_string(), "master", reloads, state.started));
    for (title, leaving) in [("# workers\n", false), ("# old workers\n", true)] {
        let of_kind: Vec<_> = state.children.iter().filter(|child| child.leaving == leaving).collect();
        if leaving && of_kind.is_empty() {
            continue;
        }
        out.push_str(title);
        for child in of_kind {
            out.push_str(&row(child.pid.to_string(), "worker", child.reloads.to_string(), child.started));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_unescaped_semicolons() {
        assert_eq!(commands("@1 show info; show proc"), ["@1 show info", " show proc"]);
        assert_eq!(commands("a\\;b;c"), ["a\\;b", "c"]);
        assert_eq!(commands(""), [""]);
    }

    #[test]
    fn socket_address_may_have_bind_options() {
        let path = scratch::Scratch::new("mcli").file("sock");
        assert!(bind(&format!("{path},level,user,mode,600")).is_ok());
        assert!(bind("127.0.0.1:0").is_ok());
        for wrong in
            [format!("{path},level,king"), format!("{path},mode"), format!("{path},ssl"), "x".to_owned()]
        {
            assert!(bind(&wrong).is_err(), "{wrong}");
        }
    }
}
