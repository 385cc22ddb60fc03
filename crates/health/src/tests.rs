//! Claims about whole checks, against servers of this process on ports the kernel chooses.

#![allow(clippy::type_complexity, reason = "tables of cases")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::plan::server::{
    CheckKind, CheckSettings, CheckStep, ExpectBytes, HttpExpect, HttpExpectWhat, SendProxy,
};
use regex::bytes::Regex;
use state::proxy::ProxySeed;
use state::server::{Demand, Operational, ServerAddress, ServerSeed};
use state::{Mode, Proxy, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::probe::Outcome;
use crate::{Context, Follower, Subject, probe, verdict, watch};

/// Runs `test` as a worker does: one thread, local tasks, the worker's timers.
fn worker<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(runtime::timer::drive());
        tokio::time::timeout(Duration::from_secs(20), test).await.expect("done in time")
    })
}

/// A server that reads once and answers each connection with `answer`; what it read goes to the returned list.
async fn fake(answer: Option<&'static [u8]>) -> (SocketAddr, Rc<RefCell<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let list = heard.clone();
    tokio::task::spawn_local(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let list = list.clone();
            tokio::task::spawn_local(async move {
                let mut room = [0; 4096];
                let read = socket.read(&mut room).await.unwrap_or(0);
                list.borrow_mut().push(String::from_utf8_lossy(&room[..read]).into_owned());
                match answer {
                    Some(answer) => {
                        let _ = socket.write_all(answer).await;
                    }
                    // Silence, until the other side goes.
                    None => while !matches!(socket.read(&mut room).await, Ok(0) | Err(_)) {},
                }
            });
        }
    });
    (address, heard)
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

type Told = Arc<Mutex<Vec<(u8, String)>>>;

fn context() -> (Rc<Context>, Told) {
    let told = Told::default();
    let list = told.clone();
    let notify = move |_: &Proxy, level: u8, text: &str| list.lock().unwrap().push((level, text.to_owned()));
    let context = Context {
        notify: Arc::new(notify),
        node: "n1".into(),
        spread: 0,
        buffer: 16_384,
        followers: HashMap::new(),
    };
    (Rc::new(context), told)
}

fn new_server(name: &str, address: SocketAddr) -> Arc<Server> {
    Server::new(ServerSeed {
        id: 1,
        name: name.into(),
        proxy: "be".into(),
        backup: false,
        maxconn: 0,
        minconn: 0,
        maxqueue: 0,
        address: ServerAddress::Ip(address),
        weight: 1,
        disabled: false,
        checked: true,
    })
}

fn new_proxy(servers: &[Arc<Server>]) -> Arc<Proxy> {
    let proxy = Proxy::new(ProxySeed {
        id: 3,
        name: "be".into(),
        mode: Mode::Http,
        is_frontend: false,
        is_backend: true,
        maxconn: 0,
        session_limit: 0,
        disabled: false,
    });
    proxy.servers.store(Arc::new(servers.to_vec()));
    Arc::new(proxy)
}

fn subject(address: SocketAddr, kind: CheckKind) -> Subject {
    let server = new_server("s1", address);
    let subject = Subject {
        proxy: new_proxy(std::slice::from_ref(&server)),
        server,
        settings: CheckSettings {
            inter: Duration::from_millis(300),
            fastinter: Some(Duration::from_millis(5)),
            downinter: Some(Duration::from_millis(5)),
            rise: 2,
            fall: 3,
            address: None,
            port: None,
            send_proxy: false,
            timeout: Some(Duration::from_millis(100)),
            connect_timeout: None,
            kind: Arc::new(kind),
            log: false,
            disable_on_404: false,
            send_state: false,
            initially_up: true,
        },
        slow_start: None,
        shutdown_when_down: false,
        shutdown_backups_when_up: false,
        source: None,
        namespace: None,
        send_proxy: SendProxy::None,
    };
    let health = &subject.server.health;
    for (value, number) in [(&health.rise, 2), (&health.fall, 3), (&health.level, 2)] {
        value.store(number, Relaxed);
    }
    subject
}

fn http(expect: Vec<HttpExpect>) -> CheckKind {
    CheckKind::Http {
        method: "OPTIONS".into(),
        uri: "/".into(),
        version: "HTTP/1.0".into(),
        headers: vec![],
        body: Box::default(),
        expect,
    }
}

