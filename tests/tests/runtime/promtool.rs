//! Prometheus and its tools read the exporter's output, the alerts and the dashboard. Tests without their tool report that they are
//! skipped.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weir_tests::client::{exchange_with, get, get_if_open};
use weir_tests::otlp::OtlpCollector;
use weir_tests::{Origin, Weir, chunks, eventually, free_port, scratch, tool, workspace};

/// Everything that the exporter can show without a second process.
const CONFIGURATION: &str = "
global
    stats socket runtime level admin
    description \"it's \\\"ours\\\"\"
    latency-histograms native

opentelemetry c
    endpoint http://127.0.0.1:COLLECTOR
    interval 50ms

resolvers names
    nameserver n1 127.0.0.1:9

defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    option socket-stats

backend table
    stick-table type ip size 1k store http_req_rate(10s)

frontend web
    description a \\\\ and a \\\"quote\\\"
    bind 127.0.0.1:PORT
    trace-to c
    http-request use-service prometheus-exporter if { path /metrics }
    http-request track-sc0 src table table
    default_backend app

backend app
    balance roundrobin
    outlier-ejection errors 5
    compression algo gzip
    server s1 127.0.0.1:ORIGIN check agent-check agent-port 1 maxconn 5 maxqueue 3 slowstart 5s
    server s2 127.0.0.1:ORIGIN check backup
";

struct Scene {
    _weir: Weir,
    _origin: Origin,
    collector: OtlpCollector,
    port: u16,
}

fn start() -> Scene {
    let (origin, collector, port) = (Origin::text("x"), OtlpCollector::http(), free_port());
    let text = CONFIGURATION.replace("PORT", &port.to_string());
    let text = text.replace("ORIGIN", &origin.port().to_string());
    let weir = Weir::start(&text.replace("COLLECTOR", &collector.port().to_string()), &[port]);
    assert!(get(port, "/").is_some());
    let is_counted = || scrape(port, "*/*").contains("weir_server_total_time_seconds_count");
    assert!(eventually(is_counted), "{}", scrape(port, "*/*"));
    Scene { _weir: weir, _origin: origin, collector, port }
}

fn scrape(port: u16, accept: &str) -> String {
    let path = "/metrics?extra-counters&desc-labels";
    let response = exchange_with(port, path, &format!("Accept: {accept}\r\n")).expect("a response");
    assert_eq!(response.status, 200);
    let is_chunked = response.header("transfer-encoding").is_some();
    let body = if is_chunked { chunks::unchunked(&response.body).0 } else { response.body };
    String::from_utf8(body).expect("metrics are text")
}

#[test]
fn promtool_reads_the_text_format() {
    let Some(promtool) = tool::find("promtool") else { return };
    let scene = start();
    let text = scrape(scene.port, "*/*");
    let output = tool::run(Command::new(promtool).args(["check", "metrics"]), text.as_bytes());
    let said = String::from_utf8_lossy(&output.stderr);
    // The status is 3 if names do not follow all conventions, which is inevitable because they are HAProxy's.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let is_other =
        |line: &&str| line.starts_with("weir_") || !line.ends_with("metrics should have \"_total\" suffix");
    let others = said.lines().filter(|line| !line.ends_with("should not have \"_total\" suffix"));
    let others: Vec<&str> = others.filter(is_other).collect();
    assert!(others.is_empty(), "{others:#?}");
}

/// Reads standard input with the reference parser, and prints the numbers of families, samples and exemplars.
const PARSER: &str = "
import sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
except ImportError:
    sys.exit(9)
families = list(parse(sys.stdin.read()))
samples = [sample for family in families for sample in family.samples]
print(len(families), len(samples), len([sample for sample in samples if sample.exemplar]))
";

#[test]
fn the_reference_parser_reads_openmetrics() {
    let Some(python) = tool::find("python3") else { return };
    let scene = start();
    let has_exemplar = || scrape(scene.port, "application/openmetrics-text").contains(" # {trace_id=");
    assert!(eventually(has_exemplar));
    let text = scrape(scene.port, "application/openmetrics-text");
    let output = tool::run(Command::new(python).args(["-c", PARSER]), text.as_bytes());
    if output.status.code() == Some(9) {
        return tool::skipped("the Python package prometheus_client is not installed");
    }
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    let counts = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<usize> = counts.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [families, samples, exemplars] = counts[..] else { panic!("{counts:?}") };
    assert!(families > 200 && samples > 500 && exemplars > 4, "{counts:?}");
}

