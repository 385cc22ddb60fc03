//! `mode haterm`: responses that the query of a request describes, over every version of HTTP. `HATERM` names HAProxy's program for a
//! comparison; without it, that test is skipped with a note.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};

use weir_tests::chunks::unchunked;
use weir_tests::client::{Client, exchange, get};
use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::logs::Collector;
use weir_tests::multiplexed::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS, WINDOW_UPDATE};
use weir_tests::{Weir, eventually, free_port};

/// The text of bodies.
const LINE: &[u8] = b".123456789.123456789.123456789.123456789.12345678\n";

struct Scene {
    weir: Weir,
    /// Without TLS.
    port: u16,
    /// HTTP/3.
    quic: u16,
}

impl Scene {
    /// Starts the program with `lines` in a frontend `f`, with a certificate that exists in memory alone.
    fn start(lines: &str) -> Self {
        let (port, quic) = (free_port(), free_port());
        let text = format!(
            "global\n stats socket runtime level admin\n nbthread 2\n\
             crt-store\n load generate-dummy on keytype ECDSA curves P-256 crt dummy.pem\n\
             defaults\n mode haterm\n timeout client 20s\n option dontlognull\n\
             frontend f\n bind 127.0.0.1:{port}\n bind quic4@127.0.0.1:{quic} ssl crt dummy.pem\n \
             bind 127.0.0.1:{quic} ssl crt dummy.pem\n{lines}\n"
        );
        Self { weir: Weir::start(&text, &[port, quic]), port, quic }
    }

    /// Whether a counter of the frontend gets this value, which happens after the client has its response.
    fn counts(&self, column: &str, value: &str) -> bool {
        eventually(|| self.weir.stat("f,FRONTEND", column) == value)
    }

    /// The answers to a GET over HTTP/1, HTTP/2 and HTTP/3.
    fn answers(&self, path: &str) -> [(&'static str, Answer); 3] {
        [
            ("HTTP/1", over_http1(self.port, path)),
            ("HTTP/2", over_http2(self.port, path)),
            ("HTTP/3", over_http3(self.quic, path)),
        ]
    }
}

/// A response in the form common to all versions.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    fields: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn has(&self, line: &str) -> bool {
        self.fields.iter().any(|field| field == line)
    }

    fn begins(&self, start: &str) -> bool {
        self.fields.iter().any(|field| field.starts_with(start))
    }

    fn has_any(&self, name: &str) -> bool {
        self.begins(&format!("{name}:"))
    }
}

fn over_http1(port: u16, path: &str) -> Answer {
    let response = get(port, path).expect("a response");
    let is_chunked = response.header("transfer-encoding").is_some();
    let body = if is_chunked { unchunked(&response.body).0 } else { response.body.clone() };
    let fields = response.head.lines().skip(1).map(str::to_owned).collect();
    Answer { status: response.status, fields, body }
}

/// A connection with the largest possible windows.
fn wide(port: u16) -> Frames {
    let mut frames = Frames::connect(port);
    let most = (i32::MAX as u32).to_be_bytes();
    frames.send(SETTINGS, 0, 0, &[&[0, 4], &most[..]].concat());
    frames.send(WINDOW_UPDATE, 0, 0, &(i32::MAX as u32 - 65_535).to_be_bytes());
    frames
}

fn over_http2(port: u16, path: &str) -> Answer {
    let mut frames = wide(port);
    frames.get(1, path);
    let (lines, mut is_over) = frames.next_head();
    let mut body = Vec::new();
    while !is_over {
        let frame = frames.next_of(DATA);
        body.extend_from_slice(&frame.payload);
        is_over = frame.flags & END_STREAM != 0;
    }
    let status = lines[0].strip_prefix(":status: ").and_then(|text| text.parse().ok()).expect("a status");
    Answer { status, fields: lines[1..].to_vec(), body }
}

fn over_http3(port: u16, path: &str) -> Answer {
    let response = Http3Client::connect(port).exchange(&Http3Request::get(path));
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let fields =
        response.fields.iter().map(|(name, value)| format!("{name}: {}", text(value.as_bytes()))).collect();
    Answer { status: response.status, fields, body: response.body }
}

