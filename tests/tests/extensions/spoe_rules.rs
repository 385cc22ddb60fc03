//! Rules, persistence and counters of backends with SPOE agents (`mode spop`): each query is its own TCP stream, with the query and
//! the answer as content. The expected results were observed with HAProxy 3.5.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weir_tests::agent::{Frames, Value, ack, agent, scope, set};
use weir_tests::client::get;
use weir_tests::spoe::{EVENTS, FRONT, LINES, Setting, Told, engine, shown, variable, with_rules};
use weir_tests::{Origin, PATIENCE, Weir, eventually, free_port};

/// The position of the path, after its length, in a request's [`EVENTS`] messages.
const PATH: &str = "req.payload_lv(14,1)";

/// Starts an agent that answers with a name and records its queries.
fn named(name: &'static str) -> (Origin, Told) {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![set(scope::TXN, "foo", name)]
    });
    (agent, told)
}

#[test]
fn rules_see_query_and_answer_but_not_the_client() {
    let (agent, _told) = named("ok");
    let rules = format!(
        "tcp-request content set-var(proc.seen.length) req.len\n \
         tcp-request content set-var(proc.seen.path) {PATH},lower\n \
         tcp-request content set-var(proc.seen.src) src\n \
         tcp-request content set-var(proc.seen.listener) so_id\n \
         tcp-request content set-var(proc.seen.fe) fe_name\n \
         tcp-request content set-var(proc.seen.be) be_name\n \
         tcp-request content set-var(proc.seen.of_client) var(sess.of_client)\n \
         tcp-request content set-var(txn.kept) int(7)\n \
         tcp-response content set-var(proc.seen.kept) var(txn.kept)\n \
         tcp-response content set-var(proc.seen.server) srv_name\n \
         tcp-response inspect-delay 10s\n \
         tcp-response content set-var(proc.seen.answer) res.payload(0,0),hex if {{ res.len gt 0 }}"
    );
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.front.push_str(
        "\n http-request set-var(sess.of_client) int(1)\n http-response set-header x-kept %[var(txn.kept)]",
    );
    setting.agents.insert_str(0, &format!("{rules}\n "));
    let (weir, port) = setting.run();
    let response = get(port, "/some").expect("a response");
    assert_eq!((response.header("x-got"), response.header("x-kept")), (Some("ok"), Some("")));
    let wanted = [
        // The frame type, the message name, the number of arguments, and the arguments.
        ("length", "32"),
        ("path", "/some"),
        ("src", ""),
        ("listener", ""),
        ("fe", "ag"),
        ("be", "agents"),
        ("of_client", ""),
        ("kept", "7"),
        ("server", "a"),
        // Sets a transaction variable to a string.
        ("answer", "01030203666F6F08026F6B"),
    ];
    for (name, wanted) in wanted {
        assert_eq!(variable(&weir, &format!("seen.{name}")), wanted, "{name}");
    }
    assert_eq!(
        (weir.stat("agents,BACKEND", "bin"), weir.stat("agents,BACKEND", "bout")),
        ("32".into(), "11".into())
    );
}

#[test]
fn rejected_query_is_not_sent() {
    for refuse in ["reject", "silent-drop"] {
        let (agent, told) = named("ok");
        let rules = format!(
            "tcp-request content accept if {{ {PATH} -m sub /good }}\n tcp-request content {refuse} if {{ {PATH} -m beg /bad }}"
        );
        let (weir, port) = with_rules("", &rules, &agent);
        for (path, got, asked) in
            [("/bad", "257", 0), ("/bad/good", "ok", 1), ("/", "ok", 1), ("/bad", "257", 0)]
        {
            assert_eq!(shown(get(port, path), "x-got").trim(), got, "{refuse} {path}");
            assert_eq!(told.take().len(), asked, "{refuse} {path}");
        }
        assert_eq!(weir.stat("agents,BACKEND", "stot"), "4");
        assert_eq!(weir.stat("agents,a", "stot"), "2");
        assert!(eventually(|| weir.stat("agents,BACKEND", "scur") == "0"));
    }
}

#[test]
fn rejected_answer_is_not_used() {
    for (refuse, denied) in [("reject", "1"), ("close", "0")] {
        let (agent, told) = named("ok");
        let rules = format!(
            "tcp-response inspect-delay 10s\n tcp-response content {refuse} if {{ res.payload(0,0) -m sub ok }}"
        );
        let (weir, port) = with_rules("", &rules, &agent);
        assert_eq!(shown(get(port, "/"), "x-got").trim(), "257", "{refuse}");
        assert_eq!(told.take().len(), 1);
        assert_eq!(weir.stat("agents,BACKEND", "dresp"), denied, "{refuse}");
        assert_eq!(weir.stat("agents,a", "dresp"), denied, "{refuse}");
    }
}

