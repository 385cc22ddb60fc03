//! Claims about the runtime socket and the statistics page, over an in-memory connection.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use control::statistics::{PageRequest, PageSettings, respond};
use control::{Level, ProxyView, Runtime, ServerView, SeverityOutput, SocketView, View, serve};
use state::proxy::ProxySeed;
use state::server::{CheckResult, Operational, ServerAddress, ServerSeed};
use state::{Listener, Mode, Proxy, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

fn server(id: u32, name: &str, checked: bool, backup: bool) -> Arc<Server> {
    let server = Server::new(ServerSeed {
        id,
        name: name.into(),
        proxy: "be".into(),
        backup,
        maxconn: 0,
        minconn: 0,
        maxqueue: 0,
        address: ServerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], 8000 + id as u16))),
        weight: 10,
        disabled: false,
        checked,
    });
    server.health.configured.store(checked, Relaxed);
    server.health.rise.store(2, Relaxed);
    server.health.fall.store(3, Relaxed);
    server.health.level.store(4, Relaxed);
    server
}

fn proxy(id: u32, name: &str, is_frontend: bool, is_backend: bool, servers: Vec<Arc<Server>>) -> ProxyView {
    let state = Arc::new(Proxy::new(ProxySeed {
        id,
        name: name.into(),
        mode: Mode::Http,
        is_frontend,
        is_backend,
        maxconn: 2000,
        session_limit: 0,
        disabled: false,
    }));
    state.servers.store(Arc::new(servers.clone()));
    if is_frontend {
        let listener = Listener::new(1, "sock-1".into(), "127.0.0.1:80".into(), 0);
        state.listeners.store(Arc::new(vec![Arc::new(listener)]));
    }
    let view = |state: Arc<Server>| ServerView {
        cookie: Some(format!("c{}", state.id).into()),
        pool_max: -1,
        pool_purge: Duration::from_secs(5),
        state,
    };
    ProxyView {
        servers: servers.into_iter().map(|server| (server.id, view(server))).collect::<HashMap<_, _>>(),
        state,
        algorithm: "roundrobin",
        dynamic_weights: true,
        cookie: None,
        description: None,
        listeners: false,
    }
}

fn runtime() -> Arc<Runtime> {
    let process = Arc::new(state::Process::default());
    process.maxconn.store(1000, Relaxed);
    process.hard_maxconn.store(1000, Relaxed);
    let servers =
        vec![server(1, "s1", true, false), server(2, "s2", false, false), server(3, "s3", false, true)];
    let view = View {
        node: "n1".into(),
        proxies: vec![proxy(2, "fe", true, false, vec![]), proxy(3, "be", false, true, servers)],
        sockets: vec![SocketView { address: "unix@/tmp/s".into(), level: Level::Admin }],
        environment: vec![("A".into(), "1".into())],
        ..View::default()
    };
    Arc::new(Runtime::new(process, view))
}

fn ask_at(runtime: &Arc<Runtime>, level: Level, input: &str) -> String {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    executor.block_on(async {
        let (mut ours, theirs) = duplex(1 << 20);
        ours.write_all(input.as_bytes()).await.unwrap();
        ours.shutdown().await.unwrap();
        serve(theirs, level, SeverityOutput::None, runtime.clone(), None).await.unwrap();
        let mut output = String::new();
        ours.read_to_string(&mut output).await.unwrap();
        output
    })
}

fn ask(runtime: &Arc<Runtime>, input: &str) -> String {
    ask_at(runtime, Level::Admin, input)
}

fn be(runtime: &Runtime) -> Arc<Proxy> {
    runtime.view().backend("be").unwrap().state.clone()
}

#[test]
fn a_line_of_commands_is_answered_and_the_connection_closed() {
    let runtime = runtime();
    let version = format!("{}\n\n", runtime.version);
    assert_eq!(ask(&runtime, "show version\n"), version);
    assert_eq!(ask(&runtime, "show version"), version, "the last line needs no end");
    assert_eq!(ask(&runtime, "show version; show cli level\nshow version\n"), format!("{version}admin\n\n"));
    assert_eq!(ask(&runtime, "quit;show version\n"), "");
    assert_eq!(ask(&runtime, "echo a\\;b c\n"), "a;b c\n\n");
    let interactive =
        ask(&runtime, "prompt\nshow cli level\nprompt i\nshow cli level\nquit\nshow cli level\n");
    assert_eq!(interactive, "\n> admin\n\n> \nadmin\n\n");
    let timed = ask(&runtime, "prompt timed\nquit\n");
    assert_eq!(timed, "\n[0:00:00:00]> ");
}

