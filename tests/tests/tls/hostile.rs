//! Misbehaving TLS clients, which send something else than a handshake, or invalid records after one: they get HAProxy's alert and
//! log line, and leave no state behind.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tls::connector::Connecting;
use tls::{Connector, Parameters, Session, TLS12, TLS13};
use weir_tests::client::Client;
use weir_tests::tls::{asked, certificate_fact, handshake, shown};
use weir_tests::{Authority, Weir, eventually, free_port, scratch};

const DEFAULTS: &str = "global\n stats socket runtime level admin\n log stderr local0\n\
                        defaults\n mode http\n log global\n option httpslog\n timeout client 10s\n \
                        timeout server 10s\n timeout connect 3s\n";

fn start(authority: &Authority, more: &str) -> (Weir, u16) {
    let (port, certificate) = (free_port(), shown(&authority.issue(&["one.test"])));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} {more}\n \
         http-request return status 200\n"
    );
    (Weir::start(&text, &[port]), port)
}

/// Returns a handshake record with a ClientHello without extensions.
fn hello(version: u16, suites: &[u16]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    body.extend([0x11; 32]);
    body.push(0);
    body.extend(((2 * suites.len()) as u16).to_be_bytes());
    body.extend(suites.iter().flat_map(|suite| suite.to_be_bytes()));
    body.extend([1, 0]);
    let mut record = vec![22, 3, 1];
    record.extend(((4 + body.len()) as u16).to_be_bytes());
    record.extend([1, 0]);
    record.extend((body.len() as u16).to_be_bytes());
    record.extend(body);
    record
}

/// Waits until the process has no TLS connection left.
fn forgets_all(weir: &Weir) {
    let none = || weir.ask("show info").lines().any(|line| line == "CurrSslConns: 0");
    assert!(eventually(none), "{}", weir.ask("show info"));
}

#[test]
fn invalid_handshakes_get_haproxys_alert_and_log_line() {
    let authority = Authority::new();
    let (weir, port) = start(&authority, "");
    let oversize = [&[22, 3, 1, 0xff, 0xff, 1, 0, 0, 0][..], &[0; 100]].concat();
    let endless = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[b'a'; 16_380]].concat();
    #[rustfmt::skip]
    let cases: &[(&str, &[u8], Option<u8>, &str)] = &[
        ("HTTP",            b"GET / HTTP/1.1\r\n\r\n",              None,     " (error:0A00009C:SSL routines::http request)\n"),
        ("a proxy's",       b"CONNECT a:443 HTTP/1.1\r\n\r\n",      None,     " (error:0A00009B:SSL routines::https proxy request)\n"),
        ("garbage",         &[0xc8; 200],                           Some(70), " (error:0A00010B:SSL routines::wrong version number)\n"),
        ("nothing but 0",   &[0; 200],                              Some(70), " (error:0A00010B:SSL routines::wrong version number)\n"),
        ("a PROXY header",  b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",  Some(70), " (error:0A00010B:SSL routines::wrong version number)\n"),
        ("SSL 3.0",         &hello(0x300, &[0x2f, 0x35, 0x0a]),     Some(40), " (error:0A00018C:SSL routines::version too low)\n"),
        ("TLS 1.0",         &hello(0x301, &[0xc009, 0xc013, 0x2f]), Some(70), " (error:0A000102:SSL routines::unsupported protocol) (`ssl-min-ver TLSv1.0` on the bind line would allow it)\n"),
        ("old suites",      &hello(0x303, &[0x2f]),                 Some(40), " (error:0A0000C1:SSL routines::no shared cipher) (`no-tlsv13` with AES128-SHA among the `ciphers` of the bind line would allow it)\n"),
        ("a record of 64K", &oversize,                              Some(22), " (error:0A0000C6:SSL routines::packet length too long)\n"),
        ("a hello of 16M",  &endless,                               Some(22), " (error:0A0000C6:SSL routines::packet length too long)\n"),
        ("data",            b"\x17\x03\x03\x00\x05hello",           Some(10), " (error:0A0000F4:SSL routines::unexpected message)\n"),
        ("an alert",        b"\x15\x03\x01\x00\x02\x02\x28",        Some(10), " (error:0A0000F4:SSL routines::unexpected message)\n"),
        ("a change of keys", b"\x14\x03\x01\x00\x01\x01",           Some(10), " (error:0A0000F4:SSL routines::unexpected message)\n"),
    ];
    for (what, sent, alert, line) in cases {
        let line = format!("fe/1: SSL handshake failure{line}");
        let before = weir.messages().matches(&line).count();
        let mut client = Client::connect(port);
        let got = client.send(sent).read_to_end();
        let expected = alert.map_or(Vec::new(), |alert| vec![21, 3, 3, 0, 2, 2, alert]);
        assert_eq!(got, expected, "{what}");
        let told = || weir.messages().matches(&line).count() == before + 1;
        assert!(eventually(told), "{what}: {line}{}", weir.messages());
    }
    forgets_all(&weir);
    assert!(handshake(port, &[]).contains("CONNECTED"));
}

