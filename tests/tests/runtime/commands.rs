//! Runtime socket commands that need a running program.

use weir_tests::{Origin, Weir, client, eventually, free_port};

fn start(lines: &str, origin: &Origin) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n{lines}  default_backend b\nbackend b\n  balance roundrobin\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    (Weir::start(&text, &[port]), port)
}

#[test]
fn maps_of_integers_refuse_other_values() {
    let origin = Origin::text("hello");
    let file = weir_tests::scratch("maps").file("levels.map");
    std::fs::write(&file, "/a 1 \t\n/b 2\n").expect("the file can be written");
    let file = file.display();
    let rules = format!(
        "  http-request set-map({file}) %[path] %[req.hdr(x-level)] if {{ req.hdr(x-level) -m found }}\n  \
         http-request return status 200 hdr x-level %[path,map_str_int({file},9)]\n"
    );
    let (weir, port) = start(&rules, &origin);
    let level = |fields: &str| {
        let response = client::exchange_with(port, "/a", fields).expect("a response");
        response.header("x-level").map(str::to_owned)
    };
    assert_eq!(level("").as_deref(), Some("1"));
    for command in ["set map FILE /a one", "add map FILE /c one", "set map FILE /a 1.5"] {
        let said = weir.ask(&command.replace("FILE", &file.to_string()));
        assert!(said.starts_with("unable to parse '"), "{command}: {said}");
    }
    assert_eq!(level("X-Level: many\r\n").as_deref(), Some("1"));
    assert_eq!(level("X-Level: 7\r\n").as_deref(), Some("7"));
    assert_eq!(weir.ask(&format!("set map {file} /a 5")).trim(), "");
    assert_eq!(level("").as_deref(), Some("5"));
}

#[test]
fn process_variables_are_set_and_visible_to_rules() {
    let origin = Origin::text("hello");
    let (weir, port) = start("  http-request return status 200 hdr x-var %[var(proc.text)]\n", &origin);
    let header = || client::get(port, "/").expect("a response").header("x-var").map(str::to_owned);
    assert!(weir.ask("set var proc.text str(one)").contains("experimental"), "only in experimental mode");
    assert_eq!(header(), None);
    for (command, answer) in [
        ("set var proc.text str(one)", ""),
        ("set var proc.text expr str(two),upper", ""),
        ("set var proc.text fmt <%[var(proc.text)]>", ""),
        ("set var txn.text str(x)", "only scope 'proc' is permitted here"),
        ("set var proc.text nonsense str(x)", "arg type must be either 'expr' or 'fmt'"),
        ("set var proc.text path()", "'set var': "),
    ] {
        let said = weir.ask(&format!("experimental-mode on; {command}"));
        assert!(
            if answer.is_empty() { said.trim().is_empty() } else { said.contains(answer) },
            "{command}: {said}"
        );
    }
    assert_eq!(header().as_deref(), Some("<TWO>"));
    assert_eq!(weir.ask("get var proc.text").trim(), "proc.text: type=str value=<<TWO>>");
}

#[test]
fn maps_are_queried_and_replaced_by_versions() {
    let origin = Origin::text("hello");
    let map = weir_tests::scratch("map").file("names.map");
    std::fs::write(&map, "Alpha first\nbeta second\n").expect("a file");
    let file = map.display();
    let rules = format!(
        "  http-request return status 200 hdr x-map %[path,map_str({file}),map_beg({file})] if {{ path /never }}\n  \
         http-request return status 200 hdr x-map %[query,map_str({file},none)]\n"
    );
    let (weir, port) = start(&rules, &origin);
    let value = |key: &str| {
        let response = client::get(port, &format!("/?{key}")).expect("a response");
        response.header("x-map").unwrap_or_default().to_owned()
    };
    let said = weir.ask(&format!("get map {file} beta"));
    assert!(
        said.contains(
            "type=str, case=sensitive, found=yes, idx=tree, key=\"beta\", value=\"second\", type=\"str\""
        ),
        "{said}"
    );
    assert!(said.contains("type=beg, case=sensitive, found=yes"), "{said}");
    assert!(weir.ask(&format!("get map {file} alpha")).contains("type=str, case=sensitive, found=no"));
    assert_eq!((value("beta"), value("gamma")), ("second".into(), "none".into()));
    assert!(weir.ask(&format!("prepare map {file}")).contains("New version created: 1"));
    assert_eq!(weir.ask(&format!("add map @1 {file} gamma third")).trim(), "");
    assert!(weir.ask(&format!("show map @1 {file}")).contains("gamma third"));
    assert!(weir.ask("show map").contains("curr_ver=0 next_ver=1 entry_cnt=3"), "{}", weir.ask("show map"));
    assert_eq!((value("beta"), value("gamma")), ("second".into(), "none".into()));
    assert_eq!(weir.ask(&format!("commit map @1 {file}")).trim(), "");
    assert_eq!((value("beta"), value("gamma")), ("none".into(), "third".into()));
    assert_eq!(weir.ask(&format!("add map @1 {file} delta fourth")).trim(), "");
    assert_eq!(value("delta"), "fourth");
    assert!(weir.ask(&format!("commit map @7 {file}")).contains("Version number out of range."));
}

