//! Agents that hang, die, violate the protocol, or take one query at a time: the outcome of their queries and connections.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use weir_tests::agent::{
    Frames, Notified, Value, ack, actions, agent, frame, goodbye, greeted, hello_frame, kind, scope, set,
    unset,
};
use weir_tests::client::{Client, Response, exchange, get};
use weir_tests::spoe::{EVENTS, Setting, Told, engine, shown};
use weir_tests::{Origin, PATIENCE, Scratch, eventually, free_port};

/// Misbehaves in the way that the path names.
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
fn agent_failures_do_not_stop_requests_and_set_variables() {
    let told = Told::default();
    let own = told.clone();
    let agent = greeted(16380, "pipelining", move |mut frames| {
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
        // If a connection that had been idle is closed, the query is sent again over another.
        let names = told.names();
        assert!(names.len() == events || names.len() == events + 1, "{path}: {names:?}");
        assert_eq!(names.iter().any(|name| name == "httpres"), events == 2, "{path}: {names:?}");
    }
}

#[test]
fn each_request_gets_its_own_answer() {
    // This agent acknowledges the notifications that have arrived in reverse order.
    let agent = greeted(16380, "pipelining", |mut frames| {
        let (send, receive) = mpsc::channel::<Notified>();
        let mut output = frames.stream().try_clone().expect("a socket");
        let writer = std::thread::spawn(move || {
            let (mut late, mut count) = (Vec::new(), 0);
            while let Ok(first) = receive.recv() {
                let all: Vec<Notified> = std::iter::once(first).chain(receive.try_iter()).collect();
                for told in all.into_iter().rev() {
                    let Some(Value::Str(path)) = told.get("path") else { return };
                    count += 1;
                    let bytes = ack(&told, &[set(scope::TXN, "foo", path.as_str())]);
                    if path.ends_with("late") {
                        late.push((count + 200, bytes));
                        continue;
                    }
                    let due = late.extract_if(.., |(due, _)| *due <= count);
                    let mut all: Vec<u8> = due.flat_map(|(_, bytes)| bytes).collect();
                    all.extend(bytes);
                    if output.write_all(&all).is_err() {
                        return;
                    }
                }
            }
        });
        while let Some(told) = frames.next_notified() {
            if send.send(told).is_err() {
                break;
            }
        }
        drop(send);
        drop(writer.join());
    });
    let file = engine("messages fhttp\n timeout processing 2s\n option set-on-error err", EVENTS);
    let front = "http-request return status 200 hdr x-got \"%[var(txn.p.foo)] %[var(txn.p.err)]\"";
    let (_weir, port) = Setting::new(&file, front, agent.port()).run();
    let ask = move |client: usize| {
        let mut connection = Client::connect(port);
        let mut others = Vec::new();
        for number in 0..300 {
            let is_late = client == 0 && (number == 20 || number == 60);
            let path = format!("/{client}/{number}{}", if is_late { "late" } else { "" });
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let got = shown(connection.response(), "x-got");
            if got.trim() != path && !(is_late && got.trim() == "1") {
                others.push(format!("{path}: {got}"));
            }
        }
        others
    };
    let clients: Vec<_> = (0..8).map(|client| std::thread::spawn(move || ask(client))).collect();
    for client in clients {
        assert_eq!(client.join().expect("a client"), Vec::<String>::new());
    }
}

#[test]
fn errors_disable_the_engine_unless_continue_on_error() {
    for (option, wanted) in [("", "fhttp"), ("option continue-on-error", "fhttp httpres")] {
        let told = Told::default();
        let own = told.clone();
        let agent = greeted(16380, "", move |mut frames| {
            if let Some(told) = frames.next_notified() {
                own.add(&told);
            }
            frames.send(&goodbye(5));
        });
        let lines =
            format!("messages fhttp httpres\n timeout processing 10s\n option set-on-error err\n {option}");
        let front = "http-response set-header x-err %[var(txn.p.err)]";
        let file = engine(&lines, EVENTS);
        let setting = Setting::new(&file, front, agent.port());
        let (_weir, port) = setting.run();
        assert_eq!(shown(get(port, "/"), "x-err"), "261", "{option}");
        assert_eq!(told.names().join(" "), wanted, "{option}");
    }
}

#[test]
fn unreachable_agents_do_not_stop_requests() {
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
    // The other agent is queried instead.
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
fn oversized_messages_are_not_sent() {
    let small = greeted(256, "pipelining", |mut frames| {
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
fn bodies_are_shortened_to_fit_in_a_frame() {
    let told = Told::default();
    for (line, most) in [("", 16_380), ("max-frame-size 1000", 1000)] {
        let own = told.clone();
        let agent = greeted(most as u32, "pipelining", move |mut frames| {
            while let Some(told) = frames.next_notified() {
                own.add(&told);
                frames.send(&ack(&told, &[set(scope::TXN, "foo", "seen")]));
            }
        });
        let agent_lines =
            format!("messages body\n timeout processing 10s\n option set-on-error err\n {line}");
        let message =
            "spoe-message body\n args path=path body=req.body method=method\n event on-frontend-http-request";
        let front = "option http-buffer-request\n http-response set-header x-got \"%[var(txn.p.foo)] %[var(txn.p.err)]\"";
        let file = engine(&agent_lines, message);
        let (_weir, port) = Setting::new(&file, front, agent.port()).run();
        for size in [10, 900, 1000, 15_000, 16_300, 16_384, 40_000] {
            told.take();
            let body: String = (0..size).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
            let request = format!(
                "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n{body}"
            );
            let got = shown(exchange(port, &request), "x-got");
            assert_eq!(got.trim(), "seen", "{line} {size}");
            let asked = told.take().remove(0);
            let Some(Value::Bin(sent)) = asked.get("body") else { panic!("{size}: {asked:?}") };
            assert!(body.as_bytes().starts_with(sent), "{line} {size}");
            assert!(
                sent.len() == size || sent.len() > most - 100 && sent.len() < most,
                "{line} {size}: {}",
                sent.len()
            );
            assert_eq!(asked.get("method"), Some(&"POST".into()), "what follows is whole");
        }
    }
}

#[test]
fn scripts_read_variables_that_only_agents_name() {
    let agent = agent(|_| {
        let mut all: Vec<_> = (0..3)
            .map(|at| set([scope::SESS, scope::TXN, scope::REQ][at], "page", ["a", "b", "c"][at]))
            .collect();
        all.extend([set(scope::TXN, "gone", "d"), unset(scope::TXN, "gone")]);
        all
    });
    let script = Scratch::holding(
        "read.lua",
        "core.register_action('read', { 'http-req' }, function(txn)
            local got = ''
            for _, name in ipairs({ 'sess.p.page', 'txn.p.page', 'req.p.page', 'txn.p.gone', 'txn.p.never' }) do
                got = got .. tostring(txn:get_var(name)) .. ' '
            end
            txn:set_var('txn.got', got)
        end)",
    );
    let file = engine("messages fhttp\n timeout processing 10s", EVENTS);
    let front = "http-request lua.read\n http-response set-header x-got %[var(txn.got)]";
    let mut setting = Setting::new(&file, front, agent.port());
    setting.global = format!("lua-load {}", script.display());
    let (_weir, port) = setting.run();
    for _ in 0..2 {
        assert_eq!(shown(get(port, "/"), "x-got").trim(), "a b c nil nil");
    }
}

#[test]
fn handshake_has_engine_id_and_capabilities() {
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

/// Sends `count` queries at once; the agent answers when all have arrived.
fn at_once(
    capabilities: &'static str,
    lines: &str,
    together: bool,
    count: usize,
) -> (Origin, Vec<Option<Response>>) {
    let told = Arc::new((Mutex::new(0), std::sync::Condvar::new()));
    let go = Arc::new(AtomicBool::new(false));
    let (own, free) = (told.clone(), go.clone());
    let agent = greeted(16380, capabilities, move |mut frames| {
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
                // Answers the last query first.
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
    // The first query is answered separately, to establish a connection.
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
fn pipelining_needs_both_sides() {
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
fn hanging_agent_times_out_and_is_used_after_recovery() {
    let hangs = Arc::new(AtomicBool::new(true));
    let own = hangs.clone();
    let agent = greeted(16380, "pipelining", move |mut frames| {
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
fn silent_agent_is_abandoned() {
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
fn closed_idle_connection_is_replaced() {
    let agent = greeted(16380, "pipelining", |mut frames| {
        if let Some(told) = frames.next_notified() {
            frames.send(&ack(&told, &[set(scope::TXN, "foo", "ok")]));
        }
        // The agent closes after its first answer.
    });
    let lines = "messages fhttp\n timeout processing 10s";
    let front = "http-response set-header x-got %[var(txn.p.foo)]";
    let (_weir, port) = Setting::new(&engine(lines, EVENTS), front, agent.port()).run();
    for _ in 0..20 {
        assert_eq!(shown(get(port, "/"), "x-got"), "ok");
    }
}

#[test]
fn maxconn_of_the_agent_limits_concurrent_queries() {
    let agent = greeted(16380, "pipelining", |mut frames| while frames.next_notified().is_some() {});
    let lines = "messages fhttp\n timeout processing 300ms\n option set-on-error err";
    let front = "http-response set-header x-got %[var(txn.p.err)]";
    let file = engine(lines, EVENTS);
    let mut setting = Setting::new(&file, front, agent.port());
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
fn idle_connection_ends_with_disconnect() {
    let (send, receive) = mpsc::channel();
    let agent = greeted(16380, "pipelining", move |mut frames| {
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
fn agent_checks_may_name_their_protocol() {
    let (send, receive) = mpsc::channel();
    let agent = Origin::raw(move |stream| {
        let mut frames = Frames::new(stream);
        let _ = frames.greet(16380, "").map(|hello| send.send(hello));
        while frames.next_frame().is_some() {}
    });
    let file = engine("messages fhttp\n timeout processing 10s", EVENTS);
    let mut setting = Setting::new(&file, "", agent.port());
    setting.agents.push_str(" check inter 20ms check-proto spop\n option spop-check");
    let (weir, _) = setting.run();
    let hello = receive.recv_timeout(PATIENCE).expect("a check");
    assert!(
        hello.iter().any(|(name, value)| name == "healthcheck" && *value == Value::Bool(true)),
        "{hello:?}"
    );
    assert!(eventually(|| weir.stat("agents,a", "check_status") == "L7OK"), "{}", weir.messages());
}
