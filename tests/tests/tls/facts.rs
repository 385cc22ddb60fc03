//! TLS information in rules and logs on both sides of the program, compared with the output of `openssl` for the same certificates
//! and connections.

use std::process::Command;

use weir_tests::client::exchange;
use weir_tests::tls::{asked, shown};
use weir_tests::{Authority, Weir, free_port, scratch};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n \
                        log stderr format raw local0\n";

/// Returns the response received by `openssl s_client`, or `None`.
fn ask(port: u16, arguments: &[&str]) -> Option<String> {
    let text = asked(port, "one.test", &[&["-quiet", "-servername", "one.test"], arguments].concat());
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

/// Returns the output of `openssl x509` for a certificate.
fn x509(file: &str, arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(["x509", "-noout", "-in", file]).args(arguments).output();
    let text = String::from_utf8_lossy(&output.expect("openssl runs").stdout).trim().to_owned();
    text.split_once('=').map_or(text.clone(), |(_, value)| value.to_owned())
}

#[test]
fn log_shows_client_verification_and_server_protocol() {
    let authority = Authority::new();
    let (certificate, own) = (shown(&authority.issue(&["one.test"])), shown(&authority.issue(&["me.test"])));
    let (port, inner) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} verify optional ca-file {}\n \
         log-format \"<%[ssl_c_s_dn]> <%[ssl_c_verify]> <%[ssl_bc_protocol]> <%[ssl_bc]>\"\n default_backend be\n\
         backend be\n server s 127.0.0.1:{inner} ssl verify none\n\
         frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {certificate} force-tlsv12\n http-request return status 200\n",
        shown(&authority.own())
    );
    let weir = Weir::start(&text, &[port, inner]);
    assert!(ask(port, &["-cert", &own, "-key", &own]).is_some());
    assert!(ask(port, &[]).is_some());
    for line in ["</O=Weir/CN=me.test> <0> <TLSv1.2> <1>", "<-> <0> <TLSv1.2> <1>"] {
        assert!(weir.says(line), "{line}: {}", weir.messages());
    }
}

/// Certificate fetches, without `ssl_c_`, `ssl_f_` or `ssl_s_`, and the corresponding `openssl x509` options.
const SAID: &[(&str, &[&str])] = &[
    ("sha1,hex", &["-fingerprint", "-sha1"]),
    ("serial,hex", &["-serial"]),
    ("s_dn(,0,rfc2253)", &["-subject", "-nameopt", "RFC2253"]),
    ("i_dn(,0,rfc2253)", &["-issuer", "-nameopt", "RFC2253"]),
];

/// Information about a client's own certificate and the one it received.
const OF_CLIENT: &str = "\
    ssl_c_sha1,hex=%[ssl_c_sha1,hex]\nssl_c_serial,hex=%[ssl_c_serial,hex]\n\
    ssl_c_s_dn(,0,rfc2253)=%[ssl_c_s_dn(,0,rfc2253)]\n\
    ssl_c_i_dn(,0,rfc2253)=%[ssl_c_i_dn(,0,rfc2253)]\nssl_c_version=%[ssl_c_version]\n\
    ssl_c_der,sha1,hex=%[ssl_c_der,sha1,hex]\nssl_c_s_dn(CN)=%[ssl_c_s_dn(cn)]\n\
    ssl_c_i_dn(CN)=%[ssl_c_i_dn(CN)]\nssl_c_key_alg=%[ssl_c_key_alg]\n\
    ssl_c_sig_alg=%[ssl_c_sig_alg]\nssl_c_notbefore=%[ssl_c_notbefore]\n\
    ssl_c_notafter=%[ssl_c_notafter]\nssl_f_sha1,hex=%[ssl_f_sha1,hex]\n\
    ssl_f_serial,hex=%[ssl_f_serial,hex]\nssl_f_s_dn(,0,rfc2253)=%[ssl_f_s_dn(,0,rfc2253)]\n\
    ssl_f_i_dn(,0,rfc2253)=%[ssl_f_i_dn(,0,rfc2253)]\nssl_f_version=%[ssl_f_version]\n\
    ssl_f_der,sha1,hex=%[ssl_f_der,sha1,hex]\nssl_f_s_dn(CN)=%[ssl_f_s_dn(CN)]\n\
    ssl_f_i_dn(CN)=%[ssl_f_i_dn(Cn)]\nssl_f_key_alg=%[ssl_f_key_alg]\n\
    ssl_f_sig_alg=%[ssl_f_sig_alg]\nssl_f_notbefore=%[ssl_f_notbefore]\n\
    ssl_f_notafter=%[ssl_f_notafter]\nssl_c_san=%[ssl_c_san]\nssl_c_policies=%[ssl_c_policies]\n\
    ssl_c_chain_der,length=%[ssl_c_chain_der,length]\nssl_c_r_dn=%[ssl_c_r_dn]\n\
    ssl_fc_crtname=%[ssl_fc_crtname]\nssl_fc_npn=%[ssl_fc_npn]\n\
    ssl_fc_early_rcvd=%[ssl_fc_early_rcvd]\n";

