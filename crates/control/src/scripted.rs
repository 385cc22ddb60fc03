//! Commands of the runtime socket that scripts run, each as an administrator on a connection of its
//! own would.

use std::sync::Arc;
use std::time::Duration;

use crate::access::{AccessLevel, SeverityOutput};
use crate::invocation::{CommandReply, ConnectionSettings, Severity};
use crate::process::Runtime;
use crate::socket::table;

/// What came of a command.
pub enum Ran {
    /// It is done: its answer, or why not.
    Done(Result<String, String>),
    /// It is still at work.
    Later(std::pin::Pin<Box<dyn Future<Output = Result<String, String>>>>),
}

/// Runs a command, given as its words, with what follows its line.
pub fn command(runtime: &Arc<Runtime>, words: &[String], payload: Option<&str>) -> Ran {
    let mut settings = ConnectionSettings::new(AccessLevel::Admin, SeverityOutput::None, Duration::ZERO);
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
        CommandReply::Bytes(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        CommandReply::Pieces(pieces) => Ok(pieces.collect()),
        CommandReply::Done | CommandReply::Follow(..) | CommandReply::Later(_) | CommandReply::Quit => {
            Ok(String::new())
        }
    }
}
