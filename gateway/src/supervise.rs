//! Runs the proxy as a child process, and restarts it if it ends.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use base::clock::now_ms;
use runtime::timer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Notify;

use crate::measures::Measures;
use crate::report::{alert, notice, warning};

/// The delays between restarts of a proxy that ends soon after its start.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A proxy that ran for this time, in ms, is restarted with the first delay.
const LASTING_MS: u64 = 10_000;

/// After this number of starts that failed, the proxy is started with the initial configuration: the one on disk may be that of
/// another version, or a port may be in use by another program.
const GIVES_UP: u32 = 3;

/// A program that is kept running.
pub(crate) struct Supervisor {
    program: PathBuf,
    configuration: PathBuf,
    measures: Rc<Measures>,
    /// The initial configuration, which the proxy always accepts.
    initial: String,
    /// Whether the proxy was started with it.
    pub(crate) is_reset: Cell<bool>,
    /// The running process.
    pid: Cell<Option<Pid>>,
    is_stopping: Cell<bool>,
    ended: Notify,
    /// Notified after each start.
    pub(crate) started: Notify,
}

impl Supervisor {
    pub(crate) fn new(
        program: PathBuf,
        configuration: PathBuf,
        initial: String,
        measures: Rc<Measures>,
    ) -> Rc<Self> {
        Rc::new(Self {
            program,
            configuration,
            measures,
            initial,
            is_reset: Cell::new(false),
            pid: Cell::new(None),
            is_stopping: Cell::new(false),
            ended: Notify::new(),
            started: Notify::new(),
        })
    }

    /// Starts the program, waits for its end, and starts it again until it is stopped.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut failures = 0u32;
        while !self.is_stopping.get() {
            let begun = now_ms();
            let outcome = self.run_once().await;
            self.pid.set(None);
            if self.is_stopping.get() {
                break;
            }
            failures = if now_ms() - begun > LASTING_MS { 0 } else { failures + 1 };
            match outcome {
                Ok(status) => warning(format!("the proxy ended ({status}) and is started again.")),
                Err(error) => alert(format!("cannot run {}: {error}.", self.program.display())),
            }
            if failures == GIVES_UP {
                warning("the proxy does not run with the last configuration and is started without routes.");
                match std::fs::write(&self.configuration, &self.initial) {
                    Ok(()) => self.is_reset.set(true),
                    Err(error) => alert(format!("cannot write {}: {error}.", self.configuration.display())),
                }
            }
            timer::sleep(FIRST_DELAY.saturating_mul(1 << failures.min(8)).min(LONGEST_DELAY)).await;
        }
        self.ended.notify_one();
    }

    async fn run_once(&self) -> Result<ExitStatus, String> {
        let mut child = Command::new(&self.program)
            .args(["-db", "-f"])
            .arg(&self.configuration)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        self.pid.set(Some(Pid::from_child(&child)));
        self.measures.proxy_starts.add();
        self.started.notify_one();
        let ended = tokio::task::spawn_blocking(move || child.wait());
        ended.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Ends the program: softly, and after `limit` at once.
    pub(crate) async fn stop(&self, limit: Duration) {
        self.is_stopping.set(true);
        let Some(pid) = self.pid.get() else { return };
        notice("the proxy finishes its connections.");
        let _ = kill_process(pid, Signal::USR1);
        if timer::timeout(limit, self.ended.notified()).await.is_ok() {
            return;
        }
        notice(format!("connections are still open after {} s and are closed.", limit.as_secs()));
        let _ = kill_process(pid, Signal::TERM);
        if timer::timeout(Duration::from_secs(2), self.ended.notified()).await.is_err() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
