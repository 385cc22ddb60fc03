//! HTTP/2, HTTP/3 over QUIC and QMux, and HTTP/0.9 over QUIC, counted by a frontend of Weir and its server.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use weir_tests::qmux::{numbers, parameters, record, usual};
use weir_tests::{Authority, Origin, Weir, free_port};

use super::{assert_all, load, number};

/// A frontend with TCP, TLS, QUIC and QMux, and its server.
pub(super) struct Scene {
    pub(super) weir: Weir,
    pub(super) origin: Origin,
    pub(super) clear: u16,
    secure: u16,
    qmux: u16,
    _authority: Authority,
}

pub(super) fn scene(global: &str, origin: Origin) -> Scene {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let (clear, secure, qmux) = (free_port(), free_port(), free_port());
    let crt = certificate.display();
    let text = format!(
        "global\n stats socket runtime level admin\n expose-experimental-directives\n{global}\ndefaults\n mode http\n timeout connect 10s\n timeout client 20s\n \
         timeout server 20s\nfrontend f\n bind 127.0.0.1:{clear}\n bind 127.0.0.1:{qmux} proto qmux\n \
         bind 127.0.0.1:{secure} ssl crt {crt} alpn h3,h2,http/1.1\n \
         bind quic4@127.0.0.1:{secure} ssl crt {crt} alpn h3,hq-interop\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    // A connection that only probes the QMux port would count as a session.
    let weir = Weir::start(&text, &[clear, secure]);
    Scene { weir, origin, clear, secure, qmux, _authority: authority }
}

impl Scene {
    /// The URLs of all protocols, with the options before them and their labels.
    pub(super) fn urls(&self) -> [(&'static str, String, &'static str); 6] {
        let Self { clear, secure, qmux, .. } = self;
        [
            ("-2c", format!("http://127.0.0.1:{clear}/"), "h2"),
            ("-2", format!("https://127.0.0.1:{secure}/"), "h2"),
            ("-3", format!("quic://127.0.0.1:{secure}/"), "h3"),
            ("-3", format!("http://127.0.0.1:{qmux}/"), "h3"),
            ("-3", format!("https://127.0.0.1:{secure}/"), "h3"),
            ("-0", format!("quic://127.0.0.1:{secure}/"), "h0"),
        ]
    }
}

#[test]
fn every_protocol_sends_exactly_the_requested_number() {
    let scene = scene("", Origin::text("ok"));
    let mut before = 0;
    for (option, url, label) in scene.urls() {
        let summary = load(&["-n", "300", "-m", "10", "-u", "3", "-t", "2", option, &url]);
        assert_all(&summary, 300);
        assert_eq!(number(&summary, "connections"), 3, "{option}");
        assert_eq!(number(&summary, &format!("statuses_by_version/{label}/2xx")), 300, "{option}");
        before += 300;
        assert_eq!(scene.origin.requests(), before, "{option}");
    }
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "12", "all protocols over QUIC and QMux");
}

#[test]
fn connections_end_after_their_number_of_requests() {
    let scene = scene("", Origin::text("ok"));
    for (streams, connections) in [("1", 10), ("4", 10)] {
        for (option, url, _) in scene.urls() {
            let summary = load(&["-n", "50", "-r", "5", "-m", streams, option, &url]);
            assert_all(&summary, 50);
            assert_eq!(number(&summary, "connections"), connections, "{option} -m {streams}");
        }
    }
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "80", "all protocols over QUIC and QMux");
}

