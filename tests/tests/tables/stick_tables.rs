//! Stick tables: their contents, expiry, and display on the runtime socket.

use weir_tests::client::get;
use weir_tests::{Origin, Weir, eventually, free_port};

/// Starts the program with a frontend with these lines and other sections. Nothing has connected yet.
fn start(lines: &str, sections: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n {lines}\n{sections}"
    );
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    (weir, port)
}

/// Returns the status of a response and its header `x`.
fn ask(port: u16) -> (u16, String) {
    let answer = get(port, "/").expect("an answer");
    (answer.status, answer.header("x").unwrap_or_default().to_owned())
}

#[test]
fn tracked_requests_are_counted_shown_and_limited() {
    let (weir, port) = start(
        "http-request track-sc0 src table t\n http-request deny if { sc0_get_gpc0 gt 0 }\n \
         http-request return status 200 hdr x %[sc_http_req_rate(0)],%[sc_conn_cur(0)]",
        "backend t\n stick-table type ip size 1m expire 10m store gpc0,http_req_rate(10s),conn_cur\n",
    );
    assert_eq!(ask(port), (200, "1,1".to_owned()));
    // The entry is released after the response.
    assert!(eventually(|| weir.ask("show table t").contains("use=0")), "{}", weir.ask("show table t"));
    assert_eq!(ask(port), (200, "2,1".to_owned()));
    assert_eq!(weir.ask("show table").trim(), "# table: t, type: ip, size:1048576, used:1");
    weir.ask("set table t key 127.0.0.1 data.gpc0 1");
    assert_eq!(ask(port).0, 403);
    let shown = || weir.ask("show table t");
    assert!(eventually(|| shown().contains("use=0")), "{}", shown());
    assert!(shown().contains(" gpc0=1 conn_cur=0 http_req_rate(10000)=3"), "{}", shown());
    weir.ask("clear table t key 127.0.0.1");
    assert_eq!(ask(port), (200, "1,1".to_owned()));
}

/// Starts a frontend that tracks the path of each request in the table `t` with these options.
fn paths(words: &str) -> (Weir, u16) {
    start(
        "http-request track-sc0 path table t\n http-request return status 200 hdr x %[sc_http_req_cnt(0)]",
        &format!("backend t\n stick-table type string len 20 {words}\n"),
    )
}

/// Returns the sorted keys of a table, once none of them is tracked.
fn keys(weir: &Weir, table: &str) -> String {
    let mut shown = String::new();
    eventually(|| {
        shown = weir.ask(&format!("show table {table}"));
        shown.lines().filter(|line| line.starts_with("0x")).all(|line| line.contains(" use=0 "))
    });
    let key =
        |line: &str| line.split("key=").nth(1).and_then(|rest| rest.split(" use=").next()).map(str::to_owned);
    let mut keys: Vec<String> = shown.lines().filter_map(key).collect();
    keys.sort();
    keys.join(" ")
}

/// Returns the remaining lifetime of a key's entry in milliseconds, once it is not tracked.
fn left(weir: &Weir, key: &str) -> Option<u64> {
    let shown = weir.ask(&format!("show table t key {key}"));
    let line = shown.lines().find(|line| line.contains(" use=0 "))?;
    line.split(" exp=").nth(1)?.split(' ').next()?.parse().ok()
}

#[test]
fn full_table_evicts_the_oldest_or_refuses_new_entries() {
    for (words, kept, answers) in [("", "/2 /3 /4", "1111"), ("nopurge", "/1 /2 /3", "111")] {
        let (weir, port) = paths(&format!("size 3 expire 1h {words} store http_req_cnt"));
        let mut asked = String::new();
        for number in 1..5 {
            let path = format!("/{number}");
            asked += get(port, &path).expect("an answer").header("x").unwrap_or_default();
            // The entry is then unused, and older than the next by more than the clock's resolution.
            let is_refused = words == "nopurge" && number == 4;
            assert!(is_refused || eventually(|| left(&weir, &path).is_some_and(|left| left < 3_599_990)));
        }
        assert_eq!((keys(&weir, "t"), asked), (kept.to_owned(), answers.to_owned()), "{words}");
        assert!(weir.ask("show table").contains("size:3, used:3"));
    }
}

#[test]
fn unused_entries_expire() {
    let (weir, port) = paths("size 100 expire 300ms store http_req_cnt");
    assert!(get(port, "/a").is_some());
    assert!(eventually(|| weir.ask("show table").contains("used:0")));
    assert_eq!(keys(&weir, "t"), "");
    // Without an expiry time they stay.
    let (weir, port) = paths("size 100 store http_req_cnt");
    assert!(get(port, "/a").is_some());
    let shown = weir.ask("show table t");
    assert!(shown.contains(" exp=0 "), "{shown}");
}

