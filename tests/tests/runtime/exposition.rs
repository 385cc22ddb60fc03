//! The formats of the exporter besides the text format: OpenMetrics and the protobuf format, with exemplars and native histograms.

use std::collections::HashSet;

use weir_tests::chunks::unchunked;
use weir_tests::client::{Response, exchange, get};
use weir_tests::otlp::OtlpCollector;
use weir_tests::prometheus::{SeenHistogram, families};
use weir_tests::{Origin, Weir, eventually, free_port};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const MESSAGES: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

struct Scene {
    _weir: Weir,
    _origin: Origin,
    collector: OtlpCollector,
    port: u16,
}

/// Starts the program. `{collector}` in the lines of the sections stands for the port of a collector.
fn start(global: &str, section: &str, front: &str) -> Scene {
    let (origin, collector, port) = (Origin::text("x"), OtlpCollector::http(), free_port());
    let section = section.replace("{collector}", &collector.port().to_string());
    let text = format!(
        "global\n  nbthread 2\n  stats socket runtime level admin\n  description \"it's \\\"ours\\\"\"\n  {global}\n{section}\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend metrics\n  bind 127.0.0.1:{port}\n  \
         http-request use-service prometheus-exporter if {{ path /metrics }}\n  {front}\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{origin}\n  server unused 127.0.0.1:{origin} backup\n",
        origin = origin.port()
    );
    Scene { _weir: Weir::start(&text, &[port]), _origin: origin, collector, port }
}

const TRACED: &str =
    "opentelemetry c\n  endpoint http://127.0.0.1:{collector}\n  interval 50ms\n  sampling 100%";

fn scrape(port: u16, accept: &str, query: &str) -> Response {
    let request = format!("GET /metrics{query} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
    let mut response = exchange(port, &request).expect("a response");
    if response.header("transfer-encoding").is_some() {
        response.body = unchunked(&response.body).0;
    }
    response
}

/// The histogram of the requests to the server, once it has `count` of them.
fn histogram(port: u16, count: u64) -> SeenHistogram {
    let find = || {
        let all = families(&scrape(port, MESSAGES, "").body);
        let family = all.into_iter().find(|family| family.name == "weir_server_total_time_seconds")?;
        assert_eq!((family.kind, &*family.unit), (4, "seconds"));
        let metric = family.metric.into_iter().find(|metric| metric.label("server") == "s")?;
        assert_eq!(metric.label("proxy"), "b");
        metric.histogram.filter(|own| own.sample_count == count)
    };
    assert!(eventually(|| find().is_some()), "no histogram with {count} requests");
    find().expect("it was there")
}

#[test]
fn the_accept_header_selects_the_format() {
    let scene = start("", "", "");
    for (accept, kind) in [
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;q=0.1\r\nAccept: text/plain", "text/plain; version=0.0.4"),
        ("text/plain;q=0.5\r\nAccept: application/openmetrics-text", OPENMETRICS),
        (MESSAGES, MESSAGES),
    ] {
        let response = scrape(scene.port, accept, "");
        assert_eq!((response.status, response.header("content-type")), (200, Some(kind)), "{accept}");
    }
    let refused = scrape(scene.port, OPENMETRICS, "?scope=unknown");
    assert_eq!((refused.status, refused.header("content-type")), (400, Some("text/plain")));
    assert!(get(scene.port, "/metrics").is_some_and(|response| !response.text().contains("# EOF")));
}

#[test]
fn openmetrics_has_the_same_samples_as_the_text_format() {
    let scene = start("", "", "");
    assert!(get(scene.port, "/").is_some());
    histogram(scene.port, 1);
    let query = "?extra-counters&desc-labels&scope=backend&scope=server&scope=sticktable";
    let text = scrape(scene.port, "*/*", query).text();
    let open = scrape(scene.port, OPENMETRICS, query).text();
    assert!(open.ends_with("\n# EOF\n") && open.matches("# EOF").count() == 1, "{open}");
    let samples = |text: &str| -> HashSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" NaN"));
        lines.map(str::to_owned).collect()
    };
    let (text_samples, open_samples) = (samples(&text), samples(&open));
    let changed: Vec<_> = text_samples.symmetric_difference(&open_samples).collect();
    // Bounds have a decimal point, and times since an event go on.
    let is_expected = |line: &&&String| {
        line.contains("le=\"1") || line.contains("_change_seconds") || line.contains("last_session")
    };
    assert!(changed.iter().all(|line| is_expected(&line)), "{changed:#?}");
    assert!(open_samples.len() > 200 && open.contains("le=\"10.0\"}") && !open.contains("le=\"10\"}"));
    for lines in [
        "# TYPE haproxy_backend_http_responses counter\n# HELP haproxy_backend_http_responses ",
        "# TYPE haproxy_backend_max_total_time_seconds gauge\n# UNIT haproxy_backend_max_total_time_seconds seconds\n",
        "# TYPE weir_server_queue_time_seconds histogram\n# UNIT weir_server_queue_time_seconds seconds\n",
        // A counter keeps its name even if it does not end in `_total`.
        "# TYPE haproxy_backend_h1_bytes_in unknown\n",
    ] {
        assert!(open.contains(lines), "{lines}\n{open}");
    }
    let mut families = HashSet::new();
    for line in open.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(families.insert(line.split(' ').next()), "described twice: {line}");
    }
    let head =
        exchange(scene.port, &format!("HEAD /metrics HTTP/1.1\r\nHost: a\r\nAccept: {OPENMETRICS}\r\n\r\n"));
    let head = head.expect("a response");
    assert_eq!((head.header("content-type"), head.body.len()), (Some(OPENMETRICS), 0));
}

