//! TLS features that only the system's OpenSSL has: versions before 1.2, cipher suites without ECDHE, small keys; tested with
//! `openssl s_client` and HAProxy's messages.

use std::io::Write;
use std::process::{Command, Stdio};

use weir_tests::client::exchange;
use weir_tests::tls::shown;
use weir_tests::{Authority, Origin, Weir, check, eventually, free_port, scratch};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n \
                        option httplog\n log stderr format raw local0\n";

/// Responds with information about the connection.
const TELLS: &str = " http-request return status 200 content-type text/plain lf-string \
                     \"told: %[ssl_fc_protocol] %[ssl_fc_cipher] %[ssl_fc_alg_keysize] %[ssl_fc_curve] %[ssl_fc_alpn]\"\n";

/// Returns the output of `openssl s_client` when it requests a page.
fn ask(port: u16, arguments: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-connect", &format!("127.0.0.1:{port}")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs: `make tools` installs it");
    let request = b"GET / HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n";
    // The process may have exited already.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(request));
    let output = child.wait_with_output().expect("openssl ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Returns the frontend's response, or openssl's error if there is none.
fn told(port: u16, arguments: &[&str]) -> String {
    let all = ask(port, arguments);
    let line = all.lines().find_map(|line| line.split_once("told: ").map(|(_, told)| told));
    // openssl prints this after the last byte.
    line.map(|told| told.strip_suffix("closed").unwrap_or(told).to_owned()).unwrap_or_else(|| {
        let alert =
            all.lines().find_map(|line| line.split_once("SSL alert number ").map(|(_, number)| number));
        format!("alert {}", alert.unwrap_or("none"))
    })
}

const OLD: &str = "ALL:@SECLEVEL=0";

/// Options of a bind line, arguments of openssl, and the beginning of the response.
#[rustfmt::skip]
const BIND: &[(&str, &[&str], &str)] = &[
    ("ssl-min-ver TLSv1.0 alpn http/1.1", &["-tls1", "-cipher", OLD, "-alpn", "http/1.1"], "TLSv1 ECDHE-RSA-AES256-SHA 256 X25519 http/1.1"),
    ("ssl-min-ver TLSv1.0",               &["-tls1_1", "-cipher", OLD],                    "TLSv1.1 ECDHE-RSA-AES256-SHA 256 X25519 "),
    ("ssl-min-ver TLSv1.0",               &["-tls1_2", "-cipher", "AES128-SHA"],           "TLSv1.2 AES128-SHA 128  "),
    ("ssl-min-ver TLSv1.0",               &[],                                             "TLSv1.3 TLS_AES_256_GCM_SHA384 256 X25519"),
    ("ssl-min-ver TLSv1.1",               &["-tls1", "-cipher", OLD],                      "alert 70"),
    ("force-tlsv10",                      &["-tls1", "-cipher", "AES128-SHA:@SECLEVEL=0"], "TLSv1 AES128-SHA 128"),
    ("force-tlsv10",                      &["-tls1_3"],                                    "alert 70"),
    ("force-tlsv11",                      &["-cipher", OLD],                               "TLSv1.1 "),
    ("ssl-max-ver TLSv1.1",               &["-tls1", "-cipher", OLD],                      "alert 70"),
    ("ssl-max-ver TLSv1.1",               &["-cipher", OLD],                               "TLSv1.1 "),
];

#[test]
fn old_versions_work_if_the_bind_line_allows_them() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let ports: Vec<u16> = BIND.iter().map(|_| free_port()).collect();
    let mut text = DEFAULTS.to_owned();
    for (port, (words, ..)) in ports.iter().zip(BIND) {
        text += &format!(
            "frontend fe{port}\n no log\n bind 127.0.0.1:{port} ssl crt {certificate} {words}\n{TELLS}"
        );
    }
    let _weir = Weir::start(&text, &ports);
    for (port, (words, arguments, expected)) in ports.iter().zip(BIND) {
        let got = told(*port, arguments);
        assert!(got.starts_with(expected), "{words} {arguments:?}: {got}");
    }
}

/// A frontend with one bind line, and the expected result with openssl.
struct Case<'a> {
    certificate: &'a str,
    words: &'a str,
    arguments: &'a [&'a str],
    expected: &'a str,
}

