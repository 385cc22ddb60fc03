//! What logs, counters and both sides see of whole exchanges, where comparing random ones with
//! HAProxy found a difference.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use weir_tests::client::Client;
use weir_tests::scene::Scene;
use weir_tests::{Origin, eventually, free_port};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Reads a head, and says these bytes; then reads on until the other side closes, unless it
/// `leaves`.
fn says(bytes: &'static str, leaves: bool) -> Origin {
    Origin::raw(move |mut stream| {
        let mut seen = Vec::new();
        let mut part = [0; 1024];
        while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(count @ 1..) => seen.extend_from_slice(&part[..count]),
                _ => return,
            }
        }
        let _ = stream.write_all(bytes.as_bytes());
        while !leaves && matches!(stream.read(&mut part), Ok(1..)) {}
    })
}

/// A scene with one server.
fn scene(defaults: &str, frontend: &str, backend: &str, origin: &Origin, parameters: &str) -> Scene {
    let server = format!("{backend}\n  server s 127.0.0.1:{} {parameters}", origin.port());
    Scene::start(defaults, frontend, &server)
}

#[test]
fn variables_of_the_request_end_with_it() {
    let origin = Origin::text("ok");
    let frontend = "http-request set-var(req.a) str(x)\n  http-request set-var(txn.b) str(y)\n  \
        http-request return status 200 if { path /here }\n  \
        http-response set-header x-var %[var(req.a)]/%[var(txn.b)]\n  \
        http-after-response set-header x-after %[var(req.a)]/%[var(txn.b)]";
    let scene = scene("", frontend, "", &origin, "");
    let answer = Client::connect(scene.port).send(GET).response().expect("an answer");
    assert_eq!((answer.header("x-var"), answer.header("x-after")), (Some("/y"), Some("/y")));
    let here = Client::connect(scene.port).send(GET.replace(" / ", " /here ")).response().expect("an answer");
    assert_eq!(here.header("x-after"), Some("/y"));
}

#[test]
fn a_cookie_is_taken_away_where_it_was_set() {
    let origin = Origin::text("ok");
    let cookie = "cookie SRV insert indirect httponly secure domain a.test attr X=1";
    let scene = scene("", "", cookie, &origin, "");
    let answer = Client::connect(scene.port).send(GET).response().expect("an answer");
    let wanted = "SRV=; Expires=Thu, 01-Jan-1970 00:00:01 GMT; path=/; domain=a.test; HttpOnly; Secure; X=1";
    assert_eq!(answer.header("set-cookie"), Some(wanted));
}

#[test]
fn rules_behind_the_response_see_the_cookie_of_persistence() {
    let origin = Origin::text("ok");
    let scene =
        scene("", "http-after-response del-header set-cookie", "cookie SRV insert", &origin, "cookie v");
    let answer = Client::connect(scene.port).send(GET).response().expect("an answer");
    assert_eq!(answer.header("set-cookie"), None);
}

#[test]
fn logs_tell_the_cookie_of_what_was_denied() {
    let origin =
        Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: SRV=own\r\n\r\n".to_vec());
    let cases = [
        ("cookie SRV insert\n  http-request deny", "cookie v", "SRV=v", "b/s 0/-1/-1/-1 403 PRVN 0"),
        ("cookie SRV insert\n  http-request deny", "cookie v", "SRV=w", "b/<NOSRV> 0/-1/-1/-1 403 PRIN 0"),
        (
            "cookie SRV insert\n  http-request return status 200",
            "cookie v",
            "SRV=v",
            "b/<NOSRV> 0/-1/-1/-1 200 LRNN 0",
        ),
        ("cookie SRV prefix", "", "SRV=v~own", "b/s 0/0/0/0 200 --IP 0"),
    ];
    for (backend, parameters, cookie, line) in cases {
        let scene = scene("", "", backend, &origin, parameters);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
        Client::connect(scene.port).send(request).response().expect("an answer");
        assert_eq!(scene.line(), format!("{line} GET / HTTP/1.1"), "{backend}");
    }
}

#[test]
fn a_captured_cookie_is_what_rules_left_of_it() {
    let origin = Origin::text("ok");
    let cases = [
        ("", "A=2"),
        ("http-request set-header cookie A=7", "A=7"),
        ("http-request del-header cookie", "-"),
        ("http-request deny", "A=2"),
        ("http-request return status 200", "-"),
    ];
    for (rule, captured) in cases {
        for (frontend, backend) in [(rule, ""), ("", rule)] {
            let frontend = format!("capture cookie A= len 10\n  log-format %CC\n  {frontend}");
            let scene = scene("", &frontend, backend, &origin, "");
            let request = "GET / HTTP/1.1\r\nHost: a\r\nCookie: B=1; A=2\r\n\r\n";
            Client::connect(scene.port).send(request).response().expect("an answer");
            assert_eq!(scene.line_with_times(), captured, "{frontend} {backend}");
        }
    }
}

