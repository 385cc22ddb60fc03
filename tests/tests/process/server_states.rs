//! Server states that an earlier process saved to a file, and initial states that depend on other servers.

use weir_tests::{Origin, Weir, free_port, scratch};

/// Returns the line of a server in a state file.
fn row(id: u32, name: &str, columns: &str) -> String {
    format!("2 b {id} {name} 127.0.0.1 {columns}\n")
}

/// Starts a program with these servers in backend `b` and these lines in its state file; returns it with the servers' states.
fn start(servers: &str, rows: &str) -> (Weir, Vec<String>) {
    let directory = scratch("states");
    std::fs::write(directory.join("states"), rows).expect("a file");
    start_with(
        &format!("  server-state-base {}\n  server-state-file states\n", directory.display()),
        &format!("  load-server-state-from-file global\n{servers}"),
    )
}

fn start_with(global: &str, backend: &str) -> (Weir, Vec<String>) {
    let port = free_port();
    let text = format!(
        "global\n{global}  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         backend b\n{backend}frontend f\n  bind 127.0.0.1:{port}\n"
    );
    let weir = Weir::start(&text, &[port]);
    let states = states(&weir);
    (weir, states)
}

/// Returns each server's name, operational and administrative state, weight, forced ids of backend and server, and port.
fn states(weir: &Weir) -> Vec<String> {
    let all = weir.ask("show servers state");
    let columns = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        [3, 5, 6, 7, 15, 16, 18].map(|at| words[at]).join(" ")
    };
    all.lines().skip(2).filter(|line| !line.is_empty()).map(columns).collect()
}

/// Checks that do not run during a test.
const CHECK: &str = "check inter 1h fastinter 1h downinter 1h";