/// Starts one frontend per case and connects to each.
fn try_all(global: &str, cases: &[Case<'_>]) {
    let ports: Vec<u16> = cases.iter().map(|_| free_port()).collect();
    let mut text = format!("{global}{DEFAULTS}");
    for (port, Case { certificate, words, .. }) in ports.iter().zip(cases) {
        text += &format!(
            "frontend fe{port}\n no log\n bind 127.0.0.1:{port} ssl crt {certificate} {words}\n{TELLS}"
        );
    }
    let _weir = Weir::start(&text, &ports);
    for (port, case) in ports.iter().zip(cases) {
        let got = told(*port, case.arguments);
        assert!(got.starts_with(case.expected), "{} {:?}: {got}", case.words, case.arguments);
    }
}

const RSA: &[&str] = &["-tls1_2", "-cipher", "AES128-SHA"];
const DHE: &[&str] = &["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"];
const CBC: &[&str] = &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA256"];

#[test]
fn suites_unknown_to_rustls_work_if_requested() {
    let authority = Authority::new();
    let certificate = &*shown(&authority.issue_rsa(&["one.test"]));
    let case = |words, arguments, expected| Case { certificate, words, arguments, expected };
    let mixed = "ciphers ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA";
    let old_mixed = "ciphers ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA no-tlsv13";
    try_all(
        "",
        &[
            case("ciphers AES128-SHA", RSA, "TLSv1.2 AES128-SHA 128"),
            case("ciphers AES128-SHA", DHE, "alert 40"),
            case("ciphers AES128-SHA", &[], "TLSv1.3 TLS_AES_256_GCM_SHA384"),
            case("ciphers DHE-RSA-AES128-GCM-SHA256", DHE, "TLSv1.2 DHE-RSA-AES128-GCM-SHA256 128  "),
            case("ciphers ECDHE-RSA-AES128-SHA256", CBC, "TLSv1.2 ECDHE-RSA-AES128-SHA256 128 X25519"),
            // TLS 1.3 is enabled, and rustls has one of the suites, which is enough.
            case(mixed, RSA, "alert 40"),
            case(old_mixed, RSA, "TLSv1.2 AES128-SHA"),
            case(old_mixed, &["-cipher", "ALL"], "TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256"),
            case("force-tlsv12 ciphers AES128-SHA:AES256-SHA", RSA, "TLSv1.2 AES128-SHA"),
            // The order of the line, and of the client.
            case(
                "force-tlsv12 ciphers AES256-SHA:AES128-SHA",
                &["-cipher", "AES128-SHA:AES256-SHA"],
                "TLSv1.2 AES256-SHA",
            ),
            case(
                "force-tlsv12 ciphers AES256-SHA:AES128-SHA prefer-client-ciphers",
                &["-cipher", "AES128-SHA:AES256-SHA"],
                "TLSv1.2 AES128-SHA",
            ),
        ],
    );
}

#[test]
fn global_defaults_may_need_openssl_too() {
    let authority = Authority::new();
    let certificate = &*shown(&authority.issue_rsa(&["one.test"]));
    let case = |words, arguments, expected| Case { certificate, words, arguments, expected };
    try_all(
        "global\n ssl-default-bind-options ssl-min-ver TLSv1.0\n ssl-default-bind-ciphers AES128-SHA\n",
        &[
            case("", &["-tls1", "-cipher", OLD], "TLSv1 AES128-SHA"),
            case("ssl-min-ver TLSv1.2 ciphers ECDHE-RSA-AES128-GCM-SHA256", RSA, "alert 40"),
        ],
    );
}

#[test]
fn keys_unsupported_by_rustls_work() {
    let authority = Authority::new();
    let small = &*shown(&authority.issue_with(&["one.test"], &["-newkey", "rsa:1024"]));
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp224r1"];
    let odd = &*shown(&authority.issue_with(&["two.test"], &curve));
    let parameters = authority.own().with_file_name("dsa.params");
    let made = Command::new("openssl").args(["dsaparam", "-out", &shown(&parameters), "2048"]).output();
    assert!(made.expect("openssl runs").status.success());
    let dsa = format!("dsa:{}", shown(&parameters));
    let dsa = &*shown(&authority.issue_with(&["three.test"], &["-newkey", &dsa]));
    let case = |certificate, words, arguments, expected| Case { certificate, words, arguments, expected };
    try_all(
        "",
        &[
            case(small, "ciphers ALL:@SECLEVEL=0", &["-cipher", OLD], "TLSv1.3 "),
            case(small, "ciphers ALL:@SECLEVEL=0", RSA, "TLSv1.2 AES128-SHA"),
            case(
                odd,
                "",
                &["-sigalgs", "ECDSA+SHA256", "-curves", "secp224r1:X25519"],
                "TLSv1.2 ECDHE-ECDSA",
            ),
            case(
                dsa,
                "ciphers DHE-DSS-AES128-GCM-SHA256",
                &["-cipher", "ALL:aDSS", "-sigalgs", "DSA+SHA256"],
                "TLSv1.2 DHE-DSS",
            ),
        ],
    );
}

#[test]
fn global_security_level_permits_weak_keys() {
    let authority = Authority::new();
    let certificate = &*shown(&authority.issue_with(&["one.test"], &["-newkey", "rsa:1024"]));
    let case = |words, arguments, expected| Case { certificate, words, arguments, expected };
    try_all(
        "global\n ssl-security-level 0\n",
        &[
            case("", RSA, "TLSv1.2 AES128-SHA"),
            case("ssl-min-ver TLSv1.0", &["-tls1", "-cipher", OLD], "TLSv1 "),
        ],
    );
}

#[test]
fn dh_parameters_are_read_from_the_file() {
    let authority = Authority::new();
    let certificate = &*shown(&authority.issue_rsa(&["one.test"]));
    let file = authority.own().with_file_name("dh.pem");
    // RFC 7919's group, which is not the default.
    let arguments = ["genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe3072"];
    let made = Command::new("openssl").args(arguments).args(["-out", &shown(&file)]).output();
    assert!(made.expect("openssl runs").status.success());
    for (global, expected) in [
        (format!("global\n ssl-dh-param-file {}\n", shown(&file)), "Server Temp Key: DH, 3072 bits"),
        ("global\n tune.ssl.default-dh-param 4096\n".to_owned(), "Server Temp Key: DH, 4096 bits"),
        (String::new(), "Server Temp Key: DH, 2048 bits"),
    ] {
        let port = free_port();
        let words = if global.contains("file") { "" } else { "ciphers DHE-RSA-AES128-GCM-SHA256" };
        let text = format!(
            "{global}{DEFAULTS}frontend fe\n no log\n bind 127.0.0.1:{port} ssl crt {certificate} {words}\n{TELLS}"
        );
        let _weir = Weir::start(&text, &[port]);
        let all = ask(port, DHE);
        assert!(all.contains(expected) && all.contains("told: TLSv1.2 DHE-RSA"), "{global}: {all}");
    }
}

/// Starts a plain-text frontend in front of a TLS server in the same program.
fn before(server: &str, inner: &str) -> (Weir, u16) {
    let (port, at) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
         backend be\n retries 0\n server s 127.0.0.1:{at} ssl {server}\n\
         frontend inner\n no log\n bind 127.0.0.1:{at} ssl {inner}\n\
         \x20http-request return status 200 content-type text/plain lf-string \
         \"%[ssl_fc_protocol] %[ssl_fc_cipher] %[ssl_fc_sni] %[ssl_c_used]\"\n"
    );
    (Weir::start(&text, &[port, at]), port)
}

