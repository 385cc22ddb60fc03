//! Sessions: their servers, their ends, counters and log lines.

use std::collections::BTreeSet;
use std::sync::mpsc;

use weir_tests::datagrams::{DatagramClient, DatagramServer, start};
use weir_tests::logs::Collector;
use weir_tests::{PATIENCE, eventually, free_port};

fn section(port: u16, lines: &str, servers: &[(&str, u16)]) -> String {
    let servers: String =
        servers.iter().map(|(name, port)| format!("  server {name} 127.0.0.1:{port}\n")).collect();
    format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n{lines}{servers}"
    )
}

#[test]
fn a_client_keeps_its_server_and_servers_take_turns() {
    let (a, b) = (DatagramServer::echo("a"), DatagramServer::echo("b"));
    let port = free_port();
    let text =
        section(port, "  balance roundrobin\n  timeout session 60s\n", &[("a", a.port()), ("b", b.port())]);
    let weir = start(&text, port);
    let clients: Vec<_> = (0..4).map(|_| DatagramClient::connect(port)).collect();
    let mut names = Vec::new();
    for client in &clients {
        let name = client.ask("0").split(' ').next().unwrap_or_default().to_owned();
        for number in 1..20 {
            assert_eq!(client.ask(&number.to_string()), format!("{name} {number}"));
        }
        names.push(name);
    }
    assert_eq!(names.iter().filter(|name| *name == "a").count(), 2, "{names:?}");
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "4"));
    assert_eq!(weir.stat("u,FRONTEND", "mode"), "udp");
    assert_eq!(weir.stat("u,BACKEND", "stot"), "4");
    assert_eq!(weir.stat("u,a", "stot"), "2");
    let bytes: u64 = (0..20).map(|number| number.to_string().len() as u64).sum();
    assert_eq!(weir.stat("u,FRONTEND", "bin"), (4 * bytes).to_string());
    assert_eq!(weir.stat("u,BACKEND", "bout"), (4 * (bytes + 2 * 20)).to_string());
    let sessions = weir.ask("show sess");
    for client in &clients {
        assert!(sessions.contains(&format!("src=127.0.0.1:{}", client.port())), "{sessions}");
    }
}

#[test]
fn datagrams_received_together_stay_separate_and_in_order() {
    let (sender, received) = mpsc::channel();
    let server = DatagramServer::start(move |datagram, from| {
        let _ = sender.send((from.port(), datagram.to_vec()));
        Vec::new()
    });
    let port = free_port();
    let lines = "  timeout session 60s\n  proxy-requests 9\n";
    let weir = start(&section(port, lines, &[("s", server.port())]), port);
    let clients = [(); 2].map(|()| DatagramClient::connect(port));
    let sizes = [1200, 1200, 1200, 7, 7, 1200, 500, 500, 499, 500, 500, 1400, 1200, 1, 1, 1, 2];
    // The kernel keeps the datagrams until the program continues, which then receives many at once.
    weir.signal("STOP");
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for (number, size) in sizes.into_iter().chain(sizes).enumerate() {
        let datagram = vec![number as u8; size];
        clients[number / sizes.len()].0.send(&datagram).expect("it is sent");
        sent.push(datagram);
    }
    weir.signal("CONT");
    let mut all: Vec<(u16, Vec<u8>)> =
        sent.iter().map(|_| received.recv_timeout(PATIENCE).expect("a datagram")).collect();
    // The order among clients is not defined.
    all.sort_by_key(|(_, datagram)| usize::from(datagram[0]) / sizes.len());
    let (ports, all): (Vec<u16>, Vec<_>) = all.into_iter().unzip();
    assert!(all == sent, "{:?}", all.iter().map(|one| (one[0], one.len())).collect::<Vec<_>>());
    // Each session takes 9 datagrams.
    let runs: Vec<usize> = ports.chunk_by(|a, b| a == b).map(<[u16]>::len).collect();
    assert_eq!(runs, [9, 8, 9, 8]);
}

