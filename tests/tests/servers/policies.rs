//! `outlier-ejection`, `retry-budget` and `hedge` (docs/beyond-haproxy.md): servers that fail, are slow or are silent, and the
//! effects on clients and on the runtime socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use weir_tests::client::{self, Client};
use weir_tests::{Origin, Weir, eventually, free_port, program, recipe, scratch, server_lines};

/// Starts the program with a listener that has these lines and these servers.
fn start(lines: &str, servers: &[u16]) -> (Weir, u16) {
    let port = free_port();
    let servers = server_lines(servers);
    let configuration = format!(
        "global\n  nbthread 1\n  stats socket runtime level admin\ndefaults\n  mode http\n  timeout client 60s\n  \
         timeout connect 60s\n  timeout server 60s\nlisten l\n  bind 127.0.0.1:{port}\n  balance roundrobin\n  {}\n{servers}",
        lines.replace('\n', "\n  ")
    );
    (Weir::start(&configuration, &[port]), port)
}

/// Starts a server that answers every request with this status.
fn status(status: u16) -> Origin {
    Origin::start(move |_, _| format!("HTTP/1.1 {status} Mine\r\nContent-Length: 4\r\n\r\nmine").into_bytes())
}

/// Returns a named column of a row of a command's output; `server` selects the row by its second column unless it is empty.
fn column(weir: &Weir, command: &str, server: &str, name: &str) -> String {
    let text = weir.ask(command);
    let mut lines = text.lines();
    let at = lines
        .next()
        .and_then(|head| head.trim_start_matches("# ").split(' ').position(|column| column == name))
        .unwrap_or_else(|| panic!("no column {name}: {text}"));
    let row = lines.find(|line| server.is_empty() || line.split(' ').nth(1) == Some(server));
    row.and_then(|row| row.split(' ').nth(at)).unwrap_or_else(|| panic!("no row: {text}")).to_owned()
}

/// A gate at which servers wait before they answer.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().expect("no test has failed") = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.lock().expect("no test has failed");
        drop(self.1.wait_timeout_while(open, Duration::from_secs(60), |open| !*open));
    }
}

#[test]
fn exhausted_budget_forwards_the_server_response() {
    let origin = status(503);
    let lines = "retries 3\nretry-on 503\nretry-budget 0% min 2";
    let (weir, port) = start(lines, &[origin.port()]);
    let mut client = Client::connect(port);
    // Two retries per second are free, however they are spaced; then the client gets the server's response.
    for round in 0..20 {
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (503, "mine"), "round {round}");
    }
    let number = |name| column(&weir, "show retry-budget", "", name).parse::<usize>().expect("a number");
    assert_eq!((number("percent"), number("min")), (0, 2));
    let (retries, refused) = (number("retries"), number("retries_refused"));
    assert!(retries >= 2 && refused >= 10, "{retries} and {refused}");
    assert_eq!(origin.requests(), 20 + retries);
    assert_eq!((number("requests"), number("extra")), (0, 0), "nothing is counted any more");
}

#[test]
fn budget_limits_connection_retries_in_both_modes() {
    for mode in ["http", "tcp"] {
        let (weir, port) = start(&format!("mode {mode}\nretries 2\nretry-budget 50% min 0"), &[free_port()]);
        if mode == "http" {
            assert_eq!(client::get(port, "/").map(|answer| answer.status), Some(503));
        } else {
            assert_eq!(Client::connect(port).send("x").read_to_end(), b"");
        }
        // Half of the only request does not allow a retry.
        let counted = || column(&weir, "show retry-budget", "", "retries_refused") != "0";
        assert!(eventually(counted), "{mode}");
        assert_eq!(column(&weir, "show retry-budget", "", "retries"), "0", "{mode}");
    }
}

