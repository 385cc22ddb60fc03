//! Trace sinks (management manual, 9.3 `trace … sink`): rings, and the standard outputs.
//!
//! Used by the trace commands, and by the binary for `traces` sections.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::{Date, WallTime};
use base::output;
use runtime::shared::Shared as _;
use runtime::trace::TraceOutput;
use runtime::trace::command::Outputs;
use state::Ring;
use state::ring::Stamp;

/// The standard outputs: name, descriptor and description.
pub(crate) const STANDARD: [(&str, u8, &str); 2] =
    [("stdout", 1, "standard output"), ("stderr", 2, "standard output")];

/// The sinks of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Sinks<'a> {
    rings: &'a [Arc<Ring>],
}

impl<'a> Sinks<'a> {
    /// Sinks with these rings.
    pub fn new(rings: &'a [Arc<Ring>]) -> Self {
        Self { rings }
    }
}

impl Outputs for Sinks<'_> {
    fn list(&self) -> Vec<(String, String)> {
        let standard =
            STANDARD.iter().map(|(name, number, doc)| ((*name).to_owned(), format!("{doc} (fd#{number})")));
        let rings = self.rings.iter().map(|ring| (ring.name.to_string(), ring.description.to_string()));
        standard.chain(rings).collect()
    }

    fn find(&self, name: &str) -> Option<Arc<dyn TraceOutput>> {
        if let Some((name, number, _)) = STANDARD.iter().find(|(known, ..)| *known == name) {
            return Some(Arc::new(Standard { name, number: *number }));
        }
        let ring = self.rings.iter().find(|ring| *ring.name == *name)?;
        Some(Arc::new(InRing(ring.clone())))
    }
}

/// One of the standard outputs.
struct Standard {
    name: &'static str,
    number: u8,
}

impl TraceOutput for Standard {
    fn name(&self) -> &str {
        self.name
    }

    fn write(&self, line: &str) {
        let stream = if self.number == 1 { output::Standard::Output } else { output::Standard::Error };
        if stream.write(format!("{line}\n").as_bytes()).is_err() {
            lost(self.number).add(1);
        }
    }

    fn dropped(&self) -> u64 {
        lost(self.number).load(Relaxed)
    }
}

/// The number of lines dropped by a standard output, by descriptor. Every thread that writes a trace may change it.
pub(crate) fn lost(number: u8) -> &'static AtomicU64 {
    static LOST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    &LOST[usize::from(number != 1)]
}

/// A ring.
struct InRing(Arc<Ring>);

impl TraceOutput for InRing {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn write(&self, line: &str) {
        use std::fmt::Write as _;
        let Self(ring) = self;
        let mut message = String::with_capacity(line.len() + 40);
        if matches!(ring.stamp, Stamp::Level | Stamp::LevelAndTime) {
            message.push_str("<0>");
        }
        if matches!(ring.stamp, Stamp::Time | Stamp::LevelAndTime) {
            let now = WallTime::now();
            // Writing to a string does not fail.
            let _ = Date::local(now.seconds).write_iso(Some(now.micros()), &mut message);
            let _ = message.write_char(' ');
        }
        message.push_str(line);
        let length = message.len().min(ring.max_length);
        ring.write(&message.as_bytes()[..length]);
    }

    fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
