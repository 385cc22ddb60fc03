//! Exports to OpenTelemetry collectors: protocols, retries, failures, logs, metrics, reloads, and the errors of configurations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use weir_tests::client::get;
use weir_tests::otlp::{OtlpCollector, Received, attributes};
use weir_tests::{Authority, Origin, Weir, check, eventually, free_port, scratch};

/// A configuration with a section of these lines, and a frontend of these lines that answers every request itself.
fn configuration(section: &str, front: &str, port: u16) -> String {
    format!(
        "global\n stats socket runtime level admin\n\
         opentelemetry c\n interval 50ms\n {section}\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n trace-to c\n {front}\n http-request return status 200\n"
    )
}

fn start(section: &str, front: &str) -> (Weir, u16) {
    let port = free_port();
    (Weir::start(&configuration(section, front, port), &[port]), port)
}

/// The values of a signal in `show opentelemetry`: waiting, exported, dropped, failed, retries.
fn counts(weir: &Weir, signal: &str) -> [u64; 5] {
    let table = weir.ask("show opentelemetry");
    let row =
        table.lines().find(|line| line.starts_with(&format!("c {signal} "))).expect("a row of the signal");
    let values: Vec<u64> = row.split(' ').skip(2).map(|value| value.parse().expect("a number")).collect();
    let [waiting, _, exported, dropped, failed, retries] = values[..] else { panic!("{table}") };
    [waiting, exported, dropped, failed, retries]
}

#[test]
fn headers_paths_and_compression_reach_the_collector() {
    let collector = OtlpCollector::http();
    let section = format!(
        "endpoint http://127.0.0.1:{}/otel/\n compression gzip\n header x-key secret",
        collector.port()
    );
    let (_weir, port) = start(&section, "");
    assert!(get(port, "/").is_some());
    let received = collector.await_all(|received| !received.spans.is_empty());
    let head = &received.heads[0];
    assert!(head.starts_with("POST /otel/v1/traces HTTP/1.1\r\n"), "{head}");
    for line in ["x-key: secret", "Content-Encoding: gzip", "Content-Type: application/x-protobuf"] {
        assert!(head.contains(line), "{line}: {head}");
    }
}

#[test]
fn grpc_collectors_get_spans_and_logs() {
    let collector = OtlpCollector::grpc_with(|_| ("0", Vec::new()));
    for compression in ["none", "gzip"] {
        let before = collector.received().spans.len();
        let port = collector.port();
        let section =
            format!("endpoint grpc://127.0.0.1:{port}\n header X-Key secret\n compression {compression}");
        let (weir, port) = start(&section, "log otel@c local0 info\n log-format line");
        assert!(get(port, "/").is_some());
        let received =
            collector.await_all(|received| received.spans.len() > before && received.logs.len() > before);
        let head = received.heads.last().expect("a request");
        for line in [":method: POST", "te: trailers", "content-type: application/grpc", "x-key: secret"] {
            assert!(head.contains(line), "{line}: {head}");
        }
        assert!(eventually(|| counts(&weir, "traces") == [0, 1, 0, 0, 0]), "{:?}", counts(&weir, "traces"));
    }
}

#[test]
fn tls_collectors_are_verified() {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let collector = OtlpCollector::http();
    let (port, own) = (free_port(), free_port());
    // A second frontend terminates TLS in front of the collector.
    let tls = |section: &str| {
        format!(
            "{}\nlisten t\n bind 127.0.0.1:{own} ssl crt {} alpn http/1.1\n server s 127.0.0.1:{}\n",
            configuration(section, "", port),
            certificate.display(),
            collector.port()
        )
    };
    let trusted = format!("endpoint https://localhost:{own}\n ca-file {}", authority.own().display());
    {
        let _weir = Weir::start(&tls(&trusted), &[port, own]);
        assert!(get(port, "/").is_some());
        collector.await_all(|received| !received.spans.is_empty());
    }
    let other = Authority::new();
    let untrusted = format!("endpoint https://localhost:{own}\n ca-file {}", other.own().display());
    let weir = Weir::start(&tls(&untrusted), &[port, own]);
    assert!(get(port, "/").is_some());
    assert!(weir.says("does not accept exports: TLS failed"), "{}", weir.messages());
    assert_eq!(counts(&weir, "traces")[1], 0);
}

