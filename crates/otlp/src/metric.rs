//! Metrics in their encoding (`opentelemetry.proto.metrics.v1.Metric`), from the text format of the Prometheus exporter.
//!
//! The conversion is the one that OpenTelemetry specifies for Prometheus: counters become cumulative monotonic sums, histograms
//! become explicit-bucket histograms, everything else becomes gauges, and labels become attributes. So both exporters have the same
//! metrics under the same names.

use crate::attribute::Attributes;
use crate::wire;

const CUMULATIVE: u64 = 2;

/// The times of data points, in ns since the UNIX epoch.
#[derive(Clone, Copy)]
struct PointTimes {
    start: u64,
    now: u64,
}

/// A metric family: the lines between two `# HELP` or `# TYPE` headers of different names.
#[derive(Default)]
struct MetricFamily<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

/// A sample line.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

/// Converts the text of an exporter and appends the metrics to `out`. `start_ns` is the start of the counters and `now_ns` the
/// present, both in ns since the UNIX epoch. Samples without a value (`NaN`) and malformed lines are left out.
pub fn write_metrics(out: &mut Vec<u8>, text: &str, start_ns: u64, now_ns: u64) {
    let times = PointTimes { start: start_ns, now: now_ns };
    let mut family = MetricFamily::default();
    for line in text.lines() {
        if let Some(header) = line.strip_prefix("# ") {
            let mut words = header.splitn(3, ' ');
            let (Some(what), Some(name)) = (words.next(), words.next()) else { continue };
            let rest = words.next().unwrap_or_default();
            if family.name != name {
                family.write(out, times);
                family = MetricFamily { name, ..MetricFamily::default() };
            }
            match what {
                "HELP" => family.help = rest,
                "TYPE" => family.kind = rest,
                _ => {}
            }
        } else if let Some(sample) = read_sample(line) {
            family.samples.push(sample);
        }
    }
    family.write(out, times);
}

impl MetricFamily<'_> {
    fn write(&self, out: &mut Vec<u8>, times: PointTimes) {
        if self.samples.is_empty() {
            return;
        }
        wire::message(out, 2, |out| {
            wire::text(out, 1, self.name.as_bytes());
            if !self.help.is_empty() {
                wire::text(out, 2, self.help.as_bytes());
            }
            if self.name.ends_with("_seconds") || self.name.ends_with("_seconds_total") {
                wire::text(out, 3, b"s");
            } else if self.name.ends_with("_bytes") || self.name.contains("bytes_") {
                wire::text(out, 3, b"By");
            }
            match self.kind {
                "counter" => wire::message(out, 7, |out| {
                    self.samples.iter().for_each(|sample| number_point(out, sample, times, true));
                    wire::number(out, 2, CUMULATIVE);
                    wire::number(out, 3, 1);
                }),
                "histogram" => wire::message(out, 9, |out| {
                    self.histograms(out, times);
                    wire::number(out, 2, CUMULATIVE);
                }),
                _ => wire::message(out, 5, |out| {
                    self.samples.iter().for_each(|sample| number_point(out, sample, times, false));
                }),
            }
        });
    }

    /// Appends one data point for each histogram of the family: the buckets with the same labels except `le`, then sum and count.
    fn histograms(&self, out: &mut Vec<u8>, times: PointTimes) {
        let (mut bounds, mut counts) = (Vec::new(), Vec::new());
        let (mut before, mut sum) = (0u64, None);
        for sample in &self.samples {
            match sample.name.strip_prefix(self.name) {
                Some("_bucket") => {
                    let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                    let Some(bound) = bound.and_then(|(_, bound)| bound.parse::<f64>().ok()) else {
                        continue;
                    };
                    let total = sample.value as u64;
                    counts.push(total.saturating_sub(before));
                    before = total;
                    if bound.is_finite() {
                        bounds.push(bound);
                    }
                }
                Some("_sum") => sum = Some(sample.value),
                Some("_count") => {
                    wire::message(out, 1, |out| {
                        wire::fixed64(out, 2, times.start);
                        wire::fixed64(out, 3, times.now);
                        wire::fixed64(out, 4, sample.value as u64);
                        if let Some(sum) = sum {
                            wire::fixed64(out, 5, sum.to_bits());
                        }
                        let packed = |values: &mut dyn Iterator<Item = u64>| {
                            values.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
                        };
                        wire::bytes(out, 6, &packed(&mut counts.iter().copied()));
                        wire::bytes(out, 7, &packed(&mut bounds.iter().copied().map(f64::to_bits)));
                        write_labels(out, 9, sample);
                    });
                    bounds.clear();
                    counts.clear();
                    (before, sum) = (0, None);
                }
                _ => {}
            }
        }
    }
}

fn number_point(out: &mut Vec<u8>, sample: &Sample<'_>, times: PointTimes, is_sum: bool) {
    wire::message(out, 1, |out| {
        if is_sum {
            wire::fixed64(out, 2, times.start);
        }
        wire::fixed64(out, 3, times.now);
        // Larger numbers are not represented exactly in the text either.
        if sample.value.fract() == 0.0 && sample.value.abs() < (1u64 << 53) as f64 {
            wire::fixed64(out, 6, (sample.value as i64).cast_unsigned());
        } else {
            wire::fixed64(out, 4, sample.value.to_bits());
        }
        write_labels(out, 7, sample);
    });
}

fn write_labels(out: &mut Vec<u8>, field: u32, sample: &Sample<'_>) {
    let mut attributes = Attributes::new(out, field);
    for (name, value) in sample.labels.iter().filter(|(name, _)| *name != "le") {
        attributes.text(name, value.as_bytes());
    }
}

/// Parses `name{label="value",…} value`, ignoring a timestamp or exemplar after the value.
fn read_sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = read_quoted(after)?;
            labels.push((label, value));
            rest = after;
        }
    }
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (!name.is_empty() && !value.is_nan()).then_some(Sample { name, labels, value })
}

/// Reads a label value up to its closing quote; returns it without escapes, and the rest.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_lines_are_parsed() {
        let sample = read_sample("a_total{proxy=\"x\\\"y\",code=\"2xx\"} 12").expect("a sample");
        assert_eq!((sample.name, sample.value), ("a_total", 12.0));
        assert_eq!(sample.labels, [("proxy", "x\"y".to_owned()), ("code", "2xx".to_owned())]);
        let sample = read_sample("b 1.5 # {trace_id=\"1\"} 2").expect("a sample");
        assert_eq!((sample.name, sample.labels.len(), sample.value), ("b", 0, 1.5));
        for wrong in ["", "a", "a{", "a{b=\"c} 1", "a NaN", "a{b} 1", "{} x"] {
            assert!(read_sample(wrong).is_none(), "{wrong}");
        }
    }
}
