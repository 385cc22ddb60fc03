//! Messages about `filter spoe` lines and the files they name, in HAProxy's wording if it has any.

mod common;

use scratch::Scratch;

/// A file with this text.
fn engine_file(text: &str) -> Scratch {
    Scratch::holding("spoe.conf", text)
}

/// The messages for a frontend with this filter; `FILE` is replaced by a file with the engine's text.
fn said(filter: &str, engine: &str, more: &str) -> Vec<String> {
    let path = engine_file(engine);
    let name = path.display().to_string();
    let text = format!(
        "frontend f\n bind :8000\n mode http\n {filter}\n {more}\n default_backend b\n\
         backend b\n mode http\n server s 192.0.2.1:80\n\
         backend agents\n mode spop\n server a 192.0.2.2:80\n\
         backend web\n mode http\n server a 192.0.2.3:80\n"
    );
    let loaded = common::load_quietly(&text.replace("FILE", &name));
    common::lines(&loaded).into_iter().map(|line| line.replace(&name, "FILE")).collect()
}

const AGENT: &str = "spoe-agent ag\n messages m\n use-backend agents\n timeout processing 1s\n";
const MESSAGE: &str = "spoe-message m\n args a=path\n event on-frontend-http-request\n";
const FILTER: &str = "filter spoe config FILE";

#[test]
fn valid_engines_are_accepted_with_and_without_a_scope() {
    assert_eq!(said(FILTER, &format!("{AGENT}{MESSAGE}"), ""), [""; 0]);
    let scoped = format!("[other]\nnonsense\n[mine]\n{AGENT}{MESSAGE}[third]\nspoe-agent x\n");
    assert_eq!(said("filter spoe engine mine config FILE", &scoped, ""), [""; 0]);
}

#[test]
fn errors_in_the_filter_line_are_reported() {
    let good = format!("{AGENT}{MESSAGE}");
    let cases = [
        ("filter spoe", "[ALERT] [4] : 'filter' : 'spoe' : missing config file"),
        ("filter spoe engine", "[ALERT] [4] : 'filter' : 'spoe' : 'engine' option without value"),
        ("filter spoe config FILE foo", "[ALERT] [4] : 'filter' : unknown keyword 'foo'"),
        ("filter spoe engine x config FILE", "[ALERT] [4] : 'filter' : No SPOE agent found in file FILE"),
        (
            "filter spoe config /nowhere/at/all",
            "[ALERT] stat() failed for configuration file /nowhere/at/all : No such file or directory",
        ),
    ];
    for (filter, wanted) in cases {
        let all = said(filter, &good, "");
        assert!(all.iter().any(|line| line == wanted), "{filter}: {all:#?}");
    }
    let twice = format!("{FILTER}\n {FILTER}");
    let all = said(&twice, &good, "");
    assert_eq!(all, ["[ALERT] Proxy f : duplicated name for SPOE engine 'ag'."]);
}