#[test]
fn servers_are_added_and_removed_under_load() {
    let (first, second) = (Origin::text("first"), Origin::text("second"));
    let (weir, port) = start("", &first);
    let add =
        |name: &str, more: &str| weir.ask(&format!("add server b/{name} 127.0.0.1:{} {more}", second.port()));
    let seen = || client::get(port, "/").expect("a response").text();
    for (command, wanted) in [
        ("add server nowhere/x 127.0.0.1:1", "No such backend."),
        ("add server b/x", "'server' expects <name> and <addr>[:<port>] as arguments."),
        ("add server b/s 127.0.0.1:1", "Already exists a server with the same name in backend."),
        ("add server b/x 127.0.0.1:1 redir http://x", "'redir' option is not accepted for dynamic server"),
        ("add server b/x 127.0.0.1:1 enabled", "'enabled' option is not accepted for dynamic server"),
        // Missing values are not taken from words that the program appends.
        ("add server b/x 127.0.0.1:1 cookie", "'cookie' expects"),
        ("add server b/x 127.0.0.1:1 inter", "'inter' expects"),
        ("add server b/x 127.0.0.1:1 nonsense", "unknown keyword 'nonsense'"),
        ("add server b/x 127.0.0.1:1 track b/s", "as it does not have any check nor agent enabled"),
        ("add server b/x/y 127.0.0.1:1", "character '/' is not permitted in server name"),
        ("del server b/s", "Only servers in maintenance mode can be deleted."),
        ("add server help", "maxconn"),
    ] {
        let said = weir.ask(command);
        assert!(said.contains(wanted), "{command}: {said}");
    }
    assert!(add("t", "weight 3 id 7 maxconn 20").contains("New server registered."));
    assert!(add("u", "id 7").contains("already used"));
    let forced: Vec<String> = weir
        .ask("show servers state b")
        .lines()
        .skip(2)
        .filter_map(|line| line.split(' ').nth(16).map(str::to_owned))
        .collect();
    assert_eq!(forced, ["0", "1"], "whose number was said");
    assert!(
        weir.ask("show servers state b").contains("b 7 t 127.0.0.1 0 1 3 3 "),
        "{}",
        weir.ask("show servers state b")
    );
    assert!((0..10).all(|_| seen() == "first"), "it waits for its operator");
    assert_eq!(weir.ask("enable server b/t").trim(), "");
    let answers: Vec<String> = (0..20).map(|_| seen()).collect();
    let of_second = answers.iter().filter(|answer| *answer == "second").count();
    assert_eq!(of_second, 15, "three of four requests: {answers:?}");
    assert!(weir.ask("get weight b/t").contains("3 (initial 3)"));
    assert_eq!(weir.ask("set server b/t state maint").trim(), "");
    assert!(weir.ask("wait 10s srv-removable b/t").contains("Done."));
    assert!(weir.ask("del server b/t").contains("Server deleted."));
    assert!(weir.ask("get weight b/t").contains("No such server."));
    assert!((0..10).all(|_| seen() == "first"));
    // Name and index are free again.
    for turn in 0..40 {
        assert!(add("t", "").contains("New server registered."), "{turn}");
        assert_eq!(weir.ask("enable server b/t").trim(), "");
        assert!((0..4).any(|_| seen() == "second"), "{turn}");
        let said = weir.ask("disable server b/t; wait 10s srv-removable b/t; del server b/t");
        assert!(said.contains("Server deleted."), "{turn}: {said}");
    }
    assert!(weir.ask("show stat").lines().filter(|line| line.starts_with("b,")).count() == 2);
}

