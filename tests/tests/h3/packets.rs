//! Packets before and outside of connections: Version Negotiation, Retry, resets, and the addresses that they come from.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weir_tests::quic::packet::{Protected, Space, split};
use weir_tests::quic::{Close, Frame, INITIAL_SIZE, Parameters, RawQuic};
use weir_tests::{Authority, Weir, eventually, free_port};

use super::{DEFAULTS, Scene, start, start_with};

const LOCAL: &str = " http-request return status 200";

/// The other addresses of the loopback interface that the server is asked at.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    socket
}

/// Returns the answer to a datagram, and where it comes from.
fn answer(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> Option<(Vec<u8>, SocketAddr)> {
    socket.send_to(datagram, to).expect("the datagram is sent");
    let mut bytes = [0; 2048];
    let (length, from) = socket.recv_from(&mut bytes).ok()?;
    Some((bytes[..length].to_vec(), from))
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A long header with a version that does not exist, or any other.
fn long(version: u32, to: &[u8], from: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = vec![0xc0];
    bytes.extend_from_slice(&version.to_be_bytes());
    for id in [to, from] {
        bytes.push(id.len() as u8);
        bytes.extend_from_slice(id);
    }
    bytes.resize(size, 0);
    bytes
}

#[test]
fn unknown_versions_are_answered_with_those_that_are_known() {
    let scene = start("", LOCAL, "");
    let socket = socket();
    for (to, from) in [(&[1; 8][..], &[2; 5][..]), (&[3; 20], &[]), (&[4; 60], &[5; 200])] {
        let (bytes, _) =
            answer(&socket, &long(0x1a2a_3a4a, to, from, INITIAL_SIZE), at(scene.port)).expect("an answer");
        let [Protected::Versions(receiver, sender, versions)] = &split(&bytes, 8)[..] else {
            panic!("{bytes:?}");
        };
        assert_eq!((&receiver[..], &sender[..]), (from, to), "the IDs are swapped");
        assert!(versions.contains(&1), "{versions:?}");
        assert!(!versions.contains(&0x1a2a_3a4a), "{versions:?}");
        assert!(versions.iter().any(|version| version & 0x0f0f_0f0f == 0x0a0a_0a0a), "{versions:x?}");
    }
    let silent = [
        ("too short", long(0x1a2a_3a4a, &[1; 8], &[2; 8], INITIAL_SIZE - 1)),
        ("Version Negotiation", long(0, &[1; 8], &[2; 8], INITIAL_SIZE)),
        ("Handshake", {
            let mut bytes = long(1, &[1; 8], &[2; 8], INITIAL_SIZE);
            bytes[0] = 0xe0;
            bytes
        }),
        ("ID too long", long(1, &[1; 21], &[2; 8], INITIAL_SIZE)),
        ("cut", vec![0xc0, 0, 0, 0]),
        ("one byte", vec![0x40]),
    ];
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    for (name, datagram) in silent {
        assert_eq!(answer(&socket, &datagram, at(scene.port)), None, "{name}");
    }
    // RFC 9000, 7.2: clients choose at least 8 bytes.
    let mut raw = RawQuic::with_server_id(at(scene.port), &[1; 7]);
    raw.send_initial(&[1]);
    assert_eq!(raw.await_close(), Some(Close::Transport(10)), "PROTOCOL_VIOLATION");
}

#[test]
fn small_initials_are_dropped() {
    let scene = start("", LOCAL, "");
    for size in [600, INITIAL_SIZE - 1] {
        let mut raw = RawQuic::prepare(at(scene.port), &Parameters::default());
        let hello = raw.client_hello();
        let datagram = raw.initial(&weir_tests::quic::frame::crypto(0, &hello), size);
        // A ClientHello that does not fit is cut, as everything is dropped before it is read.
        raw.send_datagram(&datagram[..size]);
        assert!(!raw.receive(Duration::from_millis(200)), "{size} bytes");
    }
}

#[test]
fn handshakes_send_three_times_what_they_received() {
    let scene = start("", LOCAL, "");
    let mut raw = RawQuic::prepare(at(scene.port), &Parameters::default());
    raw.acknowledges = false;
    let hello = raw.client_hello();
    raw.send_hello(&hello);
    let sent = hello.chunks(1100).len() * INITIAL_SIZE;
    let (since, mut received) = (Instant::now(), 0);
    let mut bytes = [0; 65_536];
    raw.socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    while since.elapsed() < Duration::from_secs(4) {
        received += raw.socket.recv(&mut bytes).unwrap_or(0);
    }
    assert!(received > 0 && received <= 3 * sent, "{received} bytes for {sent}");
}

#[test]
fn retry_tokens_are_bound_to_their_address() {
    let scene = start("", &format!(" quic-initial send-retry\n{LOCAL}"), "");
    let mut raw = RawQuic::prepare(at(scene.port), &Parameters::default());
    let first = raw.server_id.clone();
    let hello = raw.client_hello();
    raw.send_hello(&hello);
    while raw.retries == 0 {
        assert!(raw.receive(Duration::from_secs(5)), "a Retry packet");
    }
    assert_ne!(raw.server_id, first, "the server chooses another ID");
    // The same from another port.
    let moved = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    moved.connect(at(scene.port)).expect("an address");
    let old = std::mem::replace(&mut raw.socket, moved);
    let chosen = raw.server_id.clone();
    raw.send_hello(&hello);
    let closed = raw.await_close();
    assert_eq!(closed, Some(Close::Transport(0x0b)), "INVALID_TOKEN");
    // From the right one.
    raw.socket = old;
    raw.closed = None;
    raw.server_id = chosen;
    raw.send_hello(&hello);
    let deadline = Instant::now() + Duration::from_secs(5);
    while !raw.is_connected && Instant::now() < deadline {
        raw.receive(Duration::from_millis(100));
    }
    assert!(raw.is_connected, "{:?}", raw.closed);
}

#[test]
fn stateless_resets_are_shorter_than_what_provokes_them() {
    let scene = start("", LOCAL, "");
    let socket = socket();
    let mut datagram = vec![0x55; 400];
    for size in [400, 100, 43] {
        std::thread::sleep(Duration::from_millis(50));
        let answered = answer(&socket, &datagram[..size], at(scene.port)).expect("a stateless reset");
        assert!(answered.0.len() < size && answered.0.len() >= 21, "{} for {size}", answered.0.len());
        assert_eq!(answered.0[0] & 0xc0, 0x40, "it looks like a short header");
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(answer(&socket, &datagram[..21], at(scene.port)), None, "too short");
    // The token depends on the ID alone.
    datagram[30] = 1;
    let mut tokens = Vec::new();
    for first in [0x55, 0x55, 0x56] {
        std::thread::sleep(Duration::from_millis(50));
        datagram[1] = first;
        datagram[2] = first;
        let (bytes, _) = answer(&socket, &datagram, at(scene.port)).expect("a stateless reset");
        tokens.push(bytes[bytes.len() - 16..].to_vec());
    }
    assert_eq!(tokens[0], tokens[1]);
    assert_ne!(tokens[0], tokens[2]);
}

/// Starts the program on all addresses.
fn wildcard(rules: &str) -> Scene {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let port = free_port();
    let shown = certificate.display();
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind quic4@:{port} ssl crt {shown}\n \
         bind 127.0.0.1:{port} ssl crt {shown} alpn h2\n{rules}\n{LOCAL}\n"
    );
    let weir = Weir::start(&text, &[port]);
    Scene { weir, port, _authority: authority }
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let initial = |to| {
        let mut raw = RawQuic::prepare(to, &Parameters::default());
        let hello = raw.client_hello();
        raw.initial(&weir_tests::quic::frame::crypto(0, &hello[..hello.len().min(1100)]), INITIAL_SIZE)
    };
    type Expected = fn(&[u8]) -> bool;
    let cases: [(&str, &str, Expected); 3] = [
        ("handshake", "", |bytes| matches!(split(bytes, 8)[..], [Protected::Packet(Space::Initial, ..), ..])),
        ("Retry", " quic-initial send-retry", |bytes| matches!(split(bytes, 8)[..], [Protected::Retry(..)])),
        ("refusal", " quic-initial reject", |bytes| {
            matches!(split(bytes, 8)[..], [Protected::Packet(Space::Initial, ..)])
        }),
    ];
    for (name, rules, is_right) in cases {
        let scene = wildcard(rules);
        let to = SocketAddr::from((ELSEWHERE, scene.port));
        let (bytes, from) = answer(&socket(), &initial(to), to).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(from, to, "{name}");
        assert!(is_right(&bytes), "{name}: {bytes:?}");
        let (bytes, from) = answer(&socket(), &long(0x1a2a_3a4a, &[1; 8], &[2; 8], INITIAL_SIZE), to)
            .expect("Version Negotiation");
        assert_eq!((from, bytes[1..5].to_vec()), (to, vec![0; 4]));
        let (_, from) = answer(&socket(), &[0x41; 200], to).expect("a stateless reset");
        assert_eq!(from, to, "stateless reset");
    }
    // A whole connection: the client's socket is connected, so that only the right address reaches it.
    let scene = wildcard("");
    let mut raw = RawQuic::prepare((ELSEWHERE, scene.port).into(), &Parameters::default());
    raw.handshake();
    raw.write(0, &weir_tests::quic::frame::request("GET"), true);
    assert!(raw.await_success(0), "{:?}", raw.closed);
}

#[test]
fn keys_are_updated_by_the_client() {
    let scene = start("", LOCAL, "");
    let mut client = weir_tests::http3::Http3Client::connect(scene.port);
    for _ in 0..5 {
        client.quic().0.force_key_update();
        let request = weir_tests::http3::Http3Request::get("/");
        assert_eq!(client.exchange(&request).status, 200);
    }
}

#[test]
fn congestion_that_the_network_marks_reduces_the_window() {
    let body = vec![b'x'; 1 << 20];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let origin = weir_tests::Origin::start(move |_, _| [head.as_bytes(), &body].concat());
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    // The socket of the test has room for this window.
    let scene = start_with("quic-cc-algo cubic(60k)", "", " default_backend b", &backend);
    let window = |percent: u64| -> u64 {
        let mut raw = RawQuic::prepare(at(scene.port), &Parameters::default());
        raw.congestion = Some(percent);
        raw.handshake();
        raw.write(0, &weir_tests::quic::frame::request("GET"), true);
        let end =
            raw.await_frame(|frame| matches!(frame, Frame::Stream { id: 0, fin: true, .. }).then_some(()));
        assert!(end.is_some(), "{percent} %: the whole response, {:?}", raw.closed);
        let text = scene.weir.ask("show quic cc");
        assert!(text.contains("lostpkts=0 ") || text.contains("lostpkts=0\n"), "{text}");
        let window = text.split("cwnd=").nth(1).and_then(|rest| rest.split_whitespace().next());
        raw.send(&weir_tests::quic::frame::ints(&[0x1c, 0, 0, 0]));
        assert!(eventually(|| scene.weir.stat("f,FRONTEND", "scur") == "0"));
        window.and_then(|window| window.parse().ok()).expect("a window")
    };
    let [clean, marked] = [0, 20].map(window);
    assert!(clean > 50_000 && marked < 30_000, "{clean} bytes without marks, {marked} bytes with marks");
}

#[test]
fn clients_with_ipv6_are_served() {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let port = free_port();
    let shown = certificate.display();
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind quic6@[::1]:{port} ssl crt {shown}\n \
         bind 127.0.0.1:{port} ssl crt {shown} alpn h2\n http-request return status 200 hdr x-from %[src]\n"
    );
    let weir = Weir::start(&text, &[port]);
    let server = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    for _ in 0..5 {
        let mut raw = RawQuic::prepare(server, &Parameters::default());
        raw.handshake();
        raw.write(0, &weir_tests::quic::frame::request("GET"), true);
        assert!(raw.await_success(0), "{:?}", raw.closed);
        // The next request comes from another port.
        raw.socket = UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0)).expect("a free port");
        raw.socket.connect(server).expect("an address");
        raw.write(4, &weir_tests::quic::frame::request("GET"), true);
        assert!(raw.await_success(4), "{:?}", raw.closed);
        raw.send(&weir_tests::quic::frame::ints(&[0x1c, 0, 0, 0]));
    }
    let migrations = || weir.stat("f,FRONTEND", "quic_conn_migration_done");
    assert!(eventually(|| migrations() == "5"), "{}", migrations());
}