#[test]
fn exports_are_repeated_as_the_collector_demands() {
    // Two refusals that allow a retry, the second without a delay.
    let collector = OtlpCollector::http_with(|number| match number {
        0 => Some(("503 Busy", "Retry-After: 0\r\n", Vec::new())),
        1 => Some(("429 Slow down", "", Vec::new())),
        _ => None,
    });
    let (weir, port) = start(&format!("endpoint http://127.0.0.1:{}", collector.port()), "");
    assert!(get(port, "/").is_some());
    let received = collector.await_all(|received| !received.spans.is_empty());
    assert_eq!((received.spans.len(), received.heads.len()), (1, 3));
    assert!(eventually(|| counts(&weir, "traces") == [0, 1, 0, 0, 2]), "{:?}", counts(&weir, "traces"));
    assert!(weir.says("accepts exports again."), "{}", weir.messages());
    let messages = weir.messages();
    assert_eq!(
        messages.matches("does not accept exports: it answers with status 503").count(),
        1,
        "{messages}"
    );
    assert_eq!(messages.matches("does not accept exports").count(), 1, "{messages}");

    let details = b"\x08\x08\x1a\x2e\n\x28type.googleapis.com/google.rpc.RetryInfo\x12\x02\n\x00";
    let details = base64::engine::general_purpose::STANDARD_NO_PAD.encode(details);
    let collector = OtlpCollector::grpc_with(move |number| match number {
        0 => ("14", Vec::new()),
        1 => ("8", vec![("grpc-status-details-bin", details.clone())]),
        _ => ("0", Vec::new()),
    });
    let (weir, port) = start(&format!("endpoint grpc://127.0.0.1:{}", collector.port()), "");
    assert!(get(port, "/").is_some());
    collector.await_all(|received| !received.spans.is_empty());
    assert!(eventually(|| counts(&weir, "traces") == [0, 1, 0, 0, 2]), "{:?}", counts(&weir, "traces"));
}

#[test]
fn refused_and_partly_rejected_records_are_counted() {
    // A partial success that rejects one record.
    let rejected = b"\x0a\x0a\x08\x01\x12\x06so sad".to_vec();
    let collector = OtlpCollector::http_with(move |number| match number {
        0 => Some(("400 Bad", "", Vec::new())),
        1 | 2 => Some(("200 OK", "", rejected.clone())),
        _ => None,
    });
    let (weir, port) = start(&format!("endpoint http://127.0.0.1:{}", collector.port()), "");
    for (requests, expected) in
        [(1, [0, 0, 0, 1, 0]), (2, [0, 0, 0, 2, 0]), (3, [0, 0, 0, 3, 0]), (4, [0, 1, 0, 3, 0])]
    {
        assert!(get(port, "/").is_some());
        assert!(
            eventually(|| counts(&weir, "traces") == expected),
            "{requests}: {:?}",
            counts(&weir, "traces")
        );
    }
    let messages = weir.messages();
    assert_eq!(messages.matches("rejected 1 records of traces: so sad").count(), 1, "{messages}");
}

#[test]
fn a_dead_collector_costs_requests_nothing_and_memory_is_bounded() {
    let section = format!("endpoint http://127.0.0.1:{}\n queue-size 64k\n timeout connect 1s", free_port());
    let (weir, port) = start(&section, "");
    assert!(eventually(|| {
        assert_eq!(get(port, &format!("/{}", "x".repeat(1500))).map(|response| response.status), Some(200));
        counts(&weir, "traces")[2] > 0
    }));
    let [_, exported, dropped, ..] = counts(&weir, "traces");
    assert_eq!(exported, 0);
    assert!(dropped > 0);
    assert!(weir.ask("show opentelemetry d").contains("No opentelemetry section 'd'"));
    assert!(weir.says("does not accept exports: no connection"), "{}", weir.messages());
}

