//! TLS towards clients and servers, with curl and openssl on the other side.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_tests::client::{Client, exchange};
use weir_tests::openssl::OpensslServer;
use weir_tests::tls::shown;
use weir_tests::{Authority, Origin, Weir, check, eventually, free_port, scratch};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n \
                        option httplog\n log stderr format raw local0\n";

/// Returns the body that curl received, or the error.
fn curl(authority: &Authority, host: &str, port: u16, path: &str, more: &[&str]) -> Result<String, String> {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--cacert"])
        .arg(authority.own())
        .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
        .args(more)
        .arg(format!("https://{host}:{port}{path}"))
        .output()
        .expect("curl runs: `make tools` installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn clients_get_the_certificate_for_their_sni() {
    let authority = Authority::new();
    let (first, second) = (authority.issue(&["one.test", "*.wild.test"]), authority.issue(&["two.test"]));
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} crt {} alpn http/1.1\n \
             http-request return status 200 content-type text/plain lf-string \
             \"%[ssl_fc] %[ssl_fc_sni] %[ssl_fc_protocol] %[ssl_fc_alpn] %[ssl_fc_cipher]\"\n",
            shown(&first),
            shown(&second)
        ),
        &[port],
    );
    for host in ["one.test", "any.wild.test", "two.test"] {
        let body = curl(&authority, host, port, "/", &["--tls13-ciphers", "TLS_AES_128_GCM_SHA256"]);
        assert_eq!(body, Ok(format!("1 {host} TLSv1.3 http/1.1 TLS_AES_128_GCM_SHA256")), "{host}");
    }
    let older = ["--tls-max", "1.2", "--no-alpn", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    let body = curl(&authority, "two.test", port, "/", &older);
    assert_eq!(body, Ok("1 two.test TLSv1.2  ECDHE-ECDSA-AES128-GCM-SHA256".into()));
    // Clients that request another name get the first certificate, which is not valid for that.
    let refused = curl(&authority, "three.test", port, "/", &[]).expect_err("a certificate of another name");
    assert!(refused.contains("SSL"), "{refused}");
}

#[test]
fn strict_sni_refuses_unknown_names() {
    let authority = Authority::new();
    let port = free_port();
    let certificate = shown(&authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} strict-sni\n http-request return status 200\n"
    );
    let weir = Weir::start(&text, &[port]);
    assert!(curl(&authority, "one.test", port, "/", &[]).is_ok());
    assert!(curl(&authority, "two.test", port, "/", &["-k"]).is_err());
    assert!(weir.says("fe/1: SSL handshake failure"), "{}", weir.messages());
}

#[test]
fn ecdsa_or_rsa_certificate_is_chosen_per_client() {
    let authority = Authority::new();
    let port = free_port();
    let (ec, rsa) = (shown(&authority.issue(&["one.test"])), shown(&authority.issue_rsa(&["one.test"])));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {rsa} crt {ec}\n \
         http-request return status 200 content-type text/plain lf-string %[ssl_fc_cipher]\n"
    );
    let _weir = Weir::start(&text, &[port]);
    let with =
        |ciphers: &str| curl(&authority, "one.test", port, "/", &["--tls-max", "1.2", "--ciphers", ciphers]);
    assert_eq!(with("ECDHE-RSA-AES128-GCM-SHA256"), Ok("ECDHE-RSA-AES128-GCM-SHA256".into()));
    assert_eq!(with("ECDHE-ECDSA-AES128-GCM-SHA256"), Ok("ECDHE-ECDSA-AES128-GCM-SHA256".into()));
    let both = with("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256");
    assert_eq!(both, Ok("ECDHE-ECDSA-AES128-GCM-SHA256".into()));
}

/// Starts a plain-text frontend in front of a backend with a TLS server, which is in the same program.
fn both_sides(authority: &Authority, server: &str, certificate: &Path) -> (Weir, u16) {
    let (port, inner) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
         backend be\n retries 0\n server s 127.0.0.1:{inner} ssl ca-file {} {server}\n\
         frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {}\n \
         http-request return status 200 content-type text/plain lf-string \"%[ssl_fc_sni] %[ssl_fc_is_resumed]\"\n",
        shown(&authority.own()),
        shown(certificate),
    );
    (Weir::start(&text, &[port, inner]), port)
}

