//! Checks that the imports between the modules of a crate have no cycles.
//!
//! The modules of a folder are compared with each other; a module is a file, or a folder with everything in it. Items that `lib.rs`
//! or `mod.rs` re-exports are attributed to their original module. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type ModulePath = Vec<String>;

/// A module that is a file.
struct Module {
    path: ModulePath,
    source: String,
}

/// Returns the cycles between modules of the crate in `folder`.
pub(crate) fn circles(root: &Path, name: &str, folder: &str) -> Vec<String> {
    let modules = read(&root.join(folder).join("src"), &[]);
    let used = imports(&modules);
    let levels: BTreeSet<ModulePath> = modules
        .iter()
        .flat_map(|module| (0..module.path.len()).map(|end| module.path[..end].to_vec()))
        .collect();
    let mut found = Vec::new();
    for level in levels {
        let shown = level.join("::");
        let knots = knots(&edges(&used, &level));
        if !knots.is_empty() {
            let knots: Vec<String> = knots.iter().map(|knot| knot.join(" ")).collect();
            found.push(format!("{folder}: circles of imports in `{name}::{shown}`: {}", knots.join("; ")));
        }
    }
    found
}

/// Returns the modules below a folder.
fn read(folder: &Path, path: &[String]) -> Vec<Module> {
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.path();
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if file.is_dir() && stem != "tests" {
            modules.extend(read(&file, &[path, &[stem]].concat()));
        } else if file.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
            let own = if matches!(stem.as_str(), "lib" | "main" | "mod") {
                path.to_vec()
            } else {
                [path, &[stem]].concat()
            };
            let source = std::fs::read_to_string(&file).unwrap_or_default();
            modules.push(Module { path: own, source: without_tests(&source) });
        }
    }
    modules
}

/// Returns a source without comments and without its test module.
pub(crate) fn without_tests(source: &str) -> String {
    let end = source.find("#[cfg(test)]\nmod ").unwrap_or(source.len());
    source[..end]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the imports between modules, with re-exports resolved.
fn imports(modules: &[Module]) -> Vec<(ModulePath, ModulePath)> {
    let known: BTreeSet<&ModulePath> = modules.iter().map(|module| &module.path).collect();
    let mut exports: BTreeMap<ModulePath, ModulePath> = BTreeMap::new();
    for module in modules {
        for path in exported(module, &known) {
            if let Some(name) = path.last() {
                exports.insert([&module.path[..], std::slice::from_ref(name)].concat(), path);
            }
        }
    }
    let mut used = Vec::new();
    for module in modules {
        for path in paths(&module.source, &module.path) {
            let path = exports.get(&path).cloned().unwrap_or(path);
            let target =
                (0..=path.len()).rev().map(|end| path[..end].to_vec()).find(|path| known.contains(path));
            used.extend(target.map(|target| (module.path.clone(), target)));
        }
    }
    used
}

/// Returns the original paths of a module's re-exports.
fn exported(module: &Module, known: &BTreeSet<&ModulePath>) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for statement in module.source.split(';').map(str::trim_start) {
        let Some(at) = statement.find("use ").filter(|_| statement.contains("pub")) else { continue };
        let tree = statement[at + 4..].trim();
        let mut own = Vec::new();
        expand(tree, &[], &mut own);
        for path in own {
            let absolute = match path.first().map(String::as_str) {
                Some("crate") => path[1..].to_vec(),
                Some("self") => [&module.path[..], &path[1..]].concat(),
                _ => [&module.path[..], &path[..]].concat(),
            };
            if known.iter().any(|module| absolute.starts_with(module) && !module.is_empty()) {
                found.push(absolute);
            }
        }
    }
    found
}

