//! The data sent by checks, and the evaluation of responses.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{backend, fake, greeter, load, nobody, once, told, until, worker};

type Told<'a> = (&'a str, Option<i32>, &'a str);

#[test]
fn each_answer_to_an_http_check_has_haproxys_result() {
    const OK: &[u8] = b"HTTP/1.0 200 OK\r\nA: b, c\r\nX-Two: 1\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    const NO_BODY: &[u8] = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n";
    const DID_NOT: &str = "HTTP content check did not match";
    const NONE: &str = "HTTP content check could not find a response body";
    const BAD_CHUNK: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc";
    const CODES: &str = "TCPCHK did not match content(status codes) at step 2";
    #[rustfmt::skip]
    let cases: &[(Option<&'static [u8]>, &str, Told<'_>)] = &[
        (Some(b"HTTP/1.0 200 OK\r\n\r\n"),                   "",                              ("L7OK", Some(200), "")),
        (Some(b"HTTP/1.0 302 Found\nA: b\n\n"),              "",                              ("L7OK", Some(302), "")),
        (Some(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 N\r\n\r\n"), "",                           ("L7OK", Some(204), "")),
        (Some(b"HTTP/1.0 404 Not Found\r\n\r\n"),            "",                              ("L7STS", Some(404), "Not Found")),
        (Some(b"HTTP/1.0 404 Not Found\r\n\r\n"),            "disable-on-404",                ("L7OKC", Some(404), "")),
        (Some(b"garbage\r\n\r\n"),                           "",                              ("SOCKERR", None, "")),
        (Some(b""),                                          "",                              ("SOCKERR", None, "")),
        (Some(b"HTTP/1.0 200"),                              "",                              ("SOCKERR", None, "")),
        (Some(b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"),    "",                              ("SOCKERR", None, "")),
        (Some(BAD_CHUNK),                                    "",                              ("L7RSP", None, CODES)),
        (None,                                               "",                              ("L7TOUT", None, "")),
        (None,                                               "expect tout-status L4TOUT status 200", ("L4TOUT", None, "")),
        (Some(b"HTTP/1.0 503 X\r\n\r\n"),                    "expect status 200,500-503",     ("L7OK", Some(503), "")),
        (Some(OK),                                           "expect ! status 200",           ("L7STS", Some(200), "OK")),
        (Some(OK),                                           "expect !status 200 comment no", ("L7STS", Some(200), "OK comment: no")),
        (Some(OK),                                           "expect rstatus ^20[0-5]$",      ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect string ell",             ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect string nope",            ("L7RSP", None, DID_NOT)),
        (Some(OK),                                           "expect rstring l+o$",           ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect ! rstring l+o",          ("L7RSP", None, "HTTP check matched unwanted content")),
        (Some(OK),                                           "expect string-lf %[str(hell)]o", ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect string-lf %[var(check.x)]", ("L7RSP", None, "log-format string evaluated to an empty string")),
        (Some(NO_BODY),                                      "expect string x",               ("L7RSP", None, NONE)),
        (Some(CHUNKED),                                      "expect string hello",           ("L7OK", Some(200), "")),
        (Some(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello"), "expect ! rstring l+o",  ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect hdr name a value c",     ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect fhdr name a value c",    ("L7STS", Some(200), "OK")),
        (Some(OK),                                           "expect fhdr name A value -m end \", c\"", ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect hdr name -m beg x- value -m reg [0-9]", ("L7OK", Some(200), "")),
        (Some(OK),                                           "expect ! hdr name x-two",       ("L7STS", Some(200), "OK")),
        (Some(OK),                                           "expect error-status L7OKC ! status 200", ("L7OKC", Some(200), "OK")),
        (Some(OK),                                           "expect ok-status L4OK status 200", ("L4OK", None, "")),
        (Some(OK),                                           "expect on-success \"%[res.hdr(x-two)] on %[srv_name]\" status-code int(7) status 200", ("L7OK", Some(7), "1 on s1")),
        (Some(OK),                                           "expect on-error %[be_name] status 500", ("L7STS", Some(200), "be")),
    ];
    worker(async {
        for (answer, line, wanted) in cases {
            let (address, heard) = fake(*answer).await;
            let line = if line.is_empty() { String::new() } else { format!("http-check {line}") };
            let (checks, _) = backend(&format!("option httpchk\n {line}"), address, "");
            let outcome = once(&checks).await;
            assert_eq!(told(&outcome), *wanted, "{line} {:?}", answer.map(String::from_utf8_lossy));
            assert_eq!(heard.borrow()[0], "OPTIONS / HTTP/1.0\r\n\r\n");
        }
        let (checks, _) = backend("option httpchk", nobody(), "");
        assert_eq!(
            told(&once(&checks).await),
            ("L4CON", None, "ECONNREFUSED returned by OS (Connection refused)")
        );
    });
}

#[test]
fn requests_have_the_configured_content_and_server_state() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.1 200 OK\r\n\r\n")).await;
        let lines = "option httpchk GET /up HTTP/1.1 example.org\n http-check send-state\n \
                     http-check send meth POST hdr host %[srv_name].example.org hdr X-Empty %[var(check.none)] \
                     hdr content-length 7 body-lf b%[str(o)]dy";
        let (checks, _) = backend(lines, address, "");
        once(&checks).await;
        let port = address.port();
        assert_eq!(
            heard.borrow()[0],
            format!(
                "POST /up HTTP/1.1\r\nhost: s1.example.org\r\nx-haproxy-server-state: UP 1/3; address=127.0.0.1; \
                 port={port}; name=be/s1; node=n1; weight=1/1; scur=0/0; qcur=0\r\n\
                 content-length: 4\r\nconnection: close\r\n\r\nbody"
            )
        );
        let (checks, _) = backend("option httpchk", address, "check-send-proxy");
        once(&checks).await;
        let heard = heard.borrow();
        assert!(heard[1].starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{}", heard[1]);
    });
}

#[test]
fn stable_states_are_sent_without_numbers() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.1 200 OK\r\n\r\n")).await;
        let (checks, _) = backend("option httpchk\n http-check send-state", address, "");
        let server = checks.subjects[0].server();
        for level in [0, 1, 2, 3, 4] {
            server.health.level.store(level, Relaxed);
            once(&checks).await;
        }
        let state = |head: &String| {
            let line = head.lines().find(|line| line.starts_with("x-haproxy-server-state: "));
            let words = line.and_then(|line| line.split_once(": ")).map_or("", |(_, words)| words);
            words.split(';').next().unwrap_or_default().to_owned()
        };
        let states: Vec<String> = heard.borrow().iter().map(state).collect();
        // Two successes bring the server up, three failures take it down.
        assert_eq!(states, ["DOWN", "DOWN 1/2", "UP 1/3", "UP 2/3", "UP"]);
    });
}

#[test]
fn proxy_headers_of_checks_use_local_unless_disabled() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.1 200 OK\r\n\r\n")).await;
        for global in ["", " pp2-never-send-local\n"] {
            let server = format!("server s1 {address} check send-proxy-v2");
            let (checks, _) = load(&format!("global\n{global}backend be\n timeout connect 1s\n {server}\n"));
            once(&checks).await;
        }
        until(|| heard.borrow().len() == 2).await;
        // After the signature: version and command, family, length (PROXY protocol, 2.2).
        let (signature, local, proxied) = ("\r\n\r\n\0\r\nQUIT\n", "\x20\0\0\0", "\x21\x11\0\x0c");
        let heard = heard.borrow();
        assert_eq!(heard[0], format!("{signature}{local}"));
        assert!(
            heard[1].starts_with(&format!("{signature}{proxied}\x7f\0\0\x01\x7f\0\0\x01")),
            "{:?}",
            heard[1]
        );
    });
}

#[test]
fn absolute_targets_use_the_host_field() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.1 200 OK\r\n\r\n")).await;
        let (checks, _) = backend("option httpchk GET http://old:1/x HTTP/1.1 new.example", address, "");
        once(&checks).await;
        assert!(heard.borrow()[0].starts_with("GET http://new.example/x HTTP/1.1\r\nhost: new.example\r\n"));
    });
}

