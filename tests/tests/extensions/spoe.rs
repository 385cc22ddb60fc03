//! SPOE engines that query agents (`filter spoe`): the messages agents get, the use of their answers, and comparisons with HAProxy.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use weir_tests::agent::{Notified, Value, agent, scope, set, unset};
use weir_tests::client::{Client, exchange, get};
use weir_tests::spoe::{ALL_EVENTS, EVENTS, Setting, Told, engine, shown};
use weir_tests::versions::TIMEOUTS;
use weir_tests::{Haproxy, Origin, PATIENCE, Weir, free_port, recipe, scratch};

#[test]
fn agents_get_the_message_arguments_and_set_variables() {
    let (told, kept) = (Told::default(), Told::default());
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![
            set(scope::TXN, "score", 42),
            set(scope::SESS, "name", "who"),
            set(scope::REQ, "flag", Value::Bool(true)),
            set(scope::TXN, "ip", Value::Ip("192.0.2.7".parse().expect("an address"))),
            set(scope::TXN, "ip6", Value::Ip("2001:db8::7".parse().expect("an address"))),
            set(scope::TXN, "bytes", Value::Bin(b"\x01\xff".to_vec())),
            set(scope::TXN, "unknown", 1),
            unset(scope::TXN, "gone"),
            set(scope::TXN, "null", Value::Null),
        ]
    });
    let file = engine("messages fhttp client\n timeout processing 10s", EVENTS);
    let front = "http-request set-var(txn.p.gone) int(1)\n \
                 http-request set-header x-got %[var(txn.p.score)]|%[var(sess.p.name)]|%[var(req.p.flag)]|%[var(txn.p.ip)]|%[var(txn.p.ip6)]|%[var(txn.p.bytes),hex]|%[var(txn.p.null)]\n \
                 http-response set-header x-score %[var(txn.p.score)]\n http-response set-header x-gone %[var(txn.p.gone)]";
    let origin = Origin::start(|head, _| {
        let got = head.lines().find_map(|line| line.strip_prefix("x-got: ")).unwrap_or("nothing").to_owned();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{got}", got.len()).into_bytes()
    });
    let (_weir, port) = Setting::new(&file, front, agent.port()).start(origin);
    let response = get(port, "/a?b").expect("a response");
    assert_eq!(response.text(), "42|who|1|192.0.2.7|2001:db8::7|01FF|");
    assert_eq!((response.header("x-score"), response.header("x-gone")), (Some("42"), Some("1")));
    for told in told.take() {
        kept.add(&told);
    }
    let all = kept.take();
    let ip = |text: &str| Value::Ip(text.parse().expect("an address"));
    let items: Vec<(String, Value)> = [
        ("ip", ip("127.0.0.1")),
        ("true", Value::Bool(true)),
        ("no", Value::Bool(false)),
        ("five", 5.into()),
        ("neg", (-3).into()),
        ("abc", "abc".into()),
        ("raw", Value::Bin(b"\0\xff".to_vec())),
        ("v6", ip("::1")),
        ("none", Value::Null),
        ("", "bare".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    assert_eq!(all[0].messages, [("client".to_owned(), items)]);
    let request = [("path".to_owned(), "/a".into()), ("method".to_owned(), "GET".into())].to_vec();
    assert_eq!(all[1].messages, [("fhttp".to_owned(), request)]);
    assert_eq!((all[0].frame, all[1].frame), (1, 1));
    assert_ne!(all[0].stream, all[1].stream);
}

#[test]
fn events_reach_the_engines_of_both_sides_in_order() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![]
    });
    let of_frontend = engine(&format!("{ALL_EVENTS}\n timeout processing 10s"), EVENTS);
    let sections = EVENTS.replace("spoe-message ", "spoe-message b-");
    let lines = ALL_EVENTS.replace(' ', " b-");
    let of_backend = engine(&format!("{lines}\n timeout processing 10s"), &sections);
    let mut setting = Setting::new(&of_frontend, "", agent.port());
    setting.back = format!("filter spoe config {of_backend}");
    let (_weir, port) = setting.run();
    let mut client = Client::connect(port);
    for round in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().expect("a response").text(), "ok");
        let wanted = [
            "client",
            "ftcp",
            "fhttp",
            "btcp",
            "b-btcp",
            "bhttp",
            "b-bhttp",
            "server",
            "b-server",
            "tcpres",
            "b-tcpres",
            "httpres",
            "b-httpres",
        ];
        assert_eq!(told.names(), wanted, "request {round} of the connection");
    }
}

