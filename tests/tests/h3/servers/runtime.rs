//! Commands about QUIC servers.

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
