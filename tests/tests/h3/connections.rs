//! Connections: address changes, limits, stops and reloads.

use weir_tests::eventually;
use weir_tests::http3::{Http3Client, Http3Request};

use super::start;

const LOCAL: &str = " http-request return status 200 content-type text/plain lf-string \"%[src_port]\"";

#[test]
fn clients_may_change_their_port_at_any_time() {
    let scene = start("", LOCAL, "");
    let mut client = Http3Client::connect(scene.port);
    for _ in 0..20 {
        assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
        client.change_port();
    }
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    assert!(eventually(|| scene
        .weir
        .stat("f,FRONTEND", "quic_conn_migration_done")
        .parse()
        .is_ok_and(|n: u32| n >= 19)));
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "1");
}

#[test]
fn idle_connections_end_with_the_keep_alive_timeout() {
    let scene = start("", &format!("{LOCAL}\n timeout http-keep-alive 200ms"), "");
    let mut client = Http3Client::connect(scene.port);
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    let reason = client.await_close().expect("the server closes").to_string();
    assert!(reason.contains("256") || reason.contains("0x100"), "H3_NO_ERROR: {reason}");
    assert!(eventually(|| scene.weir.stat("f,FRONTEND", "scur") == "0"));
}

#[test]
fn connections_beyond_maxconn_wait_until_one_ends() {
    let scene = start("", &format!("{LOCAL}\n maxconn 2"), "");
    let first = Http3Client::connect(scene.port);
    let mut second = Http3Client::connect(scene.port);
    let port = scene.port;
    let third = std::thread::spawn(move || {
        Http3Client::try_connect(port).map(|mut client| client.exchange(&Http3Request::get("/")).status)
    });
    assert_eq!(second.exchange(&Http3Request::get("/")).status, 200);
    assert!(
        eventually(|| scene.weir.stat("f,FRONTEND", "quic_dropped_pkt") != "0"),
        "the third is not admitted"
    );
    first.close();
    assert_eq!(third.join().expect("no panic"), Ok(200));
}

#[test]
fn soft_stop_finishes_requests_and_says_goodbye() {
    let mut scene = start("", LOCAL, "");
    let mut client = Http3Client::connect(scene.port);
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    scene.weir.signal("USR1");
    client.await_close().expect("the server closes");
    assert_eq!(scene.weir.await_end(), Some(0));
}

#[test]
fn retry_proves_addresses() {
    let rules = format!(" quic-initial send-retry\n{LOCAL}");
    let scene = start("", &rules, "");
    let mut client = Http3Client::connect(scene.port);
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    assert_eq!(scene.weir.stat("f,FRONTEND", "quic_retry_sent"), "1");
    assert_eq!(scene.weir.stat("f,FRONTEND", "quic_retry_validated"), "1");
}

#[test]
fn initial_rules_reject_or_ignore_clients() {
    let scene = start("", &format!(" quic-initial reject\n{LOCAL}"), "");
    let refused = Http3Client::try_connect(scene.port).err().expect("no connection");
    assert!(refused.contains("refused"), "{refused}");
    assert_eq!(scene.weir.stat("f,FRONTEND", "quic_transp_err_connection_refused"), "1");
}
