//! Fetches and conditions on the first bytes of TCP streams.

use std::io::Write;
use std::net::TcpStream;

use weir_tests::logs::Collector;
use weir_tests::{Weir, free_port};

/// A TLS ClientHello in hexadecimal.
const CLIENT_HELLO: &str = "1603010200010001fc0303354ba559174e90600e330bd9627ed22d580af728c2856c0c2a396d0ebcf0f8de207b3ae077855559479d41073036558a3bcd69606148a9d05e814fa9292b9b070d0024130213031301c02cc030c02bc02fcca9cca8c024c028c023c027009f009e006b006700ff0100018f00000014001200000f7777772e6578616d706c652e636f6d000b000403000102000a00160014001d0017001e0019001801000101010201030104002300000010000e000c02683208687474702f312e310016000000170000000d002a0028040305030603080708080809080a080b080408050806040105010601030303010302040205020602002b00050403040303002d00020101003300260024001d00200d656380f3aa44506b818a141cfff06702c00db24c35ff895d70ebfb6282087d001500cc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000";

/// Fetches and their values.
#[rustfmt::skip]
const SEEN_IN_CLIENT_HELLO: &[(&str, &str)] = &[
    ("req.len", "517"),
    ("req_len", "517"),
    ("req.ssl_hello_type", "1"),
    ("req_ssl_hello_type", "1"),
    ("req.ssl_ver", "196611"),
    ("req_ssl_ver", "196611"),
    ("req.ssl_sni", "www.example.com"),
    ("req_ssl_sni", "www.example.com"),
    ("req.ssl_alpn", "h2"),
    ("req.ssl_ec_ext", "1"),
    ("req.ssl_st_ext", "1"),
    ("req.ssl_cipherlist,hex", "130213031301C02CC030C02BC02FCCA9CCA8C024C028C023C027009F009E006B006700FF"),
    ("req.ssl_keyshare_groups,hex", "001D"),
    ("req.ssl_sigalgs,hex", "040305030603080708080809080A080B080408050806040105010601030303010302040205020602"),
    ("req.ssl_supported_groups,hex", "001D0017001E0019001801000101010201030104"),
    ("req.payload(0,3),hex", "160301"),
    ("req.payload_lv(3,2),length", "1"),
    ("payload_lv(3,2),length", "1"),
];

/// Conditions that are true for it.
#[rustfmt::skip]
const CONDITIONS_OF_CLIENT_HELLO: &[&str] = &[
    "req_ssl_ver 3.0:3.4",
    "req.ssl_ver 3.0:3.4",
    "req_ssl_sni www.example.com",
    "payload_lv(3,2) -m found",
];

/// The first packet of a remote desktop client.
const RDP: &[u8] =
    b"\x03\x00\x00*%\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\x0d\x0a\x01\x00\x08\x00\x03\x00\x00\x00";

/// Fetches and their values.
#[rustfmt::skip]
const SEEN_IN_RDP: &[(&str, &str)] = &[
    ("req.rdp_cookie(mstshash)", "user"),
    ("rdp_cookie(mstshash)", "user"),
    ("rdp_cookie_cnt(mstshash)", "1"),
];

/// Conditions that are true for it.
#[rustfmt::skip]
const CONDITIONS_OF_RDP: &[&str] = &[
    "req_rdp_cookie(mstshash) user",
    "req_rdp_cookie_cnt(mstshash) 1",
];

/// The beginning of a distcc client's request.
const DISTCC: &[u8] = b"DIST00000001ARGC00000002ARGV00000002ccARGV00000002-cDOTI00000005hello";

/// Fetches and their values.
#[rustfmt::skip]
const SEEN_IN_DISTCC: &[(&str, &str)] = &[
    ("distcc_param(ARGC)", "2"),
    ("distcc_body(DOTI)", "hello"),
];

/// Returns the log line of a TCP frontend for a client that sends only `data`.
fn logged(data: &[u8], seen: &[(&str, &str)], conditions: &[&str]) -> String {
    let collector = Collector::new();
    let (port, all) = (free_port(), format!("{{ req.len ge {} }}", data.len()));
    let (mut rules, mut fields) = (String::new(), Vec::new());
    for (row, (expression, _)) in seen.iter().enumerate() {
        rules.push_str(&format!("  tcp-request content set-var(sess.v{row}) {expression} if {all}\n"));
        fields.push(format!("%[var(sess.v{row})]"));
    }
    for (row, condition) in conditions.iter().enumerate() {
        rules.push_str(&format!(
            "  tcp-request content set-var(sess.a{row}) int(1) if {all} {{ {condition} }}\n"
        ));
        fields.push(format!("%[var(sess.a{row})]"));
    }
    let _weir = Weir::start(
        &format!(
            "global\n  log 127.0.0.1:{} format raw local0\ndefaults\n  mode tcp\n  timeout client 20s\n  log global\n\
             frontend f\n  bind 127.0.0.1:{port}\n  tcp-request inspect-delay 20s\n{rules}  \
             tcp-request content reject if {all}\n  log-format \"seen={}\"\n",
            collector.port(),
            fields.join("|")
        ),
        &[port],
    );
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the frontend listens");
    client.write_all(data).expect("it reads");
    loop {
        let line = collector.next();
        // The connection that checked whether the port is open is logged too.
        if let Some(line) = line.trim_end().strip_prefix("seen=")
            && !line.starts_with('-')
        {
            return line.to_owned();
        }
    }
}

fn compare(data: &[u8], seen: &[(&str, &str)], conditions: &[&str]) {
    let values = seen.iter().map(|(_, value)| *value).chain(conditions.iter().map(|_| "1"));
    let expected: Vec<&str> = values.collect();
    assert_eq!(logged(data, seen, conditions).split('|').collect::<Vec<_>>(), expected);
}

#[test]
fn client_hello_is_parsed_without_terminating_tls() {
    let byte = |at: usize| u8::from_str_radix(&CLIENT_HELLO[at..at + 2], 16).expect("hexadecimal digits");
    let hello: Vec<u8> = (0..CLIENT_HELLO.len()).step_by(2).map(byte).collect();
    compare(&hello, SEEN_IN_CLIENT_HELLO, CONDITIONS_OF_CLIENT_HELLO);
}

#[test]
fn rdp_cookie_is_parsed() {
    compare(RDP, SEEN_IN_RDP, CONDITIONS_OF_RDP);
}

#[test]
fn distcc_parameters_and_bodies_are_parsed() {
    compare(DISTCC, SEEN_IN_DISTCC, &[]);
}