#[test]
fn messages_are_those_of_haproxy() {
    let runtime = runtime();
    #[rustfmt::skip]
    let cases = [
        ("set weight be/s1 5",                    ""),
        ("get weight be/s1",                      "5 (initial 10)\n"),
        ("set weight be/s1 50%",                  ""),
        ("get weight #3/#1",                      "5 (initial 10)\n"),
        ("set weight be/s9 5",                    "No such server.\n"),
        ("set weight zz/s9 5",                    "No such backend.\n"),
        ("set weight be s1",                      "Require 'backend/server'.\n"),
        ("set weight be/s1 500",                  "Absolute weight can only be between 0 and 256 inclusive.\n"),
        ("set server be/s1 state foo",            "'set server <srv> state' expects 'ready', 'drain' and 'maint'.\n"),
        ("set server be/s1 addr zz",               "Invalid addr 'zz'\n"),
        ("set server be/s1 addr 127.0.0.2 port 80", "IP changed from '127.0.0.1' to '127.0.0.2', port changed from '8001' to '80' by 'stats socket command'\n"),
        ("set server be/s1 addr 127.0.0.2 port 80", "nothing changed\n"),
        ("set server be/s1 fqdn x",               "set server <b>/<s> fqdn failed because no resolution is configured.\n"),
        ("enable health be/s2",                   "Health check was not configured on this server, cannot enable.\n"),
        ("disable frontend fe",                   ""),
        ("disable frontend fe",                   "All sockets are already disabled.\n"),
        ("enable frontend fe",                    ""),
        ("enable frontend zz",                    "No such frontend.\n"),
        ("shutdown frontend fe",                  ""),
        ("shutdown frontend fe",                  "Frontend was already shut down.\n"),
        ("set maxconn frontend fe 10",            ""),
        ("set maxconn frontend fe",               "Integer value expected.\n"),
        ("set maxconn global 100",                ""),
        ("set maxconn global 5000",               "Value out of range.\n"),
        ("set maxconn server be/s2 7",            ""),
        ("set rate-limit sessions global 5",      ""),
        ("set timeout cli",                       "Expects an integer value.\n"),
        ("set timeout cli 5",                     ""),
        ("clear counters",                        ""),
        ("clear counters all",                    ""),
        ("clear counters server be/s1",           "Server counters cleared.\n"),
        ("show backend",                          "# name\nbe\n"),
        ("show env A",                            "A=1\n"),
        ("show env B",                            "Variable not found\n"),
        ("show cli sockets",                      "# socket lvl processes\nunix@/tmp/s admin all\n"),
        ("show servers state zz",                 "Can't find backend.\n"),
        ("show sess 0x12",                        "Session not found.\n"),
        ("shutdown session 0x12",                 "No such session (use 'show sess').\n"),
        ("shutdown sessions server be/s1",        ""),
        ("experimental-mode",                     "experimental-mode is OFF\n"),
        ("expert-mode on;expert-mode",            "\nexpert-mode is ON\n"),
        ("set var proc.x int(1)",                 "This command is restricted to experimental mode only.\n"),
        ("debug dev log",                         "This command is restricted to expert mode only.\n"),
        ("show table",                            "The command 'show table' is not supported yet.\n"),
        ("wait",                                  "Expects a duration in milliseconds.\n"),
        ("wait x",                                "Invalid duration.\n"),
        ("show fd -z",                            "Invalid FD type\n"),
        ("show fd -!pl",                          "Kinds of descriptors are not told apart here: only 'show fd [num]' is supported.\n"),
        ("wait 1ms",                              "Done.\n"),
        ("wait 1ms srv-removable be/nobody",      "Failed. No such server.\n"),
        ("wait 1ms srv-removable",                "Missing server name (<backend>/<server>).\n"),
        ("wait 1ms srv-removable be/s1",          "Failed. Only servers in maintenance mode can be deleted.\n"),
        ("wait 1ms be-removable be",              "Failed. Backend must be unpublished prior to its deletion.\n"),
        ("add backend x from y",                  "No backend can be added here.\n"),
        ("del backend x",                         "No backend can be removed here.\n"),
        ("trace",                                 "Supported trace sources and states (.=stopped, w=waiting, R=running) :\n [.] 0          : not a source, will immediately stop all traces\n"),
        ("trace 0",                               "All traces now stopped\n"),
        ("trace h1",                              "No such trace source 'h1'\n"),
        ("show trace",                            "Supported trace sources and states (.=stopped, w=waiting, R=running) :\n"),
        ("show trace h1",                         "No such trace source\n"),
        ("debug counters",                        ""),
        ("set server be/s1 check-port",           "set server <b>/<s> check-port requires a port.\n"),
        ("set server be/s1 check-port x",         "provided port is not an integer\n"),
        ("set server be/s1 check-port 99999",     "provided port is invalid\n"),
        ("set server be/s1 check-addr zz",        "invalid addr 'zz'\n"),
        ("set server be/s1 check-addr 192.0.2.9 port 88", ""),
        ("set server be/s1 agent-addr 192.0.2.9", "agent checks are not enabled on this server\n"),
        ("set server be/s1 agent-send x",         "agent checks are not enabled on this server.\n"),
        ("set server be/s2 check-port 5",         "health checks are not enabled on this server\n"),
        ("set server be/s1 ssl on",               "server ssl setting not supported.\n"),
    ];
    for (command, answer) in cases {
        assert_eq!(ask(&runtime, &format!("{command}\n")), format!("{answer}\n"), "{command}");
    }
    let unknown = ask(&runtime, "show bogus\n");
    assert!(unknown.starts_with("Unknown command: 'show', but maybe one of the following"), "{unknown}");
    assert!(unknown.contains("  show info [desc|json|typed|float]*      : report information"), "{unknown}");
    assert!(ask(&runtime, "help\n").contains("  disable server <bk>/<srv>               : "));
}

