//! TLS with a client that controls each record: TLS 1.3 early data (`allow-0rtt`), from clients that delay the end of their
//! handshake and to servers that accept or reject it; record lengths, and key updates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tls::{Connecting, Connector, Session};
use weir_tests::client::get;
use weir_tests::tls::shown;
use weir_tests::{Authority, Origin, Weir, free_port, scratch};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n \
                        retries 2\n";

/// Responds with the TLS properties of the request.
const TELL: &str = "http-request return status 200 content-type text/plain lf-string \
                    \"early=%[ssl_fc_has_early] rcvd=%[ssl_fc_early_rcvd] resumed=%[ssl_fc_is_resumed]\"";

fn connector() -> Arc<Connector> {
    connector_of("http/1.1")
}

/// Returns a connector that offers this protocol.
fn connector_of(protocol: &str) -> Arc<Connector> {
    let connecting = Connecting {
        alpn: vec![protocol.as_bytes().into()],
        sessions: 8,
        early_data: true,
        ..Connecting::default()
    };
    Arc::new(Connector::new(&connecting).expect("the line's options are good"))
}

/// A client that sends records on command.
struct Client {
    stream: TcpStream,
    session: Session,
    /// Records that are ready but not sent.
    held: Vec<u8>,
    received: Vec<u8>,
}

impl Client {
    fn connect(port: u16, connector: &Connector, early: bool) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
        let session =
            Session::connect_early(connector, Some("one.test"), early).expect("a hello can be made");
        let mut client = Self { stream, session, held: Vec::new(), received: Vec::new() };
        client.session.handshake(&[]).expect("it begins");
        client.hold();
        client
    }

    /// Collects the session's output.
    fn hold(&mut self) {
        let unsent = self.session.unsent().to_vec();
        self.session.sent(unsent.len());
        self.held.extend(unsent);
    }

    fn seal(&mut self, text: &str) -> &mut Self {
        let mut room = vec![0; 40_000];
        let (taken, sealed) = self.session.seal(text.as_bytes(), &[], &mut room).expect("it can be sealed");
        assert_eq!(taken, text.len());
        self.held.extend(&room[..sealed]);
        self
    }

    /// Sends the records that were held back.
    fn speak(&mut self) -> &mut Self {
        let held = std::mem::take(&mut self.held);
        self.stream.write_all(&held).expect("it is taken");
        self
    }

    /// Receives once; replies are held back. Returns false at the end.
    fn receive(&mut self) -> bool {
        let (mut bytes, mut room) = (vec![0; 40_000], vec![0; 40_000]);
        let kept = self.session.take_kept(&mut bytes);
        let n = self.stream.read(&mut bytes[kept..]).unwrap_or(0);
        if n == 0 {
            return false;
        }
        if self.session.is_established() || self.session.is_early() {
            if let Ok(opened) = self.session.open(&mut bytes[..kept + n], &mut room) {
                self.received.extend(&room[..opened.filled]);
            }
        } else if self.session.handshake(&bytes[..n]).is_err() {
            return false;
        }
        self.hold();
        true
    }

    /// Receives until `end` has arrived; returns everything received, which is then cleared.
    fn until(&mut self, end: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.received).into_owned();
            if text.contains(end) {
                self.received.clear();
                return text;
            }
            // Data that arrived together with the end of the handshake is decrypted first.
            if self.session.is_established() && self.session.has_waiting() {
                let (mut bytes, mut room) = (vec![0; 40_000], vec![0; 40_000]);
                let kept = self.session.take_kept(&mut bytes);
                let opened = self.session.open(&mut bytes[..kept], &mut room).expect("records");
                self.received.extend(&room[..opened.filled]);
                self.hold();
                continue;
            }
            assert!(self.receive(), "the end came before `{end}`: {text}");
        }
    }

    /// Completes the handshake.
    fn settle(&mut self) -> &mut Self {
        while !self.session.is_established() {
            self.speak();
            assert!(self.receive(), "the handshake failed");
        }
        self.speak()
    }
}

/// Creates a session that can be resumed with early data.
fn introduce(port: u16, connector: &Connector) {
    let mut client = Client::connect(port, connector, false);
    client.settle().seal("GET / HTTP/1.1\r\nhost: one.test\r\n\r\n").speak();
    client.until("\r\n\r\n");
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: one.test\r\n\r\n")
}

fn frontend(authority: &Authority, more: &str) -> (Weir, u16) {
    let (port, certificate) = (free_port(), shown(&authority.issue(&["one.test"])));
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} allow-0rtt alpn h2,http/1.1\n {more}\n"
    );
    (Weir::start(&text, &[port]), port)
}

