//! Names resolved at run time (`resolvers`): addresses, ports, weights and states of servers follow the answers of name servers,
//! with intervals of a few milliseconds.

use weir_tests::client::Client;
use weir_tests::{NameServer, Origin, Weir, Zone, eventually, free_port, scratch};

/// Starts the program with a section `dns` that queries these name servers often, and one backend; returns its port.
fn start(nameservers: &[&NameServer], section: &str, backend: &str) -> (Weir, u16) {
    let port = free_port();
    let lines: String = nameservers
        .iter()
        .enumerate()
        .map(|(at, server)| format!(" nameserver ns{} 127.0.0.1:{}\n", at + 1, server.port()))
        .collect();
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n dns-accept-family ipv4,ipv6\n\
         resolvers dns\n{lines} timeout resolve 20ms\n timeout retry 40ms\n{section}\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n timeout queue 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n default-server init-addr none resolvers dns resolve-prefer ipv4\n{backend}"
    );
    (Weir::start(&text, &[port]), port)
}

fn body(port: u16) -> String {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    match Client::connect(port).send(request).response() {
        Some(response) if response.status == 200 => String::from_utf8_lossy(&response.body).into_owned(),
        Some(response) => response.status.to_string(),
        None => String::new(),
    }
}

/// Returns columns of a server in `show servers state`: address, administrative state, weight, name, port.
fn state(weir: &Weir, server: &str) -> String {
    let all = weir.ask("show servers state b");
    let line = all.lines().find(|line| line.split(' ').nth(3) == Some(server)).unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    [4, 6, 7, 17, 18].map(|at| words.get(at).copied().unwrap_or_default()).join(" ")
}

fn becomes(weir: &Weir, server: &str, wanted: &str) {
    let found = eventually(|| state(weir, server) == wanted);
    assert!(found, "`{}` is not `{wanted}`: {}", state(weir, server), weir.messages());
}

/// Returns a counter of `show resolvers`.
fn counted(weir: &Weir, nameserver: &str, name: &str) -> u64 {
    let all = weir.ask("show resolvers dns");
    let own = all.split(" nameserver ").find(|part| part.starts_with(&format!("{nameserver}:")));
    let line =
        own.and_then(|own| own.lines().find(|line| line.trim_start().starts_with(&format!("{name}:"))));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or(u64::MAX)
}

#[test]
fn server_address_follows_its_name() {
    let origin = Origin::text("here");
    let names = NameServer::start(&[("app.test", Zone::NoName)]);
    let server = format!(" server s1 app.test:{} \n", origin.port());
    let (weir, port) = start(&[&names], " hold nx 0\n hold refused 0\n", &server);
    let at = origin.port();
    assert_eq!(body(port), "503");
    assert_eq!(state(&weir, "s1"), format!("- 32 1 app.test {at}"));
    assert!(weir.ask("show stat b 4 -1").contains("MAINT (resolution)"));

    names.say("app.test", Zone::Addresses(vec!["127.0.0.1"]));
    becomes(&weir, "s1", &format!("127.0.0.1 0 1 app.test {at}"));
    assert_eq!(body(port), "here");
    let told = [
        "b/s1: IP changed from '(none)' to '127.0.0.1' by 'dns/ns1'.",
        "Server b/s1 ('app.test') is UP/READY (resolves again).",
        "Server b/s1 administratively READY thanks to valid DNS answer.",
    ];
    for line in told {
        assert!(weir.says(line), "{line}: {}", weir.messages());
    }

    names.say("app.test", Zone::Addresses(vec!["127.0.0.9"]));
    becomes(&weir, "s1", &format!("127.0.0.9 0 1 app.test {at}"));
    names.say("app.test", Zone::Addresses(vec!["::1"]));
    becomes(&weir, "s1", &format!("::1 0 1 app.test {at}"));

    names.say("app.test", Zone::NoName);
    becomes(&weir, "s1", &format!("- 32 1 app.test {at}"));
    assert_eq!(body(port), "503");
    let line =
        "Server b/s1 is going DOWN for maintenance (DNS NX status). 0 active and 0 backup servers left.";
    assert!(weir.says(line), "{}", weir.messages());
    assert!(weir.says("backend 'b' has no server available!"));

    names.say("app.test", Zone::Addresses(vec!["127.0.0.1"]));
    becomes(&weir, "s1", &format!("127.0.0.1 0 1 app.test {at}"));
    assert_eq!(body(port), "here");
    names.say("app.test", Zone::Refused);
    becomes(&weir, "s1", &format!("- 32 1 app.test {at}"));
    assert!(weir.says("(DNS refused status)"));
    assert!(counted(&weir, "ns1", "update") >= 4);
    assert!(counted(&weir, "ns1", "refused") > 0);
}

