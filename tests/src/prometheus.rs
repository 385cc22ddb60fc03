//! Messages of Prometheus's protobuf format (`io.prometheus.client`), with the field numbers of its public definition.

use prost::Message;

/// `LabelPair`.
#[derive(Clone, PartialEq, Message)]
pub struct LabelPair {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `Gauge` and `Counter`.
#[derive(Clone, PartialEq, Message)]
pub struct NumberValue {
    /// The value.
    #[prost(double, tag = "1")]
    pub value: f64,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub struct UnixTime {
    /// Seconds since the UNIX epoch.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `Exemplar`.
#[derive(Clone, PartialEq, Message)]
pub struct SeenExemplar {
    /// The labels.
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    /// The value.
    #[prost(double, tag = "2")]
    pub value: f64,
    /// When it was observed.
    #[prost(message, optional, tag = "3")]
    pub timestamp: Option<UnixTime>,
}

/// `Bucket`.
#[derive(Clone, PartialEq, Message)]
pub struct ClassicBucket {
    /// The cumulative count.
    #[prost(uint64, tag = "1")]
    pub cumulative_count: u64,
    /// The upper bound.
    #[prost(double, tag = "2")]
    pub upper_bound: f64,
    /// The exemplar.
    #[prost(message, optional, tag = "3")]
    pub exemplar: Option<SeenExemplar>,
}

/// `BucketSpan`.
#[derive(Clone, PartialEq, Message)]
pub struct BucketSpan {
    /// The gap to the previous span, or the index of the first bucket.
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    /// The number of buckets.
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

/// `Histogram`.
#[derive(Clone, PartialEq, Message)]
pub struct SeenHistogram {
    /// The count.
    #[prost(uint64, tag = "1")]
    pub sample_count: u64,
    /// The sum.
    #[prost(double, tag = "2")]
    pub sample_sum: f64,
    /// The classic buckets.
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<ClassicBucket>,
    /// The schema of the native buckets.
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    /// The width of the zero bucket.
    #[prost(double, tag = "6")]
    pub zero_threshold: f64,
    /// The count of the zero bucket.
    #[prost(uint64, tag = "7")]
    pub zero_count: u64,
    /// The positions of the positive buckets.
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<BucketSpan>,
    /// The counts of the positive buckets, as differences.
    #[prost(sint64, repeated, packed = "true", tag = "13")]
    pub positive_delta: Vec<i64>,
}

impl SeenHistogram {
    /// The native buckets with counts: index and count.
    ///
    /// # Panics
    /// The spans do not match the counts.
    pub fn native(&self) -> Vec<(i32, i64)> {
        let (mut index, mut count) = (0, 0);
        let mut deltas = self.positive_delta.iter();
        let mut all = Vec::new();
        for span in &self.positive_span {
            index += span.offset;
            for _ in 0..span.length {
                count += deltas.next().expect("a count for each bucket");
                all.push((index, count));
                index += 1;
            }
        }
        assert!(deltas.next().is_none(), "more counts than buckets: {self:?}");
        all
    }
}

/// `Metric`.
#[derive(Clone, PartialEq, Message)]
pub struct SeenMetric {
    /// The labels.
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    /// The value of a gauge.
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<NumberValue>,
    /// The value of a counter.
    #[prost(message, optional, tag = "3")]
    pub counter: Option<NumberValue>,
    /// The value of a histogram.
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<SeenHistogram>,
}

impl SeenMetric {
    /// Returns the value of a label; empty if it is absent.
    pub fn label(&self, name: &str) -> &str {
        self.label.iter().find(|label| label.name == name).map_or("", |label| &label.value)
    }
}

/// `MetricFamily`.
#[derive(Clone, PartialEq, Message)]
pub struct SeenFamily {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The description.
    #[prost(string, tag = "2")]
    pub help: String,
    /// The type: 0 for counters, 1 for gauges, 4 for histograms.
    #[prost(int32, tag = "3")]
    pub kind: i32,
    /// The metrics.
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<SeenMetric>,
    /// The unit.
    #[prost(string, tag = "5")]
    pub unit: String,
}

/// Decodes a scrape: messages that are each preceded by their length.
///
/// # Panics
/// A message is malformed.
pub fn families(mut body: &[u8]) -> Vec<SeenFamily> {
    let mut all = Vec::new();
    while !body.is_empty() {
        all.push(SeenFamily::decode_length_delimited(&mut body).expect("a message of the format"));
    }
    all
}
