//! Invalid configurations are explained: in HAProxy's wording for tools, and with the exact position for people.

#[path = "../common/mod.rs"]
mod common;
mod filters;
mod global;
mod proxies;
mod sections;
mod servers;

use common::{lines, load, load_quietly, places};

#[test]
fn messages_use_the_words_of_haproxy() {
    let cases = [global::CASES, proxies::CASES, servers::CASES, filters::CASES, sections::CASES];
    let shown =
        cases.concat().into_iter().map(|(text, expected)| (text, lines(&load_quietly(text)), expected));
    let others: Vec<_> = shown.filter(|(_, shown, expected)| shown != expected).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn messages_point_at_the_words_they_are_about() {
    let cases: &[(&str, &[&str])] = &[
        (
            "backend b\n   balanse x\n",
            &["2:4 unknown keyword `balanse` in `backend` section (did you mean `balance`?)"],
        ),
        (
            "frontend f\n mode http\n http-request jump x\n http-request label x\n http-request label x\n http-request jump x\n timeout client 1s\n",
            &["5:2 the label `x` is already defined", "6:2 there is no label `x` after this rule"],
        ),
        (
            "backend b\n timeout client 3s\n",
            &[
                "2:2 `timeout client` is ignored: backend `b` has no frontend side (allowed in: defaults, frontend, listen, log-forward, udp-lb)",
            ],
        ),
        (
            "backend b\n timeout server 3sx\n timeout server 3.5s\n",
            &[
                "2:19 `x` after a time is ignored (read as `3s`, the units are us, ms, s, m, h and d)",
                "3:18 `timeout server`: unexpected character '.' in `3.5s` (use a whole number and one of: us, ms, s, m, h, d)",
                "3:2 `timeout server` is already set: this line is used",
            ],
        ),
        (
            "frontend f\n mode http\n bind :80\n timeout client 1s\n acl a path_begs /a\n http-request deny if {path_beg /x }\n",
            &[
                "5:8 unknown fetch method `path_begs` in ACL expression `path_begs` (did you mean `path_beg`?)",
                "6:23 unknown ACL `{path_beg` (a blank must follow the brace: `{ path_beg`)",
            ],
        ),
        (
            "backend b\n balance uri dpeth 3\n",
            &["2:14 unknown option `dpeth` for `balance uri` (did you mean `depth`?)"],
        ),
        (
            "backend b\n server s \"10.0.0.1:8x\"\n",
            &["2:21 `server`: invalid port number `8x` in `10.0.0.1:8x`"],
        ),
        (
            "backend b\n retries 5 6\n",
            &["2:12 unexpected argument `6` for `retries` (usage: retries <value>)"],
        ),
        (
            "listen l\n bind :80\n mode http\n compression algo gzip\n filter trace\n filter comp-res\n filter-sequence response comp-re,tarce\n",
            &[
                "7:27 unknown filter `comp-re` (did you mean `comp-res`?)",
                "7:35 unknown filter `tarce` (did you mean `trace`?)",
            ],
        ),
        (
            "backend b\n timeout servr 3s\n",
            &["2:10 unknown timeout `servr` in `backend` section (did you mean `server`?)"],
        ),
        ("frontend f\n bind :80,:8x\n", &["2:12 `bind`: invalid port number `8x` in `:8x`"]),
        // Lines that follow a misspelled section still belong to it, and a misspelled `bind` causes no second message.
        (
            "defaults\n timeout client 5s\nfronted f\n bind :80\n use_backend x\nfrontend g\n bnid :80\n",
            &[
                "3:1 unknown keyword `fronted` in `defaults` section (did you mean `frontend`?)",
                "7:2 unknown keyword `bnid` in `frontend` section (did you mean `bind`?)",
            ],
        ),
        (
            "frontend f\n bind :80\n http-request set-hdr a b\n http-request deny fi TRUE\n",
            &[
                "3:15 unknown action `set-hdr` in `http-request` (did you mean `set-header`?)",
                "4:20 unexpected `fi`; only `if` or `unless` may follow (did you mean `if`?)",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(places(&load_quietly(text)), *expected, "{text}");
    }
}

#[test]
fn missing_timeouts_are_named() {
    let loaded = load("listen l\n bind :80\n server s 1.1.1.1:1\n timeout client 3s\n");
    assert_eq!(
        places(&loaded),
        ["1:8 missing timeouts for proxy `l` (without `timeout connect`, `timeout server`)"]
    );
    assert!(
        lines(&loaded)[0]
            .starts_with("[WARNING] missing timeouts for proxy 'l'. | While not properly invalid")
    );
    assert!(loaded.plan.is_some());
}

#[test]
fn the_terminal_form_shows_the_line() {
    let loaded = load("\n\nbackend api\n    balanse roundrobin\n");
    let shown: Vec<String> = loaded
        .diagnostics
        .iter()
        .map(|diagnostic| diag::render::terminal(diagnostic, &loaded.sources, diag::render::Colour::Never))
        .collect();
    let expected = "\
error: unknown keyword `balanse` in `backend` section
 --> test.cfg:4:5
  |
4 |     balanse roundrobin
  |     ^^^^^^^ did you mean `balance`?
";
    assert_eq!(shown, [expected]);
}

#[test]
fn every_error_is_reported_not_only_the_first() {
    let loaded = load("frontend f\n bind :x\n timeout client y\n foo\nbackend b\n bar\n server\n");
    assert_eq!(loaded.diagnostics.error_count(), 5);
    assert!(loaded.plan.is_none());
}
