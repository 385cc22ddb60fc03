//! A program that runs until it ends, or is killed when its result is no longer needed.
//!
//! tokio's support for processes is not used, because with it every turn of every worker takes two shared locks to look for
//! orphaned programs.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use runtime::timer::sleep;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The polling interval if the kernel has no process descriptors (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(10);

/// A started program. It is killed if this value is dropped before the program has ended.
pub(crate) struct CheckProgram {
    /// The process, or `None` once it has ended.
    child: Option<Child>,
}

impl CheckProgram {
    /// Starts the program.
    ///
    /// # Errors
    /// The kernel cannot start it.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(|child| Self { child: Some(child) })
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub(crate) async fn ended(mut self) -> io::Result<ExitStatus> {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()));
        let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let end = end.map(net::sys::watch_readable).transpose().map_err(|(_, error)| error)?;
        loop {
            let Some(child) = &mut self.child else { return Err(io::ErrorKind::NotFound.into()) };
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status);
            }
            match &end {
                Some(end) => end.readable().await?.clear_ready(),
                None => sleep(LOOK).await,
            }
        }
    }
}

impl Drop for CheckProgram {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // This fails if the program has just ended.
        let _ = child.kill();
        if matches!(child.try_wait(), Ok(None)) {
            // The kernel may need time to end the program, so a separate thread waits for that.
            let _ = std::thread::Builder::new().name("reap".to_owned()).spawn(move || child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, test_kill_process};

    use super::{CheckProgram, Command};
    use crate::tests::worker;

    fn sh(script: &str) -> CheckProgram {
        CheckProgram::start(Command::new("/bin/sh").args(["-c", script])).expect("a shell")
    }

    #[test]
    fn programs_return_their_exit_status() {
        worker(async {
            for (script, code) in [("exit 0", Some(0)), ("exit 7", Some(7)), ("kill -9 $$", None)] {
                assert_eq!(sh(script).ended().await.expect("a status").code(), code, "{script}");
            }
        });
    }

    #[test]
    fn dropped_programs_are_killed_and_reaped() {
        let program = sh("exec sleep 600");
        let pid = program.child.as_ref().expect("it runs").id().cast_signed();
        let pid = Pid::from_raw(pid).expect("not 0");
        assert!(test_kill_process(pid).is_ok());
        drop(program);
        let deadline = Instant::now() + Duration::from_secs(10);
        while test_kill_process(pid).is_ok() {
            assert!(Instant::now() < deadline, "it is there still");
            std::thread::yield_now();
        }
    }
}