#[test]
fn messages_have_the_same_values_as_the_text_format() {
    let scene = start("", "", "");
    assert!(get(scene.port, "/").is_some());
    histogram(scene.port, 1);
    let all = families(&scrape(scene.port, MESSAGES, "?extra-counters").body);
    let text = scrape(scene.port, "*/*", "?extra-counters").text();
    let names: Vec<_> = all.iter().map(|family| &*family.name).collect();
    let kind = |name: &str| all.iter().find(|family| family.name == name).map(|family| family.kind);
    assert_eq!(kind("haproxy_server_http_responses_total"), Some(0));
    assert_eq!(kind("haproxy_server_status"), Some(1));
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap_or_default();
        // Families without a value are left out.
        let has_values = text.lines().any(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{', '_']) && !rest.ends_with("NaN"))
        });
        assert!(!has_values || names.iter().filter(|own| **own == name).count() == 1, "{name}: {names:?}");
    }
    let status = all.iter().find(|family| family.name == "haproxy_server_status").expect("it is known");
    let up =
        status.metric.iter().find(|metric| metric.label("server") == "s" && metric.label("state") == "UP");
    assert_eq!(up.and_then(|metric| metric.gauge.as_ref()).map(|gauge| gauge.value), Some(1.0));
    let own = histogram(scene.port, 1);
    assert_eq!((own.schema, own.zero_threshold, own.native().len(), own.bucket.len()), (None, 0.0, 0, 14));
    assert_eq!(
        own.bucket.last().map(|bucket| (bucket.cumulative_count, bucket.upper_bound)),
        Some((1, f64::INFINITY))
    );
}

