//! Paths that lose, reorder, repeat and corrupt datagrams, and address changes: every byte arrives.

use weir_tests::Origin;
use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::quic::relay::{Faults, Relay};

use super::start;

/// Bytes that differ from their neighbours.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[test]
fn every_byte_arrives_over_bad_paths() {
    let origin = Origin::start(|_, body| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    });
    let scene = start("", " default_backend b", &format!("backend b\n server s 127.0.0.1:{}", origin.port()));
    let none = Faults::default();
    let paths = [
        ("loss", Faults { loss: 10, ..none }),
        ("reordering", Faults { reordering: 50, ..none }),
        ("duplication", Faults { duplication: 50, ..none }),
        ("corruption", Faults { corruption: 10, ..none }),
        ("address changes", Faults { address_change: 100, ..none }),
        ("all", Faults { loss: 10, reordering: 20, duplication: 20, corruption: 10, address_change: 100 }),
    ];
    let sent = bytes(1 << 20);
    for (name, faults) in paths {
        let relay = Relay::start(scene.port, faults);
        let mut client = Http3Client::connect(relay.port());
        for number in 0..3 {
            let response = client.exchange(&Http3Request::post("/", &sent));
            assert_eq!((response.status, response.body.len()), (200, sent.len()), "{name}, request {number}");
            assert!(response.body == sent, "{name}, request {number}");
        }
        if faults.address_change > 0 {
            assert!(relay.addresses() > 5, "{name}: {} addresses", relay.addresses());
        } else {
            assert!(relay.faulty() > 20, "{name}: {} faults", relay.faulty());
        }
        client.close();
    }
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), paths.len().to_string());
}
