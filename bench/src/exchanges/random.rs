//! Random cases: compatible rules, options and timeouts, with traffic from [`crate::exchanges::traffic`]. The same seed and number
//! give the same case.

use fastrand::Rng;

use crate::exchanges::case::{Case, Server};
use crate::exchanges::{hindered, streams, traffic};

/// Picks one of the words.
pub(crate) fn pick<'w>(random: &mut Rng, words: &[&'w str]) -> &'w str {
    words[random.usize(..words.len())]
}

/// Returns true once in `times`.
pub(crate) fn seldom(random: &mut Rng, times: usize) -> bool {
    random.usize(..times) == 0
}

const CONDITIONS: &[&str] = &[
    "",
    "",
    "",
    " if { path_beg /a }",
    " if { method POST }",
    " unless { method GET }",
    " if { req.hdr(x-a) -m found }",
    " if { req.hdr_cnt(x-b) gt 1 }",
    " if { url_param(q) -m str 1 }",
    " if { req.ver 1.0 }",
];

const RESPONSE_CONDITIONS: &[&str] = &[
    "",
    "",
    "",
    " if { status 200 }",
    " unless { status 200 }",
    " if { status ge 300 }",
    " if { res.hdr(x-r) -m found }",
    " if { res.hdr(content-type) -m beg text }",
];

const NAMES: &[&str] = &[
    "x-a",
    "x-b",
    "x-new",
    "x-r",
    "host",
    "cookie",
    "connection",
    "content-type",
    "accept",
    "set-cookie",
    "cache-control",
];

const VALUES: &[&str] =
    &["1", "one", "\"a b\"", "a,b", "%[src]", "%[path]", "%[method]", "%ci", "\"\"", "%[req.hdr(x-a)]"];

const REPLIES: &[&str] = &[
    "status 200",
    "status 403",
    "status 429 content-type text/plain string \"slow down\"",
    "status 200 content-type text/plain lf-string \"%[path]\" hdr x-own 1",
    "status 503 hdr connection close",
    "status 204",
    "status 404 content-type text/html string \"<html>no</html>\" hdr cache-control no-store",
];

/// An action on the fields of either direction.
fn field_action(random: &mut Rng) -> String {
    let name = pick(random, NAMES);
    match random.usize(..7) {
        0 | 1 => format!("set-header {name} {}", pick(random, VALUES)),
        2 | 3 => format!("add-header {name} {}", pick(random, VALUES)),
        4 => format!("del-header {name}"),
        5 => format!("replace-header {name} (.*) \"<\\1>\""),
        _ => format!("replace-value {name} ([a-z]+) \\1\\1"),
    }
}