#[test]
fn who_leaves_within_a_body_that_is_waited_for_has_aborted() {
    let origin = Origin::text("ok");
    let scene = scene("option http-buffer-request", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi").shut().read_to_end();
    assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 400 CR-- 0 POST / HTTP/1.1");
    assert_eq!(scene.counts("b,BACKEND", &["cli_abrt"]), ["cli_abrt=1"]);
    assert_eq!(scene.counts("f,FRONTEND", &["ereq"]), ["ereq=0"]);
}

/// What is not here when the request leaves cannot be sent again, and nothing waits for it.
#[test]
fn a_request_is_tried_again_only_as_a_whole() {
    let busy = || says("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", false);
    let half = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi";
    let whole = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let connect = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    for (request, tries) in [(half, 1), (whole, 2), (GET, 2), (connect, 1)] {
        let origin = busy();
        let scene = scene("", "", "retry-on 503", &origin, "");
        let answer = Client::connect(scene.port).send(request).response().expect("an answer");
        assert_eq!((answer.status, origin.connections()), (503, tries), "{request:?}");
    }
}

#[test]
fn a_failure_after_a_retry_has_no_time_of_a_response() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
        if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let scene = scene("", "", "retry-on 503", &origin, "");
    let answer = Client::connect(scene.port).send(GET).response().expect("an answer");
    assert_eq!((answer.status, scene.line().as_str()), (502, "b/s 0/0/0/-1 502 SH-- 1 GET / HTTP/1.1"));
}

/// A response that is broken in what came with its head is none: the client is told so on a
/// connection that stays.
#[test]
fn chunks_that_came_with_the_head_are_looked_at_with_it() {
    let origin = says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n", false);
    let scene = scene("", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    let request = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    let answer = client.send(request).response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (502, Some("keep-alive")));
    assert_eq!(scene.line(), "b/s 0/0/0/-1 502 PH-- 0 GET / HTTP/1.0");
    assert_eq!(
        scene.counts("b,s", &["hrsp_2xx", "req_tot", "eresp"]),
        ["hrsp_2xx=0", "req_tot=0", "eresp=1"]
    );
}

#[test]
fn a_server_that_has_answered_owes_nothing_while_the_request_goes_on() {
    let origin = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false);
    let scene = scene("timeout client 1s\n  timeout server 400ms", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi").read_to_end();
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 cL-- 0 POST / HTTP/1.1");
}

#[test]
fn a_response_that_comes_to_a_halt_is_no_bad_one() {
    let origin = says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", false);
    let scene = scene("timeout server 500ms", "", "", &origin, "");
    scene.talk(GET);
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 sD-- 0 GET / HTTP/1.1");
    assert_eq!(scene.counts("b,s", &["eresp", "srv_abrt"]), ["eresp=0", "srv_abrt=1"]);
}

#[test]
fn times_of_what_nobody_answered_are_no_averages() {
    let refused = free_port();
    let scene = Scene::start("timeout connect 50ms", "", &format!("server s 127.0.0.1:{refused}"));
    Client::connect(scene.port).send(GET).response().expect("an answer");
    assert_eq!(scene.line(), "b/s 0/0/-1/-1 503 SC-- 1 GET / HTTP/1.1");
    assert_eq!(scene.counts("b,BACKEND", &["ttime_max"]), ["ttime_max=0"]);
}

