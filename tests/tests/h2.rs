//! HTTP/2 towards clients and servers, in clear text and over TLS, mixed with HTTP/1.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    ACK, DATA, END_STREAM, Frames, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame,
};
use weir_tests::{Origin, Weir, eventually, free_port};

/// Settings by their numbers (RFC 9113, 6.5.2; RFC 8441, 3).
const HEADER_TABLE_SIZE: u16 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// Codes (RFC 9113, 7).
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

const TIMEOUTS: &str =
    "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n log global\n";

/// What curl prints of a request that it makes by prior knowledge, or with other arguments.
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("curl runs: `make tools` installs it");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A frontend of HTTP/2 with `global` and `front` lines before an origin.
fn frontend(global: &str, front: &str, origin: u16) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{global}\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port} proto h2\n\
         {front}\n default_backend b\nbackend b\n server s 127.0.0.1:{origin}\n"
    );
    (Weir::start(&text, &[port]), port)
}

/// A frontend of HTTP/1 before a server of HTTP/2 with `server` parameters and `back` lines.
fn backend(global: &str, back: &str, server: u16, parameters: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{global}\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n \
         default_backend b\nbackend b\n{back}\n server s 127.0.0.1:{server} proto h2 {parameters}\n"
    );
    (Weir::start(&text, &[port]), port)
}

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
    let file = weir_tests::scratch("h2").join("large");
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
fn a_body_of_many_windows_comes_whole_and_trailers_follow_it() {
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
fn trailers_of_a_client_reach_an_http1_server_behind_chunks() {
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
fn what_is_announced_to_clients_is_what_the_configuration_says() {
    let origin = Origin::text("x");
    let usual: [(u16, Option<u32>); 5] = [
        (MAX_CONCURRENT_STREAMS, Some(100)),
        (INITIAL_WINDOW_SIZE, Some(16_384)),
        (ENABLE_CONNECT_PROTOCOL, Some(1)),
        (HEADER_TABLE_SIZE, None),
        (MAX_FRAME_SIZE, None),
    ];
    type Said<'a> = (&'a str, &'a [(u16, Option<u32>)]);
    let cases: [Said<'_>; 8] = [
        ("", &usual),
        ("tune.h2.max-concurrent-streams 7", &[(MAX_CONCURRENT_STREAMS, Some(7))]),
        (
            "tune.h2.max-concurrent-streams 7\n tune.h2.fe.max-concurrent-streams 8",
            &[(MAX_CONCURRENT_STREAMS, Some(8))],
        ),
        ("tune.h2.initial-window-size 50000", &[(INITIAL_WINDOW_SIZE, Some(50_000))]),
        ("tune.h2.fe.initial-window-size 40000", &[(INITIAL_WINDOW_SIZE, Some(40_000))]),
        ("tune.h2.header-table-size 1024", &[(HEADER_TABLE_SIZE, Some(1024))]),
        ("tune.bufsize 32768\n tune.h2.max-frame-size 20000", &[(MAX_FRAME_SIZE, Some(20_000))]),
        ("h2-workaround-bogus-websocket-clients", &[(ENABLE_CONNECT_PROTOCOL, None)]),
    ];
    for (global, expected) in cases {
        let (_weir, port) = frontend(&format!(" {global}"), "", origin.port());
        let settings = Frames::connect(port).next_of(SETTINGS);
        for (setting, value) in expected {
            assert_eq!(settings.setting(*setting), *value, "{global}: {setting}");
        }
    }
}

#[test]
fn what_is_announced_to_servers_is_what_the_configuration_says() {
    let cases = [
        ("tune.h2.be.initial-window-size 30000", INITIAL_WINDOW_SIZE, Some(30_000)),
        ("tune.h2.be.max-concurrent-streams 5", INITIAL_WINDOW_SIZE, Some(16_384)),
        ("tune.h2.header-table-size 512", HEADER_TABLE_SIZE, Some(512)),
    ];
    for (global, setting, value) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (_weir, port) = backend(&format!(" {global}"), "", listener.local_addr().unwrap().port(), "");
        let mut client = Client::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let settings = Frames::accept(&listener).next_of(SETTINGS);
        assert_eq!(settings.setting(setting), value, "{global}");
    }
}

#[test]
fn a_server_connection_carries_as_many_requests_as_it_may_and_another_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().unwrap().port();
    let global = " nbthread 1\n tune.h2.be.max-concurrent-streams 2";
    let (_weir, port) = backend(global, " http-reuse always", server, "");
    let clients: Vec<Client> = (0..3)
        .map(|number| {
            let mut client = Client::connect(port);
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    let (mut one, mut other) = (Frames::accept(&listener), Frames::accept(&listener));
    let streams = [one.next_of(HEADERS).stream, one.next_of(HEADERS).stream];
    assert_eq!((streams, other.next_of(HEADERS).stream), ([1, 3], 1));
    drop(clients);
    // Nobody waits for them any more.
    assert_eq!(one.next_of(RST_STREAM).number(0), CANCEL);
}

#[test]
fn requests_of_several_clients_share_a_connection_and_each_gets_its_own_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().unwrap().port();
    let (weir, port) = backend(" nbthread 1\n stats socket runtime", " http-reuse always", server, "");
    let mut first = Client::connect(port);
    first.send("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let head = peer.next_of(HEADERS);
    assert_eq!(head.stream, 1);
    let mut others: Vec<Client> = (1..4).map(|_| Client::connect(port)).collect();
    for (number, client) in others.iter_mut().enumerate() {
        client.send(format!("POST /{} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", number + 1));
    }
    let mut asked = Vec::new();
    while asked.len() < 3 {
        let frame = peer.next_of(HEADERS);
        let path = peer.fields(&frame).into_iter().find(|line| line.starts_with(":path")).expect("a path");
        asked.push((frame.stream, path));
    }
    // The last comes first.
    for (stream, path) in asked.iter().rev() {
        peer.head(*stream, 0, &[(":status", "200"), ("x-path", path)]).send(DATA, END_STREAM, *stream, b"ok");
    }
    peer.head(1, 0, &[(":status", "200"), ("x-path", ":path: /0")]).send(DATA, END_STREAM, 1, b"ok");
    for (number, client) in std::iter::once(&mut first).chain(&mut others).enumerate() {
        let answer = client.response().expect("an answer");
        assert_eq!(answer.header("x-path"), Some(format!(":path: /{number}").as_str()), "{}", answer.head);
        assert_eq!((answer.status, answer.text().as_str()), (200, "2\r\nok\r\n0\r\n\r\n"), "{}", answer.head);
    }
    let counted = weir.ask("show stat b 2 -1 typed");
    let has =
        |name: &str, value: &str| counted.lines().any(|line| line.contains(name) && line.ends_with(value));
    assert!(has("h2_total_connections", ":1") && has("h2_backend_total_streams", ":4"), "{counted}");
    assert!(has("h2_headers_rcvd", ":4") && has("h2_data_rcvd", ":4"), "{counted}");
}

#[test]
fn a_request_that_the_server_did_not_look_at_is_sent_again_whatever_its_method() {
    for goes_away in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().unwrap().port();
        let (_weir, port) = backend(" nbthread 1", " retries 1", server, "");
        let mut client = Client::connect(port);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let mut peer = Frames::accept(&listener);
        let stream = peer.next_of(HEADERS).stream;
        match goes_away {
            false => peer.send(RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes()),
            true => peer.send(GOAWAY, 0, 0, &[0; 8]),
        };
        let mut again = match goes_away {
            true => Frames::accept(&listener),
            false => peer,
        };
        let stream = match goes_away {
            true => again.next_of(HEADERS).stream,
            // Another connection, or another stream of this one.
            false => {
                listener.set_nonblocking(true).unwrap();
                let (sender, receiver) = mpsc::channel();
                thread::spawn(move || {
                    let stream = again.find(|frame| frame.kind == HEADERS).map(|frame| frame.stream);
                    let _ = sender.send(());
                    if let Some(stream) = stream {
                        again.head(stream, END_STREAM, &[(":status", "204")]);
                        again.rest();
                    }
                });
                assert!(eventually(|| {
                    if let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(false).unwrap();
                        thread::spawn(move || {
                            let mut peer = Frames::take(stream);
                            let stream = peer.next_of(HEADERS).stream;
                            peer.head(stream, END_STREAM, &[(":status", "204")]);
                            peer.rest();
                        });
                        return true;
                    }
                    receiver.try_recv().is_ok()
                }));
                assert_eq!(client.response().expect("an answer").status, 204);
                continue;
            }
        };
        again.head(stream, END_STREAM, &[(":status", "204")]);
        assert_eq!(client.response().expect("an answer").status, 204, "GOAWAY: {goes_away}");
    }
}

