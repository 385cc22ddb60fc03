//! Tests of the statistics page and the metrics.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{proxy, server, statistics};
use statistics::page::{PageRequest, PageSettings, show};
use statistics::prometheus::MetricsRequest;
use statistics::{ConfigView, Statistics, prometheus};

fn page(statistics: &Arc<Statistics>, uri: &str, admin: bool) -> (u16, String, String) {
    let settings = PageSettings {
        uri: "/stats".into(),
        refresh: Some(Duration::from_secs(5)),
        ..PageSettings::default()
    };
    let request = PageRequest { method: http::Method::Get, uri, body: Some(b""), admin };
    let response = show(statistics, &settings, &request);
    let headers = response.headers.iter().map(|(n, v)| format!("{n}: {v}\n")).collect();
    (response.status, headers, String::from_utf8(response.body.flatten().collect()).unwrap())
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let process = Arc::new(state::Process::default());
    let evil = proxy(2, "<evil>\"&", false, true, vec![server(1, "'><evil>", false, false)]);
    let statistics =
        Arc::new(Statistics::new(process, ConfigView { proxies: vec![evil], ..ConfigView::default() }));
    let html = page(&statistics, "/stats;st=<evil>;find=<evil>;scope=%3Cevil", true).2;
    assert!(html.contains("evil") && !html.contains("<evil"), "{html}");
}

#[test]
fn huge_tables_are_generated_in_small_pieces() {
    let process = Arc::new(state::Process::default());
    let servers = (1..=10_000).map(|id| server(id, &format!("s{id}"), false, false)).collect();
    let view = ConfigView { proxies: vec![proxy(2, "be", false, true, servers)], ..ConfigView::default() };
    let statistics = Arc::new(Statistics::new(process, view));
    let settings = PageSettings { uri: "/".into(), ..PageSettings::default() };
    for uri in ["/", "/;csv", "/;json"] {
        let request = PageRequest { method: http::Method::Get, uri, body: Some(b""), admin: false };
        let sizes: Vec<usize> =
            show(&statistics, &settings, &request).body.map(|piece| piece.len()).collect();
        assert!(sizes.len() > 100, "{uri}: {} pieces", sizes.len());
        assert!(sizes.iter().all(|&size| size < 1 << 20));
    }
}

#[test]
fn scrapes_group_the_samples_of_each_metric() {
    let statistics = statistics();
    let scrape = |method, uri| {
        let response = prometheus::respond(&statistics, &MetricsRequest { method, uri, accept: b"" });
        (response.status, String::from_utf8(response.body.flatten().collect()).unwrap())
    };
    let (status, text) = scrape(http::Method::Get, "/metrics");
    assert_eq!(status, 200);
    for line in [
        "haproxy_process_max_connections 1000",
        "haproxy_frontend_status{proxy=\"fe\",state=\"UP\"} 1",
        "haproxy_backend_active_servers{proxy=\"be\"} 2",
        "haproxy_server_status{proxy=\"be\",server=\"s1\",state=\"UP\"} 1",
        "haproxy_server_status{proxy=\"be\",server=\"s1\",state=\"DOWN\"} 0",
        "haproxy_server_check_status{proxy=\"be\",server=\"s1\",state=\"L4OK\"} 0",
        "haproxy_server_http_responses_total{proxy=\"be\",server=\"s2\",code=\"2xx\"} 0",
        "haproxy_server_queue_time_average_seconds{proxy=\"be\",server=\"s1\"} 0.000000",
        "haproxy_server_active{proxy=\"be\",server=\"s1\"} 1",
        "haproxy_backend_agg_server_status{proxy=\"be\",state=\"UP\"} 3",
        "haproxy_backend_agg_check_status{proxy=\"be\",state=\"L4OK\"} 0",
        "haproxy_backend_req_bytes_out_total{proxy=\"be\"} 0",
        "# HELP haproxy_process_nbthread Number of started threads (global.nbthread)",
        "# TYPE haproxy_frontend_sessions_total counter",
        "# TYPE haproxy_server_weight gauge",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
    // The samples of a name are grouped under exactly one TYPE.
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("# HELP")) {
        let name = line.trim_start_matches("# TYPE ").split(['{', ' ']).next().unwrap();
        if line.starts_with("# TYPE") {
            assert!(!names.contains(&name), "{name} twice");
            names.push(name);
        }
        assert_eq!(names.last(), Some(&name), "{line}");
    }
    let (_, only) = scrape(http::Method::Get, "/metrics?scope=server&no-maint");
    assert!(
        only.contains("haproxy_server_")
            && !only.contains("haproxy_process_")
            && !only.contains("haproxy_frontend_")
    );
    assert_eq!(scrape(http::Method::Get, "/metrics?scope=bogus").0, 400);
    assert_eq!(scrape(http::Method::Post, "/metrics").0, 405);
    assert_eq!(scrape(http::Method::Head, "/metrics"), (200, String::new()));
}

#[test]
fn admin_pages_cannot_be_framed_by_other_sites() {
    let statistics = statistics();
    for (admin, framed) in [(false, true), (true, false)] {
        let (_, headers, _) = page(&statistics, "/stats", admin);
        assert!(headers.contains("default-src 'none'"), "{headers}");
        assert_eq!(!headers.contains("frame"), framed, "{headers}");
    }
}
