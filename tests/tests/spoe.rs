//! Engines that ask agents about streams (`filter spoe`): what agents are told, what becomes of
//! what they answer, agents that hang, die and lie, and HAProxy beside it.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use weir_tests::agent::{
    Frames, Notified, Value, ack, actions, agent, frame, goodbye, hello_frame, kind, scope, set, unset,
};
use weir_tests::client::{Client, Response, exchange, get};
use weir_tests::versions::TIMEOUTS;
use weir_tests::{Haproxy, Origin, PATIENCE, Weir, eventually, free_port, scratch};

/// A message of each event.
const EVENTS: &str = "
spoe-message client
  args ip=src true=bool(true) no=bool(false) five=int(5) neg=int(-3) abc=str(abc) raw=bin(00ff) v6=ipv6(::1) none=var(txn.nothing) str(bare)
  event on-client-session
spoe-message ftcp
  event on-frontend-tcp-request
spoe-message btcp
  event on-backend-tcp-request
spoe-message fhttp
  args path=path method=method
  event on-frontend-http-request
spoe-message bhttp
  event on-backend-http-request
spoe-message server
  event on-server-session
spoe-message tcpres
  event on-tcp-response
spoe-message httpres
  args status=status
  event on-http-response
";

const ALL_EVENTS: &str = "messages client ftcp btcp fhttp bhttp server tcpres httpres";

/// A file with an engine whose agent has these lines; more sections follow.
fn engine(lines: &str, sections: &str) -> String {
    let file = scratch("spoe").join("engine.conf");
    let text = format!("spoe-agent ag\n use-backend agents\n option var-prefix p\n{lines}\n{sections}\n");
    std::fs::write(&file, text).expect("the temporary directory takes files");
    file.display().to_string()
}

/// A configuration with an engine in its frontend, whose server says `ok`.
struct Setting {
    front: String,
    back: String,
    agents: String,
    global: String,
}

impl Setting {
    fn new(engine: &str, front: &str, agent: u16) -> Setting {
        Setting {
            front: format!("filter spoe config {engine}\n {front}"),
            back: String::new(),
            agents: format!("server a 127.0.0.1:{agent}"),
            global: String::new(),
        }
    }

    fn text(&self, port: u16, origin: u16) -> String {
        let Setting { front, back, agents, global } = self;
        format!(
            "global\n nbthread 1\n stats socket runtime level admin\n {global}\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n {front}\n \
             default_backend b\nbackend b\n {back}\n server s 127.0.0.1:{origin}\nbackend agents\n mode spop\n {agents}\n"
        )
    }

    /// A program before an origin that says `ok`.
    fn run(&self) -> (Running, u16) {
        self.start(Origin::text("ok"))
    }

    fn start(&self, origin: Origin) -> (Running, u16) {
        let port = free_port();
        // Waiting for the port would be a stream of its own: the runtime socket tells as well.
        let weir = Weir::start(&self.text(port, origin.port()), &[]);
        assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
        (Running { weir, _origin: origin }, port)
    }
}

/// A program and its origin.
struct Running {
    weir: Weir,
    _origin: Origin,
}

impl std::ops::Deref for Running {
    type Target = Weir;

    fn deref(&self) -> &Weir {
        &self.weir
    }
}

/// What agents were told, by names of messages.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Notified>>>);

impl Told {
    fn add(&self, told: &Notified) {
        self.0.lock().expect("no test failed in it").push(told.clone());
    }

    fn take(&self) -> Vec<Notified> {
        std::mem::take(&mut self.0.lock().expect("no test failed in it"))
    }

    fn names(&self) -> Vec<String> {
        self.take().iter().map(|told| told.names().join("+")).collect()
    }
}

fn shown(response: Option<Response>, name: &str) -> String {
    response.expect("a response").header(name).unwrap_or("-").to_owned()
}