#[test]
fn a_tunnel_that_nobody_serves_ends_with_its_answer() {
    let origin = Origin::text("ok");
    let scene = scene("", "http-request return status 200", "", &origin, "");
    assert!(scene.talk("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_body_that_is_here_was_not_waited_for() {
    let origin = Origin::text("ok");
    let scene = scene("", "http-request deny if { path /no }", "", &origin, "");
    let mut client = Client::connect(scene.port);
    let head = "POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let answer = client.send(format!("{head}bo")).response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (403, None));
    let next = client.send(format!("dy{GET}")).response().expect("an answer");
    assert_eq!(next.status, 200);
    // One that waits may never send it.
    let answer = Client::connect(scene.port).send(head).response().expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (403, Some("close")));
}

#[test]
fn malformed_comes_before_too_large() {
    let origin = Origin::text("ok");
    let scene = scene("", "", "", &origin, "");
    for (host, status) in [("a", "413"), ("b", "400")] {
        let request = format!("GET http://a/ HTTP/1.0\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi");
        assert!(scene.talk(&request).starts_with(&format!("HTTP/1.1 {status} ")), "{host}");
    }
}

#[test]
fn values_are_replaced_with_the_blanks_around_them() {
    let origin = Origin::echo();
    let scene = scene("", "http-request replace-value x-list ([a-z]+) <\\1>", "", &origin, "");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-List: a , 2 ,  b,c\r\n\r\n";
    let answer = Client::connect(scene.port).send(request).response().expect("an answer");
    assert!(answer.text().contains("X-List: <a>, 2 ,<b>,<c>"), "{}", answer.text());
}

#[test]
fn the_time_of_one_side_ends_its_direction_alone() {
    // The server is told that the client is gone, and still has something to say.
    let origin = Origin::raw(|mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = stream.write_all(b"late");
    });
    let scene = scene("mode tcp\n  timeout client 500ms", "log-format \"%s %ts %U\"", "", &origin, "");
    assert_eq!(scene.talk("hi"), "late");
    assert_eq!(scene.line_with_times(), "s cD 2");
}

#[test]
fn a_server_that_has_ended_its_tunnel_need_not_take_any_more() {
    let origin = says("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nend", true);
    let scene = scene("", "log-format \"%s %tsc\"", "", &origin, "");
    let mut client = TcpStream::connect(("127.0.0.1", scene.port)).expect("the port listens");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    client.write_all(request.as_bytes()).expect("the connection stands");
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the end comes");
    // What the first brings back ends another.
    while client.write_all(b"more").is_ok() {}
    assert!(all.ends_with(b"end"));
    assert_eq!(scene.line_with_times(), "s ----");
}

/// A connection that broke while rules waited for its bytes goes nowhere.
#[test]
fn who_breaks_off_while_rules_wait_reaches_no_server() {
    let origin = Origin::text("ok");
    let rules = "log-format \"%s %ts\"\n  tcp-request inspect-delay 600s\n  \
        tcp-request content accept if { req.len gt 100 }";
    let scene = scene("mode tcp", rules, "", &origin, "");
    let mut client = TcpStream::connect(("127.0.0.1", scene.port)).expect("the port listens");
    client.write_all(b"x").expect("the connection stands");
    socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
    drop(client);
    assert_eq!((scene.line_with_times().as_str(), origin.connections()), ("<NOSRV> CR", 0));
}

#[test]
fn without_a_delay_a_response_of_tcp_is_not_waited_for() {
    let origin = Origin::raw(|mut stream| {
        let mut byte = [0];
        let _ = stream.read(&mut byte);
        let _ = stream.write_all(b"hello");
    });
    for (delay, received) in [("", "hello"), ("tcp-response inspect-delay 20s\n  ", "")] {
        let rules = format!("{delay}tcp-response content reject if {{ res.len gt 0 }}");
        let scene = scene("mode tcp", "", &rules, &origin, "");
        assert_eq!(scene.talk("x"), received, "{rules}");
    }
}

#[test]
fn who_never_said_anything_has_nothing_to_wait_for() {
    let refused = free_port();
    let scene = Scene::start(
        "mode tcp\n  retries 50",
        "log-format \"%s %ts\"",
        &format!("server s 127.0.0.1:{refused}"),
    );
    drop(Client::connect(scene.port));
    assert_eq!(scene.line_with_times(), "s CC");
}

/// A variable takes what is there; what a condition waits for has all rules looked at once more.
#[test]
fn a_variable_is_not_waited_for_but_by_conditions() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.write_all(b"first");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let start = |rules: &str| {
        let frontend = format!(
            "log-format \"<%[var(txn.a)]> %ts\"\n  tcp-request inspect-delay 600s\n  \
             tcp-request content set-var(txn.a) req.payload(0,2)\n  {rules}"
        );
        scene("mode tcp", &frontend, "", &origin, "")
    };
    // The server speaks first.
    let scene = start("");
    assert_eq!(scene.talk(""), "first");
    assert_eq!(scene.line_with_times(), "<-> --");
    let scene = start("tcp-request content reject unless { req.payload(0,2) -m found }");
    assert_eq!(scene.talk("hi"), "first");
    assert_eq!(scene.line_with_times(), "<hi> --");
}