#[test]
fn states_times_ports_and_ids_are_restored() {
    let origin = Origin::text("x");
    let servers = format!(
        "  server down 127.0.0.1:{0} {CHECK}\n  server stops 127.0.0.1:{0}\n  server freed 127.0.0.1:{0} disabled\n  \
         server kept 127.0.0.1:{0} id 12\n",
        origin.port()
    );
    let rows = format!(
        "1\n# be_id\n{}{}{}{}{}",
        row(1, "down", "0 0 5 1 86400 8 2 0 6 0 0 0 - 81 - 0 0 - - 0"),
        row(2, "stops", "3 0 1 1 86400 6 3 2 0 0 0 0 - 82 - 0 0 - - 0"),
        row(3, "freed", "2 4 1 1 86400 6 3 4 0 0 0 0 - 83 - 0 0 - - 0"),
        row(9, "kept", "2 8 1 1 86400 6 3 4 0 0 0 0 - 84 - 0 0 - 127.0.0.1 9"),
        row(9, "kept", "2 0 9 1 86400 6 3 4 0 0 0 0 - 85 - 0 0 - - 0"),
    );
    let (weir, found) = start(&servers, &rows);
    assert_eq!(found, ["down 0 0 5 0 0 81", "stops 3 0 1 0 0 82", "freed 2 4 1 0 0 83", "kept 2 8 1 0 1 84"]);
    let all = weir.ask("show servers state");
    for line in all.lines().skip(2).filter(|line| !line.is_empty()) {
        let seconds = line.split(' ').nth(9).and_then(|text| text.parse::<u64>().ok());
        // The states changed long before the process started.
        assert!(seconds.is_some_and(|seconds| (86_400..90_000).contains(&seconds)), "{line}");
    }
    let told = weir.messages();
    for line in [
        "Server b/down is DOWN, changed from server-state after a reload. 2 active and 0 backup servers left.",
        "Server b/stops is stopping, changed from server-state after a reload. 1 active",
        "Server b/freed is UP/READY (leaving forced maintenance).",
        "server-state partially applied for server 'b/kept', agent checks are not enabled on this server",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[test]
fn corrupted_file_is_not_used_at_all() {
    let good = row(1, "s", "2 8 1 1 100 6 3 4 0 0 0 0 - 80 - 0 0 - - 0");
    for (text, told) in [
        (format!("1\n{good}garbage\n"), "config: corrupted global server state file '"),
        (format!("1\n{good}{}", good.trim_end()), "' at line 2."),
        (format!("2\n{good}"), "config: Can't get version of the global server state file '"),
    ] {
        let (weir, found) = start("  server s 127.0.0.1:80\n", &text);
        assert_eq!(found, ["s 2 0 1 0 0 80"], "{text}");
        assert!(weir.says(told), "{told}: {}", weir.messages());
    }
}

#[test]
fn file_without_a_valid_version_is_reported() {
    for (text, is_told) in
        [("", false), ("1\n", false), ("1\n\n", false), ("\n", true), ("1", true), ("# 1\n", true)]
    {
        let (weir, found) = start("  server s 127.0.0.1:80\n", text);
        assert_eq!(found, ["s 2 0 1 0 0 80"], "{text:?}");
        let told = weir.messages();
        assert_eq!(told.contains("server state file"), is_told, "{text:?}: {told}");
    }
}

#[test]
fn line_with_an_invalid_value_is_reported_and_ignored() {
    let rows = format!(
        "1\n{}{}",
        row(1, "s", "9 9 257 1 100 6 3 4 0 0 0 0 - 70000 - 0 0 - - 0"),
        row(2, "t", "2 8 1 1 100 6 3 4 0 0 0 0 - 80 - 0 0 - - 0"),
    );
    let (weir, found) = start("  server s 127.0.0.1:80\n  server t 127.0.0.1:80\n", &rows);
    assert_eq!(found, ["s 2 0 1 0 0 80", "t 2 8 1 0 0 80"]);
    let wanted = "server-state application failed for server 'b/s', invalid srv_op_state value '9', \
                  invalid srv_admin_state value '9', invalid srv_uweight value '257', invalid srv_port value '70000'";
    assert!(weir.says(wanted), "{}", weir.messages());
}

#[test]
fn local_state_file_is_checked_line_by_line() {
    let file = scratch("states").file("states");
    let line = |words: &str| format!("{words} 127.0.0.1 2 8 1 1 100 6 3 4 0 0 0 0 - 80 - 0 0 - - 0\n");
    let (no, other, yes) = (line("2 b 1 gone"), line("2 c 1 s"), line("7 b 1 s"));
    std::fs::write(&file, format!("1\n{no}{other}{yes}")).expect("a file");
    let backend = |path: &str| {
        format!(
            "  load-server-state-from-file local\n  server-state-file-name {path}\n  server s 127.0.0.1:80\n"
        )
    };
    let path = file.display().to_string();
    let (weir, found) = start_with("", &backend(&path));
    assert_eq!(found, ["s 2 8 1 0 0 80"]);
    for line in [
        "Proxy 'b': can't find server 'gone' in backend 'b'",
        "Proxy 'b': backend name mismatch: from server state file: 'c', from running config 'b'",
        "Proxy 'b': backend ID mismatch: from server state file: '7', from running config '2'",
    ] {
        assert!(weir.says(line), "{line}: {}", weir.messages());
    }
    let (weir, _) = start_with("", &backend("/nowhere/states"));
    let missing = "Proxy 'b': Can't open server state file '/nowhere/states': No such file or directory.";
    assert!(weir.says(missing), "{}", weir.messages());
    assert!(!weir.messages().contains("state file 'f'"), "a frontend has no servers: {}", weir.messages());
}

#[test]
fn servers_start_with_the_state_of_the_tracked_server() {
    let servers = format!(
        "  server last 127.0.0.1:1 track next\n  server next 127.0.0.1:1 track held\n  \
         server held 127.0.0.1:1 {CHECK} disabled\n  server down 127.0.0.1:1 {CHECK} init-state down\n  \
         server like 127.0.0.1:1 track down\n"
    );
    let (weir, found) = start_with("", &servers);
    let begin = |states: &[String], name: &str, wanted: &str| {
        assert!(states.iter().any(|state| state.starts_with(&format!("{name} {wanted} "))), "{states:?}");
    };
    begin(&found, "last", "0 2");
    begin(&found, "next", "0 2");
    begin(&found, "held", "0 5");
    begin(&found, "like", "0 0");
    weir.ask("enable server b/held");
    begin(&states(&weir), "last", "2 0");
    // This includes servers that are added later.
    let said =
        weir.ask("disable server b/held; add server b/new 127.0.0.1:1 track b/next; enable server b/new");
    assert!(said.contains("New server registered."), "{said}");
    begin(&states(&weir), "new", "0 2");
}

#[test]
fn tracking_servers_follow_the_restored_state() {
    let servers = format!(
        "  server down 127.0.0.1:1 {CHECK}\n  server like 127.0.0.1:1 track down\n  server held 127.0.0.1:1 {CHECK}\n  \
         server with 127.0.0.1:1 track held\n"
    );
    let rows = format!(
        "1\n{}{}{}{}",
        row(1, "down", "0 0 1 1 100 8 2 0 6 0 0 0 - 1 - 0 0 - - 0"),
        row(2, "like", "2 0 1 1 100 1 0 0 0 0 0 0 - 1 - 0 0 - - 0"),
        row(3, "held", "0 1 1 1 100 6 3 0 14 0 0 0 - 1 - 0 0 - - 0"),
        row(4, "with", "2 0 1 1 100 1 0 0 0 0 0 0 - 1 - 0 0 - - 0"),
    );
    let (weir, found) = start(&servers, &rows);
    assert_eq!(found, ["down 0 0 1 0 0 1", "like 0 0 1 0 0 1", "held 0 1 1 0 0 1", "with 0 2 1 0 0 1"]);
    assert!(weir.says("Server b/like is DOWN via b/down. "), "{}", weir.messages());
}

#[test]
fn added_server_records_whether_its_id_was_requested() {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  stats socket runtime level admin\ndefaults\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
             listen b\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:1\n"
        ),
        &[port],
    );
    for (parameters, number, forced) in [("id 77", "77", "1"), ("", "2", "0"), ("hash-key id", "3", "0")] {
        weir.ask(&format!("add server b/x{number} 127.0.0.1:1 {parameters}"));
        let states = weir.ask("show servers state b");
        let name = format!("x{number}");
        let row = states.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let row = row.into_iter().find(|fields| fields.get(3) == Some(&name.as_str())).unwrap_or_default();
        assert_eq!((row.get(2), row.get(16)), (Some(&number), Some(&forced)), "{states}");
    }
}

#[test]
fn agents_use_the_check_address_by_default() {
    let rest = "agent-inter 1h inter 1h";
    let (weir, _) = start(
        &format!(
            "  server a 127.0.0.1:80 agent-check agent-addr 127.0.0.2 agent-port 9 {rest}\n  \
             server b 127.0.0.1:80 agent-check port 7 {rest}\n  \
             server c 127.0.0.1:80 agent-check agent-port 8 addr 127.0.0.3 port 7 {rest}\n  \
             server d 127.0.0.1:80 port 7 agent-addr 127.0.0.2 addr 127.0.0.3 {rest}\n  \
             server e 127.0.0.1:80\n"
        ),
        "1\n",
    );
    let all = weir.ask("show servers state");
    let places = all
        .lines()
        .skip(2)
        .filter(|line| !line.is_empty())
        .map(|line| line.split(' ').skip(21).collect::<Vec<_>>().join(" "));
    assert_eq!(
        places.collect::<Vec<_>>(),
        ["0 - 127.0.0.2 9", "7 - - 7", "7 127.0.0.3 127.0.0.3 8", "7 127.0.0.3 127.0.0.2 7", "0 - - 0"]
    );
}
