//! Commands whose work takes too long for a worker's turn: it is done on a thread of its own, and
//! the worker serves others meanwhile.

use crate::call::{Reply, Severity, error};

/// What such a command answers.
pub(crate) enum Answer {
    Text(String),
    Notice(String),
    Error(String),
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Text(text) => Self::Text(text),
            Answer::Notice(text) => Self::Message(Severity::Notice, text),
            Answer::Error(text) => Self::Message(Severity::Error, text),
        }
    }
}

/// Runs `work` aside.
pub(crate) fn aside(work: impl FnOnce() -> Answer + Send + 'static) -> Reply {
    Reply::Later(Box::pin(async {
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer.into(),
            Err(_) => error("The command failed.\n"),
        }
    }))
}