#[test]
fn connections_and_scripts_have_haproxys_results() {
    const DID_NOT: &str = "TCPCHK did not match content";
    #[rustfmt::skip]
    let cases: &[(Option<&'static [u8]>, &str, Told<'_>)] = &[
        (None,           "",                                               ("L4OK", None, "")),
        (None,           "comment x\ncomment y",                           ("L4OK", None, "")),
        (None,           "connect",                                        ("L4OK", None, "(tcp-check)")),
        (Some(b"hello"), "send GET",                                       ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"hello"), "send GET\nexpect string hello",                  ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"hello"), "send GET\nexpect string nope",                   ("L7RSP", None, "TCPCHK did not match content 'nope' at step 2")),
        (Some(b"hello"), "send GET\nexpect ! string hell",                 ("L7RSP", None, "TCPCHK matched unwanted content 'hell' at step 2")),
        (Some(b"hello"), "send GET\ncomment mine\nexpect string nope",     ("L7RSP", None, "TCPCHK did not match content 'nope' at step 3 comment: mine")),
        (Some(b""),      "send GET\nexpect string x",                      ("L7RSP", None, "TCPCHK got an empty response at step 2")),
        (None,           "send GET\nexpect string nope",                   ("L7TOUT", None, " at step 2 of tcp-check (expect string 'nope')")),
        (None,           "send GET\nexpect binary 0a0B comment c",         ("L7TOUT", None, " at step 2 of tcp-check (expect binary '0A0B') comment: 'c'")),
        (Some(b"hello"), "send GET\nexpect ! string nope",                 ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"hello"), "send GET\nexpect min-recv 3 string nope",        ("L7RSP", None, "TCPCHK did not match content 'nope' at step 2")),
        (Some(b"abc"),   "send GET\nexpect rstring ^a.c$",                 ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"abc"),   "send GET\nexpect rbinary ^61..63$",              ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"abc"),   "send GET\nexpect rbinary ^62",                   ("L7RSP", None, "TCPCHK did not match content (binary regex) at step 2")),
        (Some(b"abc"),   "send GET\nexpect binary 6263",                   ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"abc"),   "send GET\nexpect binary-lf %[str(bc),hex]",      ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"abc"),   "send GET\nexpect binary-lf 6x",                  ("L7RSP", None, "Failed to parse hexastring resulting of eval of a log-format string")),
        (Some(b"abc"),   "set-var(check.x) str(bc)\nsend GET\nexpect string-lf %[var(check.x)]", ("L7OK", Some(0), "(tcp-check)")),
        (Some(b"abc"),   "send-binary-lf x\nexpect string a",              ("L7RSP", None, "tcp-check send : failed to build log-format string at step 1")),
        (Some(b"abc"),   "send GET\nexpect error-status L7STS on-error \"%[res.payload(1,0)]!\" status-code int(9) string x", ("L7STS", Some(9), "bc!")),
        (Some(b"abc"),   "send GET\nexpect string a\nexpect string c",     ("L7OK", Some(0), "(tcp-check)")),
    ];
    worker(async {
        for (answer, lines, wanted) in cases {
            let (address, _) = fake(*answer).await;
            let lines: String = lines
                .split('\n')
                .filter(|line| !line.is_empty())
                .map(|line| format!("\n tcp-check {line}"))
                .collect();
            let (checks, _) = backend(&format!("option tcp-check{lines}"), address, "");
            assert_eq!(told(&once(&checks).await), *wanted, "{lines} {DID_NOT}");
        }
    });
}

