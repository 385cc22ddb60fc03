//! Discovered servers: a file or URL changes while requests are served, sources fail, and processes are reloaded.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use weir_tests::client::{Client, exchange_with, get};
use weir_tests::load::Load;
use weir_tests::reloading::{TOP, reload};
use weir_tests::sources::{SourceDialect, StreamSource, endpoint_slice, slice_list, watch_event};
use weir_tests::{Origin, Weir, check, eventually, free_port, scratch};

/// A configuration with one source and one backend, which the frontend uses.
fn configuration(port: u16, source: &str, line: &str) -> String {
    format!(
        "{TOP}discovery d\n  {source}\nfrontend f\n  bind 127.0.0.1:{port}\n  \
         http-request use-service prometheus-exporter if {{ path /metrics }}\n  default_backend b\n\
         backend b\n  balance roundrobin\n  servers from d {line}\n"
    )
}

/// Writes the file that the program reads, at once.
fn write(weir: &Weir, text: &str) {
    write_in(weir.directory(), text);
}

fn write_in(directory: &Path, text: &str) {
    let next = directory.join("next.json");
    std::fs::write(&next, text).expect("the directory takes files");
    std::fs::rename(next, directory.join("hosts.json")).expect("the directory takes files");
}

/// A document with one group of targets on 127.0.0.1.
fn group(ports: &[u16], labels: &Value) -> Value {
    let targets: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    json!({"targets": targets, "labels": labels})
}

fn document(ports: &[u16]) -> String {
    json!([group(ports, &json!({}))]).to_string()
}

/// The names of the servers of the backend, in order.
fn servers(weir: &Weir) -> Vec<String> {
    let state = weir.ask("show servers state b");
    let rows = state.lines().skip(2).filter(|line| !line.is_empty());
    let mut names: Vec<String> = rows.filter_map(|row| row.split(' ').nth(3).map(str::to_owned)).collect();
    names.sort();
    names
}

fn name(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Waits until exactly these ports are servers.
fn await_servers(weir: &Weir, ports: &[u16]) {
    let mut names: Vec<String> = ports.iter().map(|port| name(*port)).collect();
    names.sort();
    assert!(eventually(|| servers(weir) == names), "{:?}: {}", servers(weir), weir.messages());
}

fn text(port: u16) -> Option<(u16, String)> {
    get(port, "/").map(|response| (response.status, response.text()))
}

#[test]
fn servers_follow_a_file() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let port = free_port();
    let weir = Weir::start(&configuration(port, "targets hosts.json refresh 100ms", ""), &[port]);
    assert!(weir.says("discovery d: hosts.json: No such file or directory; there is no list yet."));
    assert_eq!(text(port).map(|(status, _)| status), Some(503));
    write(&weir, &document(&[one.port(), two.port()]));
    await_servers(&weir, &[one.port(), two.port()]);
    let mut seen: Vec<_> = (0..4).filter_map(|_| text(port)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [(200, "one".to_owned()), (200, "two".to_owned())]);
    write(&weir, &document(&[two.port()]));
    await_servers(&weir, &[two.port()]);
    assert!((0..4).all(|_| text(port) == Some((200, "two".to_owned()))));
    let events = weir.ask("show events servers");
    for wanted in [
        format!("Server b/127.0.0.1:{0} is added at 127.0.0.1:{0}: discovery d lists it.", two.port()),
        format!("Server b/127.0.0.1:{} leaves: discovery d does not list it any more.", one.port()),
    ] {
        assert!(events.contains(&wanted), "{wanted}: {events}");
    }
    write(&weir, "[]");
    await_servers(&weir, &[]);
    assert_eq!(text(port).map(|(status, _)| status), Some(503));
}

#[test]
fn a_command_reads_the_list_without_waiting() {
    let origin = Origin::text("one");
    let port = free_port();
    let weir = Weir::start(&configuration(port, "targets hosts.json refresh 1h", ""), &[port]);
    assert!(weir.says("there is no list yet."));
    write(&weir, &document(&[origin.port()]));
    assert_eq!(weir.ask("refresh discovery x"), "No discovery section 'x'.\n\n");
    assert_eq!(weir.ask("refresh discovery d"), "\n");
    await_servers(&weir, &[origin.port()]);
    write(&weir, "[]");
    weir.ask("refresh discovery");
    await_servers(&weir, &[]);
}