#[test]
fn the_preface_is_found_where_http1_is_spoken_unless_the_option_says_otherwise() {
    let origin = Origin::text("x");
    for (option, speaks) in [("", true), ("option disable-h2-upgrade", false)] {
        let port = free_port();
        let text = format!(
            "{TIMEOUTS}frontend f\n {option}\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n \
             server s 127.0.0.1:{}\n",
            origin.port()
        );
        let _weir = Weir::start(&text, &[port]);
        if speaks {
            assert_eq!(Frames::connect(port).get(1, "/").next_head().0[0], ":status: 200");
        } else {
            let mut client = Client::connect(port);
            client.send(weir_tests::multiplexed::PREFACE);
            assert_eq!(client.response().expect("an answer of HTTP/1").status, 405);
        }
    }
}

#[test]
fn breaches_are_logged_as_far_as_the_configuration_says() {
    let origin = Origin::text("x");
    let upper = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("X", "1")];
    for (level, of_streams, of_connections) in
        [("stream", true, true), ("connection", false, true), ("none", false, false)]
    {
        let (weir, port) =
            frontend(&format!(" tune.h2.log-errors {level}"), " option httplog", origin.port());
        let mut client = Frames::connect(port);
        client.head(1, END_STREAM, &upper);
        assert_eq!(client.next_of(RST_STREAM).number(0), PROTOCOL_ERROR);
        // The connection goes on.
        assert_eq!(client.get(3, "/").next_head().0[0], ":status: 200");
        client.send(DATA, 0, 0, b"");
        assert_eq!(client.next_of(GOAWAY).number(4), PROTOCOL_ERROR);
        client.rest();
        let bad = || weir.messages().matches("PR-- ").count();
        let expected = usize::from(of_streams) + usize::from(of_connections);
        assert!(eventually(|| bad() == expected), "{level}: {}", weir.messages());
        assert!(
            !weir.messages().contains("PR--") || weir.messages().contains("<BADREQ>"),
            "{}",
            weir.messages()
        );
    }
}

