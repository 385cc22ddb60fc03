//! The processes that this one replaces: their end, which changes the positions of QUIC sockets.

use std::io;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::hand_over::Exposed;

/// Waits in a thread for the end of the processes that this one replaces, and then follows it.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn watch(exposed: &Arc<Exposed>, replaced: &[i32]) -> io::Result<()> {
    let Some(mut pids) = exposed.predecessors() else { return Ok(()) };
    pids.extend(replaced);
    let exposed = exposed.clone();
    std::thread::Builder::new().name("predecessors".to_owned()).spawn(move || {
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            // A process that cannot be opened has ended.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // Readable once it has ended; interrupted calls are repeated.
            while !poll(&mut [PollFd::new(&process, PollFlags::IN)], None).is_ok_and(|ready| ready > 0) {}
        }
        exposed.close_predecessors();
    })?;
    Ok(())
}