fn rule(negate: bool, what: HttpExpectWhat) -> Vec<HttpExpect> {
    vec![HttpExpect { negate, what }]
}

fn told(outcome: &Outcome) -> (&'static str, Option<u32>, &str) {
    (outcome.status, outcome.code, &outcome.info)
}

#[test]
fn each_answer_to_an_http_check_has_haproxys_result() {
    let body = |text: &str| HttpExpectWhat::Body(text.as_bytes().into());
    let regex = |text: &str| Regex::new(text).unwrap();
    #[rustfmt::skip]
    let cases: Vec<(Option<&'static [u8]>, CheckKind, (&str, Option<u32>, &str))> = vec![
        (Some(b"HTTP/1.0 200 OK\r\n\r\n"),              http(vec![]), ("L7OK", Some(200), "")),
        (Some(b"HTTP/1.0 302 Found\nA: b\n\n"),         http(vec![]), ("L7OK", Some(302), "")),
        (Some(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 N\r\n\r\n"), http(vec![]), ("L7OK", Some(204), "")),
        (Some(b"HTTP/1.0 404 Not Found\r\n\r\n"),       http(vec![]), ("L7STS", Some(404), "Not Found")),
        (Some(b"HTTP/1.0 503 Down For It\r\n\r\n"),     http(vec![]), ("L7STS", Some(503), "Down For It")),
        (Some(b"garbage\r\n\r\n"),                      http(vec![]), ("L7RSP", None, "")),
        (Some(b""),                                     http(vec![]), ("L7RSP", None, "")),
        (None,                                          http(vec![]), ("L7TOUT", None, "")),
        (Some(b"HTTP/1.0 503 X\r\n\r\n"), http(rule(false, HttpExpectWhat::Status(vec![(200, 200), (500, 503)]))), ("L7OK", Some(503), "")),
        (Some(b"HTTP/1.0 200 OK\r\n\r\n"), http(rule(true, HttpExpectWhat::Status(vec![(200, 200)]))), ("L7STS", Some(200), "OK")),
        (Some(b"HTTP/1.0 204 N\r\n\r\n"), http(rule(false, HttpExpectWhat::StatusRegex(regex("^20[0-5]$")))), ("L7OK", Some(204), "")),
        (Some(b"HTTP/1.0 200 OK\r\n\r\nhello"), http(rule(false, body("ell"))), ("L7OK", Some(200), "")),
        (Some(b"HTTP/1.0 200 OK\r\n\r\nhello"), http(rule(false, body("nope"))), ("L7RSP", None, "HTTP content check did not match")),
        (Some(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), http(rule(false, body("hello"))), ("L7OK", Some(200), "")),
        (Some(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello"), http(rule(true, HttpExpectWhat::BodyRegex(regex("l+o")))), ("L7OK", Some(200), "")),
        (Some(b"HTTP/1.0 200 OK\r\n\r\nhello"), http(rule(true, HttpExpectWhat::BodyRegex(regex("l+o")))), ("L7RSP", None, "HTTP check matched unwanted content")),
    ];
    worker(async {
        for (answer, kind, wanted) in cases {
            let (address, heard) = fake(answer).await;
            let outcome = probe::run(&subject(address, kind), &context().0).await;
            assert_eq!(told(&outcome), wanted, "{:?}", answer.map(String::from_utf8_lossy));
            assert_eq!(heard.borrow()[0], "OPTIONS / HTTP/1.0\r\n\r\n");
        }
        let outcome = probe::run(&subject(nobody(), http(vec![])), &context().0).await;
        assert_eq!(told(&outcome), ("L4CON", None, "ECONNREFUSED returned by OS"));
    });
}

#[test]
fn a_request_says_what_was_configured_and_how_the_server_stands() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.1 200 OK\r\n\r\n")).await;
        let mut subject = subject(
            address,
            CheckKind::Http {
                method: "POST".into(),
                uri: "/up".into(),
                version: "HTTP/1.1".into(),
                headers: vec![("Host".into(), "example.org".into())],
                body: b"body".to_vec().into(),
                expect: vec![],
            },
        );
        subject.settings.send_state = true;
        subject.send_proxy = SendProxy::V1;
        probe::run(&subject, &context().0).await;
        let heard = heard.borrow();
        let (proxy, request) = heard[0].split_once("\r\n").unwrap();
        assert!(proxy.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{proxy}");
        let port = address.port();
        // The header and the request may come in one read or two.
        assert!(
            request.is_empty()
                || request
                    == format!(
                        "POST /up HTTP/1.1\r\nHost: example.org\r\nx-haproxy-server-state: UP 1/3; address=127.0.0.1; \
                         port={port}; name=be/s1; node=n1; weight=1/1; scur=0/0; qcur=0\r\ncontent-length: 4\r\n\
                         connection: close\r\n\r\nbody"
                    ),
            "{request}"
        );
    });
}

#[test]
fn connections_and_scripts_have_haproxys_results() {
    let send = |bytes: &[u8]| CheckStep::Send(bytes.into());
    let expect = |negate, text: &str| CheckStep::Expect {
        negate,
        min_recv: None,
        what: ExpectBytes::Bytes(text.as_bytes().into()),
    };
    #[rustfmt::skip]
    let cases: Vec<(Option<&'static [u8]>, Vec<CheckStep>, (&str, Option<u32>, &str))> = vec![
        (Some(b"hello"), vec![send(b"GET"), expect(false, "hello")],      ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"hello"), vec![send(b"GET"), expect(false, "nope")],       ("L7RSP", None, "TCPCHK did not match content 'nope' at step 2")),
        (Some(b"hello"), vec![send(b"GET"), expect(true, "hell")],        ("L7RSP", None, "TCPCHK matched unwanted content 'hell' at step 2")),
        (Some(b"hello"), vec![send(b"GET"), CheckStep::Comment("mine".into()), expect(false, "nope")],
            ("L7RSP", None, "TCPCHK did not match content 'nope' at step 2 comment: 'mine'")),
        (Some(b""),      vec![send(b"GET"), expect(false, "x")],          ("L7RSP", None, "TCPCHK got an empty response at step 2")),
        (None,           vec![send(b"GET"), expect(false, "nope")],       ("L7TOUT", None, " at step 2 of tcp-check (expect string 'nope')")),
        (None,           vec![],                                         ("L4OK", None, "")),
        (Some(b"hello"), vec![send(b"GET"), expect(true, "nope")],        ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"hello"), vec![send(b"GET"), CheckStep::Expect { negate: false, min_recv: Some(3), what: ExpectBytes::Bytes(b"nope".to_vec().into()) }],
            ("L7RSP", None, "TCPCHK did not match content 'nope' at step 2")),
        (Some(b"abc"),   vec![send(b"GET"), CheckStep::Expect { negate: false, min_recv: None, what: ExpectBytes::Regex(Regex::new("^a.c$").unwrap()) }],
            ("L7OK", Some(0), "(tcp-check)")),
    ];
    worker(async {
        for (answer, steps, wanted) in cases {
            let (address, _) = fake(answer).await;
            let outcome = probe::run(&subject(address, CheckKind::Script(steps)), &context().0).await;
            assert_eq!(told(&outcome), wanted);
        }
        let port = nobody().port();
        let (address, _) = fake(None).await;
        let steps = vec![CheckStep::Connect { port: Some(port), send_proxy: false }];
        let outcome = probe::run(&subject(address, CheckKind::Script(steps)), &context().0).await;
        let text = format!("ECONNREFUSED returned by OS at step 1 of tcp-check (connect port {port})");
        assert_eq!(told(&outcome), ("L4CON", None, text.as_str()));

        let (address, _) = fake(None).await;
        let mut tcp = subject(address, CheckKind::Tcp);
        assert_eq!(told(&probe::run(&tcp, &context().0).await), ("L4OK", None, ""));
        tcp.server.health.port.store(u32::from(nobody().port()), Relaxed);
        assert_eq!(probe::run(&tcp, &context().0).await.status, "L4CON", "the port set at run time counts");
        tcp.server.health.port.store(0, Relaxed);
        tcp.settings.port = Some(nobody().port());
        assert_eq!(probe::run(&tcp, &context().0).await.status, "L4CON", "the check's own port counts");
    });
}

