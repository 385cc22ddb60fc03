//! Streams that hang, and their request lines (`show sess susp`, `show-uri`).

use std::net::TcpListener;

use weir_tests::client::Client;
use weir_tests::listen::TOP;
use weir_tests::{Weir, eventually, free_port};

/// Returns a server that accepts and never answers.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("an address").port()
}

#[test]
fn request_lines_are_shown_if_kept_for_logs() {
    let server = silent();
    let (logged, unlogged) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{logged}\n  log 127.0.0.1:9 local0\n  option httplog\n  default_backend b\n\
             frontend g\n  bind 127.0.0.1:{unlogged}\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n",
            port_of(&server)
        ),
        &[logged, unlogged],
    );
    let mut clients = [logged, unlogged].map(Client::connect);
    for client in &mut clients {
        client.send("GET /x?y=%22 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let waiting = || weir.ask("show sess backend b show-uri");
    assert!(eventually(|| waiting().matches(" be=b srv=s ").count() == 2), "{}", waiting());
    let shown = waiting();
    let of = |frontend: &str| shown.lines().find(|line| line.contains(frontend)).unwrap_or_default();
    assert!(of(" fe=f ").ends_with(" uri=\"GET /x?y=%22 HTTP/1.1\""), "{shown}");
    assert!(!of(" fe=g ").contains("uri="), "{shown}");
    assert!(!weir.ask("show sess").contains("uri="), "only where it is asked for");
    let detailed = weir.ask("show sess all show-uri frontend f");
    assert!(detailed.contains("\n  txn=(nil) uri=\"GET /x?y=%22 HTTP/1.1\"\n"), "{detailed}");
    let hidden = weir.ask("set anon on 7; show sess show-uri frontend f");
    assert!(hidden.contains(" uri=\"GET ") && !hidden.contains("/x?y"), "{hidden}");
}

#[test]
fn streams_beyond_their_timeouts_are_suspicious() {
    let server = silent();
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n",
            port_of(&server)
        ),
        &[port],
    );
    Client::connect(port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| weir.ask("show sess backend b").contains(" srv=s ")));
    let suspicious = weir.ask("show sess susp");
    assert!(!suspicious.contains(" be=b "), "it waits as it should: {suspicious}");
    assert!(weir.ask("show sess help").contains("susp"));
}
