//! Forwarded messages: version, framing and cookies as each hop requires.

use std::io::{Read, Write};

use weir_tests::chunks::{chunked, unchunked};
use weir_tests::client::Client;
use weir_tests::versions::{TIMEOUTS, curl};
use weir_tests::{Origin, Weir, free_port, scratch};

fn start(lines: &str, server: u16) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n  nbthread 1\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         listen l\n  bind 127.0.0.1:{port}\n  {lines}\n  server s 127.0.0.1:{server} cookie v\n"
    );
    (Weir::start(&text, &[port]), port)
}

/// Returns the response to a request after which the connection closes.
fn talk(port: u16, request: &str) -> String {
    String::from_utf8_lossy(&Client::connect(port).send(request).read_to_end()).into_owned()
}

/// Starts an origin that answers each connection's first request with these bytes.
fn says(bytes: &'static str) -> Origin {
    Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(bytes.as_bytes());
    })
}

#[test]
fn messages_are_forwarded_with_this_hops_version() {
    let origin = Origin::echo();
    let (_weir, port) = start("", origin.port());
    for (asked, sent) in [("HTTP/1.2", "HTTP/1.1"), ("HTTP/2.0", "HTTP/1.1"), ("HTTP/0.9", "HTTP/1.0")] {
        let answer = talk(port, &format!("GET /x {asked}\r\nHost: h\r\nConnection: close\r\n\r\n"));
        assert!(answer.contains(&format!("\r\n\r\nGET /x {sent}\r\n")), "{asked}: {answer}");
    }
    let origin = says("HTTP/3.7 200 Fine\r\nContent-Length: 0\r\n\r\n");
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 Fine\r\n"), "{answer}");
}

#[test]
fn messages_without_content_have_no_length() {
    let origin = says("HTTP/1.1 204 None\r\nContent-Length: 5\r\nX-Kept: 1\r\n\r\n");
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").to_ascii_lowercase();
    assert!(answer.contains("x-kept: 1\r\n") && !answer.contains("content-length"), "{answer}");
    // The tunnel returns the request's head as the server received it.
    let origin = Origin::raw(|mut stream| {
        let mut head = [0; 4096];
        let length = stream.read(&mut head).unwrap_or(0);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").and_then(|()| stream.write_all(&head[..length]));
    });
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nCONNECT h:1 HTTP/1.1\r\n"),
        "{answer}"
    );
    assert!(!answer.contains("Content-Length"), "{answer}");
}

#[test]
fn bodiless_statuses_have_no_length() {
    let interim = "HTTP/1.1 103 Hints\r\nContent-Length: 3\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let origin = says(interim);
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 103 Hints\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");
    let origin = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nraw bytes");
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\nraw bytes");
}

#[test]
fn upgrade_without_connection_option_is_removed() {
    let origin = Origin::echo();
    let (_weir, port) = start("", origin.port());
    let ask =
        |fields: &str| talk(port, &format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).to_ascii_lowercase();
    let seen = |answer: &str| {
        answer.split_once("\r\n\r\n").map(|(_, request)| request.to_owned()).unwrap_or_default()
    };
    let request = seen(&ask("Upgrade: foo\r\nX-Kept: 1\r\nConnection: close\r\n"));
    assert!(request.contains("x-kept: 1") && !request.contains("upgrade"), "{request}");
    let request = seen(&ask("Connection: ,\r\nConnection: close\r\n"));
    assert!(request.starts_with("get / ") && !request.contains("connection"), "{request}");
}

