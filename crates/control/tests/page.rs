//! Claims about the statistics page and the metrics.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::{be, proxy, runtime, server};
use control::page::{PageRequest, PageSettings, respond};
use control::{ConfigView, Runtime};
use state::server::Operational;

fn page(
    runtime: &Arc<Runtime>,
    method: http::Method,
    uri: &str,
    body: &str,
    admin: bool,
) -> (u16, String, String) {
    let settings = PageSettings {
        uri: "/stats".into(),
        refresh: Some(Duration::from_secs(5)),
        ..PageSettings::default()
    };
    let request = PageRequest { method, uri, body: body.as_bytes(), admin };
    let response = respond(runtime, &settings, &request);
    let headers = response.headers.iter().map(|(n, v)| format!("{n}: {v}\n")).collect();
    (response.status, headers, String::from_utf8(response.body.flatten().collect()).unwrap())
}

#[test]
fn the_page_shows_every_proxy_and_acts_only_for_administrators() {
    use http::Method::{Get, Head, Post};
    let runtime = runtime();
    let (status, headers, html) = page(&runtime, Get, "/stats", "", false);
    assert_eq!(status, 200);
    assert!(headers.contains("refresh: 5\n") && headers.contains("content-type: text/html; charset=utf-8\n"));
    for part in ["<h2>fe</h2>", "<h2>be</h2>", "s1</td>", "no check", "</html>"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<select"), "no forms without the right");
    assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
    assert!(page(&runtime, Get, "/stats", "", true).2.contains("name=s value=\"s1\""));
    assert!(!page(&runtime, Get, "/stats?scope=fe", "", false).2.contains("<h2>be</h2>"));
    assert!(!page(&runtime, Get, "/stats;norefresh", "", false).1.contains("refresh"));
    assert_eq!(page(&runtime, Head, "/stats", "", false).2, "");
    let (_, headers, csv) = page(&runtime, Get, "/stats;csv;scope=be", "", false);
    assert!(headers.contains("text/plain") && csv.contains("\nbe,BACKEND,") && !csv.contains("\nfe,"));
    serde_json::from_str::<serde_json::Value>(&page(&runtime, Get, "/stats;json", "", false).2).unwrap();

    let form = "s=s1&s=s2&action=maint&b=%233";
    assert!(page(&runtime, Post, "/stats", form, false).1.contains("location: /stats;st=DENY\n"));
    assert!(!be(&runtime).server("s1").unwrap().admin().in_maintenance());
    let (status, headers, _) = page(&runtime, Post, "/stats?scope=be", form, true);
    assert_eq!(status, 303);
    assert!(headers.contains("location: /stats;st=DONE;scope=be\n"), "{headers}");
    assert!(be(&runtime).server("s2").unwrap().admin().in_maintenance());
    for (form, outcome) in [
        ("s=s1&action=maint&b=nope", "ERRP"),
        ("s=s1&action=bogus&b=be", "ERRP"),
        ("s=s1&s=zz&action=ready&b=be", "PART"),
        ("action=ready&b=be", "NONE"),
        ("s=s1&b=be", "NONE"),
        // One that is in maintenance is not disabled again, nor counted.
        ("s=s1&action=disable&b=be", "DONE"),
        ("s=s1&action=disable&b=be", "NONE"),
        ("s=s1&action=enable&b=be", "DONE"),
        ("s=s1&action=start&b=be", "NONE"),
        ("s=s1&action=stop&b=be", "DONE"),
        ("s=s1&action=start&b=be", "DONE"),
        ("s=s1&action=dhlth&b=be", "DONE"),
        ("s=s2&action=dhlth&b=be", "NONE"),
        ("s=s1&action=eagent&b=be", "NONE"),
        ("s=s1&action=adown&b=be", "NONE"),
    ] {
        let location = page(&runtime, Post, "/stats", form, true).1;
        assert!(location.contains(&format!("st={outcome}")), "{form}: {location}");
    }
    assert!(page(&runtime, Get, "/stats;csv", "", false).1.contains("refresh: 5"));
    let s1 = be(&runtime).server("s1").unwrap();
    s1.agent.configured.store(true, Relaxed);
    for (action, outcome) in
        [("arunn", "NONE"), ("eagent", "DONE"), ("adown", "DONE"), ("arunn", "DONE"), ("dagent", "DONE")]
    {
        let form = format!("s=s1&action={action}&b=be");
        assert!(page(&runtime, Post, "/stats", &form, true).1.contains(outcome), "{form}");
        assert_eq!(s1.operational() == Operational::Stopped, action == "adown", "{action}");
    }
}

#[test]
fn a_form_reaches_only_what_the_page_shows() {
    let runtime = runtime();
    let settings = PageSettings { uri: "/".into(), scope: vec!["other".into()], ..PageSettings::default() };
    for backend in ["be", "nope"] {
        let body = format!("s=s1&action=maint&b={backend}");
        let request =
            PageRequest { method: http::Method::Post, uri: "/", body: body.as_bytes(), admin: true };
        let headers = respond(&runtime, &settings, &request).headers;
        assert!(headers.iter().any(|(_, value)| value.contains("st=DENY")), "{backend}: {headers:?}");
    }
    assert!(!be(&runtime).server("s1").unwrap().admin().in_maintenance());
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let process = Arc::new(state::Process::default());
    let evil = proxy(2, "<b>\"&", false, true, vec![server(1, "'><i>", false, false)]);
    let runtime =
        Arc::new(Runtime::new(process, ConfigView { proxies: vec![evil], ..ConfigView::default() }));
    let html = page(&runtime, http::Method::Get, "/stats;st=<u>;scope=%3Cb", "", true).2;
    assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("<u>"));
}

#[test]
fn a_huge_table_is_made_in_small_pieces() {
    let process = Arc::new(state::Process::default());
    let servers = (1..=10_000).map(|id| server(id, &format!("s{id}"), false, false)).collect();
    let view = ConfigView { proxies: vec![proxy(2, "be", false, true, servers)], ..ConfigView::default() };
    let runtime = Arc::new(Runtime::new(process, view));
    let settings = PageSettings { uri: "/".into(), ..PageSettings::default() };
    for uri in ["/", "/;csv", "/;json"] {
        let request = PageRequest { method: http::Method::Get, uri, body: b"", admin: false };
        let sizes: Vec<usize> =
            respond(&runtime, &settings, &request).body.map(|piece| piece.len()).collect();
        assert!(sizes.len() > 100, "{uri}: {} pieces", sizes.len());
        assert!(sizes.iter().all(|&size| size < 1 << 20));
    }
}

#[test]
fn a_scrape_gives_each_metric_once_with_its_samples_together() {
    let runtime = runtime();
    let scrape = |method, uri| {
        let response =
            control::prometheus::respond(&runtime, &PageRequest { method, uri, body: b"", admin: false });
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
    // Samples of one name stand together, under exactly one TYPE.
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
fn only_pages_that_change_something_cannot_be_in_frames_of_others() {
    let runtime = runtime();
    for (admin, framed) in [(false, true), (true, false)] {
        let (_, headers, _) = page(&runtime, http::Method::Get, "/stats", "", admin);
        assert!(headers.contains("default-src 'none'"), "{headers}");
        assert_eq!(!headers.contains("frame"), framed, "{headers}");
    }
}
