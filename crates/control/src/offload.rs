//! Commands that would block a worker for too long: they run on a separate thread while the worker serves other connections.

use crate::invocation::{CommandReply, Severity, error};

/// The response of a command that runs on a separate thread.
pub(crate) enum CommandAnswer {
    Text(String),
    Notice(String),
    Error(String),
}

impl From<CommandAnswer> for CommandReply {
    fn from(answer: CommandAnswer) -> Self {
        match answer {
            CommandAnswer::Text(text) => Self::Text(text),
            CommandAnswer::Notice(text) => Self::Message(Severity::Notice, text),
            CommandAnswer::Error(text) => Self::Message(Severity::Error, text),
        }
    }
}

/// Runs `work` on a separate thread.
pub(crate) fn aside(work: impl FnOnce() -> CommandAnswer + Send + 'static) -> CommandReply {
    CommandReply::Later(Box::pin(async {
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer.into(),
            Err(_) => error("The command failed.\n"),
        }
    }))
}
