//! Invalid `stick-table` and `stick` lines and rules on tables: HAProxy's messages, at the right position.

mod common;

use common::{lines, load_quietly, places};

/// Words after `stick-table`, and HAProxy's message.
#[rustfmt::skip]
const TABLES: &[(&str, &str)] = &[
    ("", "stick-table: missing size."),
    ("size 10", "stick-table: missing type."),
    ("type ip", "stick-table: missing size."),
    ("type foo size 10", "stick-table: unknown type 'foo'."),
    ("type ip size 0", "stick-table: missing size."),
    ("type ip size x", "stick-table: unexpected character 'x' in argument of 'size'."),
    ("type ip size 10 expire x", "stick-table: unexpected character 'x' in argument of 'expire'."),
    ("type ip size 10 store foo", "stick-table: unknown store option 'foo'."),
    ("type ip size 10 store conn_rate", "stick-table: missing argument to store option 'conn_rate'."),
    ("type ip size 10 store conn_rate(x)", "stick-table: error when processing store option 'conn_rate'."),
    ("type ip size 10 store gpc0(3)", "stick-table: unexpected argument to store option 'gpc0'."),
    ("type ip size 10 store gpc(0)", "stick-table: array size is out of allowed range (1-100) for store option 'gpc'."),
    ("type ip size 10 store gpc(101)", "stick-table: array size is out of allowed range (1-100) for store option 'gpc'."),
    ("type ip size 10 store gpc(2),gpc0", "stick-table: simultaneous usage of 'gpc' and 'gpc[0/1]' in a same table is not permitted as 'gpc' overrides 'gpc[0/1]'."),
    ("type ip size 10 store gpc_rate(2)", "stick-table: missing argument to store option 'gpc_rate'."),
    ("type ip size 10 store gpc_rate(2,10s),gpc0_rate(1s)", "stick-table: simultaneous usage of 'gpc_rate' and 'gpc[0/1]_rate' in a same table is not permitted as 'gpc_rate' overrides 'gpc[0/1]_rate'."),
    ("type ip size 10 write-to nobody", "Proxy 'b': failed to initialize stick-table: write-to: table 'nobody' doesn't exist."),
    ("type ip size 10 srvkey foo", "stick-table : unknown server key type 'foo'."),
    ("type ip size 10 brates-factor 0", "stick-table: argument 'brates-factor' must be greater than 0 and lower or equal than 1024."),
    ("type ip size 10 brates-factor 1025", "stick-table: argument 'brates-factor' must be greater than 0 and lower or equal than 1024."),
    ("type string len 0 size 10", "'len' expects a positive integer argument."),
    ("type string len x size 10", "'len' expects a positive integer argument."),
    ("type ip size 10 bogus", "stick-table: unknown argument 'bogus'."),
    ("type ip size 10 store conn_cnt,conn_cnt", "stick-table: store option 'conn_cnt' already enabled, ignored."),
    ("type ipv6 size 1k expire 24d nopurge recv-only srvkey addr brates-factor 8 store gpt(3),gpc(9),gpc_rate(9,1m) store bytes_in_rate(1s)", ""),
    ("type binary len 16 size 1m store server_id,server_key,gpt0,glitch_cnt,glitch_rate(5)", ""),
];

