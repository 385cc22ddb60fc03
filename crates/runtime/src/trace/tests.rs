//! These tests are serialized, because the trace state is process-wide.

use std::sync::{Arc, Mutex, MutexGuard};

use super::command::{Outputs, TraceCommand, show};
use super::{Keys, TraceLevel, TraceOutput, TraceSource, Verbosity, h1, is_on, report, session, stream};

static TURN: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl TraceOutput for Lines {
    fn name(&self) -> &str {
        "lines"
    }

    fn write(&self, line: &str) {
        self.0.lock().expect("no panic").push(line.to_owned());
    }

    fn dropped(&self) -> u64 {
        0
    }
}

struct One(Arc<Lines>);

impl Outputs for One {
    fn list(&self) -> Vec<(String, String)> {
        vec![("lines".to_owned(), "lines of a test".to_owned())]
    }

    fn find(&self, name: &str) -> Option<Arc<dyn TraceOutput>> {
        (name == "lines").then(|| self.0.clone() as Arc<dyn TraceOutput>)
    }
}

struct Bench {
    lines: Arc<Lines>,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let bench = Self { lines: Arc::default(), _turn: turn };
        bench.ask("0");
        bench.ask("all sink lines level user follow none");
        for source in TraceSource::ALL {
            let name = source.name();
            bench.ask(&format!(
                "{name} event any start none stop none pause none lock nothing verbosity quiet"
            ));
        }
        bench.ask("0");
        bench
    }

    fn try_ask(&self, line: &str) -> Result<String, String> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        TraceCommand::read(words, |name| name == "lines")?.apply(&One(self.lines.clone()))
    }

    fn ask(&self, line: &str) -> String {
        self.try_ask(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.0.lock().expect("no panic"))
    }

    /// Takes the messages without their prefixes.
    fn messages(&self) -> Vec<String> {
        self.taken().iter().filter_map(|line| Some(line.split_once("] ")?.1.to_owned())).collect()
    }
}

fn at(source: TraceSource, events: u64, stream: u64, message: &str) {
    let keys = Keys { stream, session: stream / 10, ..Keys::default() };
    report(source, events, TraceLevel::User, &keys, message, &|_, _| {});
}

#[test]
fn lines_have_owner_message_and_place_by_verbosity() {
    let bench = Bench::new();
    bench.ask("h1 start now verbosity simple");
    let detail = |verbosity: Verbosity, out: &mut String| {
        if verbosity.names_owner() {
            out.push_str("s=1 ");
        }
        if verbosity.shows_message() {
            out.push_str("GET /\r\n");
        }
    };
    let report = || {
        report(TraceSource::H1, h1::RX_HEADERS, TraceLevel::User, &Keys::default(), "a head came", &detail)
    };
    report();
    bench.ask("h1 verbosity quiet");
    report();
    bench.ask("h1 verbosity clean");
    report();
    let lines = bench.taken();
    assert!(lines[0].starts_with("[00|h1|1|tests.rs:"), "{}", lines[0]);
    assert!(lines[0].ends_with("] a head came : s=1 GET /.."), "{}", lines[0]);
    assert!(lines[1].ends_with("] a head came"), "{}", lines[1]);
    assert!(lines[2].ends_with("] a head came : GET /.."), "{}", lines[2]);
}

#[test]
fn unselected_events_are_not_reported() {
    let bench = Bench::new();
    assert!(!is_on(TraceSource::H1));
    at(TraceSource::H1, h1::RX_DATA, 1, "stopped");
    bench.ask("h1 start now");
    assert!(is_on(TraceSource::H1) && !is_on(TraceSource::H2));
    report(TraceSource::H1, h1::RX_DATA, TraceLevel::Data, &Keys::default(), "too fine", &|_, _| {});
    bench.ask("h1 event -rx_data");
    at(TraceSource::H1, h1::RX_DATA, 1, "not asked for");
    at(TraceSource::H1, h1::RX_DATA | h1::RX_HEADERS, 1, "one of two");
    bench.ask("h1 level data event none event rx_data");
    report(TraceSource::H1, h1::RX_DATA, TraceLevel::Data, &Keys::default(), "fine enough", &|_, _| {});
    assert_eq!(bench.messages(), ["one of two", "fine enough"]);
    bench.ask("0");
    assert!(!is_on(TraceSource::H1));
}

#[test]
fn events_start_pause_and_stop_a_trace_inclusively() {
    let bench = Bench::new();
    bench.ask("h1 start h1s_new pause h1s_end stop h1s_err");
    assert!(bench.ask("").contains("[w] h1 "));
    for (events, message) in [
        (h1::RX_HEADERS, "before"),
        (h1::STREAM_NEW, "begin"),
        (h1::RX_HEADERS, "head"),
        (h1::STREAM_END, "end"),
        (h1::RX_HEADERS, "between"),
        (h1::STREAM_NEW, "again"),
        (h1::STREAM_ERROR, "error"),
        (h1::STREAM_NEW, "after"),
    ] {
        at(TraceSource::H1, events, 1, message);
    }
    assert_eq!(bench.messages(), ["begin", "head", "end", "again", "error"]);
    assert!(bench.ask("").contains("[.] h1 "));
}

