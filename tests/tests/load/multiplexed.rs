//! HTTP/2, HTTP/3 and HTTP/0.9 over QUIC, counted by a frontend of Weir and its server.

use weir_tests::{Authority, Origin, Weir, free_port};

use super::{assert_all, load, number};

/// A frontend with a TCP, a TLS and a QUIC port, and its server.
struct Scene {
    weir: Weir,
    origin: Origin,
    clear: u16,
    secure: u16,
    _authority: Authority,
}

fn scene(global: &str, origin: Origin) -> Scene {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let (clear, secure) = (free_port(), free_port());
    let crt = certificate.display();
    let text = format!(
        "global\n stats socket runtime level admin\n{global}\ndefaults\n mode http\n timeout connect 10s\n timeout client 20s\n \
         timeout server 20s\nfrontend f\n bind 127.0.0.1:{clear}\n bind 127.0.0.1:{secure} ssl crt {crt} alpn h2,http/1.1\n \
         bind quic4@127.0.0.1:{secure} ssl crt {crt} alpn h3,hq-interop\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[clear, secure]);
    Scene { weir, origin, clear, secure, _authority: authority }
}

impl Scene {
    /// The URLs of all protocols, with the options before them and their labels.
    fn urls(&self) -> [(&'static str, String, &'static str); 4] {
        let (clear, secure) = (self.clear, self.secure);
        [
            ("-2c", format!("http://127.0.0.1:{clear}/"), "h2"),
            ("-2", format!("https://127.0.0.1:{secure}/"), "h2"),
            ("-3", format!("quic://127.0.0.1:{secure}/"), "h3"),
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
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "6", "both protocols over QUIC");
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
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "40", "both protocols over QUIC");
}

#[test]
fn bodies_of_requests_arrive_whole() {
    let origin = Origin::start(|_, body| {
        let status = if body.len() == 300 << 10 { 200 } else { 400 };
        format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let scene = scene("", origin);
    for (option, url, _) in scene.urls().into_iter().take(3) {
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
    for (option, url, _) in scene.urls().into_iter().take(3) {
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
    let mut words = vec!["-n", "50", "-m", "3", &clear];
    urls.iter().for_each(|(option, url, _)| words.extend([*option, url]));
    let summary = load(&words);
    assert_all(&summary, 50);
    for (label, count) in [("h0", 10), ("h1", 10), ("h2", 20), ("h3", 10)] {
        assert_eq!(number(&summary, &format!("statuses_by_version/{label}/2xx")), count, "{summary}");
    }
}
