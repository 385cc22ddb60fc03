//! HTTP/2 floods: each is bounded in memory, whether it ends its connection or not, and other clients are served in the meantime.

use weir_bench::floods::{floods, id};
use weir_tests::client::Client;
use weir_tests::multiplexed::{Frames, SETTINGS};
use weir_tests::{Origin, Weir, free_port};

/// Size of a flood in bytes, and the permitted growth of the program's memory in KiB.
const FLOOD: usize = 2 << 20;
const MEMORY: u64 = 4 << 10;

#[test]
fn floods_are_bounded_and_others_are_served() {
    let origin = Origin::text("hello");
    let [h1, h2] = [0; 2].map(|_| free_port());
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{h1}\n bind 127.0.0.1:{h2} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[h1, h2]);
    let mut ends = Vec::new();
    for flood in floods() {
        let before = weir.memory();
        let others = || {
            let answer = Client::connect(h1).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
            assert_eq!(answer.expect("others are served").status, 200, "{}", flood.name);
            let grown = weir.memory().saturating_sub(before);
            assert!(grown <= MEMORY, "{}: {grown} KiB", flood.name);
        };
        let (end, _) =
            flood.send(([127, 0, 0, 1], h2).into(), FLOOD, others).expect("the port takes connections");
        ends.push((flood.name, end, flood.end));
    }
    let others: Vec<_> = ends.iter().filter(|(_, end, wanted)| end != wanted).collect();
    assert!(others.is_empty(), "{others:#?}\n{}", weir.messages());
}

#[test]
fn unread_responses_use_little_memory() {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 4 << 20, "x".repeat(4 << 20));
    let origin = Origin::start(move |_, _| answer.clone().into_bytes());
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let before = weir.memory();
    let mut client = Frames::connect(port);
    // SETTINGS_INITIAL_WINDOW_SIZE.
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for number in 0..100 {
        client.get(id(number), "/");
    }
    for _ in 0..100 {
        client.next_head();
    }
    let grown = weir.memory().saturating_sub(before);
    // A buffer of 16 KiB for each, and one for the client.
    assert!(grown <= 100 * 16 + MEMORY, "{grown} KiB");
}