fn request_rule(random: &mut Rng) -> String {
    let condition = pick(random, CONDITIONS);
    let action = match random.usize(..26) {
        0..=9 => field_action(random),
        10 => format!("set-path {}", pick(random, &["/new", "/p%[path]", "%[path,regsub(/a,/z)]"])),
        11 => format!("set-pathq {}", pick(random, &["/new?x=1", "%[pathq]&y=2"])),
        12 => format!("set-uri {}", pick(random, &["/u", "/u?%[query]", "http://other.test/u"])),
        13 => format!("set-query {}", pick(random, &["a=b", "%[query]&z=1", "\"\""])),
        14 => format!("set-method {}", pick(random, &["GET", "POST", "PUT", "DELETE", "OPTIONS"])),
        15 => format!("replace-path {}", pick(random, &["/(.*) /r/\\1", "(/[^/]*)/? \\1"])),
        16 => format!("replace-uri {}", pick(random, &["([^?]*)\\?(.*) \\1?was=\\2", "(.*) \\1?more"])),
        17 => format!(
            "deny{}",
            pick(random, &["", " deny_status 429", " deny_status 503", " status 401 hdr x-own 1"])
        ),
        18 => format!("return {}", pick(random, REPLIES)),
        19 => pick(
            random,
            &[
                "redirect location /other",
                "redirect prefix http://other.test",
                "redirect prefix / drop-query append-slash",
                "redirect location http://o.test/ code 307",
                "redirect scheme https code 301",
                "redirect location /set set-cookie A=1",
                "redirect location /clear clear-cookie A=",
            ],
        )
        .to_owned(),
        20 => pick(random, &["capture req.hdr(x-a) len 10", "capture path len 5", "capture req.ver len 3"])
            .to_owned(),
        21 => pick(random, &["wait-for-body time 375ms", "wait-for-body time 375ms at-least 3"]).to_owned(),
        22 => pick(
            random,
            &["auth", "auth realm here", "reject", "silent-drop", "tarpit", "tarpit deny_status 429"],
        )
        .to_owned(),
        23 => pick(
            random,
            &[
                "set-log-level silent",
                "set-nice 5",
                "set-priority-class int(2)",
                "disable-l7-retry",
                "normalize-uri path-merge-slashes",
                "early-hint link </s.css>",
            ],
        )
        .to_owned(),
        24 => pick(
            random,
            &[
                "set-timeout server 375ms",
                "set-timeout client 375ms",
                "set-retries 1",
                "pause 200ms",
                "strict-mode off",
            ],
        )
        .to_owned(),
        _ => pick(
            random,
            &[
                "set-var(txn.a) path",
                "set-var(req.b) req.hdr(x-a)",
                "deny if { req.body -m sub evil }",
                "allow",
            ],
        )
        .to_owned(),
    };
    if action.contains(" if ") {
        format!("http-request {action}")
    } else {
        format!("http-request {action}{condition}")
    }
}

fn response_rule(random: &mut Rng) -> String {
    let after = seldom(random, 3);
    let set = if after { "http-after-response" } else { "http-response" };
    let condition = pick(random, RESPONSE_CONDITIONS);
    let action = match random.usize(..16) {
        0..=8 => field_action(random),
        9 => format!(
            "set-status {}",
            pick(random, &["201", "404 reason Gone-away", "503", "200 reason Fine", "204", "304"])
        ),
        10 if !after => format!("deny{}", pick(random, &["", " deny_status 503", " status 500 hdr x-own 1"])),
        11 if !after => format!("return {}", pick(random, REPLIES)),
        12 if !after => {
            pick(random, &["redirect location /other", "redirect prefix http://other.test code 303"])
                .to_owned()
        }
        13 if !after => pick(random, &["capture res.hdr(x-r) id 0", "pause 200ms", "cache-none"]).to_owned(),
        14 => pick(
            random,
            &[
                "set-log-level silent",
                "set-var(txn.c) status",
                "del-header x- -m beg",
                "del-header cookie -m sub",
            ],
        )
        .to_owned(),
        _ => pick(
            random,
            &[
                "set-header x-var %[var(txn.a)]",
                "set-header x-body %[res.body,bytes(0,1),hex]",
                "set-header x-status %[status]",
                "allow",
            ],
        )
        .to_owned(),
    };
    let action = match action.as_str() {
        // This action needs a declaration.
        "cache-none" => "set-header cache-control no-cache".to_owned(),
        "capture res.hdr(x-r) id 0" => "set-header x-captured %[capture.req.ver]".to_owned(),
        _ => action,
    };
    if set == "http-after-response" && action.starts_with("set-log-level") {
        return format!("{set} set-header x-after 1{condition}");
    }
    format!("{set} {action}{condition}")
}

fn either_option(random: &mut Rng) -> String {
    let options = [
        "option http-server-close",
        "option httpclose",
        "option http-keep-alive",
        "option forwardfor",
        "option forwardfor if-none",
        "option forwardfor header x-client",
        "option http-buffer-request",
        "option abortonclose",
        "option originalto",
        "option http-no-delay",
        "option independent-streams",
        "option http-restrict-req-hdr-names delete",
        "option http-restrict-req-hdr-names reject",
    ];
    pick(random, &options).to_owned()
}