#[test]
fn a_silent_collector_is_given_up_at_the_end_of_the_process() {
    let silent = Origin::raw(|stream| {
        let _ = std::io::Read::read_to_end(&mut &stream, &mut Vec::new());
    });
    let (mut weir, port) = start(&format!("endpoint http://127.0.0.1:{}", silent.port()), "");
    assert!(get(port, "/").is_some());
    weir.signal("USR1");
    assert_eq!(weir.await_end(), Some(0));
}

#[test]
fn what_is_queued_is_exported_at_the_end_of_the_process() {
    let collector = OtlpCollector::http();
    let section = format!("endpoint http://127.0.0.1:{}\n interval 1h", collector.port());
    let (mut weir, port) = start(&section, "");
    // The first export may be under way.
    assert!(get(port, "/").is_some());
    weir.signal("USR1");
    assert_eq!(weir.await_end(), Some(0));
    assert_eq!(collector.received().spans.len(), 1);
}

#[test]
fn log_lines_are_records_with_the_trace() {
    let collector = OtlpCollector::http();
    let front = "log otel@c local3 info\n log-tag edge\n log-format \"%HP %[trace_id]\"\n http-request set-log-level warning if { path /w }";
    let (_weir, port) = start(&format!("endpoint http://127.0.0.1:{}", collector.port()), front);
    for path in ["/i", "/w"] {
        assert!(get(port, path).is_some());
    }
    // The connection that waited for the port also has a line, but no request.
    let of_requests =
        |received: &Received| received.logs.iter().filter(|log| log.body.starts_with('/')).count();
    let received = collector.await_all(|received| of_requests(received) == 2 && received.spans.len() == 2);
    for (path, severity, name) in [("/i", 9, "info"), ("/w", 13, "warning")] {
        let span = received.spans.iter().find(|span| span.get("url.path") == path).expect("a span");
        let log = received.logs.iter().find(|log| log.body.starts_with(path)).expect("a record");
        assert_eq!(log.body, format!("{path} {}", span.trace));
        assert_eq!((&log.trace, &log.span), (&span.trace, &span.id));
        assert_eq!(log.severity, (severity, name.to_owned()));
        assert_eq!((&*log.attributes["appname"], &*log.attributes["facility"]), ("edge", "19"));
    }
}

