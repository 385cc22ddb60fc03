//! Before there is a connection: floods of Initial packets, slow and large handshakes, datagrams to reflect.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use weir_tests::eventually;
use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::quic::frame::crypto;
use weir_tests::quic::{Close, INITIAL_SIZE, Parameters, RawQuic};

use super::{Attacked, attacked};

#[test]
fn forged_initials_are_answered_with_retry_and_use_no_memory() {
    let mut attacked = attacked("", "");
    attacked.bounded("forged Initials", 8 << 10, 150, |attacked| {
        let server = SocketAddr::from(([127, 0, 0, 1], attacked.port()));
        let mut sockets: Vec<_> =
            (0..100).map(|_| RawQuic::prepare(server, &Parameters::default())).collect();
        let hello: Vec<_> = sockets.iter_mut().map(RawQuic::client_hello).collect();
        for _ in 0..60 {
            for (raw, hello) in sockets.iter_mut().zip(&hello) {
                raw.forge();
                raw.send_hello(hello);
            }
            attacked.serve_other();
        }
        // A new client has to prove its address, and gets its connection.
        let mut client = Http3Client::connect(attacked.port());
        assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
        6000
    });
    let number = |name| attacked.scene.weir.stat("f,FRONTEND", name).parse::<u32>().expect("a number");
    assert!(number("quic_retry_sent") > 1000, "{}", number("quic_retry_sent"));
    assert_eq!(number("quic_retry_validated"), 1);
    assert_eq!(number("h3sess"), 2);
}

#[test]
fn invalid_initials_are_dropped() {
    let mut attacked = attacked("", "");
    attacked.bounded("invalid Initials", 2 << 10, 100, |attacked| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let mut datagram = vec![0; INITIAL_SIZE];
        for number in 0..5000 {
            datagram.fill_with(|| fastrand::u8(..));
            datagram[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
            datagram[14] = 8;
            // No token, and the rest as the length.
            datagram[23..26].copy_from_slice(&[0, 0x44, 0x96]);
            let _ = socket.send_to(&datagram, (Ipv4Addr::LOCALHOST, attacked.port()));
            if number % 500 == 0 {
                attacked.serve_other();
            }
        }
        5000
    });
}

#[test]
fn handshakes_that_are_not_completed_time_out() {
    let mut attacked = attacked("", " backlog 40\n timeout client-hs 1s");
    attacked.bounded("handshakes", 4 << 10, 1000, |attacked| {
        let server = SocketAddr::from(([127, 0, 0, 1], attacked.port()));
        let mut all: Vec<_> = (0..100).map(|_| RawQuic::prepare(server, &Parameters::default())).collect();
        for raw in &mut all {
            let hello = raw.client_hello();
            raw.send_hello(&hello);
        }
        attacked.serve_other();
        let is_answered = |raw: &mut RawQuic| raw.receive(Duration::from_millis(5));
        let answered = all.iter_mut().filter_map(|raw| is_answered(raw).then_some(())).count();
        assert!((15..=40).contains(&answered), "half of the backlog: {answered}");
        let port = attacked.port();
        assert!(
            eventually(|| Http3Client::try_connect(port).map(Http3Client::close).is_ok()),
            "there is room again"
        );
        100
    });
    assert!(eventually(|| attacked.scene.weir.stat("f,FRONTEND", "scur") == "1"), "the slots are returned");
}

#[test]
fn handshake_data_with_gaps_is_bounded() {
    let mut attacked = attacked("", "");
    let server = SocketAddr::from(([127, 0, 0, 1], attacked.port()));
    attacked.bounded("CRYPTO gaps", 6 << 10, 2000, |attacked| {
        for _ in 0..10 {
            let mut raw = RawQuic::prepare(server, &Parameters::default());
            let mut offset = 1;
            while offset < 65_000 {
                let mut payload = Vec::new();
                while payload.len() < 1000 {
                    payload.extend(crypto(offset, b"a"));
                    offset += 2;
                }
                raw.send_initial(&payload);
            }
            attacked.serve_other();
        }
        4000
    });
    let mut raw = RawQuic::prepare(server, &Parameters::default());
    raw.send_initial(&crypto(0, b"\x01"));
    raw.send_initial(&crypto(1 << 20, b"a"));
    assert_eq!(raw.await_close(), Some(Close::Transport(0x0d)), "CRYPTO_BUFFER_EXCEEDED");
}

