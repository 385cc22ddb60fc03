//! Whether the process that has a place in the file still runs.

use std::os::unix::fs::MetadataExt;

use base::clock::WallTime;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::layout::Identity;

/// A process of another namespace that was not heard of for so long, in seconds, is gone: its number
/// means nothing here.
const SILENCE: u64 = 60;

/// When a process started, in ticks since boot; 0 where that cannot be read.
fn started(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may hold anything.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind.split_whitespace().nth(19).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn now() -> u64 {
    u64::try_from(WallTime::now().seconds).unwrap_or(0)
}

impl Identity {
    /// The calling process. To be asked before it may lose sight of `/proc`.
    pub(super) fn own() -> Self {
        let pid = std::process::id();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |own| own.ino());
        Self { pid, started: started(pid), namespace, seen: now() }
    }

    /// The same, heard of now.
    pub(super) fn heard(self) -> Self {
        Self { seen: now(), ..self }
    }

    /// Whether it still runs, as `own` process sees it. In doubt it does.
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
