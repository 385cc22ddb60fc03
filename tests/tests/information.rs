//! What the process tells of itself: `show info`, the tags of typed output, the numbers of streams,
//! pages asked for by HEAD.

use weir_tests::client::{self, exchange};
use weir_tests::{Origin, Statistics, Weir, free_port, scratch};

fn start(rules: &str, origin: &Origin) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n{rules}  default_backend b\nbackend b\n  server s 127.0.0.1:{} check\n  \
         server t 127.0.0.1:{0} backup\n",
        origin.port()
    );
    // Waiting for the port would be a connection that is counted: the runtime socket tells as well.
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show version").is_empty(), "{}", weir.messages());
    (weir, port)
}

fn fact(weir: &Weir, name: &str) -> u64 {
    let all = weir.ask("show info");
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {all}"))
}

#[test]
fn connections_of_the_runtime_socket_count_as_haproxy_counts_them() {
    let origin = Origin::text("x");
    let (weir, _) = start("", &origin);
    for name in ["CumConns", "CumReq", "CumStreams"] {
        let before = fact(&weir, name);
        weir.ask("show version; show version");
        // One for the two commands, one for the look itself.
        assert_eq!(fact(&weir, name), before + 2, "{name}");
    }
    assert_eq!(fact(&weir, "CurrStreams"), 1, "the one that asks");
    let before = fact(&weir, "TotalBytesOut");
    assert!(fact(&weir, "TotalBytesOut") > before + 1000);
}

#[test]
fn patterns_that_come_and_go_are_counted() {
    let file = scratch("patterns").file("map");
    std::fs::write(&file, "a 1\nb 2\nc 3\n").expect("a file");
    let map = file.display();
    let rules = format!(
        "  http-request set-header x %[path,map({map})]\n  http-request deny if {{ path /one /two }}\n"
    );
    let origin = Origin::text("x");
    let (weir, _) = start(&rules, &origin);
    let counts = || (fact(&weir, "PatternsAdded"), fact(&weir, "PatternsFreed"));
    assert_eq!(counts(), (5, 0));
    for (command, wanted) in [
        (format!("add map {map} d 4"), (6, 0)),
        (format!("del map {map} a"), (6, 1)),
        (format!("set map {map} b 5"), (6, 1)),
        (format!("prepare map {map}; add map @1 {map} x 1"), (7, 1)),
        (format!("commit map @1 {map}"), (7, 4)),
        (format!("clear map {map}"), (7, 5)),
    ] {
        weir.ask(&command);
        assert_eq!(counts(), wanted, "{command}");
    }
}

#[test]
fn warnings_are_counted_when_they_are_said() {
    let origin = Origin::text("x");
    let (weir, _) = start("", &origin);
    let before = fact(&weir, "TotalWarnings");
    assert_eq!(before, weir.messages().matches("[WARNING]").count() as u64);
    weir.ask("disable server b/s; disable frontend f");
    assert_eq!(fact(&weir, "TotalWarnings"), before + 2, "{}", weir.messages());
}

#[test]
fn what_is_asked_for_beyond_the_known_words_is_passed_over() {
    let origin = Origin::text("x");
    let (weir, _) = start("", &origin);
    assert!(weir.ask("show info json nonsense").starts_with("[{\"field\":"));
    assert!(weir.ask("show info nonsense").starts_with("Name: "));
    assert!(weir.ask("show stat nonsense").starts_with("# pxname"));
    let precise = weir.ask("show info float");
    for name in ["Uptime_sec: ", "Start_time_sec: "] {
        let value = precise.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let fraction = value.split_once('.').map(|(_, fraction)| fraction.len());
        assert_eq!(fraction, Some(6), "{name}{value}");
    }
    assert!(weir.ask("show info typed float").contains(".Uptime_sec.1:MDPV:flt:"));
}

