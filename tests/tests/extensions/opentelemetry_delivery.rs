//! The way to an OpenTelemetry collector: connections, names, certificates, batches, memory, and restarts; and the metrics of the
//! semantic conventions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use weir_tests::agent::{agent, scope, set};
use weir_tests::client::{exchange, get};
use weir_tests::otlp::{OtlpCollector, Received, attributes};
use weir_tests::spoe::{EVENTS, LINES, engine};
use weir_tests::{Authority, NameServer, Origin, Weir, Zone, eventually, free_port};

/// A configuration with a section of these lines, and a frontend of these lines that answers every request itself.
fn configuration(section: &str, front: &str, port: u16) -> String {
    format!(
        "global\n stats socket runtime level admin\n\
         opentelemetry c\n interval 20ms\n {section}\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n trace-to c\n {front}\n http-request return status 200\n"
    )
}

fn start(section: &str, front: &str) -> (Weir, u16) {
    let port = free_port();
    (Weir::start(&configuration(section, front, port), &[port]), port)
}

/// The values of traces in `show opentelemetry`, by column.
fn counts(weir: &Weir) -> BTreeMap<String, u64> {
    let table = weir.ask("show opentelemetry");
    let titles = table.lines().next().unwrap_or_default().trim_start_matches("# ").split(' ');
    let row = table.lines().find(|line| line.starts_with("c traces ")).unwrap_or_else(|| panic!("{table}"));
    let values = titles.zip(row.split(' ')).skip(2);
    values.map(|(title, value)| (title.to_owned(), value.parse().expect("a number"))).collect()
}

#[test]
fn exports_share_a_connection() {
    for kind in ["http", "grpc"] {
        let collector = match kind {
            "http" => OtlpCollector::http(),
            _ => OtlpCollector::grpc_with(|_| ("0", Vec::new())),
        };
        let (_weir, port) = start(&format!("endpoint {kind}://127.0.0.1:{}", collector.port()), "");
        for request in 1..=4 {
            assert!(get(port, "/").is_some());
            collector.await_spans(request);
        }
        assert!(collector.received().heads.len() >= 4, "{kind}");
        assert_eq!(collector.connections(), 1, "{kind}");
    }
}

#[test]
fn the_name_of_a_collector_is_resolved_at_run_time() {
    let collector = OtlpCollector::http();
    let names = NameServer::start(&[("otel.test", Zone::NoName)]);
    let section = format!("endpoint http://otel.test:{}\n resolve-with names", collector.port());
    let port = free_port();
    let resolvers =
        format!("resolvers names\n nameserver n 127.0.0.1:{}\n hold nx 0\n hold valid 0\n", names.port());
    let weir = Weir::start(&format!("{}{resolvers}", configuration(&section, "", port)), &[port]);
    assert!(get(port, "/").is_some());
    assert!(weir.says("does not accept exports: the host name cannot be resolved"), "{}", weir.messages());
    names.say("otel.test", Zone::Addresses(vec!["127.0.0.1"]));
    let received = collector.await_all(|received| !received.spans.is_empty());
    let host = format!("Host: otel.test:{}", collector.port());
    assert!(received.heads[0].contains(&host), "{}", received.heads[0]);
}

#[test]
fn a_collector_can_require_a_client_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let certificate = authority.issue(&["localhost"]);
    let own = clients.issue(&["weir"]);
    let collector = OtlpCollector::http();
    let (port, gate) = (free_port(), free_port());
    let configuration = |section: &str| {
        format!(
            "{}\nlisten t\n bind 127.0.0.1:{gate} ssl crt {} alpn http/1.1 verify required ca-file {}\n server s 127.0.0.1:{}\n",
            configuration(section, "", port),
            certificate.display(),
            clients.own().display(),
            collector.port()
        )
    };
    let section = format!("endpoint https://localhost:{gate}\n ca-file {}", authority.own().display());
    {
        let weir = Weir::start(&configuration(&section), &[port]);
        assert!(get(port, "/").is_some());
        assert!(weir.says("does not accept exports"), "{}", weir.messages());
        assert_eq!(counts(&weir)["exported"], 0);
    }
    let _weir = Weir::start(&configuration(&format!("{section}\n crt {}", own.display())), &[port]);
    assert!(get(port, "/").is_some());
    collector.await_all(|received| !received.spans.is_empty());
}