#[test]
fn an_agent_is_told_what_the_message_says_and_sets_variables() {
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
fn events_come_in_the_order_of_a_stream_to_the_engines_of_both_sides() {
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
    assert!(weir.messages().contains("is never sent by `l`") || weir.messages().contains("listen proxy"));
}

#[test]
fn streams_of_tcp_have_events_and_rules_act_on_the_answer() {
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
fn conditions_say_whether_a_message_is_sent_and_all_of_an_event_go_together() {
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
fn rules_send_groups_and_see_what_came_of_it() {
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

/// What agents do wrong, by the path that they are told.
fn misbehave(mut frames: Frames, told: &Notified) -> Option<Frames> {
    let Some(Value::Str(path)) = told.get("path") else {
        frames.send(&ack(told, &[]));
        return Some(frames);
    };
    let Notified { stream, frame: number, .. } = *told;
    match path.as_str() {
        "/silent" => {}
        "/close" => return None,
        "/bye" => {
            frames.send(&goodbye(77));
            return None;
        }
        "/normal-bye" => {
            frames.send(&goodbye(0));
            return None;
        }
        "/other-stream" => drop(frames.send(&frame(kind::ACK, stream + 2, number, b""))),
        "/other-frame" => drop(frames.send(&frame(kind::ACK, stream, number + 1, b""))),
        "/huge" => drop(frames.send(b"\xff\xff\xff\xffg")),
        "/half" => {
            frames.send(&ack(told, &[])[..6]);
            return None;
        }
        "/no-frame" => drop(frames.send(b"\0\0\0\x02\x67\0")),
        "/fragment" => {
            let mut bytes = ack(told, &[]);
            bytes[8] = 0;
            frames.send(&bytes);
        }
        "/hello-again" => drop(frames.send(&hello_frame(16380, ""))),
        "/unknown-frame" => drop(frames.send(&frame(99, stream, number, b"?")).send(&ack(told, &[]))),
        "/garbage" => drop(frames.send(&frame(kind::ACK, stream, number, b"\x01\x09garbage"))),
        "/partial" => {
            let payload =
                [actions(&[set(scope::TXN, "foo", 42)]), b"\x01\x03\x02\x03foo\x0f".to_vec()].concat();
            frames.send(&frame(kind::ACK, stream, number, &payload));
        }
        _ => drop(frames.send(&ack(told, &[set(scope::TXN, "foo", "ok")]))),
    }
    Some(frames)
}

#[test]
fn whatever_an_agent_does_the_request_goes_on_and_variables_tell() {
    let told = Told::default();
    let own = told.clone();
    let agent = Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        frames.greet(16380, "pipelining");
        while let Some(told) = frames.next_notified() {
            own.add(&told);
            match misbehave(frames, &told) {
                Some(next) => frames = next,
                None => return,
            }
        }
    });
    let lines = "messages fhttp httpres\n timeout processing 200ms\n option set-on-error err\n option set-process-time pt\n option set-total-time tt";
    let file = engine(lines, EVENTS);
    let front = "http-response set-header x-got \"%[var(txn.p.foo)] %[var(txn.p.err)]\"\n \
                 http-response set-header x-times \"%[var(txn.p.pt)] %[var(txn.p.tt)]\"";
    let (_weir, port) = Setting::new(&file, front, agent.port()).run();
    let cases = [
        ("/good", "ok ", 2),
        ("/silent", " 1", 1),
        ("/close", " 257", 1),
        ("/bye", " 333", 1),
        ("/normal-bye", " 257", 1),
        ("/other-stream", " 1", 1),
        ("/other-frame", " 1", 1),
        ("/huge", " 259", 1),
        ("/half", " 257", 1),
        ("/no-frame", " 260", 1),
        ("/fragment", " 266", 1),
        ("/hello-again", " 260", 1),
        ("/unknown-frame", " ", 2),
        ("/garbage", " ", 2),
        ("/partial", "42 ", 2),
        ("/good", "ok ", 2),
    ];
    for (path, wanted, events) in cases {
        told.take();
        let response = get(port, path).expect("a response");
        assert_eq!((response.status, response.text().as_str()), (200, "ok"), "{path}");
        assert_eq!(response.header("x-got").map(str::trim), Some(wanted.trim()), "{path}");
        let mut times = response.header("x-times").expect("times").split(' ').map(str::parse::<u64>);
        let (Some(Ok(last)), Some(Ok(all))) = (times.next(), times.next()) else { panic!("{path}") };
        assert!(last <= all && all < 20_000 && (wanted != " 1" || all >= 199), "{path}: {last} {all}");
        // A connection that had been idle is not to blame: what closes it is asked once more over
        // another.
        let names = told.names();
        assert!(names.len() == events || names.len() == events + 1, "{path}: {names:?}");
        assert_eq!(names.iter().any(|name| name == "httpres"), events == 2, "{path}: {names:?}");
    }
}

#[test]
fn an_error_ends_the_engine_for_the_transaction_unless_it_is_to_go_on() {
    for (option, wanted) in [("", "fhttp"), ("option continue-on-error", "fhttp httpres")] {
        let told = Told::default();
        let own = told.clone();
        let agent = Origin::raw(move |stream| {
            let mut frames = Frames::new(stream);
            frames.greet(16380, "");
            if let Some(told) = frames.next_notified() {
                own.add(&told);
            }
            frames.send(&goodbye(5));
        });
        let lines =
            format!("messages fhttp httpres\n timeout processing 10s\n option set-on-error err\n {option}");
        let front = "http-response set-header x-err %[var(txn.p.err)]";
        let setting = Setting::new(&engine(&lines, EVENTS), front, agent.port());
        let (_weir, port) = setting.run();
        assert_eq!(shown(get(port, "/"), "x-err"), "261", "{option}");
        assert_eq!(told.names().join(" "), wanted, "{option}");
    }
}

#[test]
fn without_a_server_that_can_be_reached_the_request_goes_on() {
    let closed = free_port();
    let lines = "messages fhttp\n timeout processing 10s\n option set-on-error err";
    let file = engine(lines, EVENTS);
    let front = "http-response set-header x-err %[var(txn.p.err)]";
    let mut setting = Setting::new(&file, front, closed);
    setting.agents.insert_str(0, "retries 0\n ");
    let (_weir, port) = setting.run();
    assert_eq!(shown(get(port, "/"), "x-err"), "257", "nobody listens");
    setting.agents.push_str(" disabled");
    let (weir, port) = setting.run();
    assert_eq!(shown(get(port, "/"), "x-err"), "257", "no server is up");
    // The other one is asked instead.
    let good = agent(|_| vec![]);
    let mut setting = Setting::new(&file, front, closed);
    setting.agents = format!(
        "retries 1\n option redispatch\n balance roundrobin\n server a 127.0.0.1:{closed}\n server b 127.0.0.1:{}",
        good.port()
    );
    drop(weir);
    let (_weir, port) = setting.run();
    for _ in 0..2 {
        assert_eq!(shown(get(port, "/"), "x-err"), "", "the other one answers");
    }
}

#[test]
fn what_does_not_fit_in_a_frame_is_not_sent() {
    let small = Origin::raw(|stream| {
        let mut frames = Frames::new(stream);
        frames.greet(256, "pipelining");
        while let Some(told) = frames.next_notified() {
            frames.send(&ack(&told, &[]));
        }
    });
    let lines = "messages fhttp\n timeout processing 10s\n option set-on-error err";
    let front = "http-response set-header x-err %[var(txn.p.err)]";
    let (_weir, port) = Setting::new(&engine(lines, EVENTS), front, small.port()).run();
    let long = format!("/{}", "x".repeat(300));
    for _ in 0..2 {
        assert_eq!(shown(get(port, &long), "x-err"), "3");
        assert_eq!(shown(get(port, "/short"), "x-err"), "");
    }
}

#[test]
fn a_handshake_says_who_asks_and_what_it_can_do() {
    for (lines, size, capabilities) in
        [("", 16380, "pipelining"), ("no option pipelining\n max-frame-size 300", 300, "")]
    {
        let (send, receive) = mpsc::channel();
        let agent = Origin::raw(move |stream| {
            let mut frames = Frames::new(stream);
            let _ = send.send(frames.greet(256, "pipelining"));
            while let Some(told) = frames.next_notified() {
                frames.send(&ack(&told, &[]));
            }
        });
        let file = engine(&format!("messages fhttp\n timeout processing 10s\n {lines}"), EVENTS);
        let (_weir, port) = Setting::new(&file, "", agent.port()).run();
        assert_eq!(get(port, "/").expect("a response").status, 200);
        let items = receive.recv_timeout(PATIENCE).expect("a connection").expect("a hello");
        let wanted = [
            ("supported-versions".to_owned(), "2.0".into()),
            ("max-frame-size".to_owned(), Value::Int(size)),
            ("capabilities".to_owned(), capabilities.into()),
        ];
        assert_eq!(items[..3], wanted);
        let Some((name, Value::Str(id))) = items.get(3) else { panic!("{items:?}") };
        assert!(name == "engine-id" && id.len() == 36, "{items:?}");
    }
}

/// Asks `count` times at once; the answers of the agent come when all are there.
fn at_once(
    capabilities: &'static str,
    lines: &str,
    together: bool,
    count: usize,
) -> (Origin, Vec<Option<Response>>) {
    let told = Arc::new((Mutex::new(0), std::sync::Condvar::new()));
    let go = Arc::new(AtomicBool::new(false));
    let (own, free) = (told.clone(), go.clone());
    let agent = Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        frames.greet(16380, capabilities);
        let mut waiting = Vec::new();
        while let Some(next) = frames.next_notified() {
            if free.load(SeqCst) {
                frames.send(&ack(&next, &[]));
                continue;
            }
            waiting.push(next);
            let (number, changed) = &*own;
            *number.lock().expect("no test failed in it") += 1;
            changed.notify_all();
            if !together || waiting.len() == count {
                let all = number.lock().expect("no test failed in it");
                drop(changed.wait_timeout_while(all, PATIENCE, |number| *number < count));
                // The last first.
                for next in waiting.drain(..).rev() {
                    let path = format!("{:?}", next.get("path"));
                    frames.send(&ack(&next, &[set(scope::TXN, "path", path.as_str())]));
                }
            }
        }
    });
    let file = engine(&format!("messages fhttp\n timeout processing 15s\n {lines}"), EVENTS);
    let front = "http-response set-header x-path %[var(txn.p.path)]";
    let (_weir, port) = Setting::new(&file, front, agent.port()).run();
    // The first is answered by itself, so that there is a connection.
    go.store(true, SeqCst);
    get(port, "/first").expect("a response");
    go.store(false, SeqCst);
    let ask = |at: usize| std::thread::spawn(move || get(port, &format!("/{at}")));
    let first = ask(0);
    let asked = |wanted: usize| eventually(|| *told.0.lock().expect("no test failed in it") >= wanted);
    assert!(asked(1));
    let others: Vec<_> = (1..count).map(ask).collect();
    let all = std::iter::once(first).chain(others).map(|one| one.join().expect("it ends")).collect();
    (agent, all)
}