/// Information about a server's certificate.
const OF_SERVER: &str = "\
    ssl_s_sha1,hex=%[ssl_s_sha1,hex]\nssl_s_serial,hex=%[ssl_s_serial,hex]\n\
    ssl_s_s_dn(,0,rfc2253)=%[ssl_s_s_dn(,0,rfc2253)]\n\
    ssl_s_i_dn(,0,rfc2253)=%[ssl_s_i_dn(,0,rfc2253)]\nssl_s_version=%[ssl_s_version]\n\
    ssl_s_der,sha1,hex=%[ssl_s_der,sha1,hex]\nssl_s_s_dn(CN)=%[ssl_s_s_dn(cn)]\n\
    ssl_s_i_dn(CN)=%[ssl_s_i_dn(CN)]\nssl_s_key_alg=%[ssl_s_key_alg]\n\
    ssl_s_sig_alg=%[ssl_s_sig_alg]\nssl_s_notbefore=%[ssl_s_notbefore]\n\
    ssl_s_notafter=%[ssl_s_notafter]\nssl_bc_npn=%[ssl_bc_npn]\n";

#[test]
fn certificate_fields_match_openssl() {
    let authority = Authority::new();
    let (certificate, own) =
        (shown(&authority.issue(&["one.test"])), shown(&authority.issue_rsa(&["me.test"])));
    let (port, outer, inner) = (free_port(), free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} verify required ca-file {}\n \
         http-request deny if !{{ ssl_fc_sni_end .test }} || !{{ ssl_fc_sni_reg ^one }}\n \
         http-request return status 200 content-type text/plain lf-string \"{}\"\n\
         listen outer\n bind 127.0.0.1:{outer}\n server s 127.0.0.1:{inner} ssl verify none\n \
         http-response return status 200 content-type text/plain lf-string \"{}\"\n\
         frontend inner\n bind 127.0.0.1:{inner} ssl crt {certificate}\n http-request return status 200\n",
        shown(&authority.own()),
        OF_CLIENT.replace('\n', "\\n"),
        OF_SERVER.replace('\n', "\\n"),
    );
    let _weir = Weir::start(&text, &[port, outer, inner]);
    let from_client = ask(port, &["-cert", &own, "-key", &own]).expect("an answer");
    let from_server = exchange(outer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer").text();
    let told = format!("{from_client}\n{from_server}");
    let value = |name: &str| {
        let found = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} is not told: {told}")).to_owned()
    };
    for (whose, file, algorithm) in [
        ("ssl_c", &own, "rsaEncryption"),
        ("ssl_f", &certificate, "id-ecPublicKey"),
        ("ssl_s", &certificate, "id-ecPublicKey"),
    ] {
        for (name, arguments) in SAID {
            let name = format!("{whose}_{name}");
            assert_eq!(value(&name), x509(file, arguments).replace(':', ""), "{name}");
        }
        let of = |name: &str| value(&format!("{whose}_{name}"));
        assert_eq!(of("der,sha1,hex"), of("sha1,hex"));
        assert_eq!((of("version"), of("key_alg")), ("3".into(), algorithm.into()));
        assert_eq!(of("sig_alg"), "ecdsa-with-SHA256");
        assert_eq!((of("i_dn(CN)"), of("notafter").len()), ("Test authority".into(), 13));
        assert!(of("notbefore") < of("notafter"), "{told}");
    }
    assert_eq!(value("ssl_c_s_dn(CN)"), "me.test");
    assert_eq!((value("ssl_c_san"), value("ssl_c_policies")), ("DNS:me.test".into(), String::new()));
    assert_eq!(
        (value("ssl_c_chain_der,length"), value("ssl_fc_crtname")),
        (String::new(), certificate.clone())
    );
}

#[test]
fn server_connection_fetches_have_values() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}listen outer\n bind 127.0.0.1:{port}\n retries 0\n \
         log-format \"<%[ssl_bc_err]> <%[ssl_bc_err_str]>\"\n \
         server s 127.0.0.1:{inner} ssl verify none sni req.hdr(host) alpn http/1.1 force-tlsv12 curves P-384 pool-max-conn 0\n \
         http-response return status 200 content-type text/plain lf-string \"%[ssl_bc] %[ssl_bc_cipher] %[ssl_bc_alg_keysize] \
         %[ssl_bc_use_keysize] %[ssl_bc_curve] %[ssl_bc_sni] %[ssl_bc_alpn] %[ssl_bc_is_resumed] %[ssl_s_chain_der,length]\"\n\
         frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {certificate} alpn http/1.1 strict-sni\n http-request return status 200\n"
    );
    let weir = Weir::start(&text, &[port, inner]);
    let ask = |host: &str| {
        exchange(port, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).expect("an answer").text()
    };
    let first = ask("one.test");
    assert!(
        first.starts_with("1 ECDHE-ECDSA-AES256-GCM-SHA384 256 256 secp384r1 one.test http/1.1 0 "),
        "{first}"
    );
    assert!(!first.ends_with(' '), "a chain is there: {first}");
    let second = ask("one.test");
    assert!(
        second.starts_with("1 ECDHE-ECDSA-AES256-GCM-SHA384 256 256 secp384r1 one.test http/1.1 1"),
        "{second}"
    );
    assert!(weir.says("<0> <->"), "{}", weir.messages());
    // The server has no certificate for this name.
    ask("two.test");
    let line = "<167773272> <error:0A000458:SSL routines::tlsv1 unrecognized name>";
    assert!(weir.says(line), "{}", weir.messages());
}

