//! No configuration text and no client input makes this crate panic.

mod common;

use common::World;
use diag::Span;
use proptest::prelude::*;
use sample::{Bytes, Condition, Expression, Format, FormatFor, Place, Scope, Scratch, Value, Words};

/// Texts with the characters that are special to the parsers, and some others.
fn text() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        "[a-z._0-9]{1,8}",
        "[(),\"'\\\\%\\[\\]{}!+ ]{1,4}",
        "\\PC{0,3}",
        Just("req.hdr(host)".to_owned()),
        Just("str(a)".to_owned()),
        Just(",lower".to_owned()),
        Just("%[src]".to_owned()),
    ];
    proptest::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat())
}

/// Values of every type, made from arbitrary bytes.
fn values(bytes: &[u8]) -> Vec<Value<'_>> {
    let number =
        bytes.iter().fold(0i64, |number, byte| number.wrapping_mul(257).wrapping_add(i64::from(*byte)));
    vec![
        Value::str(bytes),
        Value::bin(bytes),
        Value::Str(Bytes::Made(Scratch::copy(bytes))),
        Value::Int(number),
        Value::Int(i64::MIN),
        Value::Bool(true),
        Value::Ip4((number as u32).into()),
        Value::Ip6((number as u128).into()),
        Value::Method(bytes.into()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_expression_compiles_or_is_refused(text in text()) {
        let world = World::new();
        let scope = world.scope();
        if let Ok(expression) = Expression::compile_str(&text, Span::default(), &scope) {
            expression.eval(&world.env());
        }
        for used_for in [FormatFor::Log, FormatFor::Header, FormatFor::Text] {
            if let Ok(format) = Format::compile(&text, Span::default(), &scope, used_for) {
                format.render(&world.env(), &mut Vec::new());
            }
        }
        let list = common::words(&text);
        if let Ok(condition) = Condition::compile(&mut Words::new(&list, Span::default()), &scope) {
            condition.eval(&world.env());
        }
    }

    #[test]
    fn any_value_passes_through_any_converter(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let world = World::new();
        let env = world.env();
        for convert in sample::convert::all() {
            let texts: Vec<String> = Vec::new();
            let Ok(mut args) = sample::args::resolve(&texts, convert.args, &world.scope()) else { continue };
            if convert.prepare.is_some_and(|prepare| prepare(&mut args, &world.scope()).is_err()) {
                continue;
            }
            let args = sample::args::Args(args.into());
            for value in values(&bytes) {
                if let Some(value) = value.cast(convert.takes) {
                    let _ = convert.apply(value, &args, &env);
                }
            }
        }
        for text in [
            "field(2,a,3)", "word(-1,a)", "bytes(3,9)", "be2dec(-,3)", "be2hex(:,8,1)", "protobuf(1.2,sint64)", "ungrpc(1)",
            "mqtt_field_value(connect,username)", "fix_tag_value(35)", "jwt_header_query('$.alg')", "json_query('$.a[0]')",
            "utime('%Y%j%V%c')", "http_date(0,us)", "regsub('(a|b)+','<\\1>',g)", "param(a)", "rfc7239_field(for)",
            "hmac(sha256,a2V5)", "language(en)", "ipmask(12,34)", "json(utf8ps)", "url_dec(1)",
        ] {
            let scope = world.scope();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            for source in [format!("bin({hex}),{text}"), format!("bin({hex}),hex,{text}"), format!("int(-77),{text}")] {
                if let Ok(expression) = Expression::compile_str(&source, Span::default(), &scope) {
                    expression.eval(&env);
                }
            }
        }
    }

    #[test]
    fn any_bytes_may_come_from_a_client(bytes in proptest::collection::vec(any::<u8>(), 0..80), complete: bool) {
        let mut world = World::new();
        world.place = Place::TcpRequestContent;
        world.transaction.is_http = false;
        world.complete = complete;
        // The first bytes of TLS and RDP get past the parsers' first checks.
        for start in [&b""[..], &[0x16, 3, 1, 0, 60, 1, 0, 0, 56, 3, 3], &[3, 0, 0, 40, 0, 0xe0]] {
            world.request_bytes = [start, &bytes].concat();
            for fetch in sample::fetch::all() {
                let texts: Vec<String> = Vec::new();
                let scope = Scope { place: Place::TcpRequestContent, ..world.scope() };
                let Ok(mut args) = sample::args::resolve(&texts, fetch.args, &scope) else { continue };
                if fetch.prepare.is_some_and(|prepare| prepare(&mut args, &scope).is_err()) {
                    continue;
                }
                let args = sample::args::Args(args.into());
                let mut cursor = sample::fetch::Cursor::all();
                let _ = (fetch.run)(&world.env(), &args, &mut cursor);
            }
        }
    }
}