#[test]
fn unusable_documents_and_outages_keep_the_servers() {
    let origin = Origin::text("one");
    let answer = Arc::new(Mutex::new((200, document(&[origin.port()]))));
    let shown = answer.clone();
    let source = Origin::start(move |_, _| {
        let (status, body) = shown.lock().expect("no panic").clone();
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let port = free_port();
    let line = format!("targets http://localhost:{}/hosts?x=1 refresh 100ms", source.port());
    let weir = Weir::start(&configuration(port, &line, ""), &[port]);
    await_servers(&weir, &[origin.port()]);
    let state = || weir.ask("show discovery").lines().nth(1).unwrap_or_default().to_owned();
    for (status, body, error) in [
        (500, String::new(), "it answers with status 500"),
        (206, "[]".to_owned(), "it answers with status 206"),
        (200, document(&[origin.port()])[..20].to_owned(), "line 1, column 20: EOF while parsing a string"),
        (
            200,
            "[{\"targets\": [\"a b:80\"]}]".to_owned(),
            "group 1, target 1: `a b:80` is not an IP address or host name with a port",
        ),
        (200, "{}".to_owned(), "the document is not a list of groups"),
    ] {
        *answer.lock().expect("no panic") = (status, body);
        assert!(
            eventually(|| weir.ask("show discovery d").contains(&format!("  error: {error}\n"))),
            "{error}"
        );
        assert!(state().starts_with("d - failed "), "{}", state());
        assert_eq!(text(port), Some((200, "one".to_owned())));
    }
    assert!(weir.says("it answers with status 500; the last list (1 instances) is kept."));
    let metrics = weir.ask("show discovery d");
    assert!(metrics.contains(&format!("  127.0.0.1:{0} 127.0.0.1:{0} ready\n", origin.port())), "{metrics}");
    *answer.lock().expect("no panic") = (200, "[]".to_owned());
    await_servers(&weir, &[]);
    assert!(weir.says("discovery d: the source answers again, with 0 instances."));
    assert!(state().starts_with("d - current "), "{}", state());
}

#[test]
fn host_names_are_resolved() {
    let origin = Origin::text("one");
    let port = free_port();
    let weir = Weir::start(&configuration(port, "targets hosts.json refresh 100ms", ""), &[port]);
    let target = format!("localhost:{}", origin.port());
    write(&weir, &json!([{"targets": [target]}]).to_string());
    assert!(eventually(|| servers(&weir) == [target.clone()]), "{}", weir.messages());
    assert_eq!(text(port), Some((200, "one".to_owned())));
    let state = weir.ask("show servers state b");
    assert!(state.contains(&format!(" {target} 127.0.0.1 ")), "{state}");
}

#[test]
fn a_server_that_leaves_ends_with_its_last_request() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waits = gate.clone();
    let slow = Origin::start(move |_, _| {
        let (open, changed) = &*waits;
        drop(changed.wait_while(open.lock().expect("no panic"), |open| !*open));
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow".to_vec()
    });
    let fast = Origin::text("fast");
    let port = free_port();
    let directory = scratch("discovery");
    write_in(&directory, &document(&[slow.port()]));
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let weir = Weir::start(&configuration(port, &source, ""), &[port]);
    await_servers(&weir, &[slow.port()]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(eventually(|| weir.stat(&format!("b,{}", name(slow.port())), "scur") == "1"));
    write_in(&directory, &document(&[fast.port()]));
    await_servers(&weir, &[slow.port(), fast.port()]);
    assert!((0..4).all(|_| text(port) == Some((200, "fast".to_owned()))));
    // The instance comes back at the same address, so it is the same server, and leaves again.
    write_in(&directory, &document(&[fast.port(), slow.port()]));
    let status = |port: u16| weir.stat(&format!("b,{}", name(port)), "status");
    assert!(eventually(|| status(slow.port()) == "no check"), "{}", status(slow.port()));
    write_in(&directory, &document(&[fast.port()]));
    assert!(eventually(|| status(slow.port()) == "MAINT"));
    *gate.0.lock().expect("no panic") = true;
    gate.1.notify_all();
    assert_eq!(client.response().map(|response| response.text()), Some("slow".to_owned()));
    await_servers(&weir, &[fast.port()]);
}

#[test]
fn labels_select_and_describe_servers() {
    let origin = Origin::text("one");
    let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let port = free_port();
    let directory = scratch("discovery");
    let groups = json!([
        group(&[origin.port()], &json!({"env": "prod", "zone": "near", "weight": "7"})),
        group(&ports[..1], &json!({"env": "prod", "zone": "far"})),
        group(&ports[1..2], &json!({"env": "prod", "zone": "near", "ready": "false"})),
        group(&ports[2..3], &json!({"env": "test"})),
        group(&ports[3..4], &json!({"env": "prod", "draining": "true"})),
    ]);
    write_in(&directory, &groups.to_string());
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let line = "label env=prod prefer-zone near max 9 weight 20";
    let weir = Weir::start(&configuration(port, &source, line), &[port]);
    // An instance that is draining from the start gets no server.
    await_servers(&weir, &[origin.port(), ports[0], ports[1]]);
    let stat = |port: u16, column: &str| weir.stat(&format!("b,{}", name(port)), column);
    let row = |port: u16| ["status", "weight", "act", "bck"].map(|column| stat(port, column));
    assert_eq!(row(origin.port()), ["no check", "7", "1", "0"]);
    assert_eq!(row(ports[0]), ["no check", "20", "0", "1"]);
    assert_eq!(row(ports[1])[0], "MAINT");
    assert_eq!(text(port), Some((200, "one".to_owned())));
    let explained = weir.ask("explain frontend f GET /");
    let wanted = format!("from discovery d: {}, ready, zone near", name(origin.port()));
    assert!(explained.contains(&wanted), "{explained}");
    // The source changes its mind about each of them.
    let groups = json!([
        group(&[origin.port()], &json!({"env": "prod", "zone": "near", "draining": "true"})),
        group(&ports[..1], &json!({"env": "prod", "zone": "far", "weight": "3"})),
        group(&ports[1..2], &json!({"env": "prod", "zone": "near"})),
    ]);
    write_in(&directory, &groups.to_string());
    assert!(eventually(|| stat(origin.port(), "status") == "DRAIN"), "{:?}", row(origin.port()));
    assert!(eventually(|| stat(ports[1], "status") == "no check"));
    assert_eq!((stat(ports[0], "weight"), stat(origin.port(), "weight")), ("3".to_owned(), "20".to_owned()));
}

#[test]
fn the_limit_is_kept_and_reported() {
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let port = free_port();
    let directory = scratch("discovery");
    write_in(&directory, &document(&ports));
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let weir = Weir::start(&configuration(port, &source, "max 3"), &[port]);
    assert!(eventually(|| servers(&weir).len() == 3), "{}", weir.messages());
    assert!(weir.says("discovery d: 1 instances get no server in backend b, because its line has `max 3`."));
    let row = |line: &str| line.starts_with("d - current ") && line.ends_with(" 4 3 1");
    assert!(eventually(|| weir.ask("show discovery").lines().any(row)), "{}", weir.ask("show discovery"));
    let metrics = get(port, "/metrics").map(|response| response.text()).unwrap_or_default();
    for (name, value) in [
        ("instances", 4),
        ("servers", 3),
        ("excess", 1),
        ("changes_total", 0),
        ("errors_total", 0),
        ("failed", 0),
    ] {
        let line = format!("weir_discovery_{name}{{section=\"d\",query=\"\"}} {value}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(metrics.contains("weir_discovery_age_seconds{section=\"d\",query=\"\"} "), "{metrics}");
    // The last one takes the place of one that leaves.
    let left: Vec<u16> = ports.iter().copied().filter(|port| *port != ports[0]).collect();
    write_in(&directory, &document(&left));
    await_servers(&weir, &left);
}

#[test]
fn checks_and_slow_start_apply_to_discovered_servers() {
    let origin = Origin::text("one");
    let dead = free_port();
    let port = free_port();
    let directory = scratch("discovery");
    write_in(&directory, "[]");
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let line = "check inter 100ms fall 1 slowstart 1h weight 100";
    let weir = Weir::start(&configuration(port, &source, line), &[port]);
    // Servers that a process starts with have their whole weight.
    assert!(eventually(|| weir.ask("show discovery").contains("\nd - current ")));
    write_in(&directory, &document(&[origin.port(), dead]));
    await_servers(&weir, &[origin.port(), dead]);
    let stat = |port: u16, column: &str| weir.stat(&format!("b,{}", name(port)), column);
    assert!(eventually(|| stat(dead, "status") == "DOWN"), "{}", stat(dead, "status"));
    assert!(eventually(|| stat(origin.port(), "check_status") == "L4OK"));
    assert_eq!(stat(origin.port(), "status"), "UP");
    assert!(
        stat(origin.port(), "weight").parse::<u32>().is_ok_and(|weight| weight < 100),
        "its weight rises"
    );
}

#[test]
fn an_address_or_a_name_of_another_machine_is_another_server() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let port = free_port();
    let directory = scratch("discovery");
    let named = |port: u16, id: &str| json!([group(&[port], &json!({"id": id}))]).to_string();
    write_in(&directory, &named(one.port(), "web/0"));
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let weir = Weir::start(&configuration(port, &source, ""), &[port]);
    assert!(eventually(|| servers(&weir) == ["web-0"]), "{:?}", servers(&weir));
    assert_eq!(text(port), Some((200, "one".to_owned())));
    let id = weir.stat("b,web-0", "sid");
    write_in(&directory, &named(two.port(), "web/0"));
    assert!(eventually(|| text(port) == Some((200, "two".to_owned()))));
    // While the former server has its name, the new one gets another.
    assert!(eventually(|| servers(&weir).len() == 1), "{:?}", servers(&weir));
    let new = servers(&weir).remove(0);
    assert_ne!(weir.stat(&format!("b,{new}"), "sid"), id);
}

#[test]
fn a_reload_in_place_keeps_the_servers() {
    let origin = Origin::text("one");
    let port = free_port();
    let source = "targets hosts.json refresh 100ms";
    let weir = Weir::start(&configuration(port, source, ""), &[port]);
    write(&weir, &document(&[origin.port()]));
    await_servers(&weir, &[origin.port()]);
    assert_eq!(text(port), Some((200, "one".to_owned())));
    // From here on, the source fails.
    std::fs::remove_file(weir.directory().join("hosts.json")).expect("the file exists");
    assert!(weir.says("No such file or directory; the last list (1 instances) is kept."));
    for (source, line) in
        [(source, ""), (source, "weight 9"), ("targets hosts.json refresh 200ms", "weight 9")]
    {
        let text_now =
            configuration(port, source, line) + "frontend other\n  http-request return status 200\n";
        let changes = reload(&weir, &text_now);
        assert!(!changes.contains("error"), "{changes}");
        assert_eq!(servers(&weir), [name(origin.port())], "{source} {line}");
        assert_eq!(text(port), Some((200, "one".to_owned())), "{source} {line}");
    }
    let stat = |column: &str| weir.stat(&format!("b,{}", name(origin.port())), column);
    assert!(eventually(|| stat("stot") == "4"), "it is the same server: {}", stat("stot"));
    assert_eq!(stat("weight"), "9");
    // The new plan follows the source.
    let other = Origin::text("two");
    write(&weir, &document(&[other.port()]));
    await_servers(&weir, &[other.port()]);
    assert_eq!(text(port), Some((200, "two".to_owned())));
    // Without the line, they are gone.
    let plain = format!(
        "{TOP}frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    reload(&weir, &plain);
    assert_eq!(servers(&weir), ["s"]);
    assert_eq!(text(port), Some((200, "one".to_owned())));
}

#[test]
fn a_draining_server_survives_a_reload_in_place() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let port = free_port();
    let text = |more: &str| {
        let sticky = "dynamic-cookie-key k\n  cookie SRV insert indirect dynamic\n  servers from d";
        configuration(port, "targets hosts.json refresh 100ms", "").replace("servers from d", sticky) + more
    };
    let weir = Weir::start(&text(""), &[port]);
    write(&weir, &document(&[one.port()]));
    await_servers(&weir, &[one.port()]);
    let first = get(port, "/").expect("a response");
    let cookie = first.header("set-cookie").and_then(|value| value.split(';').next()).expect("a cookie");
    let fields = format!("Cookie: {cookie}\r\n");
    let draining = group(&[one.port()], &json!({"draining": "true"}));
    write(&weir, &json!([draining, group(&[two.port()], &json!({}))]).to_string());
    await_servers(&weir, &[one.port(), two.port()]);
    let stat = |column: &str| weir.stat(&format!("b,{}", name(one.port())), column);
    assert!(eventually(|| stat("status") == "DRAIN"), "{}", stat("status"));
    for more in ["", "frontend other\n  http-request return status 200\n"] {
        let changes = reload(&weir, &text(more));
        assert!(!changes.contains("error"), "{changes}");
        assert_eq!((stat("status"), servers(&weir).len()), ("DRAIN".to_owned(), 2));
        let kept = exchange_with(port, "/", &fields).expect("a response");
        assert_eq!((kept.status, kept.text()), (200, "one".to_owned()));
        assert_eq!(get(port, "/").map(|other| other.text()), Some("two".to_owned()));
    }
}

#[test]
fn a_new_process_starts_with_the_servers_of_the_former_one() {
    start_a_successor(true);
}

#[test]
fn a_new_process_without_sockets_of_the_former_one_asks_at_its_runtime_socket() {
    start_a_successor(false);
}

/// Replaces a process while the source fails. With `takes_sockets`, `-x` names the runtime socket.
fn start_a_successor(takes_sockets: bool) {
    let origin = Origin::text("one");
    let port = free_port();
    let directory = scratch("discovery");
    write_in(
        &directory,
        &json!([group(&[origin.port()], &json!({"id": "web-0", "weight": "7", "env": "x"}))]).to_string(),
    );
    let socket = directory.join("runtime").display().to_string();
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let text_now = configuration(port, &source, "label env=x")
        .replace("stats socket runtime", &format!("stats socket {socket}"));
    let mut weir = Weir::start(&text_now, &[port]);
    assert!(eventually(|| text(port) == Some((200, "one".to_owned()))));
    std::fs::remove_file(directory.join("hosts.json")).expect("the file exists");
    let pid = weir.pid().to_string();
    let all = ["-db", "-x", &socket, "-sf", &pid];
    let arguments = if takes_sockets { &all[..] } else { &["-db", "-sf", &pid] };
    let next = Weir::start_with(&text_now, arguments, &[port]);
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
    assert!(next.says("the last list (1 instances) is kept"), "{}", next.messages());
    assert_eq!(text(port), Some((200, "one".to_owned())));
    let shown = weir_tests::ask(Path::new(&socket), "show servers state b");
    assert!(shown.lines().nth(2).is_some_and(|row| row.contains(" web-0 127.0.0.1 2 0 7 ")), "{shown}");
}

#[test]
fn a_new_worker_starts_with_the_servers_of_the_former_one() {
    let origin = Origin::text("one");
    let port = free_port();
    let directory = scratch("discovery");
    write_in(&directory, &document(&[origin.port()]));
    let source = format!("targets {} refresh 100ms", directory.join("hosts.json").display());
    let weir = Weir::start_with(&configuration(port, &source, ""), &["-W", "-S", "./master"], &[port]);
    assert!(eventually(|| text(port) == Some((200, "one".to_owned()))));
    std::fs::remove_file(directory.join("hosts.json")).expect("the file exists");
    let master = weir.directory().join("master");
    assert!(eventually(|| weir_tests::ask(&master, "reload").contains("Success=1")), "{}", weir.messages());
    assert_eq!(text(port), Some((200, "one".to_owned())), "{}", weir.messages());
}

#[test]
fn a_thousand_changes_under_load_lose_no_request() {
    /// The number of pods, and of replacements of all of them: each adds and removes a server.
    const PODS: usize = 10;
    const ROUNDS: usize = 100;
    let origin = Origin::echo();
    let pods = |round: usize| -> Vec<String> { (0..PODS).map(|pod| format!("web-{round}-{pod}")).collect() };
    let slice = |round: usize| {
        let names = pods(round);
        let endpoints: Vec<(&str, Value)> =
            names.iter().map(|name| (&**name, json!({"ready": true}))).collect();
        endpoint_slice("web-a", round, origin.port(), &endpoints)
    };
    let source = StreamSource::start(SourceDialect::Kubernetes, slice_list(0, &[slice(0)]));
    let port = free_port();
    let line = format!("kubernetes http://127.0.0.1:{}", source.port());
    let weir = Weir::start(&configuration(port, &line, "service shop/web port http"), &[port]);
    assert!(eventually(|| servers(&weir).len() == PODS), "{}", weir.messages());
    let loads = [Load::start(port, true), Load::start(port, false)];
    for round in 1..=ROUNDS {
        loads.iter().for_each(|load| load.go_on(1));
        source.publish(slice_list(round, &[slice(round)]), watch_event("MODIFIED", &slice(round)));
        let name = format!(" web-{round}-9 ");
        assert!(eventually(|| weir.ask("show servers state b").contains(&name)), "{round}");
    }
    for load in loads {
        load.go_on(20);
        assert_eq!(load.end(), Vec::<String>::new());
    }
    assert!(eventually(|| servers(&weir) == pods(ROUNDS)), "{:?}", servers(&weir));
    let changes =
        weir.ask("show discovery").lines().nth(1).and_then(|row| row.split(' ').nth(5).map(str::to_owned));
    assert!(changes.and_then(|text| text.parse::<usize>().ok()).is_some_and(|count| count > ROUNDS / 2));
}

#[test]
fn errors_name_the_place_the_cause_and_the_way_out() {
    let directory = scratch("discovery");
    for (source, line, error) in [
        ("targets x", "frobnicate", "unknown"),
        ("targets x", "service a", "`service` does not apply to a `targets` source"),
        ("targets x", "label a", "`a` is not `<name>=<value>`"),
        ("targets x", "max 0", "0"),
        ("targets x", "cookie x", "`cookie` cannot be used for discovered servers"),
        ("targets x", "check track b/s", "`track` cannot be used for discovered servers"),
        ("targets x refresh 10ms", "", "`refresh` must be at least 100ms"),
        ("targets x retry 5", "", "unknown option `retry` of `targets`"),
        ("targets x ca-file y", "", "TLS options require an `https` URL"),
        ("targets x token-file y", "", "`x` needs no token"),
        ("targets http://a:0/", "", "the port must be a number from 1 to 65535"),
        ("consul http://127.0.0.1", "", "`service` is missing"),
        ("consul http://127.0.0.1/v1", "service a", "has a path, but only the server is needed"),
        ("consul http://127.0.0.1 refresh 5s", "service a", "unknown option `refresh` of `consul`"),
        ("kubernetes http://127.0.0.1", "service web", "`web` is not `<namespace>/<name>`"),
        ("kubernetes", "service shop/web", "the process does not run in a pod"),
        ("etcd http://127.0.0.1", "service a", "`service` does not apply to a `etcd` source"),
        ("docker unix@", "", "the path of the UNIX socket is missing"),
        ("targets x\n  targets y", "", "a discovery section has one source"),
    ] {
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, configuration(1, source, line)).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert!(!verdict.accepted(), "{source} | {line}");
        let alerts = verdict.alerts().join("\n").replace('\'', "`");
        assert!(alerts.contains(error), "{source} | {line}: {alerts}");
    }
    let file = directory.join("haproxy.cfg");
    for (text, error) in [
        (
            configuration(1, "targets x", "").replace("servers from d", "servers from e"),
            "there is no discovery section `e`",
        ),
        (
            configuration(1, "targets x", "").replace("roundrobin", "static-rr"),
            "does not allow servers to be added",
        ),
        (
            configuration(1, "targets x", "").replace("  targets x\n", ""),
            "discovery section `d` has no source",
        ),
    ] {
        std::fs::write(&file, text).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert!(
            !verdict.accepted() && verdict.alerts().join("\n").replace('\'', "`").contains(error),
            "{error}: {verdict:?}"
        );
    }
}