#[test]
fn levels_go_down_and_bind() {
    let runtime = runtime();
    assert_eq!(
        ask(&runtime, "operator;show cli level;set weight be/s1 1;user;operator;show env\n"),
        "\noperator\n\nPermission denied\n\n\nPermission denied\n\nPermission denied\n\n"
    );
    assert_eq!(ask_at(&runtime, Level::Operator, "clear counters all\n"), "Permission denied\n\n");
    assert_eq!(ask_at(&runtime, Level::Operator, "clear counters\n"), "\n");
    assert!(!ask_at(&runtime, Level::User, "show stat\n").contains("127.0.0.1:8001"));
    assert!(ask_at(&runtime, Level::Operator, "show stat\n").contains("127.0.0.1:8001"));
    let severity = ask(
        &runtime,
        "set severity-output number;get weight be/x;set severity-output string;get weight be/x\n",
    );
    assert_eq!(severity, "\n[3]: No such server.\n\n\n[err]: No such server.\n\n");
}

/// One line of the CSV by names, as column → value.
fn csv(runtime: &Arc<Runtime>, proxy: &str, name: &str) -> HashMap<String, String> {
    let text = ask(runtime, "show stat\n");
    let mut lines = text.lines();
    let titles: Vec<&str> = lines.next().unwrap().trim_start_matches("# ").split(',').collect();
    let line = lines.find(|line| line.starts_with(&format!("{proxy},{name},"))).unwrap();
    titles.iter().zip(line.split(',')).map(|(t, v)| ((*t).to_owned(), v.to_owned())).collect()
}

#[test]
fn csv_has_the_columns_of_the_manual_in_their_places() {
    let runtime = runtime();
    let text = ask(&runtime, "show stat\n");
    let header = text.lines().next().unwrap().trim_start_matches("# ");
    let columns: Vec<&str> = header.split(',').collect();
    #[rustfmt::skip]
    let places = [(0, "pxname"), (1, "svname"), (17, "status"), (18, "weight"), (36, "check_status"), (48, "req_tot"),
                  (73, "addr"), (94, "eint"), (99, "uweight"), (103, "srid"), (112, "proto"), (118, "cache_hint_hits"), (119, "-")];
    for (place, name) in places {
        assert_eq!(columns[place], name);
    }
    let width = columns.len();
    assert!(text.lines().take_while(|line| !line.is_empty()).all(|line| line.split(',').count() == width));
    assert_eq!(text.lines().filter(|line| line.contains(',')).count(), 1 + 5);
    let only = ask(&runtime, "show stat 3 4 2\n");
    assert_eq!(only.lines().count(), 3, "a title, a server, an empty line: {only}");
    assert_eq!(ask(&runtime, "show stat be 2 -1\n").matches("\nbe,BACKEND,").count(), 1);
}

#[test]
fn a_server_shows_its_state_as_haproxy_names_it() {
    let runtime = runtime();
    let s1 = be(&runtime).server("s1").unwrap();
    let status = || csv(&runtime, "be", "s1")["status"].clone();
    assert_eq!((status(), csv(&runtime, "be", "s2")["status"].clone()), ("UP".into(), "no check".into()));
    s1.health.level.store(3, Relaxed);
    assert_eq!(status(), "UP 2/3");
    s1.set_operational(Operational::Stopped, 1);
    s1.health.level.store(1, Relaxed);
    assert_eq!(status(), "DOWN 1/2");
    s1.health.level.store(0, Relaxed);
    s1.health.last.store(Arc::new(CheckResult {
        status: "L4CON",
        code: None,
        duration_ms: 3,
        description: "Connection refused".into(),
    }));
    let row = csv(&runtime, "be", "s1");
    assert_eq!((row["status"].as_str(), row["check_status"].as_str()), ("DOWN", "L4CON"));
    assert_eq!(
        (row["check_desc"].as_str(), row["last_chk"].as_str()),
        ("Layer4 connection problem", "Connection refused")
    );
    assert_eq!(csv(&runtime, "be", "BACKEND")["status"], "UP");
    ask(&runtime, "set server be/s1 health up;set server be/s1 state drain\n");
    assert_eq!(status(), "DRAIN");
    ask(&runtime, "disable server be/s1;disable server be/s2;disable server be/s3\n");
    assert_eq!((status(), csv(&runtime, "be", "BACKEND")["status"].clone()), ("MAINT".into(), "DOWN".into()));
    assert!(!ask(&runtime, "show stat no-maint\n").contains("be,s1,"));
    ask(&runtime, "enable server be/s1\n");
    assert_eq!(status(), "UP 1/3", "up, but the first failed check brings it down");
}

#[test]
fn changes_by_hand_are_told_in_haproxys_words() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = told.clone();
    let runtime = Arc::into_inner(runtime()).unwrap();
    let notify = move |_: &Proxy, level: u8, text: &str| list.lock().unwrap().push((level, text.to_owned()));
    let runtime = Arc::new(runtime.with_notify(Arc::new(notify)));
    let tail = "0 sessions active, 0 requeued, 0 remaining in queue.";
    #[rustfmt::skip]
    let cases: &[(&str, &[(u8, String)])] = &[
        ("disable server be/s1", &[(1, format!("Server be/s1 is going DOWN for maintenance. 1 active and 1 backup servers left. {tail}"))]),
        ("disable server be/s1", &[]),
        ("set server be/s2 state drain", &[(5, "Server be/s2 enters drain state. 0 active and 1 backup servers online. Running on backup. \
            0 sessions requeued, 0 total in queue.".into())]),
        ("set server be/s3 state maint", &[(1, format!("Backup Server be/s3 is going DOWN for maintenance. 0 active and 0 backup servers left. {tail}")),
            (0, "backend be has no server available!".into())]),
        ("enable server be/s1", &[(5, "Server be/s1 is UP/READY (leaving forced maintenance).".into())]),
        ("set server be/s2 state ready", &[(5, "Server be/s2 is UP (leaving forced drain).".into())]),
    ];
    for (command, messages) in cases {
        ask(&runtime, &format!("{command}\n"));
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), *messages, "{command}");
    }
}

