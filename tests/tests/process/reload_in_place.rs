//! In-place reload: the configuration is read again in the running process, and its unchanged parts are kept.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

use weir_tests::client::{Client, get};
use weir_tests::load::Load;
use weir_tests::multiplexed::Frames;
use weir_tests::reloading::{TOP, configuration, descriptors, reload};
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn fifty_reloads_lose_no_request_and_leak_nothing() {
    let origin = Origin::echo();
    let (port, other) = (free_port(), free_port());
    let text = |number: usize| {
        let bind = if number % 3 == 1 { format!("  bind 127.0.0.1:{other}\n") } else { String::new() };
        let more =
            if number % 4 == 1 { format!("  server t 127.0.0.1:{}\n", origin.port()) } else { String::new() };
        let extra = if number % 5 == 1 {
            format!("backend extra{number}\n  server e 127.0.0.1:1\n")
        } else {
            String::new()
        };
        configuration(&format!(
            "{extra}frontend f\n  bind 127.0.0.1:{port}\n{bind}  http-request set-header x-number {number}\n  default_backend b\n\
             backend b\n  timeout queue {}s\n  server s 127.0.0.1:{} maxconn 3\n{more}",
            number + 1,
            origin.port()
        ))
    };
    let weir = Weir::start(&text(0), &[port]);
    let loads = [Load::start(port, true), Load::start(port, false)];
    let mut early = None;
    for number in 1..=50 {
        loads.iter().for_each(|load| load.go_on(20));
        let said = reload(&weir, &text(number));
        assert!(said.ends_with("; nothing else") && said.contains("frontend f: "), "{said}");
        if number == 10 {
            early = Some((descriptors(&weir), weir.memory()));
        }
    }
    for load in loads {
        load.go_on(100);
        assert_eq!(load.end(), Vec::<String>::new());
    }
    let answer = get(port, "/").expect("an answer");
    assert!(answer.text().contains("x-number: 50"), "{}", answer.text());
    let (files, kilobytes) = early.expect("the tenth of fifty");
    assert!(eventually(|| descriptors(&weir) <= files), "{} descriptors after {files}", descriptors(&weir));
    // If each reload kept its plan, there would be forty.
    assert!(weir.memory() < kilobytes + 16_384, "{} kB after {kilobytes} kB", weir.memory());
}