#[test]
fn too_many_glitches_end_a_connection() {
    let origin = Origin::text("x");
    let (_weir, port) = frontend(" tune.h2.fe.glitches-threshold 8", "", origin.port());
    let mut client = Frames::connect(port);
    for stream in 0..40 {
        client.head(2 * stream + 1, END_STREAM, &[(":method", "GET"), ("X", "1")]);
    }
    let codes: Vec<u32> =
        client.rest().iter().filter(|frame| frame.kind == GOAWAY).map(|frame| frame.number(4)).collect();
    assert_eq!(codes.last(), Some(&ENHANCE_YOUR_CALM), "{codes:?}");
}

#[test]
fn a_server_that_glitches_too_often_loses_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().unwrap().port();
    let (_weir, port) = backend(" tune.h2.be.glitches-threshold 3", "", server, "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    peer.next_of(HEADERS);
    for _ in 0..10 {
        // Windows that become smaller.
        peer.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 64, 0]).send(SETTINGS, 0, 0, &[0, 4, 0, 0, 32, 0]);
    }
    assert!(peer.rest().iter().any(|frame| frame.kind == GOAWAY && frame.number(4) == ENHANCE_YOUR_CALM));
    assert_eq!(client.response().expect("an answer").status, 502);
}

#[test]
fn a_connection_ends_after_as_many_requests_as_it_may_have() {
    let origin = Origin::text("x");
    let (_weir, port) = frontend(" tune.h2.fe.max-total-streams 3", "", origin.port());
    let mut client = Frames::connect(port);
    for stream in [1, 3] {
        assert_eq!(client.get(stream, "/").next_head().0[0], ":status: 200");
    }
    client.get(5, "/");
    let mut seen = Vec::new();
    while let Some(frame) = client.next_frame() {
        match frame.kind {
            // The client has seen the announcement: the end follows.
            PING if frame.flags & ACK == 0 => drop(client.send(PING, ACK, 0, &frame.payload)),
            GOAWAY => seen.push((frame.number(0), frame.number(4))),
            HEADERS => assert_eq!((frame.stream, client.fields(&frame)[0].as_str()), (5, ":status: 200")),
            _ => {}
        }
    }
    assert_eq!(seen, [(0x7fff_ffff, 0), (5, 0)]);
}