#[test]
fn server_connections_follow_their_line() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let certificate = authority.issue_rsa(&["one.test"]);
    let own = shown(&authority.issue_rsa(&["client.test"]));
    let (ca, other) = (shown(&authority.own()), shown(&stranger.own()));
    let old = "force-tlsv10";
    let trusted = format!("ca-file {ca} sni str(one.test)");
    for (server, words, expected) in [
        (
            "verify none no-sni-auto force-tlsv10",
            "ssl-min-ver TLSv1.0",
            Some("TLSv1 ECDHE-RSA-AES256-SHA  0"),
        ),
        (
            &*format!("{trusted} force-tlsv12 ciphers AES128-SHA"),
            "ciphers AES128-SHA",
            Some("TLSv1.2 AES128-SHA one.test 0"),
        ),
        // The client offers all versions, and the server selects the newest.
        (&*format!("{trusted} ssl-min-ver TLSv1.0"), "", Some("TLSv1.3 TLS_AES_256_GCM_SHA384 one.test 0")),
        (&*format!("{trusted} ssl-min-ver TLSv1.0"), old, Some("TLSv1 ECDHE-RSA-AES256-SHA one.test 0")),
        (
            &*format!("{trusted} ssl-min-ver TLSv1.0 verifyhost two.test"),
            old,
            Some("TLSv1 ECDHE-RSA-AES256-SHA one.test 0"),
        ),
        (&*format!("ca-file {ca} no-sni-auto verifyhost two.test ssl-min-ver TLSv1.0"), old, None),
        (&*format!("ca-file {ca} sni str(two.test) ssl-min-ver TLSv1.0"), old, None),
        (&*format!("ca-file {other} sni str(one.test) ssl-min-ver TLSv1.0"), old, None),
        (&*format!("ca-file {other} sni str(one.test) ssl-min-ver TLSv1.0"), "", None),
        (
            &*format!("{trusted} ssl-min-ver TLSv1.0 crt {own}"),
            &*format!("{old} verify required ca-file {ca}"),
            Some("TLSv1 ECDHE-RSA-AES256-SHA one.test 1"),
        ),
        (&*format!("{trusted} ssl-min-ver TLSv1.0"), &*format!("{old} verify required ca-file {ca}"), None),
        (
            &*format!("{trusted} ssl-min-ver TLSv1.0 crt {own}"),
            &*format!("{old} verify required ca-file {other}"),
            None,
        ),
    ] {
        let inner = format!("crt {} {words}", shown(&certificate));
        let (weir, port) = before(server, &inner);
        let response = exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
        match expected {
            Some(body) => {
                assert_eq!(response.text(), body, "{server} | {words}");
            }
            None => assert_eq!(response.status, 503, "{server} | {words}: {}", weir.messages()),
        }
    }
}