#[test]
fn bytes_and_formats_can_be_sent() {
    worker(async {
        for (line, wanted) in [
            ("send a\\tb", "a\tb"),
            ("send-lf %[be_name]/%[srv_name]", "be/s1"),
            ("send-binary 6162", "ab"),
            ("send-binary-lf %[str(xy),hex]", "xy"),
        ] {
            let (address, heard) = fake(Some(b"ok")).await;
            let lines = format!("option tcp-check\n tcp-check {line}\n tcp-check expect string ok");
            assert_eq!(once(&backend(&lines, address, "").0).await.status, "L7OK", "{line}");
            assert_eq!(heard.borrow()[0], wanted);
        }
    });
}

#[test]
fn the_most_specific_address_and_port_are_used() {
    worker(async {
        let (good, _) = fake(None).await;
        let (bad, port) = (nobody(), nobody().port());
        #[rustfmt::skip]
        let cases = [
            ("".to_owned(),                                 good, "".to_owned(),                         "L4OK"),
            ("".to_owned(),                                 good, format!("port {port}"),                "L4CON"),
            ("".to_owned(),                                 bad,  format!("addr {good}"),                "L4OK"),
            (format!("tcp-check connect port {port}"),      good, "".to_owned(),                         "L4CON"),
            (format!("tcp-check connect addr {good}"),      bad,  format!("port {port}"),                "L4OK"),
            (format!("tcp-check connect addr 127.0.0.1 port {}", good.port()), bad, format!("port {port}"), "L4OK"),
            (format!("tcp-check connect port int({})", good.port()), bad, "".to_owned(),                 "L4OK"),
            (format!("tcp-check set-var(check.p) int({})\n tcp-check connect port var(check.p)", good.port()), bad, "".to_owned(), "L4OK"),
        ];
        for (lines, server, more, status) in cases {
            let (checks, _) = backend(&format!("option tcp-check\n {lines}"), server, &more);
            assert_eq!(once(&checks).await.status, status, "{lines} {more}");
        }
        let (checks, _) = backend("", good, "");
        checks.subjects[0].server().health.port.store(u32::from(port), Relaxed);
        assert_eq!(once(&checks).await.status, "L4CON", "the port set at run time counts");
        let (checks, _) = backend("", good, "");
        let health = &checks.subjects[0].server().health;
        health.address.store(Some(Arc::new([127, 0, 0, 9].into())));
        assert_eq!(once(&checks).await.status, "L4CON", "the address set at run time counts");
        let (checks, _) = backend("", good, &format!("port {port}"));
        checks.subjects[0].server().health.port.store(0, Relaxed);
        assert_eq!(once(&checks).await.status, "L4OK", "without a port of its own it is the server's");
        let (checks, _) = backend(&format!("option tcp-check\n tcp-check connect port {port}"), good, "");
        let text = format!(
            "ECONNREFUSED returned by OS (Connection refused) at step 1 of tcp-check (connect port {port})"
        );
        assert_eq!(told(&once(&checks).await), ("L4CON", None, text.as_str()));
        let (checks, _) = backend("option tcp-check", bad, "");
        let text = "ECONNREFUSED returned by OS (Connection refused) at initial connection step of tcp-check";
        assert_eq!(told(&once(&checks).await), ("L4CON", None, text));
    });
}

