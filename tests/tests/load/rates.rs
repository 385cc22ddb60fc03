//! Durations, rates and the soft start.

use weir_tests::Origin;

use super::{load, number, run};

#[test]
fn a_rate_determines_the_number_of_requests() {
    let origin = Origin::text("ok");
    let url = format!("http://127.0.0.1:{}/", origin.port());
    for threads in ["1", "3"] {
        let before = origin.requests() as u64;
        let summary = load(&["-R", "200", "-d", "1", "-u", "6", "-t", threads, &url]);
        let (sent, unsent) = (number(&summary, "requests"), number(&summary, "due_not_sent"));
        assert_eq!((sent + unsent, number(&summary, "errors")), (200, 0), "{summary}");
        assert_eq!(origin.requests() as u64 - before, sent);
        assert!(sent > 0);
    }
}

#[test]
fn requests_that_a_slow_server_delays_are_reported() {
    // One user, and a server that never answers: a single request is sent.
    let origin = Origin::raw(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let url = format!("http://127.0.0.1:{}/", origin.port());
    let summary = load(&["-R", "100", "-d", "1", "-w", "1500", &url]);
    assert_eq!((number(&summary, "errors"), number(&summary, "due_not_sent")), (1, 99), "{summary}");
    let output = run(&["-R", "100", "-d", "1", "-w", "1500", &url]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("# 99 more requests were due: the rate needs more users (-u) or a faster server\n"),
        "{text}"
    );
}

#[test]
fn the_number_of_requests_limits_a_rate() {
    let origin = Origin::text("ok");
    let summary =
        load(&["-R", "1000", "-n", "30", "-u", "2", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_eq!((number(&summary, "requests"), number(&summary, "due_not_sent")), (30, 0));
    assert_eq!(origin.requests(), 30);
}

#[test]
fn users_that_wait_for_a_due_request_end_with_the_last_one() {
    let origin = Origin::text("ok");
    let summary = load(&["-R", "2", "-n", "2", "-u", "500", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_eq!((number(&summary, "requests"), origin.requests()), (2, 2));
    // The due requests of the other users would take four minutes.
    assert!(summary["seconds"].as_f64().is_some_and(|seconds| seconds < 120.0), "{summary}");
}

#[test]
fn users_take_turns() {
    let origin = Origin::text("ok");
    let url = format!("http://127.0.0.1:{}/", origin.port());
    let summary = load(&["-R", "500", "-n", "60", "-u", "20", &url]);
    assert_eq!((number(&summary, "requests"), number(&summary, "connections")), (60, 20), "{summary}");
}

#[test]
fn all_users_take_part_after_the_soft_start() {
    let origin = Origin::text("ok");
    let url = format!("http://127.0.0.1:{}/", origin.port());
    let output = run(&["-ll", "-s", "1", "-d", "2", "-u", "4", &url]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(origin.connections(), 4, "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    // The share of users in percent.
    assert!(rows.last().is_some_and(|row| row[6] == "100"), "{text}");
    assert!(rows.iter().all(|row| row.len() == 13), "{text}");
}
