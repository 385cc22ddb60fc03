//! Decodes requests with the official protobuf definitions (`opentelemetry-proto`).

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use otlp::{
    DurationMetric, LogRecord, RecordBatch, ResourceAttributes, SpanId, SpanKind, SpanRecord, TraceId,
    write_durations, write_log, write_metrics, write_span,
};
use prost::Message as _;

fn resource() -> ResourceAttributes {
    ResourceAttributes::new([("service.name", "edge"), ("host.name", "h\u{e9}")], ("weir", "1.2"))
}

fn request(records: &[u8]) -> Vec<u8> {
    let (batch, rest) = RecordBatch::split(records, usize::MAX).expect("there are records");
    assert!(rest.is_empty());
    batch.request(&resource())
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[test]
fn spans_are_read_as_written() {
    let (trace, span, parent) = (TraceId::random(), SpanId::random(), SpanId::random());
    let record = SpanRecord {
        trace,
        span,
        parent: Some(parent),
        is_parent_remote: true,
        sampled: true,
        state: b"a=1",
        name: b"GET /x",
        kind: SpanKind::Server,
        start_ns: 1_700_000_000_000_000_001,
        end_ns: 1_700_000_000_000_000_999,
        is_error: true,
    };
    let mut records = Vec::new();
    write_span(&mut records, &record, |attributes| {
        attributes.text("url.path", b"/\xff".as_slice());
        attributes.number("http.response.status_code", 503);
        attributes.number("negative", -1);
    });
    write_span(&mut records, &SpanRecord { parent: None, is_error: false, state: b"", ..record }, |_| {});
    let read = ExportTraceServiceRequest::decode(&request(&records)[..]).expect("a valid request");
    let [resource] = &read.resource_spans[..] else { panic!("one resource") };
    let attributes = &resource.resource.as_ref().expect("a resource").attributes;
    assert_eq!(
        (text(attributes, "service.name"), text(attributes, "host.name")),
        (Some("edge"), Some("h\u{e9}"))
    );
    let [scope] = &resource.scope_spans[..] else { panic!("one scope") };
    let by = scope.scope.as_ref().expect("a scope");
    assert_eq!((&*by.name, &*by.version), ("weir", "1.2"));
    let [first, second] = &scope.spans[..] else { panic!("two spans") };
    assert_eq!(first.trace_id, trace.bytes());
    assert_eq!(first.span_id, span.bytes());
    assert_eq!(first.parent_span_id, parent.bytes());
    assert_eq!((&*first.trace_state, &*first.name, first.kind), ("a=1", "GET /x", 2));
    assert_eq!(first.start_time_unix_nano, record.start_ns);
    assert_eq!(first.end_time_unix_nano, record.end_ns);
    assert_eq!(first.flags, 0x301);
    assert_eq!(first.status.as_ref().map(|status| status.code), Some(2));
    assert_eq!(text(&first.attributes, "url.path"), Some("/\u{fffd}"));
    let numbers: Vec<_> = first.attributes[1..].iter().map(|one| one.value.clone()).collect();
    let number = |value| Some(AnyValue { value: Some(Value::IntValue(value)) });
    assert_eq!(numbers, [number(503), number(-1)]);
    assert!(second.parent_span_id.is_empty() && second.status.is_none() && second.trace_state.is_empty());
}

#[test]
fn log_records_are_read_as_written() {
    let (trace, span) = (TraceId::random(), SpanId::random());
    let mut records = Vec::new();
    let record = LogRecord { time_ns: 5, level: 4, body: b"a line", context: Some((trace, span, true)) };
    write_log(&mut records, &record, |attributes| attributes.text("proxy", "www"));
    write_log(&mut records, &LogRecord { context: None, level: 6, ..record }, |_| {});
    let read = ExportLogsServiceRequest::decode(&request(&records)[..]).expect("a valid request");
    let [first, second] = &read.resource_logs[0].scope_logs[0].log_records[..] else { panic!("two records") };
    assert_eq!((first.severity_number, &*first.severity_text), (13, "warning"));
    assert_eq!((first.time_unix_nano, first.observed_time_unix_nano, first.flags), (5, 5, 1));
    assert_eq!((&first.trace_id[..], &first.span_id[..]), (&trace.bytes()[..], &span.bytes()[..]));
    let body = first.body.as_ref().and_then(|body| body.value.clone());
    assert_eq!(body, Some(Value::StringValue("a line".to_owned())));
    assert_eq!(text(&first.attributes, "proxy"), Some("www"));
    assert_eq!((second.severity_number, second.trace_id.len()), (9, 0));
}

#[test]
fn metrics_of_the_text_format_are_read_as_written() {
    let exposition = "\
# HELP a_total Number of things.
# TYPE a_total counter
a_total{proxy=\"x\"} 3
a_total{proxy=\"y\"} NaN
# TYPE b_seconds gauge
b_seconds 1.5
# TYPE c histogram
c_bucket{proxy=\"x\",le=\"0.1\"} 1
c_bucket{proxy=\"x\",le=\"+Inf\"} 4
c_sum{proxy=\"x\"} 2.5
c_count{proxy=\"x\"} 4
c_bucket{proxy=\"y\",le=\"0.1\"} 0
c_bucket{proxy=\"y\",le=\"+Inf\"} 1
c_sum{proxy=\"y\"} 9
c_count{proxy=\"y\"} 1
# TYPE empty gauge
";
    let mut records = Vec::new();
    write_metrics(&mut records, exposition, 10, 20);
    let read = ExportMetricsServiceRequest::decode(&request(&records)[..]).expect("a valid request");
    let metrics = &read.resource_metrics[0].scope_metrics[0].metrics;
    let names: Vec<_> =
        metrics.iter().map(|metric| (&*metric.name, &*metric.description, &*metric.unit)).collect();
    assert_eq!(names, [("a_total", "Number of things.", ""), ("b_seconds", "", "s"), ("c", "", "")]);
    let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("a sum") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
    let [point] = &sum.data_points[..] else { panic!("one point has a value") };
    assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (10, 20));
    assert_eq!(point.value, Some(number_data_point::Value::AsInt(3)));
    assert_eq!(text(&point.attributes, "proxy"), Some("x"));
    let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("a gauge") };
    assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(1.5)));
    let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("a histogram") };
    let [first, second] = &histogram.data_points[..] else { panic!("two histograms") };
    assert_eq!((first.count, first.sum, &first.bucket_counts[..]), (4, Some(2.5), &[1, 3][..]));
    assert_eq!(first.explicit_bounds, [0.1]);
    assert_eq!((second.count, &second.bucket_counts[..]), (1, &[0, 1][..]));
    assert_eq!(text(&second.attributes, "proxy"), Some("y"));
    assert_eq!(second.attributes.len(), 1, "no `le`");
}

#[test]
fn durations_are_read_as_written() {
    let mut records = Vec::new();
    let metric = DurationMetric { name: "d", help: "Time.", bounds: &[0.5, 1.0], start_ns: 5, now_ns: 9 };
    write_durations(&mut records, &metric, |points| {
        points.point(&[1, 0, 2], 7.5, |attributes| attributes.text("method", "GET"));
        points.point(&[0, 1, 0], 0.75, |_| {});
    });
    let read = ExportMetricsServiceRequest::decode(&request(&records)[..]).expect("a valid request");
    let [metric] = &read.resource_metrics[0].scope_metrics[0].metrics[..] else { panic!("one metric") };
    assert_eq!((&*metric.name, &*metric.description, &*metric.unit), ("d", "Time.", "s"));
    let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!(histogram.aggregation_temporality, 2);
    let [first, second] = &histogram.data_points[..] else { panic!("two points") };
    assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (5, 9));
    assert_eq!((first.count, first.sum, &first.bucket_counts[..]), (3, Some(7.5), &[1, 0, 2][..]));
    assert_eq!(
        (&first.explicit_bounds[..], text(&first.attributes, "method")),
        (&[0.5, 1.0][..], Some("GET"))
    );
    assert_eq!((second.count, second.attributes.len()), (1, 0));
}