#[test]
fn frames_and_resets_are_dealt_with_in_portions_and_none_is_lost() {
    let origin = Origin::text("x");
    let global = " tune.h2.fe.max-frames-at-once 2\n tune.h2.fe.max-rst-at-once 1";
    let (_weir, port) = frontend(global, "", origin.port());
    let mut client = Frames::connect(port);
    let mut all = Vec::new();
    for number in 0..50u32 {
        all.extend_from_slice(&frame(PING, 0, 0, &u64::from(number).to_be_bytes()));
    }
    client.raw(&all);
    for number in 0..50u64 {
        let answer = client.find(|frame| frame.kind == PING && frame.flags & ACK != 0).expect("an answer");
        assert_eq!(answer.payload, number.to_be_bytes());
    }
    assert_eq!(client.get(1, "/").next_head().0[0], ":status: 200");
}

#[test]
fn frames_of_servers_are_dealt_with_in_portions_too() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().unwrap().port();
    let global = " tune.h2.be.max-frames-at-once 2\n tune.h2.be.rxbuf 65536";
    let (_weir, port) = backend(global, "", server, "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.head(stream, 0, &[(":status", "200"), ("content-length", "50")]);
    for number in 0..50 {
        peer.send(DATA, if number == 49 { END_STREAM } else { 0 }, stream, b"z");
    }
    assert_eq!(client.response().expect("an answer").text(), "z".repeat(50));
}

#[test]
fn a_client_may_send_as_much_as_the_receive_buffer_lets_it() {
    // The origin takes nothing: what the client may send is what is held here.
    let origin = Origin::raw(|stream| {
        let mut byte = [0];
        let _ = std::io::Read::read(&mut &stream, &mut byte);
        thread::park_timeout(weir_tests::PATIENCE);
    });
    let credit = |global: &str| {
        let (_weir, port) = frontend(global, "", origin.port());
        let mut client = Frames::connect(port);
        client.head(1, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
        client.send(DATA, 0, 1, &[0; 1024]).send(PING, 0, 0, &[0; 8]);
        let (mut credit, window) =
            (0, client.next_of(SETTINGS).setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535));
        client.find(|frame| {
            if frame.kind == 8 && frame.stream == 1 {
                credit += frame.number(0);
            }
            frame.kind == PING && frame.flags & ACK != 0
        });
        window + credit
    };
    let two = " tune.h2.fe.max-concurrent-streams 2";
    let (large, small) =
        (credit(&format!("{two}\n tune.h2.fe.rxbuf 1m")), credit(&format!("{two}\n tune.h2.fe.rxbuf 65536")));
    assert!(large > 500_000 && (16_384..=65_536).contains(&small), "{large} and {small} bytes");
}

