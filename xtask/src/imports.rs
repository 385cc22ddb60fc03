//! Checks the permitted imports between crates and between modules, and the permitted places of `unsafe`.
//!
//! The table in this file must agree with the manifests and with `ARCHITECTURE.md`; every difference is an error. Dependencies only
//! for tests (`[dev-dependencies]`) are not restricted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::modules;

/// A crate by the name that other crates use, its folder, and the workspace crates that it imports.
type Crate = (&'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const CRATES: &[Crate] = &[
    ("base",       "crates/base",    &[]),
    ("diag",       "crates/diag",    &[]),
    ("syntax",     "crates/syntax",  &["base", "diag"]),
    ("runtime",    "crates/runtime", &["base"]),
    ("http",       "crates/http",    &[]),
    ("compress",   "crates/compress", &[]),
    ("fields",     "crates/fields",  &["base", "http"]),
    ("h2",         "crates/h2",      &["base", "fields", "http"]),
    ("h3",         "crates/h3",      &["base", "fields", "http"]),
    ("cache",      "crates/cache",   &["http"]),
    ("fcgi",       "crates/fcgi",    &["base", "http"]),
    ("quic",       "crates/quic",    &["tls"]),
    ("qmux",       "crates/qmux",    &["quic"]),
    ("spop",       "crates/spop",    &["base"]),
    ("otlp",       "crates/otlp",    &["base"]),
    ("tls",        "crates/tls",     &["base", "compress"]),
    ("state",      "crates/state",   &["base", "runtime"]),
    ("sample",     "crates/sample",  &["base", "cache", "diag", "http", "otlp", "runtime", "state", "tls"]),
    ("rules",      "crates/rules",   &["base", "cache", "diag", "http", "sample", "state"]),
    ("balance",    "crates/balance", &["base", "http", "runtime", "sample", "state"]),
    ("mail",       "crates/mail",    &[]),
    ("lua",        "crates/lua",     &["base", "http", "rules", "runtime", "sample", "state"]),
    ("net",        "crates/net",     &["base", "runtime", "tls"]),
    ("load",       "crates/load",    &["base", "fields", "h2", "h3", "http", "net", "qmux", "quic", "runtime", "tls"]),
    ("plan",       "crates/plan",    &["balance", "base", "cache", "compress", "fcgi", "fields", "h2", "h3", "http", "lua", "mail", "net", "otlp", "rules", "runtime", "sample", "state", "tls"]),
    ("config",     "crates/config",  &["balance", "base", "cache", "compress", "diag", "http", "lua", "mail", "otlp", "plan", "rules", "runtime", "sample", "spop", "state", "syntax", "tls"]),
    ("process",    "crates/process", &["base"]),
    ("scratch",    "crates/scratch", &[]),
    ("disk",       "crates/disk",    &["base", "cache"]),
    ("udplb",      "crates/udplb",   &[]),
    ("gateway-model", "crates/gateway", &[]),
    ("proxy",      "crates/proxy",   &["balance", "base", "cache", "compress", "fcgi", "fields", "h2", "h3", "http", "lua", "net", "otlp", "plan", "qmux", "quic", "rules", "runtime", "sample", "spop", "state", "tls", "udplb"]),
    ("health",     "crates/health",  &["base", "fcgi", "fields", "h2", "http", "net", "plan", "process", "runtime", "sample", "spop", "state", "tls"]),
    ("explain",    "crates/explain", &["balance", "base", "http", "plan", "rules", "runtime", "sample", "state", "tls"]),
    ("resolvers",  "crates/resolvers", &["base", "net", "plan", "runtime", "state", "tls"]),
    ("peers",      "crates/peers",   &["base", "net", "runtime", "state"]),
    ("httpclient", "crates/httpclient",  &["base", "fields", "h2", "http", "net", "plan", "resolvers", "runtime", "state", "tls"]),
    ("ocsp",       "crates/ocsp",    &["base", "httpclient", "runtime", "state", "tls"]),
    ("acme",       "crates/acme",    &["base", "httpclient", "plan", "resolvers", "runtime", "sample", "state", "tls"]),
    ("discovery",  "crates/discovery", &["base", "httpclient", "net", "plan", "process", "runtime", "state"]),
    ("telemetry",  "crates/telemetry", &["base", "compress", "httpclient", "net", "otlp", "plan", "resolvers", "runtime", "state"]),
    ("statistics", "crates/statistics", &["base", "cache", "http", "runtime", "sample", "state", "tls"]),
    ("control",    "crates/control", &["base", "cache", "http", "runtime", "sample", "state", "statistics", "tls"]),
    ("weir",       "weir",           &["acme", "balance", "base", "cache", "httpclient", "compress", "config", "control", "diag", "discovery", "disk", "explain", "health", "http", "load", "lua", "mail", "net", "ocsp", "peers", "plan", "process", "proxy", "resolvers", "rules", "runtime", "sample", "state", "statistics", "syntax", "telemetry", "tls"]),
    ("weir-gateway", "gateway",        &["base", "gateway-model", "httpclient", "net", "runtime", "tls"]),
    ("xtask",      "xtask",          &["base", "config", "control", "rules", "sample", "statistics"]),
    ("weir-tests", "tests",          &["acme", "cache", "httpclient", "config", "control", "diag", "discovery", "fcgi", "fields", "gateway-model", "h2", "h3", "health", "http", "mail", "net", "peers", "plan", "qmux", "quic", "resolvers", "rules", "runtime", "sample", "scratch", "spop", "state", "statistics", "tls"]),
];