/// The body of a size.
fn lines(size: usize) -> Vec<u8> {
    LINE.iter().copied().cycle().take(size).collect()
}

#[test]
fn a_query_describes_the_response_over_every_version() {
    let scene = Scene::start("");
    for (query, status, size, field) in [
        ("", 200, 0, "x-rsp: id=dummy, code=200, cache=1 size=0, time=0 ms ("),
        ("?s=7", 200, 7, "content-length: 7"),
        ("?s=1k&r=404", 404, 1024, "content-length: 1024"),
        // More than the area from which bodies are sent.
        ("?r=503,s=300k", 503, 300 << 10, "content-length: 307200"),
        ("?s=5;c=0", 200, 5, "cache-control: no-cache"),
        ("?r=999/s=1", 999, 1, "content-length: 1"),
        ("?s=5?r=201", 201, 5, "content-length: 5"),
        ("?x=1&&s=-1&zz&s=3x", 200, 3, "content-length: 3"),
        ("?s=3&K=1", 200, 3, "content-length: 3"),
    ] {
        for (version, answer) in scene.answers(&format!("/{query}")) {
            assert_eq!(answer.status, status, "{version} {query}");
            assert!(answer.body == lines(size), "{version} {query}: {} bytes", answer.body.len());
            assert!(answer.begins(field) && answer.begins("x-req: time="), "{version} {query}: {answer:?}");
            assert_eq!(answer.has_any("cache-control"), query.contains("c=0"), "{version} {query}");
        }
    }
    let pages = scene.answers("/?").map(|(_, answer)| answer);
    assert!(pages.iter().all(|page| page.body == pages[0].body && page.has("content-type: text/plain")));
    for argument in ["s=", "r=", "t=", "c=", "C=", "K=", "A=", "k=", "R="] {
        assert!(String::from_utf8_lossy(&pages[0].body).contains(&format!("  {argument}<")), "{argument}");
    }
}

#[test]
fn statuses_without_a_body_have_none() {
    let scene = Scene::start("");
    for (version, answer) in scene.answers("/?r=304&s=9") {
        assert!(answer.body.is_empty() && answer.has("content-length: 9"), "{version} {answer:?}");
    }
    for (version, answer) in scene.answers("/?r=204&s=9") {
        assert!(answer.body.is_empty() && !answer.has_any("content-length"), "{version} {answer:?}");
    }
    // An interim status cannot end an exchange.
    for (version, answer) in scene.answers("/?r=101&s=9") {
        assert_eq!((answer.status, answer.body.len()), (200, 9), "{version}");
    }
}

#[test]
fn a_chunked_body_is_one_chunk() {
    let scene = Scene::start("");
    for (version, answer) in scene.answers("/?k=1&s=600k") {
        assert!(answer.body == vec![b'1'; 600 << 10], "{version}: {} bytes", answer.body.len());
        assert!(!answer.has_any("content-length"), "{version}");
        assert_eq!(answer.has("transfer-encoding: chunked"), version == "HTTP/1");
        assert!(answer.begins("x-rsp: id=dummy, code=200, cache=1, chunked, size=614400, time=0 ms ("));
    }
    let one = get(scene.port, "/?k=1&s=600k").expect("a response").body;
    assert!(
        one.starts_with(b"96000\r\n111") && one.ends_with(b"111\r\n0\r\n\r\n") && one.len() == 614_400 + 14
    );
    assert_eq!(get(scene.port, "/?k=1&s=3").expect("a response").body, b"3\r\n111\r\n0\r\n\r\n");
    assert_eq!(get(scene.port, "/?k=1").expect("a response").body, b"0\r\n\r\n");
    // HTTP/1.0 clients do not know chunks.
    let old = exchange(scene.port, "GET /?k=1&s=3 HTTP/1.0\r\n\r\n").expect("a response");
    assert_eq!((old.body.as_slice(), old.header("transfer-encoding")), (&b"111"[..], None));
}