#[test]
fn entries_are_shown_by_data_key_and_pointer() {
    let (weir, _port) = start(
        "",
        "backend t\n stick-table type ip size 10 expire 1h store gpc0,gpt(2),conn_rate(1h)\n\
         backend six\n stick-table type ipv6 size 10 store gpc0\n\
         backend number\n stick-table type integer size 10 store gpc0\n\
         backend bytes\n stick-table type binary len 4 size 10 store gpc0\n",
    );
    assert_eq!(weir.ask("set table t key 192.0.2.1 data.gpc0 3 data.gpt[1] 7 data.conn_rate 5").trim(), "");
    weir.ask("set table t key 192.0.2.2 data.gpc0 9");
    let shown = weir.ask("show table t data.gpt[1] eq 7");
    let line = shown.lines().find(|line| line.starts_with("0x")).expect("an entry").to_owned();
    assert!(line.contains(": key=192.0.2.1 use=0 exp="), "{line}");
    assert!(line.ends_with(" shard=0 gpc0=3 conn_rate(3600000)=5 gpt0=0 gpt1=7"), "{line}");
    let pointer = line.split(':').next().unwrap_or_default();
    for (filter, expected) in [
        ("data.gpc0 gt 3", "192.0.2.2"),
        ("data.gpc0 lt 4", "192.0.2.1"),
        ("data.gpc0 ge 3 data.gpc0 le 3", "192.0.2.1"),
        ("data.gpc0 ne 3", "192.0.2.2"),
        ("data.gpt[5] eq 0", ""),
        ("key 192.0.2.2", "192.0.2.2"),
        ("key 192.0.2.3", ""),
        (&format!("ptr {pointer}"), "192.0.2.1"),
    ] {
        assert_eq!(keys(&weir, &format!("t {filter}")), expected, "{filter}");
    }
    for (command, expected) in [
        ("show table none", "No such table"),
        ("show table t foo", "Optional argument only supports"),
        ("show table t key", "Key value expected"),
        ("show table t ptr 0x1", "No entry can be found matching ptr."),
        ("show table t ptr x", "Pointer expected (0xffff notation)"),
        ("show table t data.gpc1 gt 1", "Filter entry #1: Data type not stored in this table"),
        ("show table t data.gpc0 gt 1 data.x gt 1", "Filter entry #2: Unknown data type"),
        ("show table t data.gpc0 near 1", "Filter entry #1: Require and operator among"),
        ("show table t data.gpc0 gt x", "Filter entry #1: Require a valid integer value to compare against"),
        ("set table t key 192.0.2.1 data.gpt[2] 1", "index out of range in this data array"),
        ("set table t key 192.0.2.1 data.gpc0 x", "Require a valid integer value to store"),
        ("set table t key 192.0.2.1 gpc0 1", "\"data.<type>\" followed by a value expected"),
        ("set table t foo", "Required arguments: <table> key <key>"),
        ("set table bytes key ab", "is not supported"),
        ("clear table", "Required arguments"),
        ("clear table t ptr 0x1", "No entry can be found matching ptr."),
    ] {
        assert!(weir.ask(command).contains(expected), "{command}: {}", weir.ask(command));
    }
    weir.ask(&format!("set table t ptr {pointer} data.gpc0 4"));
    assert_eq!(keys(&weir, "t data.gpc0 eq 4"), "192.0.2.1");
    weir.ask(&format!("clear table t ptr {pointer}"));
    assert_eq!(keys(&weir, "t"), "192.0.2.2");
    weir.ask("set table t key 192.0.2.4 data.gpc0 1");
    weir.ask("clear table t data.gpc0 gt 5");
    assert_eq!(keys(&weir, "t"), "192.0.2.4");
    weir.ask("clear table t");
    assert_eq!(keys(&weir, "t"), "");
    weir.ask("set table six key 192.0.2.1 data.gpc0 1");
    weir.ask("set table six key 2001:db8::1");
    weir.ask("set table number key 4294967295");
    assert_eq!(
        (keys(&weir, "six"), keys(&weir, "number")),
        ("2001:db8::1 ::ffff:192.0.2.1".into(), "4294967295".into())
    );
    assert!(
        weir.ask("show table")
            .lines()
            .next()
            .is_some_and(|line| line.starts_with("# table: bytes, type: binary"))
    );
}

#[test]
fn string_keys_are_escaped() {
    let (weir, port) = start(
        "http-request track-sc0 req.hdr(k) table t\n http-request return status 200",
        "backend t\n stick-table type string size 10\n",
    );
    assert!(weir_tests::client::exchange_with(port, "/", "k: a b=c\\d\r\n").is_some());
    assert_eq!(keys(&weir, "t"), "a\\ b\\=c\\\\d");
}

