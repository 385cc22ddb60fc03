//! Runs the commands of a page in one shell and compares their output.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use weir_tests::{PATIENCE, Scratch, eventually, program, scratch};

use crate::Page;
use crate::check::{in_directory, write};
use crate::compare::is_like;
use crate::page::{BlockKind, Command, commands};
use crate::substitute::Substitutes;

/// The variable by which processes that a page started are found.
const MARK: &str = "WEIR_DOCS_PAGE";

/// Programs without which a page is skipped.
const TOOLS: [&str; 7] = ["curl", "haproxy", "jq", "openssl", "python3", "socat", "ss"];

/// Commands that are repeated until their output is as expected, because they wait for something: a
/// server that starts, a check, a log line. They change nothing that matters if repeated.
const REPEATABLE: [&str; 14] = [
    "awk ",
    "cat ",
    "curl ",
    "echo \"show ",
    "for ",
    "grep ",
    "head ",
    "jq ",
    "ls ",
    "openssl ",
    "ps ",
    "ss ",
    "tail ",
    "test ",
];

/// Runtime commands, sent with `weir ctl`, that are repeated as well.
const REPEATABLE_COMMANDS: [&str; 2] = [" explain ", " show "];

/// Runs all console blocks of a page in order.
///
/// # Panics
/// A command fails, or prints something else than the page shows.
pub(crate) fn run(page: &Page) {
    let commands: Vec<Command> =
        page.blocks.iter().filter(|block| block.kind == BlockKind::Console).flat_map(commands).collect();
    if let Some(tool) = TOOLS.iter().find(|tool| uses(&commands, tool) && !is_installed(tool)) {
        eprintln!("{}: skipped, {tool} is missing", page.path);
        return;
    }
    let directory = scratch("docs");
    let files = || page.blocks.iter().filter(|block| block.file.is_some());
    let texts = files().map(|block| &*block.text).chain(commands.iter().map(|command| &*command.text));
    let substitutes = Substitutes::new(&directory, texts);
    for block in files() {
        let name = block.file.as_deref().unwrap_or_default();
        let path = in_directory(&directory, &substitutes.paths(name));
        write(&path, &substitutes.apply(&block.text));
    }
    for path in ["bin", "etc/haproxy", "etc/weir", "run/haproxy", "run/weir", "var/lib", "var/log"] {
        std::fs::create_dir_all(directory.join(path)).expect("the directory takes directories");
    }
    symlink(program(), directory.join("bin/weir")).expect("the directory takes links");
    write(&directory.join(".curlrc"), "no-progress-meter\n");
    let mut shell = Shell::start(directory);
    for command in &commands {
        shell.expect(&page.path, command, &substitutes);
    }
}

fn uses(commands: &[Command], tool: &str) -> bool {
    let has = |text: &str| text.split_whitespace().any(|word| word == tool);
    commands.iter().any(|command| has(&command.text))
}

fn is_installed(tool: &str) -> bool {
    let found = Process::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// A shell in the directory of a page. Dropping it ends the shell and everything that it started.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    directory: Scratch,
    count: usize,
}

impl Shell {
    fn start(directory: Scratch) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Process::new("bash")
            .args(["--norc", "--noprofile"])
            .current_dir(&*directory)
            .env("PATH", format!("{}:{path}", directory.join("bin").display()))
            .env("LC_ALL", "C.UTF-8")
            // The progress display is for terminals.
            .env("CURL_HOME", &*directory)
            .env(MARK, &*directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash runs");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(b"exec 2>&1\n").expect("the shell reads");
        let (sender, output) = channel();
        let reader = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in reader.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Self { child, input, output, directory, count: 0 }
    }

    /// Runs a command until it prints the expected output.
    fn expect(&mut self, path: &str, command: &Command, substitutes: &Substitutes) {
        let is_repeatable = REPEATABLE.iter().any(|start| command.text.starts_with(start))
            || command.text.starts_with("weir ctl ")
                && REPEATABLE_COMMANDS.iter().any(|word| command.text.contains(word));
        let (mut output, mut status) = (String::new(), String::new());
        let mut is_as_shown = || {
            let text = substitutes.apply(&command.text);
            let text = if is_for_terminal(command) { on_terminal(&text) } else { in_background(&text) };
            let (lines, ended) = self.run(&text);
            (output, status) = (substitutes.revert(&lines.join("\n")), ended);
            match command.output.iter().all(|line| line.is_empty()) {
                true => status == "0",
                false => is_like(&command.output, &output.lines().collect::<Vec<_>>()),
            }
        };
        let passes = if is_repeatable { eventually(is_as_shown) } else { is_as_shown() };
        assert!(
            passes,
            "{path}:{}: `{}` ended with {status} and printed\n{output}\ninstead of\n{}\n{}",
            command.line,
            command.text,
            command.output.join("\n"),
            self.jobs()
        );
    }

    /// The output of a command, and its exit status.
    fn run(&mut self, command: &str) -> (Vec<String>, String) {
        self.count += 1;
        let marker = format!("end-of-command-{}", self.count);
        let text = format!("{{ {command}\n}} </dev/null; printf '\\n%s %s\\n' {marker} $?\n");
        self.input.write_all(text.as_bytes()).expect("the shell reads");
        let deadline = Instant::now() + 3 * PATIENCE;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.output.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("`{command}` does not end: {lines:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("`{command}` ended the shell: {lines:?}"),
            };
            if let Some(status) = line.strip_prefix(&marker) {
                // The line feed before the marker.
                if lines.last().is_some_and(|last: &String| last.is_empty()) {
                    lines.pop();
                }
                return (lines, status.trim().to_owned());
            }
            lines.push(line.trim_end_matches('\r').to_owned());
        }
    }

    /// The last lines that commands in the background printed.
    fn jobs(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join("jobs.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Whether a page shows the layout that messages of `weir` have on a terminal.
fn is_for_terminal(command: &Command) -> bool {
    let is_message =
        |line: &String| ["error: ", "warning: ", "note: "].iter().any(|start| line.starts_with(start));
    command.text.starts_with("weir ") && command.output.first().is_some_and(is_message)
}

/// A command with a terminal as its standard output and error.
fn on_terminal(command: &str) -> String {
    let quoted = command.replace('\'', "'\\''");
    format!("NO_COLOR=1 script -qec '{quoted}' /dev/null")
}

/// A command that runs in the background prints into a file, not into the output of others.
fn in_background(command: &str) -> String {
    let Some(start) = command.trim_end().strip_suffix('&').filter(|start| !start.ends_with('&')) else {
        return command.to_owned();
    };
    let file = format!("\"${MARK}/jobs.log\"");
    let output = if start.contains('>') { String::new() } else { format!(">>{file}") };
    let errors = if start.contains("2>") { String::new() } else { format!("2>>{file}") };
    format!("{start} {output} {errors} &")
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A process may be starting another one.
        let is_over = eventually(|| {
            let started = started_in(&self.directory);
            for pid in &started {
                let _ = Process::new("kill").args(["-KILL", pid]).output();
            }
            let _ = self.child.try_wait();
            started.is_empty()
        });
        if !is_over {
            eprintln!("processes of {} are still there", self.directory.display());
        }
    }
}

/// The processes with the mark of a page. Zombies have no environment.
fn started_in(directory: &Path) -> Vec<String> {
    let mark = format!("{MARK}={}\0", directory.display());
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let has_mark = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|window| window == mark.as_bytes())
    };
    pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).filter(has_mark).collect()
}