#[test]
fn a_listen_section_has_no_events_of_the_backends_side() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![]
    });
    let file = engine(&format!("{ALL_EVENTS}\n timeout processing 10s"), EVENTS);
    let (port, origin) = (free_port(), Origin::text("ok"));
    let text = format!(
        "{TIMEOUTS}listen l\n bind 127.0.0.1:{port}\n filter spoe config {file}\n server s 127.0.0.1:{}\n\
         backend agents\n mode spop\n server a 127.0.0.1:{}\n",
        origin.port(),
        agent.port()
    );
    let weir = Weir::start(&text, &[port]);
    assert_eq!(get(port, "/").expect("a response").status, 200);
    assert_eq!(told.names(), ["client", "ftcp", "fhttp", "server", "tcpres", "httpres"]);
    assert!(weir.says("listen proxy"), "{}", weir.messages());
}

#[test]
fn tcp_streams_have_events_and_rules_use_the_answer() {
    let (told, is_bad) = (Told::default(), Arc::new(AtomicBool::new(false)));
    let (own, bad) = (told.clone(), is_bad.clone());
    let agent = agent(move |told| {
        own.add(told);
        vec![set(scope::SESS, "bad", Value::Bool(bad.load(SeqCst)))]
    });
    let file = engine(&format!("{ALL_EVENTS}\n timeout processing 10s"), EVENTS);
    let front = "mode tcp\n tcp-request content reject if { var(sess.p.bad) -m bool }";
    let mut setting = Setting::new(&file, front, agent.port());
    setting.back = "mode tcp".to_owned();
    let (_running, port) = setting.run();
    let text = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(port, text).expect("bytes").text(), "ok");
    assert_eq!(told.names(), ["client", "ftcp", "btcp", "server", "tcpres"]);
    is_bad.store(true, SeqCst);
    assert!(exchange(port, text).is_none(), "the connection is closed");
    assert_eq!(told.names(), ["client", "ftcp"]);
}

#[test]
fn conditions_select_messages_sent_in_one_frame() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![]
    });
    let sections = "
spoe-message one
  acl wanted path_beg /one
  event on-frontend-http-request if wanted
spoe-message two
  args a=path b=method,lower
  event on-http-response
  event on-frontend-http-request unless { path /none } { method GET }
";
    let file = engine("messages one two\n timeout processing 10s", sections);
    let (_weir, port) = Setting::new(&file, "", agent.port()).run();
    for path in ["/one", "/two", "/none"] {
        assert_eq!(get(port, path).expect("a response").status, 200);
    }
    let all = told.take();
    let names: Vec<String> = all.iter().map(|told| told.names().join("+")).collect();
    assert_eq!(names, ["one+two", "two"], "nothing is sent where nothing is said");
    assert_eq!(all[1].get("b"), Some(&"get".into()));
}

#[test]
fn rules_send_groups_and_see_the_result() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        let text = format!("{:?}", told.get("what"));
        vec![set(scope::TXN, "said", text.as_str())]
    });
    let sections = "
spoe-group req
  messages first second
spoe-group res
  messages third
spoe-message first
  args what=path
spoe-message second
spoe-message third
  args what=status
";
    let file = engine("groups req res\n timeout processing 10s", sections);
    let front = "http-request send-spoe-group ag req if { path /yes }\n http-request set-var(txn.one) var(txn.p.said)\n \
                 http-response send-spoe-group ag res if { var(txn.one) -m found }\n \
                 http-response set-header x-said %[var(txn.one)]|%[var(txn.p.said)]";
    let (_weir, port) = Setting::new(&file, front, agent.port()).run();
    assert_eq!(shown(get(port, "/no"), "x-said"), "|");
    assert!(told.names().is_empty());
    assert_eq!(shown(get(port, "/yes"), "x-said"), r#"Some(Str("/yes"))|Some(Int(200))"#);
    assert_eq!(told.names(), ["first+second", "third"]);
}

#[test]
fn rules_on_content_send_groups_in_both_modes() {
    for mode in ["tcp", "http"] {
        let told = Told::default();
        let own = told.clone();
        let agent = agent(move |told| {
            own.add(told);
            vec![set(scope::TXN, "said", told.names().len() as i64)]
        });
        let sections = "
spoe-group req
  messages first second
spoe-group res
  messages second
spoe-message first
  args ip=src
spoe-message second
  args a=int(1)
";
        let file = engine("groups req res\n timeout processing 10s", sections);
        let front = format!(
            "mode {mode}\n tcp-request content send-spoe-group ag req\n tcp-request content reject unless {{ var(txn.p.said) -m int 2 }}"
        );
        let mut setting = Setting::new(&file, &front, agent.port());
        let of_backend = engine("groups req res\n timeout processing 10s", sections);
        setting.back = format!(
            "mode {mode}\n filter spoe config {of_backend}\n tcp-response content send-spoe-group ag res\n \
             tcp-response content close unless {{ var(txn.p.said) -m int 1 }}"
        );
        let (_running, port) = setting.run();
        let text = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert_eq!(exchange(port, text).expect("a response").text(), "ok", "{mode}");
        assert_eq!(told.names(), ["first+second", "second"], "{mode}");
    }
}

