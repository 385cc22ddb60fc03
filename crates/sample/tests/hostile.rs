//! Input crafted to exhaust a proxy: backtracking patterns, deep and large JSON, arbitrary tokens. Nothing here measures time:
//! without its limit a case would not terminate or would overflow the stack.

mod common;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::World;
use sample::Test;
use sample::regex::Regex;

/// Patterns that the linear engine handles although they look dangerous, and patterns only PCRE2 accepts, each with its verdict on
/// `aaaa…!` of any length.
const PATTERNS: &[(&str, bool)] = &[
    (r"(a+)+$", true),
    (r"^(a|aa)+$", true),
    (r"(x+x+)+y", true),
    (r"^(?=a)(a+)+$", false),
    (r"^(a+)+\1$", false),
    (r"^((a+)+)(?!!)$", false),
    (r"(?<=a)(a*)*b", false),
    (r"^(\w+\s?)+(?=$)", false),
];

#[test]
fn patterns_give_up_on_hostile_texts() {
    for (pattern, linear) in PATTERNS {
        let regex = Regex::new(pattern, false).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(regex.is_linear(), *linear, "{pattern}");
        for length in [30, 1_000, 100_000] {
            let text = format!("{}!", "a".repeat(length));
            assert!(!regex.is_match(text.as_bytes()), "{pattern} on {length} letters");
            let mut out = Vec::new();
            assert!(!regex.expand(text.as_bytes(), b"\\0", &mut out), "{pattern} on {length} letters");
        }
    }
}

#[test]
fn backtracking_patterns_match_ordinary_texts() {
    let cases = [
        (r"^(?!admin)\w+$", "guest", true),
        (r"^(?!admin)\w+$", "admin2", false),
        (r"(\w)\1", "aa", true),
        (r"(\w)\1", "ab", false),
        (r"(?<=/)x", "/x", true),
        (r"a++b", "aaab", true),
        // Possessive matches are not given back.
        (r"a++a", "aaaa", false),
        (r"a*+a", "aaaa", false),
        (r"a{1,3}+a", "aaa", false),
    ];
    for (pattern, text, expected) in cases {
        let regex = Regex::new(pattern, false).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert!(!regex.is_linear(), "{pattern}");
        assert_eq!(regex.is_match(text.as_bytes()), expected, "{pattern} on {text}");
    }
}

#[test]
fn conditions_with_hostile_patterns_terminate() {
    let mut world = World::new();
    world.request_bytes = format!("{}!", "a".repeat(200_000)).into_bytes();
    assert_eq!(world.test(r"{ req.body -m reg (?=a)(a+)+$ }"), Ok(Test::No));
}

/// JSON nested deeply enough to overflow the stack of a parser without a limit.
fn deep(open: &str, close: &str, levels: usize) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

#[test]
fn deep_and_large_json_is_refused_or_read_without_harm() {
    let mut world = World::new();
    let query = |world: &mut World, text: String, rest: &str| {
        world.request_bytes = text.into_bytes();
        world.eval(&format!("req.body,json_query({rest})"))
    };
    assert_eq!(query(&mut world, deep("{\"a\":", "}", 100), "'$.a',int"), "none");
    assert_eq!(query(&mut world, deep("[", "]", 1_000_000), "'$[0]'"), "none");
    assert_eq!(query(&mut world, deep("{\"a\":", "}", 1_000_000), "'$.a'"), "none");
    assert_eq!(query(&mut world, "[".repeat(2_000_000), "'$[0]'"), "none");
    let large = format!("{{\"pad\":\"{}\",\"last\":7}}", "x".repeat(4_000_000));
    assert_eq!(query(&mut world, large, "'$.last',int"), "sint:7");
    let many = format!("{{{}\"last\":7}}", "\"k\":[1,2,3],".repeat(100_000));
    assert_eq!(query(&mut world, many, "'$.last',int"), "sint:7");
    assert_eq!(query(&mut world, "1e999999999".to_owned(), "'$'"), "str:inf");
}

#[test]
fn tokens_of_any_shape_are_answered() {
    let mut world = World::new();
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let nested = part(&deep("{\"alg\":", "}", 500_000));
    let large = part(&format!("{{\"alg\":\"HS256\",\"x\":\"{}\"}}", "y".repeat(1_000_000)));
    for token in [
        ".".repeat(1_000_000),
        "a".repeat(1_000_000),
        format!("{nested}.{nested}.{nested}"),
        format!("{nested}.{nested}.{nested}.{nested}.{nested}"),
        format!("{large}.{large}.{large}"),
        format!("{large}....{large}"),
    ] {
        world.request_bytes = token.into_bytes();
        for (convert, allowed) in [
            ("jwt_header_query('$.alg')", &["none", "str:HS256"][..]),
            ("jwt_payload_query('$.alg')", &["none", "str:HS256"]),
            ("jwt_verify(HS256,key)", &["sint:-3", "sint:0"]),
            ("jwt_decrypt_secret(a2V5)", &["none"]),
        ] {
            let found = world.eval(&format!("req.body,{convert}"));
            assert!(allowed.contains(&&*found), "{convert}: {found}");
        }
    }
}