#[test]
fn server_gets_the_configured_sni_and_must_match_it() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    for (line, expected) in [
        ("sni str(one.test)", Some("one.test 0")),
        // The host of the request, without its port.
        ("", Some("one.test 0")),
        ("no-sni-auto verifyhost one.test", Some(" 0")),
        ("no-sni-auto verify none", Some(" 0")),
        ("sni str(two.test)", None),
        // `verifyhost` is used if no name is sent.
        ("sni str(one.test) verifyhost two.test", Some("one.test 0")),
        ("sni str(two.test) verifyhost one.test", None),
        ("verifyhost two.test", Some("one.test 0")),
        ("no-sni-auto verifyhost two.test", None),
    ] {
        let (weir, port) = both_sides(&authority, line, &certificate);
        let response = exchange(port, "GET / HTTP/1.1\r\nHost: one.test:80\r\n\r\n").expect("an answer");
        match expected {
            Some(body) => assert_eq!(response.text(), body, "{line}"),
            None => {
                assert_eq!(response.status, 503, "{line}");
                assert!(weir.says(" SC-- "), "{line}: {}", weir.messages());
            }
        }
    }
}

#[test]
fn server_with_a_wrong_certificate_gets_no_request() {
    let (authority, other) = (Authority::new(), Authority::new());
    for certificate in [other.issue(&["one.test"]), authority.issue_expired(&["one.test"])] {
        let (_weir, port) = both_sides(&authority, "sni str(one.test)", &certificate);
        let response = exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
        assert_eq!(response.status, 503, "{}", certificate.display());
        let (_weir, port) = both_sides(&authority, "sni str(one.test) verify none", &certificate);
        let response = exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
        assert_eq!(response.text(), "one.test 0");
    }
}

#[test]
fn server_sessions_are_resumed_unless_disabled() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    for (line, resumed) in [("", "1"), ("no-ssl-reuse", "0")] {
        let line = format!("sni str(one.test) pool-max-conn 0 {line}");
        let (_weir, port) = both_sides(&authority, &line, &certificate);
        let ask = || exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer").text();
        assert_eq!(ask(), "one.test 0", "{line}");
        // The ticket for the second connection arrives after the first handshake.
        let second = ask();
        assert_eq!(second, format!("one.test {resumed}"), "{line}");
    }
}

#[test]
fn bodies_are_complete_with_tls_on_both_sides() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let origin = Origin::start(|_, body| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(body);
        answer
    });
    let directory = scratch("tls");
    let body: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7 + at) as u8).collect();
    let sent = directory.join("body");
    std::fs::write(&sent, &body).expect("the directory takes files");
    for mode in ["http", "tcp"] {
        let (port, inner) = (free_port(), free_port());
        let text = format!(
            "{DEFAULTS}listen outer\n mode {mode}\n bind 127.0.0.1:{port} ssl crt {certificate}\n option splice-auto\n \
             server s 127.0.0.1:{inner} ssl verify none\n\
             listen inner\n mode {mode}\n bind 127.0.0.1:{inner} ssl crt {certificate}\n option splice-auto\n \
             server s 127.0.0.1:{}\n",
            origin.port()
        );
        let _weir = Weir::start(&text, &[port, inner]);
        let got = directory.join("got");
        let (upload, output) = (format!("@{}", sent.display()), shown(&got));
        // A slow client: data that it does not accept yet is held back.
        for limit in ["1G", "20M"] {
            let more = ["--data-binary", &upload, "-H", "Expect:", "--limit-rate", limit, "-o", &output];
            assert_eq!(curl(&authority, "one.test", port, "/", &more), Ok(String::new()), "{mode}");
            assert!(std::fs::read(&got).expect("curl wrote it") == body, "{mode} {limit}");
        }
    }
}

