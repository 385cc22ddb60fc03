//! Tests of server output and changes through the runtime socket: statistics, states, check addresses.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use common::{ask, ask_at, be, runtime};

use control::{AccessLevel, Runtime, state_file};
use state::server::{CheckResult, Operational, ServerAddress, ServerSeed};
use state::{Proxy, Server};
use statistics::ConfigView;

/// A line of the CSV as a map from column to value.
fn csv(runtime: &Arc<Runtime>, proxy: &str, name: &str) -> HashMap<String, String> {
    let text = ask(runtime, "show stat\n");
    let mut lines = text.lines();
    let titles: Vec<&str> = lines.next().unwrap().trim_start_matches("# ").split(',').collect();
    let line = lines.find(|line| line.starts_with(&format!("{proxy},{name},"))).unwrap();
    titles.iter().zip(line.split(',')).map(|(t, v)| ((*t).to_owned(), v.to_owned())).collect()
}

/// Restores the states of a dump; all of them must succeed.
fn restore(runtime: &Arc<Runtime>, dump: &str) {
    let rows = state::saved_state::by_name(state::saved_state::read(dump).unwrap());
    for backend in runtime.view().proxies.iter().filter(|proxy| proxy.state.is_backend) {
        state_file::restore(&rows, backend, &|said| {
            assert!(!said.starts_with("server-state "), "{said}");
        });
    }
}

#[test]
fn csv_columns_are_those_of_the_manual_in_order() {
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
fn server_states_have_haproxys_names() {
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
fn manual_changes_are_reported_in_haproxys_wording() {
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
fn servers_leave_maintenance_according_to_init_state() {
    let runtime = runtime();
    let server = be(&runtime).servers.load()[0].clone();
    // The level set by `init-state`, and the resulting state: rise is 2, fall is 3.
    let cases =
        [(None, "UP 1/3"), (Some(4), "UP"), (Some(2), "UP 1/3"), (Some(1), "DOWN 1/2"), (Some(0), "DOWN")];
    for (at, (level, wanted)) in cases.into_iter().enumerate() {
        server.health.set_initial(level);
        for command in ["set server be/s1 state maint\n", "set server be/s1 state ready\n"] {
            assert_eq!(ask(&runtime, command).trim(), "");
        }
        let row = csv(&runtime, "be", "s1");
        assert_eq!(row["status"], wanted, "{level:?}");
        // Maintenance counts only if the server was up before.
        assert_eq!(row["chkdown"], (at + 1).min(4).to_string(), "{level:?}");
    }
}

/// Only the agent itself can bring back a server that it has reported down.
#[test]
fn servers_with_a_failed_agent_stay_down() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = told.clone();
    let notify = move |_: &Proxy, _: u8, text: &str| list.lock().unwrap().push(text.to_owned());
    let runtime = Arc::new(Arc::into_inner(runtime()).unwrap().with_notify(Arc::new(notify)));
    let s1 = be(&runtime).server("s1").unwrap();
    s1.agent_checked.store(true, Relaxed);
    s1.agent.level.store(0, Relaxed);
    s1.set_operational(Operational::Stopped, 1);
    let cases = [
        (
            "set server be/s1 state drain",
            "Server be/s1 enters drain state. 1 active and 1 backup servers left. 0 sessions active, 0 requeued, 0 remaining in queue.",
        ),
        ("set server be/s1 state maint", "Server be/s1 was DOWN and now enters maintenance."),
        ("set server be/s1 state ready", "Server be/s1 is DOWN/READY (leaving forced maintenance)."),
        ("disable health be/s1", ""),
    ];
    for (command, wanted) in cases {
        ask(&runtime, &format!("{command}\n"));
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()).concat(), wanted, "{command}");
    }
    assert_eq!(csv(&runtime, "be", "s1")["status"], "DOWN (agent)");
}

#[test]
fn trackers_follow_a_server_that_is_no_longer_checked() {
    let runtime = runtime();
    let backend = be(&runtime);
    backend.server("s2").unwrap().track(&backend, &backend, &backend.server("s1").unwrap());
    ask(&runtime, "set server be/s1 health down\n");
    assert!(csv(&runtime, "be", "s2")["status"].starts_with("DOWN"));
    ask(&runtime, "disable health be/s1\n");
    assert_eq!(backend.server("s2").unwrap().operational(), Operational::Running);
}

