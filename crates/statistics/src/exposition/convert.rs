//! Converts metrics in the text format to the other formats.

use base::protobuf as wire;
use base::sample_line::SampleLine;

use super::{ExpositionFormat, unit};

/// The types of metrics in [`MessageFamily`].
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;

/// Converts pieces of whole lines in the text format. Each metric has a `# HELP` line, followed by a `# TYPE` line and its samples.
pub(crate) fn convert(
    format: ExpositionFormat,
    pieces: impl Iterator<Item = Vec<u8>> + 'static,
) -> Box<dyn Iterator<Item = Vec<u8>>> {
    match format {
        ExpositionFormat::Text => Box::new(pieces),
        ExpositionFormat::OpenMetrics => {
            let mut family = OpenFamily::default();
            Box::new(pieces.map(move |piece| {
                let mut out = String::with_capacity(piece.len() + piece.len() / 8);
                lines(&piece).for_each(|line| family.line(line, &mut out));
                out.into_bytes()
            }))
        }
        ExpositionFormat::Protobuf => {
            let (mut family, mut help) = (MessageFamily::default(), String::new());
            let end = std::iter::once(None);
            Box::new(pieces.map(Some).chain(end).map(move |piece| {
                let mut out = Vec::new();
                let Some(piece) = piece else {
                    family.end(&mut out);
                    return out;
                };
                for line in lines(&piece) {
                    match header(line) {
                        Some(("HELP", _, text)) => text.clone_into(&mut help),
                        Some((_, name, kind)) => {
                            family.end(&mut out);
                            let kind = if kind == "counter" { COUNTER } else { GAUGE };
                            family = MessageFamily::new(name, &help, kind);
                        }
                        None => family.number(line),
                    }
                }
                out
            }))
        }
    }
}

fn lines(piece: &[u8]) -> impl Iterator<Item = &str> {
    std::str::from_utf8(piece).unwrap_or_default().lines()
}

/// Reads a line `# HELP name text` or `# TYPE name type`.
fn header(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((words.next()?, words.next()?, words.next().unwrap_or_default()))
}

/// The conversion to OpenMetrics.
///
/// The name of a counter ends in `_total`, which is not part of the name of its family. Counters with other names keep them, but have
/// no type, because queries would not find them under another name.
#[derive(Default)]
struct OpenFamily {
    help: String,
    is_counter: bool,
}

impl OpenFamily {
    fn line(&mut self, line: &str, out: &mut String) {
        match header(line) {
            Some(("HELP", _, text)) => text.clone_into(&mut self.help),
            Some((_, name, kind)) => {
                self.is_counter = kind == "counter";
                let (family, kind) = match (kind, name.strip_suffix("_total")) {
                    ("counter", Some(family)) => (family, kind),
                    ("counter", None) => (name, "unknown"),
                    _ => (name, kind),
                };
                write_header(out, family, kind, &self.help);
            }
            // A counter always has a value.
            None if self.is_counter && line.ends_with(" NaN") => {}
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}

/// Writes the description of a family in OpenMetrics.
pub(crate) fn write_header(out: &mut String, family: &str, kind: &str, help: &str) {
    use std::fmt::Write;
    let help = help.replace('\\', "\\\\").replace('"', "\\\"");
    // Writing into a String cannot fail.
    let _ = writeln!(out, "# TYPE {family} {kind}");
    if let Some(unit) = unit(family) {
        let _ = writeln!(out, "# UNIT {family} {unit}");
    }
    let _ = writeln!(out, "# HELP {family} {help}");
}

/// A message `io.prometheus.client.MetricFamily` with its metrics so far.
#[derive(Default)]
pub(crate) struct MessageFamily {
    message: Vec<u8>,
    kind: u64,
    has_metrics: bool,
}

impl MessageFamily {
    /// Begins a family. `kind` is the number of its type.
    pub(crate) fn new(name: &str, help: &str, kind: u64) -> Self {
        let mut message = Vec::new();
        wire::text(&mut message, 1, name.as_bytes());
        wire::text(&mut message, 2, help.as_bytes());
        wire::number(&mut message, 3, kind);
        if let Some(unit) = unit(name.strip_suffix("_total").unwrap_or(name)) {
            wire::text(&mut message, 5, unit.as_bytes());
        }
        Self { message, kind, has_metrics: false }
    }

    /// Appends a metric, which `write` encodes after its labels.
    pub(crate) fn metric<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.has_metrics = true;
        wire::message(&mut self.message, 4, |out| {
            for (name, value) in labels {
                write_label(out, 1, name, value);
            }
            write(out);
        });
    }

    /// Appends the sample of a counter or gauge.
    fn number(&mut self, line: &str) {
        let Some(sample) = SampleLine::parse(line) else { return };
        // A counter always has a value.
        if self.kind == COUNTER && sample.value.is_nan() {
            return;
        }
        let field = if self.kind == COUNTER { 3 } else { 2 };
        let labels = sample.labels.iter().map(|(name, value)| (*name, &**value));
        self.metric(labels, |out| wire::message(out, field, |out| wire::double(out, 1, sample.value)));
    }

    /// Appends the family to `out` if it has metrics, and clears it.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        let message = std::mem::take(&mut self.message);
        if std::mem::take(&mut self.has_metrics) {
            wire::varint(out, message.len() as u64);
            out.extend_from_slice(&message);
        }
    }
}

/// Appends a label (`LabelPair`).
pub(crate) fn write_label(out: &mut Vec<u8>, field: u32, name: &str, value: &str) {
    wire::message(out, field, |out| {
        wire::bytes(out, 1, name.as_bytes());
        wire::bytes(out, 2, value.as_bytes());
    });
}
