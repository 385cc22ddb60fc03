//! The master of master-worker mode (`-W`; management manual, chapter 4). It starts a worker, starts another one on reload, asks
//! the old one to finish once the new one is ready, and exits when its worker has ended.
//!
//! A reload re-executes the program in the master's process, so that both a new configuration and a new program take effect. The
//! new worker takes over the listening sockets from the old one. If it cannot start, the old one continues. With `reload in-place`,
//! the master first asks its worker to reload in place.

mod children;
mod cli;
mod in_place;

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use diag::Severity;
use plan::Global;
use process::{Forked, fork, hold_signals, next_signal};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

use crate::args::CommandLineArgs;
use crate::messages::{self, MessageFormat};
use crate::signals::Ending;
use crate::sockets::{Inherited, ListeningSocket};
use crate::system;
pub(crate) use children::MasterState;
use children::{Child, ReloadRequest};
use in_place::InPlace;

/// The directory in which the program was started; relative paths on the command line always refer to it.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// The result of [`split`].
pub(crate) enum Role {
    /// The worker, with its end of the socket pair to the master.
    Worker(UnixStream),
    /// The master, after it has ended.
    Master(Ending),
}

/// Returns the state saved before the master re-executed itself, or `None` in every other process. Must be called first, because
/// it removes the variable from the environment.
pub(crate) fn resume() -> Option<MasterState> {
    if let Ok(directory) = std::env::current_dir() {
        let _ = DIRECTORY.set(directory);
    }
    MasterState::load(&std::env::var(children::VARIABLE).ok()?)
}

/// Returns the listening sockets of the worker in service.
pub(crate) fn sockets(state: &MasterState, messages: MessageFormat) -> Inherited {
    let Some(worker) = state.current() else { return Vec::new() };
    let taken = worker.connect().and_then(|stream| crate::hand_over::receive_over(&stream, Some(worker.pid)));
    taken.unwrap_or_else(|error| {
        let text = format!("Failed to get the sockets from the worker {}: {error}", worker.pid);
        messages.say(Severity::Warning, &text);
        Vec::new()
    })
}

/// Returns the lists of discovered servers of the worker in service; empty if it does not answer.
pub(crate) fn lists(state: &MasterState) -> Vec<u8> {
    let answer = state.current().map(|worker| crate::hand_over::lists_over(&worker.connect()?));
    answer.and_then(Result::ok).unwrap_or_default()
}

/// Forks into master and worker.
pub(crate) fn split(
    global: &Global,
    args: &CommandLineArgs,
    resumed: Option<MasterState>,
    bound: &mut Vec<ListeningSocket>,
    messages: MessageFormat,
) -> Result<Role, String> {
    let cannot_fork = |error| format!("[haproxy.main()] Cannot fork: {error}.");
    let first = resumed.is_none();
    let mut state = resumed.unwrap_or_else(MasterState::new);
    if global.daemon && first {
        state.launch = Some(system::Launch::begin()?);
    }
    if state.cli.is_none()
        && let Some(address) = &args.master_socket
    {
        state.cli = Some(cli::bind(address)?);
    }
    if first {
        system::write_pidfile(global)?;
    }
    let forked = UnixStream::pair().and_then(|(ours, theirs)| Ok((fork()?, ours, theirs)));
    let (pid, ours) = match forked {
        Ok((Forked::Child, _, theirs)) => return Ok(Role::Worker(theirs)),
        Ok((Forked::Parent(pid), ours, _)) => (pid, ours),
        Err(error) if first => return Err(cannot_fork(error)),
        Err(error) => {
            close_quic(bound);
            messages.say(Severity::Alert, &cannot_fork(error));
            return Ok(Role::Master(go_on(state, args, messages)));
        }
    };
    close_quic(bound);
    crate::udp_sessions::forget();
    messages.say(Severity::Notice, &format!("New worker ({pid}) forked"));
    state.children.push(Child {
        pid,
        link: ours,
        reloads: 0,
        started: children::now(),
        ready: false,
        leaving: false,
        stopped: Cell::new(false),
    });
    let max_reloads = global.max_reloads.unwrap_or(50);
    let master = Master::new(state, args, max_reloads, messages);
    Ok(Role::Master(Master { reloads_in_place: global.reloads_in_place, ..master }.watch()))
}

/// Closes the master's copies of QUIC sockets: the worker relies on their positions, which change once all copies are closed.
fn close_quic(bound: &mut Vec<ListeningSocket>) {
    bound.retain(|one| one.quic.is_none());
}

