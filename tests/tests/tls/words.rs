//! Settings of `bind` and `server` lines and of the global section for TLS versions, cipher suites, groups, signatures and tickets,
//! tested end to end.

use std::process::Command;

use weir_tests::client::exchange;
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, check, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// Responds with information about the connection.
const TELLS: &str = " http-request return status 200 content-type text/plain lf-string \
                     \"%[ssl_fc_protocol] %[ssl_fc_cipher] %[ssl_fc_curve] %[ssl_fc_alg_keysize] %[ssl_fc_use_keysize]\"\n";

/// Returns curl's response from a port; `None` if the handshake failed.
fn curl(port: u16, more: &[&str]) -> Option<String> {
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "20", "--resolve", &format!("one.test:{port}:127.0.0.1")])
        .args(more)
        .arg(format!("https://one.test:{port}/"))
        .output()
        .expect("curl runs: `make tools` installs it");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

const OLD: &[&str] = &["--tls-max", "1.2"];

/// Options of a bind line, arguments of curl, and the beginning of the response; `None` for no response.
#[rustfmt::skip]
const BIND: &[(&str, &[&str], Option<&str>)] = &[
    ("no-sslv3 no-tlsv10 no-tlsv11",               &[], Some("TLSv1.3")),
    ("force-tlsv12",                               &[], Some("TLSv1.2")),
    ("no-tlsv13",                                  &[], Some("TLSv1.2")),
    ("ssl-max-ver TLSv1.2",                        &[], Some("TLSv1.2")),
    ("force-tlsv13",                               OLD, None),
    ("no-tlsv12",                                  OLD, None),
    ("ssl-min-ver TLSv1.3",                        OLD, None),
    ("ciphersuites TLS_CHACHA20_POLY1305_SHA256",  &[], Some("TLSv1.3 TLS_CHACHA20_POLY1305_SHA256")),
    ("ciphers ECDHE-ECDSA-CHACHA20-POLY1305",      OLD, Some("TLSv1.2 ECDHE-ECDSA-CHACHA20-POLY1305")),
    ("curves P-384",                               &[], Some("TLSv1.3 TLS_AES_256_GCM_SHA384 secp384r1 256 256")),
    ("ecdhe P-256",                                &[], Some("TLSv1.3 TLS_AES_256_GCM_SHA384 prime256v1")),
    ("sigalgs ECDSA+SHA256 client-sigalgs RSA+SHA256", &[], Some("TLSv1.3")),
    ("prefer-client-ciphers", &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"],
        Some("TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256")),
    ("strict-sni no-strict-sni no-alpn",           &[], Some("TLSv1.3")),
    ("no-tls-tickets",                             &[], Some("TLSv1.3")),
    ("tls-tickets",                                &[], Some("TLSv1.3")),
];

#[test]
fn bind_line_selects_tls_parameters_of_clients() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    for (words, more, expected) in BIND {
        let port = free_port();
        let text =
            format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} {words}\n{TELLS}");
        let _weir = Weir::start(&text, &[port]);
        let got = curl(port, more);
        match expected {
            None => assert_eq!(got, None, "{words}"),
            Some(begin) => {
                assert!(got.as_ref().is_some_and(|got| got.starts_with(begin)), "{words}: {got:?}")
            }
        }
    }
}

/// Options of a server line, and its server's response; `None` if the connection fails.
#[rustfmt::skip]
const SERVER: &[(&str, Option<&str>)] = &[
    ("no-sslv3 no-tlsv10 no-tlsv11 sni-auto ssl-reuse", Some("TLSv1.3")),
    ("force-tlsv12",                Some("TLSv1.2")),
    ("no-tlsv13",                                  Some("TLSv1.2")),
    ("ssl-max-ver TLSv1.2 ciphers ECDHE-ECDSA-AES128-GCM-SHA256", Some("TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256")),
    ("force-tlsv13 no-tlsv12",                     Some("TLSv1.3")),
    ("ciphersuites TLS_AES_128_GCM_SHA256",        Some("TLSv1.3 TLS_AES_128_GCM_SHA256")),
    ("curves P-384",                               Some("TLSv1.3 TLS_AES_256_GCM_SHA384 secp384r1")),
    ("sigalgs ECDSA+SHA256 client-sigalgs ECDSA+SHA256 alpn http/1.1", Some("TLSv1.3")),
    // Signature algorithms of the server, and of Weir.
    ("sigalgs RSA-PSS+SHA256",                     None),
    ("sigalgs ECDSA+SHA256 client-sigalgs RSA-PSS+SHA256", Some("TLSv1.3")),
];

#[test]
fn server_line_selects_tls_parameters() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    for (words, expected) in SERVER {
        let (port, inner) = (free_port(), free_port());
        let text = format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
             backend be\n retries 0\n server s 127.0.0.1:{inner} ssl verify none sni str(one.test) {words}\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {certificate}\n{TELLS}"
        );
        let _weir = Weir::start(&text, &[port, inner]);
        let got = exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
        match expected {
            None => assert_eq!(got.status, 503, "{words}"),
            Some(begin) => assert!(got.text().starts_with(begin), "{words}: {}", got.text()),
        }
    }
}

