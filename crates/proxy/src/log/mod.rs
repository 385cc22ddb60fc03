//! Sends log lines (configuration manual, 4.2 `log`): profiles, sampling, levels, and non-blocking output. Lines that cannot be
//! sent are counted.
//!
//! Producers of lines (`report`, health checks, log forwarders) call [`Outbox`]. `header` formats the header, `socket` sends the
//! lines, `syslog` parses messages from other programs, and `mirror` maintains the backing files of rings. `serve::log` receives
//! messages from other programs, and sends the messages in rings to servers.

mod collect;
pub(crate) mod header;
mod mirror;
mod socket;
pub(crate) mod syslog;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use base::clock::DateCache;
use base::event_counter;
use base::event_counter::EventCounter;
use plan::Proxy;
use plan::log::{LogAddress, LogServer, LogTarget, Logger};
use sample::format::Format;
use sample::{Env, LogProfile};
use state::Process;
use state::server::ServerAddress;

pub use header::LogLine;
pub use mirror::open as open_mirrors;
use socket::LogSockets;
pub use socket::open_inherited;

use crate::shared::Shared;

pub(crate) static LOST: EventCounter =
    event_counter!(Count, "deliver()", "log message dropped because sending it would block");

/// One worker's output for log lines. The process has another one for its own messages.
pub struct Outbox {
    process: Arc<Process>,
    /// `log-send-hostname`.
    host: Option<Box<[u8]>>,
    pid: Box<[u8]>,
    sockets: LogSockets,
    dates: DateCache,
    lines: Lines,
    framed: Vec<u8>,
}

/// Reusable buffers for the text of lines.
#[derive(Default)]
struct Lines {
    common: Vec<u8>,
    structured: Vec<u8>,
    own: Vec<u8>,
    own_structured: Vec<u8>,
}

/// The originator of log lines.
pub(crate) struct Maker<'a> {
    pub(crate) loggers: &'a [Logger],
    /// `log-format-sd`.
    pub(crate) structured: Option<&'a Format>,
    /// `log-tag`.
    pub(crate) tag: &'a [u8],
}

impl<'a> Maker<'a> {
    /// Returns the originator for a proxy.
    pub(crate) fn of(proxy: &'a Proxy) -> Self {
        Self { loggers: &proxy.loggers, structured: proxy.log_format_sd.as_ref(), tag: &proxy.log_tag }
    }
}

/// A log report about a stream or connection.
pub(crate) struct Report<'a> {
    /// The format of the line, unless a profile sets another one. Without a format, only profiles produce lines.
    pub(crate) format: Option<&'a Format>,
    /// The syslog level, 0 (emerg) to 7 (debug).
    pub(crate) level: u8,
    /// The profile of `do-log profile`, which replaces the loggers' profiles.
    pub(crate) profile: Option<&'a LogProfile>,
}

impl Outbox {
    /// Creates the output of the calling worker.
    pub fn new(shared: &Shared) -> Self {
        let global = &shared.plan.global;
        let own = || rustix::system::uname().nodename().to_bytes().into();
        let host = global.log_send_hostname.as_deref().map(|name| match name {
            b"" => own(),
            name => name.into(),
        });
        Self {
            process: shared.process.clone(),
            host,
            pid: std::process::id().to_string().into_bytes().into(),
            sockets: LogSockets::new(global.tune.sndbuf_backend),
            dates: DateCache::default(),
            lines: Lines::default(),
            framed: Vec::with_capacity(1024),
        }
    }

    /// Sends a report about a stream to each logger of its originator that accepts the line. Each text is rendered only once, on
    /// first use.
    pub(crate) fn write(&mut self, shared: &Shared, maker: &Maker<'_>, env: &Env<'_>, report: &Report<'_>) {
        let mut lines = std::mem::take(&mut self.lines);
        let (mut has_common, mut has_structured) = (false, false);
        for (index, logger) in maker.loggers.iter().enumerate() {
            if !Self::takes(logger, report.level) {
                continue;
            }
            let profile = report.profile.or(logger.profile.as_deref());
            let step = profile.and_then(|profile| profile.at(env.log_origin));
            if step.is_some_and(|step| step.drop) {
                continue;
            }
            let text = match (step.and_then(|step| step.format.as_ref()), report.format) {
                (Some(format), _) => render(format, env, &mut lines.own),
                (None, Some(format)) => {
                    if !std::mem::replace(&mut has_common, true) {
                        render(format, env, &mut lines.common);
                    }
                    &lines.common
                }
                (None, None) => continue,
            };
            let structured = match (step.and_then(|step| step.structured.as_ref()), maker.structured) {
                (Some(format), _) => render(format, env, &mut lines.own_structured),
                (None, Some(format)) => {
                    if !std::mem::replace(&mut has_structured, true) {
                        render(format, env, &mut lines.structured);
                    }
                    &lines.structured
                }
                (None, None) => &[][..],
            };
            // Empty lines are not sent.
            if text.is_empty() && structured.is_empty() {
                continue;
            }
            let tag = profile.and_then(|profile| profile.tag.as_deref()).unwrap_or(maker.tag);
            let trace = env.transaction.and_then(|transaction| transaction.trace.as_deref());
            let context = trace.map(|trace| (trace.trace, trace.span, trace.kept));
            let line = LogLine { structured, context, ..LogLine::own(report.level, tag, text) };
            self.deliver(shared, index, logger, &line);
        }
        self.lines = lines;
    }

