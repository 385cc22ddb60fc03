//! The histograms of durations in the exporter (`latency-histograms`, docs/metrics.md). HAProxy has no equivalent.

use std::fmt::Write;
use std::sync::Arc;

use base::protobuf as wire;
use state::durations::{
    BOUNDS_US, BucketExemplars, DurationHistogram, Durations, Exemplar, MeasuredTime, NativeHistogram,
    SCHEMA, ZERO_THRESHOLD,
};

use crate::config_view::ConfigView;
use crate::exposition::{self, ExpositionFormat, MessageFamily};
use crate::field::DescribedMetric;

/// The objects that have histograms, and their labels.
const OBJECTS: [(&str, &[&str]); 3] =
    [("frontend", &["proxy"]), ("backend", &["proxy"]), ("server", &["proxy", "server"])];

/// The description of a time.
fn help(time: MeasuredTime) -> &'static str {
    match time {
        MeasuredTime::Queue => "Time that requests waited for a free slot of a server.",
        MeasuredTime::Connect => "Time to connect to a server, almost 0 on a reused connection.",
        MeasuredTime::Response => "Time from the connection to the end of the response head.",
        MeasuredTime::Total => {
            "Time from the first byte of a request to the last byte of its response, or of a TCP stream."
        }
    }
}

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    OBJECTS.iter().flat_map(|(object, labels)| {
        MeasuredTime::ALL
            .map(|time| (*object, format!("{}_time_seconds", time.name()), "histogram", help(time), *labels))
    })
}

/// The number of objects in a piece.
const A_PIECE: usize = 32;

/// Returns the metrics that `wanted` selects by object kind and name.
pub(crate) fn selected(wanted: impl Fn(&str, &str) -> bool) -> Vec<(&'static str, MeasuredTime)> {
    let all = OBJECTS.iter().flat_map(|(object, _)| MeasuredTime::ALL.map(|time| (*object, time)));
    all.filter(|(object, time)| wanted(object, &format!("{}_time_seconds", time.name()))).collect()
}

/// The number of the type in `io.prometheus.client.MetricFamily`.
const HISTOGRAM: u64 = 4;

/// Returns the metrics in pieces.
pub(crate) fn metrics(
    view: Arc<ConfigView>,
    selected: Vec<(&'static str, MeasuredTime)>,
    format: ExpositionFormat,
) -> impl Iterator<Item = Vec<u8>> {
    // A list of servers may change while the pieces are written.
    let mut servers: Vec<Arc<state::Server>> = Vec::new();
    if selected.iter().any(|(object, _)| *object == "server") {
        let all = view.proxies.iter().filter(|proxy| proxy.state.is_backend);
        all.for_each(|proxy| servers.extend_from_slice(&proxy.state.servers.load()));
    }
    let servers = Arc::new(servers);
    selected.into_iter().flat_map(move |(object, time)| {
        let (view, servers) = (view.clone(), servers.clone());
        let objects = if object == "server" { servers.len() } else { view.proxies.len() };
        let mut family = HistogramFamily::new(object, time, format);
        let pieces = objects.div_ceil(A_PIECE);
        (0..pieces).map(move |piece| {
            let mut out = Vec::new();
            for at in piece * A_PIECE..objects.min((piece + 1) * A_PIECE) {
                if object == "server" {
                    let server = &servers[at];
                    let name = server.name.to_string();
                    family.write(&mut out, &[("proxy", &server.proxy), ("server", &name)], &server.durations);
                } else {
                    let proxy = &view.proxies[at].state;
                    let own = &proxy.durations;
                    let durations = if object == "frontend" { &own.frontend } else { &own.backend };
                    family.write(&mut out, &[("proxy", &proxy.name)], durations);
                }
            }
            if piece + 1 == pieces {
                family.messages.end(&mut out);
            }
            out
        })
    })
}

/// The histograms of one time of one kind of object.
struct HistogramFamily {
    name: String,
    time: MeasuredTime,
    format: ExpositionFormat,
    /// Whether the description has been written.
    described: bool,
    /// The family in the protobuf format.
    messages: MessageFamily,
}

impl HistogramFamily {
    fn new(object: &str, time: MeasuredTime, format: ExpositionFormat) -> Self {
        let name = format!("weir_{object}_{}_time_seconds", time.name());
        let messages = match format {
            ExpositionFormat::Protobuf => MessageFamily::new(&name, help(time), HISTOGRAM),
            _ => MessageFamily::default(),
        };
        Self { name, time, format, described: false, messages }
    }

    /// Writes the histogram of an object if it has counted a request.
    fn write(&mut self, out: &mut Vec<u8>, labels: &[(&str, &str)], durations: &Durations) {
        let time = self.time as usize;
        let native = match self.format {
            ExpositionFormat::Protobuf => durations.read_native(),
            _ => None,
        };
        // Both histograms of a message must have the same counts.
        let own = match &native {
            Some(all) => DurationHistogram { counts: all[time].classic(), sum_us: all[time].sum_us },
            None => match durations.read() {
                Some(all) => all[time].clone(),
                None => return,
            },
        };
        // TCP streams, for example, have no response time.
        if own.total() == 0 {
            return;
        }
        let exemplars = match self.format {
            ExpositionFormat::Text => None,
            _ => durations.exemplars().map(|all| all[time]),
        };
        if self.format == ExpositionFormat::Protobuf {
            self.messages.metric(labels.iter().copied(), |out| {
                wire::message(out, 7, |out| {
                    write_message(out, &own, native.as_ref().map(|all| &all[time]), exemplars.as_ref());
                });
            });
            return;
        }
        let mut text = String::new();
        if !std::mem::replace(&mut self.described, true) {
            let (name, help) = (&self.name, help(self.time));
            if self.format == ExpositionFormat::OpenMetrics {
                exposition::write_header(&mut text, name, "histogram", help);
            } else {
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
            }
        }
        self.write_lines(&mut text, labels, &own, exemplars.as_ref());
        out.extend_from_slice(text.as_bytes());
    }

    /// Writes the lines of a histogram in a text format.
    fn write_lines(
        &self,
        out: &mut String,
        labels: &[(&str, &str)],
        own: &DurationHistogram,
        exemplars: Option<&BucketExemplars>,
    ) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let (name, labels) = (&self.name, labels.join(","));
        let mut below = 0;
        for (at, count) in own.counts.iter().enumerate() {
            below += count;
            let _ = write!(out, "{name}_bucket{{{labels},le=\"");
            let _ = match BOUNDS_US.get(at).map(|end| *end as f64 / 1e6) {
                // OpenMetrics requires a decimal point.
                Some(end) if self.format == ExpositionFormat::OpenMetrics => write!(out, "{end:?}"),
                Some(end) => write!(out, "{end}"),
                None => write!(out, "+Inf"),
            };
            let _ = write!(out, "\"}} {below}");
            if let Some(exemplar) = exemplar(exemplars, at) {
                let Exemplar { trace, span, us, ended_ms } = exemplar;
                let (seconds, ms) = (ended_ms / 1000, ended_ms % 1000);
                let _ = write!(
                    out,
                    " # {{trace_id=\"{}\",span_id=\"{}\"}} ",
                    hexadecimal(trace),
                    hexadecimal(span)
                );
                let _ = write!(out, "{} {seconds}.{ms:03}", *us as f64 / 1e6);
            }
            out.push('\n');
        }
        let sum = own.sum_us as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {below}");
    }
}

