//! `udp-request` rules, ACLs, and `use-server`.

use weir_tests::datagrams::{DatagramClient, DatagramServer, start};
use weir_tests::logs::Collector;
use weir_tests::{eventually, free_port};

#[test]
fn rules_decide_about_the_first_datagram_of_a_session() {
    let (server, log) = (DatagramServer::echo("a"), Collector::new());
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n  proxy-requests 1\n  proxy-responses 1\n\
         \x20 log 127.0.0.1:{} local0\n  log-format \"%[var(sess.kind)] %[src] %B\"\n\
         \x20 udp-request reject if {{ udp.payload,bytes(0,2) -m bin 6e6f }}\n\
         \x20 udp-request drop if {{ udp.len gt 20 }}\n\
         \x20 udp-request set-var(sess.kind) udp.payload,bytes(0,1)\n\
         \x20 server a 127.0.0.1:{}\n",
        log.port(),
        server.port()
    );
    let weir = start(&text, port);
    let client = DatagramClient::connect(port);
    client.send("no");
    client.send(&"x".repeat(21));
    assert_eq!(client.ask("yes"), "a yes");
    assert!(log.next().trim_end().ends_with(" y 127.0.0.1 5"));
    assert_eq!(server.received(), 1);
    assert!(eventually(|| weir.stat("u,FRONTEND", "dses") == "2"));
}

#[test]
fn clients_are_tracked_in_stick_tables() {
    let server = DatagramServer::echo("a");
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\nudp-lb u\n  dgram-bind 127.0.0.1:{port}\n  timeout session 1h\n  proxy-requests 1\n\
         \x20 udp-request track-sc0 src table limits\n\
         \x20 udp-request reject if {{ sc_conn_cnt(0) gt 3 }}\n\
         \x20 server a 127.0.0.1:{}\n\
         backend limits\n  stick-table type ip size 100 expire 1h store conn_cnt,conn_cur,sess_cnt,bytes_in_cnt\n",
        server.port()
    );
    let weir = start(&text, port);
    let client = DatagramClient::connect(port);
    (0..3).for_each(|_| assert_eq!(client.ask("12"), "a 12"));
    client.send("12");
    assert!(eventually(|| weir.stat("u,FRONTEND", "dses") == "1"));
    let table = weir.ask("show table limits");
    assert!(table.contains("conn_cur=3") && table.contains("sess_cnt=3"), "{table}");
    weir.ask("shutdown sessions server u/a");
    assert!(eventually(|| weir.ask("show table limits").contains("conn_cur=0")));
    assert!(weir.ask("show table limits").contains("bytes_in_cnt=6"));
    assert_eq!(server.received(), 3);
}

#[test]
fn a_condition_chooses_the_server() {
    let (a, b) = (DatagramServer::echo("a"), DatagramServer::echo("b"));
    let port = free_port();
    let text = format!(
        "udp-lb u\n  dgram-bind 127.0.0.1:{port}\n  proxy-requests 1\n  proxy-responses 1\n  acl is_b udp.payload -m beg b\n  use-server b if is_b\n  use-server a unless is_b\n\
         \x20 server a 127.0.0.1:{}\n  server b 127.0.0.1:{}\n",
        a.port(),
        b.port()
    );
    let _weir = start(&text, port);
    let client = DatagramClient::connect(port);
    for text in ["b1", "a1", "b2", "b3", "a2"] {
        assert_eq!(client.ask(text), format!("{} {text}", &text[..1]));
    }
}
