//! Every fetch and converter that reads or changes a stick table entry: the runtime socket sets the data, and each must return it.

use weir_tests::client::Client;
use weir_tests::{Weir, free_port, scratch};

/// A fetch, perhaps with converters, and its expected value.
type Case = (&'static str, &'static str);

/// Returns the values of the expressions, all evaluated in order by one request whose client is tracked three times in `table`.
fn given(table: &str, store: &str, set: &[(&str, u64)], cases: &[Case]) -> Vec<String> {
    let port = free_port();
    let directory = scratch("table-facts");
    let body = directory.join("body");
    let all: Vec<String> = cases.iter().map(|(expression, _)| format!("%[{expression}]")).collect();
    std::fs::write(&body, all.join("|")).expect("the directory takes files");
    let text = format!(
        "global\n tune.bufsize 65536\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request track-sc0 src table {table}\n \
         http-request track-sc1 src table {table}\n http-request track-sc2 src table {table}\n \
         http-request return status 200 content-type text/plain lf-file {}\n\
         backend {table}\n stick-table type ip size 10 expire 1h store {store}\n",
        body.display()
    );
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty(), "it listens by then");
    for (data, value) in set {
        let answer = weir.ask(&format!("set table {table} key 127.0.0.1 data.{data} {value}"));
        assert_eq!(answer.trim(), "", "{data}");
    }
    let answer = Client::connect(port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    answer.expect("an answer").text().trim().split('|').map(str::to_owned).collect()
}

fn check(table: &str, store: &str, set: &[(&str, u64)], cases: &[Case]) {
    let given = given(table, store, set, cases);
    assert_eq!(given.len(), cases.len(), "{given:?}");
    for ((expression, wanted), given) in cases.iter().zip(given) {
        assert_eq!(given, *wanted, "{expression}");
    }
}

