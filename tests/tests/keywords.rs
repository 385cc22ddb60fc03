//! Keywords seen from outside, one test a keyword: each fails where the keyword is read and
//! forgotten.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_tests::client::{self, Client, Response};
use weir_tests::{Origin, PATIENCE, Weir, eventually, free_port};

const DEFAULTS: &str =
    "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// A program with a runtime socket, `listen l` on a port of its own with these lines, and one
/// server.
fn listen(global: &str, lines: &str, server: &str) -> (Weir, u16) {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  stats socket runtime level admin\n  nbthread 2\n{global}{DEFAULTS}listen l\n  bind 127.0.0.1:{port}\n\
             {lines}  server s {server}\n"
        ),
        &[port],
    );
    (weir, port)
}

fn local(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port())
}

fn ask(port: u16, request: &str) -> Response {
    client::exchange(port, request).expect("a response")
}

/// A collector of log lines.
fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let line = format!("  log {} local0\n", socket.local_addr().expect("a bound socket has an address"));
    (socket, line)
}

/// The next line of `socket` that has `text` in it.
fn logged(socket: &UdpSocket, text: &str) -> String {
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).expect("a log line");
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if line.contains(text) {
            return line;
        }
    }
}

#[test]
fn logasap_logs_before_the_body_is_over() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        // The rest never comes.
        let _ = stream.read(&mut [0; 1]);
    });
    let (socket, log) = collector();
    let (_weir, port) = listen("", &format!("{log}  option httplog\n  option logasap\n"), &local(&origin));
    let mut client = Client::connect(port);
    client.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n");
    let line = logged(&socket, "/endless");
    assert!(line.contains("/+") && line.contains(" 200 +") && line.contains(" ---- "), "{line}");
}

#[test]
fn a_format_without_late_values_is_logged_before_the_body_is_over() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        // The rest never comes.
        let _ = stream.read(&mut [0; 1]);
    });
    let (early, to_early) = collector();
    let (late, to_late) = collector();
    let settings =
        |log: &str, format: &str| format!("{log}  option dontlognull\n  log-format \"{format}\"\n");
    let (_first, port) = listen("", &settings(&to_early, "early %ST %tsc %HU %[src]"), &local(&origin));
    let (_second, other) = listen(
        "",
        &settings(&to_late, "late %ST %tsc %HU %[bytes_in] %[req.bytes_in] %[req.bytes_out]"),
        &local(&origin),
    );
    let mut clients = [Client::connect(port), Client::connect(other)];
    for client in &mut clients {
        client.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    let line = logged(&early, "early");
    assert!(line.trim_end().ends_with("early 200 ---- /endless 127.0.0.1"), "{line}");
    // The other waits for the end, which the client makes.
    for client in &mut clients {
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
    }
    drop(clients);
    let line = logged(&late, "late");
    assert!(line.trim_end().ends_with("late 200 CD-- /endless 34 34 34"), "{line}");
    // The early one has no second line: what comes next is of the next request.
    let mut next = Client::connect(port);
    next.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    let line = logged(&early, "early");
    assert!(line.contains("/next"), "{line}");
}

#[test]
fn a_line_without_a_byte_is_not_sent() {
    let origin = Origin::start(|_, _| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let (socket, log) = collector();
    let (_weir, port) =
        listen("", &format!("{log}  option dontlognull\n  log-format %HQ\n"), &local(&origin));
    for path in ["/silent", "/heard?loud"] {
        assert_eq!(client::get(port, path).expect("a response").status, 204);
    }
    let line = logged(&socket, "");
    assert!(line.trim_end().ends_with("?loud"), "{line}");
}

#[test]
fn checkcache_refuses_a_cookie_that_caches_may_keep() {
    let origin = Origin::start(|head, _| {
        let control = if head.contains("/safe") { "private" } else { "max-age=60" };
        format!(
            "HTTP/1.1 200 OK\r\nSet-Cookie: sid=1\r\nCache-Control: {control}\r\nContent-Length: 2\r\n\r\nhi"
        )
        .into_bytes()
    });
    let (socket, log) = collector();
    let (_weir, port) = listen("", &format!("{log}  option httplog\n  option checkcache\n"), &local(&origin));
    assert_eq!(client::get(port, "/safe").expect("a response").status, 200);
    let refused = client::get(port, "/risky").expect("a response");
    assert_eq!(refused.status, 502);
    assert!(!refused.head.contains("sid=1"), "{refused:?}");
    logged(&socket, "Blocking cacheable cookie in response from instance l, server s.");
    let line = logged(&socket, "/risky");
    assert!(line.contains(" 502 ") && line.contains(" PH-- "), "{line}");
}

#[test]
fn trailers_are_dropped_on_request() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while !bytes.ends_with(b"0\r\n\r\n") && !bytes.ends_with(b"ret: x\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&part[..n]),
                _ => return,
            }
        }
        let kept = u8::from(bytes.windows(7).any(|part| part == b"Secret:"));
        let _ = stream.write_all(
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{kept}\r\n0\r\nFoo: bar\r\n\r\n"
            )
            .as_bytes(),
        );
    });
    let request = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\nSecret: x\r\n\r\n";
    for (drop, wanted) in [(false, ("1", true)), (true, ("0", false))] {
        let port = free_port();
        let (of_request, of_response) = match drop {
            true => ("  option http-drop-request-trailers\n", "  option http-drop-response-trailers\n"),
            false => ("", ""),
        };
        let _weir = Weir::start(
            &format!(
                "{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n{of_response}  default_backend b\nbackend b\n{of_request}  \
                 server s {}\n",
                local(&origin)
            ),
            &[port],
        );
        let all = String::from_utf8_lossy(&Client::connect(port).send(request).read_to_end()).into_owned();
        assert_eq!(
            (all.contains(&format!("1\r\n{}\r\n0\r\n", wanted.0)), all.contains("Foo: bar")),
            (true, wanted.1),
            "{all}"
        );
    }
}