#[test]
fn a_server_leaves_maintenance_as_init_state_says() {
    let runtime = runtime();
    let server = be(&runtime).servers.load()[0].clone();
    // What `init-state` sets the level to, and what the server then is: rise is 2, fall is 3.
    let cases =
        [(None, "UP 1/3"), (Some(4), "UP"), (Some(2), "UP 1/3"), (Some(1), "DOWN 1/2"), (Some(0), "DOWN")];
    for (at, (level, wanted)) in cases.into_iter().enumerate() {
        server.health.set_initial(level);
        for command in ["set server be/s1 state maint\n", "set server be/s1 state ready\n"] {
            assert_eq!(ask(&runtime, command).trim(), "");
        }
        let row = csv(&runtime, "be", "s1");
        assert_eq!(row["status"], wanted, "{level:?}");
        // Maintenance counts, and begins from what was up only.
        assert_eq!(row["chkdown"], (at + 1).min(4).to_string(), "{level:?}");
    }
}

#[test]
fn maintenance_is_inherited_by_the_servers_that_track() {
    let runtime = runtime();
    let backend = be(&runtime);
    backend.server("s2").unwrap().track(&backend, &backend.server("s1").unwrap());
    ask(&runtime, "set server be/s1 state maint\n");
    assert_eq!(csv(&runtime, "be", "s2")["status"], "MAINT (via be/s1)");
    ask(&runtime, "set server be/s1 state ready\n");
    assert_eq!(csv(&runtime, "be", "s2")["status"], "UP 1/3");
}

#[test]
fn typed_and_json_outputs_carry_the_same_values() {
    let runtime = runtime();
    let typed = ask(&runtime, "show stat typed\n");
    assert!(typed.contains("F.2.0.0.pxname.1:KNSV:str:fe\n"), "{typed}");
    assert!(typed.contains("S.3.1.18.weight.1:MaPV:u32:10\n"));
    assert!(typed.contains("F.2.0.7.stot.1:MCPP:u64:0\n"));
    let json: serde_json::Value = serde_json::from_str(&ask(&runtime, "show stat json\n")).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 5);
    assert_eq!(json[0][0]["objType"], "Frontend");
    assert_eq!(json[1][0]["value"]["value"], "be");
    let json: serde_json::Value = serde_json::from_str(&ask(&runtime, "show info json\n")).unwrap();
    assert_eq!(json[0]["field"]["name"], "Name");
    let info = ask(&runtime, "show info\n");
    for line in ["Name: HAProxy", "Maxconn: 1000", "node: n1", "Process_num: 1", "CurrConns: 0"] {
        assert!(info.lines().any(|l| l == line), "{line} in {info}");
    }
    assert!(ask(&runtime, "show info typed\n").contains("15.Maxconn.1:CLPV:u32:1000\n"));
    serde_json::from_str::<serde_json::Value>(&ask(&runtime, "show schema json\n")).unwrap();
}

#[test]
fn the_state_of_servers_is_dumped_in_version_1() {
    let runtime = runtime();
    let text = ask(&runtime, "show servers state\n");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "1");
    let titles = lines[1].trim_start_matches("# ").split(' ').count();
    assert_eq!(titles, 25);
    assert_eq!(lines[2].split(' ').count(), titles);
    assert!(lines[2].starts_with("3 be 1 s1 127.0.0.1 2 0 10 10 "), "{}", lines[2]);
    assert!(
        ask(&runtime, "show servers conn be\n")
            .contains("\nbe/s1 3/1 127.0.0.1 8001 - 5000 0 0 0 0 0 0 0 -1 0")
    );
}

#[test]
fn sessions_are_listed_and_killed() {
    let runtime = runtime();
    let frontend = runtime.view().frontend("fe").unwrap().state.clone();
    let source = SocketAddr::from(([192, 0, 2, 1], 4711));
    let entry = state::sessions::register(
        &runtime::Local::new(frontend.clone()),
        Some(source),
        None,
        base::clock::now_ms(),
    );
    entry.set_backend(&runtime::Local::new(be(&runtime)));
    let listed = ask(&runtime, "show sess\n");
    let id = listed.split(':').next().unwrap().to_owned();
    assert!(listed.contains("proto=tcpv4 src=192.0.2.1:4711 fe=fe be=be srv=<none>"), "{listed}");
    assert_eq!(ask(&runtime, "show sess backend be frontend fe\n"), ask(&runtime, "show sess\n"));
    assert_eq!(ask(&runtime, "show sess older 1h\n"), "\n");
    assert!(ask(&runtime, &format!("show sess {id}\n")).contains("  frontend=fe (id=2 mode=http)"));
    assert_eq!(ask(&runtime, &format!("shutdown session {id}\n")), "\n");
    assert_eq!(entry.killed(), Some(state::sessions::Kill::Operator));
}

struct NoNames;