#[test]
fn a_connection_carries_several_questions_if_both_sides_want_that() {
    let cases = [("pipelining", "", 1), ("", "", 4), ("pipelining", "no option pipelining", 4)];
    for (capabilities, lines, connections) in cases {
        let (agent, all) = at_once(capabilities, lines, connections == 1, 4);
        for (at, response) in all.into_iter().enumerate() {
            assert_eq!(shown(response, "x-path"), format!("Some(Str(\"/{at}\"))"), "each its own answer");
        }
        assert_eq!(agent.connections(), connections, "{capabilities} {lines}");
    }
}

#[test]
fn an_agent_that_hangs_costs_no_more_than_its_time_and_is_asked_again_when_it_is_well() {
    let hangs = Arc::new(AtomicBool::new(true));
    let own = hangs.clone();
    let agent = Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        frames.greet(16380, "pipelining");
        while let Some(told) = frames.next_notified() {
            if !own.load(SeqCst) {
                frames.send(&ack(&told, &[set(scope::TXN, "foo", "ok")]));
            }
        }
    });
    let lines = "messages fhttp\n timeout processing 100ms\n option set-on-error err";
    let front = "http-response set-header x-got %[var(txn.p.foo)]%[var(txn.p.err)]";
    let (weir, port) = Setting::new(&engine(lines, EVENTS), front, agent.port()).run();
    for _ in 0..12 {
        assert_eq!(shown(get(port, "/"), "x-got"), "1");
    }
    assert!(agent.connections() <= 5, "{} connections for 12 questions", agent.connections());
    hangs.store(false, SeqCst);
    assert!(eventually(|| shown(get(port, "/"), "x-got") == "ok"));
    assert!(eventually(|| weir.stat("agents,BACKEND", "scur") == "0"), "every place was given back");
    assert_eq!(weir.stat("agents,a", "scur"), "0");
}