#[test]
fn errors_in_engine_files_are_reported_with_their_position() {
    let message = MESSAGE;
    let agent = |lines: &str| format!("spoe-agent ag\n timeout processing 1s\n use-backend agents\n{lines}");
    let cases: &[(String, &str)] = &[
        (message.to_owned(), "[ALERT] [4] : 'filter' : No SPOE agent found in file FILE"),
        (
            format!("{AGENT}spoe-agent b\n use-backend agents\n timeout processing 1s\n{message}"),
            "[ALERT] parsing [FILE:5] : another spoe-agent section previously defined.",
        ),
        (
            format!("spoe-agent ag\n timeout processing 1s\n messages m\n{message}"),
            "[ALERT] parsing [FILE:1] : 'filter' : No backend declared for SPOE agent 'ag' declared at FILE:1",
        ),
        (
            format!("spoe-agent ag\n timeout processing 1s\n use-backend agentz\n{message}"),
            "[ALERT] Proxy f : unknown backend 'agentz' used by SPOE agent 'ag' declared at FILE:1.",
        ),
        (
            format!("spoe-agent ag\n timeout processing 1s\n use-backend web\n{message}"),
            "[ALERT] Proxy f : backend 'web' used by SPOE agent 'ag' declared at FILE:1 must use SPOP mode.",
        ),
        (
            agent(" messages m n\n") + message,
            "[ALERT] parsing [FILE:4] : 'filter' : SPOE agent 'ag' try to use undefined SPOE message 'n' at FILE:1",
        ),
        (
            agent(" groups g\n") + message,
            "[ALERT] parsing [FILE:4] : 'filter' : SPOE agent 'ag' try to use undefined SPOE group 'g' at FILE:1",
        ),
        (
            agent(" groups g\nspoe-group g\n messages q\n"),
            "[ALERT] parsing [FILE:6] : 'filter' : SPOE group 'g' try to use undefined SPOE message 'q' at FILE:5",
        ),
        (
            format!("{AGENT}spoe-message m\n event on-foo\n"),
            "[ALERT] parsing [FILE:6] : unknown event 'on-foo'.",
        ),
        (
            format!("{AGENT}{message}{message}"),
            "[ALERT] parsing [FILE:8] : spoe-message section 'm' has the same name as another one declared at FILE:5.",
        ),
        (agent(" foo bar\n"), "[ALERT] parsing [FILE:4] : unknown keyword 'foo' in 'spoe-agent' section"),
        (agent(" option nope\n"), "[ALERT] parsing [FILE:4] : unknown option 'nope'."),
        (
            agent(" option var-prefix a-b\n"),
            "[ALERT] parsing [FILE:4] : 'option var-prefix' only supports [a-zA-Z0-9_.] chars.",
        ),
        (
            agent(" option set-process-time\n"),
            "[ALERT] parsing [FILE:4] : 'option set-process-time' expects a value.",
        ),
        (
            agent(" max-frame-size 100\n"),
            "[ALERT] parsing [FILE:4] : 'max-frame-size' expects a positive integer argument in the range [256, 16380].",
        ),
        (
            agent(" max-frame-size 17000\n"),
            "[ALERT] parsing [FILE:4] : 'max-frame-size' expects a positive integer argument in the range [256, 16380].",
        ),
        ("frontend q\n".to_owned(), "[ALERT] parsing [FILE:1] : unknown keyword 'frontend' out of section."),
    ];
    for (engine, wanted) in cases {
        let all = said(FILTER, engine, "");
        assert!(all.iter().any(|line| line == wanted), "{wanted}\n{all:#?}");
    }
}

#[test]
fn lines_without_effect_cause_warnings() {
    let cases: &[(String, &str)] = &[
        (
            format!("spoe-agent ag\n messages m\n use-backend agents\n{MESSAGE}"),
            "missing 'processing' timeout for SPOE agent 'ag' declare at FILE:1.",
        ),
        (
            format!("{AGENT}spoe-message m\n args path\n"),
            "Proxy 'f': Ignore SPOE message 'm' without event at FILE:5.",
        ),
        (format!("{AGENT} maxconnrate 10\n{MESSAGE}"), "maxconnrate"),
        (format!("{AGENT} option async\n{MESSAGE}"), "option async"),
    ];
    for (engine, wanted) in cases {
        let all = said(FILTER, engine, "");
        assert!(all.len() == 1 && all[0].starts_with(['[']) && all[0].contains(wanted), "{wanted}: {all:#?}");
    }
    // A backend has no frontend events.
    let path = engine_file(&format!("{AGENT}{MESSAGE}"));
    let text = format!(
        "backend b\n mode http\n filter spoe config {}\n server s 192.0.2.1:80\nbackend agents\n mode spop\n server a 192.0.2.2:80\n",
        path.display()
    );
    let all = common::lines(&common::load_quietly(&text));
    assert!(all.iter().any(|line| line.contains("frontend event used on a backend proxy")), "{all:#?}");
}