/// A client with a TLS session separate from its socket.
struct Apart {
    stream: TcpStream,
    session: Session,
}

impl Apart {
    fn connect(port: u16, version: u16) -> Self {
        let parameters = Parameters { min: version, max: version, ..Parameters::default() };
        let connecting = Connecting { parameters, ..Connecting::default() };
        let connector: Arc<Connector> = Arc::new(Connector::new(&connecting).expect("its words are good"));
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
        let session = Session::connect(&connector, Some("one.test")).expect("a hello can be made");
        let mut client = Self { stream, session };
        let (mut received, mut room) = (0, [0; 20_000]);
        while !client.session.handshake(&room[..received]).expect("the handshake goes on") {
            client.speak();
            received = client.stream.read(&mut room).expect("it answers");
        }
        client.speak();
        client
    }

    fn speak(&mut self) {
        let unsent = self.session.unsent().to_vec();
        self.session.sent(unsent.len());
        self.stream.write_all(&unsent).expect("it is taken");
    }

    fn seal(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 20_000];
        let (_, sealed) = self.session.seal(text, &[], &mut out).expect("it can be sealed");
        out.truncate(sealed);
        out
    }

    /// Returns everything received until the end, and the alert that ended the connection.
    fn rest(mut self) -> (String, Option<tls::Reason>) {
        let (mut text, mut room) = (String::new(), vec![0; 40_000]);
        let mut bytes = vec![0; 40_000];
        loop {
            let kept = self.session.take_kept(&mut bytes);
            let n = self.stream.read(&mut bytes[kept..]).unwrap_or(0);
            if n == 0 {
                return (text, None);
            }
            match self.session.open(&mut bytes[..kept + n], &mut room) {
                Ok(opened) => text.push_str(&String::from_utf8_lossy(&room[..opened.filled])),
                Err(error) => return (text, Some(error.reason)),
            }
        }
    }
}