#[test]
fn http_1_0_keep_alive_depends_on_a_certain_length() {
    let origin = says("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (_weir, port) = start("", origin.port());
    let mut client = Client::connect(port);
    for _ in 0..2 {
        let answer =
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("the connection stays");
        assert!(answer.head.starts_with("HTTP/1.0 200 "), "{}", answer.head);
        assert_eq!(answer.header("connection"), Some("keep-alive"));
    }
    let origin = says("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.ends_with("2\r\nok\r\n0\r\n\r\n"), "{answer}");
}

#[test]
fn response_with_unknown_transfer_coding_is_invalid() {
    let origin = says("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let (_weir, port) = start("", origin.port());
    let answer = talk(port, "GET / HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[test]
fn chunked_http_1_0_request_closes_its_connection() {
    let origin = Origin::start(|head, _| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()).into_bytes()
    });
    let (_weir, port) = start("http-reuse always", origin.port());
    // The test itself has connected to the port once before.
    let plain = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    talk(port, plain);
    talk(port, plain);
    assert_eq!(origin.connections(), 1);
    let answer = talk(port, "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        .to_ascii_lowercase();
    assert!(answer.contains("\r\n\r\npost / http/1.0\r\n") && !answer.contains("keep-alive"), "{answer}");
    let before = origin.connections();
    talk(port, plain);
    assert_eq!(origin.connections(), before + 1);
}

#[test]
fn inserted_cookie_replaces_the_servers() {
    let origin = Origin::start(|_, _| {
        b"HTTP/1.1 200 OK\r\nSet-Cookie: C=own; path=/\r\nSet-Cookie: D=other\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    });
    let asked = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let cookies = |lines: &str| {
        let (_weir, port) = start(lines, origin.port());
        let answer = talk(port, asked).to_ascii_lowercase();
        let lines = answer.lines().filter_map(|line| line.strip_prefix("set-cookie: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(cookies("cookie C insert"), ["d=other", "c=v; path=/"]);
    assert_eq!(cookies("cookie C insert indirect"), ["d=other", "c=v; path=/"]);
    assert_eq!(cookies("cookie C insert preserve"), ["c=own; path=/", "d=other"]);
}

#[test]
fn old_names_of_relaxing_options_work() {
    let origin = Origin::echo();
    let (weir, port) = start("option accept-invalid-http-request", origin.port());
    let mut request = b"GET /\xe9 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_vec();
    let answer = Client::connect(port).send(&request).read_to_end();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    assert!(weir.says("accept-unsafe-violations-in-http-request"), "{}", weir.messages());
    let (_weir, port) =
        start("option accept-invalid-http-request\n  no option accept-invalid-http-request", origin.port());
    request = Client::connect(port).send(&request).read_to_end();
    assert!(request.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&request));
}

#[test]
fn zero_purge_delay_disables_idle_connections() {
    for (parameters, connections) in
        [("", 1), ("pool-purge-delay 0", 3), ("pool-max-conn 0", 3), ("max-reuse 0", 3)]
    {
        let origin = Origin::text("ok");
        let lines = format!("http-reuse always\n  default-server {parameters}");
        let (_weir, port) = start(&lines, origin.port());
        for _ in 0..3 {
            assert!(talk(port, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ends_with("ok"));
        }
        assert_eq!(origin.connections(), connections, "{parameters}");
    }
}

#[test]
fn rules_do_not_see_hop_by_hop_fields() {
    let origin = Origin::start(|head, _| {
        let seen = head.to_ascii_lowercase().contains("upgrade: ");
        format!("HTTP/1.1 200 OK\r\nConnection: keep-alive, x-kept\r\nX-Upgrade: {seen}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let port = free_port();
    let configuration = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  http-request set-var(txn.seen) req.hdr_names(+)\n  \
         http-request set-var(txn.connection) req.fhdr(connection)\n  \
         http-response set-header X-Response %[res.fhdr(connection)]\n  http-response set-header X-Seen %[var(txn.seen)]\n  \
         http-response set-header X-Connection \"<%[var(txn.connection)]>\"\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&configuration, &[port]);
    for (fields, seen, connection) in [
        ("Connection: close\r\n", "host", "<>"),
        ("Connection: keep-alive, x-a\r\nX-A: 1\r\n", "host+connection+x-a", "<x-a>"),
        ("Connection: upgrade\r\n", "host", "<>"),
        ("Upgrade: foo\r\n", "host", "<>"),
    ] {
        let response = Client::connect(port)
            .send(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
            .response()
            .unwrap_or_else(|| panic!("{fields}: no response"));
        assert_eq!(response.header("X-Seen"), Some(seen), "{fields}");
        assert_eq!(response.header("X-Connection"), Some(connection), "{fields}");
        assert_eq!(response.header("X-Response"), Some("x-kept"), "{fields}");
        assert_eq!(response.header("X-Upgrade"), Some("false"), "{fields}");
    }
}

#[test]
fn httpclose_closes_its_side_and_server_close_the_server() {
    // Frontend and backend options, whether the client's connection is kept, and whether the server is told to close.
    let cases = [
        ("httpclose", "http-keep-alive", false, false),
        ("http-keep-alive", "httpclose", true, true),
        ("http-server-close", "http-keep-alive", true, true),
        ("http-keep-alive", "http-server-close", true, true),
    ];
    for (frontend, backend, stays, told) in cases {
        let origin = Origin::echo();
        let port = free_port();
        let weir = Weir::start(
            &format!(
                "global\n  nbthread 1\n  stats socket runtime level admin\n\
                 defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
                 frontend f\n  bind 127.0.0.1:{port}\n  option {frontend}\n  default_backend b\n\
                 backend b\n  option {backend}\n  server s 127.0.0.1:{}\n",
                origin.port()
            ),
            &[],
        );
        assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
        let mut client = Client::connect(port);
        let answer = client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("an answer");
        assert_eq!(answer.header("connection") != Some("close"), stays, "{frontend} {backend}");
        let request = answer.text().to_ascii_lowercase();
        assert_eq!(request.contains("connection: close"), told, "{frontend} {backend}: {request}");
        assert_eq!(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().is_some(), stays);
    }
}

#[test]
fn first_requests_reuse_only_if_retryable() {
    let all = "retry-on conn-failure empty-response response-timeout";
    for (retries, connections) in [("retry-on conn-failure empty-response", 2), (all, 1)] {
        let origin = Origin::text("ok");
        let (weir, port) = start(&format!("http-reuse safe\n  {retries}"), origin.port());
        let opened = origin.connections();
        let columns = |wanted: &str| {
            let table = weir.ask("show stat 2 4 -1 typed");
            let line = table.lines().find(|line| line.contains(wanted)).unwrap_or_default().to_owned();
            line.rsplit(':').next().unwrap_or_default().to_owned()
        };
        let mut first = Client::connect(port);
        let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        first.send(get).response().expect("an answer");
        let idle = ["idle_conn_cur", "safe_conn_cur", "need_conn_est"].map(columns);
        assert_eq!(idle, ["1", "0", "1"], "{retries}");
        Client::connect(port).send(get).response().expect("an answer");
        assert_eq!(origin.connections() - opened, connections, "{retries}");
        first.send(get).response().expect("an answer");
        assert_eq!(columns("safe_conn_cur"), "1", "{retries}");
    }
}

#[test]
fn errorfile_is_sent_verbatim() {
    let directory = scratch("errorfiles");
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    // The file's version, length and connection fields, and the result.
    let cases = [
        ("HTTP/1.0 503 Mine\r\nX: y\r\n\r\nbody", "HTTP/1.0 503 Mine\r\nX: y\r\n\r\nbody", false),
        (
            "HTTP/1.1 503 Mine\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
            "HTTP/1.1 503 Mine\r\nContent-Length: 4\r\nconnection: close\r\n\r\nbody",
            false,
        ),
        (
            "HTTP/1.1 503 Mine\r\nContent-Length: 4\r\n\r\nbody",
            "HTTP/1.1 503 Mine\r\nContent-Length: 4\r\n\r\nbody",
            true,
        ),
    ];
    for (at, (file, wanted, stays)) in cases.into_iter().enumerate() {
        let path = directory.join(format!("{at}.http"));
        std::fs::write(&path, file).expect("a file of the test's own");
        let (_weir, port) =
            start(&format!("http-request deny deny_status 503\n  errorfile 503 {}", path.display()), 9);
        let twice = Client::connect(port).send(format!("{get}{get}")).shut().read_to_end();
        let twice = String::from_utf8_lossy(&twice).into_owned();
        assert!(twice.starts_with(wanted), "{twice}");
        assert_eq!(twice.matches("503 Mine").count(), if stays { 2 } else { 1 }, "{twice}");
    }
}

#[test]
fn any_number_of_interim_responses_is_forwarded() {
    const HINTS: usize = 20_000;
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
    let origin = Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let all = format!("{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", hint.repeat(HINTS));
        let _ = stream.write_all(all.as_bytes());
    });
    let (_weir, port) = start("", origin.port());
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    for number in 0..HINTS {
        assert!(client.read_head().starts_with("HTTP/1.1 103"), "only {number} came");
    }
    assert_eq!(client.response().expect("the final answer").text(), "ok");
}

#[test]
fn data_after_a_connect_head_enters_the_tunnel() {
    for fields in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let origin = Origin::raw(|mut stream| {
            let mut bytes = [0; 4096];
            let mut seen = Vec::new();
            // Data after the head waits for the response that opens the tunnel.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while !seen.ends_with(b"hello") {
                match stream.read(&mut bytes) {
                    Ok(count @ 1..) => seen.extend_from_slice(&bytes[..count]),
                    _ => return,
                }
            }
            let _ = stream.write_all(&seen);
        });
        let (_weir, port) = start("", origin.port());
        let seen = talk(port, &format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n{fields}\r\nhello"));
        let seen = seen.to_ascii_lowercase();
        assert!(seen.ends_with("\r\n\r\nhello") && !seen.contains("content-length"), "{seen}");
        assert!(!seen.contains("transfer-encoding"), "{seen}");
    }
}

#[test]
fn rules_may_close_the_connection() {
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for rule in [
        "http-response set-header connection close",
        "http-response add-header Connection close",
        "http-after-response set-header Connection close",
        "http-request return status 200 hdr Connection close",
        "http-request deny hdr connection close",
    ] {
        let origin = Origin::text("ok");
        let (_weir, port) = start(rule, origin.port());
        let mut client = Client::connect(port);
        let answer = client.send(get).response().expect("an answer");
        assert_eq!(answer.header("connection"), Some("close"), "{rule}: {answer:?}");
        assert!(client.read_to_end().is_empty(), "{rule}");
    }
    // Towards servers, each request uses a new connection.
    let origin = Origin::start(|head, _| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()).into_bytes()
    });
    let (_weir, port) = start("http-request set-header Connection close", origin.port());
    let before = origin.connections();
    let mut client = Client::connect(port);
    for _ in 0..3 {
        let answer = client.send(get).response().expect("an answer").text().to_ascii_lowercase();
        assert_eq!(answer.matches("connection: close").count(), 1, "{answer}");
    }
    assert_eq!(origin.connections() - before, 3);
}

#[test]
fn rules_see_the_part_of_a_body_received_with_the_head() {
    let post =
        |body: &str| format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let chunked =
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nev\r\n2\r\nil\r\n0\r\n\r\n";
    let origin = Origin::text("an evil answer");
    let (_weir, port) = start("http-request deny if { req.body -m sub evil }", origin.port());
    for (request, status) in [(post("so evil"), 403), (post("so good"), 200), (chunked.to_owned(), 403)] {
        assert_eq!(
            Client::connect(port).send(&request).response().expect("an answer").status,
            status,
            "{request}"
        );
    }
    let (_weir, port) =
        start("http-response deny deny_status 502 if { res.body -m sub evil }", origin.port());
    assert_eq!(Client::connect(port).send(post("good")).response().expect("an answer").status, 502);
}

#[test]
fn expect_is_not_forwarded_after_100_was_sent() {
    let origin = Origin::start(|head, body| {
        let seen = format!("{head}\n{}", String::from_utf8_lossy(body));
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{seen}", seen.len()).into_bytes()
    });
    let (_weir, port) = start("http-request wait-for-body time 20s", origin.port());
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 100"));
    let seen = client.send("hello").response().expect("an answer").text().to_ascii_lowercase();
    assert!(seen.ends_with("hello") && !seen.contains("expect"), "{seen}");
}

#[test]
fn rules_see_bodies_that_need_a_large_buffer() {
    let origin = Origin::start(|head, body| {
        let body = if body.is_empty() { b"x".repeat(100_000) } else { body.to_vec() };
        let mut response = match head.contains("/chunked") {
            true => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(),
        };
        response.extend(if head.contains("/chunked") { chunked(&body, 1000, "") } else { body });
        response
    });
    let [port, h2] = [0; 2].map(|_| free_port());
    let text = format!(
        "global\n tune.bufsize.large 150k\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n bind 127.0.0.1:{h2} proto h2\n \
         http-request wait-for-body time 10s use-large-buffer if !{{ path_beg /usual }}\n \
         http-request wait-for-body time 10s if {{ path_beg /usual }}\n \
         http-request set-var(txn.sum) req.body,crc32\n http-request set-var(txn.length) req.body_len\n \
         http-response wait-for-body time 10s use-large-buffer\n http-response set-header x-answer %[res.body_len]\n \
         http-response set-header x-sum %[var(txn.sum)]\n http-response set-header x-length %[var(txn.length)]\n \
         default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port, h2]);
    let body: Vec<u8> = (0..100_000u32).map(|at| b'a' + (at * 7 % 23) as u8).collect();
    let mut sums = Vec::new();
    for path in ["/length", "/chunked", "/usual"] {
        let mut client = Client::connect(port);
        if path == "/chunked" {
            client.send(format!("POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"));
            client.send(chunked(&body, 700, ""));
        } else {
            client.send(format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()));
            client.send(&body);
        }
        let response = client.response().expect("a response");
        let field = |name: &str| response.header(name).unwrap_or("-").to_owned();
        assert_eq!(field("x-answer"), "100000", "{path}");
        if path == "/usual" {
            assert!(field("x-length").parse::<usize>().is_ok_and(|length| length <= 16_384), "{path}");
        } else {
            assert_eq!(field("x-length"), "100000", "{path}");
            sums.push(field("x-sum"));
        }
        let whole = if path == "/chunked" { unchunked(&response.body).0 } else { response.body.clone() };
        assert!(whole == body, "{path}: what was held is sent as it came");
        // The connection returns to a buffer of normal size.
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(client.response().expect("a response").header("x-answer"), Some("100000"), "{path}");
    }
    assert_eq!(sums[0], sums[1]);
    let file = scratch("large").file("body");
    std::fs::write(&file, &body).expect("the temporary directory takes files");
    let url = format!("http://127.0.0.1:{h2}/length");
    let answer = curl(&["--http2-prior-knowledge", "-i", "--data-binary", &format!("@{file}"), &url]);
    for line in ["x-answer: 100000", "x-length: 100000", &format!("x-sum: {}", sums[0])] {
        assert!(answer.contains(&format!("\r\n{line}\r\n")), "{line}: {}", &answer[..answer.len().min(500)]);
    }
}

#[test]
fn server_with_port_0_uses_the_clients_destination_port() {
    let origin = Origin::text("here");
    let (_weir, port) = start("http-request set-dst-port hdr(x-port)", 0);
    let asked =
        format!("GET / HTTP/1.1\r\nHost: h\r\nX-Port: {}\r\nConnection: close\r\n\r\n", origin.port());
    let answer = talk(port, &asked);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("here"), "{answer}");
}

#[test]
fn pool_conn_name_allows_reuse_across_hosts() {
    let authority = weir_tests::Authority::new();
    let (port, inner) = (free_port(), free_port());
    let text = format!(
        "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{inner} ssl verify none sni req.hdr(x-sni) pool-conn-name req.hdr(x-name) pool-low-conn 2\n\
         frontend inner\n bind 127.0.0.1:{inner} ssl crt {}\n http-request return status 200\n \
         http-after-response set-header x-first %[http_first_req]\n",
        authority.issue(&["one.test"]).display()
    );
    let _weir = Weir::start(&text, &[port, inner]);
    let mut client = Client::connect(port);
    let mut is_first = |sni: &str, name: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nX-Sni: {sni}\r\nX-Name: {name}\r\n\r\n"));
        client.response().expect("a response").header("x-first").expect("a field") == "1"
    };
    assert_eq!(
        [("one.test", "a"), ("two.test", "a"), ("two.test", "b"), ("three.test", "b")]
            .map(|(sni, name)| is_first(sni, name)),
        [true, false, true, false]
    );
}