/// Continues with the existing workers, because the new configuration could not be used.
pub(crate) fn go_on(mut state: MasterState, args: &CommandLineArgs, messages: MessageFormat) -> Ending {
    hold_signals(true);
    state.failed += 1;
    messages.say(Severity::Warning, "Loading failure! The previous worker keeps running.");
    answer(&mut state, false);
    system::notify("READY=1\nSTATUS=Reload failed!\n", messages);
    // No worker is replaced before the next exec.
    Master::new(state, args, u32::MAX, messages).watch()
}

/// Reports the result of a reload to the client that requested it.
fn answer(state: &mut MasterState, success: bool) {
    if let Some(client) = state.client.take() {
        let text = format!("Success={}\n--\n{}\n", u8::from(success), messages::log());
        // The client may have closed the connection.
        let _ = UnixStream::from(client).write_all(text.as_bytes());
    }
}

/// A running master.
#[derive(Clone)]
pub(crate) struct Master {
    state: Arc<Mutex<MasterState>>,
    args: Arc<CommandLineArgs>,
    messages: MessageFormat,
    /// `mworker-max-reloads`.
    max_reloads: u32,
    /// `reload in-place`.
    reloads_in_place: bool,
}

impl Master {
    fn new(state: MasterState, args: &CommandLineArgs, max_reloads: u32, messages: MessageFormat) -> Self {
        let (state, args) = (Arc::new(Mutex::new(state)), Arc::new(args.clone()));
        Self { state, args, messages, max_reloads, reloads_in_place: false }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, MasterState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Handles signals until the workers have ended. From this call on there may be threads, so this process no longer forks.
    ///
    /// Signals are blocked in all threads. This function takes them one by one and also performs reloads, so a signal that
    /// arrives before or during a reload stays pending for the re-executed program.
    fn watch(self) -> Ending {
        messages::serve();
        self.await_worker();
        cli::start(&self);
        let mut asked = None;
        loop {
            // A worker may have ended before SIGCHLD was handled.
            if let Some(ending) = self.bury(asked) {
                return ending;
            }
            match next_signal() {
                signal @ (SIGTERM | SIGINT) => {
                    self.begin_to_end(asked.replace(signal));
                    self.pass_on(if signal == SIGINT { Signal::INT } else { Signal::TERM });
                }
                SIGUSR1 => {
                    self.begin_to_end(asked);
                    asked.get_or_insert(SIGUSR1);
                    self.pass_on(Signal::USR1);
                }
                SIGTTOU => self.pass_on(Signal::TTOU),
                SIGTTIN => self.pass_on(Signal::TTIN),
                SIGUSR2 | SIGHUP => self.reload(asked.is_some()),
                // SIGCHLD only wakes the loop; SIGQUIT and SIGALRM have no effect in a master.
                _ => {}
            }
        }
    }

    /// Reports the stop on the first signal that requests it.
    fn begin_to_end(&self, asked_before: Option<i32>) {
        if asked_before.is_none() {
            system::notify_stopping(self.messages);
            self.messages.say(Severity::Warning, "Exiting Master process...");
        }
    }

    fn pass_on(&self, signal: Signal) {
        for child in &self.state().children {
            send(child.pid, signal);
        }
    }

    /// Waits on a separate thread until the newest worker is ready, then asks the others to finish.
    fn await_worker(&self) {
        let mut state = self.state();
        let Some(child) = state.children.last().filter(|child| !child.ready) else { return };
        let (pid, link) = (child.pid, child.link.try_clone());
        let Ok(mut link) = link else { return };
        let hard = std::mem::take(&mut state.hard);
        drop(state);
        let master = self.clone();
        std::thread::spawn(move || {
            // The end of the stream means that the worker has ended, which SIGCHLD also reports.
            let serves = matches!(link.read(&mut [0; 1]), Ok(1));
            let mut state = master.state();
            if serves {
                master.replaced(&mut state, pid, hard);
            } else {
                state.failed += 1;
                master.messages.say(Severity::Warning, "Loading failure!");
                system::notify("READY=1\nSTATUS=Reload failed!\n", master.messages);
            }
            answer(&mut state, serves);
        });
    }

    fn replaced(&self, state: &mut MasterState, pid: i32, hard: bool) {
        for child in &mut state.children {
            if child.pid == pid {
                child.ready = true;
                continue;
            }
            child.reloads += 1;
            // `mworker-max-reloads`: a worker that still runs after that many reloads must be terminated.
            if child.reloads > self.max_reloads {
                send(child.pid, Signal::TERM);
            } else if !child.leaving {
                send(child.pid, if hard { Signal::TERM } else { Signal::USR1 });
            }
            child.leaving = true;
        }
        await_stops(state, pid);
        state.failed = 0;
        if let Some(launch) = state.launch.take() {
            launch.succeed();
        }
        self.messages.say(Severity::Notice, "Loading success.");
        system::notify(&format!("READY=1\nMAINPID={}\nSTATUS=Ready.\n", std::process::id()), self.messages);
    }

    /// Records workers that have ended. Returns the final result if the worker in service has ended or none is left.
    fn bury(&self, asked: Option<i32>) -> Option<Ending> {
        loop {
            // The lock is taken first. Otherwise, a reload on another thread could include a worker that was already reaped.
            let mut state = self.state();
            let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) else { return None };
            let pid = pid.as_raw_nonzero().get();
            let Some(at) = state.children.iter().position(|child| child.pid == pid) else { continue };
            let was_current = state.current().is_some_and(|child| child.pid == pid);
            let child = state.children.remove(at);
            let what = if child.leaving { "Former" } else { "Current" };
            let ending = ending(status);
            let text = format!("{what} worker ({pid}) exited with {}", describe(ending));
            let severity = if child.leaving || asked.is_some() { Severity::Notice } else { Severity::Alert };
            self.messages.say(severity, &text);
            let others = !state.children.is_empty();
            if !was_current && others {
                continue;
            }
            if others {
                self.messages.say(Severity::Alert, "exit-on-failure: killing every processes with SIGTERM");
                for child in &state.children {
                    send(child.pid, Signal::TERM);
                }
            }
            if !others || asked.is_none() {
                return Some(match asked {
                    // For service managers an orderly stop is a success, and an interrupted one is not.
                    Some(SIGTERM | SIGUSR1) => Ending::Clean,
                    Some(signal) => Ending::Code(128 + signal as u8),
                    None => ending,
                });
            }
        }
    }