#[test]
fn idle_connections_to_an_old_address_are_not_reused() {
    let (old, new) = (Origin::text("old"), Origin::text("new"));
    let at = |origin: &Origin| Zone::Services(vec![(1, origin.port(), "x.test", Some("127.0.0.1"))]);
    let names = NameServer::start(&[("_http._tcp.test", at(&old))]);
    let template = " http-reuse always\n server-template t 1 _http._tcp.test\n";
    let (weir, port) = start(&[&names], "", template);
    becomes(&weir, "t1", &format!("127.0.0.1 64 1 x.test {}", old.port()));
    let mut client = Client::connect(port);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..3 {
        assert_eq!(client.send(request).response().unwrap().body, b"old");
    }
    names.say("_http._tcp.test", at(&new));
    becomes(&weir, "t1", &format!("127.0.0.1 64 1 x.test {}", new.port()));
    assert!(eventually(|| client.send(request).response().unwrap().body == b"new"));
}

#[test]
fn manual_address_stays_until_the_name_loses_the_old_one() {
    let names = NameServer::start(&[
        ("app.test", Zone::Addresses(vec!["127.0.0.1"])),
        ("_http._tcp.test", Zone::Services(vec![(1, 82, "y.test", None)])),
        ("y.test", Zone::Addresses(vec!["127.0.0.8"])),
    ]);
    let servers = " server s1 app.test:80\n server-template t 1 _http._tcp.test\n";
    let (weir, _) = start(&[&names], "", servers);
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    becomes(&weir, "t1", "127.0.0.8 64 1 y.test 82");
    weir.ask("set server b/s1 addr 127.0.0.5 port 81; set server b/t1 addr 127.0.0.6 port 81");
    // Waits until every name has been answered several times.
    let answers = || counted(&weir, "ns1", "valid");
    let before = answers();
    assert!(eventually(|| answers() > before + 12));
    assert_eq!(state(&weir, "s1"), "127.0.0.5 0 1 app.test 81");
    assert_eq!(state(&weir, "t1"), "127.0.0.6 64 1 y.test 82", "the record says the port");
    names.say("app.test", Zone::Addresses(vec!["127.0.0.2", "127.0.0.1"]));
    let before = answers();
    assert!(eventually(|| answers() > before + 6));
    assert_eq!(state(&weir, "s1"), "127.0.0.5 0 1 app.test 81");
    names.say("app.test", Zone::Addresses(vec!["127.0.0.2"]));
    becomes(&weir, "s1", "127.0.0.2 0 1 app.test 81");
}

