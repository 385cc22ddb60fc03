//! Properties of the translation: it depends on the objects alone, and values of objects stay values in the text.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use gateway_model::{Key, Objects, Output, Settings, translate};
use proptest::prelude::*;
use serde_json::Value;

/// The objects of all golden cases.
fn samples() -> Vec<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|case| case.unwrap().path()).collect();
    cases.sort();
    cases
        .iter()
        .map(|case| serde_json::from_str(&fs::read_to_string(case.join("objects.json")).unwrap()).unwrap())
        .collect()
}

fn output(list: &[Value]) -> Output {
    let mut objects = Objects::default();
    for object in list {
        if let Some(kind) = object["kind"].as_str() {
            let _ = objects.insert(kind, object.clone());
        }
    }
    translate(&objects, &Settings::default())
}

/// Texts that would be lines, words, comments, variables or expressions if they were not quoted.
const HOSTILE: &[&str] = &[
    "a\n    evil word",
    "\nglobal\n    evil",
    "a evil b",
    "a\tevil",
    "x' evil 'y",
    "x\" evil \"y",
    "\\ evil",
    "a\\' evil",
    "${HOME} evil",
    "# evil",
    "} evil",
    "}",
    "%[env(HOME)] evil",
    "%[str( evil )]",
    "a,b) evil",
    "a\r evil",
    "a\0 evil",
    "/evil path",
    "/x%[evil]",
    "/x' evil '/",
    "(?i: evil",
    "a)|( evil ",
    "evil.*",
    "*.evil example",
    "é evil ü",
    "",
];

/// The number of texts in a value.
fn texts(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(list) => list.iter_mut().for_each(|own| texts(own, change)),
        Value::Object(map) => map.iter_mut().for_each(|(_, own)| texts(own, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The words of a line, with the same rules for quotes as the configuration language. `None` marks a word with an evaluated
/// variable or an open quote.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut is_open) = (Vec::new(), String::new(), false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => {
                if std::mem::take(&mut is_open) {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    inner => word.push(inner),
                }
            },
            '\\' => word.push(chars.next()?),
            '"' | '$' | '#' => return None,
            other => word.push(other),
        }
        is_open = true;
    }
    if is_open {
        words.push(word);
    }
    Some(words)
}

fn check(output: &Output) {
    for line in output.config.lines() {
        let words = words(line).unwrap_or_else(|| panic!("evaluated: {line}"));
        assert!(!words.iter().any(|word| word == "evil"), "{line}");
        let is_section = !line.starts_with(' ');
        let sections = ["global", "defaults", "discovery", "backend", "frontend", "udp-lb", "userlist"];
        let known = [
            "acl",
            "balance",
            "bind",
            "cookie",
            "default_backend",
            "dgram-bind",
            "dynamic-cookie-key",
            "http-after-response",
            "http-request",
            "http-response",
            "lua-load-per-thread",
            "mode",
            "option",
            "retries",
            "retry-delay",
            "retry-on",
            "server",
            "servers",
            "stick-table",
            "targets",
            "tcp-request",
            "timeout",
            "tune.lua.bool-sample-conversion",
            "udp-request",
            "user",
            "use_backend",
        ];
        let first = words.first().map_or("", |word| word.as_str());
        let expected: &[&str] = if is_section { &sections } else { &known };
        assert!(line.is_empty() || expected.contains(&first), "{line}");
    }
    for (name, content) in &output.files {
        assert!(!name.contains("..") && !name.starts_with('/') && name.is_ascii(), "{name}");
        if name.starts_with("maps/") {
            let text = String::from_utf8_lossy(content);
            assert!(text.lines().all(|line| line.split(' ').count() <= 2), "{name}: {text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_stay_values(case in 0usize..7, places in prop::collection::vec((any::<prop::sample::Index>(), 0..HOSTILE.len()), 1..6)) {
        let mut list = samples().swap_remove(case);
        let mut count = 0;
        list.iter_mut().for_each(|object| texts(object, &mut |_| count += 1));
        for (place, text) in places {
            let (wanted, mut at) = (place.index(count), 0);
            list.iter_mut().for_each(|object| texts(object, &mut |own| {
                if at == wanted && !Objects::KINDS.contains(&own.as_str()) {
                    *own = HOSTILE[text].into();
                }
                at += 1;
            }));
        }
        check(&output(&list));
    }

    #[test]
    fn parts_may_be_missing(case in 0usize..7, gone in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let mut list = samples().swap_remove(case);
        for place in gone {
            list.remove(place.index(list.len()));
        }
        check(&output(&list));
    }

    #[test]
    fn the_order_of_events_does_not_matter(case in 0usize..7, order in any::<prop::sample::Index>()) {
        let mut list = samples().swap_remove(case);
        let first = output(&list);
        let middle = order.index(list.len());
        list.rotate_left(middle);
        prop_assert_eq!(&output(&list), &first);
        list.reverse();
        prop_assert_eq!(&output(&list), &first);
    }
}

#[test]
fn objects_that_come_and_go_leave_no_trace() {
    for list in samples() {
        let first = output(&list);
        let mut objects = Objects::default();
        for object in &list {
            objects.insert(object["kind"].as_str().unwrap(), object.clone()).unwrap();
        }
        let extra = serde_json::json!({ "metadata": { "namespace": "x", "name": "y" } });
        for kind in Objects::KINDS {
            objects.insert(kind, extra.clone()).unwrap();
            assert!(objects.remove(kind, &Key::new("x", "y")), "{kind}");
        }
        assert_eq!(translate(&objects, &Settings::default()), first);
    }
}
