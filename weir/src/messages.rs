//! Messages on standard error: in readable form if it is a terminal, otherwise in HAProxy's format.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use diag::render::{self, Colour};
use diag::{Diagnostics, Severity, SourceMap};

use crate::version;

/// The format of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageFormat {
    /// `-q`: print nothing.
    pub(crate) quiet: bool,
    terminal: bool,
}

/// Maximum number of messages of one kind.
const MOST: usize = 200;

impl MessageFormat {
    /// Returns the format for the current standard error.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, terminal: std::io::stderr().is_terminal() }
    }

    /// Prints the diagnostics of a configuration.
    pub(crate) fn show(self, diagnostics: &Diagnostics, sources: &SourceMap) {
        let warnings = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning);
        WARNINGS.fetch_add(warnings.count() as u64, Relaxed);
        if self.quiet || diagnostics.is_empty() {
            return;
        }
        let colour = if self.terminal && std::env::var_os("NO_COLOR").is_none() {
            Colour::Always
        } else {
            Colour::Never
        };
        let pid = std::process::id();
        let mut out = String::new();
        if !self.terminal && diagnostics.iter().any(|found| found.severity >= Severity::Warning) {
            out.push_str(&introduction());
        }
        for diagnostic in diagnostics.iter().take(MOST) {
            if self.terminal {
                out.push_str(&render::terminal(diagnostic, sources, colour));
                out.push('\n');
            } else {
                out.push_str(&render::line(diagnostic, sources, pid));
            }
        }
        if diagnostics.len() > MOST {
            let _ = writeln!(out, "{} more messages are not shown", diagnostics.len() - MOST);
        }
        print(&out);
    }

    /// Prints the final message about an unusable configuration.
    pub(crate) fn refuse(self, diagnostics: &Diagnostics, sources: &SourceMap) {
        let names: Vec<&str> = sources.files().map(|(_, file)| file.name()).collect();
        let names = names.join(", ");
        if self.terminal {
            let count = diagnostics.error_count();
            let errors = if count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
            let within = if names.is_empty() { String::new() } else { format!(" in {names}") };
            self.say(Severity::Alert, &format!("the configuration cannot be used: {errors}{within}"));
            return;
        }
        if !names.is_empty() {
            self.say(Severity::Alert, &format!("config : Error(s) found in configuration file : {names}"));
        }
        self.say(Severity::Alert, "config : Fatal errors found in configuration.");
    }

    /// Prints a message about the process or the configuration as a whole.
    pub(crate) fn say(self, severity: Severity, text: &str) {
        if severity == Severity::Warning {
            WARNINGS.fetch_add(1, Relaxed);
        }
        if self.quiet {
            return;
        }
        let text = without_numbers(text);
        if self.terminal {
            let text = text.trim_end_matches('.');
            print(&format!("{}: {text}\n", severity.word()));
        } else {
            let serious = matches!(severity, Severity::Alert | Severity::Warning);
            let first = if serious { introduction() } else { String::new() };
            print(&(first + &render::process_line(severity, std::process::id(), &text)));
        }
    }
}

/// Removes the numbers that Rust appends to the system's error messages.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    out
}

/// The number of warnings so far, including those suppressed by `-q`.
static WARNINGS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of warnings so far.
pub(crate) fn warnings() -> u64 {
    WARNINGS.load(Relaxed)
}

/// Whether this process has introduced itself.
static INTRODUCED: AtomicBool = AtomicBool::new(false);

/// Returns the lines that HAProxy prints before its first alert or warning.
fn introduction() -> String {
    if INTRODUCED.swap(true, Relaxed) {
        return String::new();
    }
    let pid = std::process::id();
    let path = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let version = format!("haproxy version is {}", version::FULL);
    render::process_line(Severity::Notice, pid, &version)
        + &render::process_line(Severity::Notice, pid, &format!("path to executable is {path}"))
}

/// Messages since the start, for `show startup-logs` and the answer to a reload.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Maximum size of the log.
const KEPT: usize = 1 << 16;

/// Returns the messages since the start.
pub(crate) fn log() -> String {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
}

/// Whether the process is in service and must not wait for the reader of standard error.
static SERVING: AtomicBool = AtomicBool::new(false);

/// From this call on, messages that standard error does not accept at once are only kept in [`log`].
pub(crate) fn serve() {
    SERVING.store(true, Relaxed);
}

/// Writes to standard error; if that is closed, the message is lost.
fn print(text: &str) {
    let mut log = LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if log.len() + text.len() <= KEPT {
        log.push_str(text);
    }
    drop(log);
    if SERVING.load(Relaxed) {
        base::output::to_standard_error(text);
    } else {
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Writes to standard output. It may have been closed (`| head`), which is ignored.
pub(crate) fn output(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Prints a line to standard output.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    output(&format!("{line}\n"));
}