#[test]
fn oversized_client_hello_is_refused() {
    let mut attacked = attacked("", "");
    let server = SocketAddr::from(([127, 0, 0, 1], attacked.port()));
    attacked.bounded("ClientHello", 2 << 10, 500, |_| {
        let mut raw = RawQuic::prepare(server, &Parameters::default());
        let hello = [&[1, 0xff, 0xff, 0xff, 3, 3][..], &[0; 400_000]].concat();
        for (number, piece) in hello.chunks(1100).enumerate() {
            raw.send_initial(&crypto(number as u64 * 1100, piece));
            raw.receive(Duration::from_millis(1));
            if raw.closed.is_some() {
                return number as u64;
            }
        }
        panic!("the handshake goes on");
    });
}

/// A datagram from any port of 127.0.0.1, which needs privileges.
fn forge(source: u16, destination: u16, payload: &[u8]) -> Option<()> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).ok()?;
    let length = u16::try_from(payload.len() + 8).ok()?;
    let mut bytes = Vec::new();
    for word in [source, destination, length, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    socket.send_to(&bytes, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).ok().map(drop)
}

#[test]
fn datagrams_to_reflect_are_dropped() {
    let mut attacked = attacked("", "");
    let port = attacked.port();
    let mut unknown_version = vec![0; INITIAL_SIZE];
    unknown_version[..6].copy_from_slice(&[0xc0, 0xa, 0xa, 0xa, 0xa, 8]);
    unknown_version[14] = 8;
    let short = [&[0x40][..], &[7; 1100]].concat();
    let number = |attacked: &Attacked, name: &str| {
        attacked.scene.weir.stat("f,FRONTEND", name).parse::<u32>().expect("a number")
    };
    let before = (number(&attacked, "quic_dropped_pkt"), number(&attacked, "quic_stless_rst_sent"));
    for source in [0, 53, 1023, port] {
        for payload in [&unknown_version, &short] {
            if forge(source, port, payload).is_none() {
                println!("skipped: no raw sockets");
                return;
            }
        }
    }
    attacked.serve_other();
    let after = (number(&attacked, "quic_dropped_pkt"), number(&attacked, "quic_stless_rst_sent"));
    assert_eq!(after, (before.0 + 8, before.1), "all are dropped, and none is answered");
    let used = attacked.scene.weir.cpu();
    attacked.other.idle(Duration::from_secs(1));
    assert!(attacked.scene.weir.cpu() - used < 100, "no loop");
}

#[test]
fn stateless_resets_and_negotiations_are_limited() {
    let mut attacked = attacked("", "");
    attacked.bounded("packets of unknown connections", 2 << 10, 60, |attacked| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = SocketAddr::from(([127, 0, 0, 1], attacked.port()));
        let since = Instant::now();
        let mut answers = 0;
        socket.set_nonblocking(true).expect("a socket");
        let mut bytes = [0; 2048];
        for number in 0..20_000 {
            let size = 40 + number % 400;
            let mut datagram = vec![0; size];
            datagram.fill_with(|| fastrand::u8(..));
            datagram[0] = 0x40 | (datagram[0] & 0x3f);
            let _ = socket.send_to(&datagram, address);
            while let Ok((length, _)) = socket.recv_from(&mut bytes) {
                assert!(length < 440, "smaller than the largest datagram sent");
                answers += 1;
            }
        }
        attacked.serve_other();
        let most = 1100 + since.elapsed().as_millis() * 10;
        println!("{answers} stateless resets in {:?}", since.elapsed());
        assert!(answers > 0 && answers < most, "{answers} answers");
        20_000
    });
}
