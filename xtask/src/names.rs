//! Type names. A reader should recognize a type by its name outside its module, so at most a few types
//! may share one.

use std::collections::BTreeMap;
use std::path::Path;

use crate::imports;
use crate::modules::without_tests;

/// Maximum number of types in the workspace with the same name.
const MOST: usize = 2;

/// Returns the names shared by more than [`MOST`] types of the crates and the program, with their files.
pub(crate) fn ambiguous(root: &Path) -> Result<Vec<String>, String> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in imports::sources(root) {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if !is_product(&shown) {
            continue;
        }
        let source = std::fs::read_to_string(&file).map_err(|error| format!("{shown}: {error}"))?;
        for name in without_tests(&source).lines().filter_map(defined) {
            files.entry(name.to_owned()).or_default().push(shown.clone());
        }
    }
    files.retain(|_, files| files.len() > MOST);
    Ok(files
        .iter()
        .map(|(name, files)| format!("`{name}` is {} types: {}", files.len(), files.join(" ")))
        .collect())
}

/// Returns whether the file is part of a crate or of the program, but not of their tests.
fn is_product(file: &str) -> bool {
    let is_source = file.starts_with("weir/src/") || file.starts_with("crates/") && file.contains("/src/");
    is_source && !file.contains("/tests/") && !file.ends_with("tests.rs")
}

/// Returns the name of the type or trait that a line defines. An indented `type` is an associated type, which is qualified by the
/// name of its trait.
fn defined(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    let is_indented = rest.len() < line.len();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => after,
        };
    }
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !is_indented,
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| is_type && name.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_two_types_share_a_name() {
        let found = ambiguous(&crate::root()).expect("the sources are readable");
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn definitions_are_found_with_any_visibility() {
        let lines = [
            ("pub struct Server {", Some("Server")),
            ("pub(crate) enum Kind<'a> {", Some("Kind")),
            ("    struct Inner(u8);", Some("Inner")),
            ("pub trait Names: Send {", Some("Names")),
            ("type Outcome = Result<(), Error>;", Some("Outcome")),
            ("    type Target = Row;", None),
            ("impl Server {", None),
            ("let kind = 1;", None),
        ];
        for (line, name) in lines {
            assert_eq!(defined(line), name, "{line}");
        }
    }

    #[test]
    fn tests_of_a_crate_may_use_any_name() {
        let files =
            ["crates/h2/src/stream.rs", "weir/src/args.rs", "crates/h2/src/tests/mod.rs", "tests/src/lib.rs"];
        assert_eq!(files.map(is_product), [true, true, false, false]);
    }
}