#[test]
fn an_agent_that_says_nothing_at_all_is_left() {
    let agent = Origin::raw(|stream| {
        let mut frames = Frames::new(stream);
        while frames.next_frame().is_some() {}
    });
    let lines = "messages fhttp\n timeout processing 100ms\n option set-on-error err";
    let front = "http-response set-header x-got %[var(txn.p.err)]";
    let (_weir, port) = Setting::new(&engine(lines, EVENTS), front, agent.port()).run();
    for _ in 0..3 {
        assert_eq!(shown(get(port, "/"), "x-got"), "1");
    }
}

#[test]
fn a_connection_that_ended_while_it_was_idle_is_replaced() {
    let agent = Origin::raw(|stream| {
        let mut frames = Frames::new(stream);
        frames.greet(16380, "pipelining");
        if let Some(told) = frames.next_notified() {
            frames.send(&ack(&told, &[set(scope::TXN, "foo", "ok")]));
        }
        // It closes behind its first answer.
    });
    let lines = "messages fhttp\n timeout processing 10s";
    let front = "http-response set-header x-got %[var(txn.p.foo)]";
    let (_weir, port) = Setting::new(&engine(lines, EVENTS), front, agent.port()).run();
    for _ in 0..20 {
        assert_eq!(shown(get(port, "/"), "x-got"), "ok");
    }
}

