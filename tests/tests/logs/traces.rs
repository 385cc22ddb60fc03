//! Traces: `trace` on the runtime socket, `traces` sections, and the destinations of their lines.

use weir_tests::client::{Client, exchange_with, get};
use weir_tests::multiplexed::{ACK, Frames, SETTINGS};
use weir_tests::{Origin, Weir, check, eventually, free_port, scratch};

const TOP: &str = "global\n  nbthread 1\n  log ring@buf0 local0\n  stats socket runtime level admin\n\
                   defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// Starts a frontend that speaks HTTP/1 on the first port and HTTP/2 on the second.
fn start(more: &str, origin: &Origin) -> (Weir, u16, u16) {
    let (port, second) = (free_port(), free_port());
    let text = format!(
        "{TOP}frontend web\n  bind 127.0.0.1:{port}\n  bind 127.0.0.1:{second} proto h2\n  default_backend app\n\
         backend app\n  server one 127.0.0.1:{}\n{more}",
        origin.port()
    );
    (Weir::start(&text, &[port, second]), port, second)
}

/// Returns the lines in a ring, from the bracket on.
fn told(weir: &Weir, ring: &str) -> Vec<String> {
    let all = weir.ask(&format!("show events {ring}"));
    let lines = all.lines().filter(|line| line.contains(".rs:"));
    lines.filter_map(|line| Some(line.get(line.find('[')?..)?.to_owned())).collect()
}

fn ask(weir: &Weir, command: &str) {
    assert_eq!(weir.ask(command).trim(), "", "{command}");
}

#[test]
fn requests_are_traced_on_both_sides_until_the_trace_ends() {
    let origin = Origin::text("x");
    let (weir, port, _) = start("", &origin);
    ask(&weir, "trace h1 sink buf0 level user verbosity simple start now");
    assert!(weir.ask("trace").contains("[R] h1 "));
    get(port, "/traced").expect("a response");
    let mut lines = Vec::new();
    assert!(eventually(|| {
        lines = told(&weir, "buf0");
        lines.iter().any(|line| line.contains("sending a response") && line.contains("200 OK"))
    }));
    let wanted = [
        ("received a request : session=", "frontend=web", "GET /traced HTTP/1.1"),
        ("new server connection : session=", "backend=app server=one", ""),
        ("sending a request : session=", "server=one", "GET /traced HTTP/1.1"),
        ("received a response : session=", "server=one", "HTTP/1.1 200 OK"),
        ("sending a response : session=", "frontend=web", "HTTP/1.1 200 OK"),
    ];
    for (message, owner, what) in wanted {
        let is = |line: &&String| line.contains(message) && line.contains(owner) && line.contains(what);
        let line = lines.iter().find(is);
        let line = line.unwrap_or_else(|| panic!("no `{message}` of `{owner}`: {lines:#?}"));
        let (place, _) = line.split_once("] ").expect("a place");
        assert!(place.contains("|h1|1|") && place.contains(".rs:"), "{line}");
    }
    assert!(weir.ask("trace 0").starts_with("All traces now stopped"));
    let before = told(&weir, "buf0").len();
    get(port, "/untraced").expect("a response");
    assert_eq!(told(&weir, "buf0").len(), before);
}

#[test]
fn sent_and_received_http2_frames_are_traced() {
    let origin = Origin::text("x");
    let (weir, _, port) = start("", &origin);
    ask(&weir, "trace h2 sink buf0 level proto verbosity clean start now");
    let mut frames = Frames::connect(port);
    frames.find(|frame| frame.kind == SETTINGS && frame.flags & ACK != 0).expect("an acknowledgement");
    frames.get(1, "/a").next_head();
    let mut lines = Vec::new();
    let wanted = [
        "new client connection",
        "received a SETTINGS frame : id=0",
        "received a HEADERS frame : id=1",
        "received a request : GET ",
        "sending a response : HTTP/1.1 200",
        "made a HEADERS frame : id=1",
        "made a DATA frame : id=1",
    ];
    let all = eventually(|| {
        lines = told(&weir, "buf0");
        wanted.iter().all(|wanted| lines.iter().any(|line| line.contains(wanted)))
    });
    assert!(all, "{lines:#?}");
    // Other frames are not traced.
    ask(&weir, "trace h2 event none event rx_ping");
    let before = told(&weir, "buf0").len();
    frames.get(3, "/b").next_head();
    frames.send(6, 0, 0, b"12345678");
    assert!(eventually(|| told(&weir, "buf0").len() > before));
    let lines = told(&weir, "buf0");
    assert!(
        lines[before..].iter().all(|line| line.contains("received a PING frame")),
        "{:#?}",
        &lines[before..]
    );
}

