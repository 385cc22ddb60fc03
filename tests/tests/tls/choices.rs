//! Negotiation on both sides of TLS: the certificate for a client's offer, cipher suites, curves and signatures, and the scope of
//! global defaults.

use weir_tests::client::exchange;
use weir_tests::tls::{asked, handshake, shown};
use weir_tests::{Authority, Weir, eventually, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n retries 0\n";

/// Returns the value after a name in such output.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim)
}

/// Sends a plain-text GET to a frontend on `port`.
fn get(port: u16, path: &str) -> (u16, String) {
    let response = weir_tests::client::get(port, path).expect("a response");
    (response.status, response.header("x-told").unwrap_or_default().to_owned())
}

#[test]
fn usable_wildcard_precedes_exact_name_with_unusable_key() {
    let authority = Authority::new();
    let (ecdsa, rsa) = (authority.issue(&["a.one.test"]), authority.issue_rsa(&["*.one.test"]));
    let port = free_port();
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} crt {} strict-sni\n http-request return status 200\n",
        shown(&ecdsa),
        shown(&rsa)
    );
    let _weir = Weir::start(&text, &[port]);
    let name = ["-servername", "a.one.test"];
    for (arguments, kind) in [
        (&["-tls1_3"][..], "ECDSA"),
        (&["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"], "RSA-PSS"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], "RSA-PSS"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "ECDSA"),
    ] {
        let told = handshake(port, &[&name[..], arguments].concat());
        assert_eq!(value(&told, "Peer signature type:"), Some(kind), "{arguments:?} {told}");
    }
}

#[test]
fn line_without_tls13_serves_clients_with_older_suites() {
    let authority = Authority::new();
    let port = free_port();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let start = |global: &str| {
        let text = format!(
            "global\n {global}\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} ssl-max-ver TLSv1.2 \
             ssl-min-ver TLSv1.2\n http-request return status 200\n"
        );
        Weir::start(&text, &[port])
    };
    let weir = start("");
    for suite in ["AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"] {
        let told = handshake(port, &["-cipher", suite]);
        assert_eq!(value(&told, "Cipher    :"), Some(suite), "{told}");
    }
    drop(weir);
    // The line does not name these suites, so without OpenSSL they are ignored.
    let _weir = start("legacy-tls off");
    assert!(
        value(&handshake(port, &["-cipher", "AES128-GCM-SHA256"]), "Cipher    :")
            .is_none_or(|suite| suite == "0000")
    );
    let told = handshake(port, &["-cipher", "ECDHE-RSA-AES128-GCM-SHA256"]);
    assert_eq!(value(&told, "Cipher    :"), Some("ECDHE-RSA-AES128-GCM-SHA256"), "{told}");
}

#[test]
fn http_listeners_offer_both_versions_by_default() {
    let authority = Authority::new();
    let ports = [free_port(), free_port(), free_port()];
    let certificate = shown(&authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{} ssl crt {certificate}\n bind 127.0.0.1:{} ssl crt {certificate} no-alpn\n \
         http-request return status 200\n\
         frontend tcp\n mode tcp\n bind 127.0.0.1:{} ssl crt {certificate}\n",
        ports[0], ports[1], ports[2]
    );
    let _weir = Weir::start(&text, &ports);
    for (offered, agreed) in [("h2,http/1.1", "h2"), ("http/1.1,h2", "h2"), ("http/1.1", "http/1.1")] {
        let line = format!("ALPN protocol: {agreed}");
        let told = ports.map(|port| handshake(port, &["-alpn", offered]).contains(&line));
        assert_eq!(told, [true, false, false], "{offered}");
    }
}

#[test]
fn global_defaults_apply_to_later_lines() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), [free_port(), free_port(), free_port()]);
    let listener = |number: usize| {
        format!(
            "frontend l{number}\n bind 127.0.0.1:{} ssl crt {certificate}\n \
             http-request return status 200 hdr x-told \"%[ssl_fc_cipher] %[ssl_fc_curve]\"\n\
             backend b{number}\n server s 127.0.0.1:{} ssl verify none\n",
            inner[number], inner[number]
        )
    };
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n use_backend %[path,field(2,/)]\n{}\
         global\n ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\n ssl-default-server-curves P-384\n{}\
         global\n ssl-default-bind-ciphersuites TLS_CHACHA20_POLY1305_SHA256\n ssl-default-server-curves P-256\n{}",
        listener(0),
        listener(1),
        listener(2)
    );
    let _weir = Weir::start(&text, &[port]);
    let told = ["/b0", "/b1", "/b2"].map(|path| get(port, path).1);
    assert_eq!(
        told,
        [
            "TLS_AES_256_GCM_SHA384 X25519MLKEM768",
            "TLS_AES_128_GCM_SHA256 secp384r1",
            "TLS_CHACHA20_POLY1305_SHA256 prime256v1",
        ]
    );
}

#[test]
fn sigalgs_restrict_the_servers_signatures() {
    let authority = Authority::new();
    let (ecdsa, rsa) = (authority.issue(&["one.test"]), authority.issue_rsa(&["one.test"]));
    let client = shown(&authority.issue(&["client.test"]));
    let (port, inner) = (free_port(), free_port());
    let server =
        |words: &str| format!(" server s 127.0.0.1:{inner} ssl verify none sni str(one.test) {words}\n");
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n http-response set-header x-told \"%[ssl_s_key_alg] %[res.hdr(x-told)]\"\n \
         use_backend %[path,field(2,/)]\n\
         backend rsa\n{}backend ecdsa\n{}backend own\n{}backend other\n{}\
         frontend inner\n bind 127.0.0.1:{inner} ssl crt {} crt {} ca-file {} verify optional\n \
         http-request return status 200 hdr x-told %[ssl_c_used]\n",
        server("sigalgs RSA-PSS+SHA256"),
        server("sigalgs ECDSA+SHA256"),
        server(&format!("crt {client} client-sigalgs ECDSA+SHA256")),
        server(&format!("crt {client} client-sigalgs RSA-PSS+SHA256")),
        shown(&ecdsa),
        shown(&rsa),
        shown(&authority.own()),
    );
    let _weir = Weir::start(&text, &[port]);
    assert_eq!(get(port, "/rsa"), (200, "rsaEncryption 0".into()));
    assert_eq!(get(port, "/ecdsa"), (200, "id-ecPublicKey 0".into()));
    assert_eq!(get(port, "/own"), (200, "id-ecPublicKey 1".into()));
    // Its key has no permitted signature algorithm, so it sends no certificate.
    assert_eq!(get(port, "/other"), (200, "id-ecPublicKey 0".into()));
}

