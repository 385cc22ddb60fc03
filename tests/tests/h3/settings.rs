//! Keywords of QUIC listeners.

use weir_tests::http3::{Http3Client, Http3Request, Http3Sessions, QuicClient};
use weir_tests::versions::curl;
use weir_tests::{Authority, Origin, Weir, free_port};

use super::{DEFAULTS, start, start_with};

#[test]
fn alt_svc_announces_the_port_over_tcp() {
    let scene = start("", " option alt-svc\n http-request return status 200", "");
    let url = format!("https://127.0.0.1:{}/", scene.port);
    let head = curl(&["-ki", "--http1.1", &url]).to_ascii_lowercase();
    assert!(head.contains(&format!("alt-svc: h3=\":{}\"; ma=86400", scene.port)), "{head}");
    let mut client = Http3Client::connect(scene.port);
    assert!(client.exchange(&Http3Request::get("/")).fields.contains_key("alt-svc"));
}

/// A server that returns a megabyte.
fn large() -> Origin {
    Origin::start(|_, _| {
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec(), vec![b'x'; 1_000_000]].concat()
    })
}

#[test]
fn transfers_work_with_each_congestion_setting() {
    let origin = large();
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let cases = [
        ("", " tune.quic.fe.cc.hystart on"),
        ("", " tune.quic.fe.cc.cubic-min-losses 3"),
        ("", " tune.quic.fe.cc.max-win-size 20k"),
        ("", " tune.quic.mem.tx-max 10k"),
        ("", " tune.quic.zero-copy-fwd-send off"),
        ("", " tune.quic.fe.tx.udp-gso off"),
        ("quic-cc-algo newreno", ""),
        ("quic-cc-algo bbr(100k)", ""),
        ("quic-cc-algo nocc(50k)", " expose-experimental-directives"),
    ];
    for (parameters, global) in cases {
        let scene = start_with(parameters, global, " default_backend b", &backend);
        let mut client = Http3Client::connect(scene.port);
        let requests = vec![Http3Request::get("/"); 4];
        for response in client.exchange_all(&requests) {
            let length = response.map(|response| response.body.len());
            assert_eq!(length, Ok(1_000_000), "{parameters}{global}");
        }
    }
}

#[test]
fn windows_are_limited_by_settings() {
    let origin = large();
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    for (global, most) in [(" tune.quic.fe.cc.max-win-size 20k", 20_480), ("", 491_520)] {
        let scene = start(global, " default_backend b", &backend);
        let mut client = Http3Client::connect(scene.port);
        client.exchange(&Http3Request::get("/"));
        let text = scene.weir.ask("show quic cc");
        let window = text.split("cwnd=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let window: u64 = window.and_then(|window| window.parse().ok()).expect("a window");
        assert!((10_000..=most).contains(&window), "{text}");
    }
}

#[test]
fn connections_end_after_max_total_requests() {
    let rules = " http-request return status 200";
    let scene = start(" tune.quic.fe.stream.max-total 3", rules, "");
    let mut client = Http3Client::connect(scene.port);
    for _ in 0..3 {
        assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    }
    let reason = client.await_close().expect("the server closes").to_string();
    assert!(reason.contains("256") || reason.contains("0x100"), "H3_NO_ERROR: {reason}");
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), "3");
}

#[test]
fn clients_without_a_common_protocol_are_refused() {
    let scene = start("", " http-request return status 200", "");
    let refused = QuicClient::connect(scene.port, &Http3Sessions::new("h2")).err().expect("no connection");
    assert!(refused.contains("error 120") && refused.contains("no application protocol"), "{refused}");
}

#[test]
fn hq_interop_carries_bare_bodies() {
    let origin = large();
    let rules = " http-request return status 200 content-type text/plain lf-string \
                 \"%HM %HU %HV %[fc_http_major]\" if { path_beg /local }\n default_backend b";
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let scene = start_with("alpn h3,hq-interop", "", rules, &backend);
    let client = QuicClient::connect(scene.port, &Http3Sessions::new("hq-interop")).expect("a connection");
    let local = client.converse(b"GET /local?a=b\r\n").expect("a body");
    assert_eq!(String::from_utf8_lossy(&local), "GET /local?a=b HTTP/1.0 3");
    assert_eq!(client.converse(b"GET /large\r\n").map(|body| body.len()), Ok(1_000_000));
    assert!(client.converse(b"nonsense").is_err(), "the stream is reset");
    for _ in 0..200 {
        assert!(client.converse(b"GET /local\n").is_ok(), "streams are released");
    }
    // The same port serves HTTP/3.
    let mut other = Http3Client::connect(scene.port);
    assert_eq!(other.exchange(&Http3Request::get("/local")).status, 200);
    scene.weir.signal("USR1");
    client.runtime.block_on(client.connection.closed());
}

