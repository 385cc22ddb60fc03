//! Counters of rare events and protocol violations (`debug counters`).

use weir_tests::client::get;
use weir_tests::listen::TOP;
use weir_tests::multiplexed::Frames;
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn violations_and_rare_events_are_counted_by_location() {
    let origin = Origin::echo();
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{port} proto h2\n  default_backend b\nlisten plain\n  bind 127.0.0.1:{}\n  \
             server s 127.0.0.1:1\nbackend b\n  server s 127.0.0.1:{}\n",
            free_port(),
            origin.port()
        ),
        &[port],
    );
    let of = |what: &str, text: &str| {
        let shown = weir.ask(&format!("debug counters {what}"));
        let line = shown.lines().find(|line| line.ends_with(text)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    let even = "a client opened a stream with an even ID";
    assert_eq!((of("", even), of("all", even), of("all cnt", even)), (None, Some(0), None));
    let mut frames = Frames::connect(port);
    // HEADERS of stream 2: `GET /` with `http`, without an authority.
    frames.send(1, 5, 2, &[0x82, 0x84, 0x86]);
    assert!(eventually(|| of("glt", even) == Some(1)), "{}", weir.ask("debug counters all"));
    let line = weir.ask("debug counters");
    assert!(line.contains("GLT crates/h2/src/fault.rs:") && line.contains(" Breach::EvenStream: "), "{line}");
    weir.ask("debug counters glt reset");
    assert_eq!((of("", even), of("all", even)), (None, Some(0)));
    assert!(weir.ask("debug counters nonsense").starts_with("Usage:"));
    let bug = "task ended by a panic";
    assert!(weir.ask("expert-mode on; debug dev bug").trim().is_empty());
    assert!(eventually(|| of("bug", bug) == Some(1)), "{}", weir.ask("debug counters"));
}

#[test]
fn rare_events_are_not_counted_while_disabled() {
    let (origin, port) = (Origin::echo(), free_port());
    // The log server does not exist.
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{port}\n  log backend@lines local0\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n\
             backend lines\n  mode log\n  server s udp@127.0.0.1:9 disabled\n",
            origin.port()
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let lost = |expected: u64| {
        assert_eq!(get(port, "/").map(|response| response.status), Some(200));
        let dropped = format!("DroppedLogs: {expected}\n");
        assert!(eventually(|| weir.ask("show info").contains(&dropped)), "{}", weir.ask("show info"));
        let shown = weir.ask("debug counters cnt");
        let line = shown.lines().find(|line| line.contains("log message dropped")).unwrap_or_default();
        line.split_whitespace().next().and_then(|count| count.parse::<u64>().ok())
    };
    assert_eq!(lost(1), Some(1));
    weir.ask("debug counters off");
    assert_eq!(lost(2), Some(1));
    weir.ask("debug counters on reset");
    assert_eq!(lost(3), Some(1));
}