#[test]
fn valid_answer_outweighs_errors_during_its_hold_time() {
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let (weir, _) = start(&[&names], " hold nx 1h\n", " server s1 app.test:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    names.say("app.test", Zone::NoName);
    // Three tries of both families each: the second resolution has ended too.
    assert!(eventually(|| counted(&weir, "ns1", "nx") > 12));
    assert_eq!(state(&weir, "s1"), "127.0.0.1 0 1 app.test 80");
}

#[test]
fn one_answering_name_server_suffices() {
    let silent = NameServer::start(&[("app.test", Zone::Silence)]);
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let (weir, _) = start(&[&silent, &names], "", " server s1 app.test:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    assert!(weir.says("by 'dns/ns2'"));
    names.say("app.test", Zone::NoName);
    assert!(eventually(|| counted(&weir, "ns1", "timeout") > 0 && counted(&weir, "ns2", "nx") > 0));
    assert_eq!(state(&weir, "s1"), "127.0.0.1 0 1 app.test 80");
}

#[test]
fn silent_name_servers_are_retried_and_then_time_out() {
    let one = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let two = NameServer::start(&[("app.test", Zone::Silence)]);
    let (weir, _) = start(&[&one, &two], " hold timeout 0\n resolve_retries 2\n", " server s1 app.test:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    one.say("app.test", Zone::Silence);
    becomes(&weir, "s1", "- 32 1 app.test 80");
    assert!(weir.says("(DNS timeout status)"));
    assert!(counted(&weir, "ns1", "timeout") >= 2);
}

#[test]
fn long_answers_are_fetched_over_tcp() {
    let names = NameServer::start(&[("app.test", Zone::Long(vec!["127.0.0.1"]))]);
    let (weir, _) = start(&[&names], "", " server s1 app.test:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    assert!(counted(&weir, "ns1", "truncated") > 0);
    assert!(names.questions().1 > 0);
}

#[test]
fn name_servers_may_be_queried_only_over_tcp() {
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let line = format!(" nameserver ns1 tcp@127.0.0.1:{}\n", names.port());
    let (weir, _) = start(&[], &line, " server s1 app.test:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    assert_eq!(names.questions().0, 0);
}

#[test]
fn name_servers_may_be_queried_over_unix_sockets() {
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let path = scratch("names").file("socket");
    let listener =
        std::os::unix::net::UnixListener::bind(&path).expect("the temporary directory takes sockets");
    let port = names.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(towards) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return };
            let (mut from, mut to) =
                (stream.try_clone().expect("a socket"), towards.try_clone().expect("a socket"));
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (towards, stream);
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    let line = format!(" nameserver ns1 unix@{}\n", path.display());
    let (weir, _) = start(&[], &line, " server s1 app.test:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    assert!(counted(&weir, "ns1", "valid") > 0);
    assert_eq!(names.questions().0, 0);
}

#[test]
fn srv_records_add_and_remove_servers() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let service = |origin: &Origin, host, address| (65535, origin.port(), host, address);
    let names = NameServer::start(&[
        ("_http._tcp.test", Zone::Services(vec![service(&one, "one.test", None)])),
        ("one.test", Zone::Addresses(vec!["127.0.0.1"])),
    ]);
    let (weir, port) = start(&[&names], "", " server-template t 3 _http._tcp.test\n");
    becomes(&weir, "t1", &format!("127.0.0.1 64 256 one.test {}", one.port()));
    assert_eq!(state(&weir, "t2"), "- 32 1 - 0");
    assert_eq!(body(port), "one");

    let both = vec![service(&two, "two.test", Some("127.0.0.1")), (1, one.port(), "one.test", None)];
    names.say("_http._tcp.test", Zone::Services(both));
    becomes(&weir, "t2", &format!("127.0.0.1 64 256 two.test {}", two.port()));
    becomes(&weir, "t1", &format!("127.0.0.1 64 1 one.test {}", one.port()));
    let line = format!("port changed from '0' to '{}' by 'DNS additional record'.", two.port());
    let named = "b/t2 changed its FQDN from (null) to two.test by 'SRV record'";
    assert!(weir.says(&line) && weir.says(named), "{}", weir.messages());

    names.say("_http._tcp.test", Zone::Services(vec![service(&two, "two.test", Some("127.0.0.1"))]));
    becomes(&weir, "t1", "- 96 1 - 0");
    assert!(weir.says("(entry removed from SRV record)"));
    assert_eq!(body(port), "two");
    assert!(weir.ask("show servers state b").contains(" _http._tcp.test "));

    // The freed server gets the next record.
    let more = vec![service(&two, "two.test", None), (256, 8080, "one.test", None)];
    names.say("_http._tcp.test", Zone::Services(more));
    becomes(&weir, "t1", "127.0.0.1 64 1 one.test 8080");
}

#[test]
fn weights_of_srv_records_may_be_ignored() {
    let services = vec![(65535, 80, "x.test", Some("127.0.0.1"))];
    let names = NameServer::start(&[("_http._tcp.test", Zone::Services(services))]);
    let template = " server-template t 1 _http._tcp.test weight 7 resolve-opts ignore-weight\n";
    let (weir, _) = start(&[&names], "", template);
    becomes(&weir, "t1", "127.0.0.1 64 7 x.test 80");
}

#[test]
fn servers_of_one_name_share_its_addresses() {
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1", "127.0.0.2"]))]);
    let (weir, _) = start(&[&names], "", " server-template t 3 app.test:80\n");
    becomes(&weir, "t1", "127.0.0.1 0 1 app.test 80");
    becomes(&weir, "t2", "127.0.0.2 0 1 app.test 80");
    becomes(&weir, "t3", "- 32 1 app.test 80");
    names.say("app.test", Zone::Addresses(vec!["127.0.0.2", "127.0.0.3"]));
    becomes(&weir, "t1", "127.0.0.3 0 1 app.test 80");
    assert_eq!(state(&weir, "t2"), "127.0.0.2 0 1 app.test 80");

    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let (weir, _) = start(&[&names], "", " server-template t 2 app.test:80 resolve-opts allow-dup-ip\n");
    becomes(&weir, "t1", "127.0.0.1 0 1 app.test 80");
    becomes(&weir, "t2", "127.0.0.1 0 1 app.test 80");
}

#[test]
fn duplicate_initial_address_is_kept_by_the_first_server() {
    let names = NameServer::start(&[("localhost", Zone::Addresses(vec!["127.0.0.1"]))]);
    let (weir, _) = start(&[&names], "", " server-template t 3 localhost:80 init-addr libc\n");
    becomes(&weir, "t2", "- 32 1 localhost 80");
    becomes(&weir, "t3", "- 32 1 localhost 80");
    assert_eq!(state(&weir, "t1"), "127.0.0.1 0 1 localhost 80");
    assert!(weir.says("b/t2 is going DOWN for maintenance (No IP for server )"));
    assert!(!weir.messages().contains("b/t1 is going DOWN"));
}

#[test]
fn preferred_networks_are_chosen_first() {
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["192.0.2.1", "127.0.0.5"]))]);
    let (weir, _) = start(&[&names], "", " server s1 app.test:80 resolve-net 127.0.0.0/8,10.0.0.0/8\n");
    becomes(&weir, "s1", "127.0.0.5 0 1 app.test 80");
}

