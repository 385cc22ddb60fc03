//! Runtime commands issued by scripts. Each has the rights of an administrator and a separate connection.

use std::sync::Arc;
use std::time::Duration;

use crate::access::{AccessLevel, SeverityOutput};
use crate::admin::AdminOrigin;
use crate::invocation::{CommandReply, ConnectionSettings, Severity};
use crate::process::Runtime;
use crate::socket::table;

/// The result of a command.
pub enum Ran {
    /// Finished, with its response or error.
    Done(Result<String, String>),
    /// Still in progress.
    Later(std::pin::Pin<Box<dyn Future<Output = Result<String, String>>>>),
}

/// Runs a command, given as words, with its payload.
pub fn command(runtime: &Arc<Runtime>, words: &[String], payload: Option<&str>) -> Ran {
    let mut settings = ConnectionSettings::new(AccessLevel::Admin, SeverityOutput::None, Duration::ZERO);
    settings.origin = AdminOrigin::Script;
    match table::run(runtime, words, payload, &mut settings) {
        CommandReply::Later(mut answer) => Ran::Later(Box::pin(async move {
            loop {
                match answer.await {
                    CommandReply::Later(next) => answer = next,
                    reply => return read(reply),
                }
            }
        })),
        reply => Ran::Done(read(reply)),
    }
}

fn read(reply: CommandReply) -> Result<String, String> {
    match reply {
        CommandReply::Message(Severity::Error, text) => Err(text),
        CommandReply::Text(text) | CommandReply::Message(_, text) => Ok(text),
        CommandReply::Bytes(bytes) => Ok(base::raw::text_of(&bytes).into_owned()),
        CommandReply::Pieces(pieces) => Ok(pieces.collect()),
        CommandReply::Done | CommandReply::Follow(..) | CommandReply::Later(_) | CommandReply::Quit => {
            Ok(String::new())
        }
    }
}
