//! Actions of `tcp-request` and `tcp-response` rules, and the log lines that rules write.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use weir_tests::listen::{DEFAULTS, listen, local};
use weir_tests::{Origin, PATIENCE, Weir, client, eventually, free_port};

const REQUEST: &str = "GET /path?q=1 HTTP/1.1\r\nhost: l\r\n\r\n";

/// TCP rules, the format of an HTTP response after them, and its expected text.
#[rustfmt::skip]
const CONNECTIONS: &[(&[&str], &str, &str)] = &[
    (&["tcp-request connection set-src-port int(1001)", "tcp-request connection set-dst-port int(1002)",
       "tcp-request connection set-var-fmt(sess.v) <%[src_port]>", "tcp-request connection set-var(sess.gone) int(1)",
       "tcp-request connection unset-var(sess.gone)", "tcp-request connection set-fc-mark 1", "tcp-request connection set-mark 1",
       "tcp-request connection set-fc-tos 16", "tcp-request connection set-tos 16", "tcp-request connection do-log"],
     "%[var(sess.v)] %[dst_port] %[var(sess.gone)]", "<1001> 1002 "),
    (&["tcp-request session set-src ipv4(192.0.2.1)", "tcp-request session set-src-port int(1003)",
       "tcp-request session set-dst ipv4(192.0.2.2)", "tcp-request session set-dst-port int(1004)",
       "tcp-request session set-var(sess.gone) int(1)", "tcp-request session unset-var(sess.gone)",
       "tcp-request session set-var-fmt(sess.v) <%[src]>", "tcp-request session set-fc-mark 1", "tcp-request session set-mark 1",
       "tcp-request session set-fc-tos 16", "tcp-request session set-tos 16", "tcp-request session do-log"],
     "%[var(sess.v)] %[src_port] %[dst] %[dst_port] %[var(sess.gone)]", "<192.0.2.1> 1003 192.0.2.2 1004 "),
    (&["tcp-request content set-src ipv4(192.0.2.3)", "tcp-request content set-src-port int(1005)",
       "tcp-request content set-dst-port int(1006)", "tcp-request content set-var-fmt(txn.v) <%[src]>",
       "tcp-request content set-var(txn.gone) int(1)", "tcp-request content unset-var(txn.gone)",
       "tcp-request content set-priority-class int(5)", "tcp-request content set-priority-offset int(7)",
       "tcp-request content set-bc-mark 1", "tcp-request content set-bc-tos 16",
       "tcp-request content set-fc-mark 1", "tcp-request content set-fc-tos 16", "tcp-request content set-mark 1",
       "tcp-request content set-tos 16", "tcp-request content set-log-level notice", "tcp-request content do-log"],
     "%[var(txn.v)] %[src_port] %[dst_port] %[prio_class] %[prio_offset] %[var(txn.gone)]", "<192.0.2.3> 1005 1006 5 7 "),
];

#[test]
fn connection_rules_change_connections_and_log() {
    for (lines, format, expected) in CONNECTIONS {
        let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
        collector.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let to = collector.local_addr().expect("it is bound");
        let port = free_port();
        let rules: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        let _weir = Weir::start(
            &format!(
                "global\n  log {to} local0\n{DEFAULTS}  log global\nfrontend f\n  bind 127.0.0.1:{port}\n{rules}  \
                 log-format logged\n  http-request return status 200 content-type text/plain lf-string \"{format}\"\n"
            ),
            &[port],
        );
        let answer = client::exchange(port, REQUEST).expect("a response").text();
        assert_eq!(answer, *expected);
        let mut bytes = [0; 4096];
        let length = collector.recv(&mut bytes).expect("the line of do-log");
        assert!(String::from_utf8_lossy(&bytes[..length]).contains("logged"), "{lines:?}");
    }
}

