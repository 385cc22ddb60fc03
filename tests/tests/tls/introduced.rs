//! TLS information about the client in PROXY headers (proxy-protocol.txt, 2.2.6), received by the same program.

use std::process::Command;

use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, free_port};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

fn curl(port: u16, more: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "20", "--tls13-ciphers", "TLS_AES_128_GCM_SHA256"])
        .args(["--resolve", &format!("one.test:{port}:127.0.0.1")])
        .args(more)
        .arg(format!("https://one.test:{port}/"))
        .output()
        .expect("curl runs: `make tools` installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a type-length-value in hexadecimal digits.
fn tlv(kind: u8, value: &str) -> String {
    let digits: String = value.bytes().map(|byte| format!("{byte:02X}")).collect();
    format!("{kind:02X}{:04X}{digits}", value.len())
}

/// Server options, and which of the values in the TLS TLV are sent in addition to the version: common name, key type, signature,
/// cipher.
const TOLD: &[(&str, [bool; 4])] = &[
    ("send-proxy-v2-ssl", [false; 4]),
    ("send-proxy-v2-ssl-cn", [true, false, false, false]),
    ("send-proxy-v2 proxy-v2-options ssl", [false; 4]),
    ("send-proxy-v2 proxy-v2-options cert-cn", [true, false, false, false]),
    ("send-proxy-v2 proxy-v2-options cert-key", [false, true, false, false]),
    ("send-proxy-v2 proxy-v2-options cert-sig", [false, false, true, false]),
    ("send-proxy-v2 proxy-v2-options ssl-cipher", [false, false, false, true]),
    ("send-proxy-v2-ssl proxy-v2-options crc32c,cert-cn,cert-key,cert-sig,ssl-cipher", [true; 4]),
];

#[test]
fn proxy_header_has_the_configured_tls_values() {
    let authority = Authority::new();
    let (certificate, own) =
        (shown(&authority.issue_rsa(&["one.test"])), shown(&authority.issue(&["me.test"])));
    let late = shown(&authority.issue_expired(&["late.test"]));
    let inner = free_port();
    let mut text = format!(
        "{DEFAULTS}frontend inner\n bind 127.0.0.1:{inner} accept-proxy\n http-request return status 200 \
         content-type text/plain lf-string \"%[fc_pp_tlv(SSL),hex] %[fc_pp_tlv(ALPN)] %[fc_pp_authority] %[fc_pp_unique_id]\"\n"
    );
    let mut ports = Vec::new();
    for (number, (words, _)) in TOLD.iter().enumerate() {
        let port = free_port();
        text += &format!(
            "listen l{number}\n bind 127.0.0.1:{port} ssl crt {certificate} verify optional ca-file {} crt-ignore-err all alpn http/1.1\n \
             server s 127.0.0.1:{inner} {words}\n",
            shown(&authority.own())
        );
        ports.push(port);
    }
    let weir = Weir::start(&text, &[&ports[..], &[inner]].concat());
    for (port, (words, told)) in ports.iter().zip(TOLD) {
        for (name, arguments, flags, verify) in [
            ("", &[][..], 1, 0),
            ("me.test", &["--cert", &own][..], 7, 0),
            ("late.test", &["--cert", &late][..], 7, 10),
        ] {
            let mut expected = format!("{flags:02X}{verify:08X}") + &tlv(0x21, "TLSv1.3");
            let values = [
                (0x22, name),
                (0x25, "RSA2048"),
                (0x24, "ecdsa-with-SHA256"),
                (0x23, "TLS_AES_128_GCM_SHA256"),
            ];
            for (is_told, (kind, value)) in told.iter().zip(values) {
                if *is_told && !value.is_empty() {
                    expected += &tlv(kind, value);
                }
            }
            // The ALPN protocol is always sent.
            assert_eq!(
                curl(*port, arguments),
                format!("{expected} http/1.1  "),
                "{words} {name} {}",
                weir.messages()
            );
        }
    }
}

#[test]
fn options_can_be_negated_and_authority_is_the_sni() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    for (words, accepts, expected) in [
        ("send-proxy-v2-ssl no-send-proxy-v2-ssl", "", "  "),
        ("send-proxy-v2-ssl-cn no-send-proxy-v2-ssl-cn", "", "  "),
        ("send-proxy-v2 proxy-v2-options authority,unique-id", "accept-proxy", " one.test the-id"),
    ] {
        let (port, inner) = (free_port(), free_port());
        let text = format!(
            "{DEFAULTS} unique-id-format the-id\nlisten outer\n bind 127.0.0.1:{port} ssl crt {certificate}\n server s 127.0.0.1:{inner} {words}\n\
             frontend inner\n bind 127.0.0.1:{inner} {accepts}\n http-request return status 200 content-type text/plain lf-string \
             \"%[fc_pp_tlv(0x20),hex] %[fc_pp_authority] %[fc_pp_unique_id]\"\n"
        );
        let _weir = Weir::start(&text, &[port, inner]);
        assert_eq!(curl(port, &[]), expected, "{words}");
    }
}