#[test]
fn metrics_are_those_of_the_prometheus_exporter() {
    let collector = OtlpCollector::http();
    let section = format!("endpoint http://127.0.0.1:{}\n metrics-interval 100ms", collector.port());
    let (_weir, port) = start(&section, "");
    assert!(get(port, "/").is_some());
    let value = |received: &Received| {
        let of_name = |metric: &&opentelemetry_proto::tonic::metrics::v1::Metric| {
            metric.name == "haproxy_frontend_http_requests_total"
        };
        let metric = received.metrics.iter().rev().find(of_name)?;
        let Some(Data::Sum(sum)) = &metric.data else { panic!("a sum: {metric:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        let point = sum.data_points.iter().find(|point| attributes(&point.attributes)["proxy"] == "f")?;
        assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
        point.value
    };
    // The connection that waited for the port counts as a request too.
    collector.await_all(|received| matches!(value(received), Some(number_data_point::Value::AsInt(1..))));
    let received = collector.received();
    let has = |name: &str| received.metrics.iter().any(|metric| metric.name == name);
    assert!(has("weir_opentelemetry_exported_total") && has("haproxy_process_current_connections"));
}

#[test]
fn a_reload_in_place_keeps_the_queue_and_its_counters() {
    let accepts = Arc::new(AtomicBool::new(false));
    let gate = accepts.clone();
    let collector = OtlpCollector::http_with(move |_| match gate.load(Ordering::SeqCst) {
        true => None,
        false => Some(("503 Busy", "", Vec::new())),
    });
    let port = free_port();
    let section = format!("endpoint http://127.0.0.1:{}", collector.port());
    let weir = Weir::start(&configuration(&section, "", port), &[port]);
    assert!(get(port, "/before").is_some());
    assert!(eventually(|| counts(&weir, "traces")[4] > 0), "the first batch is being repeated");
    let changed = format!("{section}\n resource service.name second");
    let text = weir_tests::reloading::reload(&weir, &configuration(&changed, "", port));
    assert!(text.contains("opentelemetry c"), "{text}");
    assert!(get(port, "/after").is_some());
    accepts.store(true, Ordering::SeqCst);
    let received = collector.await_all(|received| received.spans.len() == 2);
    let paths: Vec<_> = received.spans.iter().map(|span| span.get("url.path")).collect();
    assert_eq!(paths, ["/before", "/after"]);
    assert_eq!(received.resource["service.name"], "second");
    assert!(eventually(|| counts(&weir, "traces")[1] == 2));
}

#[test]
fn wrong_sections_are_refused_with_a_way_out() {
    let directory = scratch("otel");
    let file = directory.join("haproxy.cfg");
    let cases = [
        ("", "has no `endpoint`", "endpoint http://<host>:4318"),
        ("endpoint 127.0.0.1:4318", "it has no scheme", "use a URL such as"),
        ("endpoint htp://a", "unknown scheme `htp`", "http"),
        ("endpoint grpc://127.0.0.1/x", "a gRPC endpoint has no path", "use a URL such as"),
        ("endpoint http://127.0.0.1:0", "the port must be a number", "use a URL such as"),
        (
            "endpoint http://a.invalid",
            "cannot resolve the collector's name `a.invalid`",
            "resolve-with <section>",
        ),
        (
            "endpoint http://a.invalid\n resolve-with none",
            "there is no resolvers section `none`",
            "resolvers none",
        ),
        ("endpoint http://127.0.0.1\n verify none", "TLS settings require a URL with TLS", "https://"),
        ("endpoint http://127.0.0.1\n header content-length 1", "is set by Weir", ""),
        ("endpoint http://127.0.0.1\n sampling 1", "is not a percentage", "`1%`"),
        ("endpoint http://127.0.0.1\n batch-size 1", "too small", "4096"),
        ("endpoint http://127.0.0.1\n keep slower-than 0", "at least 1ms", "5s"),
        ("endpoint http://127.0.0.1\n parent maybe", "maybe", "follow"),
        ("endpoint http://127.0.0.1\n attribute a %[nothing]", "nothing", ""),
    ];
    for (section, cause, way_out) in cases {
        std::fs::write(&file, configuration(section, "", 1)).expect("the file is written");
        let verdict = check(&file, &directory);
        // HAProxy's message format has another kind of quotes.
        let plain = |text: &str| text.replace('`', "'");
        let told = plain(&format!("{verdict:?}"));
        let is_explained = told.contains(&plain(cause)) && told.contains(&plain(way_out));
        assert!(!verdict.accepted() && is_explained, "{section}: {told}");
        assert_eq!(told.matches("parsing [").count(), 1, "{section}: {told}");
    }
    for front in ["trace-to d", "log otel@d local0"] {
        std::fs::write(&file, configuration("endpoint http://127.0.0.1", front, 1))
            .expect("the file is written");
        let verdict = check(&file, &directory);
        let is_explained = format!("{verdict:?}").contains("there is no opentelemetry section 'd'");
        assert!(!verdict.accepted() && is_explained, "{front}: {verdict:?}");
    }
    std::fs::write(&file, "opentelemetry c\n endpoint http://127.0.0.1\n").expect("the file is written");
    assert!(
        format!("{:?}", check(&file, &directory))
            .contains("nothing is exported to the opentelemetry section")
    );
    let unused = "opentelemetry c\n endpoint http://127.0.0.1\nopentelemetry c\n endpoint http://127.0.0.1\n";
    std::fs::write(&file, unused).expect("the file is written");
    assert!(!check(&file, &directory).accepted(), "a name is used twice");
}
