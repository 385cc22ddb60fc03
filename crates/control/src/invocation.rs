//! What a command of the runtime socket is given and what it answers: the table, the connection and
//! the commands themselves work by these.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use state::ring::RingReader;

use crate::access::{AccessLevel, SeverityOutput};
use crate::anonymous::Anonymous;
use crate::process::Runtime;

/// How serious a message is, with its number and word (`set severity-output`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    Notice,
    Info,
}

impl Severity {
    /// Number and word of syslog.
    pub(crate) fn names(self) -> (u8, &'static str) {
        match self {
            Self::Error => (3, "err"),
            Self::Warning => (4, "warning"),
            Self::Notice => (5, "notice"),
            Self::Info => (6, "info"),
        }
    }
}

/// What a command answers.
pub(crate) enum CommandReply {
    /// Nothing: it is done.
    Done,
    /// Output.
    Text(String),
    /// The same, of bytes that need not be text.
    Bytes(Vec<u8>),
    /// A message that may be shown with its severity.
    Message(Severity, String),
    /// Long output, made piece by piece so that no piece holds a worker for long.
    Pieces(Box<dyn Iterator<Item = String>>),
    /// What is in a ring; with `true` also what comes, until the client says anything or goes.
    Follow(Follow, bool),
    /// An answer that must be waited for.
    Later(Pin<Box<dyn Future<Output = CommandReply>>>),
    /// Close the connection.
    Quit,
}

/// An error message.
pub(crate) fn error(text: impl Into<String>) -> CommandReply {
    CommandReply::Message(Severity::Error, text.into())
}

/// A message that something is otherwise than was asked for, or changed.
pub(crate) fn warning(text: impl Into<String>) -> CommandReply {
    CommandReply::Message(Severity::Warning, text.into())
}

/// A message of no importance: a result, or a success.
pub(crate) fn info(text: impl Into<String>) -> CommandReply {
    CommandReply::Message(Severity::Info, text.into())
}

/// What a connection hears whose level is too low.
pub(crate) fn denied() -> CommandReply {
    error("Permission denied")
}

/// A command being run.
pub(crate) struct Call<'a> {
    pub(crate) runtime: &'a Arc<Runtime>,
    /// Words after the command's own.
    pub(crate) args: &'a [String],
    pub(crate) payload: Option<&'a str>,
    pub(crate) settings: &'a mut ConnectionSettings,
}

impl Call<'_> {
    /// A word after the command's own, empty if there is none.
    pub(crate) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }
}

/// What commands may change about their connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSettings {
    /// What is allowed.
    pub(crate) level: AccessLevel,
    /// How severities are shown.
    pub(crate) severity: SeverityOutput,
    /// Whether the connection goes on after a line.
    pub(crate) interactive: bool,
    /// Whether a prompt is shown.
    pub(crate) prompt: bool,
    /// Whether the prompt shows the uptime.
    pub(crate) timed: bool,
    /// `expert-mode on`.
    pub(crate) expert: bool,
    /// `experimental-mode on`.
    pub(crate) experimental: bool,
    /// `set anon`.
    pub(crate) anonymous: Anonymous,
    /// How long the connection may idle.
    pub(crate) timeout: Duration,
}

impl ConnectionSettings {
    /// As a connection starts.
    pub(crate) fn new(level: AccessLevel, severity: SeverityOutput, timeout: Duration) -> Self {
        Self {
            level,
            severity,
            interactive: false,
            prompt: false,
            timed: false,
            expert: false,
            experimental: false,
            anonymous: Anonymous::default(),
            timeout,
        }
    }
}

/// How much of a ring is shown at once.
const BATCH: usize = 16 * 1024;

/// Shows messages of a ring as they come.
pub(crate) struct Follow {
    reader: RingReader,
    /// What ends each message.
    end: u8,
}

impl Follow {
    /// Of what `reader` reads, with this end.
    pub(crate) fn new(reader: RingReader, end: u8) -> Self {
        Self { reader, end }
    }

    /// The next messages, each with its end; empty when there are none now.
    pub(crate) fn next_batch(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let end = self.end;
        let behind = self.reader.peek(BATCH, |message| {
            out.extend_from_slice(message);
            out.push(end);
        });
        self.reader.advance(behind);
        out
    }

    /// Waits until there is a message.
    pub(crate) async fn more(&self) {
        std::future::poll_fn(|context| self.reader.poll_message(context)).await;
    }
}