/// The crates that may disable the `unsafe` check for one of their files, and these files.
const UNSAFE: &[(&str, &str)] = &[("net", "crates/net/src/sys.rs"), ("process", "crates/process/src/sys.rs")];

/// Returns all violations of the rules in the workspace at `root`.
pub(crate) fn breaches(root: &Path) -> Result<Vec<String>, String> {
    let read = |path: &str| -> Result<String, String> {
        std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let mut found = Vec::new();
    let crates: BTreeSet<&str> = CRATES.iter().map(|(name, ..)| *name).collect();
    let told = table(&read("ARCHITECTURE.md")?);
    for (name, folder, uses) in CRATES {
        let allowed: BTreeSet<String> = uses.iter().map(|name| (*name).to_owned()).collect();
        let manifest = read(&format!("{folder}/Cargo.toml"))?;
        let actual =
            dependencies(&manifest).into_iter().filter(|name| crates.contains(name.as_str())).collect();
        found.extend(compare(name, &allowed, &actual, &format!("{folder}/Cargo.toml")));
        if let Some((_, documented)) = told.iter().find(|(own, _)| own == name) {
            found.extend(compare(name, &allowed, documented, "ARCHITECTURE.md"));
        } else if folder.starts_with("crates/") {
            found.push(format!("ARCHITECTURE.md has no row for `{name}`"));
        }
        found.extend(guard(root, name, folder));
        found.extend(modules::circles(root, name, folder));
    }
    found.extend(strangers(root));
    for file in sources(root) {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if !UNSAFE.iter().any(|(_, file)| *file == shown) && is_unsafe(&read(&shown)?) {
            found.push(format!("{shown} holds `unsafe`, which only `net::sys` and `process::sys` may"));
        }
    }
    Ok(found)
}

fn compare(name: &str, allowed: &BTreeSet<String>, actual: &BTreeSet<String>, place: &str) -> Vec<String> {
    let forbidden =
        actual.difference(allowed).map(|other| format!("{place}: `{name}` may not use `{other}`"));
    let stale = allowed.difference(actual).map(|other| format!("{place}: `{name}` does not use `{other}`"));
    forbidden.chain(stale).collect()
}

/// Returns the names under `[dependencies]` and `[target.….dependencies]`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside =
                title == "dependencies" || title.starts_with("target.") && title.ends_with(".dependencies");
            names.extend(title.strip_prefix("dependencies.").map(str::to_owned));
        } else if inside && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if !name.is_empty() {
                names.insert(name.trim_matches('"').to_owned());
            }
        }
    }
    names
}