#[test]
fn exporter_shows_tables() {
    let (weir, port) = start(
        "http-request track-sc0 src table t\n http-request use-service prometheus-exporter",
        "backend t\n stick-table type ip size 10 store gpc0\n",
    );
    weir.ask("set table t key 192.0.2.1");
    let answer = get(port, "/metrics?scope=sticktable").expect("an answer");
    let text = answer.text();
    for line in [
        "haproxy_sticktable_size{name=\"t\",type=\"ip\"} 10",
        "haproxy_sticktable_used{name=\"t\",type=\"ip\"} 2",
        "haproxy_sticktable_local_updates{name=\"t\",type=\"ip\"} 0",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("haproxy_process_"));
}

#[test]
fn expressions_return_table_usage_and_expiry() {
    let (_weir, port) = start(
        "http-request track-sc0 src table t\n http-request return status 200 hdr x \
         %[table_cnt(t)],%[table_avl(t)],%[src,table_expire(t),div(3600000)],%[src,table_idle(t),div(3600000)],%[str(192.0.2.9),table_expire(t,7)],[%[str(192.0.2.9),table_idle(t)]]",
        "backend t\n stick-table type ip size 10 expire 2h store gpc0\n",
    );
    let (status, told) = ask(port);
    assert_eq!(status, 200);
    assert!(told == "1,9,2,0,7,[]" || told == "1,9,1,0,7,[]", "{told}");
}

#[test]
fn streams_with_the_same_key_share_a_bandwidth_limit() {
    let port = free_port();
    let body = "x".repeat(3_000);
    let origin = Origin::start(move |_, _| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n{body}").into_bytes()
    });
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n filter bwlim-out share limit 4k key path table t\n \
         http-request set-bandwidth-limit share\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n\
         backend t\n stick-table type string size 10 expire 1m store bytes_out_rate(1h)\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    assert_eq!(get(port, "/a").map(|answer| answer.body.len()), Some(3_000));
    let shown = weir.ask("show table t");
    assert!(shown.contains("bytes_out_rate(3600000)=3000"), "{shown}");
    // Another key has its own limit; the rest of this one is used up before the body ends.
    assert_eq!(get(port, "/b").map(|answer| answer.body.len()), Some(3_000));
    let mut client = weir_tests::client::Client::connect(port);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 200"));
    // The response waits for the next hour with the bytes that the limit let pass.
    assert!(eventually(|| weir.ask("show table t").contains("key=/a use=1 ")));
}

#[test]
fn a_backend_with_a_table_is_not_removed_at_run_time() {
    let (weir, _port) = start("", "backend t\n stick-table type string size 10\n");
    weir.ask("unpublish backend t");
    assert!(weir.ask("del backend t").contains("Cannot remove a backend with stick-table."));
}

/// Returns how many of eight requests get a response, and how many the table `t` counts.
fn within_limit(frontend: &str, backend: &str) -> (usize, String) {
    let origin = Origin::text("ok");
    let (weir, port) = start(
        &format!("{frontend}\n default_backend b"),
        &format!(
            "backend b\n {backend}\n server s 127.0.0.1:{}\n\
             backend t\n stick-table type ip size 10 expire 1h store http_req_cnt,http_req_rate(1h)\n",
            origin.port()
        ),
    );
    let answered = (0..8).filter(|_| get(port, "/").is_some_and(|answer| answer.status == 200)).count();
    let shown = weir.ask("show table t");
    let counted = shown.split("http_req_cnt=").nth(1).and_then(|rest| rest.split(' ').next());
    (answered, counted.unwrap_or_default().to_owned())
}

#[test]
fn requests_rejected_by_content_rules_are_not_counted() {
    let content = "tcp-request content track-sc0 src table t";
    let reject = "tcp-request content reject if { src_http_req_rate(t) ge 5 }";
    let both = format!("{content}\n {reject}");
    let first = format!("{reject}\n {content}");
    for (frontend, backend) in [
        (&*both, ""),
        (&first, ""),
        ("", &*both),
        ("", &first),
        (content, reject),
        (&format!("tcp-request connection track-sc0 src table t\n {reject}"), ""),
        (&format!("tcp-request session track-sc0 src table t\n {reject}"), ""),
    ] {
        // The frontend counts a request before the backend rejects it.
        let wanted = if frontend == content { (4, "8") } else { (5, "5") };
        let (answered, counted) = within_limit(frontend, backend);
        assert_eq!((answered, &*counted), wanted, "{frontend} / {backend}");
    }
}

#[test]
fn requests_denied_by_http_rules_are_counted_once() {
    let deny = "http-request deny if { src_http_req_rate(t) ge 5 }";
    for track in [
        "tcp-request connection track-sc0 src table t",
        "tcp-request session track-sc0 src table t",
        "tcp-request content track-sc0 src table t",
        "http-request track-sc0 src table t",
    ] {
        let rules = format!("{track}\n {deny}");
        assert_eq!(within_limit(&rules, ""), (4, "8".to_owned()), "{track}");
        if !track.contains("connection") && !track.contains("session") {
            assert_eq!(within_limit("", &rules), (4, "8".to_owned()), "{track}");
        }
    }
}
