//! The exporter: sends spans, log records and metrics to OpenTelemetry collectors (`opentelemetry` sections).
//!
//! One thread of the process, which is not a worker, runs three tasks for each section, one for each signal ([`export`]). They take
//! the queued records from `state::telemetry`, form batches, and retry them as the protocol demands. Workers are never involved, so
//! that a slow collector, compression and TLS cost requests nothing.

#![forbid(unsafe_code)]

mod client;
mod conventions;
mod export;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use httpclient::ClientSettings;
use plan::Plan;
use plan::telemetry::TelemetrySection;
use resolvers::Sections;
use runtime::timer;
use state::Proxy;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::client_settings;

/// Receives messages: the syslog level and the text.
pub type NotifyExport = Arc<dyn Fn(u8, &str) + Send + Sync>;

/// Callbacks of the exporter. They are called on its thread.
#[derive(Clone)]
pub struct ExporterCallbacks {
    /// Receives messages.
    pub notify: NotifyExport,
    /// Returns the metrics in the text format of the Prometheus exporter.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Returns the proxies, for the times of their requests.
    pub proxies: Arc<dyn Fn() -> Vec<Arc<Proxy>> + Send + Sync>,
}

/// The syslog levels of messages.
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// A section with the settings for its requests.
struct ExportTarget {
    section: Arc<TelemetrySection>,
    settings: ClientSettings,
}

/// An instruction for the thread.
enum ExporterCommand {
    /// Exports to the sections of a plan. Sections that are missing get a last export.
    Use(Vec<ExportTarget>),
    /// Exports everything once, ends, and then drops the sender.
    Stop(mpsc::Sender<()>),
}

/// The exporter of the process. Its thread starts with the first plan that has a section.
#[derive(Default)]
pub struct Exporter(Mutex<Option<UnboundedSender<ExporterCommand>>>);

impl Exporter {
    /// Exports to the sections of `plan` from now on; `sections` must be those of `plan`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(&self, plan: &Plan, sections: &Sections, callbacks: &ExporterCallbacks) -> io::Result<()> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() && plan.telemetry.is_empty() {
            return Ok(());
        }
        let of_section = |section: &Arc<TelemetrySection>| ExportTarget {
            section: section.clone(),
            settings: client_settings(section, sections),
        };
        let targets = ExporterCommand::Use(plan.telemetry.iter().map(of_section).collect());
        let sender = match &*running {
            Some(sender) => sender.clone(),
            None => {
                let (sender, receiver) = unbounded_channel();
                let callbacks = callbacks.clone();
                runtime::worker::spawn_aside("weir/otel", move || serve(receiver, callbacks))?;
                running.insert(sender).clone()
            }
        };
        sender.send(targets).map_err(|_| io::Error::other("the exporter has ended"))
    }

    /// Exports the queued records once, and ends the thread. Returns after `limit` at the latest; the rest is lost.
    pub fn stop(&self, limit: Duration) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(sender) = running else { return };
        let (done, ended) = mpsc::channel();
        if sender.send(ExporterCommand::Stop(done)).is_ok() {
            // Nothing is ever sent: the wait ends when the thread drops its end, or when the time is over.
            let _ = ended.recv_timeout(limit);
        }
    }
}

/// The state that the tasks of a section share.
struct SharedTarget {
    current: RefCell<Rc<ExportTarget>>,
    /// Wakes the tasks: a queue is well filled, or the section ends.
    wake: Arc<Notify>,
    is_ending: Cell<bool>,
    /// Whether the collector is known to be unavailable, so that this was reported.
    is_away: Cell<bool>,
    /// Whether a partial success was reported.
    said_partial: Cell<bool>,
    callbacks: ExporterCallbacks,
    /// The start of cumulative metrics, in ns since the UNIX epoch.
    start_ns: u64,
    running: Cell<u32>,
    /// Wakes the thread when the last task has ended.
    ended: Rc<Notify>,
}