#[test]
fn promtool_reads_the_alerts_and_the_queries_of_the_dashboard() {
    let Some(promtool) = tool::find("promtool") else { return };
    let alerts = workspace().join("examples/prometheus/alerts.yml");
    let output = tool::run(Command::new(&promtool).args(["check", "rules"]).arg(alerts), b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // A recording rule for each query.
    let dashboard = workspace().join("examples/grafana/weir.json");
    let text = std::fs::read_to_string(dashboard).expect("the dashboard is there");
    let parsed: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = parsed["panels"].as_array().into_iter().flatten();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<String> = queries
        .map(|query| query["expr"].as_str().expect("each target has an expression"))
        .map(|query| query.replace("$__rate_interval", "5m").replace("$__range", "1h"))
        .collect();
    assert!(expressions.len() > 20);
    let rule = |(at, expression): (usize, &String)| {
        format!("  - record: query:{at}\n    expr: {}\n", Value::from(expression.as_str()))
    };
    let rules: String = expressions.iter().enumerate().map(rule).collect();
    let folder = scratch("dashboard");
    let file = folder.join("rules.yml");
    std::fs::write(&file, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).expect("a file");
    let output = tool::run(Command::new(&promtool).args(["check", "rules"]).arg(&file), b"");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}\n{rules}", String::from_utf8_lossy(&said));
    assert!(String::from_utf8_lossy(&said).contains(&format!("{} rules found", expressions.len())));
}

/// A running Prometheus.
struct Prometheus {
    process: Child,
    port: u16,
    _folder: scratch::Scratch,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes a port, if it is installed.
    fn scraping(target: u16) -> Option<Self> {
        let program = tool::find("prometheus")?;
        let (folder, port) = (scratch("prometheus"), free_port());
        let file = folder.join("prometheus.yml");
        let jobs = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: weir\n  static_configs:\n  \
             - targets: ['127.0.0.1:{target}']\n"
        );
        std::fs::write(&file, jobs).expect("a file");
        let process = Command::new(program)
            .args(["--enable-feature=native-histograms,exemplar-storage", "--log.level=error"])
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it can be run");
        Some(Self { process, port, _folder: folder })
    }

    /// The result of a request to the API; `Null` until Prometheus is ready.
    fn ask(&self, path: &str) -> Value {
        let response = get_if_open(self.port, path).filter(|response| response.status == 200);
        let body = response.map(|response| match response.header("transfer-encoding") {
            Some(_) => chunks::unchunked(&response.body).0,
            None => response.body,
        });
        body.and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default()
    }

    /// The value of an instant query that has one.
    fn value(&self, query: &str) -> Option<f64> {
        let answer = self.ask(&format!("/api/v1/query?query={query}"));
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn prometheus_stores_native_histograms_and_exemplars() {
    let scene = start();
    let Some(prometheus) = Prometheus::scraping(scene.port) else { return };
    let series = "weir_server_total_time_seconds{server=\"s1\"}".replace('"', "%22");
    let has = |query: &str, wanted: f64| {
        let reached = eventually(|| prometheus.value(query).is_some_and(|value| value >= wanted));
        assert!(reached, "{query}: {}", prometheus.ask(&format!("/api/v1/query?query={query}")));
    };
    has("up", 1.0);
    has(&format!("histogram_count({series})"), 1.0);
    assert!(
        prometheus.value(&format!("histogram_quantile(0.5,{series})")).is_some_and(|median| median < 10.0)
    );
    has("haproxy_server_http_responses_total%7Bserver=%22s1%22,code=%222xx%22%7D", 1.0);
    let spans = scene.collector.await_all(|received| {
        received.spans.iter().any(|span| span.kind == 2 && span.get("url.path") == "/")
    });
    let span = spans.spans.iter().find(|span| span.kind == 2 && span.get("url.path") == "/").expect("a span");
    let exemplars = || {
        let path = format!("/api/v1/query_exemplars?query={series}&start=1&end=99999999999");
        prometheus.ask(&path)["data"][0]["exemplars"][0]["labels"].clone()
    };
    assert!(eventually(|| exemplars()["trace_id"] == *span.trace), "{}", exemplars());
    assert_eq!(exemplars()["span_id"], *span.id);
}
