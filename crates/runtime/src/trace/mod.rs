//! Traces (`trace` on the runtime socket, `traces` sections; management manual, 9.3): live reports of events in parts of the
//! process.
//!
//! A part that can be traced is a [`TraceSource`]. A trace point tests one word ([`is_on`]), and calls [`report`], which is cold,
//! only if the source is traced. `command` parses commands, `sources` lists events and criteria, and `state` decides when a source
//! reports. Only implementations of [`TraceOutput`] may do I/O. Callers: the traced code, the runtime socket, and the binary for
//! `traces` sections.

pub mod command;
mod filter;
pub mod sources;
mod state;

use std::fmt::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub use filter::{RequestFilter, request_filter};
pub use sources::{
    TraceSource, acme, check, fcgi, h1, h2, h3, peers, qmux, quic, rules, session, spop, ssl, stream,
};
pub use state::{Lock, TraceAction, TraceRun, stop_all};

/// The bits of the traced sources. Written by `state` when a trace starts or stops.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// The bit in [`ACTIVE`] for the lines of `-d`.
const MESSAGES: u32 = 1 << 31;

/// Makes trace points show each message on standard error (`-d`).
pub fn show_messages() {
    ACTIVE.fetch_or(MESSAGES, Relaxed);
}

/// Whether trace points show each message on standard error.
pub fn shows_messages() -> bool {
    ACTIVE.load(Relaxed) & MESSAGES != 0
}

/// Whether any source is traced.
#[inline]
pub fn any() -> bool {
    ACTIVE.load(Relaxed) != 0
}

/// Whether this source is traced.
#[inline]
pub fn is_on(source: TraceSource) -> bool {
    ACTIVE.load(Relaxed) & source.bit() != 0
}

/// The level of a trace point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceLevel {
    /// An error.
    Error,
    /// For users watching their traffic.
    User,
    /// Protocol units.
    Proto,
    /// State changes.
    State,
    /// Data transfer.
    Data,
    /// For developers debugging the program.
    Developer,
}

/// The amount of detail in a line in addition to its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Nothing.
    Quiet,
    /// Information for users: request lines and statuses.
    Clean,
    /// The owner of the event.
    Minimal,
    /// Request lines and statuses, and the session and stream.
    Simple,
    /// Header fields as well.
    Advanced,
    /// Everything.
    Complete,
}

impl Verbosity {
    const ALL: [Self; 6] =
        [Self::Quiet, Self::Clean, Self::Minimal, Self::Simple, Self::Advanced, Self::Complete];

    fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Complete)
    }

    /// Whether lines include the owner.
    pub fn names_owner(self) -> bool {
        self >= Self::Minimal
    }

    /// Whether lines include request lines and statuses.
    pub fn shows_message(self) -> bool {
        self != Self::Quiet && self != Self::Minimal
    }

    /// Whether lines include header fields.
    pub fn shows_fields(self) -> bool {
        self >= Self::Advanced
    }
}

/// The objects to which a trace point refers, for locks: identifying numbers, 0 if not applicable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keys {
    /// The client's session.
    pub session: u64,
    /// The connection.
    pub connection: u64,
    /// The stream, or the request of an HTTP/1 connection.
    pub stream: u64,
    /// The listener.
    pub listener: u64,
    /// The frontend.
    pub frontend: u64,
    /// The backend.
    pub backend: u64,
    /// The server.
    pub server: u64,
    /// An object specific to the source, such as a peer or a certificate order.
    pub own: u64,
    /// A group of objects specific to the source, such as a peers section.
    pub group: u64,
}

/// A destination for trace lines.
pub trait TraceOutput: Send + Sync {
    /// The name of the sink.
    fn name(&self) -> &str;
    /// Writes a line, which is passed without a terminator.
    fn write(&self, line: &str);
    /// The number of dropped lines.
    fn dropped(&self) -> u64;
}

/// Reports `events` of the source, with a message and optional details.
#[cold]
#[inline(never)]
#[track_caller]
pub fn report(
    source: TraceSource,
    events: u64,
    level: TraceLevel,
    keys: &Keys,
    message: &str,
    detail: &dyn Fn(Verbosity, &mut String),
) {
    let place = Location::caller();
    state::of(source).happen(source, events, level, keys, |output, verbosity| {
        let file = place.file().rsplit('/').next().unwrap_or_default();
        let mut line = String::with_capacity(160);
        let worker = crate::current_worker();
        // Writing to a string does not fail.
        let _ =
            write!(line, "[{worker:02}|{}|{}|{file}:{}] {message}", source.name(), level as u8, place.line());
        if verbosity != Verbosity::Quiet {
            let start = line.len();
            line.push_str(" : ");
            let before = line.len();
            detail(verbosity, &mut line);
            if line.len() == before {
                line.truncate(start);
            }
        }
        printable(&mut line);
        output.write(&line);
    });
}

/// Replaces characters that would end the line or control a terminal.
fn printable(line: &mut String) {
    if line.chars().any(char::is_control) {
        *line = line.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
    }
}

#[cfg(test)]
mod tests;
