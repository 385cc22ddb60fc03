//! Queries to agents as separate streams: no client connected for them, so there is no client address or socket, and scripts may
//! answer them. The expected results were observed with HAProxy 3.5.

use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use weir_tests::agent::{agent, scope, set};
use weir_tests::client::get;
use weir_tests::spoe::{EVENTS, FRONT, LINES, Setting, engine, shown, variable, with_rules};
use weir_tests::{Origin, PATIENCE, Scratch, eventually};

/// Starts an agent that answers `ok`.
fn ready() -> Origin {
    agent(|_| vec![set(scope::TXN, "foo", "ok")])
}

#[test]
fn queries_have_no_client() {
    let ends = ["src", "src_port", "src_is_local", "dst", "dst_port", "fs.aborted", "fs.id", "fs.debug_str"];
    let of_connection = [
        "src",
        "src_port",
        "dst",
        "dst_port",
        "src_is_local",
        "rtt",
        "rttvar",
        "unacked",
        "sacked",
        "lost",
        "retrans",
        "reordering",
        "err",
        "err_name",
        "glitches",
        "http_major",
        "nb_streams",
        "settings_streams_limit",
        "rcvd_proxy",
        "saved_syn",
    ];
    let none: Vec<String> =
        ends.map(str::to_owned).into_iter().chain(of_connection.map(|fact| format!("fc_{fact}"))).collect();
    let agent = ready();
    let rules = |rules: &str, letter: &str| {
        let set = |(number, name): (usize, &String)| {
            format!("{rules} content set-var(proc.{letter}{number}) {name}")
        };
        none.iter().enumerate().map(set).collect::<Vec<_>>().join("\n ")
    };
    let all = format!(
        "{}\n {}\n tcp-request content set-var(proc.conns) fe_name",
        rules("tcp-request", "q"),
        rules("tcp-response", "s")
    );
    let (weir, port) = with_rules("", &all, &agent);
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    assert_eq!(variable(&weir, "conns"), "ag", "rules were run");
    for (number, name) in none.iter().enumerate() {
        for letter in ["q", "s"] {
            assert_eq!(variable(&weir, &format!("{letter}{number}")), "", "{name} {letter}");
        }
    }
}

#[test]
fn answer_rules_see_the_agent_connection() {
    let agent = ready();
    let rules = "tcp-response content set-var(proc.dst) bc_dst\n tcp-response content set-var(proc.port) bc_dst_port\n \
                 tcp-response content set-var(proc.src) bc_src\n tcp-response content set-var(proc.err) bc_err\n \
                 tcp-response content set-var(proc.reused) bc_reused\n tcp-response content set-var(proc.rtt) bc_rtt(us)\n \
                 tcp-response content set-var(proc.major) bc_http_major\n tcp-response content set-var(proc.glitches) bc_glitches";
    let (weir, port) = with_rules("", rules, &agent);
    for reused in ["0", "1"] {
        assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
        let wanted = [
            ("dst", "127.0.0.1".to_owned()),
            ("port", agent.port().to_string()),
            ("src", "127.0.0.1".to_owned()),
            ("err", "0".to_owned()),
            ("reused", reused.to_owned()),
            // The stream is not HTTP.
            ("major", String::new()),
            ("glitches", String::new()),
        ];
        for (name, wanted) in wanted {
            assert_eq!(variable(&weir, name), wanted, "{name}");
        }
        assert!(variable(&weir, "rtt").parse::<u64>().is_ok(), "the kernel knows it");
    }
}

