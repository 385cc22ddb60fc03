//! Reloads in place, if the global section has `reload in-place`: the worker in service reads its files again, and no process is
//! started. Only if it refuses, for example because a setting of the process has changed, another worker is started.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest time that the worker may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The outcome of a reload in place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InPlace {
    /// The worker uses the new configuration, with these changes.
    Done(String),
    /// The worker keeps its configuration, for this reason.
    Refused(String),
}

/// Makes a worker reload its configuration, over a connection to its runtime API.
pub(super) fn reload(worker: io::Result<UnixStream>) -> InPlace {
    match worker.and_then(ask) {
        Ok(answer) => outcome(&answer),
        Err(error) => InPlace::Refused(format!("the worker does not answer: {error}")),
    }
}

fn ask(mut worker: UnixStream) -> io::Result<String> {
    worker.set_read_timeout(Some(PATIENCE))?;
    worker.set_write_timeout(Some(PATIENCE))?;
    worker.write_all(b"reload\n")?;
    worker.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    worker.take(LONGEST).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn outcome(answer: &str) -> InPlace {
    let text = answer.trim();
    match text.ends_with("nothing else") || text.ends_with("nothing has changed") {
        true => InPlace::Done(text.to_owned()),
        false => InPlace::Refused(text.to_owned()),
    }
}

/// Whether the program was replaced since it was started. Only a new process runs the new one.
pub(super) fn is_program_replaced() -> bool {
    let program = std::fs::read_link("/proc/self/exe");
    program.is_ok_and(|path| path.to_string_lossy().ends_with(" (deleted)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_recognized() {
        for done in ["frontend f: 1 rule changed; nothing else\n\n", "nothing has changed\n"] {
            assert_eq!(outcome(done), InPlace::Done(done.trim().to_owned()));
        }
        for refused in ["A running process cannot change: `nbthread`.\n", "", "Permission denied\n"] {
            assert_eq!(outcome(refused), InPlace::Refused(refused.trim().to_owned()));
        }
    }

    #[test]
    fn a_worker_that_has_ended_refuses() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        drop(theirs);
        assert!(matches!(reload(Ok(ours)), InPlace::Refused(_)));
        assert!(!is_program_replaced());
    }
}
