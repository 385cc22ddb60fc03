//! HTTP/2 towards clients and servers, mixed with HTTP/1: forwarding of messages, and the protocol's test suite.

use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, mpsc};

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    ACK, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, INITIAL_WINDOW_SIZE, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame,
};
use weir_tests::request::Request;
use weir_tests::versions::{TIMEOUTS, backend, curl, frontend};
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn each_version_reaches_each_version() {
    let origin = Origin::start(|head, body| {
        let text = format!("{}|{}", head.lines().next().unwrap_or_default(), body.len());
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    });
    let [plain, h2, to_h1, to_h2] = [0; 4].map(|_| free_port());
    let text = format!(
        "{TIMEOUTS}frontend near\n bind 127.0.0.1:{h2} proto h2\n default_backend origin\nbackend origin\n \
         server s 127.0.0.1:{}\nfrontend f\n bind 127.0.0.1:{plain}\n bind 127.0.0.1:{to_h1} proto h2\n \
         use_backend origin if {{ dst_port {to_h1} }}\n default_backend far\nfrontend g\n \
         bind 127.0.0.1:{to_h2} proto h2\n default_backend far\nbackend far\n server s 127.0.0.1:{h2} proto h2\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[plain, h2, to_h1, to_h2]);
    let file = weir_tests::scratch("h2").file("large");
    std::fs::write(&file, "x".repeat(400_000)).expect("a file");
    for (port, version) in
        [(plain, "--http1.1"), (to_h1, "--http2-prior-knowledge"), (to_h2, "--http2-prior-knowledge")]
    {
        let url = format!("http://127.0.0.1:{port}/a?b=c");
        assert_eq!(curl(&[version, &url]), "GET /a?b=c HTTP/1.1|0", "{version}");
        assert_eq!(curl(&[version, "-d", "abc", &url]), "POST /a?b=c HTTP/1.1|3", "{version}");
        let head = curl(&[version, "-I", &url]).to_ascii_lowercase();
        assert!(head.contains("content-length: 22"), "{head}");
        // Longer than any window.
        let sent = format!("@{}", file.display());
        assert_eq!(
            curl(&[version, "--data-binary", &sent, &url]),
            "POST /a?b=c HTTP/1.1|400000",
            "{version}"
        );
    }
}

#[test]
fn body_of_many_windows_and_its_trailers_arrive() {
    let origin = Origin::start(|_, _| {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n".to_vec();
        for _ in 0..100 {
            answer.extend_from_slice(b"4e20\r\n");
            answer.resize(answer.len() + 20_000, b'y');
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\nX-End: yes\r\n\r\n");
        answer
    });
    let (_weir, port) = frontend("", "", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/");
    let (head, ended) = client.next_head();
    assert_eq!((head[0].as_str(), ended), (":status: 200", false));
    assert!(!head.iter().any(|line| line.starts_with("transfer-encoding")), "{head:?}");
    let mut length = 0;
    let trailers = loop {
        let frame = client.next_frame().expect("a frame");
        match frame.kind {
            DATA => {
                assert_eq!(frame.flags & END_STREAM, 0, "the trailers come behind it");
                length += frame.payload.len();
                let credit = u32::try_from(frame.payload.len().max(1)).unwrap().to_be_bytes();
                client.send(8, 0, 1, &credit).send(8, 0, 0, &credit);
            }
            HEADERS => break client.fields(&frame),
            _ => {}
        }
    };
    assert_eq!((length, trailers), (2_000_000, vec!["x-end: yes".to_owned()]));
}

#[test]
fn client_trailers_reach_an_http1_server() {
    let origin = Origin::raw(|stream| {
        let mut stream = stream;
        let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
        while !all.ends_with(b"x-sum: 7\r\n\r\n") {
            match std::io::Read::read(&mut stream, &mut bytes) {
                Ok(n) if n > 0 => all.extend_from_slice(&bytes[..n]),
                _ => return,
            }
        }
        let text = String::from_utf8_lossy(&all).replace("\r\n", "~").to_lowercase();
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nX-Got: {text}\r\nContent-Length: 0\r\n\r\n");
    });
    let (_weir, port) = frontend("", "", origin.port());
    let mut client = Frames::connect(port);
    client
        .head(1, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")])
        .send(DATA, 0, 1, b"hello")
        .head(1, END_STREAM, &[("x-sum", "7")]);
    let (head, _) = client.next_head();
    let got = head.iter().find(|line| line.starts_with("x-got")).expect("the origin's word");
    assert!(got.contains("transfer-encoding: chunked") && got.ends_with("hello~0~x-sum: 7~~"), "{got}");
}

#[test]
fn trailers_after_an_empty_body_are_kept() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-End: yes\r\n\r\n";
    let origin = Origin::start(move |_, _| text.as_bytes().to_vec());
    for limit in
        ["", "filter bwlim-out l default-limit 1m default-period 1s\n http-response set-bandwidth-limit l"]
    {
        let (_weir, port) = frontend("", limit, origin.port());
        let mut client = Frames::connect(port);
        client.get(1, "/");
        let (head, ended) = client.next_head();
        assert_eq!((head[0].as_str(), ended), (":status: 200", false), "{limit}");
        assert_eq!(client.next_head(), (vec!["x-end: yes".to_owned()], true), "{limit}");
    }
    // From a server that speaks HTTP/2, in one write: a failed gRPC call looks like this.
    let (listener, _weir, port) = backend("", "", "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    let head = frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "200")]));
    let end = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&[("x-end", "yes")]));
    peer.raw(&[head, end].concat());
    assert!(client.read_head().starts_with("HTTP/1.1 200 "));
    assert_eq!(String::from_utf8_lossy(&client.read_bytes(17)), "0\r\nx-end: yes\r\n\r\n");
    // Requests, in both directions.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\n\r\n");
    assert!(!peer.next_head().1);
    assert_eq!(peer.next_head(), (vec!["x-sum: 7".to_owned()], true));
    let heads = Origin::raw(|mut stream| {
        let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
        while !all.ends_with(b"0\r\nx-sum: 7\r\n\r\n") {
            match std::io::Read::read(&mut stream, &mut bytes) {
                Ok(n) if n > 0 => all.extend_from_slice(&bytes[..n]),
                _ => return,
            }
        }
        let _ = write!(stream, "HTTP/1.1 204 No Content\r\n\r\n");
    });
    let (_weir, port) = frontend("", "", heads.port());
    let mut client = Frames::connect(port);
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let head = frame(HEADERS, END_HEADERS, 1, &block(&fields));
    let end = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-sum", "7")]));
    client.raw(&[head, end].concat());
    assert_eq!(client.next_head().0[0], ":status: 204");
}

#[test]
fn interim_responses_pass_between_versions() {
    let origin = Origin::start(|_, _| {
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let (_weir, port) = frontend("", "", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/");
    assert_eq!(client.next_head(), (vec![":status: 103".to_owned(), "link: </a>".to_owned()], false));
    let (head, ended) = client.next_head();
    assert_eq!((head[0].as_str(), ended), (":status: 200", true));
    let (listener, _weir, port) = backend("", "", "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.head(stream, 0, &[(":status", "103"), ("link", "</a>")]).head(
        stream,
        END_STREAM,
        &[(":status", "204")],
    );
    assert!(client.read_head().starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a>"));
    assert!(client.read_head().starts_with("HTTP/1.1 204 "));
}

#[test]
fn early_response_resets_the_request_with_no_error() {
    let origin = Origin::text("x");
    let (_weir, port) = frontend("", " http-request deny", origin.port());
    let mut client = Frames::connect(port);
    client.head(1, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    let mut window = 65_535;
    let head = loop {
        let frame = client.next_frame().expect("a frame");
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                window = frame.setting(INITIAL_WINDOW_SIZE).expect("a window") as usize;
                client.send(SETTINGS, ACK, 0, b"");
            }
            WINDOW_UPDATE if frame.stream == 1 => window += frame.number(0) as usize,
            HEADERS => break client.fields(&frame),
            _ => {}
        }
    };
    assert_eq!(head[0], ":status: 403");
    // The rest is discarded. A client that has used its window is asked to stop, after a PING that it acknowledges once it has the
    // response.
    while window > 0 {
        let length = window.min(16_384);
        client.send(DATA, 0, 1, &vec![b'x'; length]);
        window -= length;
    }
    let ping = client.find(|frame| matches!(frame.kind, PING | RST_STREAM)).expect("a frame");
    assert_eq!(ping.kind, PING);
    client.send(PING, ACK, 0, &ping.payload);
    let reset = client.next_of(RST_STREAM);
    assert_eq!((reset.stream, reset.number(0)), (1, 0));
    // The connection can still be used.
    assert_eq!(client.get(3, "/").next_head().0[0], ":status: 403");
    client.head(5, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    assert_eq!(client.next_head().0[0], ":status: 403");
    client.send(DATA, END_STREAM, 5, b"rest").get(7, "/");
    let next = client.find(|frame| matches!(frame.kind, HEADERS | RST_STREAM)).expect("a frame");
    assert_eq!((next.kind, next.stream), (HEADERS, 7), "the rest of a request ends without a reset");
}

/// curl 7.88 gives up a response that a reset follows, even one with NO_ERROR.
#[test]
fn curl_shows_an_early_response_to_an_upload() {
    let origin = Origin::text("x");
    let front = " http-request return status 413 content-type text/plain string \"too large\"";
    let (_weir, port) = frontend("", front, origin.port());
    let file = weir_tests::scratch("early-answer").file("upload");
    let url = format!("http://127.0.0.1:{port}/");
    for length in [5000, 30_000, 100_000, 4_000_000] {
        std::fs::write(&file, vec![b'x'; length]).expect("a file");
        let sent = format!("@{}", file.display());
        assert_eq!(curl(&["--http2-prior-knowledge", "--data-binary", &sent, &url]), "too large", "{length}");
    }
}

#[test]
fn rewritten_targets_reach_http1_servers_and_services() {
    let origin = Origin::start(|head, _| {
        let line = head.lines().next().unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nX-Line: {line}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let front = " stats enable\n stats uri /stats\n http-request normalize-uri path-strip-dot if { path_beg /dot }\n \
                 http-request set-path /other if { path /path }\n http-request set-query x=1 if { path /query }\n \
                 http-request set-uri http://b.test/uri if { path /uri }";
    let (_weir, port) = frontend(" expose-experimental-directives", front, origin.port());
    let mut client = Frames::connect(port);
    let cases = [
        ("/a?b", "GET /a?b HTTP/1.1"),
        ("/dot/./a", "GET /dot/a HTTP/1.1"),
        ("/path?q", "GET /other?q HTTP/1.1"),
        ("/query", "GET /query?x=1 HTTP/1.1"),
        // The server may be a proxy: an absolute URI set by a rule is sent as is.
        ("/uri", "GET http://b.test/uri HTTP/1.1"),
    ];
    let mut stream = 1;
    for (path, line) in cases {
        let (head, _) = client.get(stream, path).next_head();
        assert!(head.contains(&format!("x-line: {line}")), "{path}: {head:?}");
        stream += 2;
    }
    let (head, ended) = client.get(stream, "/stats").next_head();
    assert!(!ended && head.iter().any(|line| line.starts_with("content-type: text/html")), "{head:?}");
}

#[test]
fn h2spec_passes_with_servers_of_both_versions() {
    let origin = Origin::start(|_, body| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.len() + 1, "x".repeat(body.len() + 1))
            .into_bytes()
    });
    let (to_h1, to_h2) = (free_port(), free_port());
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{to_h1} proto h2\n default_backend b\nbackend b\n \
         server s 127.0.0.1:{}\nfrontend g\n bind 127.0.0.1:{to_h2} proto h2\n default_backend c\nbackend c\n \
         server s 127.0.0.1:{to_h1} proto h2\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[to_h1, to_h2]);
    let Some(h2spec) = weir_tests::go_tools::of_go("h2spec") else { return };
    for port in [to_h1, to_h2] {
        let output = Command::new(&h2spec)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--strict", "-o", "10"])
            .output()
            .expect("h2spec runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("0 failed") && output.status.success(), "{text}");
    }
}

#[test]
fn discarded_bodies_are_read_to_the_end() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::raw(move |mut stream| {
        let mut unread = Vec::new();
        while Request::read_head(&mut stream, &mut unread).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
            let _ = held.lock().expect("no panic before").recv();
            let _ = stream.write_all(b"3\r\ndef\r\n0\r\n\r\n");
        }
    });
    let front = " http-request set-method GET\n log-format over:%ts";
    let (weir, port) = frontend("", front, origin.port());
    let mut client = Frames::connect(port);
    let head = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")];
    for (number, id) in [1, 3].into_iter().enumerate() {
        client.head(id, END_STREAM, &head);
        let (fields, ended) = client.next_head();
        assert!(fields[0] == ":status: 200" && ended, "{fields:?}");
        release.send(()).expect("the origin waits");
        let told = || weir.messages().matches("over:--").count() == number + 1;
        assert!(eventually(told), "{}", weir.messages());
    }
    assert_eq!(origin.connections(), 1, "the connection to the server is used again");
}