impl sample::Names for NoNames {
    fn backend(&self, _: &str) -> Option<Arc<Proxy>> {
        None
    }
    fn frontend(&self, _: &str) -> Option<Arc<Proxy>> {
        None
    }
    fn userlist(&self, _: &str) -> Option<Arc<sample::auth::Userlist>> {
        None
    }
    fn http_errors(&self, _: &str) -> Option<Arc<[(u16, Arc<[u8]>)]>> {
        None
    }
    fn read_file(&self, _: &str) -> Result<Vec<u8>, String> {
        Ok(b"/a 1\n/b two words\n".to_vec())
    }
}

#[test]
fn a_payload_beyond_its_limit_changes_nothing() {
    let mut sets = sample::pattern::PatternSets::default();
    sets.file("m.map", true, &NoNames).unwrap();
    let view = View { patterns: Arc::new(sets), payload_length: 8, ..View::default() };
    let runtime = Arc::new(Runtime::new(Arc::default(), view));
    assert_eq!(ask(&runtime, "add map m.map <<\n/c 3\n/d 4\n\n"), "Payload too large\n");
    assert_eq!(ask(&runtime, "add map m.map <<\n/c 3\n\n"), "\n");
    assert_eq!(ask(&runtime, "show map m.map\n"), "0x1 /a 1\n0x2 /b two words\n0x3 /c 3\n\n");
}

#[test]
fn lists_are_shown_changed_and_replaced_at_once() {
    let mut sets = sample::pattern::PatternSets::default();
    sets.file("m.map", true, &NoNames).unwrap();
    sets.file("a.lst", false, &NoNames).unwrap();
    let view = View { patterns: Arc::new(sets), ..View::default() };
    let runtime = Arc::new(Runtime::new(Arc::default(), view));
    #[rustfmt::skip]
    let cases = [
        ("show map", "# id (file) description\n0 (m.map) pattern loaded from file 'm.map'. curr_ver=0 next_ver=0 entry_cnt=2\n"),
        ("show map m.map", "0x1 /a 1\n0x2 /b two words\n"),
        ("show acl #1", "0x1 /a 1\n0x2 /b two words\n"),
        ("show map #1", "Unknown map identifier. Please use #<id> or <file>.\n"),
        ("add map m.map /c", "'add map' expects three parameters (map identifier, key and value) or one parameter (map identifier) and a payload\n"),
        ("add map m.map /c 3", ""),
        ("add map m.map <<\n/d 4 5\n/e 6\n", ""),
        ("set map m.map #0x2 two", ""),
        ("set map m.map /nope 1", "entry not found.\n"),
        ("del map m.map /a", ""),
        ("del map m.map #0x3", ""),
        ("del map m.map /a", "Key not found.\n"),
        ("del acl a.lst", "This command expects two parameters: ACL identifier and key.\n"),
        ("show map m.map", "0x2 /b two\n0x4 /d 4 5\n0x5 /e 6\n"),
        ("prepare map m.map", "New version created: 1\n"),
        ("add map @1 m.map /x 1", ""),
        ("add map @7 m.map /x 1", "Version number out of range.\n"),
        ("show map m.map", "0x2 /b two\n0x4 /d 4 5\n0x5 /e 6\n"),
        ("commit map @1 m.map", ""),
        ("commit map @1 m.map", "Version number out of range.\n"),
        ("show map m.map", "0x6 /x 1\n"),
        ("clear map m.map", ""),
        ("show map m.map", ""),
        ("add acl a.lst /z;show acl a.lst", "\n0x1 /a 1\n0x2 /b two words\n0x3 /z\n"),
    ];
    for (command, answer) in cases {
        assert_eq!(ask(&runtime, &format!("{command}\n")), format!("{answer}\n"), "{command}");
    }
    sample::vars::process_variable("seen").set(&sample::value::Value::str(b"bar"));
    assert_eq!(
        ask(&runtime, "get var proc.seen;get var proc.other\n"),
        "proc.seen: type=str value=<bar>\n\nVariable not found.\n\n"
    );
}

fn page(
    runtime: &Arc<Runtime>,
    method: http::Method,
    uri: &str,
    body: &str,
    admin: bool,
) -> (u16, String, String) {
    let settings = PageSettings {
        uri: "/stats".into(),
        refresh: Some(Duration::from_secs(5)),
        ..PageSettings::default()
    };
    let request = PageRequest { method, uri, body: body.as_bytes(), admin };
    let response = respond(runtime, &settings, &request);
    let headers = response.headers.iter().map(|(n, v)| format!("{n}: {v}\n")).collect();
    (response.status, headers, String::from_utf8(response.body.flatten().collect()).unwrap())
}