#[test]
fn tls12_client_keys_need_a_permitted_curve() {
    let authority = Authority::new();
    let (certificate, client) = (authority.issue(&["one.test"]), shown(&authority.issue(&["client.test"])));
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{DEFAULTS} log global\n error-log-format %[ssl_fc_err_str]\n\
         frontend fe\n bind 127.0.0.1:{port} ssl crt {} ca-file {} verify optional curves P-384\n http-request return status 200\n",
        shown(&certificate),
        shown(&authority.own()),
    );
    let weir = Weir::start(&text, &[port]);
    let with = |version: &str| handshake(port, &[version, "-cert", &client, "-key", &client]);
    with("-tls1_2");
    assert!(weir.says("error:0A00017A:SSL routines::wrong curve"), "{}", weir.messages());
    assert!(with("-tls1_3").contains("Verification"), "{}", weir.messages());
}

#[test]
fn show_info_counts_tls_connections_and_resumptions() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let text = format!(
        "global\n stats socket runtime level admin\n nbthread 1\n{DEFAULTS} option httpclose\nfrontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
         backend be\n server s 127.0.0.1:{inner} ssl verify none sni str(one.test)\n\
         frontend inner\n bind 127.0.0.1:{inner} ssl crt {certificate} no-tls-tickets ssl-max-ver TLSv1.2\n http-request return status 200\n"
    );
    let weir = Weir::start(&text, &[port]);
    for _ in 0..10 {
        assert_eq!(get(port, "/").0, 200);
    }
    let info = weir.ask("show info");
    let number = |name: &str| value(&info, name).and_then(|text| text.parse::<u64>().ok());
    assert_eq!(number("CumSslConns:"), Some(20), "{info}");
    // The first ClientHello has a session id without a session, for middleboxes (RFC 8446, D.4).
    assert_eq!((number("SslCacheLookups:"), number("SslCacheMisses:")), (Some(10), Some(1)), "{info}");
    assert_eq!(
        (number("SslFrontendMaxKeyRate:"), number("SslBackendMaxKeyRate:")),
        (Some(1), Some(1)),
        "{info}"
    );
    assert!(eventually(|| value(&weir.ask("show info"), "CurrSslConns:") == Some("0")));
}

#[test]
fn missing_chain_is_completed_from_the_issuers() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    let own = scratch("alone").file("alone.pem");
    let text = std::fs::read_to_string(&certificate).expect("readable");
    // The first certificate and the key.
    let blocks: Vec<&str> = text.split_inclusive("-----\n").collect();
    let wanted: String = {
        let mut seen = false;
        let mut keep = true;
        let mut out = String::new();
        for block in blocks {
            if block.starts_with("-----BEGIN CERTIFICATE") {
                keep = !std::mem::replace(&mut seen, true);
            } else if block.starts_with("-----BEGIN") {
                keep = true;
            }
            if keep {
                out.push_str(block);
            }
        }
        out
    };
    std::fs::write(&own, wanted).expect("written");
    let issuers = scratch("issuers");
    std::fs::copy(authority.own(), issuers.join("ca.pem")).expect("copied");
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n issuers-chain-path {}\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {}\n \
         http-request return status 200\n",
        shown(&issuers),
        shown(&own)
    );
    let weir = Weir::start(&text, &[port]);
    let sent = |told: &str| told.matches("-----BEGIN CERTIFICATE-----").count();
    assert_eq!(sent(&handshake(port, &["-showcerts"])), 2);
    let told = weir.ask(&format!("show ssl cert {}", shown(&own)));
    assert!(told.contains(&format!("Chain Filename: {}", shown(&issuers.join("ca.pem")))), "{told}");
    assert!(told.contains("Chain Subject: "), "{told}");
}

#[test]
fn invalid_host_names_get_the_default_certificate() {
    let authority = Authority::new();
    let (secure, plain) = (free_port(), free_port());
    let crt = shown(&authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{secure} ssl crt {crt}\n \
         http-request return status 200 content-type text/plain lf-string \"sni=%[ssl_fc_sni].\"\n\
         listen l\n bind 127.0.0.1:{plain}\n \
         server s 127.0.0.1:{secure} ssl verify none sni req.fhdr(x-name)\n"
    );
    let _weir = Weir::start(&text, &[secure, plain]);
    let long = "a".repeat(64) + ".test";
    for name in
        ["host:443", "label-.test", "-label.test", "a..b", ".a", "münchen.test", "123", "*.test", &long]
    {
        for version in ["-tls1_2", "-tls1_3"] {
            let got = asked(secure, "a", &["-ign_eof", version, "-servername", name]);
            assert!(got.contains(&format!("sni={name}.")), "{name} {version}: {got}");
        }
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Name: {name}\r\nConnection: close\r\n\r\n");
        let got = exchange(plain, &request).expect("it answers");
        assert_eq!(got.text(), format!("sni={name}."));
    }
}