#[test]
fn health_checks_use_the_servers_tls_settings() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    for (words, expected) in [("force-tlsv10", "L6OK"), ("ssl-min-ver TLSv1.2 ciphers AES128-SHA", "L6RSP")] {
        let (inner, stats) = (free_port(), free_port());
        let text = format!(
            "{DEFAULTS}frontend stats\n no log\n bind 127.0.0.1:{stats}\n stats enable\n stats uri /\n\
             backend be\n server s 127.0.0.1:{inner} ssl verify none check inter 100ms {words}\n\
             frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {certificate} force-tlsv10\n"
        );
        let _weir = Weir::start(&text, &[inner, stats]);
        let page =
            || exchange(stats, "GET /;csv HTTP/1.1\r\nHost: a\r\n\r\n").map(|page| page.text().to_owned());
        let found = eventually(|| page().is_some_and(|page| page.contains(expected)));
        assert!(found, "{words}: {:?}", page());
    }
}

#[test]
fn lines_that_need_openssl_are_refused_without_it() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp224r1"];
    let odd = shown(&authority.issue_with(&["two.test"], &curve));
    let directory = scratch("legacy-off");
    let file = directory.join("weir.cfg");
    let bind = |words: &str| format!("frontend fe\n bind 127.0.0.1:65000 ssl crt {certificate} {words}\n");
    let server = |words: &str| format!("backend be\n server s 127.0.0.1:65000 ssl verify none {words}\n");
    let says = |text: &str| {
        std::fs::write(&file, text).expect("the directory takes files");
        let verdict = check(&file, &directory);
        (verdict.accepted(), verdict.alerts().join("\n"))
    };
    for (line, cause) in [
        (bind("ssl-min-ver TLSv1.0"), "TLSv1"),
        (bind("force-tlsv11"), "TLSv1.1"),
        (bind("ciphers AES128-SHA"), "its `ciphers`"),
        (bind("ciphers DEFAULT@SECLEVEL=1"), "security level 1"),
        (server("force-tlsv10"), "TLSv1"),
        (server("renegotiate"), "`renegotiate`"),
        (server("force-tlsv12 ciphers AES128-SHA"), "its `ciphers`"),
        (server(&format!("crt {odd}")), "the kind or size of the key"),
        (format!("frontend fe\n bind 127.0.0.1:65000 ssl crt {odd}\n"), "the kind or size of the key"),
    ] {
        let (accepted, alerts) = says(&format!("global\n legacy-tls off\n{DEFAULTS}{line}"));
        assert!(!accepted, "{line}");
        let keyword = if line.contains("bind") { "bind" } else { "server" };
        let expected = format!("this `{keyword}` line needs OpenSSL for {cause}");
        assert!(alerts.contains(&expected) && alerts.contains("weir.cfg:"), "{line}: {alerts}");
        assert!(alerts.contains("`legacy-tls on`"), "{line}: {alerts}");
        for global in ["", "global\n legacy-tls on\n"] {
            let (accepted, alerts) = says(&format!("{global}{DEFAULTS}{line}"));
            assert!(accepted, "{line}: {alerts}");
        }
    }
    // Lines that rustls can serve still work.
    let (accepted, alerts) = says(&format!("global\n legacy-tls off\n{DEFAULTS}{}", bind("no-tlsv13")));
    assert!(accepted, "{alerts}");
}