#[test]
fn retries_are_unlimited_without_a_budget() {
    let origin = status(503);
    let (weir, port) = start("retries 3\nretry-on 503", &[origin.port()]);
    assert_eq!(client::get(port, "/").map(|answer| answer.status), Some(503));
    assert_eq!(origin.requests(), 4);
    assert_eq!(weir.ask("show retry-budget").lines().count(), 2, "nobody has one");
    assert!(weir.ask("show retry-budget l").contains("Backend 'l' has no 'retry-budget'."));
    assert!(weir.ask("show hedge nobody").contains("Can't find backend."));
}

#[test]
fn failing_server_is_ejected_and_returns() {
    let failing = Arc::new(AtomicBool::new(true));
    let fails = failing.clone();
    let bad = Origin::start(move |_, _| {
        let status = if fails.load(SeqCst) { "500 Bad" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nbad").into_bytes()
    });
    let good = Origin::text("good");
    let lines = "outlier-ejection errors 3 ejection-time 300ms recover 0";
    let (weir, port) = start(lines, &[bad.port(), good.port()]);
    let mut statuses: Vec<u16> = Vec::new();
    while column(&weir, "show outliers", "s0", "standing") != "ejected" {
        statuses.push(client::get(port, "/").map_or(0, |answer| answer.status));
        assert!(statuses.len() < 20, "{statuses:?}");
    }
    assert_eq!(statuses.iter().filter(|status| **status == 500).count(), 3, "{statuses:?}");
    // Checks, statistics and operators still see the server as up.
    assert!(
        weir.ask("show stat").lines().any(|line| line.starts_with("l,s0,") && line.contains(",no check,"))
    );
    assert_eq!(column(&weir, "show outliers", "s0", "by_errors"), "1");
    failing.store(false, SeqCst);
    let texts = || client::get(port, "/").map(|answer| answer.text()).unwrap_or_default();
    assert!(eventually(|| texts() == "bad"), "it serves again");
    assert_eq!(column(&weir, "show outliers", "s0", "standing"), "full");
    let told = || {
        let messages = weir.messages();
        messages.contains("Server l/s0 is ejected for 300ms, reason: errors.")
            && messages.contains("Server l/s0 is no longer ejected.")
    };
    assert!(eventually(told), "{}", weir.messages());
}

#[test]
fn last_server_is_never_ejected_and_failing_ones_serve() {
    let origins = [status(500), status(500), status(500)];
    let ports: Vec<u16> = origins.iter().map(Origin::port).collect();
    let (weir, port) = start("outlier-ejection errors 2 max-ejected 99%", &ports);
    for _ in 0..30 {
        assert_eq!(client::get(port, "/").map(|answer| answer.status), Some(500));
    }
    let ejected = weir.ask("show outliers l").lines().filter(|line| line.contains(" ejected ")).count();
    assert_eq!(ejected, 0, "what all do is no reason");
}

#[test]
fn slow_server_is_ejected() {
    let slow = Origin::start(|_, _| {
        // Latency is measured, so time has to pass.
        std::thread::sleep(Duration::from_millis(40));
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow".to_vec()
    });
    let fast = [Origin::text("fast"), Origin::text("fast")];
    let lines = "outlier-ejection latency 3 over 5ms min-requests 3 interval 200ms ejection-time 1m";
    let (weir, port) = start(lines, &[slow.port(), fast[0].port(), fast[1].port()]);
    let mut client = Client::connect(port);
    let ejected = || {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        column(&weir, "show outliers", "s0", "by_latency") == "1"
    };
    assert!(eventually(ejected), "{}", weir.ask("show outliers"));
    let before = slow.requests();
    for _ in 0..20 {
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        assert_eq!(answer.text(), "fast");
    }
    assert_eq!(slow.requests(), before);
}

#[test]
fn ejection_respects_persistence_and_survives_a_reload() {
    let bad = status(500);
    let good = Origin::text("good");
    let lines = "outlier-ejection errors 2 ejection-time 1m\ncookie S insert\n\
                 default-server cookie x\nuse-server s0 if { path /bound }";
    let (weir, port) = start(lines, &[bad.port(), good.port()]);
    let ejected = || {
        client::get(port, "/");
        column(&weir, "show outliers", "s0", "standing") == "ejected"
    };
    assert!(eventually(ejected));
    assert_eq!(client::get(port, "/bound").map(|answer| answer.status), Some(500), "it is not down");
    assert!(weir.ask("reload").contains("nothing"), "a reload in place");
    assert_eq!(column(&weir, "show outliers", "s0", "standing"), "ejected");
    for _ in 0..4 {
        assert_eq!(client::get(port, "/").map(|answer| answer.status), Some(200));
    }
}

/// Starts a server that counts requests and waits at a gate before it answers with `text`.
fn gated(gate: &Arc<Gate>, text: &'static str) -> Origin {
    let gate = gate.clone();
    Origin::start(move |_, _| {
        gate.pass();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    })
}

#[test]
fn silent_server_is_hedged() {
    let gate = Arc::new(Gate::default());
    let (silent, good) = (gated(&gate, "late"), Origin::text("good"));
    let lines = "hedge after 20ms max 100%\nhttp-response set-header hedged %[txn.hedged]\n\
                 http-response set-header server %s";
    let (weir, port) = start(lines, &[silent.port(), good.port()]);
    let mut client = Client::connect(port);
    let mut hedged = 0;
    for round in 0..10 {
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "good"), "round {round}");
        assert_eq!(answer.header("server"), Some("s1"));
        hedged += usize::from(answer.header("hedged") == Some("2"));
    }
    // A hedge also advances the rotation; all requests went to the silent server first.
    assert!(hedged >= 5, "{hedged}");
    let number = |name| column(&weir, "show hedge", "", name);
    let told = (number("hedges"), number("won"), number("after"));
    assert_eq!(told, (hedged.to_string(), hedged.to_string(), "20ms".into()));
    // No server is blamed, and each request counts once.
    assert_eq!(
        (weir.stat("l,s0", "eresp"), weir.stat("l,BACKEND", "wretr"), weir.stat("l,BACKEND", "wredis")),
        ("0".into(), "0".into(), "0".into())
    );
    assert_eq!(weir.stat("l,BACKEND", "req_tot"), "10");
    assert_eq!(weir.stat("l,s0", "scur"), "0");
    gate.open();
}