#[test]
fn tcp_response_rules_set_variables_and_log() {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    collector.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let to = collector.local_addr().expect("it is bound");
    let origin = Origin::text("ok");
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "global\n  log {to} local0\ndefaults\n  mode tcp\n  timeout client 20s\n  timeout connect 10s\n  \
             timeout server 20s\n  log global\nlisten l\n  bind 127.0.0.1:{port}\n  \
             tcp-response inspect-delay 10s\n  tcp-response content set-var(txn.first) res.payload(0,4)\n  \
             tcp-response content set-var-fmt(txn.shown) <%[var(txn.first)]>\n  \
             tcp-response content unset-var(txn.first)\n  tcp-response content set-fc-mark 1\n  \
             tcp-response content set-mark 1\n  tcp-response content set-fc-tos 16\n  tcp-response content set-tos 16\n  \
             tcp-response content set-log-level notice if {{ res.payload(0,4) -m found }}\n  \
             tcp-response content do-log\n  \
             log-format \"first=%[var(txn.first)] shown=%[var(txn.shown)]\"\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    assert_eq!(client::get(port, "/").expect("a response").text(), "ok");
    let mut bytes = [0; 4096];
    loop {
        let length = collector.recv(&mut bytes).expect("a log line");
        // The first line may be that of the connection that checked the port.
        if String::from_utf8_lossy(&bytes[..length]).contains("first=- shown=<HTTP>") {
            return;
        }
    }
}

#[test]
fn silently_dropped_connections_get_no_byte() {
    let origin = Origin::text("ok");
    for rule in [
        "tcp-request session silent-drop if { var(proc.drop) -m bool }",
        "http-response silent-drop",
        "tcp-response content silent-drop",
    ] {
        let port = free_port();
        let _weir = Weir::start(
            &format!(
                "global\n  stats socket runtime level admin\n  set-var proc.drop bool(true)\n{DEFAULTS}listen l\n  \
                 bind 127.0.0.1:{port}\n  {rule}\n  server s 127.0.0.1:{}\n",
                origin.port()
            ),
            &[port],
        );
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the frontend listens");
        client.write_all(REQUEST.as_bytes()).expect("it reads");
        client.set_nonblocking(true).expect("a socket of ours");
        // The client learns that the connection is gone when it sends more.
        let gone = |client: &mut TcpStream| client.write(b"x").is_err_and(|error| error.kind() != WouldBlock);
        assert!(eventually(|| gone(&mut client)), "{rule}");
        assert!(!client.read(&mut [0; 1]).is_ok_and(|length| length > 0), "{rule}");
    }
}

#[test]
fn do_log_writes_lines() {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    collector.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let to = collector.local_addr().expect("it is bound");
    let origin = Origin::text("ok");
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "global\n  log {to} local0\n{DEFAULTS}  log global\nlisten l\n  bind 127.0.0.1:{port}\n  \
             http-response do-log\n  http-after-response do-log\n  log-format origin=%OG\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    assert_eq!(client::get(port, "/").expect("a response").text(), "ok");
    let mut bytes = [0; 4096];
    for expected in ["origin=http-res", "origin=http-after-res"] {
        let line = loop {
            let length = collector.recv(&mut bytes).expect("a log line");
            let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if line.contains("origin=http-") {
                break line;
            }
        };
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn clients_with_privileged_ports_can_be_refused() {
    let origin = Origin::text("hello");
    let from_low_port = |port: u16| {
        let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let socket = (512..1024).find_map(|low| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).ok()?;
            socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], low)).into()).ok()?;
            socket.connect(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()).ok()?;
            Some(socket)
        });
        let mut stream = TcpStream::from(socket.expect("tests run with the right to bind low ports"));
        let mut answer = Vec::new();
        // Both may fail if the connection is closed.
        let _ = stream.write_all(request);
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let (weir, port) = listen("  harden.reject-privileged-ports.tcp on\n", "", &local(&origin));
    assert!(from_low_port(port).is_empty(), "a privileged port");
    assert_eq!(client::get(port, "/").expect("a response").status, 200, "any other");
    assert_eq!(weir.stat("l,FRONTEND", "dcon"), "1");
    let (_weir, port) = listen("", "", &local(&origin));
    assert!(from_low_port(port).starts_with(b"HTTP/1.1 200"), "unless it is asked for");
}