#[test]
fn agent_logs_match_haproxy() {
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    log.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let collector = log.local_addr().expect("an address").port();
    let agent = agent(|_| vec![]);
    let sections = format!("{EVENTS}\nspoe-group g\n messages m\nspoe-message m\n");
    let lines =
        format!("messages fhttp\n groups g\n timeout processing 10s\n log 127.0.0.1:{collector} local0");
    let front = "http-response send-spoe-group ag g\n http-response set-header x-id %rt";
    let file = engine(&lines, &sections);
    let mut setting = Setting::new(&file, front, agent.port());
    let line = || {
        let mut bytes = [0; 1024];
        let length = log.recv(&mut bytes).expect("a line");
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    let text = |line: &str| {
        let (head, text) = line.split_once("]: ").expect("a line of syslog");
        let words: Vec<&str> = text.split(' ').collect();
        let sid = words.iter().any(|word| word.starts_with("sid=") && word.len() > 4);
        assert!(sid && words.len() == 7, "{text}");
        let level = head.split('>').next().unwrap_or_default().to_owned();
        format!("{level}> {} {} {} {} {}", words[0], words[1], words[2], words[4], words[6])
    };
    let (weir, port) = setting.run();
    get(port, "/").expect("a response");
    assert_eq!(text(&line()), "<133> SPOE: [ag] <EVENT:on-frontend-http-request> st=0 0/1");
    assert_eq!(text(&line()), "<133> SPOE: [ag] <GROUP:g> st=0 0/2");
    drop(weir);
    // Errors are always logged.
    let lines = format!("{lines}\n option dontlog-normal\n option continue-on-error");
    let file = engine(&lines, &sections);
    setting.front = format!("filter spoe config {file}\n {front}");
    setting.agents = format!("retries 0\n server a 127.0.0.1:{}", free_port());
    let (_weir, port) = setting.run();
    get(port, "/").expect("a response");
    assert_eq!(text(&line()), "<132> SPOE: [ag] <EVENT:on-frontend-http-request> st=257 1/1");
}

#[test]
fn trusted_agents_may_create_process_variables() {
    for (option, wanted) in [("", "-"), ("option force-set-var", "7")] {
        let agent = agent(|_| vec![set(scope::PROC, "made", 7)]);
        let lines = format!(
            "messages fhttp\n timeout processing 10s\n option var-prefix q{}\n {option}",
            wanted.len() + option.len()
        );
        let (weir, port) = Setting::new(&engine(&lines, EVENTS), "", agent.port()).run();
        get(port, "/").expect("a response");
        let told = weir.ask(&format!("get var proc.q{}.made", wanted.len() + option.len()));
        assert_eq!(told.contains("value=<7>"), wanted == "7", "{option}: {told}");
    }
}

#[test]
fn filter_sequence_may_omit_a_direction() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![]
    });
    let file = engine(&format!("{ALL_EVENTS}\n timeout processing 10s"), EVENTS);
    let front = "filter trace quiet\n filter-sequence response trace";
    let (_weir, port) = Setting::new(&file, front, agent.port()).run();
    get(port, "/").expect("a response");
    assert_eq!(told.names(), ["client", "ftcp", "fhttp", "btcp", "bhttp"]);
}

#[test]
fn http2_requests_are_sent_to_agents_too() {
    let agent = agent(|told| {
        let path = format!("{:?}", told.get("path"));
        vec![set(scope::TXN, "path", path.as_str())]
    });
    let h2 = free_port();
    let file = engine("messages fhttp\n timeout processing 10s", EVENTS);
    let front = format!(
        "bind 127.0.0.1:{h2} proto h2\n http-request return status 200 content-type text/plain lf-string %[var(txn.p.path)]"
    );
    let (_weir, _) = Setting::new(&file, &front, agent.port()).run();
    let url = |path: &str| format!("http://127.0.0.1:{h2}{path}");
    for path in ["/a", "/b"] {
        let said = weir_tests::versions::curl(&["--http2-prior-knowledge", &url(path)]);
        assert_eq!(said, format!("Some(Str(\"{path}\"))"));
    }
}