#[test]
fn first_server_wins_if_it_answers_first() {
    let (first, second) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (one, other) = (gated(&first, "first"), gated(&second, "second"));
    let lines = "hedge after 10ms max 100%\nhttp-response set-header hedged %[txn.hedged]";
    let (weir, port) = start(lines, &[one.port(), other.port()]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| other.connections() == 1), "the second is asked");
    assert!(eventually(|| column(&weir, "show hedge", "", "hedges") == "1"));
    first.open();
    let answer = client.response().expect("an answer");
    assert_eq!((answer.text().as_str(), answer.header("hedged")), ("first", Some("1")));
    assert_eq!(column(&weir, "show hedge", "", "won"), "0");
    second.open();
    // The client's connection is still usable.
    for _ in 0..4 {
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn failure_of_one_hedged_server_leaves_the_other() {
    for first_fails in [false, true] {
        let gate = Arc::new(Gate::default());
        let (asked, held) = (Arc::new(AtomicUsize::new(0)), gate.clone());
        let seen = asked.clone();
        // Reads a request, waits or not, and closes.
        let broken = Origin::raw(move |mut stream: TcpStream| {
            let mut bytes = [0; 1024];
            let _ = stream.read(&mut bytes);
            seen.fetch_add(1, SeqCst);
            if first_fails {
                held.pass();
            }
        });
        let own = Arc::new(Gate::default());
        let good = gated(&own, "good");
        let ports = if first_fails { [broken.port(), good.port()] } else { [good.port(), broken.port()] };
        let (weir, port) = start("retries 0\nhedge after 10ms max 100%", &ports);
        let mut client = Client::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(eventually(|| column(&weir, "show hedge", "", "hedges") == "1"), "{first_fails}");
        assert!(eventually(|| asked.load(SeqCst) == 1 && good.connections() == 1), "{first_fails}");
        gate.open();
        own.open();
        let answer = client.response().expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "good"), "{first_fails}");
    }
}