#[test]
fn requests_are_no_larger_than_a_batch() {
    let accepts = Arc::new(AtomicBool::new(false));
    let gate = accepts.clone();
    let collector = OtlpCollector::http_with(move |_| match gate.load(Ordering::SeqCst) {
        true => None,
        false => Some(("503 Busy", "Retry-After: 0\r\n", Vec::new())),
    });
    let section = format!("endpoint http://127.0.0.1:{}\n batch-size 4096", collector.port());
    let (_weir, port) = start(&section, "");
    let path = format!("/{}", "x".repeat(500));
    for _ in 0..20 {
        assert!(get(port, &path).is_some());
    }
    accepts.store(true, Ordering::SeqCst);
    let received = collector.await_all(|received| received.spans.len() == 20);
    let length = |head: &String| -> usize {
        let value = weir_tests::client::field(head, "content-length").expect("a request has a length");
        value.parse().expect("a number")
    };
    let lengths: Vec<usize> = received.heads.iter().map(length).collect();
    // The resource and the scope come on top.
    assert!(lengths.iter().all(|length| *length < 4096 + 1024), "{lengths:?}");
    assert!(lengths.iter().any(|length| *length > 2048), "{lengths:?}");
}

#[test]
fn waiting_records_stay_within_the_queue_size() {
    let collector = OtlpCollector::http_with(|_| Some(("503 Busy", "Retry-After: 0\r\n", Vec::new())));
    let section = format!("endpoint http://127.0.0.1:{}\n queue-size 256k", collector.port());
    let (weir, port) = start(&section, "");
    let path = format!("/{}", "x".repeat(1500));
    let mut dropped_twice = 0;
    assert!(eventually(|| {
        assert_eq!(get(port, &path).map(|response| response.status), Some(200));
        let now = counts(&weir);
        assert!(now["waiting_bytes"] <= 256 << 10, "{now:?}");
        // The exporter has taken a buffer by then, and the queue is full again.
        dropped_twice += u32::from(now["dropped"] > 0);
        dropped_twice > 100
    }));
    let now = counts(&weir);
    assert!(now["waiting"] > 10 && now["exported"] == 0, "{now:?}");
}

#[test]
fn agents_and_queues_have_spans() {
    let (collector, release) = (OtlpCollector::http(), Arc::new(AtomicBool::new(false)));
    let gate = release.clone();
    let origin = Origin::start(move |_, _| {
        assert!(eventually(|| gate.load(Ordering::SeqCst)), "the server is released");
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec()
    });
    let agent = agent(|_| vec![set(scope::TXN, "foo", "bar")]);
    let file = engine(LINES, EVENTS);
    let (port, to) = (free_port(), collector.port());
    let configuration = format!(
        "global\n stats socket runtime level admin\n nbthread 1\n\
         opentelemetry c\n endpoint http://127.0.0.1:{to}\n interval 20ms\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n timeout queue 20s\n\
         listen f\n bind 127.0.0.1:{port}\n trace-to c\n filter spoe config {}\n server s 127.0.0.1:{} maxconn 1\n\
         backend agents\n mode spop\n server a 127.0.0.1:{}\n",
        file.display(),
        origin.port(),
        agent.port()
    );
    // A connection to the port would be another stream.
    let weir = Weir::start(&configuration, &[]);
    assert!(!weir.ask("show info").is_empty());
    let clients = ["/first", "/second"].map(|path| std::thread::spawn(move || get(port, path)));
    assert!(eventually(|| weir.stat("f,BACKEND", "qcur") == "1"));
    release.store(true, Ordering::SeqCst);
    for client in clients {
        assert_eq!(client.join().expect("no panic").map(|response| response.status), Some(200));
    }
    let is_over = |received: &Received| received.spans.iter().filter(|span| span.kind == 2).count() == 2;
    let spans = collector.await_all(is_over).spans;
    let steps = |name: &str| {
        let found = spans.iter().filter(|span| span.kind == 1 && span.name == name);
        found.map(|span| (span.get("weir.name"), span.parent.clone())).collect::<Vec<_>>()
    };
    let outer: BTreeSet<_> = spans.iter().filter(|span| span.kind == 2).map(|span| span.id.clone()).collect();
    let agents = steps("spoe");
    assert_eq!(agents.iter().map(|(_, parent)| parent.clone()).collect::<BTreeSet<_>>(), outer, "{spans:#?}");
    let queues = steps("queue");
    assert!(queues.len() == 1 && queues[0].0 == "f" && outer.contains(&queues[0].1), "{spans:#?}");
}