#[test]
fn the_page_shows_every_proxy_and_acts_only_for_administrators() {
    use http::Method::{Get, Head, Post};
    let runtime = runtime();
    let (status, headers, html) = page(&runtime, Get, "/stats", "", false);
    assert_eq!(status, 200);
    assert!(headers.contains("refresh: 5\n") && headers.contains("content-type: text/html; charset=utf-8\n"));
    for part in ["<h2>fe</h2>", "<h2>be</h2>", "s1</td>", "no check", "</html>"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<select"), "no forms without the right");
    assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
    assert!(page(&runtime, Get, "/stats", "", true).2.contains("name=s value=\"s1\""));
    assert!(!page(&runtime, Get, "/stats?scope=fe", "", false).2.contains("<h2>be</h2>"));
    assert!(!page(&runtime, Get, "/stats;norefresh", "", false).1.contains("refresh"));
    assert_eq!(page(&runtime, Head, "/stats", "", false).2, "");
    let (_, headers, csv) = page(&runtime, Get, "/stats;csv;scope=be", "", false);
    assert!(headers.contains("text/plain") && csv.contains("\nbe,BACKEND,") && !csv.contains("\nfe,"));
    serde_json::from_str::<serde_json::Value>(&page(&runtime, Get, "/stats;json", "", false).2).unwrap();

    let form = "s=s1&s=s2&action=maint&b=%233";
    assert!(page(&runtime, Post, "/stats", form, false).1.contains("location: /stats;st=DENY\n"));
    assert!(!be(&runtime).server("s1").unwrap().admin().in_maintenance());
    let (status, headers, _) = page(&runtime, Post, "/stats?scope=be", form, true);
    assert_eq!(status, 303);
    assert!(headers.contains("location: /stats;st=DONE;scope=be\n"), "{headers}");
    assert!(be(&runtime).server("s2").unwrap().admin().in_maintenance());
    for (form, outcome) in [
        ("s=s1&action=maint&b=nope", "ERRP"),
        ("s=s1&action=bogus&b=be", "ERRP"),
        ("s=s1&s=zz&action=ready&b=be", "PART"),
        ("action=ready&b=be", "NONE"),
        ("s=s1&b=be", "NONE"),
        // One that is in maintenance is not disabled again, nor counted.
        ("s=s1&action=disable&b=be", "DONE"),
        ("s=s1&action=disable&b=be", "NONE"),
        ("s=s1&action=enable&b=be", "DONE"),
        ("s=s1&action=start&b=be", "NONE"),
        ("s=s1&action=stop&b=be", "DONE"),
        ("s=s1&action=start&b=be", "DONE"),
        ("s=s1&action=dhlth&b=be", "DONE"),
        ("s=s2&action=dhlth&b=be", "NONE"),
        ("s=s1&action=eagent&b=be", "NONE"),
        ("s=s1&action=adown&b=be", "NONE"),
    ] {
        let location = page(&runtime, Post, "/stats", form, true).1;
        assert!(location.contains(&format!("st={outcome}")), "{form}: {location}");
    }
    assert!(page(&runtime, Get, "/stats;csv", "", false).1.contains("refresh: 5"));
    let s1 = be(&runtime).server("s1").unwrap();
    s1.agent.configured.store(true, Relaxed);
    for (action, outcome) in
        [("arunn", "NONE"), ("eagent", "DONE"), ("adown", "DONE"), ("arunn", "DONE"), ("dagent", "DONE")]
    {
        let form = format!("s=s1&action={action}&b=be");
        assert!(page(&runtime, Post, "/stats", &form, true).1.contains(outcome), "{form}");
        assert_eq!(s1.operational() == Operational::Stopped, action == "adown", "{action}");
    }
}

#[test]
fn a_form_reaches_only_what_the_page_shows() {
    let runtime = runtime();
    let settings = PageSettings { uri: "/".into(), scope: vec!["other".into()], ..PageSettings::default() };
    for backend in ["be", "nope"] {
        let body = format!("s=s1&action=maint&b={backend}");
        let request =
            PageRequest { method: http::Method::Post, uri: "/", body: body.as_bytes(), admin: true };
        let headers = respond(&runtime, &settings, &request).headers;
        assert!(headers.iter().any(|(_, value)| value.contains("st=DENY")), "{backend}: {headers:?}");
    }
    assert!(!be(&runtime).server("s1").unwrap().admin().in_maintenance());
}

#[test]
fn an_agents_code_is_shown_where_its_status_has_one() {
    let runtime = runtime();
    let s1 = be(&runtime).server("s1").unwrap();
    s1.agent.configured.store(true, Relaxed);
    s1.agent_checked.store(true, Relaxed);
    for (status, code, shown) in [("L7OK", Some(0), "0"), ("CHECKED", None, "")] {
        let result = CheckResult { status, code, ..Default::default() };
        s1.agent.last.store(Arc::new(result));
        let row = csv(&runtime, "be", "s1");
        assert_eq!((row["agent_status"].as_str(), row["agent_code"].as_str()), (status, shown));
    }
}

#[test]
fn what_checks_and_agents_said_is_not_shown_in_maintenance() {
    let runtime = runtime();
    let s1 = be(&runtime).server("s1").unwrap();
    s1.agent.configured.store(true, Relaxed);
    s1.agent_checked.store(true, Relaxed);
    s1.agent.level.store(1, Relaxed);
    let shown = |column: &str| csv(&runtime, "be", "s1")[column].clone();
    assert_eq!((shown("check_status"), shown("agent_status")), ("INI".into(), "INI".into()));
    ask(&runtime, "set server be/s1 state drain\n");
    assert_eq!(shown("status"), "DRAIN (agent)");
    ask(&runtime, "set server be/s1 state maint\n");
    assert_eq!(
        (shown("check_status"), shown("agent_status"), shown("chkfail")),
        ("".into(), "".into(), "0".into())
    );
    ask(&runtime, "set server be/s1 state ready;disable agent be/s1\n");
    assert_eq!((shown("check_status"), shown("agent_status")), ("INI".into(), "".into()));
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let process = Arc::new(state::Process::default());
    let evil = proxy(2, "<b>\"&", false, true, vec![server(1, "'><i>", false, false)]);
    let runtime = Arc::new(Runtime::new(process, View { proxies: vec![evil], ..View::default() }));
    let html = page(&runtime, http::Method::Get, "/stats;st=<u>;scope=%3Cb", "", true).2;
    assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("<u>"));
}

