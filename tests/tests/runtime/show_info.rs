//! `show info`: the meaning of each field, and the tags of typed output.

use crate::running::{fact, start, start_before};
use weir_tests::{Origin, client, eventually, free_port, scratch};

#[test]
fn runtime_socket_connections_are_counted_as_in_haproxy() {
    let origin = Origin::text("x");
    let (weir, _) = start_before("", &origin);
    for name in ["CumConns", "CumReq", "CumStreams"] {
        let before = fact(&weir, name);
        weir.ask("show version; show version");
        // One for the two commands, one for this query.
        assert_eq!(fact(&weir, name), before + 2, "{name}");
    }
    assert_eq!(fact(&weir, "CurrStreams"), 1, "the one that asks");
    let before = fact(&weir, "TotalBytesOut");
    assert!(fact(&weir, "TotalBytesOut") > before + 1000);
}

#[test]
fn added_and_removed_patterns_are_counted() {
    let file = scratch("patterns").file("map");
    std::fs::write(&file, "a 1\nb 2\nc 3\n").expect("a file");
    let map = file.display();
    let rules = format!(
        "  http-request set-header x %[path,map({map})]\n  http-request deny if {{ path /one /two }}\n"
    );
    let origin = Origin::text("x");
    let (weir, _) = start_before(&rules, &origin);
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
fn warnings_are_counted() {
    let origin = Origin::text("x");
    let (weir, _) = start_before("", &origin);
    let before = fact(&weir, "TotalWarnings");
    assert_eq!(before, weir.messages().matches("[WARNING]").count() as u64);
    weir.ask("disable server b/s; disable frontend f");
    assert_eq!(fact(&weir, "TotalWarnings"), before + 2, "{}", weir.messages());
}

#[test]
fn unknown_arguments_are_ignored() {
    let origin = Origin::text("x");
    let (weir, _) = start_before("", &origin);
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
fn typed_output_matches_haproxy() {
    let origin = Origin::text("x");
    let (weir, _) = start_before("", &origin);
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
        "B.3.0.206.h1_open_streams.1:MGPV:u64:0",
    ] {
        assert!(stat.contains(&format!("\n{line}")), "{line} {stat}");
    }
    let shown = weir.statistics();
    assert_eq!((shown.position("-"), shown.position("ssl_sess")), (119, 133), "one on, for the dash");
}

#[test]
fn stream_numbers_are_one_sequence_across_threads() {
    let rules = "  http-request set-header x-none %[rand]\n  http-response set-header x-rt \"%rt\"\n";
    let origin = Origin::text("x");
    let (weir, port) = start_before(rules, &origin);
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
fn output_rate_is_shown() {
    let port = free_port();
    let text = "x".repeat(10_000);
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200 content-type text/plain string {text}\n"
        ),
        port,
    );
    let told = |name: &str| -> u64 {
        let info = weir.ask("show info");
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse().ok()).expect("a number")
    };
    // A late query sees part of it, or nothing.
    assert!(eventually(|| {
        let answer = client::get(port, "/").expect("an answer");
        assert_eq!(answer.body.len(), text.len());
        told("BytesOutRate") > 5_000
    }));
    assert!(told("BootTime_ms") < 600_000);
}
