//! `show opentelemetry`, and the same values in the exporter (docs/opentelemetry.md): the exports to OpenTelemetry collectors.
//! HAProxy has no equivalent.

use std::fmt::Write;

use state::telemetry::{Collector, ExportCounters, QueueTotals, QueuedSignal};

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// The state of one signal of a section.
struct SignalView<'a> {
    queue: QueueTotals,
    counters: &'a ExportCounters,
}

/// A value: the name of its column and metric, its type, its description, and its getter.
type TelemetryMetric = (&'static str, &'static str, &'static str, fn(&SignalView<'_>) -> u64);

#[rustfmt::skip]
const ROWS: &[TelemetryMetric] = &[
    ("waiting",       "gauge",   "Number of records that wait for their export.",                                |own| own.queue.waiting + own.counters.in_flight.get()),
    ("waiting_bytes", "gauge",   "Size of these records in bytes.",                                         |own| own.queue.bytes + own.counters.held_bytes.get()),
    ("exported",      "counter", "Total number of records that the collector accepted.",                         |own| own.counters.exported.get()),
    ("dropped",       "counter", "Total number of records dropped because the queue was full.",                  |own| own.queue.dropped),
    ("failed",        "counter", "Total number of records that the collector rejected or that could not be sent.", |own| own.counters.failed.get()),
    ("retries",       "counter", "Total number of repeated requests to the collector.",                          |own| own.counters.retries.get()),
];

/// The name of a metric of a row: counters end in `_total`.
fn metric_name(name: &str, kind: &str) -> String {
    if kind == "counter" { format!("{name}_total") } else { name.to_owned() }
}

/// The signals of a section by name.
fn signals(collector: &Collector) -> [(&'static str, SignalView<'_>); 3] {
    let queued = |signal| collector.queue_totals(signal);
    [
        ("traces", SignalView { queue: queued(QueuedSignal::Spans), counters: &collector.spans }),
        ("logs", SignalView { queue: queued(QueuedSignal::Logs), counters: &collector.logs }),
        ("metrics", SignalView { queue: QueueTotals::default(), counters: &collector.metrics }),
    ]
}

/// The response to `show opentelemetry`: the section `wanted`, or all of them if that is empty.
///
/// # Errors
/// The message for the client if the section does not exist.
pub fn show(view: &ConfigView, wanted: &str) -> Result<String, String> {
    let named = |collector: &&std::sync::Arc<Collector>| wanted.is_empty() || *collector.name == *wanted;
    let chosen: Vec<_> = view.collectors.iter().filter(named).collect();
    if chosen.is_empty() && !wanted.is_empty() {
        return Err(format!("No opentelemetry section '{wanted}'."));
    }
    let mut out = "# section signal".to_owned();
    for (name, ..) in ROWS {
        let _ = write!(out, " {name}");
    }
    out.push('\n');
    for collector in chosen {
        for (signal, own) in signals(collector) {
            let _ = write!(out, "{} {signal}", collector.name);
            for (.., value) in ROWS {
                let _ = write!(out, " {}", value(&own));
            }
            out.push('\n');
        }
    }
    Ok(out)
}

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    ROWS.iter().map(|(name, kind, help, _)| {
        ("opentelemetry", metric_name(name, kind), *kind, *help, &["section", "signal"][..])
    })
}

/// The metrics; `wanted` selects them by object kind and name.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    if view.collectors.is_empty() {
        return out;
    }
    for (name, kind, help, value) in ROWS {
        let name = metric_name(name, kind);
        if !wanted("opentelemetry", &name) {
            continue;
        }
        let _ =
            writeln!(out, "# HELP weir_opentelemetry_{name} {help}\n# TYPE weir_opentelemetry_{name} {kind}");
        for collector in &view.collectors {
            for (signal, own) in signals(collector) {
                let (section, value) = (&collector.name, value(&own));
                let _ = writeln!(
                    out,
                    "weir_opentelemetry_{name}{{section=\"{section}\",signal=\"{signal}\"}} {value}"
                );
            }
        }
    }
    out
}
