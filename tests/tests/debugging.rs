//! What operators find the cause of a fault with: rare events, streams that hang, requests of their own.

use std::net::TcpListener;

use weir_tests::client::{Client, get};
use weir_tests::multiplexed::Frames;
use weir_tests::{NameServer, Origin, Weir, Zone, eventually, free_port};

const TOP: &str = "global\n  nbthread 2\n  stats socket runtime level admin\n\
                   defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// A server that accepts and says nothing.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("an address").port()
}

#[test]
fn request_lines_of_streams_are_shown_where_they_are_kept_for_logs() {
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
fn streams_are_suspicious_that_have_waited_longer_than_their_timeouts_allow() {
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

#[test]
fn breaches_and_rare_events_are_counted_by_their_place() {
    let origin = Origin::echo();
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{port} proto h2\n  default_backend b\nlisten plain\n  bind 127.0.0.1:{}\n  \
             server s 127.0.0.1:1\nbackend b\n  server s 127.0.0.1:{}\n",
            free_port(),
            origin.port()
        ),
        &[port],
    );
    let of = |what: &str, text: &str| {
        let shown = weir.ask(&format!("debug counters {what}"));
        let line = shown.lines().find(|line| line.ends_with(text)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    let even = "a client opened a stream of an even number";
    assert_eq!((of("", even), of("all", even), of("all cnt", even)), (None, Some(0), None));
    let mut frames = Frames::connect(port);
    // HEADERS of stream 2: `GET /` of `http`, without an authority.
    frames.send(1, 5, 2, &[0x82, 0x84, 0x86]);
    assert!(eventually(|| of("glt", even) == Some(1)), "{}", weir.ask("debug counters all"));
    let line = weir.ask("debug counters");
    assert!(line.contains("GLT crates/h2/src/fault.rs:") && line.contains(" Breach::EvenStream: "), "{line}");
    weir.ask("debug counters glt reset");
    assert_eq!((of("", even), of("all", even)), (None, Some(0)));
    assert!(weir.ask("debug counters nonsense").starts_with("Usage:"));
    let bug = "a panic ended what a task did";
    assert!(weir.ask("expert-mode on; debug dev bug").trim().is_empty());
    assert!(eventually(|| of("bug", bug) == Some(1)), "{}", weir.ask("debug counters"));
}

#[test]
fn rare_events_are_not_counted_while_that_is_switched_off() {
    let (origin, port) = (Origin::echo(), free_port());
    // Nobody takes the log lines.
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{port}\n  log backend@lines local0\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n\
             backend lines\n  mode log\n  server s udp@127.0.0.1:9 disabled\n",
            origin.port()
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let lost = |expected: u64| {
        assert_eq!(get(port, "/").map(|response| response.status), Some(200));
        let dropped = format!("DroppedLogs: {expected}\n");
        assert!(eventually(|| weir.ask("show info").contains(&dropped)), "{}", weir.ask("show info"));
        let shown = weir.ask("debug counters cnt");
        let line = shown.lines().find(|line| line.contains("a log line is lost")).unwrap_or_default();
        line.split_whitespace().next().and_then(|count| count.parse::<u64>().ok())
    };
    assert_eq!(lost(1), Some(1));
    weir.ask("debug counters off");
    assert_eq!(lost(2), Some(1));
    weir.ask("debug counters on reset");
    assert_eq!(lost(3), Some(1));
}

#[test]
fn an_operator_sends_requests_of_the_process() {
    let origin = Origin::start(|head, _| {
        let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
        let length = line.len();
        format!("HTTP/1.1 200 Fine\r\nX-Own: A b\r\nContent-Length: {length}\r\n\r\n{line}").into_bytes()
    });
    let names = NameServer::start(&[("named.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let text = format!(
        "{TOP}resolvers default\n  nameserver n 127.0.0.1:{}\nfrontend f\n  bind 127.0.0.1:{}\n  http-request deny\n",
        names.port(),
        free_port()
    );
    let weir = Weir::start(&text.replace("global\n", "global\n  httpclient.retries 0\n"), &[]);
    assert!(weir.ask("httpclient GET http://127.0.0.1/").contains("restricted to expert mode"));
    let send = |words: &str| weir.ask(&format!("expert-mode on; httpclient {words}"));
    for host in ["127.0.0.1", "named.test"] {
        let answer = send(&format!("GET http://{host}:{}/a?b", origin.port()));
        assert!(answer.contains("HTTP/1.1 200 Fine\nx-own: A b\r\n"), "{answer}");
        assert!(answer.contains("\r\n\r\nGET /a?b\n"), "{answer}");
    }
    let parts = send(&format!("--htx PUT http://127.0.0.1:{}/", origin.port()));
    assert!(parts.contains("[1] type=HTX_BLK_HDR       - size=8      - addr=17    \tx-own: A b"), "{parts}");
    let closed = free_port();
    assert!(send(&format!("GET http://127.0.0.1:{closed}/")).contains("HTTP/1.1 0 "));
    assert!(send("GET").contains("not enough parameters"));
    assert!(send("GET ldap://a/").contains("not http:// or https://"));
}