#[test]
fn client_certificates_are_requested_as_configured() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (certificate, own) = (shown(&authority.issue(&["one.test"])), authority.issue(&["client.test"]));
    let expired = authority.issue_expired(&["late.test"]);
    let foreign = other.issue(&["foreign.test"]);
    let start = |line: &str| {
        let port = free_port();
        let text = format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} ca-file {} {line}\n \
             http-request return status 200 content-type text/plain lf-string \
             \"%[ssl_c_used] %[ssl_c_verify] %[ssl_c_err]\"\n",
            shown(&authority.own())
        );
        (Weir::start(&text, &[port]), port)
    };
    let ask = |port: u16, own: Option<&Path>| {
        let own = own.map(shown);
        let more: Vec<&str> = own.iter().flat_map(|own| ["--cert", own.as_str()]).collect();
        curl(&authority, "one.test", port, "/", &more).ok()
    };
    let (weir, port) = start("verify required");
    assert_eq!(ask(port, Some(&own)), Some("1 0 0".into()));
    for refused in [None, Some(&*expired), Some(&*foreign)] {
        assert_eq!(ask(port, refused), None, "{refused:?}");
    }
    let told = || weir.messages().matches("fe/1: SSL").count() == 3;
    assert!(eventually(told), "{}", weir.messages());
    let (_weir, port) = start("verify optional crt-ignore-err 10");
    assert_eq!(ask(port, None), Some("0 0 0".into()));
    assert_eq!(ask(port, Some(&expired)), Some("1 10 10".into()));
    assert_eq!(ask(port, Some(&foreign)), None);
}

#[test]
fn non_tls_connections_are_logged_and_closed() {
    let authority = Authority::new();
    let port = free_port();
    let certificate = shown(&authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate}\n timeout client 300ms\n"
    );
    let weir = Weir::start(&text, &[port]);
    let count = |what: &str| weir.messages().matches(what).count();
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").read_to_end();
    assert!(eventually(|| count("fe/1: SSL handshake failure") == 1), "{}", weir.messages());
    // Half a ClientHello, and then nothing.
    let mut client = Client::connect(port);
    client.send(b"\x16\x03\x01\x02\x00\x01").read_to_end();
    assert!(eventually(|| count("fe/1: Timeout during SSL handshake") == 1), "{}", weir.messages());
    let before = count("fe/1: Connection closed during SSL handshake");
    Client::connect(port).shut().read_to_end();
    let told = || count("fe/1: Connection closed during SSL handshake") == before + 1;
    assert!(eventually(told), "{}", weir.messages());
}

#[test]
fn proxy_header_precedes_tls() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n http-request set-src str(192.0.2.7)\n default_backend be\n\
         backend be\n server s 127.0.0.1:{inner} ssl verify none send-proxy-v2\n\
         frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {certificate} accept-proxy\n \
         http-request return status 200 content-type text/plain lf-string \"%[src] %[ssl_fc]\"\n"
    );
    let _weir = Weir::start(&text, &[port, inner]);
    assert_eq!(exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer").text(), "192.0.2.7 1");
}

#[test]
fn checks_use_tls() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (port, inner, plain) = (free_port(), free_port(), free_port());
    let ca = shown(&authority.own());
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}\
         backend connects\n default-server ssl ca-file {ca} check inter 50ms\n server up 127.0.0.1:{inner}\n \
         server wrong 127.0.0.1:{inner} verifyhost two.test\n server plain 127.0.0.1:{plain}\n \
         server other 127.0.0.1:{inner} port {plain}\n\
         backend asks\n option httpchk GET /\n server up 127.0.0.1:{inner} ssl ca-file {ca} check inter 50ms check-sni one.test\n\
         frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {certificate} strict-sni\n http-request return status 200\n\
         frontend plain\n no log\n bind 127.0.0.1:{plain}\n bind 127.0.0.1:{port}\n"
    );
    let text = text.replace(" strict-sni", "");
    let weir = Weir::start(&text, &[port, inner, plain]);
    let status = |server: &str| weir.stat(server, "check_status");
    for (server, expected) in [
        ("connects,up", "L6OK"),
        ("connects,wrong", "L6RSP"),
        ("connects,plain", "L6RSP"),
        ("connects,other", "L4OK"),
        ("asks,up", "L7OK"),
    ] {
        assert!(eventually(|| status(server) == expected), "{server}: {}", status(server));
    }
}