/// Returns every path in a source that begins with `crate`, `super` or `self`, relative to the crate's root.
fn paths(source: &str, own: &[String]) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in source.match_indices(start) {
            let before = source[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '_' | ':' | '$')) {
                continue;
            }
            let mut trees = Vec::new();
            expand(&source[at..], &[], &mut trees);
            for path in trees {
                let supers = path.iter().take_while(|part| *part == "super").count();
                let rest = match path[0].as_str() {
                    "crate" => path[1..].to_vec(),
                    "self" => [own, &path[1..]].concat(),
                    _ => [&own[..own.len().saturating_sub(supers)], &path[supers..]].concat(),
                };
                found.push(rest);
            }
        }
    }
    found
}

/// Expands a tree of imports: `a::{b, c::d}` is `a::b` and `a::c::d`. Returns where the tree ends.
fn expand(text: &str, prefix: &[String], found: &mut Vec<ModulePath>) -> usize {
    let name: String = text.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect();
    let mut at = name.len();
    let mut path = prefix.to_vec();
    if !name.is_empty() {
        path.push(name);
    }
    let Some(rest) = text[at..].strip_prefix("::") else {
        found.push(path);
        return at;
    };
    at += 2;
    if !rest.starts_with('{') {
        return at + expand(rest, &path, found);
    }
    at += 1;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        match text[at..].chars().next() {
            None | Some('}') => return at + 1,
            Some(',') => at += 1,
            Some(_) => {
                let read = expand(&text[at..], &path, found);
                // ` as other` and unsupported syntax is skipped.
                at += read;
                at += text[at..].find([',', '}', '{']).unwrap_or(text.len() - at);
            }
        }
    }
}

/// Returns the imports among the modules of one folder.
fn edges(used: &[(ModulePath, ModulePath)], level: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let child = |path: &ModulePath| path.strip_prefix(level).and_then(|rest| rest.first()).cloned();
    for (from, to) in used {
        if let (Some(from), Some(to)) = (child(from), child(to))
            && from != to
        {
            edges.entry(from).or_default().insert(to);
        }
    }
    edges
}

/// Returns the sets of modules that reach each other.
fn knots(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = edges.get(from).into_iter().flatten().collect();
        while let Some(name) = next.pop() {
            if seen.insert(name.clone()) {
                next.extend(edges.get(name).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|name| (name, reach(name))).collect();
    let mut knots: BTreeSet<Vec<String>> = BTreeSet::new();
    for (name, own) in &reached {
        if own.contains(*name) {
            let mutual =
                own.iter().filter(|other| reached.get(other).is_some_and(|theirs| theirs.contains(*name)));
            knots.insert(mutual.cloned().collect());
        }
    }
    knots.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, source: &str) -> Module {
        let path = path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Module { path, source: without_tests(source) }
    }

    fn found(modules: &[Module]) -> Vec<Vec<String>> {
        knots(&edges(&imports(modules), &[]))
    }

    #[test]
    fn cycles_are_found_through_lists_re_exports_and_folders() {
        let lib = || module("", "pub use c::Thing;\npub mod a; mod b; mod c;");
        let open =
            [lib(), module("a", "use crate::{b::X, c};"), module("b", "// crate::a\n"), module("c", "")];
        assert!(found(&open).is_empty());
        let direct =
            [lib(), module("a", "use crate::{c, b::X};"), module("b", "use super::a::Y;"), module("c", "")];
        assert_eq!(found(&direct), [["a", "b"]]);
        let exported = [lib(), module("c", "fn f() { crate::a::g() }"), module("a", "use crate::Thing;")];
        assert_eq!(found(&exported), [["a", "c"]]);
        let folder =
            [lib(), module("a::x", "use crate::b::Y;"), module("b", "use crate::a::x::Z;"), module("a", "")];
        assert_eq!(found(&folder), [["a", "b"]]);
        let of_tests =
            [lib(), module("a", "use crate::b;"), module("b", "\n#[cfg(test)]\nmod tests { use crate::a; }")];
        assert!(found(&of_tests).is_empty());
    }
}