#[test]
fn a_proxied_request_is_asked_for_its_proxy_password() {
    let origin = Origin::text("hello");
    let rules = "  option http-use-proxy-header\n  http-request auth realm x\n";
    let (_weir, port) = listen("", rules, &local(&origin));
    assert_eq!(ask(port, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").status, 401);
    let proxied = ask(port, "GET http://h/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(proxied.status, 407);
    assert!(proxied.header("proxy-authenticate").is_some(), "{proxied:?}");
}

#[test]
fn independent_streams_do_not_take_sent_bytes_for_life() {
    // The server never says anything; the client goes on sending more often than the server's
    // timeout.
    let origin = Origin::raw(|mut stream| while matches!(stream.read(&mut [0; 64]), Ok(n) if n > 0) {});
    let lines = "  mode tcp\n  timeout server 300ms\n  option independent-streams\n";
    let (_weir, port) = listen("", lines, &local(&origin));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("the timeout is not zero");
    let ended = eventually(|| {
        let _ = stream.write_all(b"x");
        !matches!(stream.read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(ended, "bytes sent to a silent server kept the stream alive");
}

#[test]
fn redir_sends_clients_to_the_server_itself() {
    let origin = Origin::text("hello");
    let (_weir, port) = listen("", "", &format!("{} redir http://images.test", local(&origin)));
    let moved = client::get(port, "/a/b?c").expect("a response");
    assert_eq!((moved.status, moved.header("location")), (302, Some("http://images.test/a/b?c")));
    let post = ask(port, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((post.status, origin.requests()), (200, 1));
}

#[test]
fn a_server_behind_socks4_is_reached_through_the_proxy() {
    let origin = Origin::text("hello");
    let socks = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = socks.local_addr().expect("a bound socket has an address");
    let wanted = origin.port();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = loop {
            // The harness looks whether the port of the program listens, not this one: the first is
            // the request.
            if let Ok(accepted) = socks.accept() {
                break accepted;
            }
        };
        let mut request = [0; 16];
        stream.read_exact(&mut request).expect("a SOCKS4 request");
        stream.write_all(&[0, 90, 0, 0, 0, 0, 0, 0]).expect("an answer");
        let mut server = TcpStream::connect(("127.0.0.1", wanted)).expect("the server");
        let (mut back, mut from) =
            (stream.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        std::thread::spawn(move || std::io::copy(&mut from, &mut back));
        let _ = std::io::copy(&mut stream, &mut server);
        request
    });
    let (weir, port) = listen("", "", &format!("{} socks4 {proxy}", local(&origin)));
    assert_eq!(client::get(port, "/").expect("a response").text(), "hello");
    drop(weir);
    let [high, low] = wanted.to_be_bytes();
    let request = asked.join().expect("the proxy");
    assert_eq!(request[..8], [4, 1, high, low, 127, 0, 0, 1]);
    assert_eq!(&request[8..], b"HAProxy\0", "the user that HAProxy names");
}

#[test]
fn strict_maxconn_counts_idle_connections_too() {
    let origin = Origin::text("hello");
    // Connections of different names are not shared, so that idle ones would pile up.
    let server = format!(
        "{} maxconn 2 strict-maxconn pool-low-conn 10 pool-conn-name req.hdr(x-name)",
        local(&origin)
    );
    let (weir, port) = listen("", "  http-reuse always\n", &server);
    for number in 0..6 {
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Name: n{number}\r\nConnection: close\r\n\r\n");
        assert_eq!(ask(port, &request).status, 200);
        let idle = idle_connections(&weir);
        assert!(idle <= 2, "{idle} idle connections");
    }
    assert_eq!(origin.connections(), 6);
}

/// `idle_conn_cur` of the only server, from `show servers conn`.
fn idle_connections(weir: &Weir) -> u32 {
    let answer = weir.ask("show servers conn l");
    let line = answer.lines().find(|line| line.starts_with("l/s ")).expect("the server's line");
    line.split(' ').nth(11).and_then(|field| field.parse().ok()).expect("a number")
}

#[test]
fn idle_connections_are_kept_only_while_descriptors_are_plenty() {
    for (ratio, wanted) in [(100, 1), (1, 3)] {
        let origin = Origin::text("hello");
        // One per cent of a hundred descriptors: the client's own connection is one.
        let global = format!("  ulimit-n 180\n  tune.pool-low-fd-ratio {ratio}\n");
        let (_weir, port) = listen(&global, "  http-reuse always\n", &local(&origin));
        let mut client = Client::connect(port);
        for _ in 0..3 {
            let response = client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a response");
            assert_eq!(response.status, 200);
        }
        assert_eq!(origin.connections(), wanted, "ratio {ratio}");
    }
}

#[test]
fn captured_cookies_are_cut_to_cookielen() {
    let origin = Origin::text("hello");
    let (socket, log) = collector();
    let lines = format!("{log}  option httplog\n  capture cookie sid= len 100\n");
    let (_weir, port) = listen("  tune.http.cookielen 10\n", &lines, &local(&origin));
    ask(port, "GET /c HTTP/1.1\r\nHost: h\r\nCookie: sid=0123456789\r\nConnection: close\r\n\r\n");
    let line = logged(&socket, "/c ");
    assert!(line.contains(" sid=012345 "), "{line}");
}

#[test]
fn variables_beyond_their_limits_stay_unset() {
    let origin = Origin::text("hello");
    let rules = "  http-request set-var(txn.small) str(x)\n  http-request set-var(req.large) req.hdr(x-large)\n  \
                 http-request return status 200 content-type text/plain lf-string %[var(txn.small)]%[var(req.large)]\n";
    let request = |length: usize| {
        format!("GET / HTTP/1.1\r\nHost: h\r\nX-Large: {}\r\nConnection: close\r\n\r\n", "y".repeat(length))
    };
    for limit in ["reqres", "txn", "sess", "proc", "global"] {
        let (_weir, port) = listen(&format!("  tune.vars.{limit}-max-size 1000\n"), rules, &local(&origin));
        for _ in 0..20 {
            assert_eq!(ask(port, &request(100)).body.len(), 101, "{limit}");
            assert_eq!(ask(port, &request(1000)).body.len(), 1, "{limit}");
        }
    }
}

#[test]
fn contstats_counts_bytes_while_they_flow() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        let _ = stream.write_all(&[b'x'; 50_000]);
        // The rest never comes.
        let _ = stream.read(&mut [0; 1]);
    });
    let (weir, port) = listen("", "  option contstats\n", &local(&origin));
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut drain = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    drain.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("a request");
    let mut seen = 0;
    while seen < 50_000 {
        seen += drain.read(&mut [0; 16384]).expect("bytes");
    }
    let counted = || weir.statistics().number("l,BACKEND", "bout");
    assert!(eventually(|| counted() >= 50_000), "counted {}", counted());
}

/// Starts a request whose answer waits until `release` is sent.
fn slow_origin() -> (Origin, std::sync::mpsc::Sender<()>) {
    let (send, receive) = std::sync::mpsc::channel();
    let receive = std::sync::Mutex::new(receive);
    let origin = Origin::start(move |head, _| {
        if head.contains("/slow") {
            let _ = receive.lock().expect("no panic before").recv_timeout(PATIENCE);
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()
    });
    (origin, send)
}

#[test]
fn a_soft_stop_tells_clients_to_close_unless_the_spread_is_infinite() {
    for (spread, wanted) in [("", Some("close")), ("  close-spread-time infinite\n", None)] {
        let (origin, release) = slow_origin();
        let (weir, port) = listen(spread, "", &local(&origin));
        let mut client = Client::connect(port);
        client.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(eventually(|| weir.ask("show sess").contains("requests") || origin.connections() > 0));
        weir.signal("USR1");
        assert!(weir.says("Proxy l stopped"), "{}", weir.messages());
        release.send(()).expect("the origin waits");
        let response = client.response().expect("a response");
        assert_eq!(response.header("connection"), wanted, "{spread}");
    }
}

#[test]
fn grace_keeps_the_listeners_open_and_says_that_it_stops() {
    let origin = Origin::text("hello");
    let lines = "  monitor-uri /check\n  monitor fail if { stopping }\n";
    let (mut weir, port) = listen("  grace 2s\n", lines, &local(&origin));
    assert_eq!(client::get(port, "/check").expect("a response").status, 200);
    let started = Instant::now();
    weir.signal("USR1");
    assert!(eventually(|| client::get(port, "/check").is_some_and(|response| response.status == 503)));
    assert_eq!(client::get(port, "/").expect("still served").status, 200);
    assert_eq!(weir.await_end(), Some(0));
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn idle_connections_may_wait_for_a_last_request_during_a_soft_stop() {
    for (option, waits) in [("", false), ("  option idle-close-on-response\n", true)] {
        let origin = Origin::text("hello");
        let (mut weir, port) = listen("", option, &local(&origin));
        let mut client = Client::connect(port);
        assert_eq!(
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a response").status,
            200
        );
        weir.signal("USR1");
        if waits {
            assert!(weir.says("Proxy l stopped"));
            // Longer than idle connections are left alone anyway.
            let until = Instant::now() + Duration::from_millis(1000);
            eventually(|| Instant::now() >= until);
            let last = client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a last response");
            assert_eq!((last.status, last.header("connection")), (200, Some("close")));
        } else {
            assert!(client.read_to_end().is_empty());
        }
        assert_eq!(weir.await_end(), Some(0));
    }
}

#[test]
fn keywords_without_effect_are_named_by_the_diagnostic_mode() {
    let directory = weir_tests::scratch("silent");
    let cases = [("global", "tune.idletimer 1s"), ("defaults", "option http-no-delay")];
    for (section, line) in cases {
        let file = directory.join("one.cfg");
        std::fs::write(&file, format!("{section}\n  {line}\n")).expect("a file");
        let verdict = weir_tests::check(&file, &directory);
        assert!(verdict.accepted() && verdict.warnings().is_empty(), "{line}: {}", verdict.messages);
        let shown = Command::new(weir_tests::program()).args(["-c", "-dD", "-f"]).arg(&file).output();
        let shown = shown.expect("the program runs");
        let messages = String::from_utf8_lossy(&shown.stderr);
        assert!(messages.contains("has no effect"), "{line}: {messages}");
    }
}

#[test]
fn an_rdp_cookie_leads_to_the_server_that_it_names() {
    let server = |name: &'static str| {
        Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(name.as_bytes());
        })
    };
    let (first, second) = (server("first"), server("second"));
    let port = free_port();
    let lines = |persist: &str| {
        format!(
            "global\n  stats socket runtime level admin\n{DEFAULTS}listen l\n  mode tcp\n  bind 127.0.0.1:{port}\n  balance first\n\
             {persist}  tcp-request inspect-delay 5s\n  tcp-request content accept if RDP_COOKIE\n\
             \x20 server a {}\n  server b {}\n",
            local(&first),
            local(&second)
        )
    };
    let weir = Weir::start(&lines("  persist rdp-cookie\n"), &[port]);
    // The connection request of RDP (X.224): its header, and the cookie that is a server's address
    // and port as they lie in memory.
    let request = |name: &str, server: u16| {
        let address = u32::from_le_bytes([127, 0, 0, 1]);
        let cookie = format!("Cookie: {name}={address}.{}.0000\r\n", server.swap_bytes());
        let mut bytes = vec![3, 0, 0, 11 + cookie.len() as u8, 6 + cookie.len() as u8, 0xe0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(cookie.as_bytes());
        bytes
    };
    let reached = |name: &str, server: u16| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.write_all(&request(name, server)).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer and the end");
        answer
    };
    assert_eq!(reached("msts", second.port()), "second");
    assert_eq!(reached("msts", first.port()), "first");
    assert_eq!(reached("mstshash", second.port()), "first", "another cookie");
    assert_eq!(reached("msts", 1), "first", "no server of ours");
    weir.ask("set server l/b state maint");
    assert_eq!(reached("msts", second.port()), "first", "it is down");
    drop(weir);
    let _weir = Weir::start(&lines("  persist rdp-cookie(mstshash)\n"), &[port]);
    assert_eq!(reached("mstshash", second.port()), "second", "the name is the configuration's");
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
        // A connection that is closed may refuse both.
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

#[test]
fn a_process_takes_the_priority_that_is_given_to_it() {
    let origin = Origin::text("hello");
    let (weir, _) = listen("  tune.renice.startup 3\n  tune.renice.runtime 7\n", "", &local(&origin));
    let threads = || std::fs::read_dir(format!("/proc/{}/task", weir.pid())).expect("it runs");
    assert!(eventually(|| threads().count() >= 2), "two workers are threads");
    for thread in threads().filter_map(Result::ok) {
        let stat = std::fs::read_to_string(thread.path().join("stat")).expect("it runs");
        // Behind the name in parentheses the state is the third field; the nice value is the
        // nineteenth (proc(5)).
        let nice = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16));
        assert_eq!(nice, Some("7"), "{stat}");
    }
}

/// The field `X-Glitches` of each answer on one connection until it says that it ends; `None` where
/// nothing came.
fn glitches(port: u16, request: &str, most: usize) -> Vec<(Option<String>, bool)> {
    let mut client = Client::connect(port);
    let mut seen = Vec::new();
    while seen.len() < most {
        let response = client.send(request).response();
        let counts = response.as_ref().and_then(|response| response.header("x-glitches").map(str::to_owned));
        let ends = response.is_none_or(|response| response.header("connection") == Some("close"));
        seen.push((counts, ends));
        if ends {
            break;
        }
    }
    seen
}

#[test]
fn odd_messages_that_are_let_pass_are_counted_kept_and_too_many_end_a_connection() {
    let origin = Origin::start(|head, _| {
        let odd = if head.contains("/odd") { "x[y: 1\r\n" } else { "" };
        format!("HTTP/1.1 200 OK\r\n{odd}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let lines = "  option accept-unsafe-violations-in-http-request\n  option accept-unsafe-violations-in-http-response\n  \
                 http-reuse always\n  http-after-response set-header X-Glitches %[fc_glitches]/%[bc_glitches]\n";
    let of = |numbers: &[&str]| {
        let last = numbers.len() - 1;
        let row = |(at, text): (usize, &&str)| (Some((*text).to_owned()), at == last);
        numbers.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let odd_request = "GET / HTTP/1.1\r\nHost: h\r\nx[y: 1\r\nz]: 2\r\n\r\n";
    let odd_response = "GET /odd HTTP/1.1\r\nHost: h\r\n\r\n";
    let limits = "  nbthread 1\n  tune.h1.fe.glitches-threshold 4\n  tune.h1.be.glitches-threshold 4\n";
    let (weir, port) = listen(limits, lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9), of(&["1/0", "2/0", "3/0"]), "three of four are nearly enough");
    let errors = weir.ask("show errors");
    assert!(errors.contains("invalid header name"), "{errors}");
    let before = origin.connections();
    let counts: Vec<String> =
        glitches(port, odd_response, 7).into_iter().filter_map(|(counts, _)| counts).collect();
    assert_eq!(
        counts,
        ["0/1", "0/2", "0/3", "0/1", "0/2", "0/3", "0/1"],
        "a server's connection ends at the same count"
    );
    assert_eq!(origin.connections() - before, 2);
    assert_eq!(
        weir.ask("show errors").matches("invalid header name").count(),
        2,
        "{}",
        weir.ask("show errors")
    );
    let (_weir, port) = listen("  nbthread 1\n  tune.h1.fe.glitches-threshold 1\n", lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9), [(None, true)], "one is too many");
    let (_weir, port) = listen("  nbthread 1\n", lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9).len(), 9, "there is no limit unless it is said");
    let busy = "  nbthread 1\n  tune.h1.fe.glitches-threshold 2\n  tune.glitches.kill.cpu-usage 100\n";
    let (_weir, port) = listen(busy, lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9).len(), 9, "a thread with time to spare bears with it");
}

#[test]
fn formats_of_rules_see_captures_and_the_status_of_their_own_answer() {
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "defaults\n  mode http\n  timeout client 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             capture request header x-a len 20\n  capture request header x-b len 20\n  \
             http-request set-var-fmt(txn.early) \"%hr %ST\"\n  \
             http-request deny deny_status 429 content-type text/plain lf-string \"%ST\" if {{ path /much }}\n  \
             http-request return status 201 content-type text/plain lf-string \"%[var(txn.early)] %{{+Q}}hr %ST\"\n"
        ),
        &[port],
    );
    let told = |path: &str| client::exchange_with(port, path, "x-a: one\r\n").map(|answer| answer.text());
    assert_eq!(told("/").as_deref(), Some("{one|} -1 \"{one|}\" 201"));
    assert_eq!(told("/much").as_deref(), Some("429"));
}