#[test]
fn a_huge_table_is_made_in_small_pieces() {
    let process = Arc::new(state::Process::default());
    let servers = (1..=10_000).map(|id| server(id, &format!("s{id}"), false, false)).collect();
    let view = View { proxies: vec![proxy(2, "be", false, true, servers)], ..View::default() };
    let runtime = Arc::new(Runtime::new(process, view));
    let settings = PageSettings { uri: "/".into(), ..PageSettings::default() };
    for uri in ["/", "/;csv", "/;json"] {
        let request = PageRequest { method: http::Method::Get, uri, body: b"", admin: false };
        let sizes: Vec<usize> =
            respond(&runtime, &settings, &request).body.map(|piece| piece.len()).collect();
        assert!(sizes.len() > 100, "{uri}: {} pieces", sizes.len());
        assert!(sizes.iter().all(|&size| size < 1 << 20));
    }
}

#[test]
fn a_scrape_gives_each_metric_once_with_its_samples_together() {
    let runtime = runtime();
    let scrape = |method, uri| {
        let response =
            control::prometheus::respond(&runtime, &PageRequest { method, uri, body: b"", admin: false });
        (response.status, String::from_utf8(response.body.flatten().collect()).unwrap())
    };
    let (status, text) = scrape(http::Method::Get, "/metrics");
    assert_eq!(status, 200);
    for line in [
        "haproxy_process_max_connections 1000",
        "haproxy_frontend_status{proxy=\"fe\",state=\"UP\"} 1",
        "haproxy_backend_active_servers{proxy=\"be\"} 2",
        "haproxy_server_status{proxy=\"be\",server=\"s1\",state=\"UP\"} 1",
        "haproxy_server_status{proxy=\"be\",server=\"s1\",state=\"DOWN\"} 0",
        "haproxy_server_check_status{proxy=\"be\",server=\"s1\",state=\"INI\"} 1",
        "haproxy_server_http_responses_total{proxy=\"be\",server=\"s2\",code=\"2xx\"} 0",
        "haproxy_server_queue_time_average_seconds{proxy=\"be\",server=\"s1\"} 0.000000",
        "haproxy_server_active{proxy=\"be\",server=\"s1\"} 1",
        "haproxy_backend_agg_server_status{proxy=\"be\",state=\"UP\"} 3",
        "haproxy_backend_agg_check_status{proxy=\"be\",state=\"INI\"} 1",
        "haproxy_backend_req_bytes_out_total{proxy=\"be\"} 0",
        "# HELP haproxy_process_nbthread Number of started threads (global.nbthread)",
        "# TYPE haproxy_frontend_sessions_total counter",
        "# TYPE haproxy_server_weight gauge",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
    // Samples of one name stand together, under exactly one TYPE.
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("# HELP")) {
        let name = line.trim_start_matches("# TYPE ").split(['{', ' ']).next().unwrap();
        if line.starts_with("# TYPE") {
            assert!(!names.contains(&name), "{name} twice");
            names.push(name);
        }
        assert_eq!(names.last(), Some(&name), "{line}");
    }
    let (_, only) = scrape(http::Method::Get, "/metrics?scope=server&no-maint");
    assert!(
        only.contains("haproxy_server_")
            && !only.contains("haproxy_process_")
            && !only.contains("haproxy_frontend_")
    );
    assert_eq!(scrape(http::Method::Get, "/metrics?scope=bogus").0, 400);
    assert_eq!(scrape(http::Method::Post, "/metrics").0, 405);
    assert_eq!(scrape(http::Method::Head, "/metrics"), (200, String::new()));
}

#[test]
fn states_that_were_dumped_can_be_put_back() {
    let before = runtime();
    ask(
        &before,
        "set server be/s1 weight 3;set server be/s1 health down;disable server be/s2;set server be/s3 state drain\n",
    );
    let dump = ask(&before, "show servers state\n");
    let after = runtime();
    assert_eq!(control::state_file::load(&dump, &after.view(), None), Ok(3));
    let strip = |text: String| {
        // The time since the last change is the one column that moves.
        let words = |line: &str| {
            line.split(' ')
                .enumerate()
                .filter(|(i, _)| *i != 9)
                .map(|(_, w)| w.to_owned())
                .collect::<Vec<_>>()
        };
        text.lines().map(words).collect::<Vec<_>>()
    };
    assert_eq!(strip(ask(&after, "show servers state\n")), strip(dump.clone()));
    assert_eq!(control::state_file::load(&dump, &after.view(), Some("other")), Ok(0));
    assert_eq!(control::state_file::load("1\n9 gone 1 s1 - 2\nbroken\n", &after.view(), None), Ok(0));
    assert!(control::state_file::load("2\n", &after.view(), None).is_err());
}

