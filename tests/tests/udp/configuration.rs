//! Accepted and refused lines of `udp-lb` sections.

use weir_tests::{Scratch, check};

fn refusal(lines: &str) -> String {
    let scratch = Scratch::new("udp");
    let file = scratch.directory().join("weir.cfg");
    let text = format!("udp-lb u\n  dgram-bind 127.0.0.1:5300\n{lines}  server a 127.0.0.1:53\n");
    std::fs::write(&file, text).expect("a file");
    let verdict = check(&file, scratch.directory());
    assert!(!verdict.accepted(), "{lines}");
    verdict.alerts().join("\n")
}

#[test]
fn a_section_of_haproxy_enterprise_is_accepted() {
    let scratch = Scratch::new("udp");
    let file = scratch.directory().join("weir.cfg");
    let text = "global\n  log stdout format raw local0\n\
                defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
                udp-lb dns\n  dgram-bind 127.0.0.1:5300,[::1]:5300 name dns shards by-thread thread all maxconn 100 nice 5\n\
                \x20 balance leastconn\n  accepted-payload-size 4096\n  proxy-requests 1\n  proxy-responses 1\n  maxconn 1000\n  log global\n\
                \x20 acl internal src 10.0.0.0/8\n  use-server a if internal\n  option udp-check\n  default-server check inter 5s\n\
                \x20 server a 127.0.0.1:53\n  server b 127.0.0.2:53 weight 10 backup\n";
    std::fs::write(&file, text).expect("a file");
    let verdict = check(&file, scratch.directory());
    assert!(verdict.accepted(), "{:?}", verdict.alerts());
}

#[test]
fn what_has_no_meaning_for_datagrams_is_refused_with_a_way_out() {
    let mut silent = Vec::new();
    for (lines, wanted) in [
        ("  bind :80\n", "dgram-bind"),
        ("  mode tcp\n", "remove it"),
        ("  tcp-request connection reject\n", "udp-request"),
        ("  http-request deny\n", "udp-request"),
        ("  timeout tunnel 1h\n", "timeout session"),
        ("  stick on src\n", "balance source"),
        ("  option tcplog\n", "log-format"),
        ("  balance uri\n", "roundrobin"),
        ("  server b 127.0.0.1:53 ssl\n", "as they are"),
        ("  server b 127.0.0.1:53 send-proxy\n", "send-proxy-v2"),
        ("  server b unix@/tmp/x\n", "IP address"),
        ("  dgram-bind 127.0.0.1:5301 ssl\n", "takes: guid-prefix"),
        ("  udp-request set-var(txn.x) src\n", "scope sess"),
        ("  accepted-payload-size 65508\n", "65507"),
        ("  timeout session 0\n", "longer than 0"),
    ] {
        let said = refusal(lines);
        if !said.contains(wanted) {
            silent.push(format!("{lines}{said}"));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}
