//! Streams and malformed messages on the runtime socket, in the format that tools parse.

use std::io::ErrorKind;
use std::net::TcpStream;

use weir_tests::client::{self, Client};
use weir_tests::{Origin, Weir, eventually, free_port};

/// Starts a frontend with a server that accepts requests and never answers.
fn silent() -> (Weir, Origin, u16) {
    let origin = Origin::raw(|stream| {
        let mut all = Vec::new();
        let _ = std::io::Read::read_to_end(&mut { stream }, &mut all);
    });
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 1\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    (Weir::start(&text, &[port]), origin, port)
}

/// Returns the value of a key in a line of `show sess`, including brackets.
fn value<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    line.split(' ').find_map(|word| word.strip_prefix(key))
}

#[test]
fn show_sess_lines_have_the_keys_that_tools_parse() {
    let (weir, origin, port) = silent();
    let idle = Client::connect(port);
    let mut busy = Client::connect(port);
    busy.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| origin.connections() > 0));
    let shown = weir.ask("show sess");
    let lines: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
    // A connection that waits for a request is not a stream; the one that runs the command is.
    assert_eq!(lines.len(), 2, "{shown}");
    let line = lines.iter().find(|line| line.contains(" fe=f ")).expect("the request");
    for (key, expected) in [("proto=", "tcpv4"), ("be=", "b"), ("srv=", "s"), ("calls=", "1"), ("rc=", "0")] {
        assert_eq!(value(line, key), Some(expected), "{line}");
    }
    for (key, within) in
        [("rq[", ",an=8000h,"), ("rp[", ",an=1400000h,"), ("scf=[", "8,"), ("scb=[", "8,1h,")]
    {
        assert!(value(line, key).is_some_and(|text| text.contains(within)), "{key} {line}");
    }
    let own = lines.iter().find(|line| line.contains(" fe=GLOBAL ")).expect("the command");
    assert_eq!((value(own, "proto="), value(own, "srv=")), (Some("unix_stream"), Some("<none>")));
    drop(idle);
}

#[test]
fn stream_details_show_both_ends_and_their_waits() {
    let (weir, origin, port) = silent();
    let mut busy = Client::connect(port);
    busy.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| origin.connections() > 0));
    let shown = weir.ask("show sess all");
    for part in [
        "proto=tcpv4 source=127.0.0.1:",
        &format!("  frontend=f (id=2 mode=http), listener=? (id=1) addr=127.0.0.1:{port}\n"),
        "  backend=b (id=3 mode=http)",
        &format!("  server=s (id=1) addr=127.0.0.1:{}\n", origin.port()),
        "  scf=",
        "  scb=",
        "state=EST",
        "  req=",
        "  res=",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn malformed_request_is_shown_with_its_parser_state() {
    let (weir, _origin, port) = silent();
    client::exchange(port, "GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n").expect("an answer");
    let shown = weir.ask("show errors");
    for part in [
        "frontend f (#2): invalid request\n",
        "  buffer starts at 0 (including 0 out), 16344 free,\n  len 40, wraps at 16384, error at position 28\n",
        "  H1 msg state MSG_HDR_NAME(17), H1 msg flags ",
        "  H1 chunk len 0 bytes, H1 body len 0 bytes : invalid header name, stream #",
        ", fault bad_request\n",
        "\n  00025  Bad Name: x\\r\\n\n",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

/// Returns how the server connection ends when the client has closed its side.
fn end_of_server(option: &str) -> Option<ErrorKind> {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let origin = Origin::raw(move |stream| {
        let outcome = std::io::Read::read_to_end(&mut { stream }, &mut Vec::new());
        let _ = told.lock().expect("nobody panics with it").send(outcome.err().map(|error| error.kind()));
    });
    let port = free_port();
    let text = format!(
        "defaults\n  mode tcp\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  {option}\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[]);
    assert!(eventually(|| TcpStream::connect(("127.0.0.1", port)).is_ok()));
    let first = heard.recv_timeout(weir_tests::PATIENCE).expect("the connection that looked");
    let mut client = Client::connect(port);
    client.send("all").shut();
    assert_eq!(client.read_to_end(), b"");
    let second = heard.recv_timeout(weir_tests::PATIENCE).expect("the connection ends");
    assert_eq!(first, second);
    second
}

#[test]
fn nolinger_resets_the_server_connection() {
    assert_eq!(end_of_server("option tcpka"), None);
    assert_eq!(end_of_server("option nolinger"), Some(ErrorKind::ConnectionReset));
}

#[test]
fn tcp_content_rules_parse_http_requests() {
    let (port, origin) = (free_port(), Origin::echo());
    let text = format!(
        "global\n  stats socket runtime level admin\n\
         defaults\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         backend t\n  stick-table type string len 40 size 100 store gpc0\n\
         frontend f\n  bind 127.0.0.1:{port}\n  tcp-request inspect-delay 20s\n  tcp-request content track-sc0 url table t\n\
         \x20 tcp-request content sc-inc-gpc0(0)\n  tcp-request content reject if {{ path /no }}\n\
         \x20 use_backend elsewhere if {{ req.hdr(host) other }}\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{}\nbackend elsewhere\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let answer = |pieces: &[&str]| {
        let mut client = Client::connect(port);
        for piece in pieces {
            client.send(*piece);
        }
        client.response().map(|response| response.status)
    };
    assert_eq!(answer(&["GET /yes?x HTTP/1.1\r\nHost: a\r\n\r\n"]), Some(200));
    assert_eq!(answer(&["GET /in/pie", "ces HTTP/1.1\r\nHost: a\r\n", "\r\n"]), Some(200));
    assert_eq!(answer(&["GET /no HTTP/1.1\r\nHost: a\r\n\r\n"]), None);
    assert_eq!(answer(&["GET /other HTTP/1.1\r\nHost: other\r\n\r\n"]), None);
    for url in ["/yes?x", "/in/pieces", "/no", "/other"] {
        // The entry is released when the stream has ended, possibly after its client was answered.
        let is_free = || weir.ask("show table t").contains(&format!(" key={url} use=0 "));
        assert!(eventually(is_free), "{url}: {}", weir.ask("show table t"));
    }
    // Two of the requests, and the connection without data that checked the port.
    assert!(eventually(|| origin.connections() == 3), "{}", weir.messages());
    // Non-HTTP data is not waited for.
    let mut client = Client::connect(port);
    client.send("\u{16}\u{3}\u{1}");
    assert!(eventually(|| origin.connections() == 4), "{}", weir.messages());
}