#[test]
fn early_request_is_answered_before_the_handshake_ends() {
    let authority = Authority::new();
    let (_weir, port) =
        frontend(&authority, &format!("http-request wait-for-handshake if {{ path /wait }}\n {TELL}"));
    let connector = connector();
    introduce(port, &connector);
    let mut client = Client::connect(port, &connector, true);
    client.seal(&request("/")).speak();
    let answer = client.until("resumed=");
    assert!(answer.contains("early=1 rcvd=1"), "{answer}");
    // The end of the handshake, which was held back; data after it belongs to the same client.
    client.speak().seal(&request("/")).speak();
    let answer = client.until("resumed=");
    assert!(answer.contains("early=0 rcvd=1 resumed=1"), "{answer}");
    // A rule may wait for the end of the handshake.
    introduce(port, &connector);
    let mut client = Client::connect(port, &connector, true);
    client.seal(&request("/wait")).settle();
    let answer = client.until("resumed=");
    assert!(answer.contains("early=0 rcvd=1 resumed=1"), "{answer}");
}

#[test]
fn early_h2_streams_are_served_after_the_handshake() {
    let authority = Authority::new();
    let (_weir, port) = frontend(&authority, TELL);
    let connector = connector_of("h2");
    // The preface with empty settings, and a GET of `/`: the names are from RFC 7541, appendix A.
    let opening = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let request = "\0\0\u{f}\u{1}\u{5}\0\0\0\u{1}\u{2}\u{3}GET\u{4}\u{1}/\u{6}\u{5}https";
    let mut first = Client::connect(port, &connector, false);
    first.settle().seal(opening).seal(request).speak();
    assert!(first.until("resumed=0").contains("early=0 rcvd=0"));
    let mut client = Client::connect(port, &connector, true);
    client.seal(opening).seal(request).speak();
    while !client.session.is_established() {
        assert!(client.receive(), "the handshake failed");
    }
    // The end of the handshake was held back.
    client.speak();
    assert!(client.until("resumed=1").contains("early=0 rcvd=1"));
}

#[test]
fn closing_response_is_complete_before_the_handshake_ends() {
    let authority = Authority::new();
    let (_weir, port) = frontend(&authority, TELL);
    let connector = connector();
    introduce(port, &connector);
    let mut client = Client::connect(port, &connector, true);
    client.seal("GET / HTTP/1.1\r\nhost: one.test\r\nconnection: close\r\n\r\n").speak();
    assert!(client.until("resumed=1").contains("early=1"));
    client.speak();
    while client.receive() {}
    assert_eq!(client.session.ended(), tls::PeerEnd::Cleanly);
}

#[test]
fn replayed_early_data_is_served_once() {
    let authority = Authority::new();
    let origin = Origin::text("served");
    let (_weir, port) = frontend(
        &authority,
        &format!("default_backend be\nbackend be\n server s 127.0.0.1:{}", origin.port()),
    );
    let connector = connector();
    introduce(port, &connector);
    assert_eq!(origin.requests(), 1);
    let mut client = Client::connect(port, &connector, true);
    client.seal(&request("/"));
    let recorded = client.held.clone();
    client.speak();
    client.until("served");
    client.speak();
    assert_eq!(origin.requests(), 2);
    for _ in 0..3 {
        let mut again = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
        again.write_all(&recorded).expect("it is taken");
        again.shutdown(std::net::Shutdown::Write).expect("it can be ended");
        let _ = again.read_to_end(&mut Vec::new());
    }
    assert_eq!(origin.requests(), 2);
}

#[test]
fn servers_see_early_data_header_and_may_refuse() {
    let authority = Authority::new();
    // Reports the field; refuses the request if it is present.
    let origin = Origin::start(|head, body| {
        let is_early = head.to_ascii_lowercase().contains("\r\nearly-data: 1");
        let refuses = is_early && head.starts_with("GET /refuse");
        let text = format!("early={is_early} {}|", String::from_utf8_lossy(body));
        let status = if refuses { "425 Too Early" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).into_bytes()
    });
    let (_weir, port) = frontend(
        &authority,
        &format!(
            "use_backend again if {{ path /refuse/again }}\n default_backend be\n\
             backend be\n server s 127.0.0.1:{0}\n\
             backend again\n retry-on 425\n server s 127.0.0.1:{0}",
            origin.port()
        ),
    );
    let connector = connector();
    let early = |text: &str| {
        introduce(port, &connector);
        let mut client = Client::connect(port, &connector, true);
        client.seal(text).speak();
        client
    };
    assert!(early(&request("/")).until("|").contains("early=true"));
    assert!(early(&request("/refuse")).until("|").contains(" 425 "));
    let mut client = early(&request("/refuse/again"));
    client.settle();
    let answer = client.until("|");
    assert!(answer.contains(" 200 ") && answer.contains("early=false"), "{answer}");
    // A body whose rest follows the handshake.
    let mut client = early("POST / HTTP/1.1\r\nhost: one.test\r\ncontent-length: 10\r\n\r\nfirst");
    client.settle().seal("later").speak();
    let answer = client.until("|");
    assert!(answer.contains("firstlater"), "{answer}");
}