#[test]
fn typed_output_has_the_tags_types_and_places_of_haproxy() {
    let origin = Origin::text("x");
    let (weir, _) = start("", &origin);
    let info = weir.ask("show info typed");
    for line in [
        "12.PoolFailed.1:MCPV:u32:",
        "18.CumConns.1:MCPV:u32:",
        "26.ConnRate.1:MRPV:u32:",
        "31.MaxSessRate.1:MRPV:u32:",
        "58.DroppedLogs.1:MGPV:u32:",
        "61.TotalBytesOut.1:MGPV:u64:",
        "63.BytesOutRate.1:MRPV:u64:",
        "67.Memmax_bytes.1:CLPV:u32:",
        "72.TotalWarnings.1:MCPV:u32:",
        "79.PatternsAdded.1:MGPV:u64:",
        "80.PatternsFreed.1:MGPV:u64:",
        "81.NbThreadGroups.1:CGSV:u32:",
    ] {
        assert!(info.contains(&format!("\n{line}")), "{line} {info}");
    }
    let stat = weir.ask("show stat typed");
    for line in [
        "S.3.1.19.act.1:SGPV:u32:1",
        "B.3.0.19.act.1:MGPV:u32:1",
        "S.3.2.20.bck.1:SGPV:u32:1",
        "F.2.0.35.rate_max.1:MMPV:u32:",
        "B.3.0.35.rate_max.1:MGPV:u32:",
        "F.2.0.132.ssl_sess.1:MCPV:u64:0",
        "S.3.1.136.ssl_failed_ocsp_staple.1:MCPV:u64:0",
        "B.3.0.138.h1_open_streams.1:MGPV:u64:0",
    ] {
        assert!(stat.contains(&format!("\n{line}")), "{line} {stat}");
    }
    let shown = weir.statistics();
    assert_eq!((shown.position("-"), shown.position("ssl_sess")), (119, 133), "one on, for the dash");
}

#[test]
fn streams_of_all_threads_are_numbered_in_one_sequence_where_that_is_read() {
    let rules = "  http-request set-header x-none %[rand]\n  http-response set-header x-rt \"%rt\"\n";
    let origin = Origin::text("x");
    let (weir, port) = start(rules, &origin);
    let number = || {
        let response = client::get(port, "/").expect("a response");
        response.header("x-rt").and_then(|value| value.parse::<u64>().ok()).expect("a number")
    };
    let first = number();
    // Each connection has its own session, on one thread or another.
    for next in 1..10 {
        assert_eq!(number(), first + next);
    }
    weir.ask("show version");
    assert_eq!(number(), first + 11, "those of the runtime socket count");
}

#[test]
fn a_page_asked_for_by_head_says_no_length_that_it_does_not_have() {
    let rules = "  stats enable\n  stats uri /stats\n  \
                 http-request use-service prometheus-exporter if { path /metrics }\n";
    let origin = Origin::text("x");
    let (_weir, port) = start(rules, &origin);
    for path in ["/stats", "/stats;csv", "/stats;json", "/metrics"] {
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut client = client::Client::connect(port);
        let said = client.send(head).read_to_end();
        let said = String::from_utf8_lossy(&said).to_lowercase();
        assert!(said.starts_with("http/1.1 200 ") && said.ends_with("\r\n\r\n"), "{path}: {said}");
        assert!(!said.contains("content-length"), "{path}: {said}");
        let get = exchange(port, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert!(get.is_some_and(|get| get.status == 200 && !get.body.is_empty()), "{path}");
    }
}

/// Threads have their peaks at different times: their sum is no peak.
#[test]
fn no_row_has_had_more_sessions_than_there_may_be_connections() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 4\n  maxconn 4\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port} name l\n  option socket-stats\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    for _ in 0..40 {
        let mut clients: Vec<_> = (0..4).map(|_| client::Client::connect(port)).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        for client in &mut clients {
            assert!(!client.read_to_end().is_empty());
        }
    }
    let shown = weir.statistics();
    for row in shown.rows() {
        assert!((1..=4).contains(&shown.number(&row, "smax")), "{row}: {shown:?}");
    }
}

#[test]
fn rows_are_chosen_by_the_sum_of_their_kinds() {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port} name l\n  option socket-stats\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{port}\n"
    );
    let weir = Weir::start(&text, &[]);
    for (kinds, expected) in [
        ("1", "f,FRONTEND"),
        ("2", "b,BACKEND"),
        ("4", "b,s"),
        ("8", "f,l"),
        ("7", "f,FRONTEND b,s b,BACKEND"),
        ("0", ""),
        ("-1", "f,FRONTEND f,l b,s b,BACKEND"),
    ] {
        let shown = Statistics::read(&weir.ask(&format!("show stat -1 {kinds} -1")));
        assert_eq!(shown.rows().join(" "), expected, "{kinds}");
    }
}
