//! The metrics that pages and examples name are those that the exporter writes.

use std::collections::BTreeSet;

use statistics::prometheus::series;
use weir_tests::client::exchange;
use weir_tests::{Weir, free_port, workspace};

/// Files that name series.
const FILES: [&str; 5] = [
    "docs/metrics.md",
    "docs/beyond-haproxy.md",
    "docs/logs.md",
    "examples/grafana/weir.json",
    "examples/prometheus/alerts.yml",
];

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of series in a text. A name that ends with `_` stands for several.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("haproxy_") || word.starts_with("weir_"))
        .filter(|word| !word.ends_with('_'))
        .collect()
}

#[test]
fn series_in_pages_and_examples_are_exported() {
    let known: BTreeSet<String> = series().into_iter().map(|one| one.name).collect();
    let is_known = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        known.contains(name)
            // The name of a family of counters in OpenMetrics.
            || known.contains(&format!("{name}_total"))
            || parts.iter().any(|part| name.strip_suffix(part).is_some_and(|name| known.contains(name)))
    };
    let unknown: Vec<String> = FILES
        .iter()
        .flat_map(|path| {
            let text = read(path);
            let unknown = names(&text).into_iter().filter(|name| !is_known(name));
            unknown.map(|name| format!("{path}: {name}")).collect::<Vec<_>>()
        })
        .collect();
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}

#[test]
fn alerts_and_dashboard_name_series() {
    let dashboard = read("examples/grafana/weir.json");
    let parsed: serde_json::Value = serde_json::from_str(&dashboard).expect("the dashboard is JSON");
    let panels = parsed["panels"].as_array().expect("a list of panels");
    let queries = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    assert!(queries.clone().count() > 20);
    for query in queries {
        assert!(!names(query["expr"].as_str().unwrap_or_default()).is_empty(), "{query}");
    }
    let alerts = read("examples/prometheus/alerts.yml");
    assert_eq!(alerts.matches("- alert: ").count(), alerts.matches("expr: ").count());
}

/// Everything that the exporter can show of proxies and servers.
const CONFIGURATION: &str = "
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    option socket-stats

resolvers names
    nameserver n1 127.0.0.1:DNS

backend table
    stick-table type ip size 1k store http_req_rate(10s)

frontend web
    bind 127.0.0.1:PORT
    http-request use-service prometheus-exporter if { path /metrics }
    http-request track-sc0 src table table
    default_backend app

backend app
    balance roundrobin
    outlier-ejection errors 5
    compression algo gzip
    server s1 127.0.0.1:PORT check agent-check agent-port 1 maxconn 5 maxqueue 3 slowstart 5s
    server s2 127.0.0.1:PORT check backup

listen tcp
    mode tcp
    bind 127.0.0.1:TCP
    server s1 127.0.0.1:PORT check
";

/// The objects of each metric in `docs/metrics-list.md` are those of a scrape.
#[test]
fn the_list_of_metrics_is_that_of_a_scrape() {
    let (port, tcp, dns) = (free_port(), free_port(), free_port());
    let text = CONFIGURATION.replace("PORT", &port.to_string());
    let text = text.replace("TCP", &tcp.to_string()).replace("DNS", &dns.to_string());
    let _weir = Weir::start(&text, &[port, tcp]);
    let request = "GET /metrics?extra-counters HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = exchange(port, request).expect("an answer");
    let text = answer.text();
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let own = |name: &str| ["haproxy_process_description"].contains(&name) || name.starts_with("weir_");
    let listed = series();
    let listed: BTreeSet<&str> = listed.iter().map(|one| &*one.name).filter(|name| !own(name)).collect();
    let shown: BTreeSet<&str> = shown.into_iter().filter(|name| !own(name)).collect();
    let unlisted: Vec<_> = shown.difference(&listed).collect();
    let missing: Vec<_> = listed.difference(&shown).collect();
    assert!(unlisted.is_empty() && missing.is_empty(), "not listed: {unlisted:?}, not shown: {missing:?}");
}
