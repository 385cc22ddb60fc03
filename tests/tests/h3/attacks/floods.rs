//! Floods at full speed, and limits under floods: memory is bounded, and clients that are connected are served.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_tests::eventually;
use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::quic::frame::crypto;
use weir_tests::quic::{INITIAL_SIZE, Parameters, RawQuic};

use super::{Attacked, attacked};

/// The duration of a flood.
const FLOOD: Duration = Duration::from_secs(2);

/// First datagrams of clients that do not exist.
fn forged(port: u16, count: usize) -> Vec<Vec<u8>> {
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let mut raw = RawQuic::prepare(server, &Parameters::default());
    let hello = raw.client_hello();
    let first = crypto(0, &hello[..hello.len().min(1100)]);
    let mut next = || {
        raw.forge();
        raw.initial(&first, INITIAL_SIZE)
    };
    (0..count).map(|_| next()).collect()
}

/// Sends `datagrams` again and again, as fast as the kernel takes them, while the other client is served. Returns the number of
/// datagrams, and of the requests served.
fn flood(attacked: &mut Attacked, datagrams: &[Vec<u8>]) -> (u64, u64) {
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let port = attacked.port();
    let mut served = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let since = Instant::now();
            for datagram in datagrams.iter().cycle() {
                let _ = socket.send_to(datagram, (Ipv4Addr::LOCALHOST, port));
                sent.fetch_add(1, Ordering::Relaxed);
                if since.elapsed() > FLOOD {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            attacked.serve_other();
            served += 1;
        }
    });
    (sent.into_inner(), served)
}

#[test]
fn connected_clients_are_served_during_a_flood() {
    let mut attacked = attacked("", "");
    let random = |_| {
        let mut bytes = vec![0; INITIAL_SIZE];
        bytes.fill_with(|| fastrand::u8(..));
        bytes
    };
    let floods: [(&str, Vec<Vec<u8>>); 2] = [
        ("forged Initials", forged(attacked.port(), 2000)),
        ("random bytes", (0..2000).map(random).collect()),
    ];
    for (name, datagrams) in floods {
        let before = attacked.scene.weir.memory();
        let (sent, served) = flood(&mut attacked, &datagrams);
        let grown = attacked.scene.weir.memory().saturating_sub(before);
        println!("{name}: {sent} datagrams, {served} requests served, {grown} KiB");
        assert!(served > 0, "{name}");
        assert!(grown < 16 << 10, "{name}: {grown} KiB for {sent} datagrams");
    }
    assert_eq!(attacked.scene.weir.stat("f,FRONTEND", "h3sess"), "1", "the same connection");
    let port = attacked.port();
    assert!(eventually(|| Http3Client::try_connect(port).is_ok()), "there is room for new clients");
}

/// Sends the first datagram of each client; returns how many are answered with a handshake.
fn answered(attacked: &mut Attacked, count: usize) -> usize {
    let server = SocketAddr::from(([127, 0, 0, 1], attacked.port()));
    let mut all: Vec<_> = (0..count).map(|_| RawQuic::prepare(server, &Parameters::default())).collect();
    for raw in &mut all {
        let hello = raw.client_hello();
        raw.send_hello(&hello);
    }
    // Its request arrives behind them.
    attacked.serve_other();
    // The answers are not processed, so that no handshake is completed.
    let is_answered = |raw: &&RawQuic| {
        raw.socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
        raw.socket.recv(&mut [0; 2048]).is_ok()
    };
    all.iter().filter(is_answered).count()
}

#[test]
fn floods_of_handshakes_stay_within_the_limits() {
    // One connection is there already, and the connection that awaited the start may be.
    let cases = [
        (" maxsslrate 10\n tune.quic.fe.sec.retry-threshold 0", "", 1..=40),
        (" tune.quic.fe.sec.retry-threshold 0", " maxconn 10", 1..=9),
        (" maxconn 10\n tune.quic.fe.sec.retry-threshold 0", "", 1..=9),
        (" tune.quic.fe.sec.retry-threshold 0", " backlog 20", 10..=10),
    ];
    for (global, frontend, expected) in cases {
        let name = format!("{global}{frontend}");
        let mut attacked = attacked(global, &format!("{frontend}\n timeout client-hs 1s"));
        let before = attacked.scene.weir.memory();
        let answered = answered(&mut attacked, 200);
        let grown = attacked.scene.weir.memory().saturating_sub(before);
        println!("{name}: {answered} answered, {grown} KiB");
        assert!(expected.contains(&answered), "{name}: {answered} answered");
        assert!(grown < 8 << 10, "{name}: {grown} KiB");
        let current = || attacked.scene.weir.stat("f,FRONTEND", "scur");
        assert!(eventually(|| current() == "1"), "{name}: the slots are returned: {}", current());
        let port = attacked.port();
        let mut client = Http3Client::connect(port);
        assert_eq!(client.exchange(&Http3Request::get("/")).status, 200, "{name}");
    }
}
