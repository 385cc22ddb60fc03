//! Repository maintenance: generated documents, and rules that the compiler does not check.
//!
//! `cargo run -p xtask -- imports` checks the imports between crates and between modules, and the places of `unsafe`; `… fields`
//! that every field of the plan is read; `… dependencies` the rules of `deny.toml`; `… links` the links of the documentation; `…
//! names` that a type's name is used for one thing; `… prose` counts phrases that read like a translation, and lists those of the
//! given paths; `… untested` lists supported keywords that no end-to-end test uses. The tests of this crate make the same checks:
//! `make lint` runs them.
//!
//! `cargo run -p xtask -- docs` writes `docs/keywords.md` from the keyword tables, `docs/metrics-list.md` from the tables of
//! the Prometheus exporter, `docs/faults.md` from the table of causes, `docs/runtime-api.md` from the tables of commands and the examples in `docs/runtime-api`,
//! `docs/dev/crates.md` from the table in `ARCHITECTURE.md`, and `docs/compatibility.md` from the tables, a list of all
//! keywords of HAProxy (`docs/surface.tsv`: kind, where, name, signature) and the results of HAProxy's regression tests
//! (`docs/regression-tests.tsv`).
//!
//! `cargo run -p xtask -- manual FOLDER` writes the manual pages and shell completions of packages.
#![forbid(unsafe_code)]

mod anchors;
mod compatibility;
mod completions;
mod coverage;
mod dependencies;
mod faults;
mod fields;
mod help;
mod imports;
mod links;
mod manual;
mod map;
mod metrics;
mod modules;
mod names;
mod prose;
mod reference;
mod runtime_api;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Every keyword of HAProxy: kind, where, name, signature.
const SURFACE: &str = "docs/surface.tsv";
/// The results of HAProxy's regression tests.
const REGRESSION_TESTS: &str = "docs/regression-tests.tsv";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let outcome = match words.first().map(String::as_str) {
        Some("imports") => imports(&root),
        Some("fields") => fields::unread(&root).and_then(|found| none(&found)),
        Some("dependencies") => dependencies::breaches(&root).and_then(|found| none(&found)),
        Some("links") => links::broken(&root).and_then(|found| none(&found)),
        Some("names") => names::ambiguous(&root).and_then(|found| none(&found)),
        Some("prose") => prose::report(&root, &words[1..]),
        Some("manual") => match words.get(1) {
            Some(folder) => manual::write(Path::new(folder)),
            None => Err("usage: xtask manual FOLDER".to_owned()),
        },
        Some("docs") => docs(&root),
        Some("untested") => untested(&root),
        _ => Err(
            "usage: xtask imports | fields | dependencies | links | names | prose [PATH…] | docs | manual FOLDER | untested"
                .to_owned(),
        ),
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

fn imports(root: &Path) -> Result<(), String> {
    none(&imports::breaches(root)?)
}

fn none(found: &[String]) -> Result<(), String> {
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

/// The generated documents: path and text.
fn pages(root: &Path) -> Result<[(&'static str, String); 6], String> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let (list, results, shown) = (read(SURFACE)?, read(REGRESSION_TESTS)?, coverage::Shown::read(root)?);
    Ok([
        ("docs/compatibility.md", compatibility::page(&list, &results, &shown).0),
        ("docs/keywords.md", reference::page()),
        ("docs/faults.md", faults::page()),
        ("docs/metrics-list.md", metrics::page()),
        ("docs/runtime-api.md", runtime_api::page(root)?),
        ("docs/dev/crates.md", map::page(imports::table(&read("ARCHITECTURE.md")?))),
    ])
}

/// Prints the supported keywords that no test uses.
fn untested(root: &Path) -> Result<(), String> {
    let without = without_test(root)?;
    println!("{}\n{} of at most {}", without.join("\n"), without.len(), compatibility::MOST_WITHOUT_TEST);
    Ok(())
}

fn without_test(root: &Path) -> Result<Vec<String>, String> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let shown = coverage::Shown::read(root)?;
    Ok(compatibility::page(&read(SURFACE)?, &read(REGRESSION_TESTS)?, &shown).1)
}

fn docs(root: &Path) -> Result<(), String> {
    for (path, text) in pages(root)? {
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
        for (path, text) in pages(&root).expect("what the documents are made from is readable") {
            let kept = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(kept == text, "{path} is stale: run `cargo run -p xtask -- docs`");
        }
    }

    #[test]
    fn few_keywords_that_work_are_without_a_test_from_outside() {
        let without = without_test(&root()).expect("what the page is made from is readable");
        let most = compatibility::MOST_WITHOUT_TEST;
        assert!(
            without.len() < most,
            "{} keywords, {most} is too many:\n{}",
            without.len(),
            without.join("\n")
        );
    }
}