fn messages(told: &Told) -> Vec<(u8, String)> {
    std::mem::take(&mut *told.lock().unwrap())
}

#[test]
fn rise_and_fall_decide_and_every_change_is_told_once() {
    let (context, list) = context();
    let mut subject = subject(nobody(), CheckKind::Tcp);
    subject.settings.log = false;
    let health = &subject.server.health;
    let step = |status| verdict::apply(&subject, &Outcome::new(status, None, ""), &context);
    let state = || (health.level.load(Relaxed), subject.server.operational());
    step("L4OK");
    assert_eq!(state(), (4, Operational::Running));
    step("L4CON");
    step("L4CON");
    assert_eq!(state(), (2, Operational::Running));
    assert!(messages(&list).is_empty());
    step("L4CON");
    assert_eq!((state(), health.failed.load(Relaxed)), ((0, Operational::Stopped), 3));
    let down = "Server be/s1 is DOWN, reason: Layer4 connection problem, check duration: 0ms. 0 active and 0 backup \
                servers left. 0 sessions active, 0 requeued, 0 remaining in queue.";
    assert_eq!(
        messages(&list),
        [(1, down.to_owned()), (0, "backend be has no server available!".to_owned())]
    );
    step("L4CON");
    step("L4OK");
    assert_eq!(state(), (1, Operational::Stopped));
    assert!(messages(&list).is_empty());
    step("L4OK");
    assert_eq!((state(), health.failed.load(Relaxed)), ((4, Operational::Running), 3));
    let up = "Server be/s1 is UP, reason: Layer4 check passed, check duration: 0ms. 1 active and 0 backup servers \
              online. 0 sessions requeued, 0 total in queue.";
    assert_eq!(messages(&list), [(5, up.to_owned())]);
}

