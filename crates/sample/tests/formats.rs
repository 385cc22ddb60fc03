//! Log formats: the aliases, the default formats, quoting and escaping.

mod common;

use common::World;
use sample::{Endpoint, FormatFor, Place};

fn log(world: &World, text: &str) -> String {
    world.format(text, FormatFor::Log)
}

fn world() -> World {
    World { place: Place::Log, ..World::new() }
}

/// A date with ms in the local time zone of the test run.
fn local(us: u64) -> String {
    let mut text = String::new();
    base::clock::Date::local((us / 1_000_000) as i64)
        .write_log((us / 1_000 % 1_000) as u32, &mut text)
        .expect("a string takes all");
    text
}

#[test]
fn default_formats_match_haproxy() {
    let world = world();
    let date = local(1_234_567_890_136_456);
    let http = log(&world, sample::format::HTTP_LOG);
    assert_eq!(
        http,
        format!(
            "192.0.2.7:4711 [{date}] fe be/s1 10/1/30/69/119 404 2750 - - ---- 0/0/0/0/0 0/0 {{agent #7Bx#7Cy#7D|}} \"GET /static/img/logo.png?a=1&b=two&A=3&empty= HTTP/1.1\""
        )
    );
    let accepted = local(1_234_567_890_123_456);
    let mut world = world;
    world.transaction.is_http = false;
    let tcp = log(&world, sample::format::TCP_LOG);
    assert_eq!(tcp, format!("192.0.2.7:4711 [{accepted}] fe be/s1 24/30/132 2750 -- 0/0/0/0/0 0/0"));
}

