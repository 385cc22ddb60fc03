//! Responses of the program itself that are sent in pieces: the statistics page and the metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::running::start_before;
use weir_tests::client::{Client, exchange};
use weir_tests::{Origin, Weir, client, free_port};

fn start(servers: usize) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n  nbthread 1\n  stats socket runtime level admin\n  description the-process\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  description the-front\n  stats enable\n  stats uri /stats\n\
         http-request use-service prometheus-exporter if {{ path /metrics }}\n    http-request return status 204 if {{ path /alive }}\n\
         backend b\n  server-template s {servers} 127.0.0.1:9 disabled\n  server up 127.0.0.1:9\n"
    );
    (Weir::start(&text, &[port]), port)
}

#[test]
fn metrics_without_a_value_are_nan_or_omitted() {
    let port = free_port();
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port} name own\n  option socket-stats\n  \
         http-request use-service prometheus-exporter if {{ path /metrics }}\n\
         frontend t\n  mode tcp\n  bind 127.0.0.1:{} name own\n  default_backend c\n\
         backend b\n  server plain 127.0.0.1:9\n  server full 127.0.0.1:9 maxconn 7 maxqueue 5 check inter 1h agent-check \
         agent-port 9 agent-inter 1h\nbackend c\n  mode tcp\n  server other 127.0.0.1:9\n",
        free_port()
    );
    let _weir = Weir::start(&text, &[port]);
    let text = client::get(port, "/metrics").expect("a response").text();
    for line in [
        "haproxy_server_limit_sessions{proxy=\"b\",server=\"plain\"} NaN",
        "haproxy_server_limit_sessions{proxy=\"b\",server=\"full\"} 7",
        "haproxy_server_queue_limit{proxy=\"b\",server=\"plain\"} NaN",
        "haproxy_server_queue_limit{proxy=\"b\",server=\"full\"} 5",
        "haproxy_server_current_throttle{proxy=\"b\",server=\"full\"} NaN",
        "haproxy_server_idle_connections_limit{proxy=\"b\",server=\"full\"} NaN",
        "haproxy_server_check_failures_total{proxy=\"b\",server=\"plain\"} NaN",
        "haproxy_server_downtime_seconds_total{proxy=\"b\",server=\"plain\"} NaN",
        "haproxy_server_check_code{proxy=\"b\",server=\"full\"} 0",
        "haproxy_server_agent_code{proxy=\"b\",server=\"full\"} 0",
        "haproxy_listener_status{proxy=\"f\",listener=\"own\",state=\"OPEN\"} 1",
        "haproxy_process_current_zlib_memory 0",
        "haproxy_process_max_zlib_memory 0",
        "# TYPE haproxy_process_bytes_out_rate gauge",
        "# TYPE haproxy_process_total_warnings counter",
        "# TYPE haproxy_process_patterns_added_total gauge",
        "# TYPE haproxy_process_patterns_freed_total gauge",
        "# TYPE haproxy_backend_downtime_seconds_total counter",
        "# TYPE haproxy_server_downtime_seconds_total counter",
        "# TYPE haproxy_listener_connections_total counter",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    for part in [
        // These servers have no checks, and these do not speak HTTP.
        "haproxy_server_check_code{proxy=\"b\",server=\"plain\"}",
        "haproxy_server_check_status{proxy=\"b\",server=\"plain\"",
        "haproxy_server_agent_status{proxy=\"b\",server=\"plain\"",
        "haproxy_frontend_http_requests_total{proxy=\"t\"}",
        "haproxy_frontend_intercepted_requests_total{proxy=\"t\"}",
        "haproxy_backend_http_responses_total{proxy=\"c\"",
        "haproxy_server_http_requests_total{proxy=\"c\"",
        // The state before the first check has ended.
        "state=\"INI\"",
        "haproxy_frontend_http_requests_rate_current",
        "haproxy_process_description",
    ] {
        assert!(!text.contains(part), "{part}: {text}");
    }
}

