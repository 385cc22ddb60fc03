//! Commands of the runtime socket, on what only a running program has.

use weir_tests::{Origin, Weir, client, free_port};

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
fn variables_of_the_process_are_set_and_seen_by_rules() {
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
fn maps_are_looked_into_and_replaced_whole_by_versions() {
    let origin = Origin::text("hello");
    let map = weir_tests::scratch("map").join("names.map");
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
