//! QUIC listeners and servers: their addresses and parameters, the global settings, and `quic-initial` rules.

mod common;

use std::time::Duration;

use common::{lines, load_quietly, places, plan};
use plan::bind::BindAddress;
use plan::quic::{Congestion, QuicBind, QuicServer, QuicSide, QuicTune};
use plan::{Bind, Global, Plan};

/// A configuration with one bind line. `strict-sni` permits a line without certificates.
fn with_bind(global: &str, line: &str) -> String {
    format!("global\n{global}\nfrontend web\n mode http\n bind {line} ssl strict-sni\n")
}

fn quic(plan: &Plan) -> &QuicBind {
    plan.proxies[0].binds[0].quic.as_deref().expect("a QUIC listener")
}

/// The messages about a configuration, without those about missing certificates.
fn told(text: &str) -> Vec<String> {
    let all = places(&load_quietly(text));
    all.into_iter().filter(|text| !text.contains("uses TLS but has no certificate")).collect()
}

#[test]
fn addresses_select_quic() {
    let v6 = |port| BindAddress::Quic(([0u16; 8], port).into());
    let cases: &[(&str, BindAddress, &str)] = &[
        ("quic4@:443", BindAddress::Quic(([0, 0, 0, 0], 443).into()), "quic4@0.0.0.0:443"),
        ("quic+ipv4@127.0.0.1:443", BindAddress::Quic(([127, 0, 0, 1], 443).into()), "quic4@127.0.0.1:443"),
        ("quic6@:443", v6(443), "quic6@[::]:443"),
        ("quic+ipv6@:::443", v6(443), "quic6@[::]:443"),
        ("quic+fd@7", BindAddress::InheritedQuic(7), "quic+fd@7"),
    ];
    for (text, address, shown) in cases {
        let plan = plan(&with_bind("", text));
        let [Bind { address: own, quic, tls, .. }] = &*plan.proxies[0].binds else { panic!("one listener") };
        assert_eq!((own, own.to_string().as_str()), (address, *shown));
        assert!(quic.is_some() && tls.is_some(), "{text}");
    }
    let plan = plan(&with_bind("", "quic4@127.0.0.1:443-445,quic6@::1:443"));
    assert_eq!(plan.proxies[0].binds.len(), 4);
    let text = "frontend web\n mode http\n bind :443 ssl strict-sni\n";
    assert!(common::plan(text).proxies[0].binds[0].quic.is_none());
}

#[test]
fn bind_parameters_set_the_listener() {
    let default = QuicBind { congestion: Congestion::Cubic, max_window: 480 << 10, force_retry: false };
    let with = |congestion, max_window| QuicBind { congestion, max_window, force_retry: false };
    let cases = [
        ("", "", default.clone()),
        ("", "quic-cc-algo cubic", default.clone()),
        ("", "quic-cc-algo cubic()", default.clone()),
        ("", "quic-cc-algo newreno(10k)", with(Congestion::NewReno, 10 << 10)),
        ("", "quic-cc-algo bbr(4g)", with(Congestion::Bbr, 4 << 30)),
        (" expose-experimental-directives", "quic-cc-algo nocc(1m)", with(Congestion::None, 1 << 20)),
        (" tune.quic.fe.cc.max-win-size 1m", "", with(Congestion::Cubic, 1 << 20)),
        (" tune.quic.fe.cc.max-win-size 1m", "quic-cc-algo cubic(20k)", with(Congestion::Cubic, 20 << 10)),
        ("", "quic-force-retry", QuicBind { force_retry: true, ..default.clone() }),
        ("", "proto quic", default.clone()),
        ("", "quic-socket listener", default),
    ];
    for (global, parameters, wanted) in cases {
        let text = with_bind(global, &format!("quic4@:443 {parameters}"));
        assert_eq!(*quic(&plan(&text)), wanted, "{parameters}");
    }
}

