//! Metrics in their encoding (`opentelemetry.proto.metrics.v1.Metric`), from the text format of the Prometheus exporter.
//!
//! The conversion is the one that OpenTelemetry specifies for Prometheus: counters become cumulative monotonic sums, histograms
//! become explicit-bucket histograms, everything else becomes gauges, and labels become attributes. So both exporters have the same
//! metrics under the same names.

use crate::attribute::Attributes;
use base::protobuf as wire;
use base::sample_line::SampleLine;

const CUMULATIVE: u64 = 2;

/// The times of data points, in ns since the UNIX epoch.
#[derive(Debug, Clone, Copy)]
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
    samples: Vec<SampleLine<'a>>,
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
        } else if let Some(sample) = SampleLine::parse(line).filter(|sample| !sample.value.is_nan()) {
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
                    histogram_point(out, times, (&counts, sum), &bounds, |out| write_labels(out, 9, sample));
                    bounds.clear();
                    counts.clear();
                    (before, sum) = (0, None);
                }
                _ => {}
            }
        }
    }
}

/// Appends a data point of a histogram: its counts and sum, its bounds, and its attributes, which `attributes` encodes.
fn histogram_point(
    out: &mut Vec<u8>,
    times: PointTimes,
    (counts, sum): (&[u64], Option<f64>),
    bounds: &[f64],
    attributes: impl FnOnce(&mut Vec<u8>),
) {
    wire::message(out, 1, |out| {
        wire::fixed64(out, 2, times.start);
        wire::fixed64(out, 3, times.now);
        wire::fixed64(out, 4, counts.iter().sum());
        if let Some(sum) = sum {
            wire::double(out, 5, sum);
        }
        wire::bytes(out, 6, &counts.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<u8>>());
        wire::bytes(out, 7, &bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect::<Vec<u8>>());
        attributes(out);
    });
}

/// The data points of a histogram metric.
#[derive(Debug)]
pub struct HistogramPoints<'a> {
    out: &'a mut Vec<u8>,
    times: PointTimes,
    bounds: &'a [f64],
}

impl HistogramPoints<'_> {
    /// Appends a data point: the counts of the buckets, which are one more than the bounds, the sum in the unit of the metric, and the
    /// attributes.
    pub fn point(&mut self, counts: &[u64], sum: f64, attributes: impl FnOnce(&mut Attributes<'_>)) {
        histogram_point(self.out, self.times, (counts, Some(sum)), self.bounds, |out| {
            attributes(&mut Attributes::new(out, 9));
        });
    }
}

/// A metric with times in seconds, counted since the start of the process in buckets with these bounds.
#[derive(Debug, Clone, Copy)]
pub struct DurationMetric<'a> {
    /// The name.
    pub name: &'a str,
    /// The description.
    pub help: &'a str,
    /// The inclusive upper bounds in seconds.
    pub bounds: &'a [f64],
    /// The start of the counts, in ns since the UNIX epoch.
    pub start_ns: u64,
    /// The present, in ns since the UNIX epoch.
    pub now_ns: u64,
}

/// Appends a metric of durations with the data points that `points` writes, which must be at least one.
pub fn write_durations(
    out: &mut Vec<u8>,
    metric: &DurationMetric<'_>,
    points: impl FnOnce(&mut HistogramPoints<'_>),
) {
    wire::message(out, 2, |out| {
        wire::text(out, 1, metric.name.as_bytes());
        wire::text(out, 2, metric.help.as_bytes());
        wire::text(out, 3, b"s");
        wire::message(out, 9, |out| {
            let times = PointTimes { start: metric.start_ns, now: metric.now_ns };
            points(&mut HistogramPoints { out, times, bounds: metric.bounds });
            wire::number(out, 2, CUMULATIVE);
        });
    });
}

fn number_point(out: &mut Vec<u8>, sample: &SampleLine<'_>, times: PointTimes, is_sum: bool) {
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

fn write_labels(out: &mut Vec<u8>, field: u32, sample: &SampleLine<'_>) {
    let mut attributes = Attributes::new(out, field);
    for (name, value) in sample.labels.iter().filter(|(name, _)| *name != "le") {
        attributes.text(name, value.as_bytes());
    }
}