#[test]
fn crt_list_lines_for_tcp_serve_quic_with_its_own_limits() {
    let scratch = scratch::Scratch::new("quic-list");
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let list = scratch.directory().join("list");
    let line = format!("{} [alpn h2,http/1.1 ssl-max-ver TLSv1.2 allow-0rtt]\n", certificate.display());
    std::fs::write(&list, line).expect("a file");
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind quic4@127.0.0.1:{port} ssl crt-list {list}\n \
         bind 127.0.0.1:{port} ssl crt-list {list}\n http-request return status 200 content-type text/plain \
         lf-string \"%[ssl_fc_protocol] %[ssl_fc_alpn]\"\n",
        list = list.display()
    );
    let weir = Weir::start(&text, &[port]);
    assert!(weir.says("QUIC clients cannot use 'h2', which the crt-list sets"), "{}", weir.messages());
    assert!(weir.says("'ssl-max-ver' of the crt-list has no effect"), "{}", weir.messages());
    let mut client = Http3Client::connect(port);
    let body = client.exchange(&Http3Request::get("/")).body;
    assert_eq!(String::from_utf8_lossy(&body), "TLSv1.3 h3");
}

#[test]
fn windows_and_stream_limits_are_announced_and_kept() {
    let origin = large();
    let global = " tune.quic.fe.stream.max-concurrent 3\n tune.quic.fe.stream.rxbuf 64k\n \
                  tune.quic.fe.stream.data-ratio 50\n tune.sndbuf.frontend 262144\n \
                  harden.reject-privileged-ports.quic off";
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let scene = start(global, " default_backend b", &backend);
    let mut client = Http3Client::connect(scene.port);
    let requests: Vec<_> = (0..20).map(|_| Http3Request::get("/large")).collect();
    for response in client.exchange_all(&requests) {
        assert_eq!(response.expect("a response").body.len(), 1_000_000);
    }
    // Larger than the window, so that it depends on credit for more.
    assert_eq!(client.exchange(&Http3Request::post("/large", &[0; 300_000])).status, 200);
}

#[test]
fn workers_share_a_socket_without_reuseport() {
    let origin = large();
    let rules = " http-request return status 200 content-type text/plain lf-string %[thread] if { path /thread }\n \
                 default_backend b";
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let mut scene = start(" noreuseport\n nbthread 3", rules, &backend);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..30 {
        let mut client = Http3Client::connect(scene.port);
        let thread = client.exchange(&Http3Request::get("/thread")).body;
        client.change_port();
        assert_eq!(client.exchange(&Http3Request::get("/thread")).body, thread, "the same worker");
        assert_eq!(client.exchange(&Http3Request::post("/", &[b'a'; 500_000])).body.len(), 1_000_000);
        seen.insert(thread);
        client.close();
    }
    assert_eq!(seen.len(), 3, "every worker has connections: {seen:?}");
    scene.weir.signal("USR1");
    assert_eq!(scene.weir.await_end(), Some(0));
}

#[test]
fn silent_connections_end_with_the_transport_timeout() {
    let scene = start(" tune.quic.fe.max-idle-timeout 300ms", " http-request return status 200", "");
    let mut client = Http3Client::connect(scene.port);
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    let reason = client.await_close().expect("an end").to_string();
    assert!(reason.contains("timed out"), "{reason}");
}

#[test]
fn silent_drop_sends_no_close() {
    let scene = start(" tune.quic.fe.max-idle-timeout 2s", " http-request silent-drop", "");
    let mut client = Http3Client::connect(scene.port);
    assert!(client.try_exchange(&Http3Request::get("/")).is_err());
    let reason = client.await_close().expect("an end").to_string();
    // A packet that arrives after the connection was forgotten gets a stateless reset.
    assert!(["timed out", "reset by peer"].contains(&&*reason), "{reason}");
}

#[test]
fn forced_retries_and_the_retry_threshold_ask_for_proof_of_the_address() {
    let rules = " http-request return status 200";
    let forced = start_with("quic-force-retry", "", rules, "");
    let flooded = start(" tune.quic.fe.sec.retry-threshold 1", rules, "");
    for (scene, is_sent) in [(forced, "1"), (flooded, "0")] {
        let mut client = Http3Client::connect(scene.port);
        assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
        assert_eq!(scene.weir.stat("f,FRONTEND", "quic_retry_sent"), is_sent);
    }
}

#[test]
fn without_listen_no_quic_socket_is_bound() {
    let rules = " http-request return status 200 content-type text/plain lf-string \"%[quic_enabled]\"";
    let scene = start(" tune.quic.listen off", rules, "");
    let url = format!("https://127.0.0.1:{}/", scene.port);
    assert_eq!(curl(&["-k", &url]), "0");
    let free = std::net::UdpSocket::bind(("127.0.0.1", scene.port));
    assert!(free.is_ok(), "the UDP port is free");
}
