//! `show events` with a topic: the latest events of servers, reloads, certificates and limits.

use weir_tests::client::{Client, get};
use weir_tests::reloading::{configuration, reload};
use weir_tests::{Origin, Weir, eventually, free_port};

/// Returns the fields of each event: topic, object, count, seconds in the previous state, text.
fn events(weir: &Weir, selection: &str) -> Vec<[String; 5]> {
    let shown = weir.ask(&format!("show events {selection}"));
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("# time topic object count previous_s text"), "{shown}");
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let mut words = line.splitn(6, ' ').skip(1).map(str::to_owned);
            std::array::from_fn(|_| words.next().unwrap_or_default())
        })
        .collect()
}

fn texts(weir: &Weir, selection: &str) -> Vec<String> {
    events(weir, selection).into_iter().map(|[.., text]| text).collect()
}

#[test]
fn a_flapping_server_has_a_history_that_survives_reloads() {
    let (origin, port) = (Origin::text("x"), free_port());
    let text = |retries: u32| {
        configuration(&format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n\
             backend b\n  retries {retries}\n  server s 127.0.0.1:{0}\n  server t 127.0.0.1:{0}\n",
            origin.port()
        ))
    };
    let weir = Weir::start(&text(1), &[port]);
    for state in ["maint", "ready", "drain", "ready"] {
        weir.ask(&format!("set server b/s state {state}"));
    }
    weir.ask("set server b/t state maint");
    let history = |weir: &Weir| texts(weir, "servers b/s");
    let expected = [
        "Server b/s is going DOWN for maintenance. 1 active and 0 backup servers left.",
        "Server b/s is UP/READY (leaving forced maintenance).",
        "Server b/s enters drain state.",
        "Server b/s is UP (leaving forced drain).",
    ];
    let found = history(&weir);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert!(
        events(&weir, "servers").iter().any(|event| event[1] == "b/t" && event[3].parse::<u64>().is_ok())
    );

    reload(&weir, &text(2));
    assert_eq!(history(&weir), found);
    reload(&weir, "nonsense\n");
    let reloads = texts(&weir, "reloads");
    assert!(reloads[0].starts_with("Process ") && reloads[0].ends_with(" serves requests."), "{reloads:?}");
    assert!(reloads.iter().any(|text| text == "Reloaded in place."), "{reloads:?}");
    let last = reloads.last().expect("a reload");
    assert!(last.starts_with("Reload in place refused: ") && last.contains("nonsense"), "{reloads:?}");
    // The events of all topics, in their order.
    assert_eq!(events(&weir, "all").last().map(|event| event[0].clone()), Some("reloads".to_owned()));
}

#[test]
fn failed_checks_are_recorded_with_their_reason() {
    let port = free_port();
    let weir = Weir::start(
        &configuration(&format!(
            "listen b\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:1 check inter 20ms fall 1\n"
        )),
        &[port],
    );
    let found = || texts(&weir, "servers");
    assert!(eventually(|| found().len() == 2), "{:?}", found());
    assert!(found()[0].starts_with("Server b/s is DOWN, reason: Layer4 connection problem"), "{:?}", found());
    assert_eq!(found()[1], "proxy b has no server available!");
}

#[test]
fn limits_are_recorded_once_a_minute_with_a_count() {
    let (origin, port) = (Origin::text("x"), free_port());
    let weir = Weir::start(
        &configuration(&format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  http-request track-sc0 path table t\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\nbackend t\n  stick-table type string len 32 size 1 nopurge\n",
            origin.port()
        )),
        &[port],
    );
    for path in ["/a", "/b", "/c", "/d"] {
        assert_eq!(get(port, path).map(|response| response.status), Some(200));
    }
    let text = "The stick table is full with 1 entries: new keys are rejected.";
    let found = events(&weir, "limits t");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0], ["limits", "t", "3", "-", text].map(str::to_owned));

    weir.ask("set maxconn frontend f 1");
    let mut first = Client::connect(port);
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(first.response().is_some());
    let _second = Client::connect(port);
    let is_full =
        || texts(&weir, "limits f") == ["maxconn 1 of the frontend is reached: new connections wait."];
    assert!(eventually(is_full), "{:?}", texts(&weir, "all"));
}

#[test]
fn a_sink_with_the_name_of_a_topic_comes_first() {
    let port = free_port();
    let rings = "ring limits\n  size 32768\n";
    let weir = Weir::start(&configuration(&format!("{rings}frontend f\n  bind 127.0.0.1:{port}\n")), &[port]);
    assert!(!weir.ask("show events limits").contains("# time"));
    assert!(weir.ask("show events").contains("    limits     : type=buffer"));
    assert!(weir.ask("show events nothing").contains("No such event sink"));
    // The start is recorded once the process serves.
    assert!(eventually(|| !texts(&weir, "reloads since 1h").is_empty()));
    assert!(texts(&weir, "reloads since 2999-01-01T00:00:00Z").is_empty());
    assert_eq!(texts(&weir, "all - since 1"), texts(&weir, "reloads"));
    for wrong in ["reloads since", "reloads since soon", "all a b c d"] {
        assert!(weir.ask(&format!("show events {wrong}")).starts_with("Usage: show events"), "{wrong}");
    }
}