#[test]
fn early_data_refused_by_a_server_is_retried_or_reported() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (inner, port, plain) = (free_port(), free_port(), free_port());
    let server =
        format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{inner} ssl crt {certificate} allow-0rtt\n {TELL}\n");
    let line = format!(
        "option httpclose\n server s 127.0.0.1:{inner} ssl verify none alpn http/1.1 sni str(one.test) allow-0rtt"
    );
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} allow-0rtt\n \
             default_backend told\nbackend told\n http-reuse never\n {line}\n\
             listen again\n bind 127.0.0.1:{plain}\n http-reuse never\n retry-on 0rtt-rejected\n \
             http-response set-header x-resumed %[ssl_bc_is_resumed]\n {line}\n"
        ),
        &[port, plain],
    );
    let connector = connector();
    let running = Weir::start(&server, &[inner]);
    let tell = |path: &str| get(plain, path).map(|answer| (answer.status, answer.text()));
    assert_eq!(tell("/"), Some((200, "early=0 rcvd=0 resumed=0".into())));
    // Weir retries the request, if `retry-on` allows it.
    let answer = tell("/").expect("an answer");
    assert!(answer.1.contains("rcvd=1 resumed=1"), "{answer:?}");
    introduce(port, &connector);
    drop(running);
    // After the restart no client has a valid session.
    let _running = Weir::start(&server, &[inner]);
    assert_eq!(tell("/"), Some((200, "early=0 rcvd=0 resumed=0".into())));
    let mut client = Client::connect(port, &connector, true);
    client.seal(&request("/")).speak();
    let answer = client.until("\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 425"), "{answer}");
}

#[test]
fn record_length_is_limited_as_configured() {
    let authority = Authority::new();
    for (lines, longest) in [
        ("tune.ssl.hard-maxrecord 1000", 1000),
        ("tune.ssl.maxrecord 900\n tune.ssl.hard-maxrecord 1000", 900),
        ("tune.ssl.maxrecord 2000\n tune.ssl.hard-maxrecord 1000", 1000),
    ] {
        let certificate = shown(&authority.issue(&["one.test"]));
        let port = free_port();
        let text = format!(
            "global\n {lines}\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate}\n \
             http-request return status 200 content-type text/plain string {}\n",
            "x".repeat(5000)
        );
        let _weir = Weir::start(&text, &[port]);
        let mut client = Client::connect(port, &connector(), false);
        client.settle().seal(&request("/")).speak();
        let mut bytes = Vec::new();
        let mut seen = 0;
        // The response is longer than this many records of data.
        while seen < 5 {
            let mut room = [0; 16384];
            let n = client.stream.read(&mut room).expect("records come");
            assert!(n > 0, "{lines}: the end came after {seen}");
            bytes.extend(&room[..n]);
            while let [_, _, _, high, low, ..] = *bytes {
                let length = usize::from(u16::from_be_bytes([high, low]));
                if bytes.len() < 5 + length {
                    break;
                }
                // The content type and the tag.
                assert!(length <= longest + 17, "{lines}: {length}");
                seen += 1;
                bytes.drain(..5 + length);
            }
        }
    }
}

#[test]
fn excessive_key_updates_are_refused() {
    let authority = Authority::new();
    for (limit, is_served) in [("3", false), ("0", true), ("100", true)] {
        let certificate = shown(&authority.issue(&["one.test"]));
        let port = free_port();
        let text = format!(
            "global\n tune.ssl.keyupdate-rate-limit {limit}\n{DEFAULTS}frontend fe\n \
             bind 127.0.0.1:{port} ssl crt {certificate}\n http-request return status 200\n"
        );
        let _weir = Weir::start(&text, &[port]);
        let mut client = Client::connect(port, &connector(), false);
        client.settle();
        for _ in 0..20 {
            assert!(client.session.renew_key(false));
        }
        client.hold();
        client.seal(&request("/")).speak();
        while client.received.is_empty() && client.receive() {}
        assert_eq!(!client.received.is_empty(), is_served, "{limit}");
    }
}

#[test]
fn crt_list_may_allow_0rtt_and_tcp_waits_for_the_handshake() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("early");
    let list = directory.join("list");
    std::fs::write(&list, format!("{certificate} [allow-0rtt]\n")).expect("the directory takes files");
    let origin = Origin::text("served|");
    for (mode, rules, expected) in [("http", TELL, "early=1 rcvd=1"), ("tcp", "", "served")] {
        let port = free_port();
        let text = format!(
            "{DEFAULTS}frontend fe\n mode {mode}\n bind 127.0.0.1:{port} ssl crt-list {} alpn http/1.1\n {rules}\n \
             default_backend be\nbackend be\n mode {mode}\n server s 127.0.0.1:{}\n",
            shown(&list),
            origin.port()
        );
        let _weir = Weir::start(&text, &[port]);
        let connector = connector();
        introduce(port, &connector);
        let mut client = Client::connect(port, &connector, true);
        client.seal(&request("/")).speak();
        if mode == "tcp" {
            client.settle();
        }
        let answer = client.until(expected);
        assert!(answer.contains(" 200 "), "{answer}");
    }
}
