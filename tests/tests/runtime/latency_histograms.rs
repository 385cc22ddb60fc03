//! Histograms of the times of requests in the exporter (`latency-histograms`).

use std::io::{Read, Write};

use weir_tests::client::{Client, get};
use weir_tests::{Origin, Weir, eventually, free_port};

const TIMES: [&str; 4] = ["queue", "connect", "response", "total"];

fn start(global: &str, origin: &Origin, of_tcp: u16) -> (Weir, u16, u16) {
    let (port, tcp) = (free_port(), free_port());
    let text = format!(
        "global\n  nbthread 2\n  stats socket runtime level admin\n  {global}\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  \
         http-request use-service prometheus-exporter if {{ path /metrics }}\n  \
         http-request return status 204 if {{ path /own }}\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{origin}\n  server unused 127.0.0.1:{origin} backup\n\
         listen t\n  mode tcp\n  bind 127.0.0.1:{tcp}\n  server s 127.0.0.1:{of_tcp}\n",
        origin = origin.port()
    );
    (Weir::start(&text, &[port, tcp]), port, tcp)
}

fn scrape(port: u16, query: &str) -> String {
    get(port, &format!("/metrics{query}")).expect("a response").text()
}

/// Returns the value of a series.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn requests_are_counted_in_histograms_of_frontend_backend_and_server() {
    let origin = Origin::text("x");
    let (weir, port, tcp) = start("", &origin, origin.port());
    assert!(
        !scrape(port, "").contains("weir_backend_total_time_seconds_count{proxy=\"b\"}"),
        "no requests yet"
    );
    for _ in 0..3 {
        assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    }
    assert_eq!(get(port, "/own").map(|response| response.status), Some(204));
    let count = |text: &str, object: &str, time: &str, labels: &str| {
        value(text, &format!("weir_{object}_{time}_time_seconds_count{{{labels}}}"))
    };
    // A request is counted when its last byte has been sent.
    let is_counted = || count(&scrape(port, ""), "backend", "total", "proxy=\"b\"") == Some(3.0);
    assert!(eventually(is_counted), "{}", scrape(port, ""));
    let text = scrape(port, "?no-maint");
    for time in TIMES {
        assert_eq!(count(&text, "backend", time, "proxy=\"b\""), Some(3.0), "{time}");
        assert_eq!(count(&text, "server", time, "proxy=\"b\",server=\"s\""), Some(3.0), "{time}");
        assert_eq!(count(&text, "server", time, "proxy=\"b\",server=\"unused\""), None, "{time}");
    }
    // Requests that no server answered have only a total time.
    assert_eq!(count(&text, "frontend", "response", "proxy=\"f\""), Some(3.0));
    assert!(count(&text, "frontend", "total", "proxy=\"f\"") >= Some(4.0), "{text}");

    let is_closed = || {
        let mut client = Client::connect(tcp);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").read_to_end();
        count(&scrape(port, ""), "server", "total", "proxy=\"t\",server=\"s\"") >= Some(1.0)
    };
    assert!(eventually(is_closed), "{}", scrape(port, ""));
    assert_eq!(count(&scrape(port, ""), "server", "response", "proxy=\"t\",server=\"s\""), None);

    weir.ask("clear counters all");
    assert_eq!(count(&scrape(port, ""), "backend", "total", "proxy=\"b\""), None);
}

#[test]
fn a_slow_response_is_in_its_bucket() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let origin = Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = released.lock().unwrap().recv();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    });
    let (_weir, port, _) = start("", &origin, 9);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| origin.connections() == 1));
    let begin = std::time::Instant::now();
    while begin.elapsed().as_millis() < 30 {
        std::thread::yield_now();
    }
    release.send(()).expect("the server waits");
    assert!(client.response().is_some());
    let series = "weir_server_response_time_seconds";
    let labels = "proxy=\"b\",server=\"s\"";
    let text = || scrape(port, &format!("?metrics={series}"));
    let bucket = |end: &str| value(&text(), &format!("{series}_bucket{{{labels},le=\"{end}\"}}"));
    assert!(eventually(|| bucket("+Inf") == Some(1.0)), "{}", text());
    assert_eq!((bucket("0.025"), bucket("10")), (Some(0.0), Some(1.0)), "{}", text());
    assert!(value(&text(), &format!("{series}_sum{{{labels}}}")) >= Some(0.03), "{}", text());
    // Buckets are cumulative, and the description precedes them.
    let all = text();
    let counts: Vec<u64> = all
        .lines()
        .filter(|line| line.contains("_bucket{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert!(counts.len() == 14 && counts.is_sorted(), "{all}");
    assert!(all.contains(&format!("# TYPE {series} histogram\n{series}_bucket{{")), "{all}");
}

#[test]
fn histograms_are_left_out_on_request_and_can_be_disabled() {
    let origin = Origin::text("x");
    let has = |port: u16, query: &str| scrape(port, query).contains("_time_seconds_bucket");
    let (_weir, port, _) = start("latency-histograms on", &origin, 9);
    let is_counted = || get(port, "/").is_some() && has(port, "");
    assert!(eventually(is_counted), "{}", scrape(port, ""));
    assert!(!has(port, "?no-histograms") && scrape(port, "?no-histograms").contains("haproxy_server_status"));
    assert!(!has(port, "?scope=listener") && has(port, "?scope=frontend"));
    assert!(!scrape(port, "?scope=frontend").contains("weir_server_"));

    let (weir, port, _) = start("latency-histograms off", &origin, 9);
    assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    assert!(
        eventually(|| weir.stat("b,BACKEND", "hrsp_2xx") == "1"),
        "{}",
        weir.stat("b,BACKEND", "hrsp_2xx")
    );
    assert!(!has(port, ""));
}