#[test]
fn rules_wait_up_to_the_inspect_delay() {
    for (rules, got) in [
        ("tcp-request inspect-delay 300ms\n tcp-request content reject if { req.len gt 1000 }", "ok"),
        ("tcp-request inspect-delay 300ms\n tcp-request content reject if !{ req.len gt 1000 }", "257"),
        ("tcp-response inspect-delay 300ms\n tcp-response content reject if { res.len gt 1000 }", "ok"),
    ] {
        let (agent, _told) = named("ok");
        let (_weir, port) = with_rules("", rules, &agent);
        let began = Instant::now();
        assert_eq!(shown(get(port, "/"), "x-got").trim(), got, "{rules}");
        assert!(began.elapsed() >= Duration::from_millis(300), "{rules}: {:?}", began.elapsed());
    }
    // Without an inspect-delay the answer is not visible yet.
    let (agent, _told) = named("ok");
    let (weir, port) = with_rules("", "tcp-response content set-var(proc.length) res.len", &agent);
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    assert_eq!(variable(&weir, "length"), "0");
}

#[test]
fn processing_timeout_includes_waits_of_rules() {
    let (agent, told) = named("ok");
    let rules = "tcp-request inspect-delay 60s\n tcp-request content reject if { req.len gt 1000 }";
    let lines = LINES.replace("processing 10s", "processing 200ms");
    let file = engine(&lines, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.agents.insert_str(0, &format!("{rules}\n "));
    let (weir, port) = setting.run();
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "1");
    assert_eq!(told.take().len(), 0);
    assert!(eventually(|| weir.stat("agents,BACKEND", "scur") == "0"));
}

#[test]
fn do_log_uses_the_agents_loggers_and_profile() {
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    log.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let collector = log.local_addr().expect("an address").port();
    let (agent, _told) = named("ok");
    let lines = format!("{LINES}\n option dontlog-normal\n log 127.0.0.1:{collector} local3");
    let file = engine(&lines, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.agents.insert_str(
        0,
        "tcp-request content do-log\n tcp-request content do-log profile own\n \
         tcp-request content set-log-level err\n tcp-response content do-log profile own\n ",
    );
    setting.agents.push_str("\nlog-profile own\n on any format \"fe=%f be=%b srv=%s\"");
    let (_weir, port) = setting.run();
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    for wanted in ["<158>", "fe=ag be=agents srv=<NOSRV>", "<155>", "fe=ag be=agents srv=a"].chunks(2) {
        let mut bytes = [0; 1024];
        let length = log.recv(&mut bytes).expect("a line");
        let line = String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned();
        assert!(line.starts_with(wanted[0]) && line.ends_with(wanted[1]), "{line}");
    }
}

#[test]
fn query_keys_stick_to_one_agent() {
    let [(one, of_one), (two, of_two)] = ["one", "two"].map(named);
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, one.port());
    setting.agents = format!(
        "balance roundrobin\n stick-table type string len 64 size 1k\n stick on {PATH}\n server a 127.0.0.1:{}\n server b 127.0.0.1:{}",
        one.port(),
        two.port()
    );
    let (weir, port) = setting.run();
    let asked = |path: &str| shown(get(port, path), "x-got").trim().to_owned();
    let first: Vec<String> = (0..4).map(|number| asked(&format!("/{number}"))).collect();
    assert_eq!(first.iter().filter(|name| *name == "one").count(), 2, "{first:?}");
    for _ in 0..3 {
        for number in [2, 0, 3, 1] {
            assert_eq!(asked(&format!("/{number}")), first[number], "{first:?}");
        }
    }
    assert_eq!((of_one.take().len(), of_two.take().len()), (8, 8));
    let table = weir.ask("show table agents");
    assert!(table.contains("key=/3") && table.contains("server_id="), "{table}");
}

#[test]
fn answers_may_store_stick_keys() {
    let [(one, _), (two, _)] = ["one", "two"].map(named);
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, one.port());
    setting.agents = format!(
        "balance roundrobin\n stick-table type string len 64 size 1k\n tcp-response inspect-delay 10s\n \
         tcp-response content accept if {{ res.len gt 9 }}\n stick store-response res.payload(9,0)\n server a 127.0.0.1:{}\n server b 127.0.0.1:{}",
        one.port(),
        two.port()
    );
    let (weir, port) = setting.run();
    for _ in 0..2 {
        get(port, "/").expect("a response");
    }
    let table = weir.ask("show table agents");
    assert!(table.contains("key=one") && table.contains("key=two"), "{table}");
}