/// Returns the rows of the table of crates in `ARCHITECTURE.md`: name and imports.
pub(crate) fn table(page: &str) -> Vec<(String, BTreeSet<String>)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| {
        let (name, rest) = row.split_once("` |")?;
        let imports = rest.trim_end().strip_suffix('|')?.rsplit('|').next()?.trim();
        let imports = imports.split_whitespace().filter(|word| *word != "–").map(str::to_owned).collect();
        Some((name.to_owned(), imports))
    })
    .collect()
}

/// Checks that a crate's root forbids `unsafe`; returns an error otherwise.
fn guard(root: &Path, name: &str, folder: &str) -> Option<String> {
    let source = ["src/lib.rs", "src/main.rs"]
        .iter()
        .find_map(|file| std::fs::read_to_string(root.join(folder).join(file)).ok())
        .unwrap_or_default();
    let guarded = source.contains("#![forbid(unsafe_code)]")
        || UNSAFE.iter().any(|(own, _)| *own == name) && source.contains("#![deny(unsafe_code)]");
    (!guarded).then(|| format!("{folder} does not forbid unsafe code"))
}

/// Returns the crates missing from the table.
fn strangers(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join("crates")) else { return Vec::new() };
    let folders = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    folders
        .map(|name| format!("crates/{name}"))
        .filter(|folder| root.join(folder).is_dir() && !CRATES.iter().any(|(_, known, _)| known == folder))
        .map(|folder| format!("{folder} has no row in the table of imports"))
        .collect()
}

/// Returns all Rust files of the workspace's crates.
pub(crate) fn sources(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = CRATES.iter().map(|(_, folder, _)| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns whether a source has an unsafe block, function, implementation or attribute, or permits itself to have one. Comments are
/// skipped.
fn is_unsafe(source: &str) -> bool {
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).any(|line| {
        let keyword = line.split("unsafe").skip(1).zip(line.split("unsafe")).any(|(after, before)| {
            let starts = before.chars().next_back().is_none_or(|last| " \t(=[{;,".contains(last));
            let next = after.trim_start();
            let block = ["{", "fn ", "impl ", "extern ", "trait "].iter().any(|word| next.starts_with(word));
            starts && (block || next.is_empty() || after.starts_with('('))
        });
        keyword || line.trim_start().starts_with("#") && line.contains("allow(unsafe_code)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_and_modules_only_have_permitted_imports() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask stands in the workspace");
        let found = breaches(root).expect("the workspace is readable");
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn only_non_test_dependencies_count() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nbase.workspace = true\n# diag = 1\nhttp = { path = \"..\" }\n\
                        [dev-dependencies]\nproxy.workspace = true\n[target.'cfg(unix)'.dependencies]\nnet = \"1\"\n[dependencies.tls]\npath = \"\"\n";
        let names: Vec<String> = dependencies(manifest).into_iter().collect();
        assert_eq!(names, ["base", "http", "net", "tls"]);
    }

    #[test]
    fn differences_are_reported_both_ways() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let told = compare("net", &set(&["base", "tls"]), &set(&["base", "proxy"]), "x");
        assert_eq!(told, ["x: `net` may not use `proxy`", "x: `net` does not use `tls`"]);
        let rows = table(
            "| crate | holds | imports |\n| --- | --- | --- |\n| `net` | a | b | base tls |\n| `base` | x | – |\n",
        );
        assert_eq!(rows, [("net".to_owned(), set(&["base", "tls"])), ("base".to_owned(), set(&[]))]);
    }

    #[test]
    fn unsafe_code_is_found_and_text_about_it_is_not() {
        let keyword = "unsafe";
        let cases = [
            (format!("let x = {keyword} {{ *p }};"), true),
            (format!("pub {keyword} fn f() {{}}"), true),
            (format!("{keyword} impl Send for X {{}}"), true),
            (format!("#[{keyword}(no_mangle)]"), true),
            (format!("#![allow({keyword}_code)]"), true),
            (format!("#![forbid({keyword}_code)]"), false),
            (format!("// an {keyword} {{ block }}"), false),
            (format!("(\"accept-{keyword}-violations-in-http-request\", 1)"), false),
        ];
        for (source, expected) in cases {
            assert_eq!(is_unsafe(&source), expected, "{source}");
        }
    }
}
