//! Commands of the runtime socket that scripts run, each as an administrator on a connection of its
//! own would.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Reply, Settings, Severity};
use crate::socket::table;
use crate::view::{Level, Runtime, SeverityOutput};

/// What came of a command.
pub enum Ran {
    /// It is done: its answer, or why not.
    Done(Result<String, String>),
    /// It is still at work.
    Later(std::pin::Pin<Box<dyn Future<Output = Result<String, String>>>>),
}

/// Runs a command, given as its words, with what follows its line.
pub fn command(runtime: &Arc<Runtime>, words: &[String], payload: Option<&str>) -> Ran {
    let mut settings = Settings::new(Level::Admin, SeverityOutput::None, Duration::ZERO);
    match table::run(runtime, words, payload, &mut settings) {
        Reply::Later(mut answer) => Ran::Later(Box::pin(async move {
            loop {
                match answer.await {
                    Reply::Later(next) => answer = next,
                    reply => return read(reply),
                }
            }
        })),
        reply => Ran::Done(read(reply)),
    }
}

fn read(reply: Reply) -> Result<String, String> {
    match reply {
        Reply::Message(Severity::Error, text) => Err(text),
        Reply::Text(text) | Reply::Message(_, text) => Ok(text),
        Reply::Bytes(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Reply::Pieces(pieces) => Ok(pieces.collect()),
        Reply::Done | Reply::Follow(..) | Reply::Later(_) | Reply::Quit => Ok(String::new()),
    }
}