#[test]
fn check_sni_defaults_to_its_host_header() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let inner = free_port();
    let line = format!("127.0.0.1:{inner} ssl verify none check inter 50ms");
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}\
         backend asks\n option httpchk\n http-check send meth GET uri / ver HTTP/1.1 hdr host one.test:443\n \
         server named {line}\n server other {line} check-sni two.test\n server unnamed {line} no-check-sni-auto\n \
         default-server no-check-sni-auto\n server again {line} check-sni-auto\n\
         frontend inner\n no log\n bind 127.0.0.1:{inner} ssl crt {certificate}\n \
         http-request return status 200 if {{ ssl_fc_sni one.test }}\n \
         http-request return status 403 if {{ ssl_fc_has_sni }}\n http-request return status 404\n"
    );
    let weir = Weir::start(&text, &[inner]);
    let code = |server: &str| weir.stat(server, "check_code");
    for (server, expected) in
        [("asks,named", "200"), ("asks,other", "403"), ("asks,unnamed", "404"), ("asks,again", "200")]
    {
        assert!(eventually(|| code(server) == expected), "{server}: {}", code(server));
    }
}

#[test]
fn log_lines_show_version_and_cipher() {
    let authority = Authority::new();
    let port = free_port();
    let certificate = shown(&authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}frontend fe\n option httpslog\n bind 127.0.0.1:{port} ssl crt {certificate}\n http-request return status 200\n"
    );
    let weir = Weir::start(&text, &[port]);
    let more = ["--tls13-ciphers", "TLS_CHACHA20_POLY1305_SHA256"];
    assert!(curl(&authority, "one.test", port, "/", &more).is_ok());
    let line = "0/0000000000000000/0/0/0 one.test/TLSv1.3/TLS_CHACHA20_POLY1305_SHA256";
    assert!(weir.says(line), "{}", weir.messages());
    // The `~` marks a frontend that was reached over TLS.
    assert!(weir.says("] fe~ fe/<NOSRV> "), "{}", weir.messages());
}

#[test]
fn openssl_client_negotiates_alpn_and_resumes() {
    let authority = Authority::new();
    let port = free_port();
    let certificate = shown(&authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} alpn http/1.1,http/1.0\n"
    );
    let _weir = Weir::start(&text, &[port]);
    let session = scratch("session").file("session");
    let talk = |arguments: &[&str]| {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-CAfile", &shown(&authority.own())])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let mut input = child.stdin.take().expect("it was asked for");
        let _ = input.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let output = child.wait_with_output().expect("it ends with the connection");
        drop(input);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(talk(&["-alpn", "http/1.0"]).contains("ALPN protocol: http/1.0"));
    // Without a common protocol the handshake still succeeds.
    let other = talk(&["-alpn", "gopher"]);
    assert!(other.contains("No ALPN negotiated") && other.contains("Verify return code: 0"), "{other}");
    for version in ["-tls1_2", "-tls1_3"] {
        let file = shown(&session);
        assert!(talk(&[version, "-sess_out", &file]).contains("New, "), "{version}");
        assert!(talk(&[version, "-sess_in", &file]).contains("Reused, "), "{version}");
    }
}

