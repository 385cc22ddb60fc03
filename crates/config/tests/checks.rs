//! Errors in health check lines, in HAProxy's wording.

mod common;

use common::{lines, load_quietly};

/// The lines of a backend, and the message. `#` stands for the line number in front of the message.
const MISTAKES: &[(&str, &str)] = &[
    ("http-check send ver", "'http-check send' : 'ver' expects a string as argument."),
    (
        "http-check connect pot 1",
        "'http-check connect' : expects 'comment', 'port', 'addr', 'send-proxy', 'via-socks4', 'linger', 'default' or 'proto' but got 'pot' as argument.",
    ),
    (
        "tcp-check connect port 0",
        "'tcp-check connect' : expects a valid TCP port (from range 1 to 65535) or a sample expression, got 0.",
    ),
    ("http-check expect status 300-200", "'http-check expect' : invalid range of status codes '300-200'."),
    ("http-check expect status 200 string x", "'http-check expect' : only one pattern expected."),
    ("http-check expect comment x", "'http-check expect' : pattern not found."),
    (
        "http-check expect min-recv x status 200",
        "'http-check expect' : 'min-recv' expects -1 or an integer from 0 to INT_MAX.",
    ),
    ("http-check expect ! comment x", "'http-check expect' : [!] not supported with 'comment'."),
    (
        "http-check expect ok-status L7STS status 200",
        "'http-check expect' : 'ok-status' only supports 'L7OK', 'L7OKC', 'L6OK', 'L4OK' status (got 'L7STS').",
    ),
    (
        "http-check expect hdr x",
        "'http-check expect' : 'hdr' expects at the name keyword as first argument followed by a pattern.",
    ),
    (
        "http-check expect hdr name-lf -m reg x",
        "'http-check expect': log-format string is not supported with a regex matching method.",
    ),
    ("tcp-check expect rstring", "'tcp-check expect' : 'rstring' expects a <pattern> as argument."),
    ("tcp-check expect binary 123", "'tcp-check expect' : '123' invalid binary string."),
    (
        "http-check expect status 200\n http-check send meth GET",
        "'http-check send' : unable to add http-check send rule at step 2 (missing connect rule).",
    ),
    (
        "http-check connect\n http-check expect status 200",
        "'http-check expect' : unable to add http-check expect rule at step 2 (missing send rule).",
    ),
    (
        "http-check send meth GET\n http-check connect",
        "'http-check connect' : unable to add http-check connect rule at step 2 (missing expect rule).",
    ),
    (
        "option httpchk GET / HTTP/1.1\\r\\nHost:\\ w",
        "'option httpchk' : hiding headers or body at the end of the version string is unsupported. Use 'http-check send' directive instead.",
    ),
    (
        "option external-check\n server s 10.0.0.1:80 check",
        "Proxy 'b' : 'option external-check' unable to find required 'global.external-check'.",
    ),
    (
        "http-check expect status 200",
        "backend 'b' uses http-check rules without 'option httpchk', so the rules are ignored.",
    ),
    (
        "option httpchk\n tcp-check connect",
        "backend 'b' uses tcp-check rules without 'option tcp-check', so the rules are ignored.",
    ),
    (
        "server s 10.0.0.1:80 init-state down track b/t\n server t 10.0.0.1:81 check",
        "unable to set init-state and tracking at the same time!",
    ),
    ("server s 10.0.0.1:80 check healthcheck none", "healthcheck section 'none' not found for server 's'."),
    ("server s 10.0.0.1:80 healthcheck none", "healthcheck section 'none' not found for server 's'."),
];

#[test]
fn check_errors_match_haproxy() {
    for (text, message) in MISTAKES {
        let shown = lines(&load_quietly(&format!("backend b\n {text}\n")));
        assert!(shown.iter().any(|line| line.contains(message)), "{text}\n{shown:#?}");
    }
}

#[test]
fn checks_refuse_request_variables_and_unknown_fetches() {
    for text in
        ["set-var(txn.x) int(1)", "set-var(check.x) req.hdr(a)", "set-var check.x int(1)", "unset-var()"]
    {
        let shown = lines(&load_quietly(&format!(
            "backend b\n option tcp-check\n tcp-check {text}\n server s 10.0.0.1:80 check\n"
        )));
        assert!(shown[0].starts_with("[ALERT]"), "{text}\n{shown:#?}");
    }
}

#[test]
fn healthcheck_sections_need_a_type_and_a_unique_name() {
    for (text, message) in [
        ("healthcheck h\n http-check send meth GET\n", "has no type defined."),
        ("healthcheck h\n type nothing\n", "unknown health-check type 'nothing'."),
        ("healthcheck h\n type tcp-check\nhealthcheck h\n type tcp-check\n", "already declared at"),
        ("healthcheck h\n balance roundrobin\n", "unknown keyword 'balance' in 'healthcheck' section"),
    ] {
        let shown = lines(&load_quietly(text));
        assert!(shown.iter().any(|line| line.contains(message)), "{text}\n{shown:#?}");
    }
}