#[test]
fn locked_trace_only_shows_its_session() {
    let origin = Origin::text("x");
    let (weir, port, _) = start("", &origin);
    // Clients that checked the ports are gone when this is answered.
    get(port, "/0").expect("a response");
    ask(&weir, "trace stream follow session sink buf0 level state verbosity minimal");
    ask(&weir, "trace session lock session level state start sess_new");
    let mut first = Client::connect(port);
    first.send("GET /1 HTTP/1.1\r\nhost: x\r\n\r\n").response().expect("a response");
    get(port, "/2").expect("a response");
    first.send("GET /3 HTTP/1.1\r\nhost: x\r\n\r\n").response().expect("a response");
    let mut lines = Vec::new();
    assert!(eventually(|| {
        lines = told(&weir, "buf0");
        lines.iter().filter(|line| line.contains("stream ended")).count() == 2
    }));
    let session =
        |line: &String| line.split("session=").nth(1).and_then(|rest| rest.get(..6)).map(str::to_owned);
    let sessions: std::collections::HashSet<_> = lines.iter().map(session).collect();
    assert_eq!(sessions.len(), 1, "{lines:#?}");
}

#[test]
fn failures_are_traced_at_error_level() {
    let origin = Origin::text("x");
    let dead = free_port();
    let port = free_port();
    let more =
        format!("listen broken\n  bind 127.0.0.1:{port}\n  retries 0\n  server none 127.0.0.1:{dead}\n");
    let (weir, web, _) = start(&more, &origin);
    ask(&weir, "trace stream sink buf0 level error verbosity minimal start now");
    ask(&weir, "trace h1 sink buf0 level error start now");
    get(port, "/").expect("a response");
    Client::connect(web).send("rubbish\r\n\r\n").read_to_end();
    let mut lines = Vec::new();
    let wanted = ["|stream|0|", "attempt failed : ConnectFailed", "server=none", "|h1|0|", "no request"];
    let all = eventually(|| {
        lines = told(&weir, "buf0");
        wanted.iter().all(|wanted| lines.iter().any(|line| line.contains(wanted)))
    });
    assert!(all, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("|0|")), "{lines:#?}");
}

#[test]
fn traces_sections_start_traces() {
    let origin = Origin::text("x");
    let more = "ring traced\n  size 65536\n  format raw\ntraces\n  trace h1 sink traced level user start now\n  \
                trace session sink stderr level state start now\n";
    let (weir, port, _) = start(more, &origin);
    get(port, "/traced").expect("a response");
    assert!(eventually(|| told(&weir, "traced").iter().any(|line| line.contains("GET /traced"))));
    assert!(weir.ask("show events traced").starts_with('['), "a raw ring has nothing before its lines");
    assert!(weir.says("|session|3|"), "{}", weir.messages());
    assert!(weir.ask("show trace").contains("[R] h1         -> traced [drp 0]"));
}

#[test]
fn in_place_reload_restarts_only_configured_traces() {
    let origin = Origin::text("x");
    let (weir, port, _) = start("traces\n  trace h1 sink buf0 start now\n", &origin);
    let file = weir.directory().join("haproxy.cfg");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let reload = |text: String| {
        std::fs::write(&file, text).expect("the directory takes files");
        weir.ask("reload").trim().to_owned()
    };
    ask(&weir, "trace h1 stop now");
    let said = reload(format!("{text}backend other\n"));
    assert!(said.contains("backend other added"), "{said}");
    assert!(weir.ask("trace").contains("[.] h1 "), "its lines have not changed");
    let said =
        reload(text.replace("trace h1 sink buf0 start now", "trace h1 sink buf0 level proto start now"));
    assert!(said.contains("traces: "), "{said}");
    get(port, "/anew").expect("a response");
    assert!(eventually(|| told(&weir, "buf0").iter().any(|line| line.contains("GET /anew"))));
}