#[test]
fn in_place_reload_uses_the_new_agents() {
    let [first, second] = ["one", "two"].map(|name| agent(move |_| vec![set(scope::TXN, "who", name)]));
    let file = engine("messages fhttp\n timeout processing 10s", EVENTS);
    let front = "http-response set-header x-who %[var(txn.p.who)]";
    let (origin, port) = (Origin::text("ok"), free_port());
    let setting = Setting::new(&file, front, first.port());
    let weir = Weir::start(&setting.text(port, origin.port()), &[port]);
    let mut client = Client::connect(port);
    let mut who = || {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        shown(client.response(), "x-who")
    };
    assert_eq!((who(), who()), ("one".into(), "one".into()));
    // Another server, and another message, in a file that the configuration refers to.
    let changed = Setting { agents: format!("server a 127.0.0.1:{}", second.port()), ..setting };
    let text = changed.text(port, origin.port());
    std::fs::write(weir.directory().join("haproxy.cfg"), text).expect("the directory of the run");
    let said = weir.ask("reload");
    assert!(said.contains("agents"), "{said}");
    assert_eq!(who(), "two", "{}", weir.messages());
    std::fs::write(
        &file,
        std::fs::read_to_string(&file).expect("it").replace("messages fhttp", "messages httpres"),
    )
    .expect("it is ours");
    let said = weir.ask("reload dry-run");
    assert!(said.contains("spoe-agent"), "{said}");
}

#[test]
fn messages_match_haproxy() {
    let lines = format!("{ALL_EVENTS}\n timeout processing 10s\n timeout hello 10s\n timeout idle 10s");
    let tells =
        |start: &dyn Fn(u16) -> Box<dyn std::any::Any>, agent: &mut Vec<Vec<Notified>>, told: &Told| {
            let port = free_port();
            let running = start(port);
            told.take();
            let fields = "GET /a?b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            let response = exchange(port, fields).expect("a response");
            assert_eq!(response.header("x-got"), Some("seen 200"));
            agent.push(told.take());
            drop(running);
        };
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        vec![set(scope::TXN, "foo", "seen")]
    });
    let (origin, file) = (Origin::text("ok"), engine(&lines, EVENTS));
    let front = "http-response set-header x-got \"%[var(txn.p.foo)] %[status]\"";
    let setting = Setting::new(&file, front, agent.port());
    // HAProxy 2.6 only knows scopes, and has no SPOP mode.
    let old = setting.text(0, origin.port()).replace("mode spop", "mode tcp");
    let old = old.replace("stats socket runtime level admin", "");
    let mut all = Vec::new();
    tells(&|port| Box::new(Weir::start(&setting.text(port, origin.port()), &[port])), &mut all, &told);
    let older = |port: u16| -> Box<dyn std::any::Any> {
        Box::new(Haproxy::start(&old.replace("bind 127.0.0.1:0", &format!("bind 127.0.0.1:{port}")), port))
    };
    tells(&older, &mut all, &told);
    let messages = |all: &[Notified]| all.iter().map(|told| told.messages.clone()).collect::<Vec<_>>();
    assert_eq!(messages(&all[0]), messages(&all[1]));
    assert!(all[0].len() == 8, "{:?}", all[0]);
}

#[test]
fn recipe_refuses_bad_reputations() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        let is_bad = told.get("agent") == Some(&"bad".into());
        vec![set(scope::SESS, "score", if is_bad { 10 } else { 80 })]
    });
    let (port, origin) = (free_port(), Origin::text("ok"));
    let engine = weir_tests::workspace().join("docs/recipes/ip-reputation.conf");
    let engine = std::fs::read_to_string(engine).expect("it is there");
    let conf = scratch("recipe").file("ip-reputation.conf");
    std::fs::write(&conf, engine.replace("20ms", "10s")).expect("the temporary directory takes files");
    let servers = [
        ("192.0.2.11:8080", origin.port()),
        ("192.0.2.21:9000", agent.port()),
        ("192.0.2.22:9000", agent.port()),
    ];
    let text = recipe("ip-reputation.cfg", port, &servers)
        .replace("config ip-reputation.conf", &format!("config {}", conf.display()));
    let _weir = Weir::start(&text, &[port]);
    for (name, status, asked) in [("good", [200, 200], 1), ("bad", [403, 403], 1)] {
        told.take();
        let mut client = Client::connect(port);
        for status in status {
            client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: {name}\r\n\r\n"));
            assert_eq!(client.response().expect("a response").status, status, "{name}");
        }
        assert_eq!(told.take().len(), asked, "{name}: once for each connection");
    }
}