#[test]
fn scripts_may_use_several_connections() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.0 200 OK\r\nX: /b\r\n\r\n")).await;
        let lines = "option httpchk\n http-check connect\n http-check send meth GET uri /a\n \
                     http-check expect status 200\n http-check set-var(check.next) res.hdr(x)\n \
                     http-check connect\n http-check send uri-lf %[var(check.next)]";
        assert_eq!(told(&once(&backend(lines, address, "").0).await), ("L7OK", Some(200), ""));
        assert_eq!(*heard.borrow(), ["GET /a HTTP/1.0\r\n\r\n", "OPTIONS /b HTTP/1.0\r\n\r\n"]);
    });
}

#[test]
fn protocol_results_match_haproxy() {
    #[rustfmt::skip]
    let cases: &[(&str, &'static [u8], Told<'_>)] = &[
        ("option redis-check",        b"+PONG\r\n",                               ("L7OK", Some(0), "Redis server is ok")),
        ("option redis-check",        b"-NOAUTH Authentication required.\r\nx",   ("L7TOUT", None, "")),
        ("option pgsql-check user u", b"R\0\0\0\x08\0\0\0\0",                     ("L7OK", Some(0), "PostgreSQL server is ok")),
        ("option pgsql-check user u", b"E\0\0\0\x0bSFATAL\0",                     ("L7RSP", None, "FATAL")),
        ("option pgsql-check user u", b"neither this nor that",                   ("L7STS", Some(0), "PostgreSQL unknown error")),
        ("option mysql-check",        b"\x05\0\0\0\x0a8.0\0",                     ("L7OK", Some(0), "8.0")),
        ("option mysql-check",        b"\x08\0\0\0\xff\x69\x04Host'",             ("L7STS", Some(1129), "Host'")),
        ("option ldap-check",         b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00", ("L7OK", Some(0), "Success")),
        ("option ldap-check",         b"not at all, not at all",                  ("L7RSP", None, "Not LDAPv3 protocol")),
        ("option ssl-hello-chk",      b"\x15\x03\x01\x00\x02\x02\x28",            ("L6OK", None, "")),
        ("option ssl-hello-chk",      b"HTTP/1.0 400 Bad",                        ("L6RSP", None, "")),
        ("option ssl-hello-chk",      b"",                                        ("L6TOUT", None, "")),
        ("option smtpchk",            b"421 Later\r\n",                           ("L7STS", Some(421), "Later")),
        ("option smtpchk",            b"hello there\r\n",                         ("L7RSP", None, "hello there")),
    ];
    worker(async {
        for (option, answer, wanted) in cases {
            let outcome = once(&backend(option, greeter(answer).await, "").0).await;
            assert_eq!(told(&outcome), *wanted, "{option} {}", String::from_utf8_lossy(answer));
        }
    });
}

#[test]
fn a_healthcheck_section_replaces_the_check_of_the_backend() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.1 204 N\r\n\r\n")).await;
        let (checks, _) = load(&format!(
            "healthcheck h\n http-check send meth GET\n type httpchk HEAD /h HTTP/1.1\n\
             backend be\n timeout check 1s\n option redis-check\n server s1 {address} check healthcheck h\n"
        ));
        assert_eq!(told(&once(&checks).await), ("L7OK", Some(204), ""));
        assert_eq!(heard.borrow()[0], "HEAD /h HTTP/1.1\r\nconnection: close\r\n\r\n");
    });
}