#[test]
fn metrics_are_selected_by_haproxys_parameters() {
    let (_weir, port) = start(2);
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "/metrics",
            &[
                "haproxy_process_nbthread 1\n",
                "haproxy_process_description{desc=\"the-process\"} 1\n",
                "haproxy_frontend_status{proxy=\"f\",state=\"UP\"} 1",
                "haproxy_server_status{proxy=\"b\",server=\"s2\",state=\"MAINT\"} 1",
            ],
            &[],
        ),
        (
            "/metrics?scope=server",
            &["haproxy_server_"],
            &["haproxy_process_", "haproxy_frontend_", "haproxy_backend_"],
        ),
        (
            "/metrics?scope=frontend&scope=backend",
            &["haproxy_frontend_", "haproxy_backend_"],
            &["haproxy_process_", "haproxy_server_"],
        ),
        ("/metrics?scope=*&scope=&scope=global", &["haproxy_process_"], &["haproxy_frontend_"]),
        ("/metrics?scope=sticktable", &[], &["haproxy_"]),
        ("/metrics?no-maint", &["server=\"up\""], &["server=\"s1\""]),
        (
            "/metrics?metrics=haproxy_frontend_status",
            &["haproxy_frontend_status"],
            &["haproxy_frontend_bytes", "haproxy_process_"],
        ),
        (
            "/metrics?metrics=-haproxy_frontend_status",
            &["haproxy_frontend_bytes"],
            &["haproxy_frontend_status"],
        ),
        // An empty scope, names in other spellings, unknown names.
        ("/metrics?%73cope=glob%61l", &["haproxy_process_"], &["haproxy_frontend_"]),
        ("/metrics?scope=resolvers", &[], &["haproxy_process_", "haproxy_frontend_"]),
        ("/metrics?whatever=1", &["haproxy_process_"], &[]),
        ("/metrics", &["haproxy_process_"], &["mod=\""]),
        (
            "/metrics?extra-counters",
            &[
                "# TYPE haproxy_frontend_h1_total_streams counter\n",
                "haproxy_frontend_h1_total_streams{proxy=\"f\",mod=\"h1\"} ",
                "haproxy_backend_h2_headers_rcvd{proxy=\"b\",mod=\"h2\"} 0\n",
                "haproxy_server_ssl_sess{proxy=\"b\",server=\"up\",mod=\"ssl\"} 0\n",
            ],
            &["haproxy_server_h1_"],
        ),
        (
            "/metrics?desc-labels",
            &["{proxy=\"f\",desc=\"the-front\"}", "haproxy_process_nbthread{desc=\"the-process\"} 1"],
            &[],
        ),
    ];
    for (path, with, without) in cases {
        let response = client::get(port, path).expect("a response");
        let text = response.text();
        assert_eq!(response.status, 200, "{path}");
        assert!(with.iter().all(|part| text.contains(part)), "{path}: {text}");
        assert!(!without.iter().any(|part| text.contains(part)), "{path}: {text}");
    }
    for (path, status) in [("/metrics?scope=nonsense", 400), ("/metrics?scope", 400)] {
        assert_eq!(client::get(port, path).expect("a response").status, status, "{path}");
    }
}