#[test]
fn expressions_must_be_available_at_their_event() {
    let engine = |args: &str, event: &str| format!("{AGENT}spoe-message m\n args {args}\n event {event}\n");
    let good = [
        ("src dst fe_id", "on-client-session"),
        ("a=path,lower b=method lower", "on-frontend-http-request"),
        ("be_name be_id", "on-backend-tcp-request"),
        ("srv_name dst", "on-server-session"),
        ("status res.hdr(x)", "on-http-response if { status 200 }"),
        ("s=str(a=b)", "on-tcp-response"),
    ];
    for (args, event) in good {
        assert_eq!(said(FILTER, &engine(args, event), ""), [""; 0], "{args} {event}");
    }
    for (args, event) in
        [("path", "on-client-session"), ("status", "on-frontend-http-request"), ("foo", "on-http-response")]
    {
        let all = said(FILTER, &engine(args, event), "");
        assert!(all.len() == 1 && all[0].contains("[ALERT]"), "{args} {event}: {all:#?}");
    }
    let all = said(FILTER, &engine("path", "on-frontend-http-request when it is so"), "");
    assert!(all.iter().any(|line| line.contains("only 'if' or 'unless' may follow")), "{all:#?}");
}

#[test]
fn groups_are_compiled_for_each_sending_rule() {
    let engine =
        format!("{AGENT} groups g\nspoe-group g\n messages n\nspoe-message n\n args a=path\n{MESSAGE}");
    assert_eq!(said(FILTER, &engine, "http-request send-spoe-group ag g if { path /a }"), [""; 0]);
    let of_response = engine.replace("args a=path\nspoe", "args a=status\nspoe");
    assert_eq!(said(FILTER, &of_response, "http-response send-spoe-group ag g"), [""; 0]);
    let all = said(FILTER, &of_response, "http-request send-spoe-group ag g");
    assert!(all.len() == 1 && all[0].contains("[ALERT]"), "{all:#?}");
    for (rule, wanted) in [
        ("http-request send-spoe-group ag", "expects 2 arguments: <engine-id> <group-id>."),
        ("http-request send-spoe-group ag h", "engine 'ag' has no group 'h'"),
        ("http-request send-spoe-group az g", "there is no engine 'az' here"),
    ] {
        let all = said(FILTER, &engine, rule);
        assert!(all.iter().any(|line| line.contains(wanted)), "{rule}: {all:#?}");
    }
}

#[test]
fn agent_backends_have_stream_rules_and_no_clients() {
    let text = "frontend f\n mode spop\n bind :8000\nbackend a\n mode spop\n tcp-request inspect-delay 1s\n tcp-request content accept if { req.len gt 3 }\n \
                tcp-request content track-sc0 spoe.engine-id table t\n tcp-response content close if { res.len 0 }\n stick on src table t\n balance hdr(x)\n filter trace\n \
                http-request deny\n server s 192.0.2.1:1\nbackend t\n stick-table type string size 1k\nlisten l\n mode spop\n server s 192.0.2.1:1\n\
                backend c\n mode spop\n server s 192.0.2.1:1 proto spop\nbackend d\n server s 192.0.2.1:1 proto spop\n\
                backend u\n mode spop\n tcp-request content use-service lua.x\n server s 192.0.2.1:1\n";
    let all = common::lines(&common::load_quietly(text));
    for wanted in [
        "mode spop is only applicable on proxies with backend capability.",
        "proxy 'd' : MUX protocol 'spop' is not usable for server 's'",
    ] {
        assert!(
            all.iter().any(|line| line.contains("[ALERT]") && line.contains(wanted)),
            "{wanted}: {all:#?}"
        );
    }
    for ignored in [
        "'http-request' rules ignored for backend 'a' as they require HTTP mode.",
        "Layer 7 hash not possible for backend 'a' (needs 'mode http'). Falling back to round robin.",
        "'filter' has no effect in 'mode spop'",
    ] {
        assert!(
            all.iter().any(|line| line.contains("[WARNING]") && line.contains(ignored)),
            "{ignored}: {all:#?}"
        );
    }
    assert!(!all.iter().any(|line| line.contains("'c'")), "{all:#?}");
    assert!(!all.iter().any(|line| line.contains("[ALERT]") && line.contains("'a'")), "{all:#?}");
}