#[test]
fn where_checks_and_agents_ask_is_set_shown_and_put_back() {
    let runtime = runtime();
    let server = be(&runtime).server("s1").unwrap();
    server.health.configured.store(true, Relaxed);
    server.agent.configured.store(true, Relaxed);
    server.agent_checked.store(true, Relaxed);
    #[rustfmt::skip]
    let cases = [
        ("check-addr",                     "set server <b>/<s> check-addr requires an address and optionally a port.\n"),
        ("check-port",                     "set server <b>/<s> check-port requires a port.\n"),
        ("check-addr nonsense",            "invalid addr 'nonsense'\n"),
        ("check-port x",                   "provided port is not an integer\n"),
        ("check-port 65536",               "provided port is invalid\n"),
        ("check-addr 192.0.2.7 port -1",   "provided port is invalid\n"),
        ("check-addr 192.0.2.7",           ""),
        ("check-port 81",                  ""),
        ("agent-addr",                     "set server <b>/<s> agent-addr requires an address and optionally a port.\n"),
        ("agent-addr name.invalid",        "invalid addr 'name.invalid'\n"),
        ("agent-addr 2001:db8::1 port 82", ""),
        ("agent-send hello",               ""),
        ("ssl on",                         "server ssl setting not supported.\n"),
    ];
    for (words, answer) in cases {
        let said = ask(&runtime, &format!("set server be/s1 {words}\n"));
        assert_eq!(said.trim_end_matches('\n'), answer.trim_end_matches('\n'), "{words}");
    }
    assert_eq!(server.agent.send.load().as_deref().map(|send| &**send), Some(&b"hello"[..]));
    for (words, what) in
        [("check-addr 192.0.2.7", "health"), ("agent-addr 192.0.2.7", "agent"), ("agent-port 1", "agent")]
    {
        let said = ask(&runtime, &format!("set server be/s2 {words}\n"));
        assert_eq!(said, format!("{what} checks are not enabled on this server\n\n"), "{words}");
    }
    ask(&runtime, "disable agent be/s1\n");
    let said = ask(&runtime, "set server be/s1 agent-send x\n");
    assert_eq!(said, "agent checks are not enabled on this server.\n\n");
    let dump = ask(&runtime, "show servers state\n");
    let line = dump.lines().find(|line| line.contains(" s1 ")).unwrap();
    assert!(line.ends_with(" 0 81 192.0.2.7 2001:db8::1 82"), "{line}");
    let after = self::runtime();
    let restored = be(&after).server("s1").unwrap();
    restored.health.configured.store(true, Relaxed);
    restored.agent.configured.store(true, Relaxed);
    restored.agent_checked.store(true, Relaxed);
    control::state_file::load(&dump, &after.view(), None).unwrap();
    let again = ask(&after, "show servers state\n");
    assert!(again.lines().any(|line| line.ends_with(" 0 81 192.0.2.7 2001:db8::1 82")), "{again}");
    assert!(!restored.agent_checked.load(Relaxed), "turned off by hand, and so it stays");
}

#[test]
fn disabled_of_the_configuration_is_a_mark_that_outlives_the_maintenance() {
    let runtime = runtime();
    let server = |disabled| {
        Server::new(ServerSeed {
            id: 4,
            name: "s4".into(),
            proxy: "be".into(),
            backup: false,
            maxconn: 0,
            minconn: 0,
            maxqueue: 0,
            address: ServerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], 80))),
            weight: 1,
            disabled,
            checked: false,
        })
    };
    let place = |disabled| {
        let server = server(disabled);
        be(&runtime).servers.store(Arc::new(vec![server.clone()]));
        server
    };
    let own = place(true);
    for (command, admin, maintenance) in
        [("maint", 5, true), ("ready", 4, false), ("drain", 12, false), ("maint", 5, true)]
    {
        if command == "maint" && own.admin().0 == 5 {
            assert!(own.admin().in_maintenance(), "as it was made");
        }
        ask(&runtime, &format!("set server be/s4 state {command}\n"));
        assert_eq!((own.admin().0, own.admin().in_maintenance()), (admin, maintenance), "{command}");
    }
    // What the file says, what the configuration says, what comes of it.
    let cases = [
        (0, false, 0),
        (1, false, 1),
        (8, false, 8),
        (4, true, 4),
        (5, true, 5),
        (12, true, 12),
        // The configuration changed: it counts.
        (5, false, 0),
        (4, false, 0),
        (0, true, 5),
        (8, true, 5),
        // Inherited states are found out anew.
        (2 | 16 | 32, false, 0),
    ];
    for (old, disabled, new) in cases {
        let own = place(disabled);
        let text = format!("1\n3 be 4 s4 127.0.0.1 2 {old} 1 1 5 1 0 2 0 0 0 0 - 80 - 0 0 - - 0\n");
        assert_eq!(control::state_file::load(&text, &runtime.view(), None), Ok(1));
        assert_eq!(own.admin().0, new, "{old} where disabled is {disabled}");
    }
}

#[test]
fn the_value_of_a_dynamic_cookie_is_shown() {
    let runtime = runtime();
    let mut view = View::clone(&runtime.view());
    view.proxies[1].servers.get_mut(&2).unwrap().cookie = None;
    runtime.replace(view);
    be(&runtime).dynamic_cookies.store(true, Relaxed);
    assert_eq!(csv(&runtime, "be", "s2")["cookie"], "");
    ask(&runtime, "set dynamic-cookie-key backend be secret\n");
    let shown = csv(&runtime, "be", "s2")["cookie"].clone();
    let made = be(&runtime).server("s2").unwrap().dynamic_cookie("secret").unwrap();
    assert_eq!((shown.len(), shown), (16, made));
    assert_eq!(csv(&runtime, "be", "s1")["cookie"], "c1", "its own");
    ask(&runtime, "disable dynamic-cookie backend be\n");
    assert_eq!(csv(&runtime, "be", "s2")["cookie"], "");
}
