//! Tests of the runtime socket: commands, levels, sessions and lists, over an in-memory connection.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use common::{ask, ask_at, ask_bytes, be, runtime};
use control::{AccessLevel, Runtime};
use state::table::{Column, DataType, KeyType, ServerKey, Table, TableSettings};
use statistics::{ConfigView, Statistics};

#[test]
fn a_command_line_is_answered_and_the_connection_closed() {
    let runtime = runtime();
    let version = format!("{}\n\n", runtime.statistics.version);
    assert_eq!(ask(&runtime, "show version\n"), version);
    assert_eq!(ask(&runtime, "show version"), "", "what has no end may be cut off");
    assert_eq!(ask(&runtime, "\n"), "\n");
    assert_eq!(ask(&runtime, "show cli level;\n"), "admin\n\n\n");
    assert_eq!(ask(&runtime, "show cli level\r\n"), "admin\n\n\n");
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
fn messages_match_haproxy() {
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
        ("show peers",                            ""),
        ("wait",                                  "Expects a duration in milliseconds.\n"),
        ("wait x",                                "Invalid duration.\n"),
        ("show fd -z",                            "Invalid FD type\n"),
        ("show fd 7/1",                           "The thread groups are numbered from 1 to 1.\n"),
        ("wait 1ms",                              "Done.\n"),
        ("wait 1ms srv-removable be/nobody",      "Failed. No such server.\n"),
        ("wait 1ms srv-removable",                "Missing server name (<backend>/<server>).\n"),
        ("wait 1ms srv-removable be/s1",          "Failed. Only servers in maintenance mode can be deleted.\n"),
        ("wait 1ms be-removable be",              "Failed. Backend must be unpublished prior to its deletion.\n"),
        ("add backend x from y",                  "Backends cannot be added here.\n"),
        ("del backend x",                         "Backends cannot be removed here.\n"),
        ("trace 0",                               "All traces now stopped\n"),
        ("trace h7",                              "No such trace source 'h7'\n"),
        ("trace h1 sink nowhere",                 "No such trace sink 'nowhere'\n"),
        ("show trace h7",                         "No such trace source\n"),
        ("debug counters",                        ""),
        ("set server be/s1 check-port",           "set server <b>/<s> check-port requires a port.\n"),
        ("set server be/s1 check-port x",         "provided port is not an integer\n"),
        ("set server be/s1 check-port 99999",     "provided port is invalid\n"),
        ("set server be/s1 check-addr zz",        "invalid addr 'zz'\n"),
        ("set server be/s1 check-addr 192.0.2.9 port 88", ""),
        ("set server be/s1 agent-addr 192.0.2.9", "agent checks are not enabled on this server\n"),
        ("set server be/s1 agent-send x",         "agent checks are not enabled on this server.\n"),
        ("set server be/s2 check-port 5",         "health checks are not enabled on this server\n"),
        ("set server be/s1 ssl on",               "'set server <srv> ssl' cannot be set.  default-server should define ssl settings\n"),
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
fn levels_can_be_lowered_and_apply() {
    let runtime = runtime();
    assert_eq!(
        ask(&runtime, "operator;show cli level;set weight be/s1 1;user;operator;show env\n"),
        "\noperator\n\nPermission denied\n\n\nPermission denied\n\nPermission denied\n\n"
    );
    assert_eq!(ask_at(&runtime, AccessLevel::Operator, "clear counters all\n"), "Permission denied\n\n");
    assert_eq!(ask_at(&runtime, AccessLevel::Operator, "clear counters\n"), "\n");
    assert!(!ask_at(&runtime, AccessLevel::User, "show stat\n").contains("127.0.0.1:8001"));
    assert!(ask_at(&runtime, AccessLevel::Operator, "show stat\n").contains("127.0.0.1:8001"));
    let severity = ask(
        &runtime,
        "set severity-output number;get weight be/x;set severity-output string;get weight be/x\n",
    );
    assert_eq!(severity, "\n[3]: No such server.\n\n\n[err]: No such server.\n\n");
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
    assert!(!ask(&runtime, "show sess\n").contains("fe=fe"), "it waits for a request");
    entry.activity.set(state::sessions::Activity::Request);
    entry.set_backend(&runtime::Local::new(be(&runtime)));
    let listed = ask(&runtime, "show sess\n");
    let id = listed.split(':').next().unwrap().to_owned();
    assert!(listed.contains("proto=tcpv4 src=192.0.2.1:4711 fe=fe be=be srv=<none>"), "{listed}");
    let of_both = ask(&runtime, "show sess backend be frontend fe\n");
    assert_eq!(of_both.lines().next(), listed.lines().next());
    assert!(!of_both.contains("fe=GLOBAL") && listed.contains("fe=GLOBAL"), "{listed}");
    assert_eq!(ask(&runtime, "show sess older 1h\n"), "\n");
    assert!(ask(&runtime, &format!("show sess {id}\n")).contains("  frontend=fe (id=2 mode=http)"));
    assert_eq!(ask(&runtime, &format!("shutdown session {id}\n")), "\n");
    assert_eq!(entry.killed(), Some(state::sessions::Kill::Operator));
}

/// The contents of every pattern file.
fn patterns(_: &str) -> Result<Vec<u8>, String> {
    Ok(b"/a 1\n/b two words\n".to_vec())
}

#[test]
fn oversized_payloads_change_nothing() {
    let mut sets = sample::pattern::PatternSets::default();
    sets.file("m.map", true, patterns).unwrap();
    let view = ConfigView { patterns: Arc::new(sets), payload_length: 8, ..ConfigView::default() };
    let runtime = Arc::new(Runtime::new(Arc::new(Statistics::new(Arc::default(), view))));
    assert_eq!(ask(&runtime, "add map m.map <<\n/c 3\n/d 4\n\n"), "Payload too large\n");
    assert_eq!(ask(&runtime, "add map m.map <<\n/c 3\n\n"), "\n");
    assert_eq!(ask(&runtime, "show map m.map\n"), "0x1 /a 1\n0x2 /b two words\n0x3 /c 3\n\n");
}

/// Returns a runtime with a map and an ACL that have the contents that `read` returns.
fn with_lists(read: impl Fn(&str) -> Result<Vec<u8>, String>) -> Arc<Runtime> {
    let mut sets = sample::pattern::PatternSets::default();
    sets.file("m.map", true, &read).unwrap();
    sets.file("a.lst", false, &read).unwrap();
    let view = ConfigView { patterns: Arc::new(sets), ..ConfigView::default() };
    Arc::new(Runtime::new(Arc::new(Statistics::new(Arc::default(), view))))
}

#[test]
fn lists_are_shown_changed_and_replaced_at_once() {
    let runtime = with_lists(patterns);
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
        ("add map @7 m.map /x 1", "Version number in the future, please use 'prepare map' before.\n"),
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

#[test]
fn bytes_that_are_not_utf8_are_kept() {
    let latin1 = |_: &str| Ok(b"/k caf\xe9\n/\xe9 utf\xc3\xa9\n".to_vec());
    let runtime = with_lists(latin1);
    #[rustfmt::skip]
    let cases: &[(&[u8], &[u8])] = &[
        (b"show map m.map",                b"0x1 /k caf\xe9\n0x2 /\xe9 utf\xc3\xa9\n"),
        (b"add map m.map /n na\xefve",     b""),
        (b"add map m.map <<\n/p \xfcber\n", b""),
        (b"set map m.map /k th\xe9",       b""),
        (b"del map m.map /\xe9",           b""),
        (b"del map m.map /\xe8",           b"Key not found.\n"),
        (b"show map m.map",                b"0x1 /k th\xe9\n0x3 /n na\xefve\n0x4 /p \xfcber\n"),
        (b"add acl a.lst /\xe8",           b""),
        (b"show acl a.lst",                b"0x1 /k caf\xe9\n0x2 /\xe9 utf\xc3\xa9\n0x3 /\xe8\n"),
        (b"echo \xff\xc3\xa9\xf4\x8f\xbf\xa9", b"\xff\xc3\xa9\xf4\x8f\xbf\xa9\n"),
        (b"show map \xe9",                 b"Unknown map identifier. Please use #<id> or <file>.\n"),
    ];
    for (command, answer) in cases {
        let given = ask_bytes(&runtime, &[command, &b"\n"[..]].concat());
        let (given, answer) = (given.escape_ascii(), [answer, &b"\n"[..]].concat());
        assert_eq!(given.to_string(), answer.escape_ascii().to_string(), "{}", command.escape_ascii());
    }
    // A payload's length is that of its bytes.
    let bytes = [&b"add map m.map <<\n/l "[..], &[0xe9; 100_000], b"\n\n"].concat();
    assert_eq!(ask_bytes(&runtime, &bytes), b"\n");
}

#[test]
fn bytes_of_keys_are_stored_and_shown_escaped() {
    let table = Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Str,
        key_length: 20,
        size: 10,
        expire_ms: 0,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![Column::new(DataType::Gpc0, 1, 0)],
        peers: None,
        aggregate: None,
    });
    let view = ConfigView { tables: vec![table.clone()], ..ConfigView::default() };
    let runtime = Arc::new(Runtime::new(Arc::new(Statistics::new(Arc::default(), view))));
    assert_eq!(ask_bytes(&runtime, b"set table t key /\xef\x01 data.gpc0 1\n"), b"\n");
    assert!(table.find(b"/\xef\x01", base::clock::now_ms()).is_some());
    let shown = ask_bytes(&runtime, b"show table t key /\xef\x01\n");
    let shown = shown.escape_ascii().to_string();
    assert!(shown.contains(r"key=/\\xEF\\x01 use="), "{shown}");
}

#[test]
fn patterns_waiting_for_a_commit_are_counted() {
    let mut sets = sample::pattern::PatternSets::default();
    sets.file("m.map", true, patterns).unwrap();
    let view = ConfigView { patterns: Arc::new(sets), ..ConfigView::default() };
    let runtime = Arc::new(Runtime::new(Arc::new(Statistics::new(Arc::default(), view))));
    let fill = |version: u32| format!("prepare map m.map; add map @{version} m.map <<\n/x 1\n/y 2\n\n");
    for (command, waiting) in [
        (fill(1), 2),
        (fill(2), 4),
        ("clear map @1 m.map\n".to_owned(), 2),
        (fill(3), 4),
        ("commit map @2 m.map\n".to_owned(), 2),
        ("commit map @3 m.map\n".to_owned(), 0),
    ] {
        let answer = ask(&runtime, &command);
        assert_eq!(runtime.statistics.waiting_patterns.load(Relaxed), waiting, "{command}: {answer}");
    }
}