#[test]
fn global_settings_are_the_defaults_of_lines() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    let directory = certificate.parent().expect("it lies in a directory");
    let name = certificate.file_name().expect("it is a file").to_string_lossy().into_owned();
    let directory = shown(directory);
    let (port, inner, old) = (free_port(), free_port(), free_port());
    let text = format!(
        "global\n ca-base {directory}\n crt-base {directory}\n tune.ssl.cachesize 100\n tune.ssl.lifetime 10s\n \
         tune.ssl.maxrecord 1400\n ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets\n \
         ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256\n ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\n \
         ssl-default-bind-curves P-384\n ssl-default-bind-sigalgs ECDSA+SHA256\n ssl-default-bind-client-sigalgs ECDSA+SHA256\n \
         ssl-default-server-options ssl-max-ver TLSv1.2\n ssl-default-server-ciphers ECDHE-ECDSA-AES128-GCM-SHA256\n \
         ssl-default-server-ciphersuites TLS_AES_128_GCM_SHA256\n ssl-default-server-curves P-384\n \
         ssl-default-server-sigalgs ECDSA+SHA256\n ssl-default-server-client-sigalgs ECDSA+SHA256\n\
         {DEFAULTS}frontend outer\n bind 127.0.0.1:{port}\n default_backend be\n\
         backend be\n server s 127.0.0.1:{inner} ssl ca-file ca.pem sni str(one.test)\n\
         frontend inner\n bind 127.0.0.1:{inner} ssl crt {name}\n bind 127.0.0.1:{old} ssl crt {name} force-tlsv12\n{TELLS}"
    );
    let _weir = Weir::start(&text, &[port, inner, old]);
    assert_eq!(curl(inner, &[]), Some("TLSv1.3 TLS_AES_128_GCM_SHA256 secp384r1 128 128".into()));
    assert_eq!(curl(old, &[]), Some("TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256 secp384r1 128 128".into()));
    let got = exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
    assert_eq!(got.text(), "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256 secp384r1 128 128");
}

#[test]
fn ticket_keys_are_read_from_the_file() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("tickets");
    let keys = directory.join("keys");
    let session = shown(&directory.join("session"));
    let output = |number: u8| {
        Command::new("openssl").args(["rand", "-base64", "80"]).output().map(|output| (number, output))
    };
    let lines: Vec<String> = (0..3)
        .map(|number| output(number).expect("openssl runs").1.stdout)
        .map(|bytes| String::from_utf8_lossy(&bytes).split_whitespace().collect())
        .collect();
    std::fs::write(&keys, lines.join("\n") + "\n").expect("the directory takes files");
    let line = format!("ssl crt {certificate} tls-ticket-keys {}", shown(&keys));
    let start = |port: u16| {
        let text = format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} {line}\n");
        Weir::start(&text, &[port])
    };
    let talk = |port: u16, arguments: &[&str]| {
        let target = format!("127.0.0.1:{port}");
        let words = ["s_client", "-tls1_2", "-connect", &target];
        let output = Command::new("openssl")
            .args(words)
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (first, second) = (free_port(), free_port());
    let _one = start(first);
    assert!(talk(first, &["-sess_out", &session]).contains("New, "));
    // Another process with the same keys accepts the ticket.
    let _two = start(second);
    assert!(talk(second, &["-sess_in", &session]).contains("Reused, "));
}

#[test]
fn default_certificate_serves_unknown_names() {
    let authority = Authority::new();
    let (one, two) = (shown(&authority.issue(&["one.test"])), shown(&authority.issue(&["two.test"])));
    let port = free_port();
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl default-crt {two} crt {one}\n \
         http-request return status 200 content-type text/plain lf-string \
         \"%[ssl_f_sha1,hex] %[ssl_f_der,sha1,hex] %[ssl_c_chain_der,length] %[ssl_c_ca_err_depth]\"\n"
    );
    let _weir = Weir::start(&text, &[port]);
    let named = curl(port, &[]).expect("an answer");
    let output = Command::new("curl").args(["-sk", &format!("https://127.0.0.1:{port}/")]).output();
    let unnamed = String::from_utf8_lossy(&output.expect("curl runs").stdout).into_owned();
    let parts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (named, unnamed) = (parts(&named), parts(&unnamed));
    assert_eq!(named[0], named[1]);
    assert_eq!(unnamed[0], unnamed[1]);
    assert_ne!(named[0], unnamed[0]);
}

#[test]
fn ca_verify_file_is_trusted_and_errors_can_be_ignored() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (certificate, own) = (shown(&authority.issue(&["one.test"])), shown(&other.issue(&["client.test"])));
    for (words, expected) in [
        (format!("ca-verify-file {}", shown(&other.own())), Some("1 0")),
        ("ca-ignore-err all crt-ignore-err all".to_owned(), Some("1 21")),
        (String::new(), None),
    ] {
        let port = free_port();
        let text = format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} verify required ca-file {} {words}\n \
             http-request return status 200 content-type text/plain lf-string \"%[ssl_c_used] %[ssl_c_verify]\"\n",
            shown(&authority.own())
        );
        let _weir = Weir::start(&text, &[port]);
        assert_eq!(curl(port, &["--cert", &own]).as_deref(), expected, "{words}");
    }
}

#[test]
fn unsupported_parameters_are_refused() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("tls-words");
    for words in ["force-sslv3", "ssl-max-ver SSLv3"] {
        for line in [
            format!("frontend fe\n bind 127.0.0.1:65000 ssl crt {certificate} {words}\n"),
            format!(
                "backend be\n server s 127.0.0.1:65000 ssl verify none check-ssl check-alpn http/1.1 {words}\n"
            ),
        ] {
            let file = directory.join("weir.cfg");
            std::fs::write(&file, format!("{DEFAULTS}{line}")).expect("the directory takes files");
            let verdict = check(&file, &directory);
            assert!(!verdict.accepted() && !verdict.alerts().is_empty(), "{line}");
        }
    }
}