#[test]
fn all_table_data_is_readable_in_every_way() {
    let store = "server_id,gpc0,gpc0_rate(1h),gpc1,gpc1_rate(1h),gpt0,conn_cnt,conn_cur,conn_rate(1h),sess_cnt,sess_rate(1h),\
                 http_req_cnt,http_req_rate(1h),http_err_cnt,http_err_rate(1h),http_fail_cnt,http_fail_rate(1h),\
                 bytes_in_cnt,bytes_in_rate(1h),bytes_out_cnt,bytes_out_rate(1h),glitch_cnt,glitch_rate(1h)";
    #[rustfmt::skip]
    let set = [
        ("bytes_in_rate", 20480), ("bytes_out_rate", 30720), ("bytes_in_cnt", 40960), ("bytes_out_cnt", 51200), ("conn_cnt", 60), ("conn_cur", 70),
        ("conn_rate", 80), ("gpc0", 90), ("gpc1", 100), ("gpt0", 110), ("glitch_cnt", 120), ("glitch_rate", 130),
        ("gpc0_rate", 140), ("gpc1_rate", 150), ("http_err_cnt", 160), ("http_err_rate", 170), ("http_fail_cnt", 180), ("http_fail_rate", 190),
        ("http_req_cnt", 200), ("http_req_rate", 210), ("sess_cnt", 220), ("sess_rate", 230), ("server_id", 7),
    ];
    // Expressions that change the entry come last. An entry tracked three times counts three requests.
    #[rustfmt::skip]
    let cases = [
        ("sc_bytes_in_rate(0)", "20480"), ("sc0_bytes_in_rate", "20480"), ("sc1_bytes_in_rate", "20480"), ("sc2_bytes_in_rate", "20480"), ("src_bytes_in_rate(t)", "20480"), ("src,table_bytes_in_rate(t)", "20480"),
        ("sc_bytes_out_rate(0)", "30720"), ("sc0_bytes_out_rate", "30720"), ("sc1_bytes_out_rate", "30720"), ("sc2_bytes_out_rate", "30720"), ("src_bytes_out_rate(t)", "30720"), ("src,table_bytes_out_rate(t)", "30720"),
        ("sc_kbytes_in(0)", "40"), ("sc0_kbytes_in", "40"), ("sc1_kbytes_in", "40"), ("sc2_kbytes_in", "40"), ("src_kbytes_in(t)", "40"), ("src,table_kbytes_in(t)", "40"),
        ("sc_kbytes_out(0)", "50"), ("sc0_kbytes_out", "50"), ("sc1_kbytes_out", "50"), ("sc2_kbytes_out", "50"), ("src_kbytes_out(t)", "50"), ("src,table_kbytes_out(t)", "50"),
        ("sc_conn_cnt(0)", "63"), ("sc0_conn_cnt", "63"), ("sc1_conn_cnt", "63"), ("sc2_conn_cnt", "63"), ("src_conn_cnt(t)", "63"), ("src,table_conn_cnt(t)", "63"),
        ("sc_conn_cur(0)", "73"), ("sc0_conn_cur", "73"), ("sc1_conn_cur", "73"), ("sc2_conn_cur", "73"), ("src_conn_cur(t)", "73"), ("src,table_conn_cur(t)", "73"),
        ("sc_conn_rate(0)", "83"), ("sc0_conn_rate", "83"), ("sc1_conn_rate", "83"), ("sc2_conn_rate", "83"), ("src_conn_rate(t)", "83"), ("src,table_conn_rate(t)", "83"),
        ("sc_get_gpc0(0)", "90"), ("sc0_get_gpc0", "90"), ("sc1_get_gpc0", "90"), ("sc2_get_gpc0", "90"), ("src_get_gpc0(t)", "90"), ("src,table_gpc0(t)", "90"),
        ("sc_get_gpc1(0)", "100"), ("sc0_get_gpc1", "100"), ("sc1_get_gpc1", "100"), ("sc2_get_gpc1", "100"), ("src_get_gpc1(t)", "100"), ("src,table_gpc1(t)", "100"),
        ("sc_get_gpt0(0)", "110"), ("sc0_get_gpt0", "110"), ("sc1_get_gpt0", "110"), ("sc2_get_gpt0", "110"), ("src_get_gpt0(t)", "110"), ("src,table_gpt0(t)", "110"),
        ("sc_glitch_cnt(0)", "120"), ("sc0_glitch_cnt", "120"), ("sc1_glitch_cnt", "120"), ("sc2_glitch_cnt", "120"), ("src_glitch_cnt(t)", "120"), ("src,table_glitch_cnt(t)", "120"),
        ("sc_glitch_rate(0)", "130"), ("sc0_glitch_rate", "130"), ("sc1_glitch_rate", "130"), ("sc2_glitch_rate", "130"), ("src_glitch_rate(t)", "130"), ("src,table_glitch_rate(t)", "130"),
        ("sc_gpc0_rate(0)", "140"), ("sc0_gpc0_rate", "140"), ("sc1_gpc0_rate", "140"), ("sc2_gpc0_rate", "140"), ("src_gpc0_rate(t)", "140"), ("src,table_gpc0_rate(t)", "140"),
        ("sc_gpc1_rate(0)", "150"), ("sc0_gpc1_rate", "150"), ("sc1_gpc1_rate", "150"), ("sc2_gpc1_rate", "150"), ("src_gpc1_rate(t)", "150"), ("src,table_gpc1_rate(t)", "150"),
        ("sc_http_err_cnt(0)", "160"), ("sc0_http_err_cnt", "160"), ("sc1_http_err_cnt", "160"), ("sc2_http_err_cnt", "160"), ("src_http_err_cnt(t)", "160"), ("src,table_http_err_cnt(t)", "160"),
        ("sc_http_err_rate(0)", "170"), ("sc0_http_err_rate", "170"), ("sc1_http_err_rate", "170"), ("sc2_http_err_rate", "170"), ("src_http_err_rate(t)", "170"), ("src,table_http_err_rate(t)", "170"),
        ("sc_http_fail_cnt(0)", "180"), ("sc0_http_fail_cnt", "180"), ("sc1_http_fail_cnt", "180"), ("sc2_http_fail_cnt", "180"), ("src_http_fail_cnt(t)", "180"), ("src,table_http_fail_cnt(t)", "180"),
        ("sc_http_fail_rate(0)", "190"), ("sc0_http_fail_rate", "190"), ("sc1_http_fail_rate", "190"), ("sc2_http_fail_rate", "190"), ("src_http_fail_rate(t)", "190"), ("src,table_http_fail_rate(t)", "190"),
        ("sc_http_req_cnt(0)", "203"), ("sc0_http_req_cnt", "203"), ("sc1_http_req_cnt", "203"), ("sc2_http_req_cnt", "203"), ("src_http_req_cnt(t)", "203"), ("src,table_http_req_cnt(t)", "203"),
        ("sc_http_req_rate(0)", "213"), ("sc0_http_req_rate", "213"), ("sc1_http_req_rate", "213"), ("sc2_http_req_rate", "213"), ("src_http_req_rate(t)", "213"), ("src,table_http_req_rate(t)", "213"),
        ("sc_sess_cnt(0)", "220"), ("sc0_sess_cnt", "220"), ("sc1_sess_cnt", "220"), ("sc2_sess_cnt", "220"), ("src_sess_cnt(t)", "220"), ("src,table_sess_cnt(t)", "220"),
        ("sc_sess_rate(0)", "230"), ("sc0_sess_rate", "230"), ("sc1_sess_rate", "230"), ("sc2_sess_rate", "230"), ("src_sess_rate(t)", "230"), ("src,table_sess_rate(t)", "230"),
        ("sc_inc_gpc0(0)", "91"), ("sc0_inc_gpc0", "92"), ("sc1_inc_gpc0", "93"), ("sc2_inc_gpc0", "94"), ("src_inc_gpc0(t)", "95"),
        ("src,table_inc_gpc0(t)", "96"), ("sc_clr_gpc0(0)", "96"), ("sc_get_gpc0(0)", "0"), ("sc0_inc_gpc0", "1"), ("sc0_clr_gpc0", "1"),
        ("sc1_inc_gpc0", "1"), ("sc1_clr_gpc0", "1"), ("sc2_inc_gpc0", "1"), ("sc2_clr_gpc0", "1"), ("src_inc_gpc0(t)", "1"),
        ("src_clr_gpc0(t)", "1"), ("src,table_inc_gpc0(t)", "1"), ("src,table_clr_gpc0(t)", "1"), ("src,table_gpc0(t)", "0"), ("sc_inc_gpc1(0)", "101"),
        ("sc0_inc_gpc1", "102"), ("sc1_inc_gpc1", "103"), ("sc2_inc_gpc1", "104"), ("src_inc_gpc1(t)", "105"), ("src,table_inc_gpc1(t)", "106"),
        ("sc_clr_gpc1(0)", "106"), ("sc_get_gpc1(0)", "0"), ("sc0_inc_gpc1", "1"), ("sc0_clr_gpc1", "1"), ("sc1_inc_gpc1", "1"),
        ("sc1_clr_gpc1", "1"), ("sc2_inc_gpc1", "1"), ("sc2_clr_gpc1", "1"), ("src_inc_gpc1(t)", "1"), ("src_clr_gpc1(t)", "1"),
        ("src,table_inc_gpc1(t)", "1"), ("src,table_clr_gpc1(t)", "1"), ("src,table_gpc1(t)", "0"), ("src_updt_conn_cnt(t)", "64"), ("src,table_server_id(t)", "7"),
        ("src,table_trackers(t)", "4"), ("sc_tracked(0)", "1"), ("sc0_tracked", "1"), ("sc1_tracked", "1"), ("sc2_tracked", "1"),
        ("sc_trackers(1)", "3"), ("sc0_trackers", "3"), ("sc1_trackers", "3"), ("sc2_trackers", "3"), ("sc_tracked(2)", "1"),
    ];
    check("t", store, &set, &cases);
}

