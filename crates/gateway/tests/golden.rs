//! Objects with the configuration text, statuses and events that they give, as files below `tests/golden`.
//!
//! With `UPDATE_GOLDEN=1` in the environment, the files are written instead of compared. The tests of the whole program check that
//! each text is a valid configuration.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use gateway_model::{ListenAddress, Objects, Output, Settings, translate};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn objects(path: &Path) -> Objects {
    let text = fs::read_to_string(path.join("objects.json")).unwrap();
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut objects = Objects::default();
    for object in list {
        let kind = object["kind"].as_str().unwrap().to_string();
        objects.insert(&kind, object).unwrap();
    }
    objects
}

fn settings() -> Settings {
    Settings {
        addresses: vec![ListenAddress { bind: "*".into(), reported: vec!["192.0.2.1".into()] }],
        directory: "/run/gateway".into(),
        now: 1_800_000_000,
        ..Settings::default()
    }
}

/// The statuses and events as lines.
fn report(output: &Output) -> String {
    let mut text = String::new();
    for it in &output.statuses {
        let line = json!({ "kind": it.kind, "key": it.key.to_string(), "generation": it.generation });
        text.push_str(&format!("{line}\n{}\n\n", serde_json::to_string_pretty(&it.status).unwrap()));
    }
    for it in &output.events {
        text.push_str(&format!("{} {}: {}: {}\n", it.kind, it.key, it.reason, it.message));
    }
    text
}

/// The configuration, and the files that are neither certificates nor scripts.
fn config(output: &Output) -> String {
    let mut text = output.config.clone();
    for (name, content) in &output.files {
        let content = String::from_utf8_lossy(content);
        let shown = match name.rsplit_once('.') {
            Some((_, "lua")) => "a script\n".into(),
            _ if content.contains("-----BEGIN") => "a certificate\n".into(),
            _ => content,
        };
        text.push_str(&format!("\n# {name}\n"));
        shown.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
    }
    text
}

#[test]
fn objects_give_the_expected_text_and_statuses() {
    let is_update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut cases = 0;
    let mut differing = Vec::new();
    for case in fs::read_dir(folder()).unwrap() {
        let path = case.unwrap().path();
        let output = translate(&objects(&path), &settings());
        for (name, text) in [("config.txt", config(&output)), ("statuses.txt", report(&output))] {
            let file = path.join(name);
            if is_update {
                fs::write(&file, text).unwrap();
            } else if fs::read_to_string(&file).unwrap_or_default() != text {
                differing.push(format!("{}: is now\n{text}", file.display()));
            }
        }
        cases += 1;
    }
    assert!(cases >= 7, "{cases} cases");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