    /// Requests a reload, which the thread that handles signals performs. `client` receives the result.
    pub(crate) fn request(&self, hard: bool, client: OwnedFd) {
        self.state().request = Some(ReloadRequest { hard, client });
        send(rustix::process::getpid().as_raw_nonzero().get(), Signal::USR2);
    }

    /// Makes the worker reload in place. Returns whether it has the new configuration.
    fn reload_in_place(&self) -> bool {
        let worker = self.state().current().filter(|child| child.ready).map(Child::connect);
        let Some(worker) = worker.filter(|_| !in_place::is_program_replaced()) else { return false };
        system::notify_reloading(self.messages);
        match in_place::reload(worker) {
            InPlace::Done(changes) => {
                self.messages.say(Severity::Notice, &format!("Reloaded in place: {changes}"));
                system::notify("READY=1\nSTATUS=Ready.\n", self.messages);
                true
            }
            InPlace::Refused(reason) => {
                let text = format!("Cannot reload in place, so another worker is started: {reason}");
                self.messages.say(Severity::Warning, &text);
                false
            }
        }
    }

    /// Re-executes the program, unless the master is stopping or its worker can reload in place.
    fn reload(&self, leaving: bool) {
        let is_hard = self.state().request.as_ref().is_some_and(|request| request.hard);
        if self.reloads_in_place && !leaving && !is_hard && self.reload_in_place() {
            let mut state = self.state();
            state.client = state.request.take().map(|request| request.client);
            state.reloads += 1;
            state.failed = 0;
            return answer(&mut state, true);
        }
        let mut state = self.state();
        let request = state.request.take();
        state.hard = request.as_ref().is_some_and(|request| request.hard);
        state.client = request.map(|request| request.client);
        if leaving {
            return answer(&mut state, false);
        }
        state.reloads += 1;
        let way = if state.hard { " (hard-reload)" } else { "" };
        self.messages.say(Severity::Notice, &format!("Reloading HAProxy{way}"));
        system::notify_reloading(self.messages);
        let error = execute(&state);
        self.messages.say(Severity::Warning, &format!("Failed to reexecute the master process: {error}"));
        state.failed += 1;
        answer(&mut state, false);
    }
}