#[test]
fn the_source_address_determines_the_server() {
    let servers: Vec<_> =
        (0..3).map(|_| DatagramServer::start(|_, from| vec![from.port().to_string().into()])).collect();
    let port = free_port();
    let ports: Vec<_> = ["a", "b", "c"].into_iter().zip(servers.iter().map(DatagramServer::port)).collect();
    let _weir = start(&section(port, "  balance source\n", &ports), port);
    let sockets: BTreeSet<String> = (0..10).map(|_| DatagramClient::connect(port).ask("x")).collect();
    assert_eq!(sockets.len(), 10, "each session has a socket of its own");
    assert_eq!(servers.iter().filter(|server| server.received() > 0).count(), 1);
}

#[test]
fn a_session_ends_when_it_is_idle() {
    let server = DatagramServer::echo("a");
    let port = free_port();
    let text = section(port, "  timeout session 100ms\n", &[("a", server.port())]);
    let weir = start(&text, port);
    let client = DatagramClient::connect(port);
    assert_eq!(client.ask("1"), "a 1");
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert_eq!(client.ask("2"), "a 2");
    assert!(eventually(|| weir.stat("u,FRONTEND", "stot") == "2"));
}

#[test]
fn each_datagram_is_a_session_if_the_numbers_say_so() {
    let (a, b) = (DatagramServer::echo("a"), DatagramServer::echo("b"));
    let port = free_port();
    let lines = "  proxy-requests 1\n  proxy-responses 1\n  timeout server 60s\n";
    let weir = start(&section(port, lines, &[("a", a.port()), ("b", b.port())]), port);
    let client = DatagramClient::connect(port);
    let answers: Vec<String> = (0..4).map(|_| client.ask("q")).collect();
    assert_eq!(answers.iter().filter(|answer| *answer == "a q").count(), 2, "{answers:?}");
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "4");
}

#[test]
fn empty_datagrams_are_forwarded() {
    let server = DatagramServer::start(|datagram, _| vec![datagram.to_vec()]);
    let port = free_port();
    let lines = "  proxy-requests 1\n  proxy-responses 1\n  timeout server 60s\n";
    let weir = start(&section(port, lines, &[("a", server.port())]), port);
    let client = DatagramClient::connect(port);
    for text in ["", "1", "", ""] {
        assert_eq!(client.ask(text), text);
    }
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "4");
    assert_eq!(server.received(), 4);
}

#[test]
fn a_datagram_with_the_source_of_a_listener_begins_no_session() {
    let server = DatagramServer::echo("a");
    let (port, other) = (free_port(), free_port());
    let lines = format!("  dgram-bind 127.0.0.1:{other} shards by-thread\n");
    let text = section(port, &lines, &[("a", server.port())]).replace("udp-lb", "  nbthread 2\nudp-lb");
    let weir = start(&text, port);
    let options = net::listen::ListenOptions { reuse_port: true, ..Default::default() };
    let address = (std::net::Ipv4Addr::LOCALHOST, other).into();
    let sockets = net::udp::bind_group(address, &options, 1).expect("the sockets of the program share it");
    let forger = std::net::UdpSocket::from(sockets.into_iter().next().expect("one socket"));
    forger.send_to(b"x", ("127.0.0.1", port)).expect("it is sent");
    assert!(eventually(|| weir.stat("u,FRONTEND", "ereq") == "1"));
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "0");
    assert_eq!(DatagramClient::connect(port).ask("y"), "a y");
    assert_eq!(server.received(), 1);
}

#[test]
fn larger_datagrams_than_accepted_are_dropped() {
    let server = DatagramServer::echo("a");
    let port = free_port();
    let lines = "  accepted-payload-size 10\n";
    let weir = start(&section(port, lines, &[("a", server.port())]), port);
    let client = DatagramClient::connect(port);
    client.send("12345678901");
    // The answer has two more bytes than the datagram.
    assert_eq!(client.ask("12345678"), "a 12345678");
    client.send("123456789");
    assert_eq!(client.ask("1"), "a 1");
    assert_eq!(weir.stat("u,FRONTEND", "ereq"), "1");
    assert_eq!(weir.stat("u,FRONTEND", "dresp"), "1");
    assert_eq!(server.received(), 3);
}