#[test]
fn bodies_of_requests_arrive_whole() {
    let origin = Origin::start(|_, body| {
        let status = if body.len() == 300 << 10 { 200 } else { 400 };
        format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let scene = scene("", origin);
    for (option, url, _) in scene.urls().into_iter().take(5) {
        let summary = load(&["-n", "30", "-m", "5", "--body", "300k", option, &url]);
        assert_all(&summary, 30);
        assert_eq!(number(&summary, "statuses/2xx"), 30, "{option}");
    }
}

#[test]
fn large_responses_are_read_to_their_end() {
    let scene = scene(
        "",
        Origin::start(|_, _| {
            [&b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"[..], &[b'x'; 1_000_000]].concat()
        }),
    );
    for (option, url, _) in scene.urls() {
        let summary = load(&["-n", "20", "-m", "4", option, &url]);
        assert_all(&summary, 20);
        let bytes = number(&summary, "bytes");
        assert!((20_000_000..20_400_000).contains(&bytes), "{option}: {bytes}");
    }
}

#[test]
fn the_servers_limits_are_respected() {
    // Connections end after ten requests, and permit two at once.
    let global = " tune.h2.fe.max-concurrent-streams 2\n tune.h2.fe.max-total-streams 10\n \
                  tune.quic.fe.stream.max-concurrent 2\n tune.quic.fe.stream.max-total 10";
    let scene = scene(global, Origin::text("ok"));
    for (option, url, _) in scene.urls().into_iter().take(5) {
        let before = scene.origin.requests();
        let summary = load(&["-n", "100", "-m", "8", option, &url]);
        assert_all(&summary, 100);
        assert!(number(&summary, "connections") >= 10, "{option}: {summary}");
        assert_eq!(scene.origin.requests() - before, 100, "{option}");
    }
}

#[test]
fn a_stream_without_progress_is_reset_and_the_connection_goes_on() {
    let origin = Origin::start(|head, _| {
        if head.contains("/slow") {
            // Never answers; the thread ends with the test.
            loop {
                std::thread::park();
            }
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let scene = scene("", origin);
    for (option, url, _) in scene.urls() {
        let slow = format!("{url}slow");
        let urls = [&*slow, &url, &url, &url, &url];
        // The others have progress all the time until the slow one is given up.
        let summary = load(&[&["-n", "5", "-m", "2", "-w", "2000", option][..], &urls].concat());
        assert_eq!(
            (number(&summary, "requests"), number(&summary, "errors_by_reason/timeout")),
            (4, 1),
            "{option}"
        );
        assert_eq!(number(&summary, "connections"), 1, "{option}");
    }
}

#[test]
fn several_protocols_may_be_mixed() {
    let scene = scene("", Origin::text("ok"));
    let urls = scene.urls();
    let clear = format!("http://127.0.0.1:{}/", scene.clear);
    let mut words = vec!["-n", "70", "-m", "3", &clear];
    urls.iter().for_each(|(option, url, _)| words.extend([*option, url]));
    let summary = load(&words);
    assert_all(&summary, 70);
    for (label, count) in [("h0", 10), ("h1", 10), ("h2", 20), ("h3", 30)] {
        assert_eq!(number(&summary, &format!("statuses_by_version/{label}/2xx")), count, "{summary}");
    }
}

/// Servers that do not speak QMux, or close the connection before or during a request.
#[test]
fn a_server_that_ends_a_qmux_connection_is_an_error() {
    let run = |answer: fn(&mut TcpStream, &[u8]), reason: &str| {
        let greeting = record(&parameters(&usual(1 << 16)));
        let origin = Origin::raw(move |mut stream| {
            answer(&mut stream, &greeting);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let url = format!("http://127.0.0.1:{}/", origin.port());
        let summary = load(&["-n", "3", "-3", &url]);
        assert_eq!(
            (number(&summary, "requests"), number(&summary, &format!("errors_by_reason/{reason}"))),
            (0, 3),
            "{summary}"
        );
        assert_eq!(origin.connections(), 3, "{reason}");
    };
    run(|_, _| {}, "handshake");
    run(
        |stream, _| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("the client reads"),
        "protocol",
    );
    run(|stream, greeting| stream.write_all(greeting).expect("the client reads"), "closed");
    run(
        |stream, greeting| {
            // CONNECTION_CLOSE with H3_NO_ERROR.
            let close = record(&numbers(&[0x1d, 0x100, 0]));
            stream.write_all(&[greeting, &close].concat()).expect("the client reads");
        },
        "closed",
    );
}
