//! Links of the documentation: linked files and headings exist, and source references in `docs/dev` are valid.
//!
//! In `docs/dev`, a link such as ``[`accept::serve`](../../crates/proxy/src/serve/accept.rs)`` names an item of the file, and a
//! diff applies to the sources.

use std::path::Path;

use crate::anchors;

/// The folder of pages for developers.
const FOR_DEVELOPERS: &str = "docs/dev";

/// Returns every broken link in the workspace's pages, and every diff that does not apply.
///
/// # Errors
/// A page cannot be read.
pub(crate) fn broken(root: &Path) -> Result<Vec<String>, String> {
    let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    let mut found = Vec::new();
    for path in pages {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let of_page = of_page(root, &path, &text, name.starts_with(FOR_DEVELOPERS));
        found.extend(of_page.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    Ok(found)
}

fn of_page(root: &Path, path: &Path, text: &str, names_items: bool) -> Vec<String> {
    let folder = path.parent().unwrap_or(root);
    let mut found = Vec::new();
    for (shown, target) in links(text) {
        let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if name.is_empty() { path.to_owned() } else { folder.join(name) };
        if !file.exists() {
            found.push(format!("{target} does not exist"));
        } else if !anchor.is_empty() && file.extension().is_some_and(|extension| extension == "md") {
            let linked = std::fs::read_to_string(&file).unwrap_or_default();
            if !anchors::of_page(&linked).contains(anchor) {
                found.push(format!("{target} is not a heading"));
            }
        } else if names_items && target.ends_with(".rs") {
            let item = shown.trim_matches('`').rsplit("::").next().unwrap_or_default();
            let source = std::fs::read_to_string(&file).unwrap_or_default();
            if !defines(&source, item) {
                found.push(format!("{target} has no item `{item}`"));
            }
        }
    }
    if names_items {
        found.extend(hunks(text).into_iter().filter_map(|(file, old)| {
            let source = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
            (!source.contains(&old)).then(|| format!("a diff of {file} does not apply:\n{old}"))
        }));
    }
    found
}

/// Returns the links to files and headings: text and target. Code and links to sites are skipped.
fn links(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            let shown = line[..at].rsplit('[').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                found.push((shown, target));
            }
        }
    }
    found
}

/// Returns whether a source defines an item of this name.
fn defines(source: &str, name: &str) -> bool {
    ["fn", "struct", "enum", "trait", "type", "const", "static"].iter().any(|kind| {
        source.match_indices(&format!("{kind} {name}")).any(|(at, found)| {
            !source[at + found.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
        })
    })
}

/// Returns the file and the old lines of each hunk of the diffs on a page.
fn hunks(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut file: Option<String> = None;
    for line in text.lines().skip_while(|line| *line != "```diff") {
        match line {
            "```diff" | "```" => file = None,
            _ if line.starts_with("--- ") => {}
            _ if line.starts_with("+++ b/") => file = Some(line[6..].to_owned()),
            _ if line.starts_with("@@") => found.extend(file.clone().map(|file| (file, String::new()))),
            // Editors strip the space of an empty line.
            _ if file.is_some() && (line.is_empty() || line.starts_with([' ', '-'])) => {
                if let Some((_, old)) = found.last_mut() {
                    old.push_str(line.get(1..).unwrap_or_default());
                    old.push('\n');
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_items_and_diffs_apply() {
        let found = broken(&crate::root()).expect("the pages are readable");
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text =
            "a [b](c.md#d) and [`e::f`](g.rs)\n```text\n[h](i.md)\n```\n[j](#k) [l](https://m.test/)\n";
        assert_eq!(links(text), [("b", "c.md#d"), ("`e::f`", "g.rs"), ("j", "#k")]);
    }

    #[test]
    fn items_are_found_by_their_whole_name() {
        let source = "pub(crate) async fn serve(x: u8) {}\nstruct Place<'a>(&'a u8);";
        let cases = [("serve", true), ("serv", false), ("Place", true), ("Plac", false), ("x", false)];
        for (name, expected) in cases {
            assert_eq!(defines(source, name), expected, "{name}");
        }
    }

    #[test]
    fn a_diff_is_checked_by_its_old_lines() {
        let text = "```diff\n--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n@@ -9 +9,2 @@\n nine\n+ten\n```\n one\n";
        let expected = [("x.rs", "one\ntwo\n"), ("x.rs", "nine\n")];
        let expected = expected.map(|(file, old)| (file.to_owned(), old.to_owned()));
        assert_eq!(hunks(text), expected);
    }
}