#[test]
fn a_new_process_takes_over_without_loss_of_spans() {
    let collector = OtlpCollector::http();
    let port = free_port();
    let section = format!("endpoint http://127.0.0.1:{}\n interval 1h", collector.port());
    let text = configuration(&section, "", port);
    let mut weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty());
    for reload in 0..3 {
        for request in 0..10 {
            assert!(get(port, &format!("/{reload}/{request}")).is_some());
        }
        let next = Weir::start_with(&text, &["-db", "-sf", &weir.pid().to_string()], &[]);
        assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
        weir = next;
        assert!(!weir.ask("show info").is_empty());
    }
    weir.signal("USR1");
    assert_eq!(weir.await_end(), Some(0));
    let received = collector.received();
    let paths: BTreeSet<_> = received.spans.iter().map(|span| span.get("url.path")).collect();
    assert_eq!((paths.len(), received.spans.len()), (30, 30), "{paths:?}");
}

/// The latest data points of a histogram: attributes and point.
fn points(received: &Received, name: &str) -> Vec<(BTreeMap<String, String>, HistogramDataPoint)> {
    let Some(metric) = received.metrics.iter().rev().find(|metric| metric.name == name) else {
        return Vec::new();
    };
    assert_eq!(metric.unit, "s");
    let Some(Data::Histogram(histogram)) = &metric.data else { panic!("a histogram: {metric:?}") };
    assert_eq!(histogram.aggregation_temporality, 2);
    histogram.data_points.iter().map(|point| (attributes(&point.attributes), point.clone())).collect()
}

#[test]
fn durations_have_the_attributes_of_the_conventions() {
    let collector = OtlpCollector::http();
    let origin = Origin::start(|head, _| {
        let status = if head.starts_with("GET /missing") { "404 Not Found" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let (port, refusing) = (free_port(), free_port());
    let text = format!(
        "global\n stats socket runtime level admin\n\
         opentelemetry c\n endpoint http://127.0.0.1:{}\n metrics-interval 50ms\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n retries 1\n option redispatch 1\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request return status 500 if {{ path /own }}\n default_backend b\n\
         backend b\n balance first\n server down 127.0.0.1:{refusing}\n server s 127.0.0.1:{}\n",
        collector.port(),
        origin.port()
    );
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty());
    assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    assert_eq!(get(port, "/missing").map(|response| response.status), Some(404));
    assert_eq!(get(port, "/own").map(|response| response.status), Some(500));
    let request = "BREW / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(port, request).map(|response| response.status), Some(200));
    let total = |points: &[(BTreeMap<String, String>, HistogramDataPoint)]| -> u64 {
        points.iter().map(|(_, point)| point.count).sum()
    };
    let received = collector.await_all(|received| {
        total(&points(received, "http.server.request.duration")) == 4
            && total(&points(received, "http.client.request.duration")) == 6
    });
    let shown =
        |points: &[(BTreeMap<String, String>, HistogramDataPoint)], names: &[&str]| -> BTreeSet<String> {
            let of = |attributes: &BTreeMap<String, String>, name: &&str| {
                attributes.get(*name).cloned().unwrap_or_default()
            };
            points
                .iter()
                .map(|(own, _)| names.iter().map(|name| of(own, name)).collect::<Vec<_>>().join(" "))
                .collect()
        };
    let servers = points(&received, "http.server.request.duration");
    let names = [
        "http.request.method",
        "http.response.status_code",
        "error.type",
        "url.scheme",
        "network.protocol.version",
        "weir.frontend",
    ];
    let expected =
        ["GET 200  http 1.1 f", "GET 404  http 1.1 f", "GET 500 500 http 1.1 f", "_OTHER 200  http 1.1 f"];
    assert_eq!(shown(&servers, &names), expected.map(str::to_owned).into());
    let clients = points(&received, "http.client.request.duration");
    let names = [
        "http.request.method",
        "http.response.status_code",
        "error.type",
        "server.address",
        "server.port",
        "weir.server",
    ];
    let (to, dead) = (origin.port(), refusing);
    let expected = [
        format!("GET 200  127.0.0.1 {to} s"),
        format!("GET 404 404 127.0.0.1 {to} s"),
        format!("_OTHER 200  127.0.0.1 {to} s"),
        format!("GET  connection_failed 127.0.0.1 {dead} down"),
        format!("_OTHER  connection_failed 127.0.0.1 {dead} down"),
    ];
    assert_eq!(shown(&clients, &names), expected.into());
    for (_, point) in servers.iter().chain(&clients) {
        let bounds = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
        assert_eq!(point.explicit_bounds, bounds);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
        assert!(point.sum.is_some_and(|sum| sum > 0.0), "{point:?}");
    }
}
