//! Connections of health checks: shared with requests (`check-reuse-pool`), or separate.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_tests::client::Client;
use weir_tests::{Origin, Scratch, Weir, ask, eventually, free_port, scratch, statistics};

/// Check options that keep the connection open.
const LASTING: &str =
    "option httpchk\n http-check send meth GET uri /c ver HTTP/1.1 hdr connection keep-alive";

fn start(lines: &str, server: &str) -> (Weir, Scratch, u16) {
    let (socket, port) = (scratch("check").file("weir.sock"), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket {} level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n timeout check 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n {lines}\n server s {server}\n",
        socket.display()
    );
    (Weir::start(&text, &[port]), socket, port)
}

fn column(socket: &Path, column: &str) -> String {
    statistics(socket).value("b,s", column)
}

fn get(port: u16) -> u16 {
    Client::connect(port)
        .send("GET /r HTTP/1.1\r\nHost: a\r\n\r\n")
        .response()
        .map_or(0, |response| response.status)
}

/// Returns the number of connections of an origin that answered six successive checks.
fn connections(lines: &str, server: &str) -> usize {
    let origin = Origin::text("fine");
    let (_weir, ..) = start(lines, &format!("127.0.0.1:{} check inter 10ms {server}", origin.port()));
    assert!(eventually(|| origin.requests() >= 6), "{lines} {server}");
    // The connection is counted when it is accepted, which precedes the request.
    origin.connections()
}

#[test]
fn checks_share_a_plain_connection_if_configured() {
    let always = format!("http-reuse always\n {LASTING}");
    let lines = |more: &str| always.replace("option httpchk", &format!("option httpchk\n {more}"));
    let old = always.replace("HTTP/1.1", "HTTP/1.0");
    for (lines, server) in [
        (&always, "check-reuse-pool"),
        (&old, "check-reuse-pool"),
        (&always, "check-reuse-pool check-pool-conn-name x pool-conn-name str(y) source 127.0.0.1"),
        (&lines("http-check connect"), "check-reuse-pool"),
        (&lines("http-check connect default"), "check-reuse-pool strict-maxconn maxconn 1"),
        (&format!("{always}\n http-check expect string fine"), "check-reuse-pool"),
    ] {
        assert_eq!(connections(lines, server), 1, "{lines} {server}");
    }
}

#[test]
fn checks_use_separate_connections_by_default() {
    let always = format!("http-reuse always\n {LASTING}");
    let lines = |more: &str| always.replace("option httpchk", &format!("option httpchk\n {more}"));
    let plain = "http-reuse always\n option httpchk GET /c".to_owned();
    for (lines, server) in [
        (&always, ""),
        (&always, "check-reuse-pool no-check-reuse-pool"),
        (&always, "check-pool-conn-name x"),
        (&always, "check-reuse-pool addr 127.0.0.1"),
        (&always, "check-reuse-pool check-proto h1"),
        (&always, "check-reuse-pool pool-max-conn 0"),
        (&always, "check-reuse-pool max-reuse 0"),
        (&always.replace("always", "never"), "check-reuse-pool"),
        // A check is treated like a first request, and does not make its connection reusable in these modes.
        (&always.replace("always", "safe"), "check-reuse-pool"),
        (&always.replace("always", "aggressive"), "check-reuse-pool"),
        (&lines("http-check connect linger"), "check-reuse-pool"),
        (&lines("http-check connect proto h1"), "check-reuse-pool"),
        (&always.replace("keep-alive", "close"), "check-reuse-pool"),
        (&plain, "check-reuse-pool"),
    ] {
        let connections = connections(lines, server);
        assert!(connections >= 6, "{lines} {server}: {connections}");
    }
}

#[test]
fn requests_and_checks_share_connections() {
    let origin = Origin::text("fine");
    let (_weir, socket, port) = start(
        &format!("http-reuse always\n {LASTING}"),
        &format!("127.0.0.1:{} check inter 10ms check-reuse-pool", origin.port()),
    );
    assert!(eventually(|| origin.requests() >= 2));
    ask(&socket, "disable health b/s");
    assert!(
        eventually(|| column(&socket, "idle_conn_cur") != "0" || column(&socket, "safe_conn_cur") != "0")
    );
    assert_eq!(get(port), 200);
    assert_eq!((column(&socket, "connect"), column(&socket, "reuse")), ("0".to_owned(), "1".to_owned()));
    let before = origin.requests();
    ask(&socket, "enable health b/s");
    assert!(eventually(|| origin.requests() >= before + 3));
    assert_eq!(origin.connections(), 1);
    // Checks do not count as requests.
    assert_eq!(column(&socket, "reuse"), "1");
}

#[test]
fn checks_do_not_use_connections_of_other_names() {
    let origin = Origin::text("fine");
    let (_weir, _, port) = start(
        &format!("http-reuse always\n {LASTING}"),
        &format!(
            "127.0.0.1:{} check inter 10ms check-reuse-pool check-pool-conn-name x pool-conn-name str(y)",
            origin.port()
        ),
    );
    assert!(eventually(|| origin.requests() >= 2));
    assert_eq!((get(port), get(port)), (200, 200));
    assert!(origin.connections() >= 2);
}

#[test]
fn dead_connection_fails_one_check_and_is_dropped() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    // The second request on a connection gets no response.
    let origin = Origin::raw(move |mut stream| {
        let mut room = [0; 1024];
        for _ in 0..2 {
            if !stream.read(&mut room).is_ok_and(|count| count > 0) {
                return;
            }
            if count.fetch_add(1, Relaxed).is_multiple_of(2) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let (_weir, socket, _) = start(
        &format!("http-reuse always\n {LASTING}"),
        &format!("127.0.0.1:{} check inter 10ms fastinter 10ms check-reuse-pool", origin.port()),
    );
    assert!(eventually(|| served.load(Relaxed) >= 8));
    assert!(column(&socket, "chkfail").parse::<u32>().is_ok_and(|failed| failed >= 3));
    // There are never two failures in a row, because the next check uses a new connection.
    assert_eq!(column(&socket, "chkdown"), "0");
}

#[test]
fn initial_down_result_is_not_counted_as_a_failure() {
    let column_of = |words: &str| {
        let (_weir, socket, _) =
            start("", &format!("127.0.0.1:{} check inter 10ms fall 1 {words}", free_port()));
        assert!(eventually(|| column(&socket, "status") == "DOWN"), "{words}");
        (column(&socket, "chkfail"), column(&socket, "chkdown"))
    };
    assert_eq!(column_of(""), ("0".to_owned(), "1".to_owned()));
    assert_eq!(column_of("init-state fully-up"), ("1".to_owned(), "1".to_owned()));
}