#[test]
fn wrong_bind_parameters_are_refused() {
    let cases: &[(&str, &str)] = &[
        ("quic4@:443 quic-cc-algo cubik", "unknown congestion control algorithm `cubik`"),
        ("quic4@:443 quic-cc-algo cubic(", "have no closing parenthesis"),
        ("quic4@:443 quic-cc-algo cubic(1m,2)", "has only one parameter"),
        ("quic4@:443 quic-cc-algo cubic(,)", "has only one parameter"),
        ("quic4@:443 quic-cc-algo cubic(9k)", "must be between 10k and 4g, not `9k`"),
        ("quic4@:443 quic-cc-algo cubic(5g)", "must be between 10k and 4g, not `5g`"),
        ("quic4@:443 quic-cc-algo cubic(1x)", "must be between 10k and 4g, not `1x`"),
        ("quic4@:443 quic-cc-algo nocc", "'quic-cc-algo nocc' is experimental"),
        ("quic4@:443 quic-socket both", "unknown argument `both` for `quic-socket`"),
        ("quic4@:443 accept-proxy", "`accept-proxy` is not possible on a QUIC listener"),
        ("quic4@:443 proto h2", "has no other protocol than `quic`"),
        ("quic4@:443,:443", "cannot mix QUIC and other addresses"),
        (":443 proto quic", "`proto quic` requires a QUIC address"),
        ("quic+unix@/tmp/x", "QUIC needs an IP address"),
    ];
    for (line, wanted) in cases {
        let told = told(&with_bind("", line));
        assert!(matches!(&*told, [one] if one.contains(wanted)), "{line}: {told:?}");
    }
    let in_tcp = told("frontend web\n mode tcp\n bind quic4@:443 ssl strict-sni\n");
    assert_eq!(in_tcp, ["3:7 QUIC requires a frontend in HTTP mode"]);
    let of_commands = told("global\n stats socket quic4@127.0.0.1:443\n");
    assert_eq!(of_commands, ["2:15 QUIC is only supported on `bind` lines of HTTP frontends"]);
}

#[test]
fn unusual_bind_lines_cause_warnings() {
    let cases: &[(&str, &str, &str)] = &[
        ("", "quic4@:443 alpn h3,h2", "`alpn`: QUIC clients cannot use `h2`"),
        ("", "quic4@:443 quic-socket connection", "`quic-socket` has no effect"),
        ("", ":443 quic-force-retry", "this socket is not for QUIC"),
    ];
    for (global, line, wanted) in cases {
        let told = told(&with_bind(global, line));
        assert!(matches!(&*told, [one] if one.contains(wanted)), "{line}: {told:?}");
    }
    for line in ["quic4@:443 alpn h3,hq-interop", "quic4@:443 no-alpn", "quic4@:443 quic-cc-algo bbr"] {
        assert_eq!(told(&with_bind("", line)), [""; 0], "{line}");
    }
}

#[test]
fn quic_always_uses_tls_1_3() {
    let text = "frontend web\n mode http\n bind quic4@:443 strict-sni\n";
    assert_eq!(told(text), ["3:7 QUIC always uses TLS"]);
    let plan = plan(text);
    assert!(plan.proxies[0].binds[0].tls.is_some());
    // Settings for older versions are for other listeners.
    let global = " ssl-default-bind-options ssl-max-ver TLSv1.2\n ssl-default-bind-ciphers AES128-SHA";
    assert_eq!(told(&with_bind(global, "quic4@:443")), [""; 0]);
}