#[test]
fn clients_above_the_limit_get_no_session() {
    let server = DatagramServer::echo("a");
    let port = free_port();
    let lines = "  maxconn 2\n  timeout session 1h\n";
    let weir = start(&section(port, lines, &[("a", server.port())]), port);
    let [first, second, third] = [(); 3].map(|()| DatagramClient::connect(port));
    assert_eq!(first.ask("1"), "a 1");
    assert_eq!(second.ask("2"), "a 2");
    third.send("3");
    // Another thread may receive this datagram, so that answers to other clients do not show that it was dropped.
    assert!(eventually(|| weir.stat("u,FRONTEND", "dcon") == "1"));
    assert_eq!(first.ask("4"), "a 4");
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "2");
    assert!(weir.ask("shutdown sessions server u/a").trim().is_empty());
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert_eq!(third.ask("5"), "a 5");
}

#[test]
fn a_server_that_refuses_datagrams_loses_its_sessions() {
    let server = DatagramServer::echo("a");
    let (port, refusing) = (free_port(), free_port());
    let lines = "  balance first\n";
    let weir = start(&section(port, lines, &[("gone", refusing), ("a", server.port())]), port);
    let client = DatagramClient::connect(port);
    client.send("1");
    assert!(eventually(|| weir.stat("u,gone", "econ") == "1"));
    weir.ask("disable server u/gone");
    assert_eq!(client.ask("2"), "a 2");
}

#[test]
fn each_session_is_logged_at_its_end() {
    let (server, log) = (DatagramServer::echo("a"), Collector::new());
    let port = free_port();
    let lines = format!("  log 127.0.0.1:{} local0\n  proxy-requests 1\n  proxy-responses 1\n", log.port());
    let _weir = start(&section(port, &lines, &[("a", server.port())]), port);
    let client = DatagramClient::connect(port);
    assert_eq!(client.ask("12345"), "a 12345");
    let line = log.next();
    let start = format!("127.0.0.1:{} [", client.port());
    let end = " 5 7 -- 1/1/1/1";
    assert!(line.contains(&start) && line.contains("] u u/a ") && line.trim_end().ends_with(end), "{line}");
}

#[test]
fn the_sessions_of_a_backend_use_its_servers() {
    let server = DatagramServer::echo("a");
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n  default_backend b\n\
         backend b\n  timeout connect 5s\n  timeout server 5s\n  balance hash src\n  server a 127.0.0.1:{}\n",
        server.port()
    );
    let weir = start(&text, port);
    assert_eq!(DatagramClient::connect(port).ask("1"), "a 1");
    assert!(eventually(|| weir.stat("b,a", "stot") == "1"));
    assert_eq!(weir.stat("b,BACKEND", "bin"), "1");
    assert_eq!(weir.stat("u,FRONTEND", "bin"), "1");
}

#[test]
fn the_first_datagram_carries_the_addresses_for_a_server_that_wants_them() {
    let server = DatagramServer::start(|datagram, _| vec![datagram.to_vec()]);
    let port = free_port();
    let text = section(port, "", &[]) + &format!("  server a 127.0.0.1:{} send-proxy-v2\n", server.port());
    let _weir = start(&text, port);
    let client = DatagramClient::connect(port);
    client.send("1");
    let mut room = [0; 100];
    let length = client.0.recv(&mut room).expect("a datagram");
    let mut wanted = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
    wanted.extend(client.port().to_be_bytes());
    wanted.extend(port.to_be_bytes());
    wanted.push(b'1');
    assert_eq!(&room[..length], wanted);
    assert_eq!(client.ask("2"), "2");
}

#[test]
fn the_addresses_follow_with_the_next_datagram_if_the_first_cannot_be_sent() {
    let server = DatagramServer::start(|datagram, _| vec![datagram.to_vec()]);
    let port = free_port();
    let line = format!("  server a 127.0.0.1:{} send-proxy-v2\n", server.port());
    let text = section(port, "  accepted-payload-size 65507\n", &[]) + &line;
    let _weir = start(&text, port);
    let client = DatagramClient::connect(port);
    // With the header, the datagram is too large for UDP.
    client.0.send(&[b'x'; 65_507]).expect("it is sent");
    client.send("1");
    let mut room = [0; 100];
    let length = client.0.recv(&mut room).expect("a datagram");
    assert_eq!((length, &room[..12]), (29, &b"\r\n\r\n\0\r\nQUIT\n"[..]));
    assert_eq!(client.ask("2"), "2");
}