#[test]
fn invalid_trace_lines_are_refused_with_advice() {
    let directory = scratch("traces");
    let file = directory.join("haproxy.cfg");
    for (line, wanted) in [
        ("trace", "'trace' expects a trace source"),
        ("trace foo start now", "No such trace source 'foo'"),
        ("trace haterm start now", "requests in `mode haterm` are traced like others: use `stream`"),
        ("trace h1 sink nowhere", "No such trace sink 'nowhere'"),
        ("trace h1 event h1c_wake", "No such trace event 'h1c_wake'"),
        ("trace h1 level loud", "No such trace level 'loud'"),
        ("trace h1 shout", "Unknown trace keyword 'shout'"),
    ] {
        std::fs::write(&file, format!("{TOP}traces\n  {line}\n")).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert!(!verdict.accepted(), "{line}");
        assert!(
            verdict.alerts().iter().any(|alert| alert.contains(wanted)),
            "{line}: {:?}",
            verdict.alerts()
        );
    }
    std::fs::write(&file, format!("{TOP}traces\n  trace h1 level\n")).expect("the directory takes files");
    let verdict = check(&file, &directory);
    assert!(verdict.accepted() && verdict.warnings().iter().any(|text| text.contains("enables no trace")));
}

#[test]
fn checks_are_traced_with_their_results() {
    let origin = Origin::text("x");
    let more = format!(
        "backend checked\n  option httpchk GET /up\n  server good 127.0.0.1:{} check inter 50ms\n  \
         server bad 127.0.0.1:{} check inter 50ms\n",
        origin.port(),
        free_port()
    );
    let (weir, ..) = start(&more, &origin);
    ask(&weir, "trace check sink buf0 level state verbosity complete start now");
    let wanted = [
        "check started : server=checked/good",
        "check passed : server=checked/good status=L7OK",
        "check failed : server=checked/bad status=L4CON",
    ];
    let mut lines = Vec::new();
    let all = eventually(|| {
        lines = told(&weir, "buf0");
        wanted.iter().all(|wanted| lines.iter().any(|line| line.contains(wanted)))
    });
    assert!(all, "{lines:#?}");
}

#[test]
fn descriptors_are_shown_by_kind() {
    let origin = Origin::text("x");
    let (weir, port, _) = start("", &origin);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().expect("a response");
    let numbers = |flags: &str| -> Vec<(u32, String)> {
        let all = weir.ask(&format!("show fd {flags}"));
        let row = |line: &str| {
            let (number, text) = line.split_once(" : ")?;
            Some((number.trim().parse().ok()?, text.to_owned()))
        };
        all.lines().filter_map(row).collect()
    };
    let listeners = numbers("l");
    let own = format!("l.st=RDY fe=web fam=ipv4 lport={port}");
    assert!(listeners.iter().any(|(_, text)| *text == own), "{listeners:?}");
    assert!(listeners.iter().any(|(_, text)| text.contains("fe=GLOBAL fam=unix")), "{listeners:?}");
    let fronts = numbers("f");
    let is_client = |text: &str| {
        text.contains("back=0") && text.contains("fe=web") && text.contains(&format!("lport={port}"))
    };
    assert!(fronts.iter().any(|(_, text)| is_client(text)), "{fronts:?}");
    let backs = numbers("c!f");
    let is_server =
        |text: &str| text.contains("px=app sv=one") && text.contains(&format!("rport={}", origin.port()));
    assert!(backs.iter().any(|(_, text)| is_server(text)), "{backs:?}");
    assert_eq!(numbers("b").len(), backs.len());
    let all = numbers("");
    let rest = numbers("-lcp");
    assert_eq!(all.len(), listeners.len() + numbers("c").len() + numbers("p").len() + rest.len(), "{all:?}");
    let (number, text) = &listeners[0];
    assert_eq!(numbers(&format!("/{number}")), [(*number, text.clone())]);
}

