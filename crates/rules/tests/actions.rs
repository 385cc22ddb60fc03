//! Rules applied to a request, with their effects.

#[path = "../../sample/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{World, words};
use diag::Span;
use rules::{Final, Hold, RuleOutcome, RuleSet, Ruleset, Stage};
use sample::{Env, Scope, Words};

/// Compiles lines of one set. `at` is the kind of their proxy.
fn compile(world: &World, set: Ruleset, lines: &[&str]) -> Result<RuleSet, String> {
    let mut rules = RuleSet::default();
    for line in lines {
        let list = words(line);
        let scope = Scope { place: set.place(), ..world.scope() };
        let rule = rules::compile(set, &mut Words::new(&list, Span::default()), &scope);
        rules.push(rule.map_err(|error| error.message)?);
    }
    Ok(rules)
}

fn run_at(world: &mut World, set: Ruleset, lines: &[&str], start: usize) -> (RuleOutcome, usize) {
    let rules = compile(world, set, lines).unwrap_or_else(|error| panic!("{lines:?}: {error}"));
    world.transaction.has_response = matches!(set, Ruleset::HttpResponse | Ruleset::HttpAfterResponse);
    let mut stage = Stage {
        process: &world.process,
        session: &world.session,
        transaction: Some(&mut world.transaction),
        request_bytes: &world.request_bytes,
        response_bytes: &[],
        longest_head: world.longest_head,
        sockets: None,
        complete: world.complete,
        counts_requests: true,
        now_ms: 2_000,
    };
    rules.run(&mut stage, start)
}

fn run(world: &mut World, set: Ruleset, lines: &[&str]) -> RuleOutcome {
    run_at(world, set, lines, 0).0
}

