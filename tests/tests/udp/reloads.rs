//! Sessions outlive reloads.

use std::process::Command;

use weir_tests::datagrams::{DatagramClient, DatagramServer, start};
use weir_tests::logs::Collector;
use weir_tests::reloading::reload;
use weir_tests::{Weir, ask, eventually, free_port, program, statistics};

fn configuration(port: u16, servers: &[(&str, &DatagramServer)], more: &str) -> String {
    let servers: String = servers
        .iter()
        .map(|(name, server)| format!("  server {name} 127.0.0.1:{}\n", server.port()))
        .collect();
    format!(
        "global\n  stats socket runtime level admin expose-fd listeners\n  nbthread 2\n\
         udp-lb u\n  dgram-bind 127.0.0.1:{port} shards by-thread\n  balance roundrobin\n  timeout session 1h\n{more}{servers}"
    )
}

/// Clients with the answer that each of them gets.
fn clients(port: u16, count: usize) -> Vec<(DatagramClient, String)> {
    (0..count)
        .map(|_| {
            let client = DatagramClient::connect(port);
            let answer = client.ask("x");
            (client, answer)
        })
        .collect()
}

/// A server that answers with its name and the port of the session's socket.
fn server(name: &'static str) -> DatagramServer {
    DatagramServer::start(move |_, from| vec![format!("{name} {}", from.port()).into()])
}

#[test]
fn a_reload_in_place_keeps_sessions_and_their_sockets() {
    let (a, b) = (server("a"), server("b"));
    let port = free_port();
    let weir = start(&configuration(port, &[("a", &a), ("b", &b)], ""), port);
    let clients = clients(port, 20);
    for round in 0..20 {
        let lines = format!("  maxconn {}\n", 100 + round);
        let servers: &[(&str, &DatagramServer)] =
            if round % 2 == 0 { &[("b", &b), ("a", &a)] } else { &[("a", &a), ("b", &b)] };
        reload(&weir, &configuration(port, servers, &lines));
        for (client, answer) in &clients {
            assert_eq!(client.ask("x"), *answer, "round {round}");
        }
    }
    assert_eq!(weir.stat("u,FRONTEND", "scur"), "20");
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "20");
    // A server that is removed keeps its sessions, and gets no others.
    reload(&weir, &configuration(port, &[("a", &a)], ""));
    for (client, answer) in &clients {
        assert_eq!(client.ask("x"), *answer);
    }
    assert!(DatagramClient::connect(port).ask("x").starts_with("a "));
    // A shorter timeout applies to them too.
    reload(&weir, &configuration(port, &[("a", &a)], "").replace("session 1h", "session 100ms"));
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert!(eventually(|| weir.ask("show info").contains("CurrConns: 0\n")));
}

#[test]
fn the_sessions_of_a_listener_count_after_its_line_has_changed() {
    let a = server("a");
    let port = free_port();
    let text = configuration(port, &[("a", &a)], "");
    let weir = start(&text, port);
    let before = clients(port, 3);
    // The first limit has room for one more.
    for limit in [4, 3] {
        let other = format!("shards by-thread maxconn {limit}");
        let number = format!("  dgram-bind 127.0.0.1:{}\n  dgram-bind 127.0.0.1:{port}", free_port());
        let bind = format!("  dgram-bind 127.0.0.1:{port}");
        let changed = text.replace("shards by-thread", &other).replace(&bind, &number);
        reload(&weir, &changed);
        before.iter().for_each(|(client, answer)| assert_eq!(client.ask("x"), *answer));
    }
    let late = DatagramClient::connect(port);
    late.send("x");
    before.iter().for_each(|(client, answer)| assert_eq!(client.ask("x"), *answer));
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "3");
    assert!(weir.ask("shutdown sessions server u/a").trim().is_empty());
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert!(late.ask("x").starts_with("a "));
    before.iter().take(2).for_each(|(client, _)| assert!(client.ask("x").starts_with("a ")));
}

#[test]
fn the_sessions_of_a_server_count_after_its_line_or_the_algorithm_has_changed() {
    let (a, b) = (server("a"), server("b"));
    let port = free_port();
    let text = configuration(port, &[("a", &a), ("b", &b)], "");
    let weir = start(&text, port);
    let clients = clients(port, 4);
    let weighted = text.replace("  server a", "  default-server weight 7\n  server a");
    let leastconn = text.replace("balance roundrobin", "balance leastconn");
    for (round, text) in [&weighted, &text, &leastconn, &weighted, &leastconn].into_iter().enumerate() {
        reload(&weir, text);
        assert_eq!(weir.stat("u,BACKEND", "scur"), "4", "round {round}");
        assert_eq!(weir.stat("u,a", "scur"), "2", "round {round}");
        assert_eq!(weir.stat("u,b", "scur"), "2", "round {round}");
    }
    clients.iter().for_each(|(client, answer)| assert_eq!(client.ask("x"), *answer));
    assert_eq!(weir.stat("u,BACKEND", "bin"), "8");
    weir.ask("shutdown sessions server u/a");
    assert!(eventually(|| weir.stat("u,BACKEND", "scur") == "2"));
    assert_eq!(weir.stat("u,a", "scur"), "0");
    // The server with fewer sessions gets the next ones.
    for _ in 0..2 {
        assert!(DatagramClient::connect(port).ask("x").starts_with("a "));
    }
}