#[test]
fn native_histograms_have_the_same_counts_as_classic_ones() {
    let scene = start("latency-histograms native", "", "");
    for _ in 0..40 {
        assert!(get(scene.port, "/").is_some());
    }
    let own = histogram(scene.port, 40);
    assert_eq!((own.schema, own.zero_threshold), (Some(3), 1.0 / 16384.0));
    let native = own.native();
    let counted: i64 = native.iter().map(|(_, count)| count).sum();
    assert_eq!(counted.cast_unsigned() + own.zero_count, 40, "{own:?}");
    // The sum of the times is between the sums of the lower and the upper ends.
    let end = |index: i32| 2_f64.powf(f64::from(index) / 8.0);
    let (least, most) =
        native.iter().fold((0.0, own.zero_threshold * own.zero_count as f64), |sums, (index, count)| {
            (sums.0 + end(index - 1) * *count as f64, sums.1 + end(*index) * *count as f64)
        });
    assert!(least <= own.sample_sum && own.sample_sum <= most, "{least} {most} {own:?}");
    let text = get(scene.port, "/metrics?metrics=weir_server_total_time_seconds").expect("a response").text();
    for bucket in &own.bucket {
        let end =
            if bucket.upper_bound.is_finite() { bucket.upper_bound.to_string() } else { "+Inf".to_owned() };
        let line = format!("le=\"{end}\"}} {}\n", bucket.cumulative_count);
        assert!(text.contains(&line), "{line}{text}");
    }
    // Queue times are almost 0.
    let all = families(&scrape(scene.port, MESSAGES, "?metrics=weir_server_queue_time_seconds").body);
    let [family] = &all[..] else { panic!("one family: {all:?}") };
    assert!(family.metric[0].histogram.as_ref().is_some_and(|own| own.zero_count > 0), "{family:?}");
}

#[test]
fn exemplars_name_sampled_requests() {
    let scene = start("", TRACED, "trace-to c");
    assert!(get(scene.port, "/").is_some());
    let spans = scene
        .collector
        .await_all(|received| received.spans.iter().any(|span| span.get("url.path") == "/"))
        .spans;
    let span = spans.iter().find(|span| span.get("url.path") == "/").expect("it was there");
    let labels = format!("trace_id=\"{}\",span_id=\"{}\"", span.trace, span.id);
    let open = scrape(scene.port, OPENMETRICS, "?no-maint").text();
    for time in ["queue", "connect", "response", "total"] {
        let series = format!("weir_server_{time}_time_seconds_bucket");
        let lines: Vec<_> = open.lines().filter(|line| line.starts_with(&series)).collect();
        let found: Vec<_> = lines.iter().filter_map(|line| line.split_once(" # ")).collect();
        let [(bucket, exemplar)] = found[..] else { panic!("one exemplar: {lines:#?}") };
        let rest =
            exemplar.strip_prefix(&format!("{{{labels}}} ")).unwrap_or_else(|| panic!("{exemplar} {labels}"));
        let (value, when) = rest.split_once(' ').expect("a value and a time");
        let (value, when): (f64, f64) = (value.parse().expect("a number"), when.parse().expect("a number"));
        // The exemplar is in the first bucket that counts the request.
        assert!(bucket.ends_with(" 1"), "{bucket}");
        let end = bucket.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a bound");
        assert!(end == "+Inf" || end.parse::<f64>().is_ok_and(|end| value <= end), "{bucket}: {value}");
        assert!((when - span.times.1 as f64 / 1e9).abs() < 0.002, "{when} {:?}", span.times);
    }
    let own = histogram(scene.port, 1);
    let exemplars: Vec<_> = own.bucket.iter().filter_map(|bucket| bucket.exemplar.as_ref()).collect();
    let [exemplar] = exemplars[..] else { panic!("one exemplar: {own:?}") };
    let seen: Vec<_> = exemplar.label.iter().map(|label| (&*label.name, &*label.value)).collect();
    assert_eq!(seen, [("trace_id", &*span.trace), ("span_id", &*span.id)]);
    assert!(
        exemplar.timestamp.as_ref().is_some_and(|time| time.seconds as u64 >= span.times.1 / 1_000_000_000)
    );
    assert!(!get(scene.port, "/metrics").expect("a response").text().contains("trace_id"));
}

#[test]
fn requests_that_are_not_sampled_are_no_exemplars() {
    let scene = start("", &TRACED.replace("100%", "0%"), "trace-to c");
    assert!(get(scene.port, "/").is_some());
    assert!(histogram(scene.port, 1).bucket.iter().all(|bucket| bucket.exemplar.is_none()));
    assert!(!scrape(scene.port, OPENMETRICS, "").text().contains("trace_id"));
}
