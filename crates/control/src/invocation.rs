//! The input and the response of a runtime socket command, shared by the table, the session and the commands.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use state::ring::RingReader;

use crate::access::{AccessLevel, SeverityOutput};
use crate::admin::AdminOrigin;
use crate::anonymous::Anonymous;
use crate::process::Runtime;

/// The severity of a message, with its number and word (`set severity-output`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    Notice,
    Info,
}

impl Severity {
    /// The syslog number and word.
    pub(crate) fn names(self) -> (u8, &'static str) {
        match self {
            Self::Error => (3, "err"),
            Self::Warning => (4, "warning"),
            Self::Notice => (5, "notice"),
            Self::Info => (6, "info"),
        }
    }
}

/// The response of a command. Bytes that are not UTF-8 occur in text as placeholders ([`base::raw`]).
pub(crate) enum CommandReply {
    /// Success without output.
    Done,
    /// Output.
    Text(String),
    /// Output of arbitrary bytes.
    Bytes(Vec<u8>),
    /// A message that may be shown with its severity.
    Message(Severity, String),
    /// Long output, produced in pieces so that no piece blocks a worker for long.
    Pieces(Box<dyn Iterator<Item = String>>),
    /// The contents of a ring. If `true`, new messages follow until the client sends anything or disconnects.
    Follow(Follow, bool),
    /// A response that has to be awaited.
    Later(Pin<Box<dyn Future<Output = CommandReply>>>),
    /// Closes the connection.
    Quit,
}

/// An error message.
pub(crate) fn error(text: impl Into<String>) -> CommandReply {
    CommandReply::Message(Severity::Error, text.into())
}

/// A message that the result differs from the request, or that something changed.
pub(crate) fn warning(text: impl Into<String>) -> CommandReply {
    CommandReply::Message(Severity::Warning, text.into())
}

/// An informational message: a result, or a success.
pub(crate) fn info(text: impl Into<String>) -> CommandReply {
    CommandReply::Message(Severity::Info, text.into())
}

/// The response if the level of the connection is too low.
pub(crate) fn denied() -> CommandReply {
    error("Permission denied")
}

/// A command being run.
pub(crate) struct Call<'a> {
    pub(crate) runtime: &'a Arc<Runtime>,
    /// The words after the command's own. Like the payload, they may contain placeholders of bytes that are not UTF-8.
    pub(crate) args: &'a [String],
    pub(crate) payload: Option<&'a str>,
    pub(crate) settings: &'a mut ConnectionSettings,
}

impl Call<'_> {
    /// The word at `index` after the command's own, empty if there is none.
    pub(crate) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }
}

/// Settings of the connection that commands may change.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSettings {
    /// The access level.
    pub(crate) level: AccessLevel,
    /// The origin of changes, as logged.
    pub(crate) origin: AdminOrigin,
    /// How severities are shown.
    pub(crate) severity: SeverityOutput,
    /// Whether the connection stays open after a command line.
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
    /// The idle timeout of the connection.
    pub(crate) timeout: Duration,
}

impl ConnectionSettings {
    /// The initial settings of a connection.
    pub(crate) fn new(level: AccessLevel, severity: SeverityOutput, timeout: Duration) -> Self {
        Self {
            level,
            origin: AdminOrigin::RuntimeSocket,
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

/// The size of a batch of ring messages.
const BATCH: usize = 16 * 1024;

/// Shows messages of a ring as they arrive.
pub(crate) struct Follow {
    reader: RingReader,
    /// The terminator of each message.
    end: u8,
}

impl Follow {
    /// Follows `reader`, with this terminator.
    pub(crate) fn new(reader: RingReader, end: u8) -> Self {
        Self { reader, end }
    }

    /// The next messages, each with its terminator; empty if there are none at present.
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
