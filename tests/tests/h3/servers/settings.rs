//! Keywords of connections to QUIC servers.

use weir_tests::{Authority, Origin, Weir, client, free_port};

use super::{Lines, chain};
use crate::DEFAULTS;

/// A server that returns a megabyte.
fn large() -> Origin {
    Origin::start(|_, _| {
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec(), vec![b'x'; 1_000_000]].concat()
    })
}

#[test]
fn transfers_work_with_each_setting() {
    let origin = large();
    let cases = [
        ("", " tune.quic.be.cc.hystart on"),
        ("", " tune.quic.be.cc.cubic-min-losses 3"),
        ("", " tune.quic.be.cc.max-win-size 20k"),
        ("", " tune.quic.be.tx.udp-gso off"),
        ("", " tune.quic.be.stream.rxbuf 20k"),
        ("", " tune.quic.be.stream.data-ratio 1"),
        ("", " tune.quic.be.sec.glitches-threshold 10"),
        ("", " tune.quic.zero-copy-fwd-send off"),
        ("quic-cc-algo newreno", ""),
        ("quic-cc-algo bbr(100k)", ""),
        ("quic-cc-algo cubic(64k)", ""),
        ("quic-cc-algo nocc(50k)", " expose-experimental-directives"),
        ("proto quic", ""),
    ];
    for (more, global) in cases {
        let chain = chain(&origin, Lines { global, more, ..Lines::default() });
        let answer = client::get(chain.port, "/").expect("a response");
        assert_eq!((answer.status, answer.body.len()), (200, 1_000_000), "{more}{global}");
    }
}

#[test]
fn limits_are_announced_to_servers_or_applied() {
    let origin = large();
    let shown = |global: &str, more: &str| {
        let chain = chain(&origin, Lines { global, more, ..Lines::default() });
        assert_eq!(chain.get("/").0, 200);
        chain.weir.ask("show quic full be")
    };
    let text = shown(" tune.quic.be.stream.rxbuf 200k\n tune.quic.be.stream.data-ratio 50", "");
    assert!(text.contains("md=204800"), "{text}");
    let text = shown(" tune.quic.be.max-idle-timeout 7s", "");
    assert!(text.contains("midle_timeout=7000ms"), "{text}");
    for (global, more) in [(" tune.quic.be.cc.max-win-size 20k", ""), ("", "quic-cc-algo cubic(20k)")] {
        let text = shown(global, more);
        let window = text.split("cwnd=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let window: u64 = window.and_then(|window| window.parse().ok()).expect("a window");
        assert!(window <= 20_480, "{text}");
    }
}

#[test]
fn retries_of_the_handshake_are_followed() {
    let origin = Origin::text("ok");
    let lines = Lines { bind: "quic-force-retry", back: " http-reuse never", ..Lines::default() };
    let chain = chain(&origin, lines);
    for _ in 0..3 {
        assert_eq!(chain.get("/"), (200, "ok".to_owned()));
    }
    let sent: u32 = chain.weir.stat("behind,FRONTEND", "quic_retry_sent").parse().expect("a number");
    // A token from an earlier connection proves the address too, and a repeated packet is sent another Retry.
    assert!(sent > 0);
}

#[test]
fn servers_have_ipv6_addresses_and_names() {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let shown = certificate.display();
    for (listens, server) in [("quic6@::1", "quic6@::1"), ("quic4@127.0.0.1", "quic4@localhost")] {
        let (port, behind) = (free_port(), free_port());
        let text = format!(
            "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
             backend b\n server s {server}:{behind} ssl verify none\n\
             frontend behind\n bind {listens}:{behind} ssl crt {shown}\n http-request return status 200\n"
        );
        let _weir = Weir::start(&text, &[port]);
        assert_eq!(client::get(port, "/").expect("a response").status, 200, "{server}");
    }
}