#[test]
fn maxconn_of_the_agents_server_bounds_what_is_asked_at_once() {
    let agent = Origin::raw(|stream| {
        let mut frames = Frames::new(stream);
        frames.greet(16380, "pipelining");
        while frames.next_notified().is_some() {}
    });
    let lines = "messages fhttp\n timeout processing 300ms\n option set-on-error err";
    let front = "http-response set-header x-got %[var(txn.p.err)]";
    let mut setting = Setting::new(&engine(lines, EVENTS), front, agent.port());
    setting.agents.push_str(" maxconn 1");
    let (weir, port) = setting.run();
    let ask = || std::thread::spawn(move || shown(get(port, "/"), "x-got"));
    let all: Vec<_> = [(); 4].map(|()| ask()).into_iter().collect();
    for one in all {
        assert_eq!(one.join().expect("it ends"), "1", "late, in line or not");
    }
    assert_eq!(weir.stat("agents,a", "smax"), "1");
}

#[test]
fn agents_are_logged_about_as_haproxy_does() {
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    log.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let collector = log.local_addr().expect("an address").port();
    let agent = agent(|_| vec![]);
    let sections = format!("{EVENTS}\nspoe-group g\n messages m\nspoe-message m\n");
    let lines =
        format!("messages fhttp\n groups g\n timeout processing 10s\n log 127.0.0.1:{collector} local0");
    let front = "http-response send-spoe-group ag g\n http-response set-header x-id %rt";
    let mut setting = Setting::new(&engine(&lines, &sections), front, agent.port());
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
    // Errors are told in any case.
    let lines = format!("{lines}\n option dontlog-normal\n option continue-on-error");
    setting.front = format!("filter spoe config {}\n {front}", engine(&lines, &sections));
    setting.agents = format!("retries 0\n server a 127.0.0.1:{}", free_port());
    let (_weir, port) = setting.run();
    get(port, "/").expect("a response");
    assert_eq!(text(&line()), "<132> SPOE: [ag] <EVENT:on-frontend-http-request> st=257 1/1");
}

#[test]
fn variables_of_the_process_are_made_for_agents_that_are_trusted() {
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
fn a_filter_sequence_leaves_a_direction_out() {
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
fn requests_of_http2_are_asked_about_like_others() {
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
fn a_reload_in_place_asks_the_agents_of_the_new_configuration() {
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
    // Another server, and another message, in a file that the configuration only names.
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
fn haproxy_tells_an_agent_the_same() {
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
    // HAProxy 2.6 knows scopes alone, and no mode of agents.
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
fn an_idle_connection_ends_with_a_word() {
    let (send, receive) = mpsc::channel();
    let agent = Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        frames.greet(16380, "pipelining");
        while let Some(next) = frames.next_frame() {
            match next.kind {
                kind::NOTIFY => {
                    let answer = frame(kind::ACK, next.stream, next.frame, b"");
                    frames.send(&answer);
                }
                other => drop(send.send(other)),
            }
        }
    });
    let file = engine("messages fhttp\n timeout processing 10s", EVENTS);
    let mut setting = Setting::new(&file, "", agent.port());
    setting.agents.push_str(" pool-purge-delay 0");
    let (_weir, port) = setting.run();
    get(port, "/").expect("a response");
    assert_eq!(receive.recv_timeout(Duration::from_secs(20)), Ok(kind::HAPROXY_DISCONNECT));
}

#[test]
fn the_recipe_refuses_who_has_no_good_name() {
    let told = Told::default();
    let own = told.clone();
    let agent = agent(move |told| {
        own.add(told);
        let is_bad = told.get("agent") == Some(&"bad".into());
        vec![set(scope::SESS, "score", if is_bad { 10 } else { 80 })]
    });
    let (port, origin) = (free_port(), Origin::text("ok"));
    let folder = weir_tests::workspace().join("docs/recipes");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the recipe");
    let conf = scratch("recipe").join("ip-reputation.conf");
    let engine = read("ip-reputation.conf");
    std::fs::write(&conf, engine.replace("20ms", "10s")).expect("the temporary directory takes files");
    let text = read("ip-reputation.cfg")
        .replace("config ip-reputation.conf", &format!("config {}", conf.display()))
        .replace("bind :80", &format!("bind 127.0.0.1:{port}"))
        .replace("192.0.2.11:8080", &format!("127.0.0.1:{}", origin.port()))
        .replace("192.0.2.21:9000", &format!("127.0.0.1:{}", agent.port()))
        .replace("192.0.2.22:9000", &format!("127.0.0.1:{}", agent.port()));
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