/// A request that is tried again at the same server keeps its place there, in the queue and in the
/// log.
#[test]
fn who_tries_again_at_one_server_queues_no_second_time() {
    let refused = free_port();
    let server = format!("use-server s if TRUE\n  server s 127.0.0.1:{refused} maxconn 1");
    let scene = Scene::start("timeout connect 300ms\n  retries 2", "", &server);
    let mut first = Client::connect(scene.port);
    first.send(GET);
    // The second waits for the first until its own time is over.
    assert!(eventually(|| scene.counts("b,s", &["connect"]) != ["connect=0"]));
    let mut second = Client::connect(scene.port);
    second.send(GET);
    let answers = [&mut first, &mut second].map(|client| client.response().map(|answer| answer.status));
    assert_eq!(answers, [Some(503), Some(503)]);
    let mut lines = [scene.line(), scene.line()];
    lines.sort();
    assert_eq!(lines, ["b/s 0/0/-1/-1 503 SC-- 2 GET / HTTP/1.1", "b/s 0/0/-1/-1 503 sQ-- 0 GET / HTTP/1.1"]);
    assert_eq!(scene.counts("b,s", &["qmax", "econ"]), ["qmax=1", "econ=2"]);
}

/// Rules on content see what came with the connection, and a denial is the listener's alone.
#[test]
fn rules_on_content_see_the_first_bytes() {
    let origin = says("ok", true);
    let rules = "tcp-request content reject unless { req.len gt 3 }";
    for (frontend, backend) in [(rules, ""), ("", rules)] {
        let scene = scene("mode tcp", frontend, backend, &origin, "");
        // Without a delay only what comes at once counts: a busy machine may be too late with it.
        assert!(eventually(|| scene.talk("hi\r\n\r\n") == "ok"), "{frontend} {backend}");
        assert_eq!(scene.counts("b,BACKEND", &["dreq"]), ["dreq=0"]);
    }
}

/// Of several cookies of one name each loses its own prefix.
#[test]
fn each_cookie_loses_its_own_prefix() {
    let origin = Origin::echo();
    let scene = scene("", "", "cookie SRV prefix", &origin, "cookie v");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=v; B=1; SRV=v~own; SRV=w~other\r\n\r\n";
    let answer = Client::connect(scene.port).send(request).response().expect("an answer");
    assert!(answer.text().contains("Cookie: SRV=v; B=1; SRV=own; SRV=other"), "{}", answer.text());
}

/// Who ended its side waits all the same for what ends with the connection, and for a tunnel.
#[test]
fn a_client_that_half_closes_is_not_gone() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhead ");
        // The end of the client's side does not come through: this is the time that it takes.
        stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("not zero");
        let _ = stream.read(&mut bytes);
        let _ = stream.write_all(b"and tail");
    });
    let scene = scene("", "", "", &origin, "");
    let mut client = Client::connect(scene.port);
    assert!(client.send(GET).read_head().contains(" 200 "));
    let rest = client.shut().read_to_end();
    assert!(rest.ends_with(b"and tail"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(scene.line(), "b/s 0/0/0/0 200 ---- 0 GET / HTTP/1.1");
}

/// A rule that ends a stream by its server's answer comes behind what the client had sent.
#[test]
fn what_a_client_has_sent_goes_out_before_rules_on_the_answer() {
    let (sender, seen) = std::sync::mpsc::channel();
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let rules = "tcp-request inspect-delay 20s\n  tcp-request content accept if { req.len gt 0 }";
    let scene = scene("mode tcp", rules, "tcp-response content reject", &origin, "send-proxy");
    assert_eq!(scene.talk("hello"), "");
    let bytes = seen.recv_timeout(weir_tests::PATIENCE).expect("a connection");
    assert!(bytes.starts_with(b"PROXY ") && bytes.ends_with(b"hello"), "{bytes:?}");
}

#[test]
fn a_server_is_not_blamed_for_a_client_that_reads_nothing() {
    // More than the kernel keeps for both connections: the server waits to be read from.
    let origin = Origin::raw(|mut stream| {
        let _ = stream.write_all(&vec![b'z'; 24 << 20]);
    });
    let scene =
        scene("mode tcp\n  timeout client 3s\n  timeout server 1s", "log-format \"%s %ts\"", "", &origin, "");
    let client = Client::connect(scene.port);
    assert_eq!(scene.line_with_times(), "s cD");
    drop(client);
}
