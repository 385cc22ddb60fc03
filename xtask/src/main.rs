//! Chores of the repository: generated documents.
//!
//! `cargo run -p xtask -- docs [SURFACE]` writes `docs/keywords.md` from the keyword tables, and `docs/compatibility.md`
//! from the tables and a list of all keywords of HAProxy (`surface.tsv`: kind, where, name, signature).
#![forbid(unsafe_code)]

mod compatibility;
mod reference;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("docs") => docs(words.get(1).map_or("../shared/compat/surface.tsv", String::as_str)),
        _ => Err("usage: xtask docs [SURFACE]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn docs(surface: &str) -> Result<(), String> {
    let list = std::fs::read_to_string(surface).map_err(|error| format!("{surface}: {error}"))?;
    write("docs/compatibility.md", &compatibility::page(&list))?;
    write("docs/keywords.md", &reference::page())
}

fn write(path: &str, text: &str) -> Result<(), String> {
    std::fs::create_dir_all("docs")
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{path}: {error}"))?;
    println!("wrote {path}");
    Ok(())
}
