//! Reading any configuration results in a plan or in messages, but never in a panic.

mod common;

use proptest::prelude::*;

const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "defaults d",
    "frontend f",
    "backend b",
    "listen l",
    "userlist u",
    "http-errors e",
];

/// Words that keywords expect, and words that they do not.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "", "0", "1", "-1", "80", "70000", "99999999999999999999", "5s", "5x", "1us", "64k", "on", "off", "name", "len", "id",
    ":80", "*:80-90", "[::1]:1", "10.0.0.1", "10.0.0.1:+8", "/tmp/x", "fd@3", "abns@a", "unix@", "é", "\"", "'", "\\", "#", "a\\ b",
    "\"$HOME\"", "\"${X[*]}\"", "if", "unless", "TRUE", "{", "}", "!", "or", "src", "hdr(host)", "%[src]", "%ci", "%[", "%[foo]",
    "path_beg", "-i", "-m", "str", "status", "200-299", "string", "rstring", "(", "check", "weight", "inter", "cookie", "track",
    "b/s", "from", "d", "be:", "ssl", "roundrobin", "random(0)", "uri", "depth", "hash", "insert", "domain", "global", "local0",
    "format", "raw", "location", "prefix", "code", "302", "deny", "return", "set-header", "set-var(txn.x)", "capture", "tarpit",
    "503", "/dev/null", "except", "header", "httplog", "http", "tcp", "user", "groups", "password", "expect", "send", "connect",
];

fn line() -> impl Strategy<Value = String> {
    let rows: Vec<&'static str> = config::tables::all().map(|row| row.name).collect();
    let words = proptest::collection::vec(proptest::sample::select(WORDS), 0..7);
    let prefix = proptest::sample::select(&["", "", "", "", "no ", "default "][..]);
    (prefix, proptest::sample::select(rows), words)
        .prop_map(|(prefix, name, words)| format!(" {prefix}{name} {}\n", words.join(" ")))
}

fn section() -> impl Strategy<Value = String> {
    (proptest::sample::select(SECTIONS), proptest::collection::vec(line(), 0..12))
        .prop_map(|(head, lines)| format!("{head}\n{}", lines.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_lines_yield_a_plan_or_errors(sections in proptest::collection::vec(section(), 0..5)) {
        let text = sections.concat();
        let loaded = common::load(&text);
        prop_assert!(loaded.plan.is_some() != loaded.diagnostics.has_errors(), "{}", text);
        for diagnostic in loaded.diagnostics.iter() {
            diag::render::terminal(diagnostic, &loaded.sources, diag::render::Colour::Always);
            diag::render::line(diagnostic, &loaded.sources, 1);
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "(\\PC|[\\n\\t\"'#$\\\\{}\\[\\]().: ]|frontend |backend |server ){0,200}") {
        let loaded = common::load(&text);
        prop_assert!(loaded.plan.is_some() != loaded.diagnostics.has_errors());
    }
}
