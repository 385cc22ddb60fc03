//! The workers of a master, and the state passed across a reload: a reload re-executes the program in the same process, which finds
//! its workers and sockets in an environment variable.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

use net::pass;

/// The name of the variable. Set and read only by the master.
pub(crate) const VARIABLE: &str = "WEIR_MASTER";

/// A worker.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    /// The master's end of the socket pair to the worker.
    pub(crate) link: UnixStream,
    /// The number of reloads that the worker has survived.
    pub(crate) reloads: u32,
    /// The start time, in seconds since the Unix epoch.
    pub(crate) started: u64,
    /// Whether the worker has reported that it is ready.
    pub(crate) ready: bool,
    /// Whether the worker was asked to finish.
    pub(crate) leaving: bool,
    /// Whether the worker has reported that it no longer listens.
    pub(crate) stopped: Cell<bool>,
}

impl Child {
    /// Opens a new connection to the worker's runtime API by sending it the other end.
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        pass::send(&self.link, b"c", &[theirs.as_fd()])?;
        Ok(ours)
    }
}

/// A reload requested on the master's command socket.
#[derive(Debug)]
pub(crate) struct ReloadRequest {
    /// Whether old workers are terminated immediately (`hard-reload`).
    pub(crate) hard: bool,
    /// The connection of the client.
    pub(crate) client: OwnedFd,
}

/// The state of a master.
#[derive(Debug)]
pub(crate) struct MasterState {
    /// The workers, oldest first.
    pub(crate) children: Vec<Child>,
    /// When the master first started, in seconds since the Unix epoch.
    pub(crate) started: u64,
    /// The number of reloads, and the number of failed ones since the last success.
    pub(crate) reloads: u32,
    pub(crate) failed: u32,
    /// The master's own command socket.
    pub(crate) cli: Option<OwnedFd>,
    /// The client that requested the reload in progress.
    pub(crate) client: Option<OwnedFd>,
    /// Whether old workers are terminated immediately (`hard-reload`).
    pub(crate) hard: bool,
    /// A reload that was requested and has not begun.
    pub(crate) request: Option<ReloadRequest>,
    /// The foreground process that waits for the first worker, if there is one.
    pub(crate) launch: Option<crate::system::Launch>,
}

/// Returns the current time in seconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl MasterState {
    /// Returns the state of a master at its first start.
    pub(crate) fn new() -> Self {
        Self {
            children: Vec::new(),
            started: now(),
            reloads: 0,
            failed: 0,
            cli: None,
            client: None,
            hard: false,
            request: None,
            launch: None,
        }
    }

    /// Returns the worker in service, or the starting one if there is none.
    pub(crate) fn current(&self) -> Option<&Child> {
        let serving = self.children.iter().rev().find(|child| child.ready && !child.leaving);
        serving.or_else(|| self.children.iter().rev().find(|child| !child.leaving))
    }

    /// Makes all descriptors survive the exec, and returns a text that lists them.
    pub(crate) fn save(&self) -> io::Result<String> {
        use rustix::io::{FdFlags, fcntl_setfd};
        use std::os::fd::AsRawFd;
        let keep = |descriptor: Option<&OwnedFd>| -> io::Result<i32> {
            let Some(descriptor) = descriptor else { return Ok(-1) };
            fcntl_setfd(descriptor, FdFlags::empty())?;
            Ok(descriptor.as_raw_fd())
        };
        let mut text = format!(
            "{} {} {} {} {} {}",
            self.started,
            self.reloads,
            self.failed,
            keep(self.cli.as_ref())?,
            keep(self.client.as_ref())?,
            u8::from(self.hard)
        );
        for child in &self.children {
            fcntl_setfd(&child.link, FdFlags::empty())?;
            let Child { pid, reloads, started, leaving, .. } = child;
            let leaving = u8::from(*leaving);
            text.push_str(&format!(";{pid} {reloads} {started} {leaving} {}", child.link.as_raw_fd()));
        }
        Ok(text)
    }

    /// Parses the text written before the exec, or `None` if it does not match this master.
    pub(crate) fn load(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(|part| {
            part.split(' ').map(str::parse::<i64>).collect::<Result<Vec<i64>, _>>().unwrap_or_default()
        });
        let own = |number: i64| -> Option<Option<OwnedFd>> {
            if number < 0 {
                return Some(None);
            }
            process::take_inherited(i32::try_from(number).ok()?).ok().map(Some)
        };
        let [started, reloads, failed, cli, client, hard] = parts.next()?.try_into().ok()?;
        let mut state = Self {
            children: Vec::new(),
            started: started.try_into().ok()?,
            reloads: reloads.try_into().ok()?,
            failed: failed.try_into().ok()?,
            cli: own(cli)?,
            client: own(client)?,
            hard: hard != 0,
            request: None,
            launch: None,
        };
        for part in parts {
            let [pid, reloads, started, leaving, link] = part.try_into().ok()?;
            state.children.push(Child {
                pid: pid.try_into().ok()?,
                link: own(link)??.into(),
                reloads: reloads.try_into().ok()?,
                started: started.try_into().ok()?,
                ready: true,
                leaving: leaving != 0,
                stopped: Cell::new(leaving != 0),
            });
        }
        for descriptor in [&state.cli, &state.client].into_iter().flatten() {
            // Descriptors that are not passed on again are closed by the next exec.
            let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
        }
        for child in &state.children {
            let _ = rustix::io::fcntl_setfd(&child.link, rustix::io::FdFlags::CLOEXEC);
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_round_trips() {
        let (link, _theirs) = UnixStream::pair().unwrap();
        let mut state = MasterState::new();
        state.reloads = 4;
        state.children.push(Child {
            pid: 77,
            link,
            reloads: 2,
            started: 5,
            ready: true,
            leaving: true,
            stopped: Cell::new(true),
        });
        let text = state.save().unwrap();
        // The descriptor may have only one owner.
        let child = state.children.remove(0);
        let _ = std::os::fd::IntoRawFd::into_raw_fd(child.link);
        let again = MasterState::load(&text).unwrap();
        assert_eq!((again.reloads, again.started, again.cli.is_none()), (4, state.started, true));
        let child = &again.children[0];
        assert_eq!((child.pid, child.reloads, child.started, child.leaving), (77, 2, 5, true));
        assert!(MasterState::load("nonsense").is_none() && MasterState::load("1 2 3 -1 -1 0;x").is_none());
    }
}