#[test]
fn logged_checks_read_as_haproxys() {
    let (context, list) = context();
    let mut subject = subject(nobody(), CheckKind::Tcp);
    subject.settings.log = true;
    verdict::apply(&subject, &Outcome::new("L7OK", Some(200), ""), &context);
    verdict::apply(&subject, &Outcome::new("L7OK", Some(200), ""), &context);
    verdict::apply(&subject, &Outcome::new("L7STS", Some(503), "Down \"For\" It"), &context);
    let texts: Vec<String> = messages(&list).into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        texts,
        [
            "Health check for server be/s1 succeeded, reason: Layer7 check passed, code: 200, check duration: 0ms, \
             status: 3/3 UP.",
            "Health check for server be/s1 failed, reason: Layer7 wrong status, code: 503, info: \"Down .For. It\", \
             check duration: 0ms, status: 2/3 UP.",
        ]
    );
}

#[test]
fn a_404_takes_a_running_server_out_softly_and_a_success_brings_it_back() {
    let (context, list) = context();
    let mut subject = subject(nobody(), CheckKind::Tcp);
    subject.settings.disable_on_404 = true;
    let step = |status| verdict::apply(&subject, &Outcome::new(status, Some(404), ""), &context);
    step("L7OKC");
    assert_eq!(subject.server.operational(), Operational::Stopping);
    assert!(subject.server.is_up() && subject.server.effective_weight() == 0);
    step("L7OK");
    assert_eq!(subject.server.operational(), Operational::Running);
    let texts = messages(&list);
    assert!(texts[0].1.starts_with("Server be/s1 is stopping, reason: "), "{texts:?}");
    assert!(texts.iter().any(|(_, text)| text.starts_with("Server be/s1 is UP, ")));
}

#[test]
fn servers_that_track_follow() {
    let (_, list) = context();
    let notified = list.clone();
    let subject = subject(nobody(), CheckKind::Tcp);
    let follower = new_server("s2", nobody());
    let proxy = new_proxy(std::slice::from_ref(&follower));
    let entry = Follower { proxy, server: follower.clone(), slow_start: None };
    let context = Rc::new(Context {
        notify: Arc::new(move |_: &Proxy, level, text: &str| {
            notified.lock().unwrap().push((level, text.to_owned()))
        }),
        node: "".into(),
        spread: 0,
        buffer: 16_384,
        followers: HashMap::from([(Arc::as_ptr(&subject.server), vec![entry])]),
    });
    verdict::apply(&subject, &Outcome::new("L4CON", None, ""), &context);
    assert_eq!(follower.operational(), Operational::Stopped);
    assert!(
        messages(&list).iter().any(|(_, text)| text.starts_with("Server be/s2 is DOWN via be/s1. 0 active"))
    );
    verdict::apply(&subject, &Outcome::new("L4OK", None, ""), &context);
    verdict::apply(&subject, &Outcome::new("L4OK", None, ""), &context);
    assert_eq!(follower.operational(), Operational::Running);
}