#[test]
fn log_suggests_the_setting_for_outdated_clients() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let port = free_port();
    let text = format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate}\n{TELLS}");
    let weir = Weir::start(&text, &[port]);
    assert!(told(port, &["-tls1_1", "-cipher", OLD]).starts_with("alert"));
    let version = "unsupported protocol) (`ssl-min-ver TLSv1.1` on the bind line would allow it)";
    assert!(weir.says(version), "{}", weir.messages());
    assert_eq!(told(port, RSA), "alert 40");
    let suite =
        "no shared cipher) (`no-tlsv13` with AES128-SHA among the `ciphers` of the bind line would allow it)";
    assert!(weir.says(suite), "{}", weir.messages());
    // Suites that rustls has and this line does not enable are not a reason to suggest OpenSSL.
    assert!(told(port, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"]).starts_with("alert"));
    assert!(weir.says("no shared cipher)\n"), "{}", weir.messages());
}

/// Sessions that `openssl s_client` reuses on a second connection.
#[test]
fn sessions_of_old_versions_are_resumed() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let session = shown(&authority.own().with_file_name("session"));
    let resumed =
        " http-request return status 200 content-type text/plain lf-string \"told: %[ssl_fc_is_resumed]\"\n";
    for (global, words, expected) in [
        ("", "", "1"),
        ("", "no-tls-tickets", "1"),
        ("global\n tune.ssl.cachesize 0\n", "", "1"),
        ("global\n tune.ssl.cachesize 0\n", "no-tls-tickets", "0"),
    ] {
        let port = free_port();
        let text = format!(
            "{global}{DEFAULTS}frontend fe\n no log\n bind 127.0.0.1:{port} ssl crt {certificate} force-tlsv10 {words}\n{resumed}"
        );
        let _weir = Weir::start(&text, &[port]);
        assert_eq!(told(port, &["-tls1", "-cipher", OLD, "-sess_out", &session]), "0");
        assert_eq!(told(port, &["-tls1", "-cipher", OLD, "-sess_in", &session]), expected, "{global}{words}");
    }
}

#[test]
fn client_verification_follows_the_same_rules() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let (own, strange) =
        (shown(&authority.issue_rsa(&["client.test"])), shown(&stranger.issue_rsa(&["client.test"])));
    let expired = shown(&authority.issue_expired(&["late.test"]));
    let ca = shown(&authority.own());
    let tells = " http-request return status 200 content-type text/plain lf-string \
                 \"told: %[ssl_c_used] %[ssl_c_verify] %[ssl_c_err] %[ssl_c_ca_err]\"\n";
    for (verify, certificate_of, expected) in [
        ("required", Some(&own), "1 0 0 0"),
        ("required", None, "alert 40"),
        ("required", Some(&strange), "alert 48"),
        ("required", Some(&expired), "alert 45"),
        ("optional", None, "0 0 0 0"),
        ("optional", Some(&strange), "alert 48"),
        ("optional crt-ignore-err 10", Some(&expired), "1 10 10 0"),
        ("optional crt-ignore-err all", Some(&strange), "1 21 20 0"),
    ] {
        let port = free_port();
        let text = format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} ssl-min-ver TLSv1.0 \
             verify {verify} ca-file {ca}\n{tells}"
        );
        let weir = Weir::start(&text, &[port]);
        let mut arguments = vec!["-tls1_1", "-cipher", OLD];
        arguments.extend(certificate_of.into_iter().flat_map(|file| ["-cert", file]));
        let got = told(port, &arguments);
        assert_eq!(got, expected, "{verify} {certificate_of:?}: {}", weir.messages());
    }
}