/// Lines of a backend `b` with a table of addresses, and HAProxy's message.
#[rustfmt::skip]
const LINES: &[(&str, &str)] = &[
    ("stick on", "'stick' expects a fetch method."),
    ("stick on src table nobody", "Proxy 'b': unable to find stick-table 'nobody'."),
    ("stick store-response src bogus", "'stick': unknown keyword 'bogus'."),
    ("stick match src table b if { path /a }", ""),
    ("http-request track-sc0 src table nobody", "Proxy 'b': unable to find table 'nobody' referenced by track-sc0."),
    ("http-request track-sc3 src", "3 track-sc number exceeding 2 (tune.stick-counters-1) value."),
    ("http-request track-sc src", ""),
    ("http-request sc-inc-gpc0", ""),
    ("http-request sc-inc-gpc0(3)", "invalid stick table track ID. The max allowed ID is 2 (tune.stick-counters)."),
    ("filter bwlim-out x limit 1k", "'filter' : 'bwlim-out' : <key> option is missing"),
    ("filter bwlim-out x key src table rates", "'filter' : 'bwlim-out' : <limit> option is missing"),
    ("filter bwlim-out x limit 1k key src default-limit 1k", "'filter' : 'bwlim-out' : cannot mix per-stream and shared parameter"),
    ("filter bwlim-out x limit 1k key src table nobody", "Proxy b : unable to find table 'nobody' referenced by bwlim filter 'x'"),
    ("filter bwlim-out x limit 1k key src", "Proxy b : stick-table 'b' uses a data type incompatible with bwlim filter 'x'. It must be 'bytes_out_rate'"),
    ("filter bwlim-out x limit 1k key src,ipmask(24) table rates min-size 100", ""),
];

fn said(text: &str) -> Vec<String> {
    let loaded = load_quietly(text);
    lines(&loaded).into_iter().filter(|line| !line.contains("http-keep-alive")).collect()
}

#[test]
fn invalid_tables_have_haproxys_messages() {
    for (words, expected) in TABLES {
        let said = said(&format!("backend b\n mode http\n stick-table {words}\n"));
        match *expected {
            "" => assert!(said.is_empty(), "{words}: {said:?}"),
            expected => assert!(said.len() == 1 && said[0].ends_with(expected), "{words}: {said:?}"),
        }
    }
}

#[test]
fn invalid_table_rules_have_haproxys_messages() {
    for (line, expected) in LINES {
        let said = said(&format!(
            "backend b\n mode http\n stick-table type ip size 10\n {line}\n\
             backend rates\n stick-table type ip size 10 store bytes_out_rate(1s)\n"
        ));
        match *expected {
            "" => assert!(said.is_empty(), "{line}: {said:?}"),
            expected => assert!(
                said.len() == 1 && said[0].trim_end_matches('.').ends_with(expected.trim_end_matches('.')),
                "{line}: {said:?}"
            ),
        }
    }
}

#[test]
fn misspelled_words_are_underlined_with_a_suggestion() {
    for (line, place) in [
        ("stick-table type ipp size 10", "3:19"),
        ("stick-table type ip size 10 store conn_cnt,con_rate(1s)", "3:45"),
        ("stick-table type ip size 10 expyre 1m", "3:30"),
        ("stick on src table here", "3:21"),
    ] {
        let loaded = load_quietly(&format!(
            "backend b\n mode http\n {line}\nbackend there\n stick-table type ip size 1\n"
        ));
        let shown = places(&loaded);
        assert!(shown.iter().any(|message| message.starts_with(place)), "{line}: {shown:?}");
    }
}

#[test]
fn duplicate_table_names_are_refused() {
    let text = "frontend x\n mode http\n bind :8000\n stick-table type ip size 10\n default_backend x\n\
                backend x\n mode http\n stick-table type ip size 10\n";
    assert!(said(text).iter().any(|line| line.contains("two stick tables named 'x'")), "{:?}", said(text));
}

#[test]
fn rules_in_defaults_refer_to_tables() {
    let text = |rule: &str| {
        format!(
            "defaults d\n mode http\n {rule}\nbackend b from d\n stick-table type ip size 10 store http_req_rate(10s)\n"
        )
    };
    for (rule, expected) in [
        ("http-request track-sc0 src", "requires `table"),
        ("http-request deny if { src_http_req_rate gt 1 }", "needs the name of a stick table"),
        ("http-request track-sc0 src table b", ""),
        ("http-request deny if { src_http_req_rate(b) gt 1 }", ""),
    ] {
        let shown = places(&load_quietly(&text(rule)));
        let errors: Vec<&String> = shown.iter().filter(|message| message.contains("table")).collect();
        match expected {
            "" => assert!(errors.is_empty(), "{rule}: {shown:?}"),
            expected => assert!(errors.len() == 1 && errors[0].contains(expected), "{rule}: {shown:?}"),
        }
    }
}
