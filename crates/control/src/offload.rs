//! Commands whose work takes too long for a worker's turn: it is done on a thread of its own, and
//! the worker serves others meanwhile.

use crate::invocation::{CommandReply, Severity, error};

/// What such a command answers.
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

/// Runs `work` aside.
pub(crate) fn aside(work: impl FnOnce() -> CommandAnswer + Send + 'static) -> CommandReply {
    CommandReply::Later(Box::pin(async {
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer.into(),
            Err(_) => error("The command failed.\n"),
        }
    }))
}