#[test]
fn log_formats_and_fetches_know_streams_and_versions() {
    let origin = Origin::text("x");
    let front = " log-format \"<%HV %r|%[fc_http_major],%[bc_http_major],%[fs.id],%[bs.id],%[fs.rst_code],%HU,%HPO,%[fc_nb_streams],%[fc_settings_streams_limit],%[bc_nb_streams]>\"";
    let (weir, port) = frontend("", front, origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/a?b").next_head();
    client.get(3, "/c").next_head();
    let told = |text: &str| eventually(|| weir.messages().contains(text));
    assert!(
        told("<HTTP/2.0 GET http://a.test/a?b HTTP/2.0|2,1,1,0,-,http://a.test/a?b,/a,1,100,1>"),
        "{}",
        weir.messages()
    );
    assert!(told("|2,1,3,1,-,http://a.test/c,/c,1,100,1>"), "{}", weir.messages());
}

#[test]
fn the_code_of_a_clients_reset_is_told() {
    let origin = Origin::raw(|stream| {
        let mut byte = [0];
        while matches!(std::io::Read::read(&mut &stream, &mut byte), Ok(n) if n > 0) {}
    });
    let (weir, port) = frontend("", " log-format \"<%[fs.rst_code] %ts>\"", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/");
    assert!(eventually(|| origin.connections() == 1));
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    assert!(eventually(|| weir.messages().contains("<8 C")), "{}", weir.messages());
}

#[test]
fn the_code_of_a_servers_reset_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().unwrap().port();
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n \
         log-format \"<%[bs.rst_code],%[bs.id],%[bc_http_major],%[bc_settings_streams_limit] %ST>\"\n default_backend b\nbackend b\n \
         server s 127.0.0.1:{server} proto h2\n"
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.send(RST_STREAM, 0, stream, &PROTOCOL_ERROR.to_be_bytes());
    assert_eq!(client.response().expect("an answer").status, 502);
    assert!(eventually(|| weir.messages().contains("<1,1,2,100 502>")), "{}", weir.messages());
}

#[test]
fn interim_responses_pass_from_and_to_each_version() {
    let origin = Origin::start(|_, _| {
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let (_weir, port) = frontend("", "", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/");
    assert_eq!(client.next_head(), (vec![":status: 103".to_owned(), "link: </a>".to_owned()], false));
    let (head, ended) = client.next_head();
    assert_eq!((head[0].as_str(), ended), (":status: 200", true));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (_weir, port) = backend("", "", listener.local_addr().unwrap().port(), "");
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
fn an_answer_before_the_end_of_the_request_resets_the_rest_without_an_error() {
    let origin = Origin::text("x");
    let (_weir, port) = frontend("", " http-request deny", origin.port());
    let mut client = Frames::connect(port);
    client.head(1, 0, &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    assert_eq!(client.next_head().0[0], ":status: 403");
    assert_eq!(client.next_of(RST_STREAM).number(0), 0);
    // The connection serves others.
    assert_eq!(client.get(3, "/").next_head().0[0], ":status: 403");
}

#[test]
fn what_rules_make_of_the_target_reaches_an_http1_server_as_a_path_and_services_are_found_by_it() {
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
        // A proxy may be behind: what a rule says in full is sent so.
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
fn idle_peers_are_asked_whether_they_live() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{port} proto h2 idle-ping 50ms\n default_backend b\nbackend b\n \
         server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Frames::connect(port);
    client.get(1, "/").next_head();
    for _ in 0..2 {
        let ping = client.next_of(PING);
        client.send(PING, ACK, 0, &ping.payload);
    }
    client.next_of(PING);
    // No answer: that was the last one.
    let left = client.rest();
    assert!(left.iter().any(|frame| frame.kind == GOAWAY), "{left:?}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (_weir, port) = backend("", "", listener.local_addr().unwrap().port(), "idle-ping 50ms");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.head(stream, END_STREAM, &[(":status", "204")]);
    let ping = peer.next_of(PING);
    peer.send(PING, ACK, 0, &ping.payload);
    peer.next_of(PING);
    assert!(peer.rest().iter().all(|frame| frame.kind != HEADERS));
}

#[test]
fn a_soft_stop_announces_the_end_and_serves_what_is_on_its_way() {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::start(move |head, _| {
        if head.starts_with("GET /slow") {
            let _ = held.lock().unwrap().recv();
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let (mut weir, port) = frontend("", "", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/").next_head();
    client.get(3, "/slow");
    assert!(eventually(|| origin.requests() == 2));
    weir.signal("USR1");
    assert_eq!(client.next_of(GOAWAY).number(4), 0);
    let ping = client.next_of(PING);
    client.send(PING, ACK, 0, &ping.payload);
    release.send(()).unwrap();
    assert_eq!(client.next_head().0[0], ":status: 200");
    client.rest();
    assert_eq!(weir.await_end(), Some(0));
}

#[test]
fn h2spec_finds_nothing_before_servers_of_either_version() {
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
    let Some(h2spec) = weir_tests::tool::of_go("h2spec") else { return };
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
fn the_time_of_a_request_that_begins_as_the_preface_does_counts_from_its_first_letter() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{TIMEOUTS}frontend f\n log-format \"<%TR>\"\n bind 127.0.0.1:{port}\n \
         default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("P");
    // The rest comes late: that is what is told, however busy the machine is.
    thread::sleep(std::time::Duration::from_millis(60));
    client.send("UT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().expect("an answer").status, 200);
    let told = || {
        let messages = weir.messages();
        let line =
            messages.lines().find_map(|line| line.strip_prefix('<')?.strip_suffix('>')?.parse::<u64>().ok());
        line.is_some_and(|time| time >= 50)
    };
    assert!(eventually(told), "{}", weir.messages());
}

#[test]
fn a_client_that_sends_a_letter_of_the_preface_and_no_more_is_told_that_it_is_late() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "defaults\n mode http\n timeout client 200ms\n timeout connect 20s\n timeout server 20s\nfrontend f\n \
         bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("P");
    assert_eq!(client.response().expect("an answer").status, 408);
}