#[test]
fn adding_and_removing_servers_does_not_leak() {
    let (first, second) = (Origin::text("first"), Origin::text("second"));
    let (weir, port) = start("", &first);
    let seen = || client::get(port, "/").expect("a response").text();
    // A server that is used, and so is referenced by remaining state.
    let used = |turn: usize| {
        let add = format!("add server b/used 127.0.0.1:{}; enable server b/used", second.port());
        assert!(weir.ask(&add).contains("New server registered."), "{turn}");
        assert!((0..4).any(|_| seen() == "second"), "{turn}");
        let said = weir.ask("disable server b/used; wait 10s srv-removable b/used; del server b/used");
        assert!(said.contains("Server deleted."), "{turn}: {said}");
    };
    const AT_ONCE: usize = 100;
    let many = "add server b/t 127.0.0.1:1 maxconn 5 check inter 1h;del server b/t;".repeat(AT_ONCE);
    let turn = |number: usize| {
        used(number);
        let said = weir.ask(&many);
        assert_eq!(said.matches("Server deleted.").count(), AT_ONCE, "{number}: {said}");
    };
    (0..100).for_each(turn);
    let before = weir.memory();
    (100..1_000).for_each(turn);
    let grown = weir.memory().saturating_sub(before);
    // Eleven bytes for each would be a mebibyte.
    assert!(grown < 1024, "{grown} KiB more after 90,000 more servers");
}

#[test]
fn expressions_of_added_servers_work_as_configured_ones() {
    let (origin, receiver) = (Origin::text("first"), free_port());
    let lines = format!(
        "  http-request set-var(txn.other) str(one)\n  http-request set-var(txn.key) str(two)\n  default_backend b\n\
         frontend receiver\n  bind 127.0.0.1:{receiver} accept-proxy\n  \
         http-request return status 200 content-type text/plain lf-string %[fc_pp_tlv(0xE1)]\n"
    );
    let (weir, port) = start(&lines, &origin);
    let add = |name: &str, more: &str| {
        weir.ask(&format!("add server b/{name} 127.0.0.1:{receiver} send-proxy-v2 {more}"))
    };
    for (parameters, wanted) in [
        ("pool-conn-name var(txn.nowhere)", "variable 'nowhere' is not used in the configuration"),
        ("pool-conn-name nonsense", "nonsense"),
        ("pool-conn-name path,map_str(/nowhere)", "files cannot be read at run time"),
        ("pool-conn-name be_conn(nowhere)", "nowhere"),
        ("set-proxy-v2-tlv-fmt(0xE1) %[cpu_ns_tot]", "only available if"),
    ] {
        let said = add("x", parameters);
        assert!(said.contains(wanted) && !said.contains("registered"), "{parameters}: {said}");
    }
    let said = add(
        "t",
        "set-proxy-v2-tlv-fmt(0xE1) %[var(txn.key)]-%[be_name]-%[srv_is_up(b/s)]-%[nbsrv] pool-conn-name var(txn.other)",
    );
    assert!(said.contains("New server registered."), "{said}");
    assert_eq!(weir.ask("enable server b/t; disable server b/s").trim(), "");
    assert_eq!(client::get(port, "/").expect("a response").text(), "two-b-0-1");
}

#[test]
fn server_in_use_is_not_removed() {
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let receive = std::sync::Mutex::new(receive);
    let slow = Origin::start(move |_, _| {
        let _ = receive.lock().expect("no panic before").recv_timeout(weir_tests::PATIENCE);
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()
    });
    let (weir, port) = start("", &slow);
    let mut client = client::Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(eventually(|| slow.connections() > 0));
    assert_eq!(weir.ask("disable server b/s").trim(), "");
    assert!(weir.ask("del server b/s").contains("Server still has connections attached to it"));
    assert!(weir.ask("wait 50 srv-removable b/s").contains("Wait delay expired."));
    send.send(()).expect("the origin waits");
    assert_eq!(client.response().expect("a response").status, 200);
    assert!(weir.ask("wait 10s srv-removable b/s").contains("Done."));
    assert!(weir.ask("del server b/s").contains("Server deleted."));
    assert_eq!(client::get(port, "/").expect("a response").status, 503);
}

#[test]
fn statically_balanced_backend_accepts_no_new_servers() {
    let origin = Origin::text("hello");
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\ndefaults\n  mode http\n  timeout client 9s\n  timeout connect 9s\n  timeout server 9s\n\
         listen l\n  bind 127.0.0.1:{port}\n  balance static-rr\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    assert!(weir.ask("add server l/x 127.0.0.1:1").contains("uses a non dynamic load balancing method"));
}