#[test]
fn common_parts_live_on() {
    let origin = Origin::echo();
    let (port, other) = (free_port(), free_port());
    let text = |rest: &str, first: &str| {
        configuration(&format!(
            "{first}frontend f\n  bind 127.0.0.1:{port}\n  http-request track-sc0 src table t\n  http-request set-var(proc.seen) str(yes)\n  default_backend b\n\
             backend t\n  stick-table type ip size 100 expire 1h store http_req_cnt\n\
             backend b\n  server s 127.0.0.1:{} weight 10\n  server away 127.0.0.1:1 weight 20\n{rest}",
            origin.port()
        ))
    };
    let weir = Weir::start(&text("", ""), &[port]);
    weir.ask("set server b/away state maint");
    weir.ask("set weight b/s 7");
    let mut client = Client::connect(port);
    let mut ask_on =
        || client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("an answer").status;
    assert_eq!(ask_on(), 200);
    let before = weir.ask("show servers state");
    let requests = || weir.stat("f,FRONTEND", "req_tot").parse::<u32>().unwrap_or(0);
    let before_all = requests();
    // A section at the beginning would shift all ids and indices.
    let first = format!("frontend first\n  bind 127.0.0.1:{other}\n  default_backend b\n");
    let said = reload(&weir, &text("  server new 127.0.0.1:2 weight 0\n  retries 2\n", &first));
    assert!(said.contains("frontend first added"), "{said}");
    assert!(said.contains("backend b: server new added, retries 2 added"), "{said}");
    assert_eq!((ask_on(), ask_on()), (200, 200), "the client's connection goes on");
    assert_eq!(origin.connections(), 1, "and so does the server's");
    assert!(weir.ask("get weight b/s").starts_with("7 (initial 10)"));
    assert_eq!(weir.stat("b,away", "status"), "MAINT");
    assert_eq!(weir.stat("b,s", "stot"), "3", "what was counted is counted on");
    assert_eq!(requests(), before_all + 2);
    assert!(weir.ask("show table t").contains("http_req_cnt=3"), "{}", weir.ask("show table t"));
    assert!(weir.ask("get var proc.seen").contains("yes"));
    let after = weir.ask("show servers state");
    let numbers = |state: &str| -> Vec<String> {
        let rows = state.lines().filter(|line| line.contains(" s ") || line.contains(" away "));
        rows.map(|row| row.split(' ').take(4).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(numbers(&before), numbers(&after), "numbers stay");
    // A weight that has changed in the file is applied; an unchanged one is not.
    let said = reload(&weir, &text("", &first).replace("weight 10", "weight 30"));
    assert!(said.contains("server s "), "{said}");
    assert!(weir.ask("get weight b/s").starts_with("30 (initial 30)"));
    assert_eq!(ask_on(), 200);
    assert!(get(other, "/").is_some(), "sockets that were added take connections");
}

#[test]
fn requests_end_on_the_plan_they_started_with() {
    // An origin that answers when it is released.
    let (release, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let slow = Origin::start(move |head, _| {
        if head.contains("/slow") {
            let _ = wait.lock().expect("one at a time").recv();
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold".to_vec()
    });
    let fast = Origin::text("new");
    let (port, gone) = (free_port(), free_port());
    let old = configuration(&format!(
        "frontend f\n  bind 127.0.0.1:{port}\n  http-response set-header x-plan old\n  default_backend b\n\
         frontend g\n  bind 127.0.0.1:{gone}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
        slow.port()
    ));
    let new = configuration(&format!(
        "frontend f\n  bind 127.0.0.1:{port}\n  http-response set-header x-plan new\n  default_backend c\n\
         backend c\n  server s 127.0.0.1:{}\n",
        fast.port()
    ));
    let weir = Weir::start(&old, &[port, gone]);
    let mut kept = Client::connect(port);
    let mut left = Client::connect(gone);
    for client in [&mut kept, &mut left] {
        client.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    assert!(eventually(|| slow.connections() == 2));
    let said = reload(&weir, &new);
    assert!(said.contains("backend b removed") && said.contains("frontend g removed"), "{said}");
    // The removed frontend accepts no connections.
    assert!(eventually(|| TcpStream::connect(("127.0.0.1", gone)).is_err()));
    for _ in 0..2 {
        release.send(()).expect("the origin waits");
    }
    let answer = kept.response().expect("an answer");
    assert_eq!((answer.text().as_str(), answer.header("x-plan")), ("old", Some("old")));
    // Its next request is served by the new plan.
    let answer = kept.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("an answer");
    assert_eq!((answer.text().as_str(), answer.header("x-plan")), ("new", Some("new")));
    let answer = left.response().expect("an answer");
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("old", Some("close")));
    assert!(!weir.ask("show stat").contains("\nb,BACKEND"));
}

#[test]
fn streams_and_queues_survive_a_reload() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let tcp = listener.local_addr().expect("an address").port();
    let (release, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let origin = Origin::start(move |_, _| {
        let _ = wait.lock().expect("one at a time").recv();
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let (port, streams) = (free_port(), free_port());
    let text = |more: &str| {
        configuration(&format!(
            "listen l\n  bind 127.0.0.1:{port}\n  timeout queue 20s\n{more}  server s 127.0.0.1:{} maxconn 1\n\
             listen t\n  mode tcp\n  bind 127.0.0.1:{streams}\n{more}  server s 127.0.0.1:{tcp}\n",
            origin.port()
        ))
    };
    let weir = Weir::start(&text(""), &[port]);
    // The listener may be bound later, and an additional connection would be counted.
    let mut stream = None;
    eventually(|| {
        stream = TcpStream::connect(("127.0.0.1", streams)).ok();
        stream.is_some()
    });
    let mut stream = stream.expect("a connection");
    stream.write_all(b"before").expect("a stream");
    let (mut far, _) = listener.accept().expect("the other end");
    let mut bytes = [0; 6];
    far.read_exact(&mut bytes).expect("what was sent");
    // One is served, two wait.
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(port)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    assert!(eventually(|| weir.stat("l,s", "scur") == "1"));
    assert!(eventually(|| {
        let waiting = |line: &str| weir.stat(&format!("l,{line}"), "qcur").parse::<u32>().unwrap_or(0);
        waiting("s") + waiting("BACKEND") == 2
    }));
    let said = reload(&weir, &text("  retries 7\n"));
    assert!(said.contains("retries 7 added"), "{said}");
    for _ in 0..3 {
        release.send(()).expect("the origin waits");
    }
    for client in &mut clients {
        assert_eq!(client.response().map(|answer| answer.status), Some(200));
    }
    stream.write_all(b"after!").expect("the stream goes on");
    far.read_exact(&mut bytes).expect("what was sent");
    assert_eq!(&bytes, b"after!");
    assert_eq!(weir.stat("t,s", "scur"), "1");
}

#[test]
fn check_results_survive_a_reload() {
    let origin = Origin::text("here");
    let (port, down) = (free_port(), free_port());
    let text = |more: &str| {
        configuration(&format!(
            "listen l\n  bind 127.0.0.1:{port}\n  server up 127.0.0.1:{}\n  server down 127.0.0.1:{down} check inter 50ms fall 1 rise 1\n{more}",
            origin.port()
        ))
    };
    let weir = Weir::start(&text(""), &[port]);
    assert!(eventually(|| weir.stat("l,down", "status") == "DOWN"));
    reload(&weir, &text("  retries 5\n"));
    assert_eq!(weir.stat("l,down", "status"), "DOWN", "it is not tried anew by requests");
    let listener = TcpListener::bind(("127.0.0.1", down)).expect("its port");
    assert!(eventually(|| weir.stat("l,down", "status") == "UP"), "checks go on");
    drop(listener);
    reload(&weir, &text("  retries 6\n"));
    assert!(eventually(|| weir.stat("l,down", "status") == "DOWN"), "and on");
}

#[test]
fn http2_connections_move_to_the_new_plan() {
    let origin = Origin::echo();
    let port = free_port();
    let text = |value: &str| {
        configuration(&format!(
            "listen l\n  bind 127.0.0.1:{port} proto h2\n  http-response set-header x-plan {value}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ))
    };
    let weir = Weir::start(&text("one"), &[port]);
    let mut client = Frames::connect(port);
    client.get(1, "/");
    let (fields, _) = client.next_head();
    assert!(fields.contains(&"x-plan: one".to_owned()), "{fields:?}");
    reload(&weir, &text("two"));
    client.get(3, "/");
    let (fields, _) = client.next_head();
    assert!(fields.contains(&"x-plan: two".to_owned()), "{fields:?}");
}

#[test]
fn unchanged_peers_sessions_survive_a_reload() {
    let (front, ports) = (free_port(), [free_port(), free_port()]);
    let text = |own: usize, more: &str, table: &str| {
        let bind = if own == 0 { format!("frontend f\n  bind 127.0.0.1:{front}\n") } else { String::new() };
        configuration(&format!(
            "peers P\n  peer A 127.0.0.1:{}\n  peer B 127.0.0.1:{}\n{bind}{more}\
             backend t\n  stick-table type string size {table} expire 1h peers P store gpc0\n",
            ports[0], ports[1]
        ))
    };
    let first = Weir::start_with(&text(0, "", "1k"), &["-db", "-L", "A"], &[front]);
    let second = Weir::start_with(&text(1, "", "1k"), &["-db", "-L", "B"], &[]);
    let knows = |weir: &Weir, key: &str| weir.ask("show table t").contains(&format!("key={key} "));
    first.ask("set table t key before data.gpc0 1");
    assert!(eventually(|| knows(&second, "before")), "{}", first.ask("show peers"));
    // Returns how often the other one has had a session with this one.
    let sessions = || {
        let shown = second.ask("show peers");
        let own = shown.split("id=A(").nth(1).unwrap_or_default();
        own.split_whitespace().find_map(|word| word.strip_prefix("new_conn=")).unwrap_or_default().to_owned()
    };
    let before = sessions();
    assert_ne!(before, "", "{}", second.ask("show peers"));
    // Another backend shifts the section's index in the plan.
    let said = reload(&first, &text(0, "backend new\n  server s 127.0.0.1:1\n", "1k"));
    assert!(said.contains("backend new added"), "{said}");
    first.ask("set table t key after data.gpc0 2");
    second.ask("set table t key back data.gpc0 3");
    assert!(eventually(|| knows(&second, "after") && knows(&first, "back")), "{}", first.ask("show peers"));
    for wrong in [
        text(0, "", "2k"),
        text(0, "", "1k").replace("peer B 127.0.0.1", "peer B 127.0.0.2"),
        text(0, "backend u\n  stick-table type string size 1k peers P store gpc0\n", "1k"),
        text(0, "", "1k").replace(" peers P store", " store"),
    ] {
        let said = reload(&first, &wrong);
        assert!(said.contains("cannot change: `peers` sections"), "{said}");
    }
    first.ask("set table t key still data.gpc0 4");
    assert!(eventually(|| knows(&second, "still")));
    assert_eq!(sessions(), before, "{}", second.ask("show peers"));
}

#[test]
fn unchanged_reverse_connections_survive_a_reload() {
    let (origin, public, private, dial) = (Origin::echo(), free_port(), free_port(), free_port());
    let top = TOP.replacen("global\n", "global\n  expose-experimental-directives\n", 1);
    let edge = Weir::start(
        &format!(
            "{top}frontend public\n  bind 127.0.0.1:{public}\n  default_backend b\n\
             frontend private\n  bind 127.0.0.1:{private} proto h2\n  tcp-request session attach-srv b/s\n\
             backend b\n  server s rhttp@\n"
        ),
        &[public, private],
    );
    let text = |connections: usize, answer: &str| {
        format!(
            "{top}frontend f\n  bind rhttp@out/s nbconn {connections}\n  http-request set-header x-plan {answer}\n  default_backend o\n\
             frontend seen\n  bind 127.0.0.1:{dial}\n  http-request return status 200\n\
             backend out\n  server s 127.0.0.1:{private} proto h2\nbackend o\n  server o 127.0.0.1:{}\n",
            origin.port()
        )
    };
    let device = Weir::start(&text(2, "first"), &[dial]);
    let answer = || get(public, "/x").map(|response| response.text()).unwrap_or_default();
    assert!(eventually(|| answer().contains("x-plan: first")), "{}", device.messages());
    let opened = || device.stat("f,FRONTEND", "stot");
    assert!(eventually(|| opened() == "2"));
    for plan in ["second", "third"] {
        let said = reload(&device, &text(2, plan));
        assert!(said.contains("frontend f: 1 rule changed"), "{said}");
        let wanted = format!("x-plan: {plan}");
        assert!(eventually(|| answer().contains(&wanted)), "{}", answer());
    }
    assert_eq!(opened(), "2", "no connection was opened anew");
    let said = reload(&device, &text(3, "fourth"));
    assert!(said.contains("cannot change: reverse HTTP listeners"), "{said}");
    // A connection that ends is opened again by the plan in use.
    edge.ask("disable server b/s");
    edge.ask("shutdown sessions server b/s");
    edge.ask("enable server b/s");
    assert!(eventually(|| answer().contains("x-plan: third")), "{}", answer());
}