#[test]
fn status_of_a_backend_with_hidden_servers_has_their_number() {
    let runtime = runtime();
    ask(&runtime, "disable server be/s1\n");
    let status = |command: &str| {
        let text = ask(&runtime, &format!("{command}\n"));
        let line = text.lines().find(|line| line.starts_with("be,BACKEND,")).unwrap().to_owned();
        line.split(',').nth(17).unwrap().to_owned()
    };
    assert_eq!(status("show stat"), "UP");
    assert_eq!(
        (status("show stat up"), status("show stat no-maint")),
        ("UP (2/3)".into(), "UP (2/3)".into())
    );
}

#[test]
fn key_of_anonymized_words_is_hidden_from_users() {
    let runtime = runtime();
    for (level, shown) in
        [(AccessLevel::User, false), (AccessLevel::Operator, true), (AccessLevel::Admin, true)]
    {
        let text = ask_at(&runtime, level, "set anon on 5;show anon\n");
        assert!(text.contains("Anonymized mode enabled"), "{level:?}: {text}");
        assert_eq!(text.contains("Key : 5"), shown, "{level:?}: {text}");
    }
}

#[test]
fn tracking_servers_inherit_maintenance() {
    let runtime = runtime();
    let backend = be(&runtime);
    backend.server("s2").unwrap().track(&backend, &backend, &backend.server("s1").unwrap());
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
fn server_states_are_dumped_in_version_1() {
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
fn agent_codes_are_shown_if_the_status_has_one() {
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
fn check_results_are_hidden_in_maintenance() {
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
        ("".into(), "INI".into(), "0".into())
    );
    ask(&runtime, "set server be/s1 state ready;disable agent be/s1\n");
    assert_eq!((shown("check_status"), shown("agent_status")), ("INI".into(), "".into()));
}

#[test]
fn dumped_states_can_be_restored() {
    let before = runtime();
    ask(
        &before,
        "set server be/s1 weight 3;set server be/s1 health down;disable server be/s2;set server be/s3 state drain\n",
    );
    let dump = ask(&before, "show servers state\n");
    let after = runtime();
    restore(&after, &dump);
    let strip = |text: String| {
        // The time since the last change is the only column that varies.
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
}

#[test]
fn check_and_agent_addresses_are_set_shown_and_restored() {
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
        ("ssl on",                         "'set server <srv> ssl' cannot be set.  default-server should define ssl settings\n"),
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
    restore(&after, &dump);
    let again = ask(&after, "show servers state\n");
    assert!(again.lines().any(|line| line.ends_with(" 0 81 192.0.2.7 2001:db8::1 82")), "{again}");
    assert!(!restored.agent_checked.load(Relaxed), "turned off by hand, and so it stays");
}

#[test]
fn configured_disabled_outlives_the_maintenance() {
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
    // The state in the file, the state in the configuration, the result.
    let cases = [
        (0, false, 0),
        (1, false, 1),
        (8, false, 8),
        (4, true, 4),
        (5, true, 5),
        (12, true, 12),
        // The configuration changed, so it takes precedence.
        (5, false, 0),
        (4, false, 0),
        (0, true, 5),
        (8, true, 5),
        // Inherited states are determined again.
        (2 | 16 | 32, false, 0),
    ];
    for (old, disabled, new) in cases {
        let own = place(disabled);
        let text = format!("1\n3 be 4 s4 127.0.0.1 2 {old} 1 1 5 1 0 2 0 0 0 0 - 80 - 0 0 - - 0\n");
        restore(&runtime, &text);
        assert_eq!(own.admin().0, new, "{old} where disabled is {disabled}");
    }
}

#[test]
fn dynamic_cookie_values_are_shown() {
    let runtime = runtime();
    let mut view = ConfigView::clone(&runtime.view());
    let second = view.proxies[1].servers.iter_mut().find(|server| server.state.id == 2);
    second.unwrap().cookie = None;
    runtime.statistics.replace(view);
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
