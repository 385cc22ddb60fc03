//! Health checks of servers for datagrams.

use std::time::Duration;

use weir_tests::datagrams::{DatagramClient, DatagramServer, start};
use weir_tests::reloading::reload;
use weir_tests::{eventually, free_port};

#[test]
fn a_server_that_does_not_answer_as_expected_is_not_used() {
    let good = DatagramServer::start(|datagram, _| match datagram {
        b"ping" => vec![b"pong".to_vec()],
        other => vec![[b"good ", other].concat()],
    });
    let bad = DatagramServer::echo("bad");
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n  proxy-requests 1\n  proxy-responses 1\n  timeout check 200ms\n\
         \x20 option udp-check\n  udp-check send ping\n  udp-check expect string pong\n  default-server check inter 50ms fall 1 rise 1\n\
         \x20 server good 127.0.0.1:{}\n  server bad 127.0.0.1:{}\n",
        good.port(),
        bad.port()
    );
    let weir = start(&text, port);
    assert!(eventually(|| weir.stat("u,bad", "status") == "DOWN"));
    assert!(eventually(|| weir.stat("u,good", "check_status") == "L7OK"));
    let client = DatagramClient::connect(port);
    (0..4).for_each(|_| assert_eq!(client.ask("x"), "good x"));
}

#[test]
fn without_rules_a_check_notices_that_nothing_listens() {
    let (port, other) = (free_port(), free_port());
    let text = format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n  option udp-check\n\
         \x20 server a 127.0.0.1:{other} check inter 50ms fall 1 rise 1\n"
    );
    let weir = start(&text, port);
    assert!(eventually(|| weir.stat("u,a", "status") == "DOWN"));
    let client = DatagramClient::connect(port);
    assert_eq!(client.ask_for("x", Duration::from_millis(50)), None);
    let server = DatagramServer::start_at(other, |datagram, _| vec![datagram.to_vec()]);
    assert!(eventually(|| weir.stat("u,a", "status") == "UP"));
    assert_eq!(client.ask("x"), "x");
    drop(server);
}

#[test]
fn a_server_that_is_down_is_used_when_a_reload_removes_its_check() {
    let server = DatagramServer::echo("a");
    let (port, refusing) = (free_port(), free_port());
    let text = format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n\
         \x20 server a 127.0.0.1:{} check port {refusing} inter 50ms fall 1\n",
        server.port()
    );
    let weir = start(&text, port);
    assert!(eventually(|| weir.stat("u,a", "status") == "DOWN"));
    reload(&weir, &text.replace(&format!("check port {refusing} inter 50ms fall 1"), ""));
    assert_eq!(weir.stat("u,a", "status"), "no check");
    assert_eq!(weir.stat("u,BACKEND", "status"), "UP");
    assert_eq!(DatagramClient::connect(port).ask("x"), "a x");
}