#[test]
fn resumed_session_has_the_same_client_information() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let late = shown(&authority.issue_expired(&["late.test"]));
    let directory = scratch("tls-facts");
    let session = shown(&directory.join("session"));
    let line = format!("ssl crt {certificate} verify optional ca-file {}", shown(&authority.own()));
    for more in ["", " no-tls-tickets"] {
        let port = free_port();
        let text = format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} {line} crt-ignore-err all{more}\n \
             http-request return status 200 content-type text/plain lf-string \
             \"%[ssl_fc_is_resumed] %[ssl_fc_has_crt] %[ssl_c_used] %[ssl_c_verify] %[ssl_c_err] %[ssl_c_s_dn(CN)] %[ssl_fc_curve] <%[ssl_c_r_dn]>\"\n"
        );
        let _weir = Weir::start(&text, &[port]);
        for version in ["-tls1_2", "-tls1_3"] {
            let own = [version, "-groups", "P-256", "-cert", &late, "-key", &late, "-sess_out", &session];
            assert_eq!(
                ask(port, &own).as_deref(),
                Some("0 1 1 10 10 late.test prime256v1 </CN=Test authority>"),
                "{version}{more}"
            );
            for _ in 0..2 {
                let again = [version, "-groups", "P-256", "-sess_in", &session, "-sess_out", &session];
                let told = ask(port, &again);
                assert_eq!(told.as_deref(), Some("1 0 1 10 0 late.test prime256v1 <>"), "{version}{more}");
            }
        }
    }
}

#[test]
fn sessions_do_not_bypass_verification_of_other_lines() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = shown(&authority.issue(&["one.test"]));
    let own = shown(&other.issue(&["me.test"]));
    let directory = scratch("tls-rules");
    let (keys, session) = (directory.join("keys"), shown(&directory.join("session")));
    let mixed: String = ["AAAA", "BBBB", "CCCC"].map(|part| part.repeat(16) + "\n").concat();
    std::fs::write(&keys, mixed).expect("the directory takes files");
    let shared = format!("ssl crt {certificate} tls-ticket-keys {}", shown(&keys));
    let (open, closed) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{open} {shared} verify required ca-file {}\n \
         bind 127.0.0.1:{closed} {shared} verify required ca-file {}\n http-request return status 200\n",
        shown(&other.own()),
        shown(&authority.own()),
    );
    let _weir = Weir::start(&text, &[open, closed]);
    for version in ["-tls1_2", "-tls1_3"] {
        let shows = [version, "-cert", &own, "-key", &own];
        assert!(ask(open, &[&shows[..], &["-sess_out", &session]].concat()).is_some(), "{version}");
        assert!(ask(open, &[version, "-sess_in", &session]).is_some(), "{version}");
        assert!(ask(closed, &[&shows[..], &["-sess_in", &session]].concat()).is_none(), "{version}");
    }
}

#[test]
fn failed_handshakes_are_logged_with_openssls_reason() {
    let authority = Authority::new();
    let (certificate, late) =
        (shown(&authority.issue(&["one.test"])), shown(&authority.issue_expired(&["late.test"])));
    let port = free_port();
    let text = format!(
        "{DEFAULTS}frontend fe\n option httpslog\n bind 127.0.0.1:{port} ssl crt {certificate} verify required ca-file {}\n \
         error-log-format \"%[fc_err] %[ssl_fc_err,hex] <%[ssl_fc_err_str]> %[ssl_c_err]/%[ssl_c_ca_err] %[ssl_fc_sni] %sslv %sslc\"\n \
         http-request return status 200\n",
        shown(&authority.own())
    );
    let weir = Weir::start(&text, &[port]);
    for (arguments, line) in [
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"][..],
            "34 000000000A0000C1 <error:0A0000C1:SSL routines::no shared cipher> 0/0 one.test TLSv1.2 (NONE)",
        ),
        (
            &["-tls1_3"],
            "34 000000000A0000C7 <error:0A0000C7:SSL routines::peer did not return a certificate> 0/0 one.test TLSv1.3 TLS_AES_256_GCM_SHA384",
        ),
        (
            &["-tls1_3", "-cert", &late, "-key", &late],
            "31 000000000A000086 <error:0A000086:SSL routines::certificate verify failed> 10/0 one.test TLSv1.3 TLS_AES_256_GCM_SHA384",
        ),
    ] {
        ask(port, arguments);
        assert!(weir.says(line), "{line}\n{}", weir.messages());
    }
}