fn front_line(random: &mut Rng) -> String {
    match random.usize(..24) {
        0..=8 => request_rule(random),
        9..=12 => response_rule(random),
        13..=15 => either_option(random),
        16 => pick(
            random,
            &[
                "capture request header x-a len 8",
                "capture request header host len 20",
                "capture response header x-r len 8",
                "capture cookie A= len 10",
            ],
        )
        .to_owned(),
        17 => pick(
            random,
            &[
                "timeout client 375ms",
                "timeout http-request 375ms",
                "timeout http-keep-alive 375ms",
                "timeout client-fin 375ms",
                "timeout tarpit 375ms",
            ],
        )
        .to_owned(),
        18 => pick(
            random,
            &[
                "option dontlognull",
                "option http-drop-response-trailers",
                "option dontlog-normal",
                "option log-separate-errors",
                "option logasap",
                "option http-ignore-probes",
                "option idle-close-on-response",
                "option contstats",
                "option nolinger",
                "option http-use-proxy-header",
                "option accept-unsafe-violations-in-http-request",
                "option socket-stats",
                "option tcp-smart-accept",
            ],
        )
        .to_owned(),
        19 => pick(
            random,
            &[
                "tcp-request inspect-delay 375ms",
                "tcp-request connection accept",
                "tcp-request session accept",
                "tcp-request content accept if HTTP",
                "tcp-request content reject if { req.len 0 }",
                "tcp-request content reject unless HTTP",
                "maxconn 100",
            ],
        )
        .to_owned(),
        20 => pick(
            random,
            &[
                "redirect location /front if { path_beg /a }",
                "redirect prefix http://p.test code 303 if { method POST }",
                "monitor-uri /a",
                "unique-id-header x-id",
                "unique-id-format id-%ST",
                "errorloc 503 /sorry",
                "errorloc303 400 http://e.test/",
            ],
        )
        .to_owned(),
        _ => request_rule(random),
    }
}

fn back_line(random: &mut Rng) -> String {
    match random.usize(..24) {
        0..=3 => request_rule(random),
        4..=8 => response_rule(random),
        9..=10 => either_option(random),
        11 => pick(random, &["retries 0", "retries 1", "retries 2"]).to_owned(),
        12 | 13 => pick(
            random,
            &[
                "retry-on all-retryable-errors",
                "retry-on conn-failure empty-response",
                "retry-on 503 500",
                "retry-on response-timeout",
                "retry-on junk-response conn-failure",
                "retry-on none",
                "retry-on 404 empty-response",
                "retry-on 0rtt-rejected",
            ],
        )
        .to_owned(),
        14 => pick(
            random,
            &["option redispatch", "option redispatch 1", "no option redispatch", "option persist"],
        )
        .to_owned(),
        15 => pick(
            random,
            &[
                "option checkcache",
                "option http-drop-request-trailers",
                "option nolinger",
                "option http-pretend-keepalive",
                "option prefer-last-server",
                "option tcp-smart-connect",
                "option accept-unsafe-violations-in-http-response",
            ],
        )
        .to_owned(),
        16 => pick(
            random,
            &[
                "timeout server 375ms",
                "timeout connect 375ms",
                "timeout queue 375ms",
                "timeout server-fin 375ms",
                "timeout tunnel 375ms",
                "timeout http-request 375ms",
            ],
        )
        .to_owned(),
        17 => format!("http-reuse {}", pick(random, &["never", "safe", "aggressive", "always"])),
        18..=20 => {
            let mode = pick(
                random,
                &[
                    "insert",
                    "insert indirect",
                    "insert indirect nocache",
                    "insert postonly",
                    "insert preserve",
                    "rewrite",
                    "prefix",
                    "prefix indirect",
                    "prefix nocache",
                    "insert indirect httponly secure",
                    "insert domain a.test",
                    "insert attr X=1 indirect",
                ],
            );
            format!("cookie SRV {mode}")
        }
        21 => pick(
            random,
            &[
                "balance roundrobin",
                "balance first",
                "balance leastconn",
                "balance source",
                "balance uri",
                "balance hdr(x-a)",
            ],
        )
        .to_owned(),
        22 => pick(
            random,
            &[
                "fullconn 10",
                "acl is_a path_beg /a",
                "ignore-persist if { path_beg /a }",
                "force-persist if { path_beg /a }",
                "use-server s0 if { path_beg /b }",
                "redirect location /back if { path_beg /b }",
            ],
        )
        .to_owned(),
        _ => response_rule(random),
    }
}

