//! The contents of log lines: connections that never become a stream, invalid requests, captured fields; and which lines are
//! written.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use weir_tests::client::Client;
use weir_tests::logs::{Collector, DEFAULTS, GLOBAL, frontend, get};
use weir_tests::{Origin, Weir, free_port};

#[test]
fn connections_that_never_become_streams_are_logged() {
    let collector = Collector::new();
    let (port, custom) = (free_port(), free_port());
    let log = format!("log 127.0.0.1:{} format raw local0", collector.port());
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{port} accept-proxy name door\n  option dontlognull\n  {log}\n\
             frontend g\n  bind 127.0.0.1:{custom} accept-proxy\n  {log}\n  error-log-format \"%OG of %ci on %f, %tsc\"\n  option dontlognull\n"
        ),
        &[port, custom],
    );
    Client::connect(port).send("GET / HTTP/1.1\r\n\r\n").read_to_end();
    let text = collector.next();
    assert!(
        text.starts_with("127.0.0.1:")
            && text
                .ends_with("] f/door: Received something which does not look like a PROXY protocol header\n"),
        "{text}"
    );
    Client::connect(custom).send("GET / HTTP/1.1\r\n\r\n").read_to_end();
    assert_eq!(collector.next(), "sess_error of 127.0.0.1 on g, PR--\n");
}

#[test]
fn missing_proxy_header_is_logged_with_code_and_text() {
    let waiting = |kind| format!("{kind} while waiting for PROXY protocol header");
    let received = |what| format!("Received {what} PROXY protocol header");
    let other =
        "15 PRX_NOT_HDR Received something which does not look like a PROXY protocol header".to_owned();
    let invalid = received("an invalid").replace("Received", "16 PRX_BAD_HDR Received");
    let cases: &[(&[u8], &str, String)] = &[
        (b"", "close", waiting("11 PRX_EMPTY Connection closed")),
        (b"", "late", waiting("13 PRX_TIMEOUT Timeout")),
        (b"PROXY TCP4 192.0", "close", "14 PRX_TRUNCATED Truncated PROXY protocol header received".into()),
        (b"GET / HTTP/1.1\r\n\r\n", "wait", other.clone()),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "wait", invalid.clone()),
        (
            b"PROXY SCTP 192.0.2.1 192.0.2.2 1 2\r\n",
            "wait",
            "17 PRX_BAD_PROTO Received an unhandled protocol in the PROXY protocol header".into(),
        ),
        (b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0", "wait", other),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x41\0\0", "wait", invalid.clone()),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04\x01\x02\x03\x04", "wait", invalid),
        (
            b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            "wait",
            "fine: 0 Success".into(),
        ),
    ];
    tell("accept-proxy", cases);
}

#[test]
fn missing_netscaler_header_is_logged_with_code_and_text() {
    let waiting = |what: &str, kind| format!("{what} {kind} NetScaler Client IP header");
    let magic = "22 CIP_BAD_MAGIC Received an invalid NetScaler Client IP magic number".to_owned();
    let cases: &[(&[u8], &str, String)] = &[
        (b"", "close", waiting("18 CIP_EMPTY Connection closed", "while waiting for")),
        (b"\0\0", "late", waiting("20 CIP_TIMEOUT Timeout", "while waiting for a")),
        (b"\0\0\x04", "close", "21 CIP_TRUNCATED Truncated NetScaler Client IP header received".into()),
        (b"GET / HTTP/1.1\r\n\r\n", "wait", magic),
        (
            b"\0\0\x04\xd2\0\0\0\x14\x50123456789012345678901234567890",
            "wait",
            "23 CIP_BAD_PROTO Received an unhandled protocol in the NetScaler Client IP header".into(),
        ),
    ];
    tell("accept-netscaler-cip 1234", cases);
}

