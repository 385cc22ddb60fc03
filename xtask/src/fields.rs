//! Finds fields of the plan that nothing reads: a keyword that sets such a field has no effect.
//!
//! The compiler does not detect this, because the fields are public and the parser that sets them is another crate. The check works
//! by name: a field is considered read if `.name` is read, or `name` is bound by a pattern, in a crate that uses the plan.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PLAN: &str = "crates/plan/src";

/// The crates that use the plan. `config`, which fills it, is not among them.
const READERS: &[&str] = &[
    "crates/plan",
    "crates/proxy",
    "crates/health",
    "crates/resolvers",
    "crates/httpclient",
    "crates/acme",
    "crates/explain",
    "crates/discovery",
    "crates/telemetry",
    "weir",
];

/// Fields that `config` itself uses while it resolves the rest, or to create servers and backends later.
const WHILE_LOADING: &[&str] = &[
    "check_kind",
    "cookie_length",
    "default_path",
    "external_check",
    "external_check_environment",
    "healthchecks",
    "is_separate",
    "logasap",
    "pp2_never_send_local",
    "renice_startup",
    "sectioned",
    "stick_counters",
    "unix_bind",
    "vars_max",
];

/// Returns the fields that nothing reads, as `file: field`.
pub(crate) fn unread(root: &Path) -> Result<Vec<String>, String> {
    let mut read = BTreeSet::new();
    for reader in READERS {
        for path in sources(&root.join(reader).join("src")) {
            names_read(&text(&path)?, &mut read);
        }
    }
    let mut unread = Vec::new();
    let mut excused = BTreeSet::new();
    for path in sources(&root.join(PLAN)) {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let fields = fields(&text(&path)?);
        for field in fields.into_iter().filter(|field| !read.contains(field)) {
            if WHILE_LOADING.contains(&field.as_str()) {
                excused.insert(field);
            } else {
                unread.push(format!(
                    "{shown}: nobody reads `{field}`: build what it is for, or refuse the keyword"
                ));
            }
        }
    }
    let stale = WHILE_LOADING.iter().filter(|field| !excused.contains(**field));
    unread
        .extend(stale.map(|field| format!("`{field}` need not be in the list of fields read while loading")));
    Ok(unread)
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns all Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns the public fields of structs in a source.
fn fields(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in source.lines() {
        let Some((name, _)) = line.trim_start().strip_prefix("pub ").and_then(|rest| rest.split_once(": "))
        else {
            continue;
        };
        if name.chars().all(is_part) && !name.is_empty() {
            names.push(name.to_owned());
        }
    }
    names
}

fn is_part(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Collects the names that a source reads after a dot, and those that it binds by a pattern.
fn names_read(source: &str, read: &mut BTreeSet<String>) {
    for line in source.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        for (at, _) in line.match_indices('.') {
            let name: String = line[at + 1..].chars().take_while(|char| is_part(*char)).collect();
            let rest = line[at + 1 + name.len()..].trim_start();
            let assigned =
                rest.starts_with("= ") || ["|=", "&=", "+="].iter().any(|sign| rest.starts_with(sign));
            // The command line is another struct.
            let of_arguments = line[..at].ends_with("args");
            // A call is not a field access.
            if !of_arguments && !name.is_empty() && !assigned && !rest.starts_with('(') {
                read.insert(name);
            }
        }
        // `let Tune { bufsize, .. } = …`, `Some(Log { tag, .. })`: names in a pattern.
        if line.contains("..") && line.contains('{') {
            let inside = line.split_once('{').map_or("", |(_, inside)| inside);
            read.extend(inside.split(|char| !is_part(char)).map(str::to_owned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_plan_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask stands in the workspace");
        let unread = unread(root).expect("the workspace is readable");
        assert!(unread.is_empty(), "\n{}", unread.join("\n"));
    }

    #[test]
    fn fields_that_are_only_set_count_as_unread() {
        let mut read = BTreeSet::new();
        names_read(
            "plan.set = args.set;\nplan.more |= true;\nif plan.read == 2 {}\nplan.call();\nlet Plan { taken, .. } = plan;",
            &mut read,
        );
        assert!(read.contains("read") && read.contains("taken"));
        assert!(!read.contains("set") && !read.contains("more") && !read.contains("call"));
        assert_eq!(fields("/// Doc.\n    pub one: u32,\n    two: u32,\npub fn three(a: u32) {}\n"), ["one"]);
    }
}
