//! How requests share connections: reuse, limits of both sides, and the end of connections.

use std::time::Duration;

use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::{Origin, client, eventually};

use super::{Lines, chain, paths};

/// Answers after a while.
fn slow(ms: u64) -> Origin {
    Origin::start(move |_, _| {
        std::thread::sleep(Duration::from_millis(ms));
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
    })
}

#[test]
fn requests_of_many_clients_share_a_connection() {
    let origin = slow(100);
    let chain = chain(&origin, Lines { global: " nbthread 1", ..Lines::default() });
    assert_eq!(chain.get("/first").0, 200);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..40).map(|_| scope.spawn(|| chain.get("/").0)).collect();
        assert!(all.into_iter().all(|one| one.join().expect("no panic") == 200));
    });
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "1");
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3req"), "41");
    assert_eq!(chain.weir.stat("b,s", "connect"), "1");
    assert_eq!(chain.weir.stat("b,s", "reuse"), "40");
}

#[test]
fn limits_of_either_side_open_more_connections() {
    let cases = [
        (" nbthread 1\n tune.quic.fe.stream.max-concurrent 5", ""),
        (" nbthread 1\n tune.quic.be.stream.max-concurrent 5", ""),
    ];
    for (global, more) in cases {
        let origin = slow(200);
        let chain = chain(&origin, Lines { global, more, ..Lines::default() });
        assert_eq!(chain.get("/first").0, 200);
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..20).map(|_| scope.spawn(|| chain.get("/").0)).collect();
            assert!(all.into_iter().all(|one| one.join().expect("no panic") == 200), "{global}");
        });
        let sessions: u32 = chain.weir.stat("behind,FRONTEND", "h3sess").parse().expect("a number");
        assert!((4..=20).contains(&sessions), "{global}: {sessions}");
        assert_eq!(chain.weir.stat("b,s", "wretr"), "0", "{global}");
    }
}

#[test]
fn a_connection_serves_more_requests_than_streams_may_be_open() {
    let origin = paths();
    let global = " nbthread 1\n tune.quic.fe.stream.max-concurrent 3";
    let chain = chain(&origin, Lines { global, ..Lines::default() });
    let mut client = Http3Client::connect(chain.port);
    for at in 0..200 {
        let path = format!("/{at}");
        assert_eq!(client.exchange(&Http3Request::get(&path)).body, path.as_bytes());
    }
    assert_eq!(chain.weir.stat("b,s", "connect"), "1");
}

#[test]
fn reuse_follows_the_settings_of_the_backend_and_the_server() {
    for (back, more, connections) in [
        (" http-reuse always", "", "1"),
        (" http-reuse never", "", "6"),
        (" http-reuse safe", "", "6"),
        ("", "max-reuse 1", "3"),
        ("", "pool-max-conn 0", "6"),
    ] {
        let origin = paths();
        let chain = chain(&origin, Lines { global: " nbthread 1", back, more, ..Lines::default() });
        for _ in 0..6 {
            assert_eq!(chain.get("/").0, 200, "{back}{more}");
        }
        assert_eq!(chain.weir.stat("b,s", "connect"), connections, "{back}{more}");
    }
}

#[test]
fn a_server_that_announces_the_end_gets_its_next_requests_on_a_new_connection() {
    let origin = paths();
    let chain =
        chain(&origin, Lines { global: " nbthread 1\n tune.quic.fe.stream.max-total 3", ..Lines::default() });
    for at in 0..30 {
        let path = format!("/{at}");
        assert_eq!(chain.get(&path), (200, path));
    }
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "10");
    assert_eq!(chain.weir.stat("b,s", "wretr"), "0");
}

#[test]
fn slow_responses_outlive_the_idle_timeout() {
    let origin = slow(3000);
    let global = " tune.quic.be.max-idle-timeout 1s";
    let chain = chain(&origin, Lines { global, ..Lines::default() });
    assert_eq!(chain.get("/"), (200, "ok".to_owned()));
    // Without requests the connection ends.
    let is_gone = || chain.weir.ask("show quic be").lines().filter(|line| line.contains("/b ")).count() == 0;
    assert!(eventually(is_gone), "{}", chain.weir.ask("show quic be"));
}

#[test]
fn idle_connections_are_purged_but_one() {
    let origin = slow(300);
    let global = " nbthread 1\n tune.quic.be.stream.max-concurrent 1";
    let chain = chain(&origin, Lines { global, more: "pool-purge-delay 500ms", ..Lines::default() });
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| client::get(chain.port, "/").expect("a response"))));
    });
    assert_eq!(chain.weir.stat("b,s", "connect"), "4");
    let open = || chain.weir.ask("show quic be").lines().filter(|line| line.contains("ESTAB")).count();
    assert!(eventually(|| open() == 1), "{}", chain.weir.ask("show quic be"));
    let shown = chain.weir.ask("show servers conn b");
    assert!(shown.contains("b/s"), "{shown}");
}

#[test]
fn workers_take_over_idle_connections() {
    let origin = paths();
    let chain = chain(&origin, Lines { global: " nbthread 8", ..Lines::default() });
    for at in 0..100 {
        let path = format!("/{at}");
        assert_eq!(chain.get(&path), (200, path));
    }
    // HTTP/1 connections are placed on all workers. A connection can be too busy to be taken over just after a response.
    let number = |column| chain.weir.stat("b,s", column).parse::<u32>().expect("a number");
    assert!(number("connect") < 5, "{}", number("connect"));
    assert_eq!(number("connect") + number("reuse"), 100);
}
