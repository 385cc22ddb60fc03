//! `docs/dev/crates.md`: a diagram of the crates, generated from the table in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the page for these rows: the name of a crate and its imports.
pub(crate) fn page(rows: Vec<(String, BTreeSet<String>)>) -> String {
    let names: BTreeSet<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    // Other tables of the page have rows of the same form.
    let imports: Imports = rows.into_iter().filter(|(_, imports)| imports.is_subset(&names)).collect();
    let mut out = String::from(
        "# Map of the crates\n\nAn arrow goes from a crate to one that it imports. An import that follows from other arrows is left out; \
         [ARCHITECTURE.md](../../ARCHITECTURE.md#crates) lists all of them, with the contents of each crate. Made from that table by \
         `cargo run -p xtask -- docs`; do not edit.\n\n```mermaid\nflowchart TB\n",
    );
    for name in imports.keys() {
        let direct = direct(&imports, name);
        if direct.is_empty() {
            let _ = writeln!(out, "    {name}");
        }
        for other in direct {
            let _ = writeln!(out, "    {name} --> {other}");
        }
    }
    out.push_str("```\n\n| layer | crates |\n| --: | --- |\n");
    let mut layers: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for name in imports.keys() {
        layers.entry(layer(&imports, name)).or_default().push(name);
    }
    for (layer, names) in layers.iter().rev() {
        let _ = writeln!(out, "| {layer} | `{}` |", names.join("` `"));
    }
    out.push_str("\nA crate imports crates of lower layers alone.\n");
    out
}

/// Returns one more than the highest layer among the imports; 0 without any.
fn layer(imports: &Imports, name: &str) -> usize {
    imports.get(name).into_iter().flatten().map(|other| layer(imports, other) + 1).max().unwrap_or(0)
}

/// Returns the imports that do not follow from others.
fn direct<'a>(imports: &'a Imports, name: &str) -> Vec<&'a str> {
    let own = &imports[name];
    own.iter()
        .filter(|other| !own.iter().any(|via| reaches(imports, via, other)))
        .map(String::as_str)
        .collect()
}

/// Returns whether a crate imports another, directly or indirectly.
fn reaches(imports: &Imports, from: &str, to: &str) -> bool {
    imports.get(from).into_iter().flatten().any(|next| next == to || reaches(imports, next, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_that_follow_from_others_have_no_arrow() {
        let row = |name: &str, imports: &[&str]| {
            (name.to_owned(), imports.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>())
        };
        let page = page(vec![
            row("base", &[]),
            row("net", &["base"]),
            row("weir", &["base", "net"]),
            row("other", &["a", "table"]),
        ]);
        let arrows: Vec<&str> = page.lines().filter(|line| line.contains("-->")).map(str::trim).collect();
        assert_eq!(arrows, ["net --> base", "weir --> net"]);
        assert!(page.contains("| 2 | `weir` |\n| 1 | `net` |\n| 0 | `base` |\n"), "{page}");
    }
}