#[test]
fn developer_commands_are_limited_to_safe_actions() {
    let origin = Origin::text("x");
    let (mut weir, port, _) = start("", &origin);
    let say = |weir: &Weir, command: &str| weir.ask(&format!("expert-mode on; {command}")).trim().to_owned();
    assert!(weir.ask("debug dev exit 3").contains("restricted to expert mode"));
    assert_eq!(say(&weir, "debug dev write 5000"), ".".repeat(5000));
    assert!(say(&weir, "debug dev write").contains("Missing output size"));
    assert!(say(&weir, "debug dev fd").contains("type=sock"));
    for (command, why) in [
        ("hex 0x1000", "cannot be read by address"),
        ("close 5", "closed by its owner"),
        ("tkill 1", "kill(1)"),
        ("sched task", "tokio"),
        ("sym 0x1", "not resolved"),
        ("loop 10 isolated", "not isolated"),
    ] {
        let said = say(&weir, &format!("debug dev {command}"));
        assert!(said.contains(why), "{command}: {said}");
    }
    say(&weir, "debug dev warn");
    say(&weir, "debug dev check");
    assert_eq!(weir.messages().matches("warning requested by a command").count(), 2);
    for command in ["debug dev abort", "debug dev panic"] {
        let (mut other, ..) = start("", &origin);
        say(&other, command);
        assert_eq!(other.await_end(), None, "a signal ended it");
        assert!(!other.is_running() && other.messages().contains("aborted by a command"), "{command}");
    }
    say(&weir, "debug dev log hello there");
    assert!(eventually(|| weir.ask("show events buf0").contains("hello there")));
    say(&weir, "debug dev bug");
    assert!(eventually(|| weir.ask("show activity").contains("panics: 1")), "{}", weir.ask("show activity"));
    assert!(get(port, "/").is_some(), "the others go on");
    say(&weir, "debug dev exit 7");
    assert_eq!(weir.await_end(), Some(7));
}

#[test]
fn rules_are_traced_for_selected_requests() {
    let origin = Origin::text("x");
    let rules = "frontend ruled\n  bind 127.0.0.1:PORT\n  http-request track-sc0 src table visits\n  \
                 http-request deny if { path_beg /admin } !{ src 10.0.0.0/8 }\n  http-request set-header x-a %[path]\n  \
                 use_backend app if { sc_inc_gpc0(0) gt 0 }\nbackend visits\n  \
                 stick-table type ip size 1k store gpc0\n";
    let port = free_port();
    let (weir, ..) = start(&rules.replace("PORT", &port.to_string()), &origin);
    ask(&weir, "trace rules only hdr=x-debug:secret sink buf0 verbosity simple start now");
    assert!(weir.ask("trace rules only").contains("Currently only reporting 'hdr=x-debug:…'"));
    get(port, "/unselected").expect("a response");
    exchange_with(port, "/selected", "x-debug: secret\r\n").expect("a response");
    exchange_with(port, "/admin", "x-debug: secret\r\n").expect("a response");
    let lines = told(&weir, "buf0");
    let wanted = [
        "http-request track-sc0 src table visits => `127.0.0.1`",
        "http-request deny if { path_beg /admin } !{ src 10.0.0.0/8 } | false: { path_beg /admin }  `/selected`",
        "http-request set-header x-a %[path] => x-a: `/selected`",
        "use_backend applies : true: { sc_inc_gpc0(0) gt 0 }  `2` matches `1:`",
        "rule ends the request : ",
        "| true: { path_beg /admin }  `/admin` matches `/admin` | true: !{ src 10.0.0.0/8 }  `127.0.0.1` => status 403",
    ];
    for wanted in wanted {
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("/unselected")), "{lines:#?}");
    // Tracing does not evaluate conditions twice.
    let table = weir.ask("show table visits");
    assert!(table.contains("gpc0=2"), "{table}");
    ask(&weir, "trace rules only src=192.0.2.0/24");
    let before = told(&weir, "buf0").len();
    exchange_with(port, "/selected", "x-debug: secret\r\n").expect("a response");
    assert_eq!(told(&weir, "buf0").len(), before);
    for (command, part) in [
        ("trace rules only host", "Unknown criterion 'host'"),
        ("trace rules only src=x", "Invalid network 'x'"),
        ("trace rules only hdr=x", "Invalid header 'x'"),
        ("trace h1 only none", "'only' requires the source 'rules'"),
    ] {
        assert!(weir.ask(command).contains(part), "{command}: {}", weir.ask(command));
    }
}