/// Starts an origin that answers with the request's body.
fn echo() -> Origin {
    Origin::start(|_, body| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    })
}

/// A long response and a long request, in records that are split anywhere.
#[test]
fn long_messages_pass_in_both_directions() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let file = authority.own().with_file_name("body");
    std::fs::write(&file, &body).expect("the directory takes files");
    for words in ["force-tlsv10", "force-tlsv12 ciphers AES128-SHA"] {
        let (origin, port, inner) = (echo(), free_port(), free_port());
        let text = format!(
            "global\n tune.ssl.maxrecord 1400\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} {words}\n default_backend be\n\
             backend be\n server s 127.0.0.1:{inner} ssl verify none {words}\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {certificate} {words}\n default_backend last\n\
             backend last\n server s 127.0.0.1:{}\n",
            origin.port()
        );
        let weir = Weir::start(&text, &[port, inner]);
        let output = Command::new("curl")
            .args([
                "-sk",
                "--max-time",
                "20",
                "--ciphers",
                OLD,
                "--tls-max",
                "1.2",
                "--tlsv1.0",
                "--data-binary",
            ])
            .arg(format!("@{}", shown(&file)))
            .arg(format!("https://127.0.0.1:{port}/"))
            .output()
            .expect("curl runs: `make tools` installs it");
        assert!(output.stdout == body, "{words}: {} bytes, {}", output.stdout.len(), weir.messages());
    }
}

#[test]
fn ignored_settings_are_reported() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_rsa(&["one.test"]));
    let directory = scratch("legacy-warnings");
    let (file, keys) = (directory.join("weir.cfg"), directory.join("keys"));
    let key = "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw\n";
    std::fs::write(&keys, key.repeat(3)).expect("the directory takes files");
    for (words, old, expected) in [
        (
            format!("tls-ticket-keys {}", shown(&keys)),
            "ssl-min-ver TLSv1.0",
            "tickets for clients that OpenSSL serves",
        ),
        ("client-sigalgs RSA+SHA256".to_owned(), "ssl-min-ver TLSv1.0", "if OpenSSL serves the line"),
        (String::new(), "ssl-max-ver TLSv1.1", "allows only TLSv1.1"),
    ] {
        for (more, is_warned) in [(old, true), ("ssl-min-ver TLSv1.2", false)] {
            let text = format!(
                "{DEFAULTS}frontend fe\n bind 127.0.0.1:65000 ssl crt {certificate} {words} {more}\n"
            );
            std::fs::write(&file, text).expect("the directory takes files");
            let verdict = check(&file, &directory);
            let warned = verdict.warnings().iter().any(|warning| warning.contains(expected));
            assert!(verdict.accepted() && warned == is_warned, "{words} {more}: {:?}", verdict.warnings());
        }
    }
}

#[test]
fn ssl_provider_makes_openssl_serve_all_lines() {
    let authority = Authority::new();
    let certificate = &*shown(&authority.issue_rsa(&["one.test"]));
    let case = |words, arguments, expected| Case { certificate, words, arguments, expected };
    // With rustls the second suite would be ignored.
    let mixed = "ciphers ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA";
    try_all("", &[case(mixed, RSA, "alert 40")]);
    try_all(
        "global\n ssl-provider default\n",
        &[
            case(mixed, RSA, "TLSv1.2 AES128-SHA"),
            case(mixed, &[], "TLSv1.3 TLS_AES_256_GCM_SHA384 256 X25519"),
            case("", &["-tls1_2"], "TLSv1.2 ECDHE-RSA-AES256-GCM-SHA384"),
        ],
    );
    let directory = scratch("providers");
    let file = directory.join("weir.cfg");
    for (words, accepted) in [
        ("ssl-provider default".to_owned(), true),
        ("ssl-provider nonesuch".to_owned(), false),
        (format!("ssl-provider-path {}\n ssl-provider legacy", shown(&directory)), false),
        ("legacy-tls off\n ssl-provider default".to_owned(), false),
    ] {
        let bind = format!("bind 127.0.0.1:65000 ssl crt {certificate}");
        std::fs::write(&file, format!("global\n {words}\n{DEFAULTS}frontend fe\n {bind}\n"))
            .expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert_eq!(verdict.accepted(), accepted, "{words}: {:?}", verdict.alerts());
    }
}