#[test]
fn server_name_can_be_set_on_the_runtime_socket() {
    let names = NameServer::start(&[
        ("old.test", Zone::Addresses(vec!["127.0.0.1"])),
        ("new.test", Zone::Addresses(vec!["127.0.0.2"])),
    ]);
    let (weir, _) = start(&[&names], "", " server s1 old.test:80\n server s2 192.0.2.1:80\n");
    becomes(&weir, "s1", "127.0.0.1 0 1 old.test 80");
    let answer = weir.ask("set server b/s1 fqdn new.test");
    assert_eq!(answer.trim(), "b/s1 changed its FQDN from old.test to new.test by 'stats socket command'");
    becomes(&weir, "s1", "127.0.0.2 64 1 new.test 80");
    weir.ask("set server b/s2 fqdn old.test");
    becomes(&weir, "s2", "127.0.0.1 64 1 old.test 80");
    weir.ask("clear counters all");
    assert!(counted(&weir, "ns1", "update") < 3);
}

#[test]
fn tracking_servers_share_resolution_maintenance() {
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let servers = " server s1 app.test:80 check inter 1h\n server s2 192.0.2.1:80 track b/s1\n";
    let (weir, _) = start(&[&names], " hold nx 0\n", servers);
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    names.say("app.test", Zone::NoName);
    becomes(&weir, "s2", "192.0.2.1 2 1 - 80");
    names.say("app.test", Zone::Addresses(vec!["127.0.0.1"]));
    becomes(&weir, "s2", "192.0.2.1 0 1 - 80");
}

/// Starts a proxy whose rules look up the server's address by the name that the client requested.
fn start_lookups(names: &NameServer, section: &str, rules: &str, port_of_server: u16) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n dns-accept-family ipv4,ipv6\n\
         resolvers dns\n nameserver ns1 127.0.0.1:{}\n{section}\
         defaults\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{port}\n{rules} server s 0.0.0.0:{port_of_server}\n",
        names.port()
    );
    (Weir::start(&text, &[port]), port)
}