/// Waits until no worker other than `serving` listens, so that clients that connect after the answer to a reload reach the new
/// worker. No other reload starts in the meantime, because the lock is held.
fn await_stops(state: &MasterState, serving: i32) {
    let until = Instant::now() + LONGEST_STOP;
    for child in state.children.iter().filter(|child| child.pid != serving && !child.stopped.get()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || child.link.set_read_timeout(Some(left)).is_err() {
            return;
        }
        // A worker may have reported that it was ready before anything read its report. The end of the stream means that the worker
        // has ended.
        let mut report = [0];
        let has_stopped = loop {
            match (&child.link).read(&mut report) {
                Ok(1) if report != *system::STOPPED => {}
                other => break other.is_ok(),
            }
        };
        child.stopped.set(has_stopped);
        let _ = child.link.set_read_timeout(None);
    }
}

/// How long the answer to a reload waits for an earlier worker. Workers stop listening immediately, unless the machine is
/// overloaded or the worker is stuck.
const LONGEST_STOP: Duration = Duration::from_secs(5);

/// Re-executes the program with its original arguments. Returns why that failed.
fn execute(state: &MasterState) -> std::io::Error {
    use std::os::unix::process::CommandExt;
    let saved = match state.save() {
        Ok(saved) => saved,
        Err(error) => return error,
    };
    let mut words = std::env::args_os();
    let mut command = std::process::Command::new(words.next().unwrap_or_default());
    command.args(words).env(children::VARIABLE, saved);
    if let Some(directory) = DIRECTORY.get() {
        command.current_dir(directory);
    }
    command.exec()
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may have ended already.
        let _ = kill_process(pid, signal);
    }
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ending::Clean,
        (Some(code), _) => Ending::Code(code as u8),
        (None, signal) => Ending::Code(128 + signal.unwrap_or(SIGTERM) as u8),
    }
}

fn describe(ending: Ending) -> String {
    match ending {
        Ending::Clean => "code 0 (Exit)".to_owned(),
        Ending::Signal(number) => format!("code {} ({})", 128 + number, name_of(number)),
        Ending::Code(code) if code > 128 => format!("code {code} ({})", name_of(i32::from(code) - 128)),
        Ending::Code(code) => format!("code {code} (Exit)"),
    }
}

/// Returns the system's description of death by that signal.
fn name_of(signal: i32) -> String {
    use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGQUIT, SIGSEGV};
    let name = match signal {
        SIGHUP => "Hangup",
        SIGINT => "Interrupt",
        SIGQUIT => "Quit",
        SIGILL => "Illegal instruction",
        SIGABRT => "Aborted",
        SIGBUS => "Bus error",
        SIGFPE => "Floating point exception",
        SIGKILL => "Killed",
        SIGSEGV => "Segmentation fault",
        SIGPIPE => "Broken pipe",
        SIGTERM => "Terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// Reports to the master that this worker is ready, and serves the connections to the runtime API that the master passes on. When
/// the master has ended, the worker ends too, even if the master did not wait for it.
pub(crate) async fn obey(
    link: UnixStream,
    runtime: Arc<control::Runtime>,
    exposed: Arc<crate::hand_over::Exposed>,
) -> std::io::Result<()> {
    let outcome = listen_to(link, runtime, exposed).await;
    send(rustix::process::getpid().as_raw_nonzero().get(), Signal::TERM);
    outcome
}

/// Receives messages from the master until the master has ended.
async fn listen_to(
    link: UnixStream,
    runtime: Arc<control::Runtime>,
    exposed: Arc<crate::hand_over::Exposed>,
) -> std::io::Result<()> {
    link.set_nonblocking(true)?;
    let link = net::sys::watch_readable(link.into()).map_err(|(_, error)| error)?;
    rustix::io::write(link.get_ref(), b"R")?;
    loop {
        let mut ready = link.readable().await?;
        let received = ready.try_io(|link| net::pass::receive(link.get_ref(), &mut [0; 64]));
        let Ok(received) = received else { continue };
        let (bytes, descriptors) = received?;
        if bytes == 0 {
            return Ok(());
        }
        for descriptor in descriptors {
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            let stream = net::Stream::from_fd(descriptor, false);
            let (level, severity) = (control::AccessLevel::Admin, control::SeverityOutput::None);
            let exposed = Some(exposed.clone());
            let place = control::socket::session::ClientSlot::beyond_the_limit(runtime.clone());
            let task = crate::control_socket::converse(stream, level, severity, place, exposed);
            tokio::task::spawn_local(task);
        }
    }
}
