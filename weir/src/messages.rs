//! Messages on standard error, in the format that `--messages` or `WEIR_MESSAGES` selects. By default, they are in readable form on
//! a terminal, and otherwise in HAProxy's format.

use std::io::{IsTerminal, Write as _};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock};

use diag::json;
use diag::render::{self, Colour};
use diag::{Diagnostics, Severity, SourceMap};

use crate::version;

/// The style of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageStyle {
    /// For people: with the source line, an underline and advice.
    Rich,
    /// HAProxy's lines.
    Haproxy,
    /// One JSON object per line.
    Json,
}

impl MessageStyle {
    /// The names for `--messages` and `WEIR_MESSAGES`.
    pub(crate) const NAMES: [(&str, Self); 3] =
        [("rich", Self::Rich), ("haproxy", Self::Haproxy), ("json", Self::Json)];

    /// Returns the style with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, style)| *style)
    }

    /// The value of `WEIR_MESSAGES`, if it is not a style.
    pub(crate) fn unknown_in_environment() -> Option<String> {
        std::env::var("WEIR_MESSAGES").ok().filter(|name| !name.is_empty() && Self::named(name).is_none())
    }

    /// Selects the style for the whole process. Only the first call has an effect.
    pub(crate) fn select(self) {
        let _ = STYLE.set(self);
    }

    /// Returns the selected style: the one set by [`Self::select`] or by the environment, or else the one that suits standard
    /// error.
    fn current() -> Self {
        *STYLE.get_or_init(|| {
            let named = std::env::var("WEIR_MESSAGES").ok().and_then(|name| Self::named(&name));
            let fitting = if std::io::stderr().is_terminal() { Self::Rich } else { Self::Haproxy };
            named.unwrap_or(fitting)
        })
    }
}

static STYLE: OnceLock<MessageStyle> = OnceLock::new();

/// The format of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageFormat {
    /// `-q`: print nothing.
    pub(crate) quiet: bool,
    style: MessageStyle,
}

/// The maximum number of messages of one kind.
const MOST: usize = 200;

impl MessageFormat {
    /// Returns the format for the current standard error.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, style: MessageStyle::current() }
    }

    /// Whether the messages appear on a terminal in readable form.
    pub(crate) fn is_for_people(self) -> bool {
        self.style == MessageStyle::Rich && std::io::stderr().is_terminal()
    }

    /// Prints the diagnostics of a configuration.
    pub(crate) fn show(self, diagnostics: &Diagnostics, sources: &SourceMap) {
        let warnings = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning);
        WARNINGS.fetch_add(warnings.count() as u64, Relaxed);
        if self.quiet || diagnostics.is_empty() {
            return;
        }
        let has_colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let colour = if has_colours { Colour::Always } else { Colour::Never };
        let pid = std::process::id();
        let mut out = String::new();
        if self.style == MessageStyle::Haproxy
            && diagnostics.iter().any(|found| found.severity >= Severity::Warning)
        {
            out.push_str(&introduction());
        }
        for diagnostic in diagnostics.iter().take(MOST) {
            match self.style {
                MessageStyle::Rich => out += &(render::terminal(diagnostic, sources, colour) + "\n"),
                MessageStyle::Haproxy => out += &render::line(diagnostic, sources, pid),
                MessageStyle::Json => out += &json::diagnostic(diagnostic, sources, pid),
            }
        }
        if diagnostics.len() > MOST {
            let text = format!("{} more messages are not shown", diagnostics.len() - MOST);
            match self.style {
                MessageStyle::Json => out += &json::process(Severity::Notice, pid, &text),
                MessageStyle::Rich | MessageStyle::Haproxy => out += &(text + "\n"),
            }
        }
        print(&out);
    }

    /// Prints the final message about an unusable configuration.
    pub(crate) fn refuse(self, diagnostics: &Diagnostics, sources: &SourceMap) {
        let names: Vec<&str> = sources.files().map(|(_, file)| file.name()).collect();
        let names = names.join(", ");
        if self.style != MessageStyle::Haproxy {
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
        let pid = std::process::id();
        match self.style {
            MessageStyle::Rich => {
                print(&format!("{}: {}\n", severity.word(), text.trim_end_matches('.')));
            }
            MessageStyle::Json => print(&json::process(severity, pid, text.trim_end_matches('.'))),
            MessageStyle::Haproxy => {
                let serious = matches!(severity, Severity::Alert | Severity::Warning);
                let first = if serious { introduction() } else { String::new() };
                print(&(first + &render::process_line(severity, pid, &text)));
            }
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

/// The path of the executable, read before a `chroot` hides it.
static EXECUTABLE: OnceLock<String> = OnceLock::new();

/// Reads the path of the executable, for messages after a `chroot`.
pub(crate) fn note_executable() -> &'static str {
    EXECUTABLE
        .get_or_init(|| std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default())
}

/// Whether this process has introduced itself.
static INTRODUCED: AtomicBool = AtomicBool::new(false);

/// Returns the lines that HAProxy prints before its first alert or warning.
fn introduction() -> String {
    if INTRODUCED.swap(true, Relaxed) {
        return String::new();
    }
    let pid = std::process::id();
    let path = note_executable();
    let version = format!("haproxy version is {}", version::FULL);
    render::process_line(Severity::Notice, pid, &version)
        + &render::process_line(Severity::Notice, pid, &format!("path to executable is {path}"))
}

/// Messages since the start, for `show startup-logs` and the answer to a reload.
static LOG: Mutex<String> = Mutex::new(String::new());

/// The maximum size of the log.
const KEPT: usize = 1 << 16;

/// Returns the messages since the start.
pub(crate) fn log() -> String {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
}

/// Whether the process is in service and must not wait for the reader of standard error.
static SERVING: AtomicBool = AtomicBool::new(false);

/// From now on, messages that standard error does not accept immediately are only kept in [`log`].
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
        let _ = std::io::stderr().lock().write_all(&base::raw::bytes_of(text));
    }
}

/// Writes to standard output. If it was closed (`| head`), the error is ignored.
pub(crate) fn output(text: &str) {
    let _ = std::io::stdout().lock().write_all(&base::raw::bytes_of(text));
}

/// Prints a line to standard output.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    output(&format!("{line}\n"));
}