fn get(client: &mut Client, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let response = client.send(request).response().expect("an answer");
    if response.status == 200 {
        String::from_utf8_lossy(&response.body).into_owned()
    } else {
        response.status.to_string()
    }
}

#[test]
fn do_resolve_resolves_names_in_requests() {
    let origin = Origin::text("found");
    let names = NameServer::start(&[
        ("app.test", Zone::Addresses(vec!["::1", "127.0.0.1"])),
        ("refused.test", Zone::Refused),
    ]);
    let rules = " mode http\n http-request do-resolve(txn.ip,dns,ipv4) hdr(host),host_only\n \
                 http-request return status 404 hdr x-ip %[var(txn.ip)] unless { var(txn.ip) -m found }\n \
                 http-request set-dst var(txn.ip)\n";
    let (weir, port) = start_lookups(
        &names,
        " hold valid 1h\n timeout retry 10s\n resolve_retries 1\n",
        rules,
        origin.port(),
    );
    let mut client = Client::connect(port);
    for (host, body) in [
        ("app.test", "found"),
        ("APP.test:80", "found"),
        ("nowhere.test", "404"),
        ("refused.test", "404"),
        ("192.0.2.1", "404"),
        ("app.test", "found"),
        ("..", "404"),
    ] {
        assert_eq!(get(&mut client, host), body, "{host}");
    }
    assert_eq!(counted(&weir, "ns1", "valid"), 1, "a fresh answer is not asked for again");
    assert_eq!(counted(&weir, "ns1", "update"), 0);
}

#[test]
fn do_resolve_times_out() {
    let origin = Origin::text("found");
    let names = NameServer::start(&[("silent.test", Zone::Silence)]);
    let rules = " mode http\n http-request do-resolve(txn.ip,dns) hdr(host)\n \
                 http-request return status 404 unless { var(txn.ip) -m found }\n";
    let (weir, port) = start_lookups(&names, " timeout retry 30ms\n", rules, origin.port());
    let mut client = Client::connect(port);
    assert_eq!(get(&mut client, "silent.test"), "404");
    assert_eq!((counted(&weir, "ns1", "sent"), counted(&weir, "ns1", "timeout")), (3, 3));
}

#[test]
fn do_resolve_refreshes_stale_answers() {
    let origin = Origin::text("found");
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let rules =
        " mode http\n http-request do-resolve(txn.ip,dns) hdr(host)\n http-request set-dst var(txn.ip)\n";
    let (weir, port) = start_lookups(&names, " hold valid 0\n timeout retry 10s\n", rules, origin.port());
    let mut client = Client::connect(port);
    for _ in 0..3 {
        assert_eq!(get(&mut client, "app.test"), "found");
    }
    assert_eq!(counted(&weir, "ns1", "valid"), 3);
}