/// Checks the log lines of clients that send bytes to a listener with `accepts`, and then close the connection (`close`), leave it
/// open (`wait`), or wait for the timeout (`late`).
fn tell(accepts: &str, cases: &[(&[u8], &str, String)]) {
    let collector = Collector::new();
    // A check for an open port would also be logged, so only the last listener is checked: when it is open, the others are too.
    let (patient, hurried, open) = (free_port(), free_port(), free_port());
    let frontend = |name: &str, port: u16, lines: &str| {
        format!(
            "frontend {name}\n  bind 127.0.0.1:{port} {accepts}\n  {lines}\n  \
             log 127.0.0.1:{} format raw local0\n  log-format \"fine: %[fc_err] %[fc_err_str]\"\n  \
             error-log-format \"%[fc_err] %[fc_err_name] %[fc_err_str]\"\n  http-request return status 200\n",
            collector.port()
        )
    };
    let frontends = frontend("f", patient, "") + &frontend("h", hurried, "timeout client-hs 50ms");
    let _weir =
        Weir::start(&format!("{GLOBAL}{DEFAULTS}{frontends}frontend g\n  bind 127.0.0.1:{open}\n"), &[open]);
    for (bytes, then, told) in cases {
        let port = if *then == "late" { hurried } else { patient };
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port is open");
        client.write_all(bytes).expect("a connection");
        let open = (*then != "close").then_some(client);
        assert_eq!(collector.next().trim_end(), told, "{}", bytes.escape_ascii());
        drop(open);
    }
}

#[test]
fn sampling_counts_lines_across_threads() {
    let collector = Collector::new();
    let ports = [free_port(), free_port()];
    let log = format!("  log 127.0.0.1:{} format raw sample 1,3:4 local0\n", collector.port());
    let frontend = |port: u16| {
        format!(
            "frontend f{port}\n  bind 127.0.0.1:{port} shards by-thread\n  log global\n  option dontlognull\n  \
             log-format \"%HP\"\n  http-request return status 200\n"
        )
    };
    let frontends = ports.map(frontend).concat();
    let _weir = Weir::start(&format!("{GLOBAL}{log}{DEFAULTS}{frontends}"), &ports);
    for number in 0..8 {
        get(ports[0], &format!("/a{number}"));
        get(ports[1], &format!("/b{number}"));
    }
    // Which lines are sampled depends on the threads, but half of each proxy's lines are sent.
    let told: Vec<String> = (0..8).map(|_| collector.next()).collect();
    assert_eq!(told.iter().filter(|path| path.starts_with("/a")).count(), 4, "{told:?}");
}

#[test]
fn default_format_shows_source_and_destination() {
    let collector = Collector::new();
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  log 127.0.0.1:{} format raw local0\n  option dontlognull\n  http-request return status 200\n",
            collector.port()
        ),
        &[port],
    );
    get(port, "/");
    let text = collector.next();
    assert!(
        text.starts_with("Connect from 127.0.0.1:")
            && text.ends_with(&format!(" to 127.0.0.1:{port} (f/HTTP)\n")),
        "{text}"
    );
}

#[test]
fn capture_slots_are_shown_for_all_responses() {
    let collector = Collector::new();
    let port = free_port();
    let logs = format!("log 127.0.0.1:{} format raw local0", collector.port());
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  option dontlognull\n  {logs}\n  log-format \"%hr %hs %hsl\"\n  \
             capture request header Host len 9\n  capture request header X-None len 9\n  capture response header X-Some len 9\n  \
             http-request return status 200\n"
        ),
        &[port],
    );
    get(port, "/");
    assert_eq!(collector.next(), "{h|} {} -\n");
}

#[test]
fn invalid_request_is_logged_while_its_client_is_connected() {
    let (port, collector) = (free_port(), Collector::new());
    let logs = format!("log 127.0.0.1:{} local0", collector.port());
    let weir = Weir::start(&format!("{GLOBAL}{DEFAULTS}{}", frontend(port, &logs)), &[port]);
    // More bytes than were read may be on their way: the connection stays open until they can be discarded.
    let early = (0..5).any(|_| {
        let mut client = Client::connect(port);
        client.send("BAD\x01\r\n\r\n");
        let _ = collector.next();
        weir.ask("show info").contains("\nCurrConns: 1\n")
    });
    assert!(early, "{}", weir.ask("show sess"));
}