#[test]
fn a_server_is_not_blamed_for_a_lack_of_descriptors() {
    let server =
        DatagramServer::start(|datagram, _| if datagram == b"y" { vec![b"y".to_vec()] } else { Vec::new() });
    let (port, log) = (free_port(), Collector::new());
    let text = format!(
        "global\n  ulimit-n 120\n  maxconn 1000\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n  log 127.0.0.1:{} local0\n\
         \x20 proxy-requests 1\n  proxy-responses 1\n  timeout session 1h\n  option udp-check\n\
         \x20 server a 127.0.0.1:{} check inter 1h observe layer4 error-limit 2 on-error mark-down\n",
        log.port(),
        server.port()
    );
    let _weir = start(&text, port);
    let client = DatagramClient::connect(port);
    assert_eq!(client.ask("y"), "y");
    assert!(log.next().contains(" u/a "));
    // Each datagram needs a descriptor.
    (0..300).for_each(|_| client.send("x"));
    for _ in 0..10 {
        let line = log.next();
        assert!(line.contains(" RC "), "{line}");
    }
}

#[test]
fn bursts_arrive_complete_and_in_order() {
    let server = DatagramServer::start(|datagram, _| vec![datagram.to_vec()]);
    let port = free_port();
    let lines = "  timeout session 1h\n";
    let weir = start(&section(port, lines, &[("a", server.port())]), port);
    let client = DatagramClient::connect(port);
    for round in 0..50 {
        // Few enough for any socket buffer.
        let texts: Vec<String> =
            (0..32).map(|number| format!("{round} {number} {}", "x".repeat(900))).collect();
        texts.iter().for_each(|text| client.send(text));
        texts.iter().for_each(|text| assert_eq!(client.receive(), *text));
    }
    assert_eq!(weir.stat("u,FRONTEND", "stot"), "1");
}

#[test]
fn sessions_of_many_clients_end_together() {
    let server = DatagramServer::echo("a");
    let port = free_port();
    let lines = "  timeout session 1s\n";
    let weir = start(&section(port, lines, &[("a", server.port())]), port);
    let clients: Vec<_> = (0..200).map(|_| DatagramClient::connect(port)).collect();
    clients.iter().for_each(|client| assert_eq!(client.ask("1"), "a 1"));
    let total = || weir.stat("u,FRONTEND", "stot").parse::<u32>().unwrap_or(0);
    assert!(total() >= 200);
    assert!(eventually(|| weir.stat("u,FRONTEND", "scur") == "0"));
    assert!(eventually(|| weir.ask("show info").contains("CurrConns: 0\n")));
}

/// A server of a protocol with QUIC's headers. Its connection IDs begin with `own`; it answers other packets with its number.
fn quic_server(own: u8) -> DatagramServer {
    DatagramServer::start(move |datagram, _| {
        if datagram[0] & 0x80 == 0 {
            return vec![own.to_string().into()];
        }
        vec![vec![0xc0, 0, 0, 0, 1, 0, 4, own, 1, 2, 3, 0, 0]]
    })
}

#[test]
fn a_quic_client_that_moves_keeps_its_server() {
    let servers: Vec<_> = (0..4).map(|number| quic_server(200 + number)).collect();
    let port = free_port();
    let names = ["a", "b", "c", "d"];
    let ports: Vec<_> = names.into_iter().zip(servers.iter().map(DatagramServer::port)).collect();
    let weir = start(&section(port, "  balance quic-cid 1\n  timeout session 1h\n", &ports), port);
    for _ in 0..4 {
        let client = DatagramClient::connect(port);
        client.0.send(&[0xc0, 0, 0, 0, 1, 2, 9, 9, 0, 0, 0]).expect("it is sent");
        let mut room = [0; 100];
        let length = client.0.recv(&mut room).expect("an answer");
        assert_eq!(length, 13);
        let own = room[7];
        for _ in 0..4 {
            let moved = DatagramClient::connect(port);
            moved.0.send(&[0x40, own, 7, 7, 7, 1]).expect("it is sent");
            assert_eq!(moved.receive(), own.to_string());
        }
    }
    assert_eq!(names.map(|name| weir.stat(&format!("u,{name}"), "stot")), ["5", "5", "5", "5"]);
}