#[test]
fn locked_traces_stay_on_their_object() {
    let bench = Bench::new();
    bench.ask("h1 lock h1s start h1s_new pause h1s_end");
    at(TraceSource::H1, h1::STREAM_NEW, 1, "1 new");
    at(TraceSource::H1, h1::STREAM_NEW, 2, "2 new");
    at(TraceSource::H1, h1::STREAM_END, 2, "2 end");
    at(TraceSource::H1, h1::STREAM_END, 1, "1 end");
    at(TraceSource::H1, h1::STREAM_NEW, 3, "3 new");
    at(TraceSource::H1, h1::RX_DATA, 2, "2 data");
    assert_eq!(bench.messages(), ["1 new", "1 end", "3 new"]);
    assert!(bench.ask("h1 lock").contains("* h1s "));
}

#[test]
fn following_sources_share_the_lock_of_another() {
    let bench = Bench::new();
    bench.ask("session lock session start sess_new stop sess_end");
    bench.ask("stream follow session");
    at(TraceSource::Stream, stream::NEW, 12, "not yet");
    at(TraceSource::Session, session::NEW, 10, "session 1");
    at(TraceSource::Session, session::NEW, 20, "session 2");
    at(TraceSource::Stream, stream::NEW, 13, "stream of 1");
    at(TraceSource::Stream, stream::NEW, 23, "stream of 2");
    at(TraceSource::Session, session::END, 10, "end of 1");
    at(TraceSource::Stream, stream::FREE, 13, "late");
    assert_eq!(bench.messages(), ["session 1", "stream of 1", "end of 1"]);
    assert!(!is_on(TraceSource::Stream), "there is nothing to follow");
    assert!(bench.ask("stream follow").starts_with("Currently following source 'session'."));
}

#[test]
fn invalid_commands_change_nothing() {
    let bench = Bench::new();
    for (line, wanted) in [
        ("foo", "No such trace source 'foo'\n"),
        (
            "haterm",
            "No such trace source 'haterm': requests in `mode haterm` are traced like others: use `stream`\n",
        ),
        ("h1 foo", "Unknown trace keyword 'foo'\n"),
        ("h1 foo bar", "Unknown trace keyword 'foo'\n"),
        ("h1 sink foo", "No such trace sink 'foo'\n"),
        ("h1 event foo", "No such trace event 'foo'\n"),
        ("h1 event now", "No such trace event 'now'\n"),
        ("h1 lock h2s", "Unsupported lock-on criterion 'h2s'\n"),
        ("h1 follow foo", "No such trace source 'foo'\n"),
        ("all event any", "'event' not applicable to meta-source 'all'\n"),
        ("h1 start now sink foo", "No such trace sink 'foo'\n"),
    ] {
        assert_eq!(bench.try_ask(line).expect_err(line), wanted);
    }
    let error = bench.try_ask("h1 level foo").expect_err("no level");
    assert!(error.starts_with("No such trace level 'foo'. Supported trace levels for source h1:\n"));
    assert!(error.contains("  * user "), "{error}");
    assert!(!is_on(TraceSource::H1));
}

#[test]
fn lists_show_choices_and_selections() {
    let bench = Bench::new();
    bench.ask("h2 event -rx_data start h2s_new");
    let events = bench.ask("h2 event");
    assert!(events.starts_with("Supported events for source h2 (+=enabled, -=disabled):\n  - none "));
    assert!(events.contains("\n  - rx_data ") && events.contains("\n  + rx_hdr "), "{events}");
    assert!(bench.ask("h2 start").contains("\n  - now "));
    assert!(bench.ask("h2 sink").contains("\n  * lines      : lines of a test\n"));
    assert!(bench.ask("session verbosity").contains("  * quiet "));
    assert!(bench.ask("h2").contains("\n  event     : "));
    let shown = show("h2").expect("a source");
    assert!(shown.contains("    h2s_new      :        +        +        -       -\n"), "{shown}");
    assert!(show("").expect("all").contains(" [w] h2         -> lines [drp 0]  [HTTP/2]\n"));
    assert!(show("foo").is_err());
}

#[test]
fn sources_are_numbered_in_the_order_of_their_list() {
    for (number, source) in TraceSource::ALL.into_iter().enumerate() {
        assert_eq!(source as usize, number, "{}", source.name());
    }
}

#[test]
fn event_bits_are_unique_per_source() {
    for source in TraceSource::ALL {
        let mut seen = 0;
        for event in source.events() {
            assert!(event.bit.is_power_of_two() && seen & event.bit == 0, "{}", event.name);
            seen |= event.bit;
        }
    }
}