#[test]
fn denied_requests_have_unique_ids_and_invalid_ones_do_not() {
    let (collector, port) = (Collector::new(), free_port());
    let configuration = format!(
        "{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  option dontlognull\n  log 127.0.0.1:{} local0\n  unique-id-format one\n  \
         log-format \"<%ID %ST %[txn.status]>\"\n  http-request deny\n",
        collector.port()
    );
    let _weir = Weir::start(&configuration, &[port]);
    for (request, expected) in
        [("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "<one 403 403>"), ("nothing\r\n\r\n", "<- 400 ->")]
    {
        let mut client = Client::connect(port);
        client.send(request);
        let line = collector.next();
        assert!(line.contains(expected), "{line}");
    }
}

/// Returns a frontend that answers valid requests and logs connections, with the lines `more`.
fn strict(port: u16, collector: &Collector, more: &str) -> String {
    format!(
        "frontend f{port}\n  bind 127.0.0.1:{port}\n  timeout http-request 200ms\n  log 127.0.0.1:{} {more}\n  \
         log-format \"usual %OG %ST %tsc\"\n  http-request return status 200\n",
        collector.port()
    )
}

#[test]
fn invalid_request_is_logged_as_a_connection_error() {
    let collector = Collector::new();
    let ports = [free_port(), free_port(), free_port()];
    let raw = "format raw local0\n  ";
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}log-profile p\n  on error format \"profile %OG %ST %tsc\"\n  on close drop\n{DEFAULTS}{}{}{}",
            strict(
                ports[0],
                &collector,
                &format!("{raw}log-steps accept\n  error-log-format \"error %OG %ST %tsc\"")
            ),
            strict(ports[1], &collector, raw),
            strict(ports[2], &collector, &format!("profile p {raw}")),
        ),
        &ports,
    );
    // A check for an open port is not a request, but is logged too, except where a profile drops it.
    let mut probes: Vec<_> = (0..3).map(|_| collector.next()).collect();
    probes.sort();
    assert_eq!(
        probes,
        ["error sess_error 400 CR--\n", "profile sess_error 400 CR--\n", "usual sess_error 400 CR--\n"]
    );
    let cases: &[(&str, &str)] = &[
        ("GET\r\n\r\n", "400 PR--"),
        ("GET / HTTP/1.1\r\n", "408 cR--"),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400 PR--"),
    ];
    for (bytes, end) in cases {
        for (port, format) in ports.into_iter().zip(["error", "usual", "profile"]) {
            Client::connect(port).send(bytes).read_to_end();
            assert_eq!(collector.next(), format!("{format} sess_error {end}\n"), "{bytes:?}");
        }
    }
    // A valid request is logged at the configured steps, whatever happens to it.
    get(ports[0], "/");
    assert_eq!(collector.next(), "usual txn_accept 0 ----\n");
    get(ports[2], "/");
    get(ports[1], "/");
    assert_eq!(collector.next(), "usual txn_close 200 LR--\n");
}

#[test]
fn request_with_invalid_first_chunk_reaches_no_server() {
    let origin = Origin::text("reached");
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in ["zz\r\n", "5\r\nhello!\r\n", "5\nhello", "-1\r\n"] {
        let answer = Client::connect(port).send(format!("{head}{body}")).read_to_end();
        assert!(answer.starts_with(b"HTTP/1.1 400"), "{body:?}: {}", answer.escape_ascii());
    }
    assert_eq!(origin.connections(), 0);
    let kept = weir.ask("show errors");
    assert!(kept.contains("invalid chunk") && kept.contains("-1\\r\\n"), "{kept}");
    let answer = Client::connect(port).send(format!("{head}5\r\nhello\r\n0\r\n\r\n")).read_to_end();
    assert!(answer.ends_with(b"reached"), "{}", answer.escape_ascii());
}

#[test]
fn logged_uris_are_limited_as_configured() {
    for (said, length) in
        [("", 1023), ("  tune.http.logurilen 20\n", 20), ("  tune.http.logurilen 2000\n", 2000)]
    {
        let (port, collector) = (free_port(), Collector::new());
        let logs = format!("log 127.0.0.1:{} len 8192 format raw local0", collector.port());
        let frontend = frontend(port, &logs).replace("path=%HP", "%r");
        let _weir = Weir::start(&format!("{GLOBAL}{said}{DEFAULTS}{frontend}"), &[port]);
        get(port, &format!("/{}", "a".repeat(3000)));
        assert_eq!(collector.next(), format!("GET /{}\n", "a".repeat(length - 5)), "{said}");
    }
}

