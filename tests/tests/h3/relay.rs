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
        (
            "all",
            Faults {
                loss: 10,
                reordering: 20,
                duplication: 20,
                corruption: 10,
                address_change: 100,
                port_change: 0,
            },
        ),
    ];
    let sent = bytes(1 << 20);
    for (name, faults) in paths {
        let relay = Relay::start(scene.port, faults);
        let mut client = Http3Client::connect(relay.port());
        for number in 0..3 {
            let response = client.try_exchange(&Http3Request::post("/", &sent));
            let response = response.unwrap_or_else(|error| {
                panic!("{name}, request {number}: {error}; {}", scene.weir.ask("show quic full"))
            });
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

#[test]
fn transfers_survive_changes_of_the_port_and_the_address() {
    const LENGTH: usize = 6 << 20;
    let origin = Origin::start(|head, body| {
        let answer = if head.starts_with("GET") { bytes(LENGTH) } else { body.to_vec() };
        let same = if answer == bytes(LENGTH) { "yes" } else { "no" };
        let answer = if head.starts_with("GET") { answer } else { Vec::new() };
        let head = format!("HTTP/1.1 200 OK\r\nX-Same: {same}\r\nContent-Length: {}\r\n\r\n", answer.len());
        [head.into_bytes(), answer].concat()
    });
    let scene = start("", " default_backend b", &format!("backend b\n server s 127.0.0.1:{}", origin.port()));
    let migrations =
        || -> u64 { scene.weir.stat("f,FRONTEND", "quic_conn_migration_done").parse().expect("a number") };
    let sent = bytes(LENGTH);
    // Downloads have few datagrams of the client.
    for (request, every) in [(Http3Request::get("/"), 20), (Http3Request::post("/", &sent), 100)] {
        for faults in [
            Faults { port_change: every, ..Faults::default() },
            Faults { address_change: every, ..Faults::default() },
        ] {
            let (before, relay) = (migrations(), Relay::start(scene.port, faults));
            let mut client = Http3Client::connect(relay.port());
            let response = client.exchange(&request);
            let name = format!("{}, {faults:?}", request.method);
            assert_eq!(response.status, 200, "{name}");
            assert!(response.fields["x-same"] == "yes", "{name}");
            assert!(request.method != "GET" || response.body == sent, "{name}");
            client.close();
            let changes = relay.addresses() - 1;
            let noticed = migrations() - before;
            println!("{name}: {changes} changes, {noticed} noticed");
            assert!(changes > 5, "{name}: {changes}");
            // A change that is followed by another one within a batch of datagrams is not noticed.
            assert!(noticed > changes / 2 && noticed <= 2 * changes, "{name}: {noticed} of {changes}");
        }
    }
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "4");
}
