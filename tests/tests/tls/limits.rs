//! Limits that only apply to TLS connections (`maxsslconn`, `maxsslrate`), and session resumption with servers (`tls-tickets`).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use weir_tests::client::{self, Client};
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, eventually, free_port};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 20s\n timeout server 20s\n timeout connect 20s\n retries 0\n";

/// Returns a number of `show info`.
fn fact(weir: &Weir, name: &str) -> u64 {
    let info = weir.ask("show info");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {info}"))
}

/// A TLS connection that stays open until the value is dropped.
struct Held(Child);

impl Held {
    fn open(port: u16) -> Self {
        let child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs: `make tools` installs it");
        Self(child)
    }

    /// Requests a page and waits for the beginning of the response.
    fn ask(&mut self) -> String {
        let stdin = self.0.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("it reads");
        let mut answer = [0; 15];
        self.0.stdout.as_mut().expect("a pipe").read_exact(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(global: &str, certificate: &str, [secured, plain]: [u16; 2], more: &str) -> Weir {
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n{global}{DEFAULTS}frontend fe\n bind 127.0.0.1:{secured} ssl crt {certificate}\n \
         bind 127.0.0.1:{plain}\n http-request return status 200 unless {{ path /server }}\n default_backend be\n{more}"
    );
    let weir = Weir::start(&text, &[plain]);
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    weir
}

#[test]
fn tls_clients_beyond_maxsslconn_wait_and_others_do_not() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (secured, plain) = (free_port(), free_port());
    let weir = start(" maxsslconn 2\n", &certificate, [secured, plain], "backend be\n");
    assert_eq!((fact(&weir, "MaxSslConns"), fact(&weir, "CurrSslConns")), (2, 0));
    let mut held: Vec<Held> = (0..2).map(|_| Held::open(secured)).collect();
    for one in &mut held {
        assert_eq!(one.ask(), "HTTP/1.1 200 OK");
    }
    assert_eq!(fact(&weir, "CurrSslConns"), 2);
    let mut third = Held::open(secured);
    // Plain-text clients are served in the meantime, TLS clients are not.
    for _ in 0..3 {
        assert_eq!(client::get(plain, "/").map(|answer| answer.status), Some(200));
    }
    assert_eq!((fact(&weir, "CurrSslConns"), fact(&weir, "CumSslConns")), (2, 2));
    held.pop();
    assert_eq!(third.ask(), "HTTP/1.1 200 OK");
    assert_eq!(fact(&weir, "CumSslConns"), 3);
}

#[test]
fn server_connections_count_as_tls_connections() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (secured, plain, inner) = (free_port(), free_port(), free_port());
    let origin = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{inner} ssl crt {certificate}\n http-request return status 200\n"
        ),
        &[inner],
    );
    let more = format!(
        "backend be\n log stderr format raw local0\n server s 127.0.0.1:{inner} ssl verify none\n\
         backend checked\n server c 127.0.0.1:{inner} ssl verify none check inter 50ms\n"
    );
    let weir = start(" maxsslconn 1\n", &certificate, [secured, plain], &more);
    let mut held = Held::open(secured);
    assert_eq!(held.ask(), "HTTP/1.1 200 OK");
    assert_eq!(client::get(plain, "/server").map(|answer| answer.status), Some(500), "{}", weir.messages());
    let checked = || {
        weir.ask("show stat").lines().any(|line| line.starts_with("checked,c,") && line.contains("SOCKERR"))
    };
    assert!(eventually(checked), "{}", weir.ask("show stat"));
    drop(held);
    assert!(
        eventually(|| client::get(plain, "/server").is_some_and(|answer| answer.status == 200)),
        "{}",
        weir.messages()
    );
    drop(origin);
}

#[test]
fn maxsslrate_limits_new_tls_connections() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (secured, plain) = (free_port(), free_port());
    let weir = start(" nbthread 1\n maxsslrate 2\n", &certificate, [secured, plain], "backend be\n");
    assert_eq!(fact(&weir, "SslRateLimit"), 2);
    for _ in 0..5 {
        assert_eq!(Held::open(secured).ask(), "HTTP/1.1 200 OK");
    }
    let most = fact(&weir, "MaxSslRate");
    assert!((1..=2).contains(&most), "{most}");
    // Plain-text clients are not delayed.
    for _ in 0..20 {
        assert_eq!(client::get(plain, "/").map(|answer| answer.status), Some(200));
    }
    assert_eq!(fact(&weir, "MaxSslRate"), most);
    assert_eq!(weir.ask("set rate-limit ssl-sessions global 7").trim(), "");
    assert_eq!(fact(&weir, "SslRateLimit"), 7);
    assert!(weir.ask("set rate-limit ssl-sessions local 7").contains("'ssl-sessions global'"));
    assert!(weir.ask("set rate-limit ssl-sessions global").contains("Expects an integer value."));
    assert_eq!(weir.ask("set rate-limit ssl-sessions global 0").trim(), "");
    for _ in 0..20 {
        assert_eq!(Held::open(secured).ask(), "HTTP/1.1 200 OK");
    }
}

/// Returns the extensions of the ClientHello sent for a server line with these options.
fn extensions(global: &str, words: &str) -> Vec<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let inner = listener.local_addr().expect("a bound socket").port();
    let port = free_port();
    let text = format!(
        "{global}{DEFAULTS}listen l\n bind 127.0.0.1:{port}\n server s 127.0.0.1:{inner} ssl verify none {words}\n"
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(weir_tests::PATIENCE)).expect("a socket");
    let mut header = [0; 5];
    stream.read_exact(&mut header).expect("a record");
    let mut record = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    stream.read_exact(&mut record).expect("a ClientHello");
    // After type, length, version and random: session id, cipher suites, compression methods, extensions.
    let mut rest = &record[4 + 2 + 32..];
    rest = &rest[1 + usize::from(rest[0])..];
    rest = &rest[2 + usize::from(u16::from_be_bytes([rest[0], rest[1]]))..];
    rest = &rest[1 + usize::from(rest[0]) + 2..];
    let mut found = Vec::new();
    while let [a, b, c, d, behind @ ..] = rest {
        found.push(u16::from_be_bytes([*a, *b]));
        rest = &behind[usize::from(u16::from_be_bytes([*c, *d]))..];
    }
    found
}

#[test]
fn tickets_are_requested_from_servers_unless_disabled() {
    const SESSION_TICKET: u16 = 35;
    const OLD: &str = "ssl-max-ver TLSv1.2";
    for (global, words, asks) in [
        ("", "", true),
        ("", "tls-tickets", true),
        ("", "no-tls-tickets", false),
        ("", "no-tls-tickets tls-tickets", true),
        ("", "no-tls-tickets ciphers DHE-RSA-AES128-SHA", false),
        ("", "ciphers DHE-RSA-AES128-SHA", true),
        ("global\n ssl-default-server-options no-tls-tickets\n", "", false),
        ("global\n ssl-default-server-options no-tls-tickets\n", "tls-tickets", true),
    ] {
        let found = extensions(global, &format!("{OLD} {words}"));
        assert_eq!(found.contains(&SESSION_TICKET), asks, "{global} {words}: {found:?}");
    }
}