#[test]
fn buffered_body_is_sent_to_the_second_server() {
    let gate = Arc::new(Gate::default());
    let silent = gated(&gate, "late");
    let echo = Origin::start(|_, body| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.len(), String::from_utf8_lossy(body))
            .into_bytes()
    });
    let (_weir, port) = start("hedge after 20ms max 100%", &[silent.port(), echo.port()]);
    let mut client = Client::connect(port);
    for round in 0..6 {
        let text = format!("body {round}");
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        let answer = client.send(head).response().expect("an answer");
        assert_eq!((answer.status, answer.text()), (200, text));
    }
    gate.open();
}

#[test]
fn unrepeatable_requests_are_not_hedged() {
    let gate = Arc::new(Gate::default());
    let silent = gated(&gate, "late");
    let (told, heard) = mpsc::channel();
    let good = Origin::start(move |head, _| {
        let _ = told.send(head.lines().next().unwrap_or_default().to_owned());
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood".to_vec()
    });
    let lines = "hedge after 200ms max 100%\nhttp-request disable-l7-retry if { path /once }";
    let (weir, port) = start(lines, &[silent.port(), good.port()]);
    let requests =
        ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "GET /once HTTP/1.1\r\nHost: a\r\n\r\n"];
    let mut waiting = Vec::new();
    for request in requests {
        let mut client = Client::connect(port);
        client.send(request);
        waiting.push(client);
        // It is the other server's turn.
        assert_eq!(client::get(port, "/").map(|answer| answer.text()), Some("good".into()));
    }
    // A repeatable request is hedged. This proves that the others have waited long enough without a hedge.
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().map(|answer| answer.text()), Some("good".into()));
    let heard: Vec<String> = heard.try_iter().collect();
    assert_eq!(heard, ["GET / HTTP/1.1"; 3]);
    assert_ne!(column(&weir, "show hedge", "", "hedges"), "0");
    gate.open();
    for mut client in waiting {
        assert_eq!(client.response().map(|answer| answer.text()), Some("late".into()));
    }
}

#[test]
fn hedges_are_limited_by_share_and_budget() {
    for (lines, refused) in [
        ("hedge after 5ms max 1%", "refused"),
        ("hedge after 5ms max 100%\nretry-budget 0% min 0", "over_budget"),
    ] {
        let slow = || {
            Origin::start(|_, _| {
                std::thread::sleep(Duration::from_millis(15));
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
            })
        };
        let (one, other) = (slow(), slow());
        let (weir, port) = start(lines, &[one.port(), other.port()]);
        let mut client = Client::connect(port);
        for _ in 0..20 {
            let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
            assert_eq!(answer.map(|answer| answer.status), Some(200));
        }
        assert_eq!(column(&weir, "show hedge", "", "hedges"), "0", "{lines}");
        assert_ne!(column(&weir, "show hedge", "", refused), "0", "{lines}");
    }
}

#[test]
fn abandoned_http2_stream_is_reset_without_closing() {
    use weir_tests::multiplexed::{CANCEL, Frames, HEADERS, RST_STREAM};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = listener.local_addr().expect("an address").port();
    let good = Origin::text("good");
    let port = free_port();
    let configuration = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n\
         listen l\n  bind 127.0.0.1:{port}\n  balance roundrobin\n  hedge after 20ms max 100%\n  \
         server s0 127.0.0.1:{silent} proto h2\n  server s1 127.0.0.1:{}\n",
        good.port()
    );
    let _weir = Weir::start(&configuration, &[port]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = Frames::accept(&listener);
    let head = server.next_of(HEADERS);
    assert_eq!(client.response().map(|answer| answer.text()), Some("good".into()));
    let reset = server.next_of(RST_STREAM);
    assert_eq!((reset.stream, reset.number(0)), (head.stream, CANCEL));
}