#[test]
fn intermediate_lines_have_completed_times() {
    let collector = Collector::new();
    let (port, origin) = (free_port(), Origin::text("ok"));
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  option dontlognull\n  log 127.0.0.1:{} format raw local0\n  \
             log-steps accept,request,connect,response,close\n  log-format \"%OG %TR/%Tq/%Tw/%Tc/%Tr/%Ta/%Tt %ST %B\"\n  \
             http-request do-log\n  http-response do-log\n  http-after-response do-log\n  default_backend b\n\
             backend b\n  http-request do-log\n  server s 127.0.0.1:{}\n",
            collector.port(),
            origin.port()
        ),
        &[port],
    );
    get(port, "/");
    let mut lines: Vec<String> = Vec::new();
    while lines.last().is_none_or(|line| !line.starts_with("txn_close")) {
        lines.push(collector.next());
    }
    // The check for the open port writes such a line too, on any worker and thus at any time.
    let accepted = |line: &String| line.starts_with("txn_accept");
    while lines.iter().filter(|line| accepted(line)).count() > 1 {
        lines.remove(lines.iter().position(accepted).unwrap_or_default());
    }
    // A busy machine may let it be the first line of all.
    let first = lines.iter().position(accepted).unwrap_or_default();
    lines[..=first].rotate_right(1);
    let shape = |line: &String| {
        let mut words = line.trim_end().split(' ');
        let (step, times) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let known = times.split('/').take(5).map(|time| if time == "-1" { '-' } else { '+' });
        format!("{step} {} {}", known.collect::<String>(), words.next().unwrap_or_default())
    };
    let shown: Vec<String> = lines.iter().map(shape).collect();
    assert_eq!(
        shown,
        [
            "txn_accept ----- 0",
            "txn_request ----- -1",
            "http-req ----- -1",
            "http-req ----- -1",
            "txn_connect ++++- -1",
            "http-res +++++ 200",
            "http-after-res +++++ 200",
            "txn_response +++++ 200",
            "txn_close +++++ 200",
        ]
    );
    let before =
        lines.iter().filter(|line| !line.starts_with("txn_response") && !line.starts_with("txn_close"));
    // The time of the whole session is 0 before its end. The active time lacks the idle time, which can be a millisecond.
    let has_no_time = |line: &String| line.split(' ').nth(1).is_some_and(|times| times.ends_with("/0"));
    assert!(before.clone().count() == 7 && before.clone().all(has_no_time), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains('+')), "{lines:?}");
}

#[test]
fn request_without_backend_has_no_request_time() {
    let collector = Collector::new();
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  option dontlognull\n  log 127.0.0.1:{} format raw local0\n  \
             log-format \"%TR/%Tq/%Tw/%Tc/%Tr %ST %tsc\"\n",
            collector.port()
        ),
        &[port],
    );
    for _ in 0..2 {
        Client::connect(port).send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").read_to_end();
        assert_eq!(collector.next(), "-1/-1/-1/-1/-1 503 SC--\n");
    }
}

#[test]
fn refused_connections_are_logged_with_the_address_of_the_server() {
    let collector = Collector::new();
    let (http, tcp, closed) = (free_port(), free_port(), free_port());
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}  option dontlognull\n  retries 0\n  log 127.0.0.1:{} format raw local0\n  \
             log-format \"%si:%sp %[bc_dst]:%[bc_dst_port] %ts\"\n\
             listen h\n  bind 127.0.0.1:{http}\n  server s 127.0.0.1:{closed}\n\
             listen t\n  mode tcp\n  bind 127.0.0.1:{tcp}\n  server s 127.0.0.1:{closed}\n",
            collector.port()
        ),
        &[http],
    );
    let expected = format!("127.0.0.1:{closed} 127.0.0.1:{closed} SC\n");
    for port in [http, tcp] {
        Client::connect(port).send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").read_to_end();
        assert_eq!(collector.next(), expected);
    }
}

#[test]
fn tcp_streams_have_no_request_and_no_response() {
    let collector = Collector::new();
    let origin = Origin::text("ok");
    let (port, ready) = (free_port(), free_port());
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}listen l\n  mode tcp\n  bind 127.0.0.1:{port}\n  log 127.0.0.1:{} format raw local0\n  \
             log-steps all\n  log-format %OG\n  server s 127.0.0.1:{}\nlisten r\n  bind 127.0.0.1:{ready}\n",
            collector.port(),
            origin.port()
        ),
        &[ready],
    );
    Client::connect(port).send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").read_to_end();
    let steps = [(); 3].map(|()| collector.next());
    assert_eq!(steps, ["txn_accept\n", "txn_connect\n", "txn_close\n"]);
}

#[test]
fn so_name_is_the_name_of_the_bind_line() {
    let ports = [free_port(), free_port()];
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{}\n  bind 127.0.0.1:{} name door\n  \
             http-request return status 200 content-type text/plain lf-string \"%[so_name] %[so_id]\" if {{ so_name -m found }}\n  \
             http-request return status 200 content-type text/plain lf-string \"none %[so_id]\"\n",
            ports[0], ports[1]
        ),
        &ports,
    );
    let body = |port| weir_tests::client::get(port, "/").expect("a response").text();
    assert_eq!(ports.map(body), ["none 1", "door 2"]);
}
