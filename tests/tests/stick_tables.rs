//! Stick tables themselves: what they keep, for how long, and how the runtime socket shows it.

use weir_tests::client::get;
use weir_tests::{Weir, eventually, free_port};

/// The program with a frontend of these lines and other sections. Nobody has connected yet.
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

/// The status of an answer, and what its header `x` says.
fn ask(port: u16) -> (u16, String) {
    let answer = get(port, "/").expect("an answer");
    (answer.status, answer.header("x").unwrap_or_default().to_owned())
}

#[test]
fn what_a_request_tracks_is_counted_shown_and_refused_by() {
    let (weir, port) = start(
        "http-request track-sc0 src table t\n http-request deny if { sc0_get_gpc0 gt 0 }\n \
         http-request return status 200 hdr x %[sc_http_req_rate(0)],%[sc_conn_cur(0)]",
        "backend t\n stick-table type ip size 1m expire 10m store gpc0,http_req_rate(10s),conn_cur\n",
    );
    assert_eq!(ask(port), (200, "1,1".to_owned()));
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