#[test]
fn a_section_that_is_removed_closes_its_socket() {
    let a = server("a");
    let (port, other) = (free_port(), free_port());
    let weir = start(&configuration(port, &[("a", &a)], ""), port);
    let clients = clients(port, 2);
    reload(&weir, &configuration(other, &[("a", &a)], ""));
    assert!(DatagramClient::connect(other).ask("x").starts_with("a "));
    assert!(eventually(|| std::net::UdpSocket::bind(("127.0.0.1", port)).is_ok()));
    drop(clients);
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "1"));
}

#[test]
fn a_process_that_replaces_another_continues_its_sessions() {
    let (a, b) = (server("a"), server("b"));
    let port = free_port();
    let text = configuration(port, &[("a", &a), ("b", &b)], "");
    let mut old = start(&text, port);
    let clients = clients(port, 40);
    // All processes have the socket of the first one.
    let socket = old.directory().join("runtime");
    let path = socket.to_str().expect("a path").to_owned();
    let mut all = Vec::new();
    for round in 0..3 {
        let pid = old.pid().to_string();
        let new = Weir::start_by(Command::new(program()), &text, &["-x", &path, "-sf", &pid], &[]);
        assert_eq!(old.await_end(), Some(0), "{}", old.messages());
        all.push(std::mem::replace(&mut old, new));
        for (client, answer) in &clients {
            assert_eq!(client.ask("x"), *answer, "round {round}");
        }
        assert!(eventually(|| statistics(&socket).get("u,FRONTEND", "scur") == Some("40")));
        assert_eq!(statistics(&socket).get("u,FRONTEND", "stot"), Some("0"), "no session is new");
    }
    let (client, _) = &clients[0];
    let shown = ask(&socket, "show sess");
    assert!(shown.contains(&format!("proto=udpv4 src=127.0.0.1:{}", client.port())), "{shown}");
}

#[test]
fn a_session_whose_server_is_gone_is_logged_by_the_next_process() {
    let (a, b) = (server("a"), server("b"));
    let (port, log) = (free_port(), Collector::new());
    let lines = format!("  log 127.0.0.1:{} local0\n  log-format \"%ci:%cp %b/%s %ts %U/%B\"\n", log.port());
    let mut old = start(&configuration(port, &[("a", &a)], &lines), port);
    let client = DatagramClient::connect(port);
    let answer = client.ask("x");
    let (path, pid) = (old.directory().join("runtime"), old.pid().to_string());
    let text = configuration(port, &[("b", &b)], &lines);
    let path = path.to_str().expect("a path").to_owned();
    let _new = Weir::start_by(Command::new(program()), &text, &["-x", &path, "-sf", &pid], &[]);
    assert_eq!(old.await_end(), Some(0), "{}", old.messages());
    let wanted = format!("127.0.0.1:{} u/<NOSRV> KD 1/{}", client.port(), answer.len());
    // Both processes log changes of their proxies too.
    let line = std::iter::repeat_with(|| log.next()).find(|line| line.contains(" u/")).expect("a line");
    assert!(line.trim_end().ends_with(&wanted), "{line}");
    assert!(client.ask("x").starts_with("b "), "its next datagram begins another session");
}

#[test]
fn sessions_outlive_reloads_by_a_master() {
    let (a, b) = (server("a"), server("b"));
    let port = free_port();
    let weir =
        Weir::start_with(&configuration(port, &[("a", &a), ("b", &b)], ""), &["-W", "-S", "./master"], &[]);
    let address = ([127, 0, 0, 1], port).into();
    assert!(eventually(|| net::udp::bound_elsewhere(address, None) > 0), "{}", weir.messages());
    let clients = clients(port, 20);
    let master = |command: &str| ask(&weir.directory().join("master"), command);
    for round in 0..5 {
        let answer = master("reload");
        assert!(answer.starts_with("Success=1\n"), "{answer}");
        for (client, answer) in &clients {
            assert_eq!(client.ask("x"), *answer, "round {round}");
        }
    }
    assert!(eventually(|| !master("show proc").contains("old workers")), "{}", master("show proc"));
    clients.iter().for_each(|(client, answer)| assert_eq!(client.ask("x"), *answer));
}

#[test]
fn no_session_is_lost_if_there_are_thousands() {
    const COUNT: usize = 3000;
    let a = server("a");
    let port = free_port();
    let text = configuration(port, &[("a", &a)], "  proxy-requests 1\n");
    let mut old = start(&text, port);
    let client = DatagramClient::connect(port);
    (0..COUNT).for_each(|_| assert!(client.ask("x").starts_with("a ")));
    let count = COUNT.to_string();
    assert!(eventually(|| old.stat("u,FRONTEND", "scur") == count));
    let socket = old.directory().join("runtime");
    let (path, pid) = (socket.to_str().expect("a path").to_owned(), old.pid().to_string());
    let _new = Weir::start_by(Command::new(program()), &text, &["-x", &path, "-sf", &pid], &[]);
    assert_eq!(old.await_end(), Some(0), "{}", old.messages());
    assert!(eventually(|| statistics(&socket).get("u,FRONTEND", "scur") == Some(&*count)));
    assert!(ask(&socket, "shutdown sessions server u/a").trim().is_empty());
    assert!(eventually(|| statistics(&socket).get("u,FRONTEND", "scur") == Some("0")));
}