#[test]
fn external_programs_get_server_data_and_decide() {
    worker(async {
        let directory = scratch::Scratch::new("external");
        let (program, seen) = (directory.join("check"), directory.join("seen"));
        let body = format!(
            "#!/bin/sh\n[ \"$HAPROXY_SERVER_NAME\" = slow ] && exec /bin/sleep 60\n\
             echo \"$* $HAPROXY_PROXY_NAME $HAPROXY_SERVER_NAME $HAPROXY_SERVER_PORT $PATH\" >{}\n\
             [ \"$HAPROXY_SERVER_NAME\" = good ] || exit 3\n",
            seen.display()
        );
        std::fs::write(&program, body).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |name: &'static str, global: &'static str| {
            let text = format!(
                "global\n external-check\n {global}\nbackend be\n option external-check\n external-check command {}\n \
                 external-check path /bin:/usr/bin\n server {name} 127.0.0.1:81 check inter 2s\n",
                program.display()
            );
            async move {
                once(
                    &load(&text.replace("inter 2s", if name == "slow" { "inter 50ms" } else { "inter 10s" }))
                        .0,
                )
                .await
            }
        };
        assert_eq!(told(&run("good", "insecure-fork-wanted").await), ("PROCOK", Some(0), ""));
        let seen = std::fs::read_to_string(&seen).unwrap();
        assert_eq!(seen, "NOT_USED NOT_USED 127.0.0.1 81 be good 81 /bin:/usr/bin\n");
        assert_eq!(told(&run("bad", "insecure-fork-wanted").await), ("PROCERR", Some(3), ""));
        assert_eq!(told(&run("slow", "insecure-fork-wanted").await), ("PROCTOUT", Some(0), ""));
        assert_eq!(run("good", "").await.status, "SOCKERR");
        std::fs::remove_file(&program).unwrap();
        let gone = run("good", "insecure-fork-wanted").await;
        assert_eq!(told(&gone), ("PROCERR", Some(255), "No such file or directory"));
    });
}

#[test]
fn a_socks4_proxy_is_asked_first() {
    worker(async {
        let (proxy, heard) = fake(Some(b"\x00\x5a\0\0\0\0\0\0")).await;
        let (checks, _) =
            backend("", "127.0.0.1:80".parse().unwrap(), &format!("socks4 {proxy} check-via-socks4"));
        assert_eq!(told(&once(&checks).await), ("L4OK", None, ""));
        assert_eq!(heard.borrow()[0].as_bytes(), b"\x04\x01\x00\x50\x7f\x00\x00\x01HAProxy\0");
        let (proxy, _) = fake(Some(b"\x00\x5b\0\0\0\0\0\0")).await;
        let (checks, _) =
            backend("", "127.0.0.1:80".parse().unwrap(), &format!("socks4 {proxy} check-via-socks4"));
        assert_eq!(told(&once(&checks).await), ("L4CON", None, "connection refused"));
    });
}