#[test]
fn default_backends_of_backends_must_fit() {
    let said = |head: &str, line: &str| {
        let text = format!(
            "{head}\n {line}\n server s 192.0.2.1:1\nbackend b\n mode http\n server s 192.0.2.1:2\nbackend o\n mode spop\n server s 192.0.2.1:3\n"
        );
        common::lines(&common::load_quietly(&text))
    };
    for (line, how) in [
        ("default_backend b", "as its default backend"),
        ("use_backend b", "in a 'use_backend' rule"),
        ("use_backend b if { req.len gt 3 }", "in a 'use_backend' rule"),
    ] {
        for (head, kind) in [("backend a\n mode spop", "backend"), ("listen a\n mode spop", "proxy")] {
            let all = said(head, line);
            let wanted = format!("spop {kind} 'a' (");
            let tries = |text: &&String| {
                text.starts_with("[ALERT]")
                    && text.contains(&wanted)
                    && text.contains("tries to use incompatible http backend 'b' (")
                    && text.contains(how)
            };
            assert!(all.iter().any(|text| tries(&text)), "{head} {line}: {all:#?}");
        }
        let all = said("backend a\n mode spop", &line.replace(" b", " o"));
        assert!(!all.iter().any(|text| text.starts_with("[ALERT]")), "{line}: {all:#?}");
        assert!(
            all.iter().any(|text| text.contains("ignored because backend 'a' has no frontend capability")),
            "{line}: {all:#?}"
        );
        let all = said("backend a\n mode tcp", line);
        assert!(!all.iter().any(|text| text.starts_with("[ALERT]")), "{line}: {all:#?}");
    }
}

#[test]
fn server_parameters_for_other_modes_are_reported() {
    let said = |mode: &str, more: &str| {
        common::lines(&common::load_quietly(&format!(
            "backend a\n mode {mode}\n server s 192.0.2.1:1 {more}\n"
        )))
    };
    for (mode, more, wanted) in [
        ("spop", "proto h1", "[ALERT] [3] : proxy 'a' : MUX protocol 'h1' is not usable for server 's'"),
        ("tcp", "proto h1", "[ALERT] [3] : proxy 'a' : MUX protocol 'h1' is not usable for server 's'"),
        (
            "spop",
            "redir http://x",
            "[ALERT] backend 'a' : server cannot have cookie or redirect prefix in non-HTTP mode.",
        ),
        (
            "tcp",
            "check observe layer7",
            "[WARNING] [3] : 'server a/s' : 'layer7' can only be used in http proxies..",
        ),
        (
            "spop",
            "send-proxy-v2",
            "[WARNING] [3] : 'send-proxy*' server option is unsupported there, ignoring it",
        ),
    ] {
        let all = said(mode, more);
        assert!(all.iter().any(|line| line == wanted), "{mode} {more}: {all:#?}");
    }
    for more in ["proto h1", "redir http://x", "check observe layer7", "send-proxy"] {
        let all = said("http", more);
        assert!(!all.iter().any(|line| line.contains('s') && line.contains("server")), "{more}: {all:#?}");
    }
}

#[test]
fn request_lines_in_agent_backends_are_reported() {
    let said = |line: &str| {
        common::lines(&common::load_quietly(&format!(
            "fcgi-app fa\n docroot /x\nbackend a\n mode spop\n {line}\n server s 192.0.2.1:1\n"
        )))
    };
    let alert = "[ALERT] proxy 'a': FCGI application cannot be used in non-HTTP mode.";
    let ignored = "[WARNING] 'stats' statement ignored for backend 'a' as it requires HTTP mode.";
    for (line, wanted) in [
        ("filter fcgi-app fa", alert),
        ("use-fcgi-app fa", alert),
        ("stats admin if TRUE", ignored),
        ("stats http-request allow", ignored),
    ] {
        let all = said(line);
        assert!(all.iter().any(|text| text == wanted), "{line}: {all:#?}");
    }
}