#[test]
fn dynamic_cookies_can_be_switched_and_rekeyed() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{port}\n cookie SRV insert\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let cookie = || {
        let response = client::get(port, "/").expect("an answer");
        response.header("set-cookie").map(str::to_owned)
    };
    // A server without a cookie deletes the one that another may have set.
    let taken_back = || cookie().is_some_and(|cookie| cookie.starts_with("SRV=; Expires=Thu, 01-Jan-1970"));
    assert!(taken_back());
    assert_eq!(weir.ask("enable dynamic-cookie backend l").trim(), "");
    assert!(taken_back(), "there is no key");
    assert_eq!(weir.ask("set dynamic-cookie-key backend l one").trim(), "");
    let one = cookie().expect("a cookie");
    assert_eq!(weir.ask("set dynamic-cookie-key backend l two").trim(), "");
    assert!(cookie().is_some_and(|two| two != one));
    assert_eq!(weir.ask("set dynamic-cookie-key backend l one").trim(), "");
    assert_eq!(cookie(), Some(one));
    assert_eq!(weir.ask("disable dynamic-cookie backend l").trim(), "");
    assert!(taken_back());
    assert_eq!(weir.ask("enable dynamic-cookie backend nope").trim(), "No such backend.");
    assert_eq!(weir.ask("set dynamic-cookie-key backend l").trim(), "String value expected.");
}

#[test]
fn listeners_have_separate_counters() {
    // A check for an open port counts as a session.
    let (ports, open) = ([free_port(), free_port()], free_port());
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  option socket-stats\n  bind 127.0.0.1:{} name one\n  bind 127.0.0.1:{} name two\n  \
         http-request strict-mode off\n  http-request set-method %[str(a@b)] if {{ path /rewrite }}\n  \
         http-request deny if {{ path /deny }}\n  http-request return status 200\n\
         frontend g\n  bind 127.0.0.1:{open} name silent\n",
        ports[0], ports[1]
    );
    let weir = Weir::start(&text, &[open]);
    for (port, path) in [(0, "/"), (1, "/rewrite"), (1, "/deny"), (1, "/"), (1, "bad")] {
        let _ = client::get(ports[port], path);
    }
    // Sessions, denied requests, request errors, failed rewrites, and whether bytes were counted.
    let counted = |name: &str| {
        let (shown, row) = (weir.statistics(), format!("f,{name}"));
        let value = |column: &str| shown.get(&row, column);
        let bytes = value("bin")? != "0" && value("bout")? != "0";
        Some(format!("{} {} {} {} {bytes}", value("stot")?, value("dreq")?, value("ereq")?, value("wrew")?))
    };
    // Bytes are counted after the client has read its response.
    for (name, all) in [("two", "4 1 1 1 true"), ("one", "1 0 0 0 true"), ("FRONTEND", "5 1 1 1 true")] {
        assert!(eventually(|| counted(name).as_deref() == Some(all)), "{name}: {:?}", counted(name));
    }
    assert!(!weir.ask("show stat").contains("g,silent,"), "only where it is asked for");
}

#[test]
fn unused_servers_show_a_weight_but_do_not_count() {
    let weir = Weir::start(
        "global\n  nbthread 1\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         backend b\n  server s1 127.0.0.1:1 weight 10 check inter 1h\n  server s2 127.0.0.1:1 weight 20 track b/s1\n  \
         server s3 127.0.0.1:1 weight 40 agent-check agent-port 7 agent-inter 1h\n  server s4 127.0.0.1:1 weight 80 disabled\n",
        &[],
    );
    weir.ask("set server b/s1 state drain");
    // s2 follows s1, so only s3 is left.
    let weights = ["s1", "s2", "s3", "s4"].map(|server| weir.stat(&format!("b,{server}"), "weight"));
    assert_eq!(weights, ["10", "20", "40", "80"]);
    assert_eq!(["weight", "uweight"].map(|name| weir.stat("b,BACKEND", name)), ["40", "40"]);
    let states = weir.ask("show servers state b");
    let field = |server: &str, at: usize| {
        let line = states.lines().find(|line| line.contains(&format!(" {server} "))).unwrap_or_default();
        line.split(' ').nth(at).unwrap_or_default().to_owned()
    };
    // srv_check_health, and srv_agent_port at the end of the line.
    assert_eq!([field("s4", 12), field("s3", 24), field("s1", 24)], ["0", "7", "0"], "{states}");
    let wrong = [
        ("set server b/s1 addr", "set server <b>/<s> addr requires an address and optionally a port."),
        (
            "set server b/s1 addr 127.0.0.2 port +1",
            "can't change <port> to port map because it is incompatible with current health check port configuration \
             (use 'port' statement from the 'server' directive).",
        ),
        ("set server b/s1 addr 127.0.0.2 port +", "problem converting port '+' to an int"),
    ];
    for (command, expected) in wrong {
        assert_eq!(weir.ask(command).trim_end(), expected, "{command}");
    }
    assert_eq!(field("s1", 18), "1");
}

