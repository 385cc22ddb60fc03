//! Whether the process that holds a slot in the file is still running.

use std::os::unix::fs::MetadataExt;

use base::clock::WallTime;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::layout::Identity;

/// A process in another namespace that has been silent for this long, in seconds, is considered dead, because its PID has no
/// meaning here.
const SILENCE: u64 = 60;

/// The start time of a process, in ticks since boot; 0 if it cannot be read.
fn started(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name before it may contain anything.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind.split_whitespace().nth(19).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn now() -> u64 {
    u64::try_from(WallTime::now().seconds).unwrap_or(0)
}

impl Identity {
    /// The identity of the calling process. To be called before `/proc` may become inaccessible.
    pub(super) fn own() -> Self {
        let pid = std::process::id();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |own| own.ino());
        Self { pid, started: started(pid), namespace, seen: now() }
    }

    /// Updates the time of the last sign of life.
    pub(super) fn heard(self) -> Self {
        Self { seen: now(), ..self }
    }

    /// Whether the process is still running, as seen by process `own`. In case of doubt, it is considered running.
    pub(super) fn runs(&self, own: &Self) -> bool {
        if self.namespace != own.namespace {
            return now().saturating_sub(self.seen) <= SILENCE;
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return false;
        }
        let now = started(self.pid);
        now == 0 || self.started == 0 || now == self.started
    }
}