#[test]
fn real_traffic_can_bring_a_server_down() {
    let (context, _) = context();
    let subject = subject(nobody(), CheckKind::Tcp);
    let health = &subject.server.health;
    verdict::apply(&subject, &Outcome::new("L4OK", None, ""), &context);
    verdict::meet(&subject, Demand::FailCheck, &context);
    assert_eq!(health.level.load(Relaxed), 3);
    verdict::meet(&subject, Demand::SuddenDeath, &context);
    assert_eq!((health.level.load(Relaxed), subject.server.operational()), (2, Operational::Running));
    verdict::meet(&subject, Demand::MarkDown, &context);
    assert_eq!((health.level.load(Relaxed), subject.server.operational()), (0, Operational::Stopped));
    for (ok, errors) in [(false, 1), (false, 2), (true, 0), (false, 1)] {
        health.observe(ok, 3, Demand::MarkDown);
        assert_eq!(health.errors.load(Relaxed), errors);
    }
}

/// Waits until `done`, letting other tasks run.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_watched_server_goes_down_and_comes_back_with_its_checks() {
    worker(async {
        let (context, list) = context();
        let (good, heard) = fake(Some(b"HTTP/1.0 200 OK\r\n\r\n")).await;
        let mut subject = subject(good, http(vec![]));
        subject.slow_start = Some(Duration::from_millis(50));
        let server = subject.server.clone();
        let task = tokio::task::spawn_local(watch::watch(subject, context, Duration::ZERO));
        until(|| server.health.last.load().status == "L7OK").await;
        assert_eq!(server.health.level.load(Relaxed), 4);
        server.address.store(Arc::new(ServerAddress::Ip(nobody())));
        server.health.demand(Demand::FastInter);
        until(|| server.operational() == Operational::Stopped).await;
        server.address.store(Arc::new(ServerAddress::Ip(good)));
        until(|| server.operational() == Operational::Starting).await;
        assert!(server.ramp() < 100);
        until(|| server.operational() == Operational::Running).await;
        assert_eq!(server.ramp(), 100);
        assert!(watch::is_due(&server));
        server.change_admin(state::Admin::FORCED_MAINT, 0, 0);
        assert!(!watch::is_due(&server), "nobody is asked in maintenance");
        assert!(heard.borrow().len() > 1);
        task.abort();
        assert_eq!(messages(&list).iter().filter(|(_, text)| text.contains("s1 is DOWN")).count(), 1);
    });
}

#[test]
fn an_agent_sets_weight_limit_and_state() {
    worker(async {
        let (context, list) = context();
        let (address, heard) = fake(Some(b"75%,maxconn:30,drain,down # sick\n")).await;
        let mut subject = subject(nobody(), CheckKind::Tcp);
        subject.settings.address = Some(address.ip());
        subject.settings.port = Some(address.port());
        let server = subject.server.clone();
        server.agent_checked.store(true, Relaxed);
        server.agent.level.store(1, Relaxed);
        server.set_weight(100);
        let task = tokio::task::spawn_local(crate::agent::watch(
            subject,
            b"pouet".to_vec().into(),
            context,
            Duration::ZERO,
        ));
        until(|| server.operational() == Operational::Stopped).await;
        task.abort();
        assert!(server.agent_says_down() && server.admin().draining());
        // The initial weight is 1, of which three quarters are nothing.
        assert_eq!((server.user_weight(), server.maxconn.load(Relaxed)), (0, 30));
        assert_eq!(server.agent.last.load().status, "L7STS");
        assert_eq!(heard.borrow()[0], "pouet");
        assert!(messages(&list).iter().any(|(_, text)| text.contains("info: \"agent reports down (sick)\"")));
    });
}