#[test]
fn version_is_the_same_everywhere() {
    let weir = Weir::start("global\n  nbthread 1\n  stats socket runtime level admin\nbackend b\n", &[]);
    let shown = weir.ask("show version").trim_end().to_owned();
    let link = weir.directory().join("haproxy");
    std::os::unix::fs::symlink(weir_tests::program(), &link).expect("the directory takes links");
    let said = std::process::Command::new(&link).arg("-v").output().expect("the program runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(shown.starts_with("3.5-dev5-weir-"), "{shown}");
    assert!(said.starts_with(&format!("HAProxy version {shown} ")), "{shown}: {said}");
    assert!(weir.ask("show info").contains(&format!("\nVersion: {shown}\n")));
}

#[test]
fn server_port_may_become_a_mapped_port_and_back() {
    let origin = Origin::text("here");
    let (weir, port) = start("", &origin);
    let offset = i32::from(origin.port()) - i32::from(port);
    let state = |at: usize| {
        let states = weir.ask("show servers state b");
        let line = states.lines().find(|line| line.contains(" s ")).unwrap_or_default().to_owned();
        line.split(' ').nth(at).unwrap_or_default().to_owned()
    };
    let status = || client::get(port, "/").map(|answer| answer.status);
    let own = origin.port();
    for (command, answer, reached) in [
        (
            format!("port {offset:+}"),
            format!("port changed from '{own}' to '{offset:+}' by 'stats socket command'"),
            true,
        ),
        (format!("port {offset:+}"), "nothing changed".to_owned(), true),
        (
            "port 1".to_owned(),
            format!("port changed from '{offset:+}' to '1' by 'stats socket command'"),
            false,
        ),
        (format!("port {own}"), format!("port changed from '1' to '{own}' by 'stats socket command'"), true),
    ] {
        assert_eq!(
            weir.ask(&format!("set server b/s addr 127.0.0.1 {command}")).trim_end(),
            answer,
            "{command}"
        );
        assert_eq!(status() == Some(200), reached, "{command}");
    }
    weir.ask("set server b/s addr 127.0.0.1 port +7");
    assert_eq!(state(18), "7");
}

#[test]
fn unsuitable_patterns_are_refused() {
    let origin = Origin::text("hello");
    let map = weir_tests::scratch("patterns");
    let path = map.join("networks.map");
    std::fs::write(&path, "10.0.0.0/8 a\n").expect("the directory takes files");
    let path = path.display().to_string();
    let lines = format!(
        "  http-request set-map({path}) %[req.hdr(key),lower] b if {{ req.hdr(key) -m found }}\n  \
         http-request set-header x %[src,map_ip({path})]\n  acl list req.hdr(a) -m int 1\n  http-request deny if list\n"
    );
    let (weir, port) = start(&lines, &origin);
    let refused = "'nonsense' is not a valid IPv4 or IPv6 address.";
    assert_eq!(weir.ask(&format!("add map {path} nonsense b")).trim(), refused);
    assert_eq!(weir.ask(&format!("add map {path} <<\n1.2.3.4 b\nnonsense c\n")).trim(), refused);
    assert!(!weir.ask("add acl #0 nonsense").trim().is_empty());
    for key in ["nonsense", "1.2.3.5"] {
        let request = format!("GET / HTTP/1.1\r\nHost: test\r\nKey: {key}\r\nConnection: close\r\n\r\n");
        assert!(client::exchange(port, &request).is_some());
    }
    let shown = weir.ask(&format!("show map {path}"));
    assert!(shown.contains("1.2.3.5 b") && !shown.contains("nonsense"), "{shown}");
}

#[test]
fn answers_have_haproxys_severity() {
    let origin = Origin::text("hello");
    let (weir, _) = start("", &origin);
    let cases = [
        ("help", "[6]: The following commands are valid at this level:"),
        ("nosuch", "[6]: Unknown command: 'nosuch'"),
        ("expert-mode", "[6]: expert-mode is OFF"),
        ("experimental-mode", "[6]: experimental-mode is OFF"),
        ("show events", "[4]: Supported events sinks are listed below."),
        ("show sess 0x1", "Session not found."),
        ("set map #99 a b", "[3]: "),
    ];
    for (command, expected) in cases {
        let answer = weir.ask(&format!("set severity-output number;{command}"));
        assert!(answer.trim_start().starts_with(expected), "{command}: {answer}");
    }
}
