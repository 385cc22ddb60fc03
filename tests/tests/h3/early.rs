//! Early data (`allow-0rtt`): requests that are served before the end of the handshake.

use std::sync::{Arc, Mutex};

use weir_tests::http3::{Http3Client, Http3Request, Http3Sessions};
use weir_tests::relay::{DatagramRelay, Gate};
use weir_tests::{Origin, eventually};

use super::{Scene, start_with};

/// A server that opens a gate when a request arrives, and returns the request's head.
fn origin(gate: &Arc<Mutex<Option<Arc<Gate>>>>) -> Origin {
    let gate = gate.clone();
    Origin::start(move |head, _| {
        if let Some(gate) = gate.lock().expect("no panic").take() {
            gate.open();
        }
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()).into_bytes()
    })
}

const FACTS: &str = " http-request set-header X-Early \"%[ssl_fc_has_early] %[ssl_fc_early_rcvd] %[ssl_fc_is_resumed]\"\n \
                     default_backend b";

/// Starts the program with early data, and makes a first connection, the session of which can be resumed.
fn resumable(origin: &Origin, rules: &str) -> (Scene, Http3Sessions) {
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let scene = start_with("allow-0rtt", "", &format!("{rules}{FACTS}"), &backend);
    let sessions = Http3Sessions::new("h3");
    let mut first = Http3Client::connect_with(scene.port, &sessions).expect("a connection");
    let head = text(&first.exchange(&Http3Request::get("/first")).body);
    assert!(head.contains("x-early: 0 0 0") && !head.contains("early-data"), "{head}");
    first.close();
    (scene, sessions)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

#[test]
fn requests_in_early_data_reach_the_server_before_the_handshake_ends() {
    let gate = Arc::new(Mutex::new(None));
    let origin = origin(&gate);
    let (scene, sessions) = resumable(&origin, "");
    // The client receives nothing before its request has reached the server.
    let relay = DatagramRelay::start(scene.port);
    *gate.lock().expect("no panic") = Some(relay.gate());
    let (mut client, accepted) = Http3Client::connect_early(relay.port, &sessions).expect("early data");
    let head = text(&client.exchange(&Http3Request::get("/early")).body);
    assert!(head.contains("x-early: 1 1 1") && head.contains("early-data: 1"), "{head}");
    assert!(client.wait(accepted), "accepted");
    let later = text(&client.exchange(&Http3Request::get("/later")).body);
    assert!(later.contains("x-early: 0 1 1") && !later.contains("early-data"), "{later}");
}

#[test]
fn wait_for_handshake_delays_requests_in_early_data() {
    let gate = Arc::new(Mutex::new(None));
    let origin = origin(&gate);
    let (scene, sessions) = resumable(&origin, " http-request wait-for-handshake\n");
    let relay = DatagramRelay::start(scene.port);
    let (mut client, _) = Http3Client::connect_early(relay.port, &sessions).expect("early data");
    let before = origin.requests();
    let opener = {
        let gate = relay.gate();
        // The request has arrived when the program knows its stream.
        std::thread::spawn(move || {
            let has_arrived = eventually(|| scene.weir.ask("show quic stream").contains("st="));
            let reached = origin.requests();
            gate.open();
            (has_arrived, reached, scene, origin)
        })
    };
    let head = text(&client.exchange(&Http3Request::get("/early")).body);
    let (has_arrived, reached, _scene, _origin) = opener.join().expect("no panic");
    assert!(has_arrived && reached == before, "the request waits");
    assert!(head.contains("x-early: 0 1 1") && !head.contains("early-data"), "{head}");
}

#[test]
fn early_data_is_not_accepted_without_the_option_or_twice() {
    let origin = Origin::echo();
    let (scene, sessions) = resumable(&origin, "");
    let (mut client, accepted) = Http3Client::connect_early(scene.port, &sessions).expect("early data");
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 200);
    assert!(client.wait(accepted));
    client.close();
    let other = start_with("", "", FACTS, &format!("backend b\n server s 127.0.0.1:{}", origin.port()));
    let fresh = Http3Sessions::new("h3");
    Http3Client::connect_with(other.port, &fresh).expect("a connection").exchange(&Http3Request::get("/"));
    assert!(Http3Client::connect_early(other.port, &fresh).is_err(), "the session does not permit it");
}