/// The head of the request or response as one text.
fn head(world: &World, of_response: bool) -> String {
    let head = if of_response { &world.transaction.response } else { &world.transaction.request };
    let mut out = Vec::new();
    head.write_to(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The response of a final outcome as one text.
fn answer(world: &World, outcome: &RuleOutcome) -> String {
    let RuleOutcome::Final(Final::Reply(reply) | Final::Deny(reply) | Final::Tarpit(reply)) = outcome else {
        return format!("{outcome:?}");
    };
    let (mut head, mut body) = (http::Head::new(), Vec::new());
    let env = Env::of(&world.process, &world.session, &world.transaction, 2_000);
    reply.render(&env, &mut head, &mut body);
    let mut out = Vec::new();
    head.write_to(&mut out);
    out.extend_from_slice(&body);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn header_actions_change_their_head() {
    let request: &[(&[&str], &[&str], &[&str])] = &[
        (&["set-header X-A %[src]"], &["X-A: 192.0.2.7\r\n"], &[]),
        (&["set-header X-A one", "add-header x-a two"], &["X-A: one\r\n", "x-a: two\r\n"], &[]),
        (&["set-header host %[req.hdr(host),lower]"], &["host: www.example.com:8080\r\n"], &["Example"]),
        (&["del-header x-forwarded-for"], &[], &["X-Forwarded-For"]),
        (&["del-header x- -m beg"], &["Host"], &["X-Forwarded-For"]),
        (&["del-header -for -m end"], &["Host"], &["X-Forwarded-For"]),
        (&["del-header warded -m sub"], &["Host"], &["X-Forwarded-For"]),
        (&["del-header ^x.*r$ -m reg"], &["Host"], &["X-Forwarded-For"]),
        // As in HAProxy, the expression sees names in lower case.
        (&["del-header ^X.*r$ -m reg"], &["X-Forwarded-For"], &[]),
        (&["replace-header Host (.*):8080 \\1"], &["Host: www.Example.com\r\n"], &[]),
        (
            &["replace-value X-Forwarded-For ^10\\.0\\.0\\.(.*)$ 172.16.0.\\1"],
            &["172.16.0.1,172.16.0.2", "172.16.0.3"],
            &["10.0.0"],
        ),
        (&["set-method POST"], &["POST /static"], &["GET"]),
        (&["set-path /new%[path]"], &["GET /new/static/img/logo.png?a=1"], &[]),
        (&["set-pathq /only"], &["GET /only HTTP"], &["?"]),
        (&["set-query %[query,regsub(two,2)]"], &["b=2&A=3"], &["two"]),
        (&["set-uri *", "replace-path (.*) /x\\1", "replace-pathq ^ /y"], &["GET * HTTP"], &[]),
        (&["replace-path (.*) /foo\\1"], &["GET /foo/static/img/logo.png?a=1"], &[]),
        (&["replace-path /static/(.*) /\\1"], &["GET /img/logo.png?a=1"], &[]),
        (&["replace-pathq ([^?]*)(\\?(.*))? \\1/foo\\2"], &["/logo.png/foo?a=1"], &[]),
        (&["replace-uri ^/static /cdn", "set-header X-P %[path]"], &["GET /cdn HTTP", "X-P: /cdn"], &[]),
        (&["set-header X-A b if { path /nope }"], &[], &["X-A"]),
        (&["set-header X-A b unless { path /nope }"], &["X-A: b"], &[]),
        (&["set-var(txn.x) path,length", "set-header X-L %[var(txn.x)]"], &["X-L: 20"], &[]),
        (
            &["set-var-fmt(txn.x,ifnotset) %[src]:%[dst_port]", "set-header X %[var(txn.x)]"],
            &["X: 192.0.2.7:80"],
            &[],
        ),
        (&["set-var(txn.x) str(a)", "unset-var(txn.x)", "set-header X [%[var(txn.x)]]"], &["X: []"], &[]),
        (
            &["set-src req.hdr(x-forwarded-for,1)", "set-header X %[src]:%[src_port]"],
            &["X: 10.0.0.1:4711"],
            &[],
        ),
        (&["set-dst-port int(99)", "set-header X %[dst]:%[dst_port]"], &["X: 203.0.113.1:99"], &[]),
        (&["normalize-uri path-strip-dotdot"], &["GET /static"], &[]),
    ];
    for (lines, present, absent) in request {
        let mut world = World::new();
        let outcome = run(&mut world, Ruleset::HttpRequest, lines);
        assert!(matches!(outcome, RuleOutcome::Done), "{lines:?} {outcome:?}");
        let head = head(&world, false);
        present.iter().for_each(|part| assert!(head.contains(part), "{lines:?} lacks {part:?} in\n{head}"));
        absent
            .iter()
            .for_each(|part| assert!(!head.contains(part), "{lines:?} still has {part:?} in\n{head}"));
    }
    let mut world = World::new();
    let lines = [
        "set-header Server weir",
        "del-header set-cookie",
        "set-status 410 reason Vanished",
        "set-header X %[status]",
    ];
    run(&mut world, Ruleset::HttpResponse, &lines);
    let head = head(&world, true);
    assert!(head.starts_with("HTTP/1.1 410 Vanished\r\n"), "{head}");
    assert!(
        head.contains("Server: weir\r\n") && head.contains("X: 410\r\n") && !head.contains("Set-Cookie"),
        "{head}"
    );
}

#[test]
fn replies_match_their_arguments() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("return", &["HTTP/1.1 200 OK\r\n", "content-length: 0\r\n"], &["content-type"]),
        ("return status 204", &["HTTP/1.1 204 No Content"], &[]),
        ("return hdr x-custom-hdr %[url]", &["x-custom-hdr: /static/img"], &[]),
        (
            "return status 403 content-type text/plain string hello hdr x-a b",
            &[
                "403 Forbidden",
                "content-length: 5\r\n",
                "content-type: text/plain",
                "x-a: b",
                "\r\n\r\nhello",
            ],
            &[],
        ),
        (
            "return content-type text/plain lf-string ip=%[src]",
            &["\r\n\r\nip=192.0.2.7", "content-length: 12"],
            &[],
        ),
        (
            "return content-type text/plain lf-string %[str(a),concat(%0A%09b),url_dec]",
            &["\r\n\r\na\n\tb", "content-length: 4"],
            &[],
        ),
        ("return content-type text/html lf-file page", &["\r\n\r\n<b>/static/img/logo.png</b>"], &[]),
        ("return file empty", &["200 OK", "content-length: 0"], &["content-type"]),
        ("return errorfile err", &["HTTP/1.0 503 Gone away", "x-y: z", "\r\n\r\nbye"], &[]),
        ("return default-errorfiles", &["200 OK", "Service ready"], &[]),
        ("deny", &["403 Forbidden", "Request forbidden by administrative rules"], &[]),
        ("deny deny_status 429", &["429 Too Many Requests"], &[]),
        ("deny status 400 content-type text/plain string no", &["400 Bad", "\r\n\r\nno"], &["html"]),
        ("deny status 429", &["429 Too Many Requests", "content-length: 0"], &["html"]),
        ("deny hdr a b", &["403 Forbidden", "a: b\r\n", "content-length: 0"], &["html"]),
        ("deny status 429", &["429 Too Many Requests", "content-length: 0"], &["html"]),
        ("deny hdr a b", &["403 Forbidden", "a: b\r\n", "content-length: 0"], &["html"]),
        ("tarpit", &["500 Internal Server Error"], &[]),
        ("auth realm x", &["401 Unauthorized", "Basic realm=\"x\""], &[]),
        (
            "redirect location /new?x=1",
            &["302 Found", "location: /new?x=1\r\n", "content-length: 0", "cache-control: no-cache"],
            &[],
        ),
        (
            "redirect location /new?x=1 keep-query code 301",
            &["301 Moved Permanently", "location: /new?x=1&a=1&b=two"],
            &["cache-control"],
        ),
        ("redirect prefix https://h", &["location: https://h/static/img/logo.png?a=1&b=two"], &[]),
        (
            "redirect prefix / set-cookie SEEN=1",
            &["location: /static/img/logo.png?a=1", "set-cookie: SEEN=1; path=/;\r\n"],
            &[],
        ),
        (
            "redirect prefix / set-cookie-fmt SEEN=%[path]",
            &["set-cookie: SEEN=/static/img/logo.png; path=/;\r\n"],
            &[],
        ),
        (
            "redirect prefix https://h drop-query append-slash",
            &["location: https://h/static/img/logo.png/\r\n"],
            &[],
        ),
        (
            "redirect scheme https code 307 clear-cookie U=",
            &[
                "307 Temporary Redirect",
                "location: https://www.Example.com:8080/static/img/logo.png?a=1",
                "U=; path=/; Max-Age=0;",
            ],
            &[],
        ),
        (
            "redirect location https://%[req.hdr(host),host_only]%[path]",
            &["location: https://www.example.com/static/img/logo.png\r\n"],
            &[],
        ),
    ];
    for (line, present, absent) in cases {
        let mut world = World::new();
        world.files.insert("page", "<b>%[path]</b>");
        world.files.insert("empty", "");
        world.files.insert("err", "HTTP/1.0 503 Gone away\r\nx-y: z\r\n\r\nbye");
        let outcome = run(&mut world, Ruleset::HttpRequest, &[line]);
        let text = answer(&world, &outcome);
        present.iter().for_each(|part| assert!(text.contains(part), "{line} lacks {part:?} in\n{text}"));
        absent.iter().for_each(|part| assert!(!text.contains(part), "{line} has {part:?} in\n{text}"));
    }
    let mut world = World::new();
    let outcome = run(&mut world, Ruleset::HttpRequest, &["redirect location %[req.hdr(nope)] ignore-empty"]);
    assert!(matches!(outcome, RuleOutcome::Done), "{outcome:?}");
    let mut world = World::new();
    let outcome = run(&mut world, Ruleset::HttpResponse, &["deny"]);
    assert!(answer(&world, &outcome).starts_with("HTTP/1.1 502 "));
}

#[test]
fn final_rules_skip_the_rest_and_are_recorded() {
    let mut world = World::new();
    let (outcome, next) = run_at(&mut world, Ruleset::HttpRequest, &["set-header X-A a", "allow", "deny"], 0);
    assert!(matches!(outcome, RuleOutcome::Accept), "{outcome:?}");
    assert_eq!(next, 2);
    assert!(head(&world, false).contains("X-A: a"));
    assert!(world.transaction.last_rule.is_some());
    for set in [Ruleset::TcpRequest, Ruleset::HttpRequest, Ruleset::TcpResponse] {
        let outcome = run(&mut World::new(), set, &["reject"]);
        assert!(matches!(outcome, RuleOutcome::Final(Final::Reject)), "{outcome:?}");
    }
    let outcome = run(&mut World::new(), Ruleset::TcpResponse, &["close"]);
    assert!(matches!(outcome, RuleOutcome::Final(Final::CloseServer)), "{outcome:?}");
    let outcome = run(&mut World::new(), Ruleset::TcpRequest, &["silent-drop rst-ttl 5"]);
    assert!(matches!(outcome, RuleOutcome::Final(Final::SilentDrop { rst_ttl: Some(5) })), "{outcome:?}");
}

#[test]
fn slow_actions_are_returned_to_the_caller() {
    let lines = ["wait-for-body time 1s at-least 1k", "pause 20ms", "set-header X-A a"];
    let mut world = World::new();
    let (outcome, next) = run_at(&mut world, Ruleset::HttpRequest, &lines, 0);
    let RuleOutcome::Hold(Hold::Body { at_least, timeout_ms, in_large }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((at_least, timeout_ms, in_large), (1024, 1000, false));
    let (outcome, next) = run_at(&mut world, Ruleset::HttpRequest, &lines, next);
    assert!(matches!(outcome, RuleOutcome::Hold(Hold::Pause(20))), "{outcome:?}");
    let (outcome, _) = run_at(&mut world, Ruleset::HttpRequest, &lines, next);
    assert!(matches!(outcome, RuleOutcome::Done), "{outcome:?}");
    assert!(head(&world, false).contains("X-A: a"));
}

#[test]
fn failed_rewrites_are_errors_in_strict_mode() {
    // A method that is not a token cannot be set.
    let outcome =
        run(&mut World::new(), Ruleset::HttpRequest, &["set-method %[str(a@b)]", "set-header X-A a"]);
    assert!(matches!(outcome, RuleOutcome::Final(Final::Internal)), "{outcome:?}");
    let mut world = World::new();
    let lines = ["strict-mode off", "set-method %[str(a@b)]", "set-header X-A a"];
    let outcome = run(&mut world, Ruleset::HttpRequest, &lines);
    assert!(matches!(outcome, RuleOutcome::Done), "{outcome:?}");
    assert!(head(&world, false).contains("X-A: a"));
    let counted = world.frontend.frontend.all().map(|one| one.traffic.failed_rewrites.get()).sum::<u64>();
    assert_eq!(counted, 1);
}

#[test]
fn heads_stay_within_their_room_and_failures_change_nothing() {
    let value = "x".repeat(50);
    // How much each action would exceed the room; the last ones shrink or replace existing lines.
    let cases = [
        (format!("add-header X-New {value}"), false),
        (format!("set-header X-New {value}"), false),
        (format!("set-header Host {value}"), false),
        (format!("replace-header Host .* {value}"), false),
        (format!("set-path /{value}"), false),
        (format!("set-uri /{value}{value}"), false),
        (format!("replace-path .* /{value}"), false),
        ("set-header X-N 1".to_owned(), true),
        ("set-header Host a".to_owned(), true),
        ("set-path /".to_owned(), true),
        ("del-header Host".to_owned(), true),
    ];
    for (line, fits) in cases {
        let mut world = World::new();
        let before = head(&world, false);
        world.longest_head = before.len() + 20;
        let outcome = run(&mut world, Ruleset::HttpRequest, &[&line]);
        match fits {
            true => assert!(matches!(outcome, RuleOutcome::Done), "{line}: {outcome:?}"),
            false => {
                assert!(matches!(outcome, RuleOutcome::Final(Final::Internal)), "{line}: {outcome:?}");
                assert_eq!(head(&world, false), before, "{line}");
            }
        }
    }
}

#[test]
fn rules_change_the_request_settings() {
    let mut world = World::new();
    world.frontend = Arc::clone(&world.backend);
    let lines = [
        "set-timeout server 5s",
        "set-timeout tunnel int(70)",
        "set-retries 4",
        "set-log-level silent",
        "set-priority-class int(9999)",
        "set-priority-offset int(-5)",
        "disable-l7-retry",
        "capture req.hdr(host) id 1",
    ];
    assert!(matches!(run(&mut world, Ruleset::HttpRequest, &lines), RuleOutcome::Done));
    let transaction = &world.transaction;
    let slot = |slot: sample::TimeoutSlot| transaction.timeouts[slot as usize];
    assert_eq!(
        (slot(sample::TimeoutSlot::Server), slot(sample::TimeoutSlot::Tunnel)),
        (Some(5000), Some(70))
    );
    assert_eq!(
        (transaction.max_retries, transaction.log_level, transaction.priority),
        (Some(4), Some(None), (2047, -5))
    );
    assert_eq!(transaction.kept(transaction.request_captures[1]), Some(&b"www.Example.com:8080"[..]));
    assert!(transaction.no_replay);
}

#[test]
fn rules_change_maps_and_lists() {
    let mut world = World::new();
    world.files.insert("m", "a 1\n");
    let lines = [
        "set-map(m) %[path] seen",
        "set-map(m) a 2",
        "set-header X %[path,map(m)]-%[str(a),map(m)]",
        "del-map(m) a",
        "set-header Y [%[str(a),map(m)]]",
    ];
    run(&mut world, Ruleset::HttpRequest, &lines);
    let head = head(&world, false);
    assert!(head.contains("X: seen-2\r\n") && head.contains("Y: []\r\n"), "{head}");
    let mut world = World::new();
    world.files.insert("l", "");
    let lines = [
        "add-acl(l) %[src]",
        "set-header X yes if { src -f l }",
        "del-acl(l) %[src]",
        "set-header Y yes if { src -f l }",
    ];
    run(&mut world, Ruleset::HttpRequest, &lines);
    let head = self::head(&world, false);
    assert!(head.contains("X: yes") && !head.contains("Y: yes"), "{head}");
}

#[test]
fn content_rules_wait_until_the_delay_is_over() {
    let mut world = World::new();
    world.complete = false;
    world.transaction.is_http = false;
    world.request_bytes = b"ab".to_vec();
    let lines = ["accept if { req.len gt 5 }", "reject"];
    let (outcome, next) = run_at(&mut world, Ruleset::TcpRequest, &lines, 0);
    assert!(matches!(outcome, RuleOutcome::Wait) && next == 0, "{outcome:?}");
    world.request_bytes = b"abcdefgh".to_vec();
    let (outcome, _) = run_at(&mut world, Ruleset::TcpRequest, &lines, next);
    assert!(matches!(outcome, RuleOutcome::Accept), "{outcome:?}");
    world.request_bytes = b"ab".to_vec();
    world.complete = true;
    assert!(matches!(run(&mut world, Ruleset::TcpRequest, &lines), RuleOutcome::Final(Final::Reject)));
}

#[test]
fn do_resolve_takes_the_name_from_the_request() {
    let mut world = World::new();
    let line = "do-resolve(txn.ip,dns,ipv6) str(App.test)";
    let RuleOutcome::Hold(Hold::Resolve { section, name, prefer, .. }) =
        run(&mut world, Ruleset::HttpRequest, &[line])
    else {
        panic!("the rule holds the request");
    };
    assert_eq!((&*section.name, &*name, prefer), ("dns", "App.test", Some(base::address::Family::V6)));
    let none = run(&mut world, Ruleset::HttpRequest, &["do-resolve(txn.ip,dns) req.hdr(x-none)"]);
    assert!(matches!(none, RuleOutcome::Done), "a name that is not there is not asked for");
}

#[test]
fn invalid_rules_are_refused_with_the_reason() {
    let world = World::new();
    let cases = [
        (Ruleset::HttpRequest, "", "expects an action"),
        (Ruleset::HttpRequest, "deney", "deney"),
        (Ruleset::HttpRequest, "accept", "accept"),
        (Ruleset::TcpConnection, "set-header a b", "set-header"),
        (Ruleset::HttpRequest, "track-sc0 src table none", "there is no stick table `none`"),
        (Ruleset::HttpRequest, "track-sc3 src", "not a valid tracked counter"),
        (Ruleset::HttpRequest, "track-sc0", "needs"),
        (Ruleset::HttpRequest, "sc-inc-gpc(1)", "invalid arguments"),
        (Ruleset::HttpRequest, "sc-inc-gpc0(3)", "`3` is not a valid tracked counter"),
        (Ruleset::HttpRequest, "sc-add-gpc(0,0)", "needs"),
        (Ruleset::HttpRequest, "set-header a", "needs"),
        (Ruleset::HttpRequest, "set-header a b c", "unexpected `c`"),
        (Ruleset::HttpRequest, "set-header a %[res.hdr(x)]", "cannot be used here"),
        (Ruleset::HttpRequest, "set-timeout server 5s", "only be set in a backend"),
        (Ruleset::HttpRequest, "set-retries 3", "only be used in a backend"),
        (Ruleset::HttpRequest, "redirect code 305 location /", "305"),
        (Ruleset::HttpRequest, "redirect code 301", "a redirect needs"),
        (Ruleset::HttpRequest, "return string x", "content-type"),
        (Ruleset::HttpRequest, "return status 99", "99"),
        (Ruleset::HttpRequest, "deny deny_status 499", "499"),
        (Ruleset::HttpRequest, "return errorfile gone", "gone"),
        (Ruleset::HttpRequest, "set-var(foo) src", "foo"),
        (Ruleset::HttpRequest, "unset-var(ptxn.a)", "parent stream"),
        (Ruleset::HttpRequest, "set-var(txn.a) srcc", "unknown fetch method `srcc`"),
        (Ruleset::HttpRequest, "deny if", "missing ACL in the condition"),
        (Ruleset::HttpRequest, "deny if nope", "unknown ACL `nope`"),
        (Ruleset::HttpRequest, "replace-path ( x", "("),
        (Ruleset::HttpRequest, "set-log-level loud", "loud"),
        (Ruleset::HttpRequest, "do-resolve src", "needs an argument in parentheses"),
        (Ruleset::HttpRequest, "do-resolve(txn.ip) src", "requires a variable and a resolvers section"),
        (Ruleset::HttpRequest, "do-resolve(txn.ip,dsn) src", "no resolvers section `dsn`"),
        (Ruleset::HttpRequest, "do-resolve(txn.ip,dns,ipv5) src", "unknown address family `ipv5`"),
        (Ruleset::HttpRequest, "do-resolve(txn.ip,dns)", "needs a sample expression"),
        (Ruleset::HttpResponse, "do-resolve(txn.ip,dns) src", "not allowed in `http-response`"),
    ];
    for (set, line, expected) in cases {
        match compile(&world, set, &[line]) {
            Ok(_) => panic!("`{line}` is accepted"),
            Err(error) => assert!(error.contains(expected), "{line}: {error}"),
        }
    }
}

#[test]
fn binary_values_change_many_headers() {
    let value = |names: &[(&str, &str)]| {
        let mut packed = Vec::new();
        for text in names.iter().flat_map(|(name, value)| [*name, *value]) {
            sample::length_prefixed::write_length(&mut packed, text.len());
            packed.extend_from_slice(text.as_bytes());
        }
        packed.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let two = value(&[("X-New", "1"), ("Host", "other")]);
    // Only names, for removal.
    let names = "04686f737406636f6f6b6965";
    let cases: &[(String, &[&str], &[&str])] = &[
        (
            format!("add-headers-bin bin({two})"),
            &["X-New: 1", "Host: other", "Host: www.Example.com:8080"],
            &[],
        ),
        (format!("add-headers-bin bin({two}) prefix x-"), &["X-New: 1"], &["Host: other"]),
        (
            format!("set-headers-bin bin({two})"),
            &["X-New: 1", "Host: other"],
            &["Host: www.Example.com:8080"],
        ),
        (format!("del-headers-bin bin({names})"), &["User-Agent"], &["Host:", "Cookie:"]),
        ("del-headers-bin bin(05782d666f72) -m beg".to_owned(), &["Host"], &["X-Forwarded-For"]),
        ("set-headers-bin var(txn.none)".to_owned(), &["Host: www.Example.com:8080"], &[]),
    ];
    for (line, there, gone) in cases {
        let mut world = World::new();
        let outcome = run(&mut world, Ruleset::HttpRequest, &[line]);
        assert!(matches!(outcome, RuleOutcome::Done), "{line}: {outcome:?}");
        let head = head(&world, false);
        for text in *there {
            assert!(head.contains(text), "{line}: no `{text}` in {head}");
        }
        for text in *gone {
            assert!(!head.contains(text), "{line}: `{text}` in {head}");
        }
    }
    // A name that is not a token, and a truncated value, are failures.
    let bad = value(&[("no token", "1")]);
    for line in [format!("add-headers-bin bin({bad})"), "add-headers-bin bin(0161)".to_owned()] {
        let outcome = run(&mut World::new(), Ruleset::HttpRequest, &[&line]);
        assert!(matches!(outcome, RuleOutcome::Final(Final::Internal)), "{line}: {outcome:?}");
    }
}

#[test]
fn server_marks_and_mode_switches_are_reported() {
    let mut world = World::new();
    let lines = ["set-bc-mark 0x10", "set-bc-tos int(184)"];
    assert!(matches!(run(&mut world, Ruleset::HttpRequest, &lines), RuleOutcome::Done));
    assert_eq!((world.transaction.server_mark, world.transaction.server_tos), (Some(16), Some(184)));
    let outcome = run(&mut world, Ruleset::TcpRequest, &["switch-mode http proto h1"]);
    assert!(matches!(outcome, RuleOutcome::Final(Final::SwitchMode(_))), "{outcome:?}");
    for (line, expected) in [
        ("switch-mode", "`switch-mode` needs the mode `http`"),
        ("switch-mode tcp", "`tcp` is not a valid mode"),
        ("switch-mode http proto spdy", "`spdy` is not a valid HTTP protocol"),
        ("set-bc-tos 256", "`256` is not between 0 and 255"),
    ] {
        let error = compile(&world, Ruleset::TcpRequest, &[line]).map(|_| ()).unwrap_err();
        assert_eq!(error, expected, "{line}");
    }
}

#[test]
fn every_supported_action_has_an_accepted_example() {
    #[rustfmt::skip]
    let lines: &[&str] = &[
        "accept", "add-acl(l) %[src]", "add-header X-A a", "add-headers-bin req.hdrs_bin prefix x-", "allow", "auth realm R", "capture src id 0", "close",
        "del-acl(l) %[src]", "del-header X-A -m beg", "del-headers-bin req.hdrs_bin -m end", "del-map(m) %[src]", "deny status 429", "dgram-drop", "disable-l7-retry",
        "do-log", "early-hint Link %[path]", "expect-proxy layer4", "expect-netscaler-cip layer4", "jump there", "label there", "normalize-uri path-merge-slashes", "pause 10ms", "redirect location /", "reject",
        "replace-header Host a b", "replace-path a b", "replace-pathq a b", "replace-uri a b", "replace-value Cookie a b", "return status 204",
        "sc-add-gpc(0,0) 1", "sc-inc-gpc(0,0)", "sc-inc-gpc0(0)", "sc-inc-gpc1(0)", "sc-set-gpt(0,0) 1", "sc-set-gpt0(0) int(1)", "send-retry", "track-sc src",
        "set-bc-mark 1", "set-bc-tos 1", "set-dst src", "set-dst-port int(1)", "set-fc-mark 1", "set-fc-tos 1", "set-header X-A a",
        "set-headers-bin req.hdrs_bin", "set-log-level silent", "set-map(m) %[src] 1", "set-mark 1", "set-method GET", "set-nice 1", "set-path /", "set-pathq /",
        "set-priority-class int(1)", "set-priority-offset int(1)", "set-query a=1", "set-retries 1", "set-src src", "set-src-port int(1)", "set-status 200",
        "set-timeout server 1s", "set-tos 1", "set-uri /", "set-var(txn.x) src", "set-var-fmt(txn.x) %[src]", "silent-drop rst-ttl 3", "strict-mode off",
        "switch-mode http", "drop", "tarpit", "unset-var(txn.x)", "use-service prometheus-exporter", "wait-for-body time 1s", "wait-for-handshake",
    ];
    // Actions that refer to a section or a filter are tested elsewhere.
    let elsewhere = [
        "attach-srv",
        "do-resolve",
        "set-bandwidth-limit",
        "cache-use",
        "cache-store",
        "cache-purge",
        "mirror",
        "send-spoe-group",
        "lua.",
    ];
    for row in rules::ACTIONS.iter().filter(|row| !elsewhere.contains(&row.name)) {
        let named = |line: &&&str| line.split(['(', ' ']).next() == Some(row.name);
        let Some(line) = lines.iter().find(named) else { panic!("no line for `{}`", row.name) };
        let sets = Ruleset::ALL.into_iter().filter(|set| row.sets & *set as u16 != 0);
        let mut errors = Vec::new();
        let taken = sets.clone().any(|set| {
            // Some actions only exist on one side.
            let mut world = World::new();
            world.files.insert("l", "");
            world.files.insert("m", "");
            let first = compile(&world, set, &[line]);
            world.frontend = Arc::clone(&world.backend);
            let second = compile(&world, set, &[line]);
            errors.extend(first.as_ref().err().cloned());
            first.is_ok() || second.is_ok()
        });
        assert!(taken, "{line}: {errors:?}");
        for other in Ruleset::ALL.into_iter().filter(|set| row.sets & *set as u16 == 0) {
            let error = compile(&World::new(), other, &[line]).map(|_| ()).unwrap_err();
            assert_eq!(error, format!("action `{}` is not allowed in `{}`", row.name, other.name()));
        }
    }
}

#[test]
fn jumps_skip_the_rules_up_to_their_label() {
    for (lines, expected) in [
        (&["jump b", "set-header X a", "label b", "set-header Y b"][..], "Y: b"),
        (
            &[
                "jump to:%[req.hdr(host),host_only,lower]",
                "set-header X a",
                "label to:www.example.com",
                "set-header Y b",
            ],
            "Y: b",
        ),
        (&["jump nowhere:%[src]", "set-header X a", "label b"], "X: a"),
        (&["jump b if { path /nope }", "set-header X a", "label b"], "X: a"),
        (&["jump c", "label b", "set-header X a", "allow", "label c", "set-header Y c"], "Y: c"),
        // Backwards, a jump has no effect, so every evaluation ends.
        (&["label b", "set-header X a", "jump b", "set-header Y b"], "X: a\r\nY: b"),
        (&["strict-mode off", "jump b", "label b", "set-header Y b"], "Y: b"),
    ] {
        let mut world = World::new();
        run(&mut world, Ruleset::HttpRequest, lines);
        let head = head(&world, false);
        assert!(head.contains(expected), "{lines:?}: {head}");
        assert_eq!(head.contains("X: a"), expected.contains("X: a"), "{lines:?}: {head}");
    }
    assert!(compile(&World::new(), Ruleset::HttpRequest, &["label b if { src 192.0.2.1 }"]).is_err());
}