/// Obeys commands until [`ExporterCommand::Stop`].
async fn serve(mut commands: UnboundedReceiver<ExporterCommand>, callbacks: ExporterCallbacks) {
    let start_ns = export::now_ns();
    let mut targets: HashMap<Box<str>, Rc<SharedTarget>> = HashMap::new();
    let ended = Rc::new(Notify::new());
    let mut leaving: Vec<Rc<SharedTarget>> = Vec::new();
    while let Some(command) = commands.recv().await {
        leaving.retain(|target| target.running.get() > 0);
        match command {
            ExporterCommand::Use(wanted) => {
                let mut former = std::mem::take(&mut targets);
                for target in wanted {
                    let name = target.section.collector.name.clone();
                    let target = Rc::new(target);
                    let shared = match former.remove(&name) {
                        Some(shared) => {
                            shared.current.replace(target);
                            shared
                        }
                        None => begin(target, &callbacks, start_ns, &ended),
                    };
                    shared.wake.notify_waiters();
                    targets.insert(name, shared);
                }
                for (_, shared) in former {
                    shared.end();
                    leaving.push(shared);
                }
            }
            ExporterCommand::Stop(done) => {
                leaving.extend(targets.into_values());
                leaving.iter().for_each(|shared| shared.end());
                while leaving.iter().any(|shared| shared.running.get() > 0) {
                    ended.notified().await;
                }
                drop(done);
                return;
            }
        }
    }
}

fn begin(
    target: Rc<ExportTarget>,
    callbacks: &ExporterCallbacks,
    start_ns: u64,
    ended: &Rc<Notify>,
) -> Rc<SharedTarget> {
    let wake = Arc::new(Notify::new());
    let waker = wake.clone();
    target.section.collector.wake_by(move || waker.notify_waiters());
    let shared = Rc::new(SharedTarget {
        current: RefCell::new(target),
        wake,
        is_ending: Cell::new(false),
        is_away: Cell::new(false),
        said_partial: Cell::new(false),
        callbacks: callbacks.clone(),
        start_ns,
        running: Cell::new(3),
        ended: ended.clone(),
    });
    tokio::task::spawn_local(export::queued(shared.clone(), state::telemetry::QueuedSignal::Spans));
    tokio::task::spawn_local(export::queued(shared.clone(), state::telemetry::QueuedSignal::Logs));
    tokio::task::spawn_local(export::metrics(shared.clone()));
    shared
}

impl SharedTarget {
    fn end(&self) {
        self.is_ending.set(true);
        self.wake.notify_waiters();
    }

    fn target(&self) -> Rc<ExportTarget> {
        self.current.borrow().clone()
    }

    /// Waits for `time`, but not longer than until a queue is well filled, the settings change, or the section ends.
    async fn wait(&self, time: Duration) {
        if !self.is_ending.get() {
            let _ = timer::timeout(time, self.wake.notified()).await;
        }
    }

    /// Waits for `ms`, but not longer than until the section ends. Returns whether it goes on.
    async fn pause(&self, ms: u64) -> bool {
        let until = timer::now_ms() + ms;
        while !self.is_ending.get() && timer::now_ms() < until {
            let _ = timer::timeout_at(until, self.wake.notified()).await;
        }
        !self.is_ending.get()
    }

    fn task_ended(&self) {
        self.running.set(self.running.get() - 1);
        self.ended.notify_one();
    }

    /// Reports that the collector does not accept exports, once until it does.
    fn report_away(&self, target: &ExportTarget, cause: &str) {
        if !self.is_away.replace(true) {
            let section = &target.section;
            let text = format!(
                "opentelemetry {}: the collector {} does not accept exports: {cause}.",
                section.collector.name, section.endpoint
            );
            (self.callbacks.notify)(WARNING, &text);
        }
    }

    /// Reports that the collector accepts exports again.
    fn report_back(&self, target: &ExportTarget) {
        if self.is_away.replace(false) {
            let section = &target.section;
            let text = format!(
                "opentelemetry {}: the collector {} accepts exports again.",
                section.collector.name, section.endpoint
            );
            (self.callbacks.notify)(NOTICE, &text);
        }
    }
}