#[test]
fn unusable_certificates_are_refused_with_their_file() {
    let authority = Authority::new();
    let directory = scratch("tls-errors");
    let write = |name: &str, text: &[u8]| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("the directory takes files");
        shown(&path)
    };
    let read = |path: &Path| std::fs::read(path).expect("it was made");
    let (one, two) = (authority.issue(&["one.test"]), authority.issue(&["two.test"]));
    let without_key = write("nokey.pem", &read(&one.with_extension("crt")));
    let mismatched =
        write("mismatch.pem", &[read(&one.with_extension("crt")), read(&two.with_extension("key"))].concat());
    let garbage = write("garbage.pem", b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n");
    let good = shown(&one);
    let (no_files, no_lines) = (directory.join("none"), write("none.list", b"# nothing\n"));
    std::fs::create_dir(&no_files).expect("the directory takes others");
    let unverified = write("unverified.list", format!("{good} [verify required]\n").as_bytes());
    for (line, cause) in [
        ("ssl".to_owned(), "no SSL certificate specified"),
        (
            format!("ssl crt {}", shown(&no_files)),
            "no SSL certificate specified for bind '127.0.0.1:65000' at [",
        ),
        (format!("ssl crt-list {no_lines}"), "no SSL certificate specified for bind '127.0.0.1:65000' at ["),
        (format!("ssl crt {good} verify required"), "verify is enabled but no CA file specified for bind"),
        (format!("ssl crt {good} verify optional"), "verify is enabled but no CA file specified for bind"),
        (format!("ssl crt-list {unverified}"), "verify is enabled but no CA file specified"),
        (format!("ssl crt {without_key}"), "No Private Key found"),
        (format!("ssl crt {mismatched}"), "inconsistencies between private key and certificate"),
        (format!("ssl crt {garbage}"), "garbage.pem': PEM block with invalid base64 at line 1"),
        ("ssl crt /does/not/exist.pem".to_owned(), "/does/not/exist.pem"),
        (format!("ssl crt {good} ciphersuites TLS_NOTHING"), "TLS_NOTHING"),
        (format!("ssl crt {good} ciphers RC4-MD5"), "RC4-MD5"),
        (format!("ssl crt {good} ssl-min-ver TLSv2"), "unknown ssl/tls version"),
        (format!("ssl crt {good} verify required ca-file /none.pem"), "/none.pem"),
    ] {
        let file = write(
            "weir.cfg",
            format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:0 {line}\n").replace(":0 ", ":65000 ").as_bytes(),
        );
        let verdict = check(Path::new(&file), &directory);
        assert!(!verdict.accepted(), "{line}");
        assert!(verdict.alerts().iter().any(|alert| alert.contains(cause)), "{line}: {:?}", verdict.alerts());
    }
}

#[test]
fn strict_sni_line_may_get_its_first_certificate_later() {
    let authority = Authority::new();
    let directory = scratch("tls-later");
    let (list, port) = (directory.join("list"), free_port());
    std::fs::write(&list, "").expect("the directory takes files");
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl strict-sni crt-list {}\n \
         http-request return status 200 content-type text/plain string ok\n",
        shown(&list)
    );
    let weir = Weir::start(&text, &[port]);
    assert!(weir.says(", ssl connections will fail (use 'crt')."), "{}", weir.messages());
    assert!(curl(&authority, "one.test", port, "/", &[]).is_err());
    let name = shown(&authority.issue(&["one.test"]));
    weir.ask(&format!("new ssl cert {name}"));
    let pem = std::fs::read_to_string(&name).expect("it was made");
    weir.ask(&format!("set ssl cert {name} <<\n{}\n", pem.trim()));
    weir.ask(&format!("commit ssl cert {name}"));
    let added = weir.ask(&format!("add ssl crt-list {} {name}", shown(&list)));
    assert!(added.contains("Success!"), "{added}");
    assert_eq!(curl(&authority, "one.test", port, "/", &[]).as_deref(), Ok("ok"));
}

#[test]
fn truncated_tls_body_without_length_is_an_error() {
    let authority = Authority::new();
    let (port, server) = (free_port(), free_port());
    let mut origin = OpensslServer::start(server, &authority.issue(&["one.test"]), &["-quiet"]);
    let text = format!(
        "{DEFAULTS}listen l\n bind 127.0.0.1:{port}\n retries 20\n server s 127.0.0.1:{server} ssl verify none\n"
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.send(b"HTTP/1.1 200 OK\r\n\r\nhalf of it");
    assert!(client.read_head().starts_with("HTTP/1.1 200"));
    drop(origin);
    client.read_to_end();
    assert!(weir.says(" SD-- "), "{}", weir.messages());
}