fn server(random: &mut Rng, place: usize) -> Server {
    let mut parameters = String::new();
    if random.bool() {
        parameters.push_str(&format!("cookie v{place}"));
    }
    if seldom(random, 6) {
        parameters.push_str(" maxconn 1");
    }
    if seldom(random, 12) {
        parameters.push(' ');
        parameters.push_str(pick(
            random,
            &[
                "weight 5",
                "backup",
                "pool-max-conn 0",
                "max-reuse 1",
                "redir http://r.test",
                "disabled",
                "send-proxy",
                "maxqueue 1",
                "weight 0",
                "no-send-proxy",
                "send-proxy-v2",
                "pool-purge-delay 300ms",
            ],
        ));
    }
    Server { parameters, is_refused: seldom(random, 8), answers: traffic::answers(random) }
}

/// One case in this many is in TCP mode.
const STREAMS: u64 = 6;

pub(crate) fn case(seed: u64, number: u64) -> Case {
    let random = &mut Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
    if number % STREAMS == STREAMS - 1 {
        return streams::case(random);
    }
    let lines = |random: &mut Rng, most: usize| random.usize(..=most);
    let front = (0..lines(random, 4)).map(|_| front_line(random)).collect();
    let back = (0..lines(random, 4)).map(|_| back_line(random)).collect();
    let servers = (0..[1, 1, 2][random.usize(..3)]).map(|place| server(random, place)).collect();
    let clients =
        (0..[1, 1, 1, 1, 2, 3][random.usize(..6)]).map(|place| traffic::client(random, place)).collect();
    let mut case = Case { front, back, servers, clients };
    if seldom(random, 20) {
        hindered::read_slowly(random, &mut case);
    }
    if seldom(random, 12) {
        hindered::introduce(random, &mut case);
    }
    in_order(&mut case);
    case
}

/// Orders rules so that neither program has a reason to warn, and removes duplicates.
pub(crate) fn in_order(case: &mut Case) {
    let rank = |line: &String| match line.split(' ').next().unwrap_or_default() {
        "mode" | "capture" | "acl" => 0,
        "tcp-request" if line.contains("inspect-delay") => 1,
        "tcp-request" if line.contains("connection") => 2,
        "tcp-request" if line.contains("session") => 3,
        "tcp-request" => 4,
        "tcp-response" if line.contains("inspect-delay") => 4,
        "tcp-response" => 5,
        "http-request" => 5,
        "http-response" => 6,
        "http-after-response" => 7,
        "redirect" => 8,
        _ => 9,
    };
    let has_capture = |line: &String| line.contains(" capture ");
    if case.back.iter().any(has_capture) {
        // Capture slots belong to frontends.
        case.back.retain(|line| !has_capture(line));
    }
    if case.servers.len() > 1 {
        // Among equal servers, HAProxy's choice depends on chance.
        case.back.retain(|line| line != "balance leastconn");
    }
    for lines in [&mut case.front, &mut case.back] {
        lines.sort_by_key(rank);
        let mut seen = std::collections::HashSet::new();
        lines.retain(|line| {
            let word = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
            rank(line) < 9 || seen.insert(word)
        });
    }
}