#[test]
fn rules_track_queries_not_clients() {
    let (agent, _told) = named("ok");
    let rules = format!(
        "tcp-request content track-sc0 {PATH} table asked\n tcp-request content sc-inc-gpc0(0)\n \
         tcp-response content set-var(proc.count) sc0_conn_cur"
    );
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.front.push_str("\n tcp-request connection track-sc0 src table clients");
    setting.agents.insert_str(0, &format!("{rules}\n "));
    setting.agents.push_str(
        "\nbackend asked\n stick-table type string len 64 size 1k store conn_cnt,conn_cur,gpc0,bytes_in_cnt,bytes_out_cnt\n\
         backend clients\n stick-table type ip size 1k store conn_cnt,gpc0",
    );
    let (weir, port) = setting.run();
    for path in ["/a", "/b", "/a"] {
        assert_eq!(shown(get(port, path), "x-got").trim(), "ok");
    }
    let table = weir.ask("show table asked");
    let entry = |key: &str| {
        let line = table.lines().find(|line| line.contains(&format!("key={key} ")));
        line.unwrap_or_else(|| panic!("{key}: {table}")).to_owned()
    };
    // Two queries of 29 bytes, two answers of 11.
    for word in ["conn_cnt=2", "conn_cur=0", "gpc0=2", "bytes_in_cnt=58", "bytes_out_cnt=22"] {
        assert!(entry("/a").contains(word), "{word}: {table}");
    }
    assert!(entry("/b").contains("conn_cnt=1") && entry("/b").contains("gpc0=1"), "{table}");
    let clients = weir.ask("show table clients");
    assert!(clients.contains("conn_cnt=3") && clients.contains("gpc0=0"), "{clients}");
    assert_eq!(variable(&weir, "count"), "1", "while it is asked");
}

#[test]
fn engine_id_matches_the_one_sent_to_the_agent() {
    let (send, receive) = mpsc::channel();
    let agent = Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        let _ = send.send(frames.greet(16380, "pipelining"));
        while let Some(told) = frames.next_notified() {
            frames.send(&ack(&told, &[]));
        }
    });
    let sections = EVENTS.replace("args path=path", "args id=spoe.engine-id path=path");
    let file = engine(LINES, &sections);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.front.push_str("\n http-response set-header x-id %[spoe.engine-id]");
    setting.agents.insert_str(0, "tcp-request content set-var(proc.engine) spoe.engine-id\n ");
    let (weir, port) = setting.run();
    assert_eq!(shown(get(port, "/"), "x-id"), "", "the client's stream is no question");
    let hello = receive.recv_timeout(PATIENCE).expect("a connection").expect("a hello");
    let said = hello.iter().find(|(name, _)| name == "engine-id").map(|(_, value)| value.clone());
    assert_eq!(said, Some(Value::Str(variable(&weir, "engine"))));
    assert_eq!(variable(&weir, "engine").len(), 36);
}

#[test]
fn use_server_and_balancing_evaluate_the_query() {
    let [(one, of_one), (two, of_two)] = ["one", "two"].map(named);
    for lines in [
        format!("use-server b if {{ {PATH} -m beg /b }}"),
        // HAProxy has no source address for queries: the agents take turns.
        "balance source".to_owned(),
        format!("balance hash {PATH}"),
    ] {
        let file = engine(LINES, EVENTS);
        let mut setting = Setting::new(&file, FRONT, one.port());
        setting.agents =
            format!("{lines}\n server a 127.0.0.1:{}\n server b 127.0.0.1:{}", one.port(), two.port());
        let (_weir, port) = setting.run();
        for _ in 0..6 {
            get(port, "/b").expect("a response");
        }
        let asked = (of_one.take().len(), of_two.take().len());
        match lines.as_str() {
            "balance source" => assert_eq!(asked, (3, 3)),
            lines if lines.starts_with("use-server") => assert_eq!(asked, (0, 6)),
            lines => assert!(asked == (0, 6) || asked == (6, 0), "{lines}: {asked:?}"),
        }
    }
}

#[test]
fn agents_may_be_in_a_listen_section() {
    let (agent, told) = named("ok");
    let (port, origin) = (free_port(), Origin::text("ok"));
    let file = engine(LINES, EVENTS);
    let text = Setting::new(&file, FRONT, agent.port()).text(port, origin.port());
    let text = text.replace("backend agents", "listen agents");
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    assert_eq!(told.take().len(), 1);
    assert!(weir.says("'agents' has no 'bind' directive"), "{}", weir.messages());
    // Connections to the backend itself are not queries.
    let own = free_port();
    let text = text.replace("mode spop\n", &format!("mode spop\n bind 127.0.0.1:{own}\n"));
    let _weir = Weir::start(&text, &[own]);
    assert!(weir_tests::client::exchange(own, "hello").is_none());
}

#[test]
fn traces_show_agent_connections_and_queries() {
    let (agent, _told) = named("ok");
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.global = "log ring@buf0 local0".to_owned();
    let (weir, port) = setting.run();
    weir.ask("trace spop sink buf0 level proto verbosity complete start now");
    get(port, "/").expect("a response");
    let mut lines = String::new();
    let wanted = [
        "new agent connection : backend=agents server=a",
        "sending a request : backend=agents server=a stream=1",
        "agent ready",
        "response received",
        "request ended",
    ];
    let told = eventually(|| {
        lines = weir.ask("show events buf0");
        wanted.iter().all(|text| lines.contains(text))
    });
    assert!(told, "{lines}");
}