/// The exemplar of a bucket.
fn exemplar(all: Option<&BucketExemplars>, bucket: usize) -> Option<&Exemplar> {
    all.and_then(|all| all.get(bucket)).filter(|own| own.ended_ms > 0)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes a histogram (`io.prometheus.client.Histogram`): the classic buckets with their exemplars, and the native ones.
fn write_message(
    out: &mut Vec<u8>,
    own: &DurationHistogram,
    native: Option<&NativeHistogram>,
    exemplars: Option<&BucketExemplars>,
) {
    wire::number(out, 1, own.total());
    wire::double(out, 2, own.sum_us as f64 / 1e6);
    let mut below = 0;
    for (at, count) in own.counts.iter().enumerate() {
        below += count;
        wire::message(out, 3, |out| {
            wire::number(out, 1, below);
            wire::double(out, 2, BOUNDS_US.get(at).map_or(f64::INFINITY, |end| *end as f64 / 1e6));
            if let Some(exemplar) = exemplar(exemplars, at) {
                wire::message(out, 3, |out| write_exemplar(out, exemplar));
            }
        });
    }
    let Some(native) = native else { return };
    wire::signed(out, 5, SCHEMA.into());
    wire::double(out, 6, ZERO_THRESHOLD);
    wire::number(out, 7, native.zero_count());
    // Runs of consecutive buckets, and the differences between the counts of a bucket and the one before it.
    let mut spans: Vec<(i64, u64)> = Vec::new();
    let (mut next, mut before, mut deltas) = (0, 0, Vec::new());
    for (index, count) in native.buckets() {
        let (index, count) = (i64::from(index), count.cast_signed());
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        wire::varint(&mut deltas, wire::zigzag(count - before));
        (next, before) = (index + 1, count);
    }
    for (offset, length) in spans {
        wire::message(out, 12, |out| {
            wire::signed(out, 1, offset);
            wire::number(out, 2, length);
        });
    }
    wire::bytes(out, 13, &deltas);
}

/// Writes an exemplar (`io.prometheus.client.Exemplar`).
fn write_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    exposition::write_label(out, 1, "trace_id", &hexadecimal(&exemplar.trace));
    exposition::write_label(out, 1, "span_id", &hexadecimal(&exemplar.span));
    wire::double(out, 2, exemplar.us as f64 / 1e6);
    wire::message(out, 3, |out| {
        wire::number(out, 1, exemplar.ended_ms / 1000);
        wire::number(out, 2, exemplar.ended_ms % 1000 * 1_000_000);
    });
}