#[test]
fn every_alias_has_its_value() {
    let cases = [
        ("%ci:%cp %fi:%fp", "192.0.2.7:4711 203.0.113.1:80"),
        ("%bi:%bp %si:%sp", "10.1.1.254:33000 10.1.1.1:80"),
        ("%{+X}ci:%cp", "C0000207:4711"),
        ("%{+X}cp", "1267"),
        ("%f %ft %b %s", "fe fe be s1"),
        ("%Th %Ti %TR %Tq %Tw %Tc %Tr %Td %Ta %Tt %Tu", "3 10 10 23 1 30 69 9 119 132 122"),
        ("%ST %B %U %rc %sq %bq %rt %lc %ts %tsc", "404 2750 300 0 0 0 31 0 -- ----"),
        (
            "%HM %HP %HPO %HQ %HV",
            "GET /static/img/logo.png /static/img/logo.png ?a=1&b=two&A=3&empty= HTTP/1.1",
        ),
        ("%ID %CC %CS", "id-77 - -"),
        ("%T %Ts %ms %trg", "13/Feb/2009:23:31:30 +0000 1234567890 123 13/Feb/2009:23:31:30 +0000"),
        ("%hr|%hs|%hrl", "{agent #7Bx#7Cy#7D|}||agent #7Bx#7Cy#7D -"),
        (
            "%{+Q}o %{-Q}ci %cp %t %ST %B %ts %fi %{+X}fi",
            "192.0.2.7 4711 13/Feb/2009:23:31:30.123 404 2750 -- \"203.0.113.1\" CB007101",
        ),
        ("%{+Q}o %{-Q}ci %s %hrl", "192.0.2.7 \"s1\" \"agent #7Bx#7Cy#7D\" \"\""),
        ("a   b%%", "a b%"),
        ("%[src]/%[capture.req.hdr(1)]/%{+Q}[capture.req.hdr(1)]", "192.0.2.7/-/\"\""),
        ("%(n)[fe_name]", "fe"),
        (
            "%{+json}o %(status)ST %(who)[src] %(none)CC text",
            "{\"status\": 404, \"who\": \"192.0.2.7\", \"none\": \"\"}",
        ),
        (
            "%{+json}o %(n:str)ST %(b:bool)ST %(s:sint)[str(12)] %(x:sint)[str(a)] %(t:str)[bool(1)] %(i:sint)[src] %(j:bool)[src]",
            r#"{"n": "404", "b": true, "s": 12, "x": 0, "t": "1", "i": 3221225991, "j": ""}"#,
        ),
        (
            "%{+json,+X}o %(u:sint)HM %(ip)ci %(port)cp %(bytes)B %(date)Ts",
            r#"{"u": "GET", "ip": "C0000207", "port": "1267", "bytes": 2750, "date": "499602D2"}"#,
        ),
        ("%{+E}hr %{+E,+Q}hrl", "{agent #7Bx#7Cy#7D|} \"agent #7Bx#7Cy#7D\" \"\""),
        (
            "%{+json}o %(h)hrl %(r)r",
            r#"{"h": ["agent #7Bx#7Cy#7D", "-"], "r": "GET /static/img/logo.png?a=1&b=two&A=3&empty= HTTP/1.1"}"#,
        ),
        ("%{+json}o %(up)U %(down)B %(retries)rc", r#"{"up": 300, "down": 2750, "retries": 0}"#),
        ("x=%{+json}[str(\"a\\\"b\")] %{+json}ST %{+json}CC", r##"x="a\"b" 404 """##),
        ("x=%(ignored:str)ST", "x=404"),
        ("%{+cbor}o %(s)ST %(who)[src] %(no)CC", "BF61731901946377686F693139322E302E322E37626E6FF6FF"),
        ("x=%{+cbor}ST", "x=190194"),
        ("%{+E}[str(a\\\"b])]", "a\\\"b\\]"),
    ];
    for (text, expected) in cases {
        let found = log(&world(), text);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn missing_values_are_dashes_in_logs_and_empty_elsewhere() {
    let mut world = world();
    world.transaction.server = None;
    world.transaction.server_ends = None;
    world.transaction.request_line = None;
    world.transaction.unique_id = None;
    assert_eq!(log(&world, "%s %si:%sp %ID %{+Q}r"), "<NOSRV> -:- - \"<BADREQ>\"");
    world.place = Place::HttpRequest;
    assert_eq!(world.format("a%[req.hdr(nope)]b  c", FormatFor::Header), "ab  c");
}

#[test]
fn failed_connections_have_a_remote_address() {
    let mut world = world();
    world.transaction.server_target = Some(Endpoint::Ip(([10, 1, 1, 2], 81).into()));
    let format = "%bi:%bp %si:%sp %[bc_dst]:%[bc_dst_port] %[bc_src]";
    assert_eq!(log(&world, format), "-:- 10.1.1.2:81 10.1.1.2:81 -");
    // The log reports the last attempt. The earlier connection of a request that was sent again does not matter.
    world.transaction.server_ends = None;
    assert_eq!(log(&world, format), "-:- 10.1.1.2:81 10.1.1.2:81 -");
    assert_eq!(log(&world, "%[bc_http_major]"), "1");
}

#[test]
fn control_characters_are_escaped_by_use() {
    let mut world = World::new();
    world.transaction.request.set(&http::Name::new(b"x-odd"), b"a\x01\"b");
    assert_eq!(world.format("%[req.hdr(x-odd)]", FormatFor::Header), "a%01\"b");
    assert_eq!(world.format("%[req.hdr(x-odd)]", FormatFor::Text), "a\u{1}\"b");
    world.transaction.request_line = world.transaction.keep(b"GET /\x01\"# HTTP/1.0");
    world.place = Place::Log;
    assert_eq!(log(&world, "%r"), "GET /#01#22#23 HTTP/1.0");
}

#[test]
fn format_errors_name_cause_and_position() {
    let cases = [
        ("%zz", "there is no log format alias `zz`"),
        ("100%", "there is no log format alias `%`"),
        ("%[src", "missing `]` after the expression in a log format"),
        ("%[srcc]", "unknown fetch method `srcc`"),
        ("%{+Z}ci", "unknown flag `Z` in a log format"),
        ("%{+Q", "missing `}` in a log format"),
        ("%[req.hdr(x)]", "`req.hdr` cannot be used here: it needs the request's contents"),
    ];
    for (text, expected) in cases {
        assert_eq!(log(&world(), text), format!("error: {expected}"), "{text}");
    }
}

#[test]
fn flags_without_a_sign_are_ignored_with_a_warning() {
    let world = world();
    for (text, expected, warnings) in [
        ("%{Q}ci", "192.0.2.7", &["Q"][..]),
        ("%{X}ci", "192.0.2.7", &["X"]),
        ("%{+Q,X}ci", "\"192.0.2.7\"", &["X"]),
        ("%{Q}o %ci", "192.0.2.7", &["Q"]),
        (
            "x %{json}o %(a)ci %{E,M,bin,cbor}[src]",
            "x 192.0.2.7 192.0.2.7",
            &["json", "E", "M", "bin", "cbor"],
        ),
        ("%{+Q}ci", "\"192.0.2.7\"", &[]),
    ] {
        assert_eq!(log(&world, text), expected, "{text}");
        let expected: Vec<String> = warnings
            .iter()
            .map(|flag| format!("the log format flag `{flag}` is ignored because it has no sign"))
            .collect();
        assert_eq!(world.warnings.take(), expected, "{text}");
    }
}

#[test]
fn a_format_without_items_is_constant() {
    let world = World::new();
    let compile = |text: &str| {
        sample::Format::compile(text, diag::Span::default(), &world.scope(), FormatFor::Header).unwrap()
    };
    assert_eq!(compile("max-age=1; 100%%").as_constant(), Some(&b"max-age=1; 100%"[..]));
    assert_eq!(compile("").as_constant(), Some(&b""[..]));
    assert_eq!(compile("%[src]").as_constant(), None);
}