#[test]
fn random_bodies_are_not_compressible_and_differ() {
    let scene = Scene::start("");
    for (version, answer) in scene.answers("/?R=1&s=300k") {
        let mut counts = [0_usize; 256];
        answer.body.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert_eq!(answer.body.len(), 300 << 10, "{version}");
        assert!(counts.iter().all(|count| (800..1700).contains(count)), "{version}: {counts:?}");
    }
    let body = || get(scene.port, "/?R=1&s=64").expect("a response").body;
    let first = body();
    assert!(eventually(|| body() != first));
    assert_eq!(over_http1(scene.port, "/?R=1&s=64&k=1").body.len(), 64);
    let size = || get(scene.port, "/?s=1000r").expect("a response").body.len();
    let first = size();
    assert!(first <= 1000 && eventually(|| size() != first));
}

#[test]
fn the_query_decides_whether_the_connection_stays() {
    let scene = Scene::start("");
    for (query, stays) in [("s=3", true), ("s=3&C=0", true), ("s=3&K=1", true), ("C=1&K=1&s=3", true)] {
        let mut client = Client::connect(scene.port);
        let request = format!("GET /?{query} HTTP/1.1\r\nHost: h\r\n\r\n");
        for _ in 0..2 {
            let response = client.send(&request).response().expect("a response");
            assert_eq!((response.text().as_str(), response.header("connection")), (".12", None), "{query}");
        }
        assert!(stays);
    }
    for query in ["s=3&C=1", "s=3&K=0"] {
        let mut client = Client::connect(scene.port);
        let response = client.send(format!("GET /?{query} HTTP/1.1\r\nHost: h\r\n\r\n")).response();
        let response = response.expect("a response");
        assert_eq!(response.text(), ".12", "{query}");
        assert_eq!(response.header("connection"), Some("close"), "{query}");
        // The close ends the body.
        assert_eq!(response.header("content-length"), None, "{query}");
    }
    // Streams have no connections to close.
    for answer in [over_http2(scene.port, "/?s=3&C=1"), over_http3(scene.quic, "/?s=3&C=1")] {
        assert!(answer.body == b".12" && !answer.has_any("connection"), "{answer:?}");
    }
}