#[test]
fn metrics_show_ejections_budgets_and_hedges() {
    let (bad, good) = (status(500), Origin::text("good"));
    let lines = "http-request use-service prometheus-exporter if { path /metrics }\n\
                 outlier-ejection errors 2\nretry-budget 20%\nhedge after p95";
    let (_weir, port) = start(lines, &[bad.port(), good.port()]);
    (0..6).for_each(|_| drop(client::get(port, "/")));
    let text = client::get(port, "/metrics").map(|answer| answer.text()).unwrap_or_default();
    for line in [
        "weir_server_ejected{proxy=\"l\",server=\"s0\"} 1",
        "weir_server_ejected{proxy=\"l\",server=\"s1\"} 0",
        "weir_server_ejections_total{proxy=\"l\",server=\"s0\",cause=\"errors\"} 1",
        "weir_backend_hedges_total{proxy=\"l\"} 0",
        "weir_backend_hedges_refused_total{proxy=\"l\",reason=\"share\"} 0",
        "weir_backend_retries_refused_total{proxy=\"l\"} 0",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    let only = client::get(port, "/metrics?metrics=weir_server_ejected").map(|answer| answer.text());
    let only = only.unwrap_or_default();
    assert!(only.contains("weir_server_ejected{") && !only.contains("hedges"), "{only}");
}

#[test]
fn clear_counters_resets_policy_counters_not_ejections() {
    let (bad, good) = (status(500), Origin::text("good"));
    let lines = "outlier-ejection errors 2 ejection-time 1m\nhedge after 1m max 100%\nretries 1\n\
                 retry-on 500\nretry-budget 0% min 1000";
    let (weir, port) = start(lines, &[bad.port(), good.port()]);
    let of_server = |name| column(&weir, "show outliers", "s0", name);
    let retries = || column(&weir, "show retry-budget", "", "retries");
    let ejected = || {
        client::get(port, "/");
        of_server("standing") == "ejected"
    };
    assert!(eventually(ejected));
    let counts = || (of_server("by_errors"), of_server("failed"), retries());
    let before = counts();
    assert!(before.0 == "1" && before.1 != "0" && before.2 != "0", "{before:?}");
    assert_eq!(weir.ask("clear counters").trim(), "");
    assert_eq!(counts(), before, "these are no highest values");
    assert_eq!(weir.ask("clear counters all").trim(), "");
    assert_eq!(counts(), ("0".into(), "0".into(), "0".into()));
    assert_eq!(of_server("standing"), "ejected");
}

#[test]
fn recipe_hides_server_failures_from_clients() {
    let (bad, good) = (status(503), [Origin::text("good"), Origin::text("good")]);
    let port = free_port();
    let servers =
        [("192.0.2.10:80", bad.port()), ("192.0.2.11:80", good[0].port()), ("192.0.2.12:80", good[1].port())];
    let text = recipe("failing-servers.cfg", port, &servers)
        .replace("\nglobal\n", "\nglobal\n    stats socket runtime level admin\n");
    let weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    let mut rounds = 0;
    while column(&weir, "show outliers", "app1", "by_errors") == "0" {
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        assert_eq!(answer.text(), "good");
        rounds += 1;
        assert!(rounds < 100, "{}", weir.ask("show outliers"));
    }
    assert_eq!(bad.requests(), 5);
}

/// A line of a backend, and its error.
const REFUSED: &[(&str, &str)] = &[
    ("retry-budget", "'retry-budget' expects a percentage such as 20% as argument."),
    ("retry-budget 20", "invalid percentage `20`"),
    ("retry-budget 101%", "invalid percentage `101%`"),
    ("retry-budget 20% min", "'retry-budget' expects a number of retries as argument."),
    ("retry-budget 20% min x", "'retry-budget' expects an integer argument (got 'x')."),
    ("retry-budget 20% most 3", "'retry-budget' cannot handle unexpected argument 'most'."),
    ("hedge", "'hedge' expects 'after' and a quantile or a time as argument."),
    ("hedge afer p95", "'hedge' expects one of 'after' (got 'afer')."),
    ("hedge after", "'hedge' expects a quantile such as p95 or a time such as 20ms as argument."),
    ("hedge after p100", "invalid quantile `p100`"),
    ("hedge after px", "invalid quantile `px`"),
    ("hedge after 0", "time `0` is too short"),
    ("hedge after 5x", "unexpected character 'x' in argument to <hedge>."),
    ("hedge after p95 max 0%", "invalid percentage `0%`"),
    ("hedge after p95 min 5%", "'hedge' cannot handle unexpected argument 'min'."),
    ("outlier-ejection", "`outlier-ejection` has no criterion"),
    ("outlier-ejection max-ejected 10%", "`outlier-ejection` has no criterion"),
    (
        "outlier-ejection error 5",
        "'outlier-ejection' expects one of 'errors', 'error-rate', 'latency', 'min-requests', 'interval', 'ejection-time', \
         'max-ejection-time', 'max-ejected', 'recover' (got 'error').",
    ),
    ("outlier-ejection errors 0", "'outlier-ejection' expects a number between 1 and 1000000 (got '0')."),
    ("outlier-ejection error-rate 0%", "invalid percentage `0%`"),
    ("outlier-ejection latency 1", "invalid factor `1`"),
    ("outlier-ejection latency x", "invalid factor `x`"),
    ("outlier-ejection latency 3 quantile 90", "invalid quantile `90`"),
    ("outlier-ejection errors 5 interval 10ms", "time `10ms` is too short"),
    ("outlier-ejection errors 5 max-ejected 100%", "invalid percentage `100%`"),
    ("outlier-ejection errors 5 ejection-time 1m max-ejection-time 10s", "`max-ejection-time` is 10000ms"),
    ("mode tcp\n  hedge after p95", "`hedge` cannot be used in `mode tcp`"),
    ("mode log\n  retry-budget 20%", "`retry-budget` cannot be used in `mode log`"),
];

/// Returns the program's messages for a configuration checked with `-c`, and whether it is accepted.
fn check(text: &str) -> (bool, String) {
    let directory = scratch("policies");
    let file = directory.join("haproxy.cfg");
    std::fs::File::create(&file).and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    let output = std::process::Command::new(program())
        .args(["-c", "-f"])
        .arg(&file)
        .env("WEIR_MESSAGES", "full")
        .output()
        .expect("the program runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn invalid_arguments_are_refused_with_a_reason() {
    for (line, said) in REFUSED {
        let text = format!(
            "defaults\n  mode http\n  timeout connect 1s\n  timeout server 1s\nbackend b\n  {line}\n  server s 127.0.0.1:1\n"
        );
        let (taken, messages) = check(&text);
        let plain = said.replace('`', "'");
        assert!(!taken, "{line} is taken");
        assert!(messages.contains(said) || messages.contains(&plain), "{line}: {messages}");
    }
}

#[test]
fn inherited_settings_can_be_disabled_and_unused_are_reported() {
    let text = |defaults: &str, lines: &str| {
        format!(
            "defaults\n  mode http\n  timeout connect 1s\n  timeout server 1s\n  {defaults}\nbackend b\n  {lines}\n  \
             server s 127.0.0.1:1\n  server t 127.0.0.1:1\n"
        )
    };
    let all = "hedge after p95\n  retry-budget 20%\n  outlier-ejection errors 5";
    for (defaults, lines, warning) in [
        (all, "", ""),
        (all, "no hedge\n  no retry-budget\n  no outlier-ejection", ""),
        (all, "mode tcp\n  no hedge", ""),
        (all, "mode tcp", "`hedge` cannot be used in `mode tcp`"),
        ("", "outlier-ejection errors 5 max-ejected 40%", "has no effect"),
    ] {
        let (taken, messages) = check(&text(defaults, lines));
        assert!(taken, "{defaults} {lines}: {messages}");
        let plain = warning.replace('`', "'");
        match warning {
            "" => assert!(!messages.contains("hedge") && !messages.contains("outlier"), "{messages}"),
            _ => assert!(messages.contains(warning) || messages.contains(&plain), "{lines}: {messages}"),
        }
    }
}
