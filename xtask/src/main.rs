//! Chores of the repository: generated documents, and the rules of the house.
//!
//! `cargo run -p xtask -- arrows` checks which crate uses which, and where `unsafe` stands.
//!
//! `cargo run -p xtask -- docs [SURFACE]` writes `docs/keywords.md` from the keyword tables, and `docs/compatibility.md`
//! from the tables, a list of all keywords of HAProxy (`surface.tsv`: kind, where, name, signature) and the results of HAProxy's
//! regression tests (`docs/regression-tests.tsv`).
#![forbid(unsafe_code)]

mod arrows;
mod compatibility;
mod reference;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The list of keywords, where nothing else is said.
const SURFACE: &str = "../shared/compat/surface.tsv";
/// The results of HAProxy's regression tests.
const REGRESSION_TESTS: &str = "docs/regression-tests.tsv";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let outcome = match words.first().map(String::as_str) {
        Some("arrows") => arrows(&root),
        Some("docs") => docs(&root, words.get(1).map_or(SURFACE, String::as_str)),
        _ => Err("usage: xtask arrows | docs [SURFACE]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_path_buf()
}

fn arrows(root: &Path) -> Result<(), String> {
    let found = arrows::breaches(root)?;
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

/// The generated documents: path and text.
fn pages(root: &Path, surface: &str) -> Result<[(&'static str, String); 2], String> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let (list, results) = (read(surface)?, read(REGRESSION_TESTS)?);
    Ok([
        ("docs/compatibility.md", compatibility::page(&list, &results)),
        ("docs/keywords.md", reference::page()),
    ])
}

fn docs(root: &Path, surface: &str) -> Result<(), String> {
    for (path, text) in pages(root, surface)? {
        std::fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_documents_are_up_to_date() {
        let root = root();
        if !root.join(SURFACE).exists() {
            println!("passed over: {SURFACE} does not exist");
            return;
        }
        for (path, text) in pages(&root, SURFACE).expect("what the documents are made from is readable") {
            let kept = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(kept == text, "{path} is stale: run `cargo run -p xtask -- docs`");
        }
    }
}