#[test]
fn long_page_is_chunked_and_its_connection_kept() {
    let (_weir, port) = start(600);
    let mut client = Client::connect(port);
    for path in ["/stats;csv", "/metrics"] {
        let page = client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")).response().expect("a page");
        assert_eq!((page.status, page.header("transfer-encoding")), (200, Some("chunked")), "{path}");
        assert!(page.text().contains("s600"), "{path}");
        let alive = client.send("GET /alive HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("an answer");
        assert_eq!(alive.status, 204, "{path}");
    }
    let head = client
        .send("HEAD /stats;csv HTTP/1.1\r\nHost: h\r\n\r\nGET /alive HTTP/1.1\r\nHost: h\r\n\r\n")
        .read_head();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(client.response().expect("an answer").status, 204);
}

#[test]
fn http_1_0_client_gets_a_long_page_until_close() {
    let (_weir, port) = start(3000);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.write_all(b"GET /stats;csv HTTP/1.0\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    assert!(!page.contains("chunked") && page.contains("connection: close"), "{}", &page[..300]);
    assert!(
        page.contains("b,s3000,")
            && page.trim_end().lines().last().is_some_and(|line| line.starts_with("b,BACKEND"))
    );
}

#[test]
fn page_of_many_servers_does_not_block_others() {
    let (_weir, port) = start(20_000);
    let mut page = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    // Nobody reads it: it stalls in the middle, and keeps neither its worker busy nor all of its text in memory.
    page.write_all(b"GET /stats HTTP/1.1\r\nHost: h\r\n\r\n").expect("a request");
    page.read_exact(&mut [0; 100]).expect("the beginning");
    for _ in 0..100 {
        assert_eq!(client::get(port, "/alive").expect("an answer").status, 204);
    }
}

#[test]
fn server_bytes_exclude_generated_responses() {
    let origin = Origin::text("ok");
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n  use_backend none if {{ path /none }}\n\
             backend b\n  http-request deny if {{ path /deny }}\n  server s 127.0.0.1:{}\n  server spare 127.0.0.1:9 backup\n\
             backend none\n",
            origin.port()
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let columns = |row: &str, names: &[&str]| -> Vec<String> {
        let shown = weir.statistics();
        names.iter().map(|name| shown.value(row, name)).collect()
    };
    for (path, status) in [("/x", 200), ("/deny", 403), ("/none", 503)] {
        assert_eq!(client::get(port, path).expect("a response").status, status);
    }
    let names =
        ["h1_total_connections", "h1_total_streams", "uweight", "lastsess", "downtime", "agg_check_status"];
    assert!(weir_tests::eventually(|| columns("b,BACKEND", &["h1_total_streams", "stot"]) == ["1", "2"]));
    assert_eq!(columns("b,BACKEND", &names), ["1", "1", "1", "0", "0", "0"]);
    assert_eq!(columns("none,BACKEND", &names), ["0", "0", "0", "-1", "", "0"]);
    assert_eq!(columns("b,BACKEND", &["reqbout", "resbin"]), columns("b,s", &["bin", "bout"]));
    let [sent, received] =
        [["reqbin", "reqbout"], ["resbout", "resbin"]].map(|pair| columns("b,BACKEND", &pair));
    assert!(sent[0] != sent[1] && received[0] != received[1], "{sent:?} {received:?}");
    assert_eq!(columns("f,FRONTEND", &["h1_total_streams"]), ["3"]);
    // Only the first request went to a server; all were received, and all responses were sent.
    assert_eq!(columns("f,FRONTEND", &["reqbout", "resbin"]), columns("b,s", &["bin", "bout"]));
    let [bytes, shown] = [["bin", "bout"], ["reqbin", "resbout"]].map(|pair| columns("f,FRONTEND", &pair));
    assert!(bytes == shown && bytes[0] != sent[1] && bytes[1] != received[1], "{bytes:?} {shown:?}");
}

#[test]
fn sessions_switched_to_http_count_as_http() {
    let origin = Origin::text("ok");
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             defaults\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             frontend f\n  mode tcp\n  bind 127.0.0.1:{port}\n  tcp-request inspect-delay 10s\n  \
             tcp-request content switch-mode http if HTTP\n  tcp-request content accept if {{ req.len gt 0 }}\n  default_backend b\n\
             backend b\n  mode http\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    assert_eq!(client::get(port, "/").expect("a response").status, 200);
    let shown =
        || ["stot", "h1sess", "h1req", "req_tot", "sess_other"].map(|name| weir.stat("f,FRONTEND", name));
    assert!(weir_tests::eventually(|| shown() == ["1", "1", "1", "1", "0"]), "{:?}", shown());
}

#[test]
fn head_for_a_page_has_no_wrong_length() {
    let rules = "  stats enable\n  stats uri /stats\n  \
                 http-request use-service prometheus-exporter if { path /metrics }\n";
    let origin = Origin::text("x");
    let (_weir, port) = start_before(rules, &origin);
    for path in ["/stats", "/stats;csv", "/stats;json", "/metrics"] {
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut client = Client::connect(port);
        let said = client.send(head).read_to_end();
        let said = String::from_utf8_lossy(&said).to_lowercase();
        assert!(said.starts_with("http/1.1 200 ") && said.ends_with("\r\n\r\n"), "{path}: {said}");
        assert!(!said.contains("content-length"), "{path}: {said}");
        let get = exchange(port, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert!(get.is_some_and(|get| get.status == 200 && !get.body.is_empty()), "{path}");
    }
}

/// A form that is larger than the buffer is refused as a whole, not executed in part.
#[test]
fn forms_that_do_not_fit_into_a_buffer_are_refused() {
    let port = free_port();
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  stats enable\n  stats uri /stats\n  stats admin if TRUE\n\
         backend b\n  server s 127.0.0.1:9\n"
    );
    let _weir = Weir::start(&text, &[port]);
    for (padding, outcome) in [(100, "st=DONE"), (30_000, "st=EXCD")] {
        let body = format!("s=s&action=maint&b=b&x={}", "x".repeat(padding));
        let request =
            format!("POST /stats HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let response = exchange(port, &request).expect("a response");
        let location = response.header("location").expect("a redirect");
        assert!(location.ends_with(outcome), "{padding}: {location}");
    }
}
