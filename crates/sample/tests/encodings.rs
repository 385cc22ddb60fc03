//! JSON and CBOR output is well-formed and equivalent, whatever bytes the values hold.

mod common;

use ciborium::Value as Cbor;
use common::World;
use proptest::prelude::*;
use sample::{FormatFor, Place};
use serde_json::Value as Json;

/// A world whose client sent `bytes` in the request line and in a captured header.
fn world(bytes: &[u8]) -> World {
    let mut world = World::new();
    world.place = Place::Log;
    world.transaction.request_line = world.transaction.keep(bytes);
    let kept = world.transaction.keep(bytes);
    world.transaction.request_captures = vec![kept, None];
    world
}

const ITEMS: &str = "%(line)r %(headers)hrl %(first)[capture.req.hdr(0)] %(status)ST %(text:str)ST %(flag:bool)ST \
                     %(raw)[capture.req.hdr(0),base64,b64dec] %(none)CC";

fn render(world: &World, format: &str) -> Vec<u8> {
    world.format_bytes(format, FormatFor::Log)
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// The value of `key` in the CBOR map.
fn entry<'m>(map: &'m [(Cbor, Cbor)], key: &str) -> &'m Cbor {
    let found = map.iter().find(|(name, _)| name.as_text() == Some(key));
    found.map(|(_, value)| value).expect("the key")
}

/// How logs show client bytes: unprintable bytes, and some printable ones, become `#` and two digits.
fn shown(bytes: &[u8], more: &str) -> String {
    let forbidden =
        |byte: &u8| !(32..127).contains(byte) || b"\"#".contains(byte) || more.as_bytes().contains(byte);
    bytes
        .iter()
        .map(|byte| if forbidden(byte) { format!("#{byte:02X}") } else { char::from(*byte).to_string() })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_parses_back_to_what_was_sent(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        let world = world(&bytes);
        let line = render(&world, &format!("%{{+json}}o {ITEMS}"));
        prop_assert!(!line.iter().any(|byte| byte.is_ascii_control()), "one line of printable characters");
        let parsed: Json = serde_json::from_slice(&line).expect("JSON");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert_eq!(&parsed["line"], &Json::from(shown(&bytes, "")));
        prop_assert_eq!(&parsed["headers"], &serde_json::json!([shown(&bytes, "{|}"), "-"]));
        prop_assert_eq!(&parsed["first"], &Json::from(text));
        prop_assert_eq!(&parsed["none"], &Json::from(""));
        prop_assert!(parsed["status"].is_i64() && parsed["text"].is_string() && parsed["flag"].is_boolean());
    }

    #[test]
    fn cbor_decodes_to_what_was_sent(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        let world = world(&bytes);
        let digested = render(&world, &format!("%{{+cbor}}o {ITEMS}"));
        let raw = render(&world, &format!("%{{+cbor,+bin}}o {ITEMS}"));
        let digits: Vec<u8> = raw.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect();
        prop_assert_eq!(&digested, &digits, "the same, in hexadecimal digits");
        let parsed: Cbor = ciborium::from_reader(&raw[..]).expect("CBOR");
        let map = parsed.as_map().expect("a map");
        let expected = if is_text(&bytes) {
            Cbor::Text(String::from_utf8_lossy(&bytes).into_owned())
        } else {
            Cbor::Bytes(bytes.clone())
        };
        prop_assert_eq!(entry(map, "line"), &Cbor::Text(shown(&bytes, "")));
        let headers = [shown(&bytes, "{|}"), "-".to_owned()].map(Cbor::Text);
        prop_assert_eq!(entry(map, "headers"), &Cbor::Array(headers.into()));
        prop_assert_eq!(entry(map, "first"), &expected);
        prop_assert_eq!(entry(map, "raw"), &Cbor::Bytes(bytes));
        prop_assert_eq!(entry(map, "none"), &Cbor::Null);
        prop_assert!(entry(map, "status").is_integer() && entry(map, "flag").is_bool());
    }

    #[test]
    fn numbers_round_trip_in_both_encodings(number in any::<i64>()) {
        let world = world(b"x");
        let json = render(&world, &format!("%{{+json}}o %(n)[int({number})]"));
        prop_assert_eq!(serde_json::from_slice::<Json>(&json).expect("JSON")["n"].as_i64(), Some(number));
        let cbor = render(&world, &format!("%{{+cbor,+bin}}o %(n)[int({number})]"));
        let parsed: Cbor = ciborium::from_reader(&cbor[..]).expect("CBOR");
        let map = parsed.as_map().expect("a map");
        let found = entry(map, "n").as_integer().and_then(|found| i64::try_from(found).ok());
        prop_assert_eq!(found, Some(number));
    }
}

#[test]
fn item_names_are_encoded_too() {
    let world = world(b"x");
    let line = render(&world, "%{+json}o %(a\"b\\)ST");
    assert_eq!(String::from_utf8_lossy(&line), r#"{"a\"b\\": 404}"#);
}

#[test]
fn raw_bytes_need_the_bin_flag() {
    let world = world(b"x");
    let text = |format: &str| world.format_bytes(format, FormatFor::Text);
    assert_eq!(text("%{+cbor}[int(1)]"), b"01", "digits, also in variables");
    assert_eq!(text("%{+cbor,+bin}[int(1)]"), b"01", "not of one item alone");
    assert_eq!(text("%{+cbor,+bin}o%(a)[int(1)]"), b"\xbf\x61\x61\x01\xff");
}
