//! Counters of rare events, one for each place in the code (management guide, `debug counters`), which help to diagnose faults.
//!
//! A counter is a static next to the code that increments it. [`event_counter!`](crate::event_counter!) creates it, and the list
//! `rare` of each crate registers it; only registered counters are shown. Any thread may increment a counter, but only on paths
//! that are seldom taken.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A bug in the program.
    Bug,
    /// An unexpected condition that was handled.
    Check,
    /// A rare event.
    Count,
    /// Misbehaviour of a peer.
    Glitch,
}

impl EventKind {
    /// The name in output. In lower case, the name selects the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bug => "BUG",
            Self::Check => "CHK",
            Self::Count => "CNT",
            Self::Glitch => "GLT",
        }
    }
}

/// Whether events of the kind [`EventKind::Count`] are counted. Commands of the runtime socket change this.
static COUNTS: AtomicBool = AtomicBool::new(true);

/// Switches the counting of events of the kind [`EventKind::Count`].
pub fn switch(on: bool) {
    COUNTS.store(on, Relaxed);
}

/// A counter for one place in the code.
#[derive(Debug)]
pub struct EventCounter {
    kind: EventKind,
    file: &'static str,
    line: u32,
    function: &'static str,
    text: &'static str,
    count: AtomicU64,
}

/// The counter for a code location: its kind, its function, and a description of the event.
#[macro_export]
macro_rules! event_counter {
    ($kind:ident, $function:expr, $text:expr) => {
        $crate::event_counter::EventCounter::new(
            $crate::event_counter::EventKind::$kind,
            (file!(), line!()),
            $function,
            $text,
        )
    };
}

impl EventCounter {
    /// Used by [`event_counter!`](crate::event_counter!), which supplies the location.
    pub const fn new(
        kind: EventKind,
        (file, line): (&'static str, u32),
        function: &'static str,
        text: &'static str,
    ) -> Self {
        Self { kind, file, line, function, text, count: AtomicU64::new(0) }
    }

    /// Counts one event.
    #[cold]
    pub fn note(&self) {
        if self.kind != EventKind::Count || COUNTS.load(Relaxed) {
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// The kind.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// The number of events since the start, or since the last reset.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Resets the counter.
    pub fn reset(&self) {
        self.count.store(0, Relaxed);
    }
}

impl fmt::Display for EventCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, file, line, function, text, .. } = self;
        write!(f, "{:<10} {} {file}:{line} {function}: {text}", self.count(), kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SELDOM: EventCounter = event_counter!(Count, "some_function()", "something seldom");
    static WRONG: EventCounter = event_counter!(Glitch, "other_function()", "something wrong");

    #[test]
    fn events_are_counted_with_their_location_and_reset() {
        SELDOM.note();
        WRONG.note();
        switch(false);
        SELDOM.note();
        WRONG.note();
        switch(true);
        let line = line!() - 11;
        let file = file!();
        let shown = format!("1          CNT {file}:{line} some_function(): something seldom");
        assert_eq!(SELDOM.to_string(), shown);
        assert_eq!((SELDOM.count(), WRONG.count()), (1, 2));
        WRONG.reset();
        assert_eq!(WRONG.count(), 0);
    }
}