#[test]
fn global_settings_have_defaults_and_can_be_set() {
    type GlobalCase = (&'static str, fn(&Global) -> bool);
    let cases: &[GlobalCase] = &[
        ("", |g| g.tune.quic == QuicTune::default() && g.cluster_secret.is_none()),
        ("cluster-secret abc", |g| g.cluster_secret.as_deref() == Some("abc")),
        ("harden.reject-privileged-ports.quic off", |g| !g.tune.quic.reject_privileged_ports),
        ("tune.quic.listen off", |g| !g.tune.quic.listen),
        ("tune.quic.mem.tx-max 1g", |g| g.tune.quic.tx_memory == 1 << 30),
        ("tune.quic.zero-copy-fwd-send off", |g| !g.tune.quic.zero_copy),
        ("tune.quic.fe.cc.cubic-min-losses 3", |g| g.tune.quic.front.cubic_min_losses == 3),
        ("tune.quic.fe.cc.hystart on", |g| g.tune.quic.front.hystart),
        ("tune.quic.fe.cc.max-win-size 4g", |g| g.tune.quic.front.max_window == 4 << 30),
        ("tune.quic.fe.max-idle-timeout 5s", |g| {
            g.tune.quic.front.max_idle_timeout == Duration::from_secs(5)
        }),
        ("tune.quic.fe.max-idle-timeout 100", |g| {
            g.tune.quic.front.max_idle_timeout == Duration::from_millis(100)
        }),
        ("tune.quic.fe.sec.glitches-threshold 9", |g| g.tune.quic.front.glitches == 9),
        ("tune.quic.fe.sec.retry-threshold 0", |g| g.tune.quic.retry_threshold == 0),
        ("tune.quic.fe.stream.data-ratio 50", |g| g.tune.quic.front.data_ratio == 50),
        ("tune.quic.fe.stream.max-concurrent 7", |g| g.tune.quic.front.max_streams == 7),
        ("tune.quic.fe.stream.max-total 8", |g| g.tune.quic.max_total_streams == 8),
        ("tune.quic.fe.stream.rxbuf 64k", |g| g.tune.quic.front.rxbuf == 64 << 10),
        ("tune.quic.fe.tx.udp-gso off", |g| !g.tune.quic.front.segmentation),
        ("tune.quic.fe.tx.pacing off", |g| !g.tune.quic.front.pacing && g.tune.quic.back.pacing),
        ("tune.quic.be.cc.cubic-min-losses 3", |g| g.tune.quic.back.cubic_min_losses == 3),
        ("tune.quic.be.cc.hystart on", |g| g.tune.quic.back.hystart && !g.tune.quic.front.hystart),
        ("tune.quic.be.cc.max-win-size 4g", |g| g.tune.quic.back.max_window == 4 << 30),
        ("tune.quic.be.max-idle-timeout 5s", |g| g.tune.quic.back.max_idle_timeout == Duration::from_secs(5)),
        ("tune.quic.be.sec.glitches-threshold 9", |g| g.tune.quic.back.glitches == 9),
        ("tune.quic.be.stream.data-ratio 50", |g| g.tune.quic.back.data_ratio == 50),
        ("tune.quic.be.stream.max-concurrent 7", |g| g.tune.quic.back.max_streams == 7),
        ("tune.quic.be.stream.rxbuf 64k", |g| g.tune.quic.back.rxbuf == 64 << 10),
        ("tune.quic.be.tx.udp-gso off", |g| !g.tune.quic.back.segmentation),
        ("tune.quic.be.tx.pacing off", |g| !g.tune.quic.back.pacing),
        ("tune.sndbuf.frontend 1m", |g| g.tune.sndbuf_frontend == 1 << 20),
        ("tune.rcvbuf.frontend 1m", |g| g.tune.rcvbuf_frontend == 1 << 20),
    ];
    for (text, holds) in cases {
        assert!(holds(&plan(&format!("global\n {text}\n")).global), "{text}");
    }
}

#[test]
fn windows_are_shares_of_the_receive_buffer() {
    let front = QuicSide::default();
    assert_eq!(front.connection_window(16_384), 1_638_400);
    assert_eq!(front.stream_window(16_384), 90 * 16_384);
    let small = QuicSide { rxbuf: 20_000, data_ratio: 1, ..front };
    assert_eq!((small.connection_window(16_384), small.stream_window(16_384)), (20_000, 16_384));
}

#[test]
fn global_settings_out_of_range_are_refused() {
    let cases = [
        ("tune.quic.fe.cc.cubic-min-losses 0", "out of range"),
        ("tune.quic.fe.cc.max-win-size 9k", "must be between 10k and 4g"),
        ("tune.quic.fe.cc.max-win-size 5g", "must be between 10k and 4g"),
        ("tune.quic.fe.stream.data-ratio 0", "out of range"),
        ("tune.quic.fe.stream.data-ratio 101", "out of range"),
        ("tune.quic.fe.stream.max-concurrent 0", "out of range"),
        ("tune.quic.fe.tx.udp-gso maybe", "must be `on` or `off`"),
        ("tune.quic.listen", "expects 'on' or 'off'"),
        ("cluster-secret", "expects a secret"),
        ("cluster-secret a b", "unexpected argument `b`"),
        ("tune.quic.frontend.max-idle-timeout 3s", "unknown keyword"),
        ("no-quic", "unknown keyword"),
    ];
    for (text, wanted) in cases {
        let told = told(&format!("global\n {text}\n"));
        assert!(matches!(&*told, [one] if one.contains(wanted)), "{text}: {told:?}");
    }
}

#[test]
fn settings_without_effect_cause_warnings() {
    let cases = [
        ("tune.quic.be.cc.max-frame-loss 5", "'tune.quic.be.cc.max-frame-loss' has no effect"),
        ("tune.quic.be.cc.reorder-ratio 0", "'tune.quic.be.cc.reorder-ratio' has no effect"),
        ("limited-quic", "'limited-quic' has no effect"),
        ("tune.quic.fe.sock-per-conn force-off", "'tune.quic.fe.sock-per-conn' has no effect"),
        ("tune.quic.fe.cc.max-frame-loss 5", "'tune.quic.fe.cc.max-frame-loss' has no effect"),
        ("tune.quic.fe.cc.reorder-ratio 0", "'tune.quic.fe.cc.reorder-ratio' has no effect"),
    ];
    for (text, wanted) in cases {
        let loaded = load_quietly(&format!("global\n {text}\n"));
        assert!(loaded.plan.is_some(), "{text}");
        let told = lines(&loaded);
        assert!(matches!(&*told, [one] if one.contains(wanted)), "{text}: {told:?}");
    }
}

fn with_server(global: &str, mode: &str, line: &str) -> String {
    format!("global\n{global}\nbackend b\n mode {mode}\n server s {line}\n")
}

#[test]
fn server_parameters_set_the_connection() {
    let with = |congestion, max_window| QuicServer { congestion, max_window };
    let cases = [
        ("", "quic4@127.0.0.1:443", with(Congestion::Cubic, 480 << 10)),
        ("", "quic6@::1:443", with(Congestion::Cubic, 480 << 10)),
        ("", "quic+127.0.0.1:443 proto quic", with(Congestion::Cubic, 480 << 10)),
        ("", "quic+ipv4@127.0.0.1:443 quic-cc-algo newreno(10k)", with(Congestion::NewReno, 10 << 10)),
        (" tune.quic.be.cc.max-win-size 1m", "quic4@127.0.0.1:443", with(Congestion::Cubic, 1 << 20)),
        (
            " expose-experimental-directives",
            "quic4@127.0.0.1:443 quic-cc-algo nocc",
            with(Congestion::None, 480 << 10),
        ),
    ];
    for (global, line, expected) in cases {
        let plan = plan(&with_server(global, "http", &format!("{line} ssl verify none")));
        let server = plan.proxies[0].servers.get(0).expect("a server");
        assert_eq!(server.quic.as_ref(), Some(&expected), "{line}");
        assert!(server.speaks_tls().is_some(), "{line}");
    }
    let plan = plan("backend b\n mode http\n server s 127.0.0.1:443\n");
    assert_eq!(plan.proxies[0].servers.get(0).expect("a server").quic, None);
}

#[test]
fn unsuitable_server_lines_are_refused() {
    let cases = [
        ("http", "quic4@127.0.0.1:443 verify none", "QUIC always uses TLS"),
        ("tcp", "quic4@127.0.0.1:443 ssl verify none", "QUIC requires a backend in HTTP mode"),
        ("http", "quic4@127.0.0.1:443 ssl verify none proto h2", "no other protocol than `quic`"),
        ("http", "quic4@127.0.0.1:443 ssl verify none send-proxy", "`send-proxy` is not possible"),
        ("http", "quic4@127.0.0.1:443 ssl verify none socks4 127.0.0.1:1", "`socks4` is not possible"),
        ("http", "quic4@127.0.0.1:443 ssl verify none check no-check-ssl", "`no-check-ssl` is not possible"),
        ("http", "quic4@127.0.0.1:443 ssl verify none check check-send-proxy", "`check-send-proxy` is not"),
        ("http", "quic4@127.0.0.1:443 ssl verify none alpn h2", "QUIC servers cannot use `h2`"),
        ("http", "quic4@127.0.0.1:443 ssl verify none quic-cc-algo nocc", "is experimental"),
        ("http", "127.0.0.1:443 proto quic", "`proto quic` requires a QUIC address"),
        ("http", "127.0.0.1:443 quic-cc-algo cubic", "`quic-cc-algo` has no effect"),
        ("http", "127.0.0.1:443 check check-proto quic", "`check-proto quic` requires a QUIC address"),
        ("http", "quic+fd@4 ssl verify none", "QUIC needs an IP address"),
    ];
    for (mode, line, wanted) in cases {
        let told = told(&with_server("", mode, line));
        assert!(told.iter().any(|one| one.contains(wanted)), "{line}: {told:?}");
    }
    let told = told("peers p\n server a quic4@127.0.0.1:443\n");
    assert!(told.iter().any(|one| one.contains("only supported for servers of HTTP backends")), "{told:?}");
}

#[test]
fn initial_rules_are_inherited_and_checked() {
    let text = "defaults quic\n mode http\n timeout client 5s\n quic-initial dgram-drop if { src 10.0.0.0/8 }\n\
        frontend web from quic\n bind quic4@:443 ssl strict-sni\n quic-initial send-retry unless { src 127.0.0.1 }\n\
        quic-initial do-log\n quic-initial reject if { dst_port 8443 }\n quic-initial accept\n";
    assert_eq!(plan(text).proxies[0].quic_initial.len(), 5);
    let cases = [
        ("quic-initial", "`quic-initial` expects an action"),
        ("quic-initial deny", "action `deny` is not allowed in `quic-initial`"),
        ("quic-initial dgram-drop rst-ttl 3", "unexpected `rst-ttl`"),
        ("quic-initial silent-drop", "action `silent-drop` is not allowed in `quic-initial`"),
        (
            "tcp-request connection send-retry",
            "action `send-retry` is not allowed in `tcp-request connection`",
        ),
    ];
    for (line, wanted) in cases {
        let told = told(&format!("frontend web\n mode http\n bind :80\n {line}\n"));
        assert!(matches!(&*told, [one] if one.contains(wanted)), "{line}: {told:?}");
    }
}

#[test]
fn alt_svc_announces_the_first_quic_port() {
    let port = |binds: &str, option: &str| {
        let plan = plan(&format!("frontend web\n mode http\n {binds}\n {option}\n"));
        let rules = format!("{:?}", plan.proxies[0].http_after_response);
        // The value of the field is printed as numbers.
        let bytes = |port: &u16| format!("{:?}", format!(":{port}").as_bytes());
        [8443, 9443].into_iter().find(|port| rules.contains(bytes(port).trim_matches(['[', ']'])))
    };
    let both = "bind :443 ssl strict-sni\n bind quic4@:8443 ssl strict-sni\n bind quic6@:9443 ssl strict-sni";
    assert_eq!(port(both, "option alt-svc"), Some(8443));
    assert_eq!(port(both, ""), None);
    assert_eq!(port(both, "option alt-svc\n no option alt-svc"), None);
    assert_eq!(port("bind :443 ssl strict-sni", "option alt-svc"), None);
}