#[test]
fn array_counters_and_tags_are_accessed_by_index() {
    #[rustfmt::skip]
    let cases = [
        ("sc_inc_gpc(1,0)", "1"), ("src_inc_gpc(1,u)", "2"), ("src,table_inc_gpc(1,u)", "3"), ("sc_get_gpc(1,0)", "3"), ("src_get_gpc(1,u)", "3"),
        ("src,table_gpc(1,u)", "3"), ("sc_gpc_rate(1,0)", "3"), ("src_gpc_rate(1,u)", "3"), ("src,table_gpc_rate(1,u)", "3"), ("sc_clr_gpc(1,0)", "3"),
        ("src_inc_gpc(1,u)", "1"), ("src_clr_gpc(1,u)", "1"), ("src,table_inc_gpc(1,u)", "1"), ("src,table_clr_gpc(1,u)", "1"), ("sc_get_gpt(1,0)", "0"),
        ("src_get_gpt(1,u)", "0"), ("src,table_gpt(1,u)", "0"), ("sc0_inc_gpc0", "1"), ("sc0_get_gpc0", "1"), ("sc0_get_gpt0", "0"),
        ("src_get_gpc0(u)", "1"), ("sc1_clr_gpc(1)", "0"),
    ];
    check("u", "gpc(3),gpc_rate(3,1h),gpt(3)", &[], &cases);
}