    /// Sends a finished line to `loggers`.
    pub fn send_all(&mut self, shared: &Shared, loggers: &[Logger], line: &LogLine<'_>) {
        for (index, logger) in loggers.iter().enumerate() {
            if Self::takes(logger, line.level) {
                self.deliver(shared, index, logger, line);
            }
        }
    }

    /// Whether a logger accepts a line of this level. The line counts for sampling.
    fn takes(logger: &Logger, level: u8) -> bool {
        level <= logger.max_level && logger.sample.as_ref().is_none_or(|sample| sample.takes_next())
    }

    /// Frames a line for a logger, and passes it to the logger's target. `index` is the logger's index in its proxy.
    fn deliver(&mut self, shared: &Shared, index: usize, logger: &Logger, line: &LogLine<'_>) {
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        // A record for a collector has fields instead of a header.
        if !matches!(logger.target, LogTarget::Collector(_)) {
            self.header(logger, line, &mut framed);
            framed.extend_from_slice(line.text);
        }
        while framed.last() == Some(&b'\n') {
            framed.pop();
        }
        // Every target except a ring expects a line ending.
        let end = usize::from(!matches!(logger.target, LogTarget::Ring(_)));
        framed.truncate(logger.max_length.saturating_sub(end));
        let sent = match &logger.target {
            LogTarget::Address(address) => {
                let sent = self.sockets.send(address, with_end(&mut framed), index);
                self.note_lost(shared);
                sent.inspect_err(|error| report(shared, index, error)).is_ok()
            }
            LogTarget::Ring(ring) => ring.write(&framed),
            LogTarget::Collector(collector) => collect::push(collector, logger, line),
            LogTarget::Backend(backend) => self.balance(shared, *backend, line.text, index, &mut framed),
        };
        if !sent {
            LOST.note();
            self.process.counters.mine().dropped_logs.add(1);
        }
        self.framed = framed;
    }

    /// Writes pending lines. Lines are only kept once this was called, and `flusher` is woken for the first of them.
    pub(crate) fn flush(&mut self, shared: &Shared, flusher: &Waker) {
        self.sockets.flush(flusher);
        self.note_lost(shared);
    }

    /// Counts and reports pending lines that could not be written.
    fn note_lost(&mut self, shared: &Shared) {
        let Some(lost) = self.sockets.take_lost() else { return };
        LOST.note();
        self.process.counters.mine().dropped_logs.add(lost.count);
        if let Some((logger, error)) = lost.error {
            report(shared, logger, &error);
        }
    }

    /// Sends a line to a server of a log backend. `text` is the line without its header, which is the input of `log-hash`.
    /// `index` is the logger's index.
    fn balance(
        &mut self,
        shared: &Shared,
        backend: usize,
        text: &[u8],
        index: usize,
        framed: &mut Vec<u8>,
    ) -> bool {
        let prepared = &shared.proxies[backend];
        let hash = match &prepared.plan.balance.algorithm {
            balance::Algorithm::LogHash(converters) => {
                let env = Env { request_bytes: text, ..Env::new(&self.process, 0) };
                let mut key = Vec::new();
                converters.eval_into(&env, &mut key).then(|| prepared.plan.balance.hash.of(&key))
            }
            _ => None,
        };
        let wish = balance::Wish { hash, ..balance::Wish::default() };
        let Some(picked) = prepared.picker().pick(wish, |_| u32::MAX) else { return false };
        let Some(server) = prepared.plan.servers.get(picked) else { return false };
        let sent = match &server.log {
            Some(LogServer::Ring(ring)) => ring.write(framed),
            Some(LogServer::Datagram) => {
                let address = match &**server.state.address.load() {
                    ServerAddress::Ip(address) => Some(LogAddress::Udp(*address)),
                    ServerAddress::Unix(path) => Some(LogAddress::Unix(path.clone())),
                    ServerAddress::Abstract { name, .. } => Some(LogAddress::Abstract(name.clone())),
                    ServerAddress::Unresolved | ServerAddress::Reverse => None,
                };
                let sent = address.map(|address| self.sockets.send(&address, with_end(framed), index));
                sent.is_some_and(|sent| sent.inspect_err(|error| report(shared, index, error)).is_ok())
            }
            // A server that was added to a log backend at run time has no connection for its lines.
            None => false,
        };
        let of_server = server.state.counters.mine();
        let of_backend = prepared.plan.state.backend.mine();
        if sent {
            for traffic in [&of_server.traffic, &of_backend.traffic] {
                traffic.sessions_total.add(1);
                traffic.bytes_in.add(framed.len() as u64);
            }
        } else {
            of_server.connection_errors.add(1);
            of_backend.connection_errors.add(1);
        }
        sent
    }
}

/// Reports the first target that rejects a line, once per process, as HAProxy does. A target with a slow reader is not reported.
fn report(shared: &Shared, index: usize, error: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::WriteZero)
        || REPORTED.swap(true, Relaxed)
    {
        return;
    }
    let number = error.raw_os_error().map(|number| format!(" (errno={number})")).unwrap_or_default();
    let logger = index + 1;
    (shared.services.alert)(&format!("sendmsg()/writev() failed in logger #{logger}: {error}{number}"));
}

/// Renders into a reused buffer.
fn render<'b>(format: &Format, env: &Env<'_>, out: &'b mut Vec<u8>) -> &'b [u8] {
    out.clear();
    format.render(env, out);
    out
}

/// Returns the line with the line ending that sockets expect.
fn with_end(framed: &mut Vec<u8>) -> &[u8] {
    framed.push(b'\n');
    framed
}