#[test]
fn do_resolve_works_in_tcp_rules() {
    let origin = Origin::text("found");
    let names = NameServer::start(&[("app.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let rules = " mode tcp\n tcp-request inspect-delay 10s\n \
                 tcp-request content do-resolve(txn.ip,dns,ipv4) req.payload(22,8)\n \
                 tcp-request content set-dst var(txn.ip)\n";
    let (_weir, port) = start_lookups(&names, " timeout retry 10s\n", rules, origin.port());
    let mut client = Client::connect(port);
    // "GET / HTTP/1.1\r\nHost: " is 22 bytes long.
    assert_eq!(get(&mut client, "app.test"), "found");
}

#[test]
fn state_file_keeps_addresses_and_names() {
    let names = NameServer::start(&[
        (
            "_http._tcp.test",
            Zone::Services(vec![(512, 81, "x.test", Some("127.0.0.7")), (512, 82, "y.test", None)]),
        ),
        ("y.test", Zone::Addresses(vec!["127.0.0.8"])),
        ("app.test", Zone::Addresses(vec!["127.0.0.1"])),
        ("set.test", Zone::Addresses(vec!["127.0.0.2"])),
    ]);
    let silent = NameServer::start(&[]);
    for name in ["_http._tcp.test", "y.test", "app.test", "set.test"] {
        silent.say(name, Zone::Silence);
    }
    let directory = scratch("names");
    let file = directory.join("states");
    std::fs::write(&file, "").expect("a file");
    let configuration = |names: &NameServer, port| {
        format!(
            "global\n nbthread 2\n stats socket runtime level admin\n server-state-file {}\n\
             resolvers dns\n nameserver ns1 127.0.0.1:{}\n timeout resolve 20ms\n timeout retry 10s\n\
             defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
             load-server-state-from-file global\n\
             frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
             backend b\n default-server init-addr last,none resolvers dns resolve-prefer ipv4\n\
             server-template t 2 _http._tcp.test\n server s1 app.test:80\n server s2 app.test:80\n\
             server s3 gone.test:80\n",
            file.display(),
            names.port()
        )
    };
    let port = free_port();
    let weir = Weir::start(&configuration(&names, port), &[port]);
    becomes(&weir, "s1", "127.0.0.1 0 1 app.test 80");
    weir.ask("set server b/s2 fqdn set.test");
    let wanted = [
        ("t1", "127.0.0.7 64 2 x.test 81"),
        ("t2", "127.0.0.8 64 2 y.test 82"),
        ("s1", "127.0.0.1 0 1 app.test 80"),
        ("s2", "127.0.0.2 64 1 set.test 80"),
        ("s3", "- 32 1 gone.test 80"),
    ];
    wanted.iter().for_each(|(server, state)| becomes(&weir, server, state));
    std::fs::write(&file, weir.ask("show servers state")).expect("a file");
    drop(weir);

    // No name server answers now.
    let port = free_port();
    let weir = Weir::start(&configuration(&silent, port), &[port]);
    for (server, wanted) in wanted {
        // A name from a record is marked as such when the record arrives; one set by an operator is kept.
        let wanted = if server.starts_with('t') { wanted.replace(" 64 ", " 0 ") } else { wanted.to_owned() };
        assert_eq!(state(&weir, server), wanted);
    }
    drop(weir);

    // The records are assigned as before, even if they arrive in another order.
    let services = vec![(512, 82, "y.test", Some("127.0.0.8")), (512, 81, "x.test", Some("127.0.0.9"))];
    names.say("_http._tcp.test", Zone::Services(services));
    let port = free_port();
    let weir = Weir::start(&configuration(&names, port), &[port]);
    becomes(&weir, "t1", "127.0.0.9 0 2 x.test 81");
    assert_eq!(state(&weir, "t2"), "127.0.0.8 0 2 y.test 82");
}

#[test]
fn hundreds_of_servers_follow_hundreds_of_records() {
    const MANY: u16 = 600;
    let leak = |text: String| -> &'static str { text.leak() };
    let all: Vec<_> = (0..MANY)
        .map(|at| (1, 1000 + at, "x.test", Some(leak(format!("127.0.{}.{}", at / 250, at % 250 + 1)))))
        .collect();
    let names = NameServer::start(&[("_http._tcp.test", Zone::Services(all.clone()))]);
    let section = format!(
        " nameserver ns1 tcp@127.0.0.1:{}\n accepted_payload_size 65535\n timeout retry 10s\n",
        names.port()
    );
    let (weir, _) = start(&[], &section, &format!(" server-template t {MANY} _http._tcp.test\n"));
    let up = || {
        let states = weir.ask("show servers state b");
        let ports = states.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(6) == Some(&"64")).then(|| words[18].to_owned())
        });
        ports.collect::<std::collections::HashSet<_>>().len()
    };
    assert!(eventually(|| up() == usize::from(MANY)), "{}", up());
    names.say("_http._tcp.test", Zone::Services(all[..200].to_vec()));
    assert!(eventually(|| up() == 200), "{}", up());
    names.say("_http._tcp.test", Zone::Services(all[100..].to_vec()));
    assert!(eventually(|| up() == usize::from(MANY) - 100), "{}", up());
}