#[test]
fn a_head_request_gets_the_head_alone() {
    let scene = Scene::start("");
    let mut client = Client::connect(scene.port);
    for (query, field) in [
        ("s=9", "content-length: 9"),
        ("k=1&s=9", "transfer-encoding: chunked"),
        ("", "content-type: text/plain"),
    ] {
        let head = client.send(format!("HEAD /?{query} HTTP/1.1\r\nHost: h\r\n\r\n")).read_head();
        assert!(head.contains(field), "{head}");
    }
    assert_eq!(
        client.send("GET /?s=2 HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("a response").text(),
        ".1"
    );
    let mut frames = Frames::connect(scene.port);
    let fields = [(":method", "HEAD"), (":scheme", "http"), (":path", "/?s=9"), (":authority", "a.test")];
    let (lines, is_over) = frames.head(1, END_STREAM, &fields).next_head();
    assert!(is_over && lines.contains(&"content-length: 9".to_owned()), "{lines:?}");
}

#[test]
fn the_response_follows_the_body_of_the_request() {
    let scene = Scene::start("");
    let post = |query: &str, more: &str| format!("POST /?{query} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    let mut client = Client::connect(scene.port);
    for (more, body) in [
        ("Content-Length: 3\r\n", "abc"),
        ("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: v\r\n\r\n"),
    ] {
        let request = post("s=1&t=1", more) + body + &post("s=2", more) + body;
        client.send(request);
        assert_eq!(client.response().expect("a response").text(), ".");
        assert_eq!(client.response().expect("a response").text(), ".1");
    }
    // The client is asked for the rest, and nothing else is sent before its end.
    client.send(post("s=3", "Content-Length: 300000\r\nExpect: 100-continue\r\n"));
    assert_eq!(client.read_head(), "HTTP/1.1 100 Continue");
    let response = client.send(vec![b'x'; 300_000]).response().expect("a response");
    assert_eq!(response.text(), ".12");
    assert!(scene.counts("hrsp_2xx", "5"));
    let received: u64 = scene.weir.stat("f,FRONTEND", "bin").parse().expect("a number");
    assert!(received > 300_000, "{received}");

    let mut frames = wide(scene.port);
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/?s=3"), (":authority", "a.test")];
    frames.head(1, END_HEADERS, &fields).send(DATA, 0, 1, &[b'x'; 16_000]).send(DATA, END_STREAM, 1, b"end");
    assert_eq!(frames.next_head().0[0], ":status: 200");
    assert_eq!(frames.next_of(DATA).payload, b".12");

    let mut client = Http3Client::connect(scene.quic);
    let response = client.exchange(&Http3Request::post("/?s=3", &vec![b'x'; 300_000]));
    assert_eq!((response.status, response.body.as_slice()), (200, &b".12"[..]));
}

#[test]
fn an_early_response_precedes_the_body_of_the_request() {
    let scene = Scene::start("");
    let mut client = Client::connect(scene.port);
    client.send("POST /?s=3&A=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
    assert_eq!(client.response().expect("a response").text(), ".12");
    // The rest is drained.
    client.send("defGET /?s=2 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response().expect("a response").text(), ".1");
    let mut frames = wide(scene.port);
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/?s=3&A=1"), (":authority", "a.test")];
    frames.head(1, 0, &fields);
    assert_eq!(frames.next_head().0[0], ":status: 200");
}

#[test]
fn faulty_bodies_are_refused() {
    let scene = Scene::start("timeout client 300ms\n");
    let mut client = Client::connect(scene.port);
    client.send("POST /?s=3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd");
    assert_eq!(client.response().expect("a response").status, 400);
    let mut client = Client::connect(scene.port);
    client.send("POST /?s=3 HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
    assert_eq!(client.response().expect("a response").status, 408);
}

#[test]
fn a_delay_is_shown_and_ends_when_the_client_leaves() {
    let log = Collector::new();
    let lines = format!("log 127.0.0.1:{} format raw local0\nlog-format \"%ST %ts %Tr %s\"\n", log.port());
    let scene = Scene::start(&lines);
    for (version, answer) in scene.answers("/?t=30&s=1") {
        let shown = answer.fields.iter().find(|line| line.starts_with("x-rsp:")).expect("a field");
        let real = shown.split_once("time=30 ms (").and_then(|(_, rest)| rest.split(' ').next());
        assert!(real.and_then(|ms| ms.parse::<u32>().ok()).is_some_and(|ms| ms >= 29), "{version}: {shown}");
        let line = log.next();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[0], words[1], words[3]), ("200", "LR", "<HATERM>"), "{version}: {line}");
        assert!(words[2].parse::<u32>().is_ok_and(|ms| ms >= 29), "{version}: {line}");
    }
    Client::connect(scene.port).send("GET /?t=1000k HTTP/1.1\r\nHost: h\r\n\r\n");
    let line = log.next();
    assert!(line.starts_with("-1 CR"), "{line}");
    // A client that leaves within a long body.
    let mut client = Client::connect(scene.port);
    client.send("GET /?s=8g HTTP/1.1\r\nHost: h\r\n\r\n").read_bytes(100_000);
    drop(client);
    let line = log.next();
    assert!(line.starts_with("200 CD"), "{line}");
}

#[test]
fn rules_logs_and_counters_apply() {
    let log = Collector::new();
    let scene = Scene::start(&format!(
        "log 127.0.0.1:{} format raw local0\nlog-format \"%ST %B %HP %[var(txn.x)]\"\n\
         http-request deny if {{ path /deny }}\nhttp-request set-query s=4 if {{ path /query }}\n\
         http-request set-var(txn.x) str(y)\n\
         http-response set-header x-code %[status]\nhttp-response set-status 418 if {{ status 500 }}\n\
         http-after-response del-header x-req\nmonitor-uri /alive\n",
        log.port()
    ));
    assert_eq!(get(scene.port, "/deny").expect("a response").status, 403);
    log.next();
    assert_eq!(get(scene.port, "/alive").expect("a response").status, 200);
    for (version, answer) in scene.answers("/query?s=9") {
        assert!(answer.body == b".123" && answer.has("x-code: 200") && !answer.has_any("x-req"), "{version}");
        let line = log.next();
        assert!(line.trim_end().ends_with("/query y"), "{version}: {line}");
    }
    assert_eq!(get(scene.port, "/?r=500").expect("a response").status, 418);
    assert!(log.next().starts_with("418 "));
    assert!(scene.counts("hrsp_2xx", "4") && scene.counts("dreq", "1"));
}

#[test]
fn filters_see_the_body() {
    let scene = Scene::start(
        "filter compression\ncompression algo gzip\nfilter bwlim-out slow default-limit 1g default-period 1s\n\
         http-response set-bandwidth-limit slow\n",
    );
    let request = "GET /?s=300k HTTP/1.1\r\nHost: h\r\n";
    let response =
        exchange(scene.port, &format!("{request}Accept-Encoding: gzip\r\n\r\n")).expect("a response");
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    assert!(response.body.len() < 30_000, "{} bytes", response.body.len());
    let response = exchange(scene.port, &format!("{request}\r\n")).expect("a response");
    assert!(response.body == lines(300 << 10));
}

#[test]
fn memory_stays_flat_for_large_bodies() {
    let scene = Scene::start("");
    get(scene.port, "/?s=1m&R=1").expect("a response");
    over_http2(scene.port, "/?s=1m");
    over_http3(scene.quic, "/?s=1m");
    let before = scene.weir.memory();
    let mut most = 0;
    let mut look = || most = most.max(scene.weir.memory());

    let mut client = Client::connect(scene.port);
    client.send("GET /?s=1g HTTP/1.1\r\nHost: h\r\n\r\n").read_head();
    for _ in 0..1024 {
        assert_eq!(client.read_bytes(1 << 20).len(), 1 << 20);
        look();
    }
    let mut frames = wide(scene.port);
    frames.get(1, "/?s=512m").next_of(HEADERS);
    let mut left = 512_usize << 20;
    while left > 0 {
        left -= frames.next_of(DATA).payload.len();
        look();
    }
    assert_eq!(over_http3(scene.quic, "/?s=64m").body.len(), 64 << 20);
    look();
    // A client that does not read.
    let mut stalled = Client::connect(scene.port);
    stalled.send("GET /?s=8g HTTP/1.1\r\nHost: h\r\n\r\n").read_head();
    let mut frames = wide(scene.port);
    frames.get(1, "/?s=1g").next_of(HEADERS);
    get(scene.port, "/").expect("a response");
    look();
    // HTTP/3 keeps unacknowledged bytes, which are in static memory too.
    assert!(most < before + 8 * 1024, "{before} KiB at first, then up to {most} KiB");
}

/// HAProxy's program, if `HATERM` names it.
struct Reference(Child);

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Reference {
    fn start(port: u16) -> Option<Self> {
        let program = std::env::var_os("HATERM")?;
        let child = Command::new(program)
            .args(["-L", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("HATERM names a program");
        let reference = Self(child);
        assert!(eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()));
        Some(reference)
    }
}

#[test]
fn responses_equal_those_of_haproxy() {
    let port = free_port();
    let Some(_reference) = Reference::start(port) else {
        eprintln!("skipped: HATERM does not name HAProxy's haterm");
        return;
    };
    let scene = Scene::start("");
    for query in [
        "",
        "?s=0",
        "?s=1",
        "?s=50",
        "?s=9999",
        "?s=20k",
        "?s=1m",
        "?r=404&s=3",
        "?r=304&s=3",
        "?r=500;c=0",
        "?c=1,s=5",
        "?c=-1/s=5",
        "?s=5&C=1",
        "?s=5&K=0",
        "?s=5&K=1",
        "?s=5&k=1",
        "?s=5&A=1",
        "?s=+5",
        "?s=1x2",
        "?s=99",
        "?s=1K",
        "?s=5&s=6",
        "?s=5&x=3&r=404",
        "?zz",
        "?s",
        "?S=5",
        "?%73=5",
    ] {
        let path = format!("/{query}");
        let (mut own, mut theirs) = (over_http1(scene.port, &path), over_http1(port, &path));
        // The order of fields has no meaning. HAProxy's text starts again with each buffer, so only the first buffer is compared.
        for answer in [&mut own, &mut theirs] {
            answer.fields.sort();
            answer.fields.iter_mut().for_each(|field| {
                // The time that the request took to arrive.
                if field.starts_with("x-req: time=") {
                    field.truncate("x-req: time=".len());
                }
            });
        }
        assert_eq!(own.body.len(), theirs.body.len(), "{query}");
        own.body.truncate(8192);
        theirs.body.truncate(8192);
        assert_eq!(own, theirs, "{query}");
    }
}