#[test]
fn query_logs_have_no_client_address() {
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    log.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let collector = log.local_addr().expect("an address").port();
    let agent = ready();
    let lines = format!("{LINES}\n option dontlog-normal\n log 127.0.0.1:{collector} local3");
    let file = engine(&lines, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting
        .agents
        .insert_str(0, "tcp-request content do-log profile own\n tcp-response content do-log profile own\n ");
    setting
        .agents
        .push_str("\nlog-profile own\n on any format \"ci=%ci cp=%cp fi=%fi fp=%fp bi=%bi si=%si sp=%sp Tw=%Tw Tt=%Tt\"");
    let (_weir, port) = setting.run();
    let begun = Instant::now();
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    let most = begun.elapsed().as_millis();
    let of_server = format!("ci=- cp=- fi=- fp=- bi=127.0.0.1 si=127.0.0.1 sp={}", agent.port());
    for wanted in ["ci=- cp=- fi=- fp=- bi=- si=- sp=-", &of_server] {
        let mut bytes = [0; 1024];
        let length = log.recv(&mut bytes).expect("a line");
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let (line, times) = line.trim_end().split_once(" Tw=").expect("times stand last");
        assert!(line.ends_with(wanted), "{line}");
        // Times begin with the query, not with the program.
        let (waited, total) = times.split_once(" Tt=").expect("two of them");
        for time in [waited, total] {
            assert!(time.parse::<i128>().is_ok_and(|ms| ms <= most as i128), "{times}: {most}");
        }
    }
}

#[test]
fn dynamic_servers_see_the_query_but_not_the_client() {
    let (send, receive) = mpsc::channel();
    // Closes during the handshake: the server name is in the first message.
    let later = Origin::raw(move |mut stream| {
        let mut hello = vec![0; 4096];
        let length = stream.read(&mut hello).unwrap_or(0);
        hello.truncate(length);
        let _ = send.send(hello);
    });
    let agent = ready();
    let (weir, port) = with_rules("", "", &agent);
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    let more = "ssl verify none sni fe_name";
    let added = weir.ask(&format!("add server agents/b 127.0.0.1:{} {more}", later.port()));
    assert!(added.contains("registered"), "{added}");
    weir.ask("set server agents/a state maint");
    weir.ask("enable server agents/b");
    let asked = eventually(|| {
        get(port, "/").expect("a response");
        receive.try_recv().is_ok_and(|hello| {
            // The agent's name, a host name of two bytes (RFC 6066, section 3), is sent.
            let wanted = b"\0\0\x02ag";
            assert!(hello.windows(wanted.len()).any(|bytes| bytes == wanted), "{hello:?}");
            true
        })
    });
    assert!(asked);
}

#[test]
fn agents_get_no_proxy_header() {
    let agent = ready();
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.agents.push_str(" send-proxy");
    let (weir, port) = setting.run();
    assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok");
    let wanted = "'send-proxy*' server option is unsupported there, ignoring it";
    assert!(weir.messages().contains(wanted), "{}", weir.messages());
    let added = weir.ask("add server agents/b 127.0.0.1:1 send-proxy-v2");
    assert!(added.contains(wanted), "{added}");
    assert!(!weir.ask("show servers state agents").contains(" b "));
}

#[test]
fn scripts_may_answer_queries() {
    let text = r#"
        core.register_service("answer", "tcp", function(applet)
            local head = applet:receive(7)
            applet:send("\1\3\2\3foo\8\3lua")
            applet:send(head)
        end)
        core.register_service("silent", "tcp", function(applet) end)
        core.register_service("broken", "tcp", function(applet) error("no") end)
        core.register_service("waiting", "tcp", function(applet)
            applet:receive(1000, 20)
            applet:send("\1\3\2\3foo\8\4none")
        end)
        core.register_service("ever", "tcp", function(applet) applet:receive() end)
    "#;
    let script = Scratch::holding("services.lua", text);
    let global = format!("tune.lua.bool-sample-conversion normal\n lua-load {}", script.display());
    for (service, got) in
        [("answer", "lua"), ("silent", "257"), ("broken", "257"), ("waiting", "none"), ("ever", "1")]
    {
        let agent = ready();
        let lines = LINES.replace("processing 10s", "processing 2s");
        let file = engine(&lines, EVENTS);
        let mut setting = Setting::new(&file, FRONT, agent.port());
        setting.global = global.clone();
        let rule = format!(
            "tcp-request content use-service lua.{service} if {{ req.payload_lv(14,1) -m beg /lua }}\n "
        );
        setting.agents.insert_str(0, &rule);
        let (weir, port) = setting.run();
        assert_eq!(shown(get(port, "/lua"), "x-got").trim(), got, "{service}");
        assert_eq!(
            (weir.stat("agents,BACKEND", "stot"), weir.stat("agents,a", "stot")),
            ("1".into(), "0".into())
        );
        assert_eq!(shown(get(port, "/"), "x-got").trim(), "ok", "{service}");
        assert!(eventually(|| weir.stat("agents,BACKEND", "scur") == "0"));
    }
}

#[test]
fn script_answers_are_counted_for_the_backend() {
    let text =
        r#"core.register_service("answer", "tcp", function(applet) applet:send("\1\3\2\3foo\8\3lua") end)"#;
    let script = Scratch::holding("services.lua", text);
    let global = format!("tune.lua.bool-sample-conversion normal\n lua-load {}", script.display());
    let agent = ready();
    let (weir, port) = with_rules(&global, "tcp-request content use-service lua.answer", &agent);
    assert_eq!(shown(get(port, "/some"), "x-got").trim(), "lua");
    let count = |name: &str| weir.stat("agents,BACKEND", name);
    assert_eq!((count("bin"), count("bout")), ("32".to_owned(), "12".to_owned()));
}

#[test]
fn queries_are_listed_and_can_be_shut_down() {
    let (answer, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    // Blocks until the lock is released.
    let agent = agent(move |_| {
        _ = held.lock().expect("no test failed in it").recv();
        vec![set(scope::TXN, "foo", "ok")]
    });
    let file = engine(LINES, EVENTS);
    let (weir, port) = Setting::new(&file, FRONT, agent.port()).run();
    let line_of = |frontend: &str| {
        let all = weir.ask("show sess");
        all.lines().find(|line| line.contains(&format!(" fe={frontend} "))).map(str::to_owned)
    };
    let number = |line: &str| line.split(':').next().expect("there is one").to_owned();
    for killed in ["ag", "f"] {
        let asking = thread::spawn(move || get(port, "/"));
        assert!(eventually(|| line_of("ag").is_some_and(|line| line.contains(" act=response "))));
        let (question, asker) = (line_of("ag").expect("a line"), line_of("f").expect("a line"));
        assert!(question.contains(": proto=? fe=ag be=agents srv=a "), "{question}");
        assert!(question.contains(" in=28 "), "{question}");
        assert!(asker.contains(" be=<NONE> srv=<none> ") && asker.contains(" act=request "), "{asker}");
        assert_eq!(weir.ask("show sess server agents/a").trim().lines().count(), 1);
        let dump = weir.ask(&format!("show sess {}", number(&question)));
        assert!(dump.contains(" proto=?\n") && dump.contains("  frontend=ag (id="), "{dump}");
        let ended = if killed == "ag" { &question } else { &asker };
        weir.ask(&format!("shutdown session {}", number(ended)));
        let response = asking.join().expect("the thread got something");
        match killed {
            "ag" => assert_eq!(shown(response, "x-got").trim(), "257", "the stream goes on"),
            _ => assert!(response.is_none_or(|response| response.status != 200), "the stream ends"),
        }
        assert!(eventually(|| line_of("ag").is_none()));
    }
    drop(answer);
}