/// Every action that changes counters and tags, once in every rule set: first the rules of the frontend, then those of the backend.
const FRONTEND: &str = "\
         tcp-request connection track-sc0 src table u\n\
         tcp-request connection sc-add-gpc(2,0) 5\n\
         tcp-request connection sc-inc-gpc(2,0)\n\
         tcp-request connection sc-inc-gpc0(0)\n\
         tcp-request connection sc-inc-gpc1(0)\n\
         tcp-request connection sc-set-gpt(1,0) 1\n\
         tcp-request connection sc-set-gpt0(0) int(11)\n\
         tcp-request session sc-add-gpc(2,0) 5\n\
         tcp-request session sc-inc-gpc(2,0)\n\
         tcp-request session sc-inc-gpc0(0)\n\
         tcp-request session sc-inc-gpc1(0)\n\
         tcp-request session sc-set-gpt(1,0) 2\n\
         tcp-request session sc-set-gpt0(0) int(12)\n\
         tcp-request content sc-add-gpc(2,0) 5\n\
         tcp-request content sc-inc-gpc(2,0)\n\
         tcp-request content sc-inc-gpc0(0)\n\
         tcp-request content sc-inc-gpc1(0)\n\
         tcp-request content sc-set-gpt(1,0) 3\n\
         tcp-request content sc-set-gpt0(0) int(13)\n\
         http-request sc-add-gpc(2,0) 5\n\
         http-request sc-inc-gpc(2,0)\n\
         http-request sc-inc-gpc0(0)\n\
         http-request sc-inc-gpc1(0)\n\
         http-request sc-set-gpt(1,0) 4\n\
         http-request sc-set-gpt0(0) int(14)\n\
         http-after-response sc-add-gpc(2,0) 5\n\
         http-after-response sc-inc-gpc(2,0)\n\
         http-after-response sc-inc-gpc0(0)\n\
         http-after-response sc-inc-gpc1(0)\n\
         http-after-response sc-set-gpt(1,0) 7\n\
         http-after-response sc-set-gpt0(0) int(17)\n\
    ";
const BACKEND: &str = "\
         tcp-response content sc-add-gpc(2,0) 5\n\
         tcp-response content sc-inc-gpc(2,0)\n\
         tcp-response content sc-inc-gpc0(0)\n\
         tcp-response content sc-inc-gpc1(0)\n\
         tcp-response content sc-set-gpt(1,0) 5\n\
         tcp-response content sc-set-gpt0(0) int(15)\n\
         http-response sc-add-gpc(2,0) 5\n\
         http-response sc-inc-gpc(2,0)\n\
         http-response sc-inc-gpc0(0)\n\
         http-response sc-inc-gpc1(0)\n\
         http-response sc-set-gpt(1,0) 6\n\
         http-response sc-set-gpt0(0) int(16)\n\
    ";

#[test]
fn every_rule_set_changes_counters_and_tags() {
    let origin = weir_tests::Origin::text("ok");
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n{FRONTEND}\n default_backend b\n\
         backend b\n{BACKEND}\n server s 127.0.0.1:{}\n\
         backend u\n stick-table type ip size 10 expire 1h store gpc(3),gpt(2)\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty(), "it listens by then");
    Client::connect(port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
    let shown = weir.ask("show table u");
    let wanted = " gpt0=17 gpt1=7 gpc0=7 gpc1=7 gpc2=42";
    assert!(weir_tests::eventually(|| weir.ask("show table u").contains(wanted)), "{shown}");
}