#[test]
fn invalid_records_are_logged_with_their_error() {
    const HALF: &[u8] = b"GET / HTTP/1.1\r\nHost";
    let authority = Authority::new();
    let (weir, port) = start(&authority, "");
    for version in [TLS12, TLS13] {
        let forged = |client: &mut Apart| {
            let mut record = client.seal(b"GET / HTTP/1.1\r\n\r\n");
            if let Some(last) = record.last_mut() {
                *last ^= 1;
            }
            record
        };
        let twice = |client: &mut Apart| client.seal(HALF).repeat(2);
        let plain_alert = if version == TLS13 { ("0A0001BB", 10) } else { ("0A000119", 20) };
        type Make<'a> = &'a dyn Fn(&mut Apart) -> Vec<u8>;
        let cases: [(&str, Make<'_>, &str, u8); 5] = [
            ("plain text", &|_| b"GET / HTTP/1.1\r\n\r\n".to_vec(), "0A00010B", 70),
            ("a record of 64K", &|_| vec![23, 3, 3, 0xff, 0xff, 1], "0A0000C6", 22),
            ("a forged record", &forged, "0A000119", 20),
            ("a record twice", &twice, "0A000119", 20),
            ("a plain alert", &|_| vec![21, 3, 3, 0, 2, 2, 40], plain_alert.0, plain_alert.1),
        ];
        for (what, make, number, alert) in cases {
            let name = if version == TLS13 { "TLSv1.3" } else { "TLSv1.2" };
            let line = |log: &str| {
                let is_it = |line: &&str| {
                    line.contains(" CR-- ")
                        && line.contains(&format!("\"<BADREQ>\" 43/00000000{number}/0/0/0"))
                        && line.contains(name)
                };
                log.lines().filter(is_it).count()
            };
            let before = line(&weir.messages());
            let mut client = Apart::connect(port, version);
            let bytes = make(&mut client);
            client.stream.write_all(&bytes).expect("it is taken");
            assert_eq!(client.rest(), (String::new(), Some(tls::Reason::Alert(alert))), "{name} {what}");
            let told = || line(&weir.messages()) == before + 1;
            assert!(eventually(told), "{name} {what}: {}", weir.messages());
        }
        // A client that leaves in the middle of a request, with and without close_notify.
        for says_so in [false, true] {
            let mut client = Apart::connect(port, version);
            let half = client.seal(HALF);
            client.stream.write_all(&half).expect("it is taken");
            if says_so {
                client.session.close();
                client.speak();
            } else {
                client.stream.shutdown(Shutdown::Write).expect("it is open");
            }
            let (text, broken) = client.rest();
            assert!(text.starts_with("HTTP/1.1 400 ") && broken.is_none(), "{version:x} {says_so}: {text}");
        }
    }
    forgets_all(&weir);
    assert!(handshake(port, &[]).contains("CONNECTED"));
}

#[test]
fn truncated_body_is_not_a_complete_request() {
    let authority = Authority::new();
    let (port, certificate) = (free_port(), shown(&authority.issue(&["one.test"])));
    let origin = weir_tests::Origin::text("whole");
    let text = format!(
        "{DEFAULTS}listen fe\n bind 127.0.0.1:{port} ssl crt {certificate}\n option http-buffer-request\n \
         server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Apart::connect(port, TLS13);
    let half = client.seal(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.stream.write_all(&half).expect("it is taken");
    client.stream.shutdown(Shutdown::Write).expect("it is open");
    assert!(!client.rest().0.starts_with("HTTP/1.1 200"));
    assert!(weir.says("\"POST / HTTP/1.1\""), "{}", weir.messages());
    assert_eq!(origin.requests(), 0);
}

#[test]
fn client_renegotiation_is_refused() {
    let authority = Authority::new();
    for more in ["", "ssl-min-ver TLSv1.0 ssl-max-ver TLSv1.2 ciphers AES128-SHA:@SECLEVEL=0"] {
        let certificate = shown(&authority.issue_rsa(&["one.test"]));
        let port = free_port();
        let text = format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} {more}\n \
             http-request return status 200\n"
        );
        let weir = Weir::start(&text, &[port]);
        let mut client = Command::new("openssl")
            .args(["s_client", "-tls1_2", "-cipher", "ALL:@SECLEVEL=0", "-connect"])
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl runs: `make tools` installs it");
        let mut input = client.stdin.take().expect("it was asked for");
        input.write_all(b"R\n").expect("it listens");
        let output = client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("no renegotiation"), "{more}: {said}");
        drop(input);
        forgets_all(&weir);
    }
}

#[test]
fn expired_sessions_are_not_resumed() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("expired");
    let file = shown(&directory.join("session"));
    for (words, more) in [(&["-tls1_3"][..], ""), (&["-tls1_2"], ""), (&["-tls1_2"], "no-tls-tickets")] {
        let port = free_port();
        let text = format!(
            "global\n tune.ssl.lifetime 2s\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} {more}\n \
             http-request return status 200\n"
        );
        let _weir = Weir::start(&text, &[port]);
        let with = |word: &str| asked(port, "a", &[&["-ign_eof"], words, &[word, &file]].concat());
        assert!(with("-sess_out").contains("New, "), "{words:?}");
        // The session expires by itself, whether or not it was resumed just before.
        assert!(eventually(|| with("-sess_in").contains("New, ")), "{words:?} {more}");
    }
}

#[test]
fn expired_certificate_is_served_with_a_warning() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue_expired(&["late.test"]));
    let port = free_port();
    let text = format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate}\n");
    let weir = Weir::start(&text, &[port]);
    assert!(handshake(port, &[]).contains("certificate has expired"));
    assert!(certificate_fact(&weir, &certificate, "notAfter").ends_with("GMT"));
}
