//! Commands about QUIC servers.

use weir_tests::reloading::reload;
use weir_tests::{Origin, client, eventually};

use super::{Lines, chain, paths};

#[test]
fn show_quic_lists_connections_to_servers() {
    let origin = paths();
    let chain = chain(&origin, Lines { global: " nbthread 1", ..Lines::default() });
    assert_eq!(chain.get("/").0, 200);
    let servers = chain.weir.ask("show quic be");
    let rows: Vec<&str> = servers.lines().filter(|line| line.contains("ESTAB")).collect();
    assert_eq!(rows.len(), 1, "{servers}");
    assert!(rows[0].contains("/b ") && rows[0].contains(&format!(":{}", chain.behind)), "{servers}");
    let clients = chain.weir.ask("show quic");
    let rows: Vec<&str> = clients.lines().filter(|line| line.contains("ESTAB")).collect();
    assert!(rows.len() == 1 && rows[0].contains("/behind "), "{clients}");
    assert!(chain.weir.ask("show quic full be").contains(" be=b"), "{}", chain.weir.ask("show quic full be"));
}

#[test]
fn servers_are_added_removed_and_moved() {
    let origin = paths();
    let chain = chain(&origin, Lines { back: " balance roundrobin", ..Lines::default() });
    let (ca, behind) = (chain.trusted.display(), chain.behind);
    let added = chain.weir.ask(&format!(
        "add server b/t quic4@127.0.0.1:{behind} ssl verify required ca-file {ca} sni str(localhost) id 77"
    ));
    assert!(added.contains("New server registered"), "{added}");
    chain.weir.ask("enable server b/t");
    chain.weir.ask("disable server b/s");
    for _ in 0..3 {
        assert_eq!(chain.get("/t"), (200, "/t".to_owned()));
    }
    assert_eq!(chain.weir.stat("b,t", "stot"), "3");
    let answer = chain.weir.ask("set server b/t ssl off");
    assert!(!answer.trim().is_empty(), "QUIC has no other way: {answer}");
    assert_eq!(chain.get("/t").0, 200);
    chain.weir.ask("set server b/t addr 127.0.0.1 port 1");
    assert_eq!(chain.get("/t").0, 503, "nothing listens there");
    chain.weir.ask("disable server b/t");
    assert!(eventually(|| chain.weir.ask("del server b/t").contains("Server deleted")));
    chain.weir.ask("enable server b/s");
    assert_eq!(chain.get("/s").0, 200);
}

#[test]
fn a_disabled_listener_keeps_its_connections() {
    let origin = Origin::text("ok");
    let chain = chain(&origin, Lines { global: " nbthread 1", ..Lines::default() });
    assert_eq!(client::get(chain.port, "/").expect("a response").status, 200);
    chain.weir.ask("disable frontend behind");
    assert_eq!(client::get(chain.port, "/").expect("a response").status, 200, "the connection goes on");
}

#[test]
fn backends_count_packets_frames_and_failed_handshakes() {
    let origin = paths();
    let chain = chain(&origin, Lines { more: "pool-max-conn 0", ..Lines::default() });
    let count = |column: &str| chain.weir.stat("b,BACKEND", column).parse::<u64>().expect("a number");
    assert_eq!((count("quic_sent_pkt"), count("h3_headers")), (0, 0));
    assert_eq!(chain.get("/").0, 200);
    // Connections are counted when they end.
    assert!(eventually(|| count("h3_headers") == 1), "{}", chain.weir.ask("show stat"));
    assert_eq!((count("h3_settings"), count("quic_hdshk_fail"), count("quic_half_open_conn")), (1, 0, 0));
    assert!(count("quic_sent_pkt") > 2);
    assert_eq!(chain.weir.stat("b,s", "quic_sent_pkt"), "", "as HAProxy, not for each server");
    let (ca, behind) = (chain.trusted.display(), chain.behind);
    let added = chain.weir.ask(&format!(
        "add server b/t quic4@127.0.0.1:{behind} ssl verify required ca-file {ca} verifyhost other.example"
    ));
    assert!(added.contains("New server registered"), "{added}");
    chain.weir.ask("enable server b/t");
    chain.weir.ask("disable server b/s");
    assert_eq!(chain.get("/").0, 503);
    assert!(eventually(|| count("quic_hdshk_fail") > 0));
    assert_eq!(count("quic_half_open_conn"), 0);
    chain.weir.ask("clear counters all");
    assert_eq!((count("h3_headers"), count("quic_hdshk_fail")), (0, 0));
}

#[test]
fn connections_to_unchanged_servers_survive_a_reload() {
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |head, _| {
        if head.starts_with("GET /slow") {
            let _ = wait.lock().expect("a lock").recv();
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let chain = chain(&origin, Lines { global: " nbthread 1", ..Lines::default() });
    assert_eq!(chain.get("/").0, 200);
    let change = |number: usize| {
        let changed = chain.text.replace("backend b\n", &format!("backend b\n retries {number}\n"));
        let said = reload(&chain.weir, &changed);
        assert!(said.contains("retries"), "{said}");
        assert_eq!(chain.get("/").0, 200);
    };
    for number in 1..4 {
        change(number);
        assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "1", "reload {number}");
    }
    let (port, before) = (chain.port, chain.weir.stat("behind,FRONTEND", "h3req"));
    let slow = std::thread::spawn(move || client::get(port, "/slow").map(|answer| answer.status));
    assert!(eventually(|| chain.weir.stat("behind,FRONTEND", "h3req") != before));
    change(4);
    answer.send(()).expect("the request waits");
    assert_eq!(slow.join().expect("a client").expect("a response"), 200);
    let sessions = || chain.weir.stat("behind,FRONTEND", "h3sess").parse::<u32>().expect("a number");
    let before = sessions();
    let other = chain.text.replace("sni str(localhost)", "sni str(localhost) alpn h3 quic-cc-algo newreno");
    let said = reload(&chain.weir, &other);
    assert!(said.contains("server"), "{said}");
    assert_eq!(chain.get("/").0, 200);
    assert!(sessions() > before, "a changed server gets new connections");
}
