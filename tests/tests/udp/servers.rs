//! Servers that appear at run time, and datagrams sent from the client's address.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;

use weir_tests::datagrams::{DatagramClient, DatagramServer, start};
use weir_tests::{NameServer, PATIENCE, Zone, eventually, free_port};

/// Returns the names of the servers that answer new sessions.
fn answering(port: u16) -> BTreeSet<String> {
    let name = |answer: String| answer.split(' ').next().unwrap_or_default().to_owned();
    (0..4).map(|_| name(DatagramClient::connect(port).ask("x"))).collect()
}

#[test]
fn servers_of_a_template_follow_dns() {
    let (a, b) = (DatagramServer::echo("a"), DatagramServer::echo("b"));
    let record = |server: &DatagramServer| (256, server.port(), "host.test", Some("127.0.0.1"));
    let names = NameServer::start(&[("_game._udp.test", Zone::Services(vec![record(&a)]))]);
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 2\n  dns-accept-family ipv4,ipv6\n\
         resolvers dns\n  nameserver ns 127.0.0.1:{}\n  timeout resolve 20ms\n  hold obsolete 0\n\
         udp-lb u\n  dgram-bind 127.0.0.1:{port}\n  balance roundrobin\n  timeout session 1h\n  \
         server-template s 2 _game._udp.test resolvers dns init-addr none\n",
        names.port()
    );
    let weir = start(&text, port);
    assert!(eventually(|| weir.stat("u,s1", "status") == "no check"));
    let client = DatagramClient::connect(port);
    assert_eq!(client.ask("1"), "a 1");
    names.say("_game._udp.test", Zone::Services(vec![record(&a), record(&b)]));
    assert!(eventually(|| weir.stat("u,s2", "status") == "no check"));
    assert_eq!(answering(port), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    // A session keeps its server after the record has disappeared.
    names.say("_game._udp.test", Zone::Services(vec![record(&b)]));
    assert!(eventually(|| weir.stat("u,s1", "status").starts_with("MAINT")));
    assert_eq!(client.ask("2"), "a 2");
    assert_eq!(answering(port), BTreeSet::from(["b".to_owned()]));
}

#[test]
fn discovered_servers_get_sessions() {
    let (a, b) = (DatagramServer::echo("a"), DatagramServer::echo("b"));
    let port = free_port();
    let directory = weir_tests::scratch("udp-discovery");
    let list = directory.join("list.json");
    let write = |servers: &[&DatagramServer]| {
        let targets: Vec<String> =
            servers.iter().map(|server| format!("\"127.0.0.1:{}\"", server.port())).collect();
        let other = directory.join("list.new");
        std::fs::write(&other, format!("[{{\"targets\": [{}]}}]", targets.join(", "))).expect("a file");
        std::fs::rename(&other, &list).expect("it replaces the former one");
    };
    write(&[&a]);
    let text = format!(
        "global\n  stats socket runtime level admin\n\
         discovery hosts\n  targets {} refresh 100ms\n\
         udp-lb u\n  dgram-bind 127.0.0.1:{port}\n  balance roundrobin\n  timeout session 1h\n  \
         servers from hosts\n",
        list.display()
    );
    let weir = start(&text, port);
    let client = DatagramClient::connect(port);
    assert_eq!(client.ask("1"), "a 1");
    write(&[&a, &b]);
    let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert!(eventually(|| answering(port) == both), "{}", weir.ask("show discovery"));
    write(&[&b]);
    let only = BTreeSet::from(["b".to_owned()]);
    assert!(eventually(|| answering(port) == only), "{}", weir.ask("show discovery"));
    assert_eq!(client.ask("2"), "a 2");
}

#[test]
fn datagrams_are_sent_from_the_clients_address() {
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        eprintln!("skipped: only root may send from foreign addresses");
        return;
    }
    let server = DatagramServer::start(|_, from| vec![from.ip().to_string().into()]);
    let port = free_port();
    let configuration = |more: &str| {
        format!(
            "global\n  stats socket runtime level admin\n\
             udp-lb u\n  dgram-bind 127.0.0.1:{port}\n  timeout session 1h\n  server s 127.0.0.1:{}{more}\n",
            server.port()
        )
    };
    let ask_from = |address: &str| {
        let socket = UdpSocket::bind((address, 0)).expect("a free port");
        socket.connect(("127.0.0.1", port)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        DatagramClient(socket).ask("x")
    };
    let plain = start(&configuration(""), port);
    assert_eq!(ask_from("127.0.0.5"), "127.0.0.1");
    drop(plain);
    let _transparent = start(&configuration(" source 0.0.0.0 usesrc clientip"), port);
    for address in ["127.0.0.5", "127.0.0.6"] {
        assert_eq!(ask_from(address), address);
    }
}
